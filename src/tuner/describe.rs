//! A loaded model as the tuner sees it.

use super::run::ModelShape;
use crate::engine::KvType;
use crate::engine::cpu::kv::bytes_per_token;
use crate::engine::knobs::Around;
use crate::gguf::GgmlType;
use crate::model::{Model, quantisation_name, weight_bytes_per_token};
use crate::profiler::os;

/// The shapes of a model named `name`.
pub fn model_shape(model: &Model, name: &str) -> ModelShape {
    let (hp, gguf) = (&model.hparams, model.gguf());
    let params: u64 = gguf.tensors().iter().map(|t| t.elements()).sum();
    let used = hp.n_expert_used();
    // Of stacked experts as many as a token uses.
    let active: f64 = gguf
        .tensors()
        .iter()
        .map(|t| {
            let of_experts = used > 0 && t.name.contains("_exps");
            let experts = t.dims.last().copied().unwrap_or(1).max(1);
            let share = if of_experts {
                (used as f64 / experts as f64).min(1.0)
            } else {
                1.0
            };
            t.elements() as f64 * share
        })
        .sum();
    ModelShape {
        name: name.into(),
        arch: gguf
            .str("general.architecture")
            .ok()
            .flatten()
            .unwrap_or_default()
            .into(),
        quant: short_quant(&quantisation_name(gguf)),
        params: params as f64,
        active_params: Some(active),
        weight_bytes: weight_bytes_per_token(model) as f64,
        kv_bytes_per_token: Some(bytes_per_token(hp, KvType::F16) as f64),
        hidden: Some(hp.n_embd as u32),
        layers: Some(hp.n_layers as u32),
        heads: Some(hp.n_head as u32),
        head_dim: Some(hp.head_dim_k as u32),
        vocab: Some(model.n_vocab as u32),
    }
}

/// llama.cpp's long name of a quantisation without spaces: `Q4_K - Medium` is `Q4_K_M`, `all F32` is `F32`.
pub(super) fn short_quant(name: &str) -> String {
    let name = name.strip_prefix("all ").unwrap_or(name);
    let (base, rest) = name.split_once(' ').unwrap_or((name, ""));
    match rest {
        "- Small" => format!("{base}_S"),
        "- Medium" => format!("{base}_M"),
        "- Large" => format!("{base}_L"),
        _ => base.into(),
    }
}

/// The types of the matrices that a token is multiplied with, each once, in the order of their numbers.
pub fn matrix_types(model: &Model) -> Vec<GgmlType> {
    let mut types: Vec<GgmlType> = model.plan.matrices().map(|(w, _)| w.ty).collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// What there is to choose from for a model on this machine.
pub fn around<'a>(model: &'a Model, types: &'a [GgmlType], prompt_tokens: usize) -> Around<'a> {
    let cpus = crate::engine::config::cpus();
    let cores = os::physical_cores().map_or(cpus, |n| n as usize).min(cpus);
    Around {
        cpus,
        cores: cores.max(1),
        hparams: &model.hparams,
        types,
        file_bytes: if model.gguf().is_embedded() {
            0
        } else {
            model.gguf().file_bytes()
        },
        memory_available: os::memory_available_bytes().unwrap_or(0),
        prompt_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantisations_have_their_short_names() {
        for (long, short) in [
            ("Q4_K - Medium", "Q4_K_M"),
            ("Q3_K - Large", "Q3_K_L"),
            ("IQ4_XS - 4.25 bpw", "IQ4_XS"),
            ("all F32", "F32"),
            ("Q8_0", "Q8_0"),
            ("Q5_0 (most bytes)", "Q5_0"),
        ] {
            assert_eq!(short_quant(long), short);
        }
    }
}
