//! The TRACE language: text to statements and back.

mod ast;

pub use ast::{Edit, Fact, Format, How, Layers, Patch, Positions, Site, Statement, Trace};
