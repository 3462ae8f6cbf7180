//! The kv cache takes as many bytes as it says: proven with a counting allocator.

mod common;
mod counting;

use cbtop::engine::{Config, Engine, KvType, Unobserved};
use cbtop::session::Loaded;
use counting::LIVE;
use std::sync::atomic::Ordering;

/// Bytes that an engine holds from the allocator: itself and all its parts.
fn live_bytes(loaded: &Loaded, config: &Config) -> (i64, i64, i64) {
    let before = LIVE.load(Ordering::Relaxed) as i64;
    let engine = Engine::new(loaded.model.clone(), config.clone(), Unobserved).expect("engine");
    let held = LIVE.load(Ordering::Relaxed) as i64 - before;
    (
        held,
        engine.kv_bytes() as i64,
        engine.scratch_bytes() as i64,
    )
}

#[test]
fn f260_the_cache_is_as_large_as_it_says_to_the_byte() {
    let mut compared = 0;
    for file in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
        let loaded = common::fixture(file);
        let hp = &loaded.model.hparams;
        // Pieces from 64 KiB on come from the system, which the allocator's hook does not see: small contexts.
        let config = |n_ctx: usize, kv_type| Config {
            n_ctx,
            kv_type,
            chunk: 1,
            threads: 1,
            ..loaded.config()
        };
        let per_token = |t: KvType| {
            (hp.n_layers * hp.n_head_kv * (t.bytes(hp.head_dim_k) + t.bytes(hp.head_dim_v))) as i64
        };
        let small = |n_ctx: i64, t| per_token(t) * n_ctx / 2 < 60 << 10;
        // What is allocated once in a process is not the first one's.
        live_bytes(&loaded, &config(4, KvType::F16));
        for ty in KvType::ALL {
            if config(4, ty).check_heads(hp).is_err() || !small(17, ty) {
                continue;
            }
            let (held, kv, scratch) = live_bytes(&loaded, &config(4, ty));
            assert_eq!(kv, 4 * per_token(ty));
            for n_ctx in [5, 16, 17] {
                let more = live_bytes(&loaded, &config(n_ctx, ty));
                assert_eq!(more.1, per_token(ty) * n_ctx as i64);
                // Beside keys and values a position has room among the scores of every head in work, which are part of the
                // scratch, and a stamp of 8 bytes that says when it was written. The line to spare of every piece is
                // the same for all sizes.
                let stamps = 8 * (n_ctx as i64 - 4);
                let want = more.1 - kv + (more.2 - scratch) + stamps;
                assert_eq!(more.0 - held, want, "{file} {} {n_ctx}", ty.name());
                compared += 1;
            }
            // Another type and nothing else: the difference is that of the cache alone.
            let (other, other_kv, _) = live_bytes(&loaded, &config(4, KvType::F16));
            assert_eq!(held - other, kv - other_kv, "{file} {}", ty.name());
        }
    }
    assert!(compared > 0);
}
