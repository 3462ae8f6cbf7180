//! What a step costs and where: clocks, the step recorder, per-brick statistics, rates, the critical path,
//! probes of the machine's peaks and the roofline under them, slow tokens and why they were slow, and the operating
//! system's counters.
//!
//! The engine writes into a [`recorder::StepRecorder`]; once a step the session folds the finished record into
//! [`stats::Aggregate`] and [`rates::RateMeter`]. Nothing on that road allocates or locks.

pub mod anomalies;
pub mod async_tasks;
pub mod clock;
pub mod counters;
pub mod critical;
pub mod figures;
pub mod graph;
mod heat;
pub mod histogram;
pub mod named;
pub mod os;
pub mod probe;
pub mod rates;
pub mod recorder;
pub mod roofline;
pub mod stats;
mod step_times;
pub mod throughput;
pub mod time_service;
pub mod usage;

pub use clock::Clock;
pub use recorder::{StepRecord, StepRecorder};
