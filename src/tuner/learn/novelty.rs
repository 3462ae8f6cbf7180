//! Whether a question is like anything that was learned from.
//!
//! Rows of training are stood for by a few of them, chosen so that every row is near one (Gonzalez, "Clustering to minimize
//! the maximum intercluster distance", Theor. Comput. Sci. 38, 1985). A question is new when it is further from all of them
//! than rows of machines and models that were held out usually are from the rest.

use super::forest::Example;
use super::metrics;

/// Rows that stand for all.
const PROTOTYPES: usize = 64;
/// Share of held-out rows that are not called new.
const USUAL: f64 = 0.95;
/// Folds of the held-out distances.
const FOLDS: u64 = 5;
/// Part of the scale that a column has at least: a column that hardly varies would count for all.
const LEAST_SCALE: f32 = 0.05;
/// How many rows are looked at to find prototypes.
const MOST_ROWS: usize = 4096;

/// What it takes to tell a new question.
#[derive(Debug, Clone, PartialEq)]
pub struct Novelty {
    /// What each column is multiplied by.
    pub(super) scale: Vec<f32>,
    /// Rows of training, scaled, one after another.
    pub(super) prototypes: Vec<f32>,
    /// Distance beyond which a question is new.
    pub(super) threshold: f32,
}

/// A question unlike all rows of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unlike {
    /// Column that differs most from the nearest row.
    pub column: usize,
    /// Whether it lies above it.
    pub high: bool,
    /// Distance by the threshold, above 1.
    pub times: f32,
}

impl Novelty {
    /// Learns from rows; their classes are not looked at, their groups are held out together. `None` without rows or with
    /// rows of unequal length.
    pub fn train(rows: &[Example]) -> Option<Self> {
        let columns = rows.first()?.x.len();
        if columns == 0 || rows.iter().any(|r| r.x.len() != columns) {
            return None;
        }
        let scale = scales(rows, columns);
        let mut distances: Vec<f32> = Vec::new();
        for f in 0..FOLDS {
            let (held, rest): (Vec<&Example>, Vec<&Example>) = rows
                .iter()
                .partition(|r| metrics::fold(r.group, FOLDS) == f);
            if held.is_empty() || rest.is_empty() {
                continue;
            }
            let prototypes = prototypes(&rest, &scale);
            let far = |r: &&Example| nearest(&prototypes, &scale, r.x).map(|(d, _)| d);
            distances.extend(held.iter().filter_map(far));
        }
        let all: Vec<&Example> = rows.iter().collect();
        let prototypes = prototypes(&all, &scale);
        // Rows that a prototype stands for are never new.
        let covered = rows
            .iter()
            .filter_map(|r| nearest(&prototypes, &scale, r.x));
        let radius = covered.map(|(d, _)| d).fold(0.0, f32::max);
        Some(Self {
            threshold: quantile(&mut distances, USUAL).max(radius).max(LEAST_SCALE),
            scale,
            prototypes,
        })
    }

    /// Distance to the nearest prototype, as a multiple of the threshold.
    pub fn distance(&self, x: &[f32]) -> f32 {
        nearest(&self.prototypes, &self.scale, x).map_or(0.0, |(d, _)| d / self.threshold)
    }

    /// How a question is new; `None` if it is not.
    pub fn unlike(&self, x: &[f32]) -> Option<Unlike> {
        let (distance, at) = nearest(&self.prototypes, &self.scale, x)?;
        let times = distance / self.threshold;
        if times <= 1.0 {
            return None;
        }
        let columns = self.scale.len();
        let row = &self.prototypes[at * columns..(at + 1) * columns];
        let offs = row.iter().zip(self.scale.iter().zip(x));
        let offs = offs.map(|(p, (s, x))| x * s - p).enumerate();
        let (column, off) = offs.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
        Some(Unlike {
            column,
            high: off > 0.0,
            times,
        })
    }
}

/// One by the standard deviation of each column; a column without any counts in full where a question differs.
fn scales(rows: &[Example], columns: usize) -> Vec<f32> {
    let n = rows.len() as f32;
    let scale = |c: usize| {
        let mean = rows.iter().map(|r| r.x[c]).sum::<f32>() / n;
        let square = rows.iter().map(|r| (r.x[c] - mean).powi(2)).sum::<f32>() / n;
        let deviation = square.sqrt();
        if deviation < LEAST_SCALE {
            1.0
        } else {
            // Columns count in root of their deviation: a rare switch does not drown a bandwidth.
            1.0 / deviation.sqrt()
        }
    };
    (0..columns).map(scale).collect()
}

/// Rows that stand for `rows`, each the one furthest from those before it.
fn prototypes(rows: &[&Example], scale: &[f32]) -> Vec<f32> {
    let step = rows.len().div_ceil(MOST_ROWS).max(1);
    let scaled: Vec<Vec<f32>> = rows
        .iter()
        .step_by(step)
        .map(|r| r.x.iter().zip(scale).map(|(x, s)| x * s).collect())
        .collect();
    let mut distance = vec![f32::INFINITY; scaled.len()];
    let mut out = Vec::with_capacity(PROTOTYPES * scale.len());
    let mut next = 0;
    for _ in 0..PROTOTYPES.min(scaled.len()) {
        out.extend_from_slice(&scaled[next]);
        let mut furthest = (0, 0.0);
        for (at, row) in scaled.iter().enumerate() {
            distance[at] = distance[at].min(square(&scaled[next], row));
            if distance[at] > furthest.1 {
                furthest = (at, distance[at]);
            }
        }
        if furthest.1 <= f32::EPSILON {
            break;
        }
        next = furthest.0;
    }
    out
}

fn square(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Distance to the nearest prototype, and its number.
fn nearest(prototypes: &[f32], scale: &[f32], x: &[f32]) -> Option<(f32, usize)> {
    let mut best: Option<(f32, usize)> = None;
    for (at, row) in prototypes.chunks_exact(scale.len().max(1)).enumerate() {
        let terms = row
            .iter()
            .zip(scale.iter().zip(x))
            .map(|(p, (s, x))| x * s - p);
        let d: f32 = terms.map(|v| v * v).sum();
        if best.is_none_or(|(b, _)| d < b) {
            best = Some((d, at));
        }
    }
    best.map(|(d, at)| (d.sqrt(), at))
}

/// A quantile; 0 of nothing.
fn quantile(values: &mut [f32], share: f64) -> f32 {
    values.sort_by(f32::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values
        .get(at.min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn examples(rows: &[Vec<f32>]) -> Vec<Example<'_>> {
        let rows = rows.iter().enumerate();
        rows.map(|(at, x)| Example {
            x,
            class: 0,
            group: at as u64 / 3,
        })
        .collect()
    }

    fn grid() -> Vec<Vec<f32>> {
        (0..200)
            .map(|i| vec![(i % 20) as f32 / 40.0, (i / 20) as f32 / 20.0, 0.0])
            .collect()
    }

    #[test]
    fn f086_what_is_far_from_all_rows_is_new_and_named() {
        let rows = grid();
        let novelty = Novelty::train(&examples(&rows)).expect("rows");
        assert!(rows.iter().all(|r| novelty.unlike(r).is_none()));
        let far = novelty.unlike(&[0.25, 1.0, 0.0]).expect("new");
        assert_eq!((far.column, far.high), (1, true));
        assert!(far.times > 1.0);
        // A column that never varied, and does.
        let switch = novelty.unlike(&[0.25, 0.25, 1.0]).expect("new");
        assert_eq!((switch.column, switch.high), (2, true));
    }

    #[test]
    fn no_rows_no_judgement() {
        assert!(Novelty::train(&[]).is_none());
        let one = vec![vec![0.5, 0.5]];
        let novelty = Novelty::train(&examples(&one)).expect("a row");
        assert!(novelty.unlike(&[0.5, 0.5]).is_none());
        assert!(novelty.unlike(&[0.9, 0.5]).is_some());
    }

    proptest! {
        #[test]
        fn any_question_gets_an_answer(x in prop::collection::vec(prop::num::f32::ANY, 0..5)) {
            let rows = grid();
            let novelty = Novelty::train(&examples(&rows)).expect("rows");
            let _ = novelty.unlike(&x);
        }
    }
}
