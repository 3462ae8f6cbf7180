//! GGUF files that parse but are no sound model: each is refused before anything of it is used.

mod gguf_file;

use cbtop::gguf::{GgmlType, Gguf, Value};
use cbtop::model::{Model, ModelError};
use gguf_file::{File, Tensor};
use std::sync::Arc;

const EMBD: u64 = 32;

/// One layer of `llama`: width 32, 2 heads of 16, feed-forward 64, 8 tokens; `change` edits keys and tensors.
fn model(keys: &[(&str, u32)], tensors: &[(&str, [u64; 2])]) -> Result<Model, ModelError> {
    let mut file = File::default().with("general.architecture", Value::String("llama".into()));
    let mut all = vec![
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", EMBD as u32),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
    ];
    for &(key, value) in keys {
        all.retain(|(k, _)| *k != key);
        all.push((key, value));
    }
    for (key, value) in all {
        file = file.with(&format!("llama.{key}"), Value::U32(value));
    }
    file = file.with("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    for norm in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"] {
        file = file.tensor(Tensor::new(
            &format!("{norm}.weight"),
            GgmlType::F32,
            &[EMBD],
        ));
    }
    let usual = [
        ("token_embd", [EMBD, 8]),
        ("blk.0.attn_q", [EMBD, EMBD]),
        ("blk.0.attn_k", [EMBD, EMBD]),
        ("blk.0.attn_v", [EMBD, EMBD]),
        ("blk.0.attn_output", [EMBD, EMBD]),
        ("blk.0.ffn_gate", [EMBD, 64]),
        ("blk.0.ffn_up", [EMBD, 64]),
        ("blk.0.ffn_down", [64, EMBD]),
    ];
    for (name, dims) in usual {
        let dims = tensors
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(dims, |(_, d)| *d);
        file = file.tensor(Tensor::new(&format!("{name}.weight"), GgmlType::F32, &dims));
    }
    for (name, dims) in tensors {
        if !usual.iter().any(|(n, _)| n == name) {
            file = file.tensor(Tensor::new(&format!("{name}.weight"), GgmlType::F32, dims));
        }
    }
    Model::new(Arc::new(
        Gguf::from_vec(file.build(), "hostile").expect("GGUF"),
    ))
}

fn refused(what: &str, keys: &[(&str, u32)], tensors: &[(&str, [u64; 2])], word: &str) {
    match model(keys, tensors) {
        Ok(_) => panic!("{what} was taken"),
        Err(e) => assert!(e.to_string().contains(word), "{what}: {e}"),
    }
}

#[test]
fn the_model_itself_is_sound() {
    model(&[], &[]).expect("sound");
    model(&[("expert_count", 0)], &[]).expect("a dense model may say that it has no experts");
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    refused(
        "more heads than width, no head size",
        &[("attention.head_count", 64), ("attention.value_length", 32)],
        &[("blk.0.attn_q", [EMBD, 100_000])],
        "attention.key_length",
    );
    refused(
        "no heads",
        &[("attention.head_count", 0)],
        &[],
        "head_count",
    );
    refused(
        "kv heads",
        &[("attention.head_count_kv", 3)],
        &[],
        "divisor",
    );
    refused(
        "odd rotation",
        &[("rope.dimension_count", 3)],
        &[],
        "even number",
    );
    refused(
        "rotation beyond the head",
        &[("rope.dimension_count", 18)],
        &[],
        "even number",
    );
    refused(
        "a billion layers",
        &[("block_count", 1_000_000_000)],
        &[],
        "block_count",
    );
    refused(
        "more layers than there are",
        &[("block_count", 2)],
        &[],
        "blk.1.attn_norm",
    );
    refused(
        "no width",
        &[("embedding_length", 0)],
        &[],
        "embedding_length",
    );
    refused(
        "another width",
        &[("embedding_length", 64)],
        &[],
        "token_embd",
    );
    refused(
        "experts, none used",
        &[("expert_count", 8)],
        &[],
        "expert_used_count",
    );
    let used = |n| [("expert_count", 8), ("expert_used_count", n)];
    refused("no experts used", &used(0), &[], "1 to 8");
    refused("more experts used than there are", &used(9), &[], "1 to 8");
    let many = [("expert_count", 1_000_000_000), ("expert_used_count", 1)];
    refused("a billion experts", &many, &[], "1024");
    refused(
        "only layers of another kind",
        &[("nextn_predict_layers", 1)],
        &[],
        "nextn",
    );
    refused(
        "a tensor that is no part of it",
        &[],
        &[("blk.0.attn_sinks", [EMBD, 1])],
        "no part of architecture",
    );
    for (tensor, dims) in [
        ("blk.0.attn_q", [EMBD, 48]),
        ("blk.0.attn_k", [EMBD, 16]),
        ("blk.0.attn_output", [16, EMBD]),
        ("blk.0.ffn_down", [EMBD, 64]),
    ] {
        refused("a matrix of another shape", &[], &[(tensor, dims)], tensor);
    }
}
