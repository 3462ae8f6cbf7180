//! Gradient boosting of regression trees over histograms, with monotone constraints that hold.
//!
//! Columns are cut into at most 255 bins at quantiles; trees grow leaf by leaf, the largest gain first. A constraint on a
//! column is kept by bounds that both children of every split inherit (as XGBoost does), so that a tree, and with it the
//! sum of all, never moves the wrong way, however deep it is. Training uses one thread and one seed: the same rows give the
//! same model to the last bit.

mod bins;
mod grow;

use super::tree::{Node, Trees, TreesError};
use crate::tuner::features::Direction;
use bins::Binned;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What is made small.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// The square of the error.
    Squared,
    /// The square up to this error, linear beyond: single wrong labels pull less.
    Huber(f64),
}

/// How trees are grown.
#[derive(Debug, Clone, PartialEq)]
pub struct GbtOptions {
    /// Most trees.
    pub trees: usize,
    /// Most splits from root to leaf.
    pub depth: u32,
    /// Most leaves of a tree.
    pub leaves: usize,
    /// Share of a tree's answer that is added.
    pub rate: f64,
    /// Added to the weight of a leaf when its value is chosen.
    pub l2: f64,
    /// Least weight of the rows of a leaf.
    pub min_weight: f64,
    /// Share of the rows that a tree sees.
    pub row_share: f64,
    /// Share of the columns that a tree sees.
    pub column_share: f64,
    /// Most bins of a column, 2 to 255.
    pub bins: usize,
    /// What is made small.
    pub loss: Loss,
    /// Which way the answer may go with each column; columns beyond its end are free.
    pub directions: Vec<Direction>,
    /// Seed of the draws of rows and columns.
    pub seed: u64,
}

impl Default for GbtOptions {
    fn default() -> Self {
        Self {
            trees: 200,
            depth: 6,
            leaves: 24,
            rate: 0.1,
            l2: 1.0,
            min_weight: 3.0,
            row_share: 0.8,
            column_share: 0.8,
            bins: 255,
            loss: Loss::Squared,
            directions: Vec::new(),
            seed: 1,
        }
    }
}

/// Rows with what they should answer.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Values of the columns, as many in every row.
    pub x: &'a [&'a [f32]],
    /// Answers.
    pub y: &'a [f64],
    /// Weights, zero or more.
    pub weight: &'a [f64],
}

/// Rows that nothing can be learned from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GbtError {
    /// None.
    #[error("there are no rows with a weight to learn from")]
    Empty,
    /// Of different lengths, or too many columns.
    #[error("rows, answers and weights do not fit together")]
    Shape,
    /// Answers, weights or shares that are no numbers.
    #[error("an answer, a weight or a share is not a finite number")]
    NotFinite,
    /// Trees of a file that are none.
    #[error(transparent)]
    Trees(#[from] TreesError),
}

/// The trained trees.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gbt {
    base: f64,
    trees: Trees,
    gain: Vec<f64>,
}

impl Gbt {
    /// Learns from rows.
    ///
    /// # Errors
    /// Rows that do not fit together or hold what is no number.
    pub fn train(rows: &Rows, options: &GbtOptions) -> Result<Self, GbtError> {
        let columns = check(rows)?;
        let total: f64 = rows.weight.iter().sum();
        let weighted = rows.y.iter().zip(rows.weight).map(|(y, w)| y * w);
        let base = weighted.sum::<f64>() / total;
        let binned = Binned::new(rows.x, columns, options.bins);
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let mut answers = vec![base; rows.y.len()];
        let mut model = Self {
            base,
            trees: Trees::new(1),
            gain: vec![0.0; columns],
        };
        for _ in 0..options.trees {
            let gradients = gradients(rows, &answers, options.loss);
            let seen = draw(rows.y.len(), options.row_share, &mut rng);
            let drawn = draw(columns, options.column_share, &mut rng);
            let tree = grow::tree(&binned, &gradients, rows.weight, seen, &drawn, options);
            let Some((node, gain)) = tree else { break };
            for (answer, x) in answers.iter_mut().zip(rows.x) {
                *answer += f64::from(walk(&node, x));
            }
            model.trees.push(&node);
            model.gain.iter_mut().zip(&gain).for_each(|(m, g)| *m += g);
        }
        let total: f64 = model.gain.iter().sum();
        if total > 0.0 {
            model.gain.iter_mut().for_each(|g| *g /= total);
        }
        Ok(model)
    }

    /// The answer for a row; the mean of all for one with too few columns.
    pub fn predict(&self, x: &[f32]) -> f64 {
        if x.len() < self.gain.len() {
            return self.base;
        }
        let leaves = self.trees.leaves(x);
        let sum: f64 = leaves
            .filter_map(|v| v.first())
            .copied()
            .map(f64::from)
            .sum();
        self.base + sum
    }

    /// Share of all gain that splits of each column brought; they sum to 1 unless no split was worth it.
    pub fn importances(&self) -> &[f64] {
        &self.gain
    }

    /// The answer without trees.
    pub fn base(&self) -> f64 {
        self.base
    }

    /// The trees.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// A model from its parts, as a file held them; importances give the number of columns.
    ///
    /// # Errors
    /// Trees that do not fit the columns, or a base or importances that are no numbers.
    pub fn from_parts(base: f64, trees: Trees, gain: Vec<f64>) -> Result<Self, GbtError> {
        let trees = Trees::from_arrays(trees.arrays(), gain.len())?;
        if !base.is_finite() || !gain.iter().all(|g| g.is_finite()) {
            return Err(GbtError::NotFinite);
        }
        Ok(Self { base, trees, gain })
    }
}

/// Number of columns, if the rows fit together.
fn check(rows: &Rows) -> Result<usize, GbtError> {
    let columns = rows.x.first().ok_or(GbtError::Empty)?.len();
    let n = rows.x.len();
    let even = rows.x.iter().all(|x| x.len() == columns);
    let counted = rows.y.len() == n && rows.weight.len() == n;
    if !even || !counted || columns >= usize::from(u16::MAX) || u32::try_from(n).is_err() {
        return Err(GbtError::Shape);
    }
    let weights = rows.weight.iter().all(|w| w.is_finite() && *w >= 0.0);
    if !weights || !rows.y.iter().all(|y| y.is_finite()) {
        return Err(GbtError::NotFinite);
    }
    if rows.weight.iter().sum::<f64>() <= 0.0 {
        return Err(GbtError::Empty);
    }
    Ok(columns)
}

fn gradients(rows: &Rows, answers: &[f64], loss: Loss) -> Vec<f64> {
    let of = |((a, y), w): ((&f64, &f64), &f64)| {
        let error = a - y;
        w * match loss {
            Loss::Squared => error,
            Loss::Huber(delta) => error.clamp(-delta.abs(), delta.abs()),
        }
    };
    answers
        .iter()
        .zip(rows.y)
        .zip(rows.weight)
        .map(of)
        .collect()
}

/// A share of `0..n`, drawn without replacement, in order; at least one.
fn draw(n: usize, share: f64, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..n as u32).collect();
    let wanted = ((n as f64 * share).round() as usize).clamp(1, n.max(1));
    if wanted >= n {
        return all;
    }
    for i in 0..wanted {
        let left = (n - i) as u64;
        let j = i + (rng.next_u64() % left) as usize;
        all.swap(i, j);
    }
    all.truncate(wanted);
    all.sort_unstable();
    all
}

/// The value of the leaf that `x` comes to.
fn walk(node: &Node, x: &[f32]) -> f32 {
    let mut at = node;
    loop {
        match at {
            Node::Leaf(values) => return values.first().copied().unwrap_or(0.0),
            Node::Split {
                feature,
                threshold,
                left,
                right,
            } => {
                let lower = x.get(usize::from(*feature)).is_some_and(|v| v < threshold);
                at = if lower { left } else { right };
            }
        }
    }
}

#[cfg(test)]
mod tests;
