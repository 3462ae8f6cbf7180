//! The dashboard without a terminal: the same view drawn to text, and the report as JSON.

pub mod diff;
pub mod recommend;
pub mod report;
pub mod text;

pub use report::Report;
