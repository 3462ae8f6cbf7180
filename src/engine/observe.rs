//! What the engine tells about a step while it runs: a type parameter, so that an engine nobody watches has nothing of it.

use crate::model::brick::BrickId;
use crate::model::work::Work;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Layer of bricks outside layers (embedding, output head, sampling).
pub const NO_LAYER: u16 = u16::MAX;

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// One token.
    Decode,
    /// One chunk of the prompt.
    Prefill,
}

/// Watches the steps of an engine from thread 0. Called in the token loop: nothing here may allocate or wait.
pub trait Observer: Send {
    /// A step of `tokens` tokens begins; `position` is that of its last one.
    fn begin_step(&mut self, kind: StepKind, position: u32, tokens: u32);

    /// Stamp before a brick.
    fn start(&self) -> u64;

    /// Stamp after thread 0's own part of brick `id`, which began at `start`. Returns the end of the work.
    fn worked(&mut self, start: u64, id: BrickId, layer: u16, work: Work) -> u64;

    /// Stamp after the barrier behind the brick last reported, whose work ended at `work_end`.
    fn synced(&mut self, work_end: u64) -> u64;

    /// The step stands still between two layers, until [`Self::resume`].
    fn pause(&mut self);

    /// The step goes on.
    fn resume(&mut self);

    /// The step is over.
    fn end_step(&mut self);
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    #[inline]
    fn begin_step(&mut self, _: StepKind, _: u32, _: u32) {}

    #[inline]
    fn start(&self) -> u64 {
        0
    }

    #[inline]
    fn worked(&mut self, _: u64, _: BrickId, _: u16, _: Work) -> u64 {
        0
    }

    #[inline]
    fn synced(&mut self, _: u64) -> u64 {
        0
    }

    #[inline]
    fn pause(&mut self) {}

    #[inline]
    fn resume(&mut self) {}

    #[inline]
    fn end_step(&mut self) {}
}
