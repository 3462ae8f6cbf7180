//! Prefill in chunks too small to reuse a weight once it is read.

use super::{Finding, Rule};
use crate::tuner::Change;
use crate::tuner::facts::{Facts, count, megabytes};

/// From here on prefill is limited by compute on any CPU: a weight read once serves this many tokens.
const ENOUGH: u32 = 128;
/// The usual chunk.
const USUAL: u32 = 512;

/// Weights are read once a chunk, so fewer chunks read fewer bytes.
pub struct LargerChunk;

impl Rule for LargerChunk {
    fn id(&self) -> &'static str {
        "chunk"
    }

    fn needs_measurement(&self) -> bool {
        false
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let (now, prompt) = (f.engine.chunk.max(1), f.prompt_tokens);
        let rate = f.rates.prefill_tok_s?;
        let target = prompt
            .checked_next_power_of_two()?
            .clamp(ENOUGH, USUAL)
            .min(f.engine.n_ctx);
        let (chunks, fewer) = (prompt.div_ceil(now), prompt.div_ceil(target.max(1)));
        if now >= ENOUGH || fewer >= chunks {
            return None;
        }
        Some(Finding {
            title: format!("Process the prompt in chunks of {target} tokens instead of {now}"),
            why: format!(
                "The prompt of {prompt} tokens ran at {rate:.1} tok/s in {}, each reading {} of weights; {} would do. \
                 It shows with the next prompt, not in decode",
                count(chunks, "chunk"),
                megabytes(f.model.weight_bytes_per_token),
                count(fewer, "chunk"),
            ),
            expected: None,
            change: Some(Change::one("chunk", target)),
        })
    }
}
