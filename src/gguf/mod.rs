//! GGUF files: header, metadata and tensor table, memory-mapped and validated before use.
//!
//! Format document: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod types;

pub use types::GgmlType;
