//! Own errors of mat-muls while tokens run: a sample that costs little.

use super::product::{Product, added, shape, weight_type};
use super::{Baseline, ErrorSums, QuantisationError};
use crate::engine::edit::Edits;
use crate::engine::{Engine, EngineError, Observer};
use crate::model::{Model, Op};
use crate::tracer::figures::{ErrorOf, QuantisationView};
use std::sync::Arc;

/// Rows of a matrix that are computed again for a token.
pub const ROWS: usize = 128;

/// Own errors of mat-mul bricks, seen while tokens run.
///
/// A token is looked at in one layer, the next token in the next one, the head coming after the last. There every matrix is
/// multiplied again for the last token of the step, in [`ROWS`] evenly spaced rows, the next time in those beside them, with
/// the input that the brick had: so what is sampled covers all layers and, in time, all rows.
pub struct LiveErrors {
    model: Arc<Model>,
    baseline: Option<Baseline>,
    /// By brick of the plan.
    sums: Vec<ErrorSums>,
    /// How often a brick was looked at.
    visits: Vec<usize>,
    /// Layers looked at, the head as one more.
    turn: usize,
    tokens: u64,
    weights: Vec<f32>,
    got: Vec<f32>,
    want: Vec<f32>,
}

impl LiveErrors {
    /// For engines that run `model`; against its own weights in F32, or those of another file.
    ///
    /// # Errors
    /// [`QuantisationError::Incompatible`].
    pub fn new(model: Arc<Model>, baseline: Option<Baseline>) -> Result<Self, QuantisationError> {
        if let Some(baseline) = &baseline {
            baseline.check(&model)?;
        }
        let bricks = model.plan.bricks.len();
        let k = model.plan.matrices().map(|(w, _)| w.k).max().unwrap_or(0);
        Ok(Self {
            model,
            baseline,
            sums: vec![ErrorSums::default(); bricks],
            visits: vec![0; bricks],
            turn: 0,
            tokens: 0,
            weights: vec![0.0; k],
            got: Vec::with_capacity(ROWS),
            want: Vec::with_capacity(ROWS),
        })
    }

    /// The same weights are elsewhere in memory from now on.
    pub fn reloaded(&mut self, model: &Arc<Model>) {
        self.model = Arc::clone(model);
    }

    /// Forgets what was seen.
    pub fn clear(&mut self) {
        self.sums.fill(ErrorSums::default());
        (self.turn, self.tokens) = (0, 0);
    }

    /// Runs the step in progress to its end, as [`Engine::finish`] does, and looks at one layer of its last token. Logits
    /// are the same; the observer's clock stands still meanwhile. Of a step that has begun, what has run is not seen.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn step<O: Observer>(&mut self, engine: &mut Engine<O>) -> Result<(), EngineError> {
        let model = Arc::clone(&self.model);
        if Arc::ptr_eq(&model, engine.model()) && engine.in_step() {
            let (starts, bricks) = (&model.plan.layer_starts, model.plan.bricks.len());
            let part = self.turn % starts.len().max(1);
            let first = starts.get(part).copied().unwrap_or(bricks);
            let end = starts.get(part + 1).copied().unwrap_or(bricks);
            self.turn += 1;
            self.tokens += 1;
            let facts = engine.edits().cloned();
            for brick in first..end {
                if Product::of(&model, brick).is_some() && engine.advance_through(brick)? {
                    self.look(engine, brick, facts.as_deref());
                }
            }
        }
        engine.finish()
    }

    fn look<O: Observer>(&mut self, engine: &mut Engine<O>, index: usize, facts: Option<&Edits>) {
        let own = &self.model;
        let (brick, layer) = (&own.plan.bricks[index], own.plan.bricks[index].layer);
        let by = self.baseline.as_ref().map_or(own, |b| &b.model);
        let Some(product) = Product::of(by, index) else {
            return;
        };
        let dense = layer.is_some_and(|l| !Edits::has_experts(own, l + 1));
        let facts = facts.filter(|_| dense).map_or(&[][..], Edits::rank_one);
        let rows = shape(&brick.op).map_or(0, |s| s.0);
        let stride = rows.div_ceil(ROWS).max(1);
        let first = self.visits[index] % stride;
        self.visits[index] += 1;
        let last = engine.vectors(index).map(|v| v.token).max();
        for v in engine.vectors(index).filter(|v| Some(v.token) == last) {
            let Some(input) = v.input else { continue };
            self.got.clear();
            self.want.clear();
            for row in (first..rows).step_by(stride) {
                let want = product.row(v.expert, row, input, &mut self.weights);
                if let (Some(got), Some(want)) = (v.output.get(row), want) {
                    self.got.push(*got);
                    self.want.push(want + added(brick, facts, row, input));
                }
            }
            self.sums[index].add(&self.got, &self.want);
        }
    }

    /// What was seen so far; the part about the whole model is empty.
    pub fn view(&self) -> QuantisationView {
        let bricks = self.model.plan.bricks.iter().zip(&self.sums);
        let seen = bricks.filter(|(b, s)| {
            s.vectors() > 0 && matches!(b.op, Op::MatMul { .. } | Op::ExpertMatMul { .. })
        });
        QuantisationView {
            reference: Baseline::name_of(self.baseline.as_ref()),
            live: seen
                .map(|(b, s)| s.trace((b.id, b.layer), ErrorOf::Own, weight_type(b)))
                .collect(),
            tokens: self.tokens,
            ..QuantisationView::default()
        }
    }
}
