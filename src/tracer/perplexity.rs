//! Perplexity of a text, by the method of llama.cpp's `llama-perplexity`, so that figures can be compared.
//!
//! The text is tokenised whole and cut into windows of the context's length. Every window starts with an empty cache, its
//! first token replaced by the beginning-of-text token where the model has one in front of texts. Only tokens of the second
//! half are scored, so that each is predicted from at least half a context; of a window of `n` that are `n - 1 - n / 2`.

use crate::engine::reference::Reference;
use crate::engine::sampler::{argmax, logsumexp};
use crate::engine::{Config, Engine, EngineError, Logits, Overflow, StepKind, Unobserved};
use crate::model::Model;
use crate::tokenizer::{Tokenizer, TokenizerError};
use serde::Serialize;
use std::sync::Arc;

/// Window where none is asked for, tokens.
pub const N_CTX: usize = 512;
/// The smallest window that has something to score.
pub const LEAST_CTX: usize = 4;
/// Positions whose logits are held at a time: 32 of the largest vocabulary (262,144) are 32 MiB.
const ROWS: usize = 32;

/// Why a text cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum PerplexityError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Too little text.
    #[error(
        "the text is {tokens} tokens, and a context of {n_ctx} needs at least {}; give more text or a smaller context (--ctx)",
        n_ctx.saturating_mul(2)
    )]
    TooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Window.
        n_ctx: usize,
    },
    /// A window without anything to score.
    #[error("a context of {0} tokens leaves nothing to score; use at least {LEAST_CTX} (--ctx)")]
    SmallContext(usize),
    /// Whoever asked for it wants it no longer.
    #[error("stopped")]
    Stopped,
}

/// A forward pass whose logits are scored.
pub trait Scored {
    /// Empties the cache.
    fn clear(&mut self);

    /// Runs tokens after those in the cache, at most [`Self::rows`] where their logits are wanted.
    ///
    /// # Errors
    /// [`EngineError`].
    fn run(&mut self, ids: &[u32], wanted: bool) -> Result<(), EngineError>;

    /// Logits of a token of the last run that wanted them.
    fn logits(&mut self, row: usize) -> &[f32];

    /// Most tokens of a run that wants logits.
    fn rows(&self) -> usize;
}

/// The engine, to be scored.
pub struct FastPath(Engine<Unobserved>);

impl FastPath {
    /// An engine with the knobs of `config`, for windows of `n_ctx` tokens.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn new(model: Arc<Model>, config: &Config, n_ctx: usize) -> Result<Self, EngineError> {
        let chunk = config.chunk.min(n_ctx);
        let config = Config {
            n_ctx,
            chunk,
            logit_rows: ROWS.min(chunk),
            n_seq: 1,
            overflow: Overflow::Stop,
            keep: 0,
            ..config.clone()
        };
        Ok(Self(Engine::new(model, config, Unobserved)?))
    }
}

impl Scored for FastPath {
    fn clear(&mut self) {
        self.0.truncate(0);
    }

    fn run(&mut self, ids: &[u32], wanted: bool) -> Result<(), EngineError> {
        let (chunk, logits) = if wanted {
            (self.rows(), Logits::All)
        } else {
            (self.0.config().chunk, Logits::None)
        };
        for part in ids.chunks(chunk) {
            self.0.step(part, logits, StepKind::Prefill)?;
        }
        Ok(())
    }

    fn logits(&mut self, row: usize) -> &[f32] {
        self.0.logits(row)
    }

    fn rows(&self) -> usize {
        self.0.config().logit_rows
    }
}

/// The reference path, to be scored.
pub struct ReferencePath<'m> {
    pass: Reference<'m>,
    rows: Vec<Vec<f32>>,
}

impl<'m> ReferencePath<'m> {
    /// For windows of `n_ctx` tokens.
    pub fn new(model: &'m Model, n_ctx: usize) -> Self {
        Self {
            pass: Reference::for_context(model, n_ctx),
            rows: Vec::new(),
        }
    }
}

impl Scored for ReferencePath<'_> {
    fn clear(&mut self) {
        self.pass.clear();
    }

    fn run(&mut self, ids: &[u32], _: bool) -> Result<(), EngineError> {
        for part in ids.chunks(ROWS) {
            self.rows.clear();
            self.rows = self.pass.forward(part)?;
        }
        Ok(())
    }

    fn logits(&mut self, row: usize) -> &[f32] {
        self.rows.get(row).map_or(&[], |r| r)
    }

    fn rows(&self) -> usize {
        ROWS
    }
}

/// Perplexity of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Perplexity {
    /// Tokens of the text, the beginning-of-text token included.
    pub tokens: usize,
    /// Tokens of a window.
    pub n_ctx: usize,
    /// Windows scored.
    pub windows: usize,
    /// Tokens scored.
    pub scored: usize,
    /// Mean negative log-likelihood of a token, nats.
    pub nll: f64,
    /// `exp(nll)`.
    pub perplexity: f64,
    /// Standard error of the perplexity; `None` where it cannot be estimated.
    pub error: Option<f64>,
    /// The same tokens by another forward pass.
    pub reference: Option<Comparison>,
}

/// How another forward pass scores the same tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Its perplexity.
    pub perplexity: f64,
    /// Standard error of that.
    pub error: Option<f64>,
    /// How much larger the perplexity in question is.
    pub delta: f64,
    /// Natural logarithm of the two perplexities' ratio.
    pub ln_ratio: f64,
    /// Standard error of that, token by token, so that what both find hard does not count.
    pub ln_ratio_error: Option<f64>,
    /// Mean Kullback-Leibler divergence of the distributions from the reference's, nats.
    pub kl_divergence: f64,
    /// Share of the scored positions whose most probable token is the same.
    pub same_top: f64,
}

/// The ids that are scored of a text: as llama.cpp reads a file, a line end at the very end is no part of it, and no
/// end-of-text token follows.
///
/// # Errors
/// The vocabulary cannot express the text.
pub fn text_ids(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, PerplexityError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut ids: Vec<u32> = first_token(tokenizer).into_iter().collect();
    ids.extend(tokenizer.encode(text, false, false)?);
    Ok(ids)
}

/// What every window begins with.
pub fn first_token(tokenizer: &Tokenizer) -> Option<u32> {
    tokenizer.bos().filter(|_| tokenizer.adds_bos())
}

/// A sum and a sum of squares.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    n: usize,
    sum: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, x: f64) {
        self.n += 1;
        self.sum += x;
        self.squares += x * x;
    }

    fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }

    /// Standard error of the mean.
    fn error(&self) -> Option<f64> {
        let variance = self.squares / self.n as f64 - self.mean().powi(2);
        (self.n > 1 && variance >= 0.0).then(|| (variance / (self.n - 1) as f64).sqrt())
    }
}

/// Scores the first `windows` windows of `ids` (all that are whole where `None`), and with `reference` by that pass too.
/// `bos` is what every window begins with. `progress` is told after every window how many are done, of how many, and the
/// perplexity so far, and says whether to go on.
///
/// # Errors
/// Fewer than two windows of tokens, as in llama.cpp; what the passes return.
pub fn measure(
    pass: &mut dyn Scored,
    mut reference: Option<&mut dyn Scored>,
    ids: &[u32],
    (n_ctx, windows): (usize, Option<usize>),
    bos: Option<u32>,
    progress: &mut dyn FnMut(usize, usize, f64) -> bool,
) -> Result<Perplexity, PerplexityError> {
    if n_ctx < LEAST_CTX {
        return Err(PerplexityError::SmallContext(n_ctx));
    }
    if ids.len() / 2 < n_ctx {
        return Err(PerplexityError::TooShort {
            tokens: ids.len(),
            n_ctx,
        });
    }
    let all = ids.len() / n_ctx;
    let windows = windows.map_or(all, |w| w.clamp(1, all));
    let mut sums = Sums::default();
    for (i, window) in ids.chunks_exact(n_ctx).take(windows).enumerate() {
        let mut window = window.to_vec();
        if let (Some(bos), Some(first)) = (bos, window.first_mut()) {
            *first = bos;
        }
        sums.window(pass, reference.as_deref_mut(), &window)?;
        if !progress(i + 1, windows, sums.nll.mean().exp()) {
            return Err(PerplexityError::Stopped);
        }
    }
    let perplexity = sums.nll.mean().exp();
    Ok(Perplexity {
        tokens: ids.len(),
        n_ctx,
        windows,
        scored: sums.nll.n,
        nll: sums.nll.mean(),
        perplexity,
        error: sums.nll.error().map(|e| e * perplexity),
        reference: reference.map(|_| sums.comparison(perplexity)),
    })
}

#[derive(Default)]
struct Sums {
    nll: Spread,
    reference: Spread,
    /// Differences of the two, token by token.
    difference: Spread,
    divergence: f64,
    same_top: usize,
}

impl Sums {
    fn window<'r>(
        &mut self,
        pass: &mut dyn Scored,
        mut reference: Option<&mut (dyn Scored + 'r)>,
        window: &[u32],
    ) -> Result<(), EngineError> {
        let first = window.len() / 2;
        let rows = match &reference {
            Some(r) => pass.rows().min(r.rows()),
            None => pass.rows(),
        };
        let head = &window[..first];
        pass.clear();
        pass.run(head, false)?;
        if let Some(r) = &mut reference {
            r.clear();
            r.run(head, false)?;
        }
        // The last token predicts nothing that is known.
        let scored = &window[first..window.len() - 1];
        let next = &window[first + 1..];
        for (part, next) in scored.chunks(rows).zip(next.chunks(rows)) {
            pass.run(part, true)?;
            if let Some(r) = &mut reference {
                r.run(part, true)?;
            }
            for (row, &next) in next.iter().enumerate() {
                let got = pass.logits(row);
                self.token(got, reference.as_mut().map(|r| r.logits(row)), next);
            }
        }
        Ok(())
    }

    fn token(&mut self, got: &[f32], want: Option<&[f32]>, next: u32) {
        let own = nll(got, next);
        self.nll.add(own);
        if let Some(want) = want {
            let other = nll(want, next);
            self.reference.add(other);
            self.difference.add(own - other);
            self.divergence += divergence(want, got);
            self.same_top += usize::from(same_top(got, want));
        }
    }

    fn comparison(&self, own: f64) -> Comparison {
        let n = self.reference.n as f64;
        let perplexity = self.reference.mean().exp();
        Comparison {
            perplexity,
            error: self.reference.error().map(|e| e * perplexity),
            delta: own - perplexity,
            ln_ratio: self.difference.mean(),
            ln_ratio_error: self.difference.error(),
            kl_divergence: self.divergence / n,
            same_top: self.same_top as f64 / n,
        }
    }
}

/// Whether two rows of logits have the same most probable token; rows without a number have none.
pub fn same_top(a: &[f32], b: &[f32]) -> bool {
    let known = |row: &[f32]| row.iter().any(|l| !l.is_nan());
    known(a) && known(b) && argmax(a) == argmax(b)
}

/// Negative log-likelihood of a token by a row of logits, nats.
pub fn nll(logits: &[f32], token: u32) -> f64 {
    let logit = logits.get(token as usize).copied().unwrap_or(f32::NAN);
    logsumexp(logits) - f64::from(logit)
}

/// Kullback-Leibler divergence of the distribution of logits `q` from that of `p`, nats, never below 0.
pub fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let (sum_p, sum_q) = (logsumexp(p), logsumexp(q));
    let terms = p.iter().zip(q).map(|(p, q)| {
        let (ln_p, ln_q) = (f64::from(*p) - sum_p, f64::from(*q) - sum_q);
        match ln_p.exp() {
            0.0 => 0.0,
            p => p * (ln_p - ln_q),
        }
    });
    let sum: f64 = terms.sum();
    // Rounding may leave a little less; what is no number stays none.
    if sum < 0.0 { 0.0 } else { sum }
}

#[cfg(test)]
mod tests;
