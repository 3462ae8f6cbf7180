//! Handles to checked tensors: quantised matrices stay in the file, small vectors are decoded once.

use super::{Hparams, ModelError};
use crate::gguf::{GgmlType, Gguf, TensorInfo};
use crate::quant;
use std::cell::RefCell;
use std::sync::Arc;

/// A weight matrix in the file; `y = W x` with `W` of `rows` x `k`, row-major blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    pub(super) tensor: usize,
    /// Rows of the tensor before the first of this matrix.
    pub(super) first: usize,
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

    /// Rows `first..first + rows` alone.
    pub(super) fn part(&self, first: usize, rows: usize) -> Self {
        Self {
            first: self.first + first,
            rows,
            ..self.clone()
        }
    }
}

/// A decoded vector: norm weights, biases.
pub type Vector = Arc<[f32]>;

/// Looks tensors up by name and checks their shape and type.
pub(super) struct Weights<'a> {
    gguf: &'a Gguf,
    /// Which tensors were found.
    used: RefCell<Vec<bool>>,
}

impl<'a> Weights<'a> {
    pub fn new(gguf: &'a Gguf) -> Self {
        Self {
            gguf,
            used: RefCell::new(vec![false; gguf.tensors().len()]),
        }
    }

    fn find(&self, name: &str) -> Option<(usize, &'a TensorInfo)> {
        let i = self.gguf.tensor_place(name)?;
        self.used.borrow_mut()[i] = true;
        Some((i, &self.gguf.tensors()[i]))
    }

    fn required(&self, name: &str) -> Result<(usize, &'a TensorInfo), ModelError> {
        self.find(name)
            .ok_or_else(|| ModelError::MissingTensor { name: name.into() })
    }

    /// A tensor that nothing looked for would be left out of the mathematics: llama.cpp refuses such files too.
    pub fn check_all_used(&self, hp: &Hparams) -> Result<(), ModelError> {
        let used = self.used.borrow();
        let left_out = |t: &TensorInfo| {
            // Layers behind the last predict further tokens; frequencies may be unused for this context.
            let layer = t.name.strip_prefix("blk.").and_then(|r| r.split_once('.'));
            let beyond = layer
                .and_then(|(l, _)| l.parse::<usize>().ok())
                .is_some_and(|l| l >= hp.n_layers);
            !beyond
                && !t.name.ends_with("rope_freqs.weight")
                && !t.name.ends_with("rot_embd.weight")
        };
        match self
            .gguf
            .tensors()
            .iter()
            .zip(used.iter())
            .find(|(t, used)| !**used && left_out(t))
        {
            None => Ok(()),
            Some((t, _)) => Err(ModelError::Unsupported {
                what: format!(
                    "tensor '{}', which is no part of architecture '{}'",
                    t.name, hp.arch.name
                ),
            }),
        }
    }

    /// The matrices of `n` experts, each `rows` x `k`: of one tensor `{name}_exps.weight` with a third dimension, or, in
    /// older files, of a tensor each, `{name}.{expert}.weight`.
    pub fn experts(
        &self,
        name: &str,
        n: usize,
        k: usize,
        rows: Option<usize>,
    ) -> Result<Vec<Matrix>, ModelError> {
        let together = format!("{name}_exps.weight");
        if !self.has(&together) && self.has(&format!("{name}.0.weight")) {
            let mut rows = rows;
            return (0..n)
                .map(|e| {
                    let w = self.matrix(&format!("{name}.{e}.weight"), k, rows)?;
                    rows = Some(w.rows);
                    Ok(w)
                })
                .collect();
        }
        let found = self.required(&together)?;
        let each = rows
            .or(found.1.dims.get(1).map(|&r| r as usize))
            .unwrap_or(0);
        let all = Self::rows(found, k, &[each, n])?;
        Ok((0..n).map(|e| all.part(e * each, each)).collect())
    }

    /// The biases of `n` experts, `{name}_exps.bias`, `[n][rows]`, where the file has them.
    pub fn expert_bias(
        &self,
        name: &str,
        n: usize,
        rows: usize,
    ) -> Result<Option<Vector>, ModelError> {
        let name = format!("{name}_exps.bias");
        let Some((_, t)) = self.find(&name) else {
            return Ok(None);
        };
        if t.dims != [rows as u64, n as u64] {
            return Err(Self::shape_error(t, &[rows, n]));
        }
        self.decoded(t, rows * n).map(Some)
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
        let found = self.required(name)?;
        let any = found.1.dims.get(1).map_or(0, |&r| r as usize);
        Self::rows(found, k, &[rows.unwrap_or(any)])
    }

    /// A tensor of `outer` rows of `k` elements, as one matrix of all its rows.
    fn rows(
        (tensor, t): (usize, &TensorInfo),
        k: usize,
        outer: &[usize],
    ) -> Result<Matrix, ModelError> {
        let expected: Vec<usize> = std::iter::once(k).chain(outer.iter().copied()).collect();
        let error = || Self::shape_error(t, &expected);
        let shape_ok = t.dims.len() == expected.len()
            && t.dims.iter().zip(&expected).all(|(&d, &e)| d == e as u64);
        if !shape_ok {
            return Err(error());
        }
        if !quant::is_supported(t.ty) {
            return Err(ModelError::UnsupportedType {
                name: t.name.clone(),
                ty: t.ty.to_string(),
                supported: quant::supported()
                    .iter()
                    .map(|t| t.name())
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        }
        // The file's bounds were checked: all rows together fit it.
        let rows = outer.iter().product();
        let row_bytes = t.ty.bytes_for(k as u64).ok_or_else(error)? as usize;
        // The int8 activations come in groups of 32.
        if t.ty.block_len() > 1 && !k.is_multiple_of(32) {
            return Err(error());
        }
        Ok(Matrix {
            tensor,
            first: 0,
            ty: t.ty,
            rows,
            k,
            row_bytes,
        })
    }

    /// A vector of `n` floats.
    pub fn vector(&self, name: &str, n: usize) -> Result<Vector, ModelError> {
        let (_, t) = self.required(name)?;
        if t.dims.iter().product::<u64>() != n as u64 || t.dims[0] != n as u64 {
            return Err(Self::shape_error(t, &[n]));
        }
        self.decoded(t, n)
    }

    fn decoded(&self, t: &TensorInfo, n: usize) -> Result<Vector, ModelError> {
        let mut out = vec![0.0; n];
        quant::dequantise_row(t.ty, self.gguf.data(t), &mut out).map_err(|_| {
            ModelError::UnsupportedType {
                name: t.name.clone(),
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
