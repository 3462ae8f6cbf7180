//! What a step costs and where: clocks, the step recorder, per-brick statistics, rates, the critical path,
//! the read-bandwidth probe and the operating system's counters.
//!
//! The engine writes into a [`recorder::StepRecorder`]; once a step the session folds the finished record into
//! [`stats::Aggregate`] and [`rates::RateMeter`]. Nothing on that road allocates or locks.

pub mod clock;
pub mod critical;
pub mod figures;
pub mod graph;
pub mod histogram;
pub mod os;
pub mod probe;
pub mod rates;
pub mod recorder;
pub mod stats;

pub use clock::Clock;
pub use recorder::{StepRecord, StepRecorder};
