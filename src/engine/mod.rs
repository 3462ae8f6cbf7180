//! The forward pass: plain synchronous code on its own threads, every knob in one [`Config`].

pub mod config;
pub mod cpu;
pub mod reference;
pub mod sampler;

mod error;
mod step;

pub use config::{Config, KvType};
pub use error::EngineError;
pub use step::{Choice, Engine, Logits, Progress};
