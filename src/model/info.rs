//! Names and sizes that describe a model file.

use super::Matrix;
use super::Model;
use super::plan::Op;
use crate::gguf::{GgmlType, Gguf};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Facts about the model file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// `general.name`, or the file's name.
    pub name: String,
    /// Path as given, or `(embedded demo)`.
    pub path: String,
    /// Architecture, for example `llama`.
    pub arch: String,
    /// Dominant quantisation in llama.cpp's naming, for example `Q4_K - Medium`.
    pub quantisation: String,
    /// Number of parameters.
    pub params: u64,
    /// Bytes of the file or files.
    pub file_bytes: u64,
    /// Bytes of weights read to make one token (each weight once, one embedding row), kv cache apart.
    pub weight_bytes_per_token: u64,
    /// Layers.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Query heads.
    pub n_head: u32,
    /// Key/value heads.
    pub n_head_kv: u32,
    /// Vocabulary size.
    pub n_vocab: u32,
    /// Context length the model was trained with.
    pub n_ctx_train: u32,
}

/// llama.cpp's name of the file's quantisation; from `general.file_type`, or from the tensors where that is absent.
pub fn quantisation_name(gguf: &Gguf) -> String {
    if let Ok(Some(id)) = gguf.u32("general.file_type")
        && let Some(name) = file_type_name(id)
    {
        return name.into();
    }
    let mut bytes: BTreeMap<GgmlType, u64> = BTreeMap::new();
    for t in gguf.tensors() {
        *bytes.entry(t.ty).or_default() += t.bytes;
    }
    match bytes.into_iter().max_by_key(|&(_, b)| b) {
        Some((ty, _)) => format!("{ty} (most bytes)"),
        None => "no tensors".into(),
    }
}

/// `llama_ftype` numbers, as llama.cpp prints them.
fn file_type_name(id: u32) -> Option<&'static str> {
    Some(match id {
        0 => "all F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K - Medium",
        11 => "Q3_K - Small",
        12 => "Q3_K - Medium",
        13 => "Q3_K - Large",
        14 => "Q4_K - Small",
        15 => "Q4_K - Medium",
        16 => "Q5_K - Small",
        17 => "Q5_K - Medium",
        18 => "Q6_K",
        19 => "IQ2_XXS - 2.0625 bpw",
        20 => "IQ2_XS - 2.3125 bpw",
        21 => "Q2_K - Small",
        22 => "IQ3_XS - 3.3 bpw",
        23 => "IQ3_XXS - 3.0625 bpw",
        24 => "IQ1_S - 1.5625 bpw",
        25 => "IQ4_NL - 4.5 bpw",
        26 => "IQ3_S - 3.4375 bpw",
        27 => "IQ3_S mix - 3.66 bpw",
        28 => "IQ2_S - 2.5 bpw",
        29 => "IQ2_M - 2.7 bpw",
        30 => "IQ4_XS - 4.25 bpw",
        31 => "IQ1_M - 1.75 bpw",
        32 => "BF16",
        36 => "TQ1_0 - 1.69 bpw ternary",
        37 => "TQ2_0 - 2.06 bpw ternary",
        38 => "MXFP4 MoE",
        _ => return None,
    })
}

/// Bytes of weights read to make one token: every matrix once, of experts as many as a token uses, one row of the embedding,
/// norms and biases.
pub fn weight_bytes_per_token(model: &Model) -> u64 {
    let vector = |v: &[f32]| 4 * v.len() as u64;
    model
        .plan
        .bricks
        .iter()
        .map(|b| match &b.op {
            Op::Embed {
                table, positions, ..
            } => (table.row_bytes + positions.as_ref().map_or(0, |p| p.row_bytes)) as u64,
            Op::MatMul { w, bias, .. } => w.bytes() + bias.as_deref().map_or(0, vector),
            Op::ExpertMatMul { w, bias, .. } => {
                let used = model.hparams.n_expert_used().min(w.len());
                let each = w.first().map_or(0, Matrix::bytes);
                let biases = bias.as_deref().map_or(0, vector) / w.len().max(1) as u64;
                used as u64 * (each + biases)
            }
            Op::Norm { weight, bias, .. } => vector(weight) + bias.as_deref().map_or(0, vector),
            Op::QkNorm { q, k } => vector(q) + vector(k),
            _ => 0,
        })
        .sum()
}
