//! What bricks do when the stream is captured, changed on its way or looked at for tracers; nothing of it where none is asked
//! for.

use super::bricks::Job;
use super::probe::{Place, Seeing};
use crate::engine::capture::Part;
use crate::engine::edit::Site;
use crate::engine::probe;
use crate::model::brick::BrickId;
use crate::model::{Brick, Buf};
use std::ops::Range;

/// The number of a brick's layer, as waypoints count: 0 is the embedding.
fn number(brick: &Brick) -> usize {
    brick.layer.map_or(0, |l| l + 1)
}

// Every function here gets what its thread has just written and no other thread reads yet.
impl Job<'_> {
    /// Keeps elements of a token's vector from `first` on.
    fn keep(&self, layer: usize, part: Part, token: usize, first: usize, x: &[f32]) {
        let Some(tap) = &self.exec.tap else {
            return;
        };
        if let Some(col) = tap.column(token, self.shape.tokens) {
            // SAFETY: the vector is this token's, and the elements are the calling thread's.
            unsafe { tap.put(layer, part, col, first, x) };
        }
    }

    /// Looks at what this thread has written of a token of sequence 0, for tracers.
    fn look(&self, tid: usize, at: Place, token: usize, x: &[f32]) {
        // What only goes through the head is no step.
        if let Some(probe) = self
            .exec
            .probe
            .as_ref()
            .filter(|_| self.step.like.is_none())
        {
            let super::exec::Place { span, position } = self.step.places[token];
            if self.step.spans.get(span).is_none_or(|s| s.seq != 0) {
                return;
            }
            // SAFETY: every caller passes its own thread's number.
            unsafe { probe.saw(self.exec.ops, tid, at, position, x) };
        }
    }

    /// Looks at the input of attention.
    pub(super) fn normed(&self, brick: &Brick, token: usize, x: &[f32], tid: usize) {
        if let (BrickId::AttnNorm, Some(layer)) = (brick.id, brick.layer) {
            self.look(tid, Place::Layer(layer, probe::Site::PostNorm), token, x);
        }
    }

    /// Looks at rows of the logits, of all columns.
    pub(super) fn logits_done(&self, columns: usize, rows: Range<usize>, tid: usize) {
        if self.exec.probe.is_none() {
            return;
        }
        let skip = self.shape.tokens - columns;
        for c in 0..columns {
            // SAFETY: these rows were handed to this thread.
            let x = unsafe {
                self.exec
                    .buffers
                    .get(Buf::Logits)
                    .part(c, rows.start, rows.len())
            };
            self.look(tid, Place::Logits, c + skip, x);
        }
    }

    /// Whether the attention weights of a layer are recorded.
    pub(super) fn records(&self, layer: usize) -> bool {
        let attention = self.exec.attention();
        attention.is_some_and(|a| a.has_layer(layer))
    }

    /// Records the weights of a query over what its runs of slots hold.
    pub(super) fn weighed(
        &self,
        (token, layer, head): (usize, usize, usize),
        runs: &[Range<usize>; 3],
        weights: &[f32],
        has_sink: bool,
    ) {
        if let Some(attention) = self.exec.attention() {
            let position = self.step.places[token].position;
            let seen = Seeing::new(position, runs);
            let which = (token, layer, head);
            // SAFETY: a head of a token is one thread's.
            unsafe { attention.put(self.exec.ops, which, position, &seen, weights, has_sink) };
        }
    }

    /// Changes the stream after a layer and keeps it.
    pub(super) fn layer_done(&self, layer: usize, token: usize, x: &mut [f32], tid: usize) {
        if let Some(edits) = &self.exec.edits {
            let position = self.step.places[token].position;
            edits.change(layer, Site::Residual, position, x);
        }
        self.keep(layer, Part::Residual, token, 0, x);
        let at = match layer.checked_sub(1) {
            Some(layer) => Place::Layer(layer, probe::Site::Output),
            None => Place::Embedding,
        };
        self.look(tid, at, token, x);
    }

    /// Changes what attention or feed-forward block are about to add, and keeps it.
    pub(super) fn adding(&self, brick: &Brick, token: usize, delta: &mut [f32], tid: usize) {
        let (site, part, looked) = match brick.id {
            BrickId::AttnResidual => (Site::Attention, Part::AttnDelta, probe::Site::PostAttention),
            _ => (Site::Ffn, Part::FfnDelta, probe::Site::PostFfn),
        };
        let layer = number(brick);
        if let Some(edits) = &self.exec.edits {
            edits.change(layer, site, self.step.places[token].position, delta);
        }
        self.keep(layer, part, token, 0, delta);
        let layer = brick.layer.unwrap_or(0);
        self.look(tid, Place::Layer(layer, looked), token, delta);
    }

    /// Changes the output of a head, and keeps it.
    pub(super) fn attended(&self, layer: usize, token: usize, head: usize, out: &mut [f32]) {
        if let Some(edits) = &self.exec.edits {
            let position = self.step.places[token].position;
            edits.change(layer, Site::Head(head), position, out);
        }
        if self.exec.tap.as_ref().is_some_and(|t| t.capture.heads) {
            self.keep(layer, Part::Heads, token, head * out.len(), out);
        }
    }

    /// Changes activations of a feed-forward block, elements of column `c` of `dst`, `width` long, from `first` on, and
    /// keeps them.
    pub(super) fn activated(
        &self,
        brick: &Brick,
        (dst, width): (Buf, usize),
        c: usize,
        first: usize,
        out: &mut [f32],
    ) {
        let edits = self.exec.edits.as_ref();
        let edits = edits.filter(|e| e.has_neurons(number(brick)));
        // The shared expert's activation stands beside those that have numbers.
        if (edits.is_none() && !self.keeps_keys())
            || (brick.id == BrickId::Activation && self.has_experts(brick))
        {
            return;
        }
        let layer = number(brick);
        if let Some(edits) = edits {
            let (token, before) = if dst.is_paired() {
                let routes = self.routes();
                (routes.token(c), routes.expert(c) * width)
            } else {
                (c, 0)
            };
            let position = self.step.places[token].position;
            edits.change_neurons(layer, position, before + first, out);
        }
        if self.keeps_keys() && !dst.is_paired() {
            self.keep(layer, Part::Key, c, first, out);
        }
    }

    /// Adds rank-one changes to rows of a dense block's output.
    pub(super) fn down_projected(&self, brick: &Brick, (src, dst): (Buf, Buf), rows: Range<usize>) {
        let Some(edits) = &self.exec.edits else {
            return;
        };
        let layer = number(brick);
        let mut changes = edits.of_layer(layer).peekable();
        if changes.peek().is_none() || self.has_experts(brick) {
            return;
        }
        let b = &self.exec.buffers;
        for change in changes {
            for c in 0..self.shape.tokens {
                // SAFETY: these rows were handed to this thread; the activation was written before a barrier.
                unsafe {
                    let input = b.get(src).part(c, 0, change.key.len());
                    let by = (self.exec.ops.dot_f32)(input, &change.key);
                    let out = b.get(dst).part_mut(c, rows.start, rows.len());
                    (self.exec.ops.axpy_f32)(by, &change.value[rows.clone()], out);
                }
            }
        }
    }

    /// Adds rank-one changes to the output of a block of experts, and keeps its input.
    pub(super) fn combined(&self, brick: &Brick, token: usize, input: &[f32], out: &mut [f32]) {
        let layer = number(brick);
        if let Some(edits) = &self.exec.edits {
            for change in edits.of_layer(layer) {
                let by = (self.exec.ops.dot_f32)(input, &change.key);
                (self.exec.ops.axpy_f32)(by, &change.value, out);
            }
        }
        if self.keeps_keys() {
            self.keep(layer, Part::Key, token, 0, input);
        }
    }

    fn keeps_keys(&self) -> bool {
        self.exec.tap.as_ref().is_some_and(|t| t.capture.keys)
    }

    /// Whether the feed-forward block that a brick belongs to is made of experts.
    fn has_experts(&self, brick: &Brick) -> bool {
        let starts = &self.plan.layer_starts;
        let Some(layer) = brick.layer else {
            return false;
        };
        let bricks = &self.plan.bricks[starts[layer]..starts[layer + 1]];
        bricks.iter().any(|b| b.id == BrickId::Combine)
    }
}
