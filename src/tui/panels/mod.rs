//! One widget a file; each draws one area from the state and nothing else.

pub mod advice;
pub mod bricks;
pub mod chrome;
pub mod counters;
pub mod debug;
pub mod dots;
pub mod footer;
pub mod header;
pub mod heat;
pub mod help;
pub mod latency;
pub mod layers;
pub mod memory;
pub mod model;
pub mod path;
pub mod prompt;
pub mod roofline;
pub mod sheet;
pub mod table;
pub mod text;
pub mod timeline;
pub mod trace;
pub mod tree;
