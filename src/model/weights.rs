//! Handles to checked tensors: quantised matrices stay in the file, small vectors are decoded once.

use super::ModelError;
use crate::gguf::{GgmlType, Gguf, TensorInfo};
use crate::quant;
use std::sync::Arc;

/// A weight matrix in the file; `y = W x` with `W` of `rows` x `k`, row-major blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    pub(super) tensor: usize,
    /// Element type.
    pub ty: GgmlType,
    /// Outputs.
    pub rows: usize,
    /// Inputs; a whole number of blocks.
    pub k: usize,
    /// Bytes of one row.
    pub row_bytes: usize,
}

impl Matrix {
    /// Bytes of the whole matrix.
    pub fn bytes(&self) -> u64 {
        self.rows as u64 * self.row_bytes as u64
    }
}

/// A decoded vector: norm weights, biases.
pub type Vector = Arc<[f32]>;

/// Looks tensors up by name and checks their shape and type.
pub(super) struct Weights<'a> {
    pub gguf: &'a Gguf,
}

impl Weights<'_> {
    fn find(&self, name: &str) -> Option<(usize, &TensorInfo)> {
        let t = self.gguf.tensor(name)?;
        let i = self
            .gguf
            .tensors()
            .iter()
            .position(|o| std::ptr::eq(o, t))?;
        Some((i, t))
    }

    fn shape_error(t: &TensorInfo, expected: &[usize]) -> ModelError {
        let join = |d: Vec<String>| format!("[{}]", d.join(", "));
        ModelError::Shape {
            name: t.name.clone(),
            found: join(t.dims.iter().map(u64::to_string).collect()),
            expected: join(expected.iter().map(usize::to_string).collect()),
        }
    }

    /// Whether the file has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// A matrix of `rows` x `k`; `None` takes any number of rows.
    pub fn matrix(&self, name: &str, k: usize, rows: Option<usize>) -> Result<Matrix, ModelError> {
        let (tensor, t) = self
            .find(name)
            .ok_or_else(|| ModelError::MissingTensor { name: name.into() })?;
        let shape_ok = t.dims.len() == 2
            && t.dims[0] == k as u64
            && rows.is_none_or(|r| t.dims[1] == r as u64);
        if !shape_ok {
            let expected: Vec<usize> = std::iter::once(k).chain(rows).collect();
            return Err(Self::shape_error(t, &expected));
        }
        if !quant::is_supported(t.ty) {
            return Err(ModelError::UnsupportedType {
                name: name.into(),
                ty: t.ty.to_string(),
                supported: quant::supported()
                    .iter()
                    .map(|t| t.name())
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        }
        let rows = t.dims[1] as usize;
        let row_bytes =
            t.ty.bytes_for(t.dims[0])
                .ok_or_else(|| Self::shape_error(t, &[k, rows]))? as usize;
        // The int8 activations come in groups of 32.
        if t.ty.block_len() > 1 && !k.is_multiple_of(32) {
            return Err(Self::shape_error(t, &[k, rows]));
        }
        Ok(Matrix {
            tensor,
            ty: t.ty,
            rows,
            k,
            row_bytes,
        })
    }

    /// A vector of `n` floats.
    pub fn vector(&self, name: &str, n: usize) -> Result<Vector, ModelError> {
        let (_, t) = self
            .find(name)
            .ok_or_else(|| ModelError::MissingTensor { name: name.into() })?;
        if t.dims.iter().product::<u64>() != n as u64 || t.dims[0] != n as u64 {
            return Err(Self::shape_error(t, &[n]));
        }
        let mut out = vec![0.0; n];
        quant::dequantise_row(t.ty, self.gguf.data(t), &mut out).map_err(|_| {
            ModelError::UnsupportedType {
                name: name.into(),
                ty: t.ty.to_string(),
                supported: "F32, F16, BF16".into(),
            }
        })?;
        Ok(out.into())
    }

    /// A vector that the file may leave out.
    pub fn optional_vector(&self, name: &str, n: usize) -> Result<Option<Vector>, ModelError> {
        self.has(name).then(|| self.vector(name, n)).transpose()
    }
}
