//! A kv cache of twice the bytes it needs.

use super::{Finding, Rule};
use crate::model::brick::BrickId;
use crate::tuner::Change;
use crate::tuner::facts::{ENOUGH_STEPS, Expected, Facts, megabytes};

/// Below this share of a token, reading the cache is not worth a change.
const WORTHWHILE: f64 = 0.03;

/// f32 keys and values are read for every token, where f16 would do.
pub struct HalfKv;

impl Rule for HalfKv {
    fn id(&self) -> &'static str {
        "kv-f16"
    }

    fn needs_measurement(&self) -> bool {
        false
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let attention = f
            .brick(BrickId::Attention)
            .filter(|b| b.steps >= ENOUGH_STEPS && b.bytes_per_step > 0)?;
        let rate = f.decode_rate()?;
        if f.engine.kv_type != "f32" || f.memory.kv_used_bytes == 0 {
            return None;
        }
        // The brick also moves queries and scores; a windowed layer reads less than what is cached.
        let kv_part = (f.memory.kv_used_bytes as f64 / attention.bytes_per_step as f64).min(1.0);
        let saved = attention.share * kv_part / 2.0;
        if attention.share * kv_part < WORTHWHILE {
            return None;
        }
        let tok_s = rate / (1.0 - saved);
        Some(Finding {
            title: "Keep keys and values as f16 instead of f32".to_owned(),
            why: format!(
                "Attention takes {:.0}% of a token and reads {} of f32 keys and values; the cache would be half of its {}",
                attention.share * 100.0,
                megabytes(f.memory.kv_used_bytes.min(attention.bytes_per_step)),
                megabytes(f.memory.kv_bytes),
            ),
            expected: Some(Expected {
                tok_s,
                how: format!(
                    "{tok_s:.1} tok/s expected at most: half the bytes halve the {:.0}% of a token spent reading them",
                    saved * 200.0
                ),
            }),
            change: Some(Change::one("kv-type", "f16")),
        })
    }
}
