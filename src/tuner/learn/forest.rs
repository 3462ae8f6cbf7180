//! Which kernel variant is fastest: a random forest (Breiman, "Random Forests", Machine Learning 45, 2001) of linfa's
//! decision trees, whose votes are made probabilities.
//!
//! Every tree answers one yes-or-no question, "is it class k?", so that a forest of two classes is one set of trees and one of
//! more is one set for each class. That is what makes training repeatable: linfa adds class counts in the order of a
//! randomly keyed hash map, which only a sum of two survives unchanged.

use super::metrics::{self, Scored};
use super::tree::{Node, Trees};
use linfa::traits::Fit;
use linfa::{Dataset, DatasetBase, ParamGuard};
use linfa_ensemble::{EnsembleLearnerParams, RandomForest};
use linfa_trees::{DecisionTree, TreeNode};
use ndarray::{Array1, Array2};
use rand_linfa::SeedableRng;
use rand_linfa::rngs::StdRng;

/// Folds of the cross-validation that the votes are calibrated on.
const FOLDS: u64 = 5;
/// Temperatures that are tried, as powers of 2.
const TEMPERATURES: std::ops::RangeInclusive<i32> = -12..=16;
/// Classes a forest may have: more make no sense of a few hundred rows.
pub const MOST_CLASSES: usize = 64;

/// How a forest is grown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForestOptions {
    /// Trees for each question.
    pub trees: usize,
    /// Depth of a tree.
    pub depth: usize,
    /// Share of the columns that a tree sees.
    pub columns: f64,
    /// Seed of rows and columns drawn.
    pub seed: u64,
}

impl Default for ForestOptions {
    fn default() -> Self {
        Self {
            trees: 40,
            depth: 8,
            columns: 0.5,
            seed: 0,
        }
    }
}

/// The rarer of yes and no is weighted by how many times as many rows the other has, to this power, as in
/// [`super::logistic`]: at 1 rare kernels are said too often.
const BALANCE: f32 = 0.4;

/// A row to learn from.
#[derive(Debug, Clone, Copy)]
pub struct Example<'a> {
    /// Its columns, finite.
    pub x: &'a [f32],
    /// Its class, from 0.
    pub class: usize,
    /// Rows of one group are never on both sides of a split.
    pub group: u64,
}

/// Why there is no classifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassifierError {
    /// No two classes.
    #[error("{0} kinds of answers are in the data, and a choice needs two; collect more runs")]
    Classes(usize),
    /// Rows that cannot be learned from.
    #[error("the rows are damaged: {0}; collect them again")]
    Rows(&'static str),
    /// The library gave up.
    #[error("training failed: {0}; collect more runs")]
    Training(String),
}

/// The classifier.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelForest {
    pub(super) classes: Vec<String>,
    pub(super) trees: Trees,
    /// Vote shares are raised to the power of its inverse.
    pub(super) temperature: f32,
}

/// A forest with what it showed on rows that its trees had not seen.
#[derive(Debug, Clone)]
pub struct Grown {
    /// The forest of all rows.
    pub forest: KernelForest,
    /// By row, from a forest and a temperature of other groups; rows whose other groups give no forest are left out.
    pub held_out: Vec<Scored>,
}

impl KernelForest {
    /// Grows a forest and calibrates it on held-out groups. Classes are weighted so that each counts the same.
    ///
    /// # Errors
    /// Fewer than two classes in the rows, more than [`MOST_CLASSES`], or rows of unequal length or with values that are not
    /// finite.
    pub fn train(
        classes: Vec<String>,
        rows: &[Example],
        options: &ForestOptions,
    ) -> Result<Grown, ClassifierError> {
        check(rows, classes.len())?;
        let votes = held_out_votes(rows, classes.len(), options);
        let held_out = calibrated_by_others(rows, &votes);
        let temperature = temperature(voted(rows, &votes));
        let trees = grow(rows, classes.len(), options)?;
        Ok(Grown {
            forest: Self {
                classes,
                trees,
                temperature,
            },
            held_out,
        })
    }

    /// Names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Probability of each class, in the order of [`Self::classes`]; `x` has the columns it was trained on.
    pub fn probabilities(&self, x: &[f32]) -> Vec<f32> {
        let mut shares = votes(&self.trees, self.classes.len(), x);
        soften(&mut shares, self.temperature);
        shares
    }
}

/// That rows can be learned from.
pub(super) fn check(rows: &[Example], classes: usize) -> Result<(), ClassifierError> {
    let columns = rows.first().map_or(0, |r| r.x.len());
    if columns == 0 || rows.iter().any(|r| r.x.len() != columns) {
        return Err(ClassifierError::Rows("they have unequal lengths"));
    }
    if !rows.iter().all(|r| r.x.iter().all(|v| v.is_finite())) {
        return Err(ClassifierError::Rows("a value is not finite"));
    }
    if classes > MOST_CLASSES || rows.iter().any(|r| r.class >= classes) {
        return Err(ClassifierError::Rows("a class has no name"));
    }
    let mut seen: Vec<usize> = rows.iter().map(|r| r.class).collect();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < 2 {
        return Err(ClassifierError::Classes(seen.len()));
    }
    Ok(())
}

/// Classes that a set of trees is asked about.
fn questions(classes: usize) -> std::ops::Range<usize> {
    if classes == 2 { 1..2 } else { 0..classes }
}

/// Trees of all questions as arrays.
fn grow(
    rows: &[Example],
    classes: usize,
    options: &ForestOptions,
) -> Result<Trees, ClassifierError> {
    let mut trees = Trees::new(classes);
    for class in questions(classes) {
        let forest = grow_linfa(rows, class, options)?;
        for (tree, columns) in forest.models.iter().zip(&forest.model_features) {
            trees.push(&flatten(tree.root_node(), columns, class, classes));
        }
    }
    Ok(trees)
}

/// linfa's forest for one question.
fn grow_linfa(
    rows: &[Example],
    class: usize,
    options: &ForestOptions,
) -> Result<RandomForest<f32, bool>, ClassifierError> {
    let columns = rows.first().map_or(0, |r| r.x.len());
    let values: Vec<f32> = rows.iter().flat_map(|r| r.x.iter().copied()).collect();
    let x = Array2::from_shape_vec((rows.len(), columns), values)
        .map_err(|e| ClassifierError::Training(e.to_string()))?;
    let y: Array1<bool> = rows.iter().map(|r| r.class == class).collect();
    let rng = StdRng::seed_from_u64(options.seed.wrapping_add((class as u64) << 32));
    let params = EnsembleLearnerParams::new_fixed_rng(Weighted(options.depth), rng)
        .ensemble_size(options.trees.max(1))
        .feature_proportion(options.columns.clamp(0.01, 1.0))
        .check()
        .map_err(|e| ClassifierError::Training(e.to_string()))?;
    params
        .fit(&Dataset::new(x, y))
        .map_err(|e| ClassifierError::Training(e.to_string()))
}

/// A decision tree of at most this depth whose rarer answer has more weight.
struct Weighted(usize);

impl Fit<Array2<f32>, Array1<bool>, linfa::Error> for Weighted {
    type Object = DecisionTree<f32, bool>;

    fn fit(
        &self,
        rows: &DatasetBase<Array2<f32>, Array1<bool>>,
    ) -> Result<Self::Object, linfa::Error> {
        let n = rows.targets.len() as f32;
        let yes = rows.targets.iter().filter(|y| **y).count() as f32;
        // No weight is below 1, so that a single row may still be a leaf. The odd part keeps leaves from ties, which linfa
        // breaks by chance.
        let (rare, common) = (yes.min(n - yes), yes.max(n - yes));
        let boost = if rare > 0.0 {
            (common / rare).powf(BALANCE)
        } else {
            1.0
        } * 1.000_737;
        let weight = |y: &bool| if (*y) == (yes <= n - yes) { boost } else { 1.0 };
        let weights = rows.targets.map(weight);
        let rows = Dataset::new(rows.records.clone(), rows.targets.clone()).with_weights(weights);
        DecisionTree::params()
            .max_depth(Some(self.0))
            .min_weight_leaf(1.0)
            .fit(&rows)
    }
}

/// linfa's tree as nodes; `columns` are the places of the columns it saw. A leaf that says yes votes for the class, one that
/// says no for the other one of two, or for none.
fn flatten(node: &TreeNode<f32, bool>, columns: &[usize], class: usize, classes: usize) -> Node {
    let children = node.children();
    if let (None, [Some(left), Some(right)]) = (node.prediction(), children.as_slice()) {
        let (column, threshold, _) = node.split();
        return Node::Split {
            feature: columns.get(column).map_or(0, |c| *c as u16),
            threshold,
            left: Box::new(flatten(left, columns, class, classes)),
            right: Box::new(flatten(right, columns, class, classes)),
        };
    }
    let mut values = vec![0.0; classes];
    match (node.prediction(), classes) {
        (Some(true), _) => values[class] = 1.0,
        (Some(false), 2) => values[1 - class] = 1.0,
        _ => {}
    }
    Node::Leaf(values)
}

/// Shares of the votes, which sum to 1; half a vote for each class keeps them from 0.
fn votes(trees: &Trees, classes: usize, x: &[f32]) -> Vec<f32> {
    let mut votes = vec![0.5; classes];
    for leaf in trees.leaves(x) {
        votes.iter_mut().zip(leaf).for_each(|(v, l)| *v += l);
    }
    let sum: f32 = votes.iter().sum();
    votes.iter_mut().for_each(|v| *v /= sum);
    votes
}

/// Raises shares to the power of the temperature's inverse, and lets them sum to 1 again.
fn soften(shares: &mut [f32], temperature: f32) {
    let inverse = 1.0 / temperature;
    shares.iter_mut().for_each(|s| *s = s.powf(inverse));
    let sum: f32 = shares.iter().sum();
    if sum > 0.0 {
        shares.iter_mut().for_each(|s| *s /= sum);
    }
}

/// Vote shares of every row from a forest that did not see its group; `None` where there is no such forest.
fn held_out_votes(
    rows: &[Example],
    classes: usize,
    options: &ForestOptions,
) -> Vec<Option<Vec<f32>>> {
    let mut out = vec![None; rows.len()];
    for f in 0..FOLDS {
        let held = |r: &Example| metrics::fold(r.group, FOLDS) == f;
        let train: Vec<Example> = rows.iter().filter(|r| !held(r)).copied().collect();
        // A fold that leaves one class to learn from says nothing about its rows.
        if check(&train, classes).is_err() || !rows.iter().any(held) {
            continue;
        }
        let Ok(trees) = grow(&train, classes, options) else {
            continue;
        };
        for (row, out) in rows.iter().zip(&mut out) {
            if held(row) {
                *out = Some(votes(&trees, classes, row.x));
            }
        }
    }
    out
}

/// Classes with the votes there are.
fn voted<'a>(
    rows: &'a [Example],
    votes: &'a [Option<Vec<f32>>],
) -> impl Iterator<Item = (usize, &'a Vec<f32>)> {
    let pairs = rows.iter().zip(votes);
    pairs.filter_map(|(r, v)| Some((r.class, v.as_ref()?)))
}

/// Probabilities of every row with the temperature of the other folds.
fn calibrated_by_others(rows: &[Example], votes: &[Option<Vec<f32>>]) -> Vec<Scored> {
    let fold = |r: &Example| metrics::fold(r.group, FOLDS);
    let of: Vec<f32> = (0..FOLDS)
        .map(|f| {
            let others = rows.iter().zip(votes).filter(|(r, _)| fold(r) != f);
            temperature(others.filter_map(|(r, v)| Some((r.class, v.as_ref()?))))
        })
        .collect();
    let scored = |(at, (row, votes)): (usize, (&Example, &Option<Vec<f32>>))| {
        let mut probabilities = votes.clone()?;
        soften(&mut probabilities, of[fold(row) as usize]);
        Some(Scored {
            row: at,
            class: row.class,
            probabilities,
        })
    };
    let pairs = rows.iter().zip(votes).enumerate();
    pairs.filter_map(scored).collect()
}

/// The temperature under which the true classes are likeliest (Guo et al., ICML 2017, section 4.2); 1 without rows.
fn temperature<'a>(rows: impl Iterator<Item = (usize, &'a Vec<f32>)>) -> f32 {
    let rows: Vec<(usize, &Vec<f32>)> = rows.collect();
    if rows.is_empty() {
        return 1.0;
    }
    let loss = |temperature: f32| -> f64 {
        let one = |(class, votes): &(usize, &Vec<f32>)| {
            let mut p = (*votes).clone();
            soften(&mut p, temperature);
            -f64::from(p.get(*class).copied().unwrap_or(0.0).max(1e-7)).ln()
        };
        rows.iter().map(one).sum()
    };
    let tried = TEMPERATURES.map(|t| 2f32.powf(t as f32 / 4.0));
    let best = tried
        .map(|t| (t, loss(t)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(1.0, |b| b.0)
}

#[cfg(test)]
#[path = "forest/tests.rs"]
mod tests;
