//! Stores of residual streams: memory-mapped, append-only, little endian. Layouts byte by byte: `docs/src/formats.md`.
//!
//! - [`TraceStore`], [`TraceWriter`]: full chains, three vectors for every token and layer (`TRAC`)
//! - [`BoundaryStore`], [`BoundaryWriter`]: one residual a window of tokens (`BNDX`)
//! - [`ContextStore`], [`ContextWriter`]: a residual and the deltas of chosen layers a window (`CTXT`), as f32 or as int8
//!   beside a [`Template`]
//!
//! What writers promise. A new file is written under another name and takes its own when it is finished, so what it
//! replaces stays until then. A file appended to in place has its data on the disk before its header counts it: after a
//! kill or a power failure it holds what was complete, readers say what they dropped, and the next writer cuts it off.
//! One file has one writer at a time; readers never wait, and see the file as it was when they opened it.
//!
//! Readers take versions 1 and 2. Everything is checked at open, so nothing that an open store gives lies outside it. Any
//! content of a vector is data, NaN and infinities too.

mod boundary;
mod boundary_writer;
mod chains;
mod chains_writer;
mod context;
mod context_shape;
mod context_writer;
mod error;
mod head;
mod stage;
mod target;
mod template;
#[cfg(test)]
mod testing;
mod windows;

pub use boundary::BoundaryStore;
pub use boundary_writer::BoundaryWriter;
pub use chains::{Kind, TraceStore};
pub use chains_writer::TraceWriter;
pub use context::ContextStore;
pub use context_shape::{ContextShape, Encoding, Tier};
pub use context_writer::{ContextVectors, ContextWriter};
pub use error::{Problem, StoreError};
pub(super) use head::open_file;
pub(super) use target::Target;
pub use template::{Quantized, Template, TemplateBuilder};

/// Bytes of a stored number.
const F32: u64 = 4;
