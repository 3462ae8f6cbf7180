//! The error of a whole model on a text, brick by brick.

use super::product::{Product, weight_type};
use super::{Baseline, ErrorSums, QuantisationError, cosine};
use crate::engine::inspect::BrickVector;
use crate::engine::reference::Reference;
use crate::engine::{Config, Engine, Logits, Overflow, StepKind, Unobserved};
use crate::model::{Buf, Model};
use crate::tracer::figures::{ErrorOf, ModelQuantisationError};
use crate::tracer::perplexity::{divergence, nll, same_top};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Tokens of a step: what is held of a brick are so many of its vectors, twice; logits of the largest vocabulary (262,144)
/// are 32 MiB.
const CHUNK: usize = 32;

/// Measures own errors of mat-mul bricks and what arrives at every brick, and compares the outputs, on `ids`.
///
/// Without a baseline both are against the reference path on the same file, else against the baseline's weights and an
/// engine that runs it with the same knobs. Where experts are chosen, only those pairs of token and expert are compared that
/// both have. `progress` is told after every brick how many of how many parts are done, and says whether to go on.
///
/// Perplexities are those of all tokens behind the first, each predicted from all before it. Vectors are held of one brick
/// and [`CHUNK`] tokens at a time.
///
/// # Errors
/// See [`QuantisationError`]: fewer than two tokens, more than the context holds, another model as baseline.
pub fn measure(
    model: &Arc<Model>,
    baseline: Option<&Baseline>,
    ids: &[u32],
    config: &Config,
    progress: &mut dyn FnMut(u32, u32) -> bool,
) -> Result<ModelQuantisationError, QuantisationError> {
    if ids.len() < 2 {
        return Err(QuantisationError::TooShort(ids.len()));
    }
    if let Some(baseline) = baseline {
        baseline.check(model)?;
    }
    let (needed, n_ctx) = (ids.len(), config.n_ctx);
    if needed > n_ctx {
        return Err(crate::engine::EngineError::ContextFull { needed, n_ctx }.into());
    }
    let chunk = CHUNK.min(ids.len());
    let config = Config {
        n_seq: 1,
        overflow: Overflow::Stop,
        keep: 0,
        chunk,
        logit_rows: chunk,
        ..config.clone()
    };
    let bricks = model.plan.bricks.len();
    let mut run = Run {
        model,
        by: baseline.map_or(model, |b| &b.model),
        engine: Engine::new(Arc::clone(model), config.clone(), Unobserved)?,
        own: vec![ErrorSums::default(); bricks],
        arriving: vec![ErrorSums::default(); bricks],
        outputs: Outputs::default(),
        done: 0,
        all: (bricks * ids.len().div_ceil(chunk)) as u32,
        progress,
    };
    match baseline {
        None => {
            let mut reference = Reference::for_context(model, config.n_ctx);
            for (i, part) in ids.chunks(chunk).enumerate() {
                run.begin(ids, i * chunk, part.len())?;
                reference.forward_inspected(part, &mut |brick, want| run.compare(brick, want))?;
            }
        }
        Some(baseline) => {
            let mut other = Engine::new(Arc::clone(&baseline.model), config, Unobserved)?;
            for (i, part) in ids.chunks(chunk).enumerate() {
                run.begin(ids, i * chunk, part.len())?;
                other.begin(part, Logits::All, StepKind::Prefill)?;
                for brick in 0..bricks {
                    other.advance_through(brick)?;
                    let want: Vec<_> = other.vectors(brick).collect();
                    run.compare(brick, &want)?;
                }
                other.end_step();
            }
        }
    }
    Ok(run.figures(Baseline::name_of(baseline), ids.len()))
}

/// A measurement as it goes on.
struct Run<'r> {
    model: &'r Arc<Model>,
    /// Whose weights own errors are against.
    by: &'r Arc<Model>,
    engine: Engine<Unobserved>,
    own: Vec<ErrorSums>,
    arriving: Vec<ErrorSums>,
    outputs: Outputs,
    done: u32,
    all: u32,
    progress: &'r mut dyn FnMut(u32, u32) -> bool,
}

/// Sums over the output distributions.
#[derive(Default)]
struct Outputs {
    /// What follows each token of the step, where something does.
    next: Vec<Option<u32>>,
    positions: u64,
    cosines: f64,
    divergence: f64,
    same_top: u64,
    predicted: u64,
    nll: f64,
    reference_nll: f64,
}

impl Run<'_> {
    /// Starts the engine's step of `n` tokens from `first` on.
    fn begin(&mut self, ids: &[u32], first: usize, n: usize) -> Result<(), QuantisationError> {
        let part = &ids[first..first + n];
        self.outputs.next = (first..first + n)
            .map(|at| ids.get(at + 1).copied())
            .collect();
        self.engine.end_step();
        Ok(self.engine.begin(part, Logits::All, StepKind::Prefill)?)
    }

    /// Runs the engine through a brick and compares.
    fn compare(&mut self, index: usize, want: &[BrickVector<'_>]) -> Result<(), QuantisationError> {
        self.engine.advance_through(index)?;
        let key = |v: &BrickVector<'_>| (v.buf as usize, v.token, v.expert);
        let by_place: HashMap<_, _> = want.iter().map(|v| (key(v), v.output)).collect();
        let got: Vec<BrickVector<'_>> = self.engine.vectors(index).collect();
        for v in &got {
            let Some(want) = by_place.get(&key(v)) else {
                continue;
            };
            self.arriving[index].add(v.output, want);
            if v.buf == Buf::Logits {
                self.outputs.add(v.token, v.output, want);
            }
        }
        if let Some(product) = Product::of(self.by, index) {
            own_errors(&product, &got, &mut self.own[index]);
        }
        self.done += 1;
        if (self.progress)(self.done, self.all) {
            Ok(())
        } else {
            Err(QuantisationError::Stopped)
        }
    }

    fn figures(&self, reference: String, tokens: usize) -> ModelQuantisationError {
        let of = |sums: &[ErrorSums], of: ErrorOf| -> Vec<_> {
            let bricks = self.model.plan.bricks.iter().zip(sums);
            bricks
                .filter(|(_, s)| s.vectors() > 0)
                .map(|(b, s)| s.trace((b.id, b.layer), of, weight_type(b)))
                .collect()
        };
        let mut brick_errors = of(&self.own, ErrorOf::Own);
        brick_errors.extend(of(&self.arriving, ErrorOf::Arriving));
        let o = &self.outputs;
        let mean = |sum: f64| sum / o.positions as f64;
        let perplexity = |nll: f64| (nll / o.predicted as f64).exp();
        ModelQuantisationError {
            reference,
            tokens: tokens as u32,
            brick_errors,
            logits_cosine: mean(o.cosines),
            output_kl_divergence: mean(o.divergence),
            same_top: mean(o.same_top as f64),
            perplexity: perplexity(o.nll),
            reference_perplexity: perplexity(o.reference_nll),
            perplexity_delta: perplexity(o.nll) - perplexity(o.reference_nll),
        }
    }
}

impl Outputs {
    fn add(&mut self, token: usize, got: &[f32], want: &[f32]) {
        self.positions += 1;
        self.cosines += cosine(got, want);
        self.divergence += divergence(want, got);
        self.same_top += u64::from(same_top(got, want));
        let Some(next) = self.next.get(token).copied().flatten() else {
            return;
        };
        self.predicted += 1;
        self.nll += nll(got, next);
        self.reference_nll += nll(want, next);
    }
}

/// The own error of a product: of every expert with all its tokens at once.
fn own_errors(product: &Product<'_>, got: &[BrickVector<'_>], sums: &mut ErrorSums) {
    let mut by_expert: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for v in got {
        if let Some(input) = v.input {
            let mine = by_expert.entry(v.expert).or_default();
            mine.push((input, v.output));
        }
    }
    for (expert, pairs) in by_expert {
        let inputs: Vec<&[f32]> = pairs.iter().map(|p| p.0).collect();
        for (want, (_, got)) in product.all(expert, &inputs).iter().zip(pairs) {
            sums.add(got, want);
        }
    }
}
