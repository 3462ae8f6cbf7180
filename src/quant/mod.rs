//! Block layouts of quantised tensors: reference dequantise and quantise, one scalar routine a type.
