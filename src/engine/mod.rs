//! The forward pass: plain synchronous code on its own threads, every knob in one [`Config`].

pub mod batch;
pub mod capture;
pub mod config;
pub mod cpu;
pub mod edit;
pub mod inspect;
pub mod kernels_for;
pub mod knobs;
pub mod probe;
pub mod reference;
pub mod sampler;
pub mod tensor_stats;
pub mod workload;

mod error;
mod observe;
mod probes;
mod rehydrate;
mod rerun;
mod sequences;
mod step;
mod taps;
mod together;

pub use config::{Config, KvType, Overflow};
pub use error::EngineError;
pub use observe::{Call, Done, Lane, NO_LAYER, Observer, StepKind, SyncMode, Ticks, Unobserved};
pub use probes::{AttentionLog, HeldQuery};
pub use rehydrate::Residuals;
pub use sequences::{CacheState, SlotInfo};
pub use step::{Choice, Engine, Logits, Progress, Reuse};
