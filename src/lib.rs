//! cbtop: a full-screen terminal profiler for language-model inference.
//!
//! Data flows one way; a module imports only from those above it in this list:
//!
//! - [`gguf`]: file -> header, metadata, tensor table (memory-mapped, validated)
//! - [`tokenizer`]: GGUF vocabulary -> encode / decode, chat template
//! - [`quant`]: block layouts, reference dequantise and quantise
//! - [`model`]: hyperparameters per architecture, weights, the list of bricks a layer is made of
//! - [`engine`]: the forward pass: kernels, kv cache, sampling, thread pool; every knob in one `Config`
//! - [`profiler`]: clocks, per-brick statistics, critical path, memory and fault counters
//! - [`trace`]: the residual stream: capture, answer trajectory, stores, TRACE language
//! - [`tracer`]: what the numbers are: activations, attention, logits, quantisation error, kv cache
//! - [`tuner`]: rules that say what to change
//! - [`session`]: ties the rooms together behind channels; no terminal code
//! - [`recording`]: a session saved as it runs, and played again
//! - [`tui`]: state, update, view
//! - [`headless`]: the same view drawn to text, and the report as JSON
#![deny(missing_docs)]
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod engine;
pub mod gguf;
pub mod headless;
pub mod model;
pub mod profiler;
pub mod quant;
pub mod recording;
pub mod session;
pub mod tokenizer;
pub mod trace;
pub mod tracer;
pub mod tui;
pub mod tuner;
