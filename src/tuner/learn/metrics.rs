//! How good a classifier is on rows that it has not seen.

/// A row's true class and the probabilities a classifier gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// Its place among the rows that were trained on: some are not scored.
    pub row: usize,
    /// Class, from 0.
    pub class: usize,
    /// Probability of each class.
    pub probabilities: Vec<f32>,
}

/// Figures of one class.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClassMetrics {
    /// Rows of it.
    pub count: usize,
    /// Of those said to be of it, the share that is; `None` where none was said to be.
    pub precision: Option<f64>,
    /// Of its rows, the share that was found; `None` without rows.
    pub recall: Option<f64>,
}

impl ClassMetrics {
    /// Harmonic mean of precision and recall; 0 where it was never said or never there.
    pub fn f1(&self) -> f64 {
        match (self.precision, self.recall) {
            (Some(p), Some(r)) if p + r > 0.0 => 2.0 * p * r / (p + r),
            _ => 0.0,
        }
    }
}

/// Figures of a classifier.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassReport {
    /// By class.
    pub classes: Vec<ClassMetrics>,
    /// Share of rows whose likeliest class is right.
    pub accuracy: f64,
    /// Share of rows whose class is among the three likeliest.
    pub top3: f64,
    /// Expected calibration error over ten bins of confidence (Guo et al., ICML 2017, equation 3).
    pub ece: f64,
}

/// Bins of the calibration error.
const BINS: usize = 10;

/// The likeliest class; the first one of equals. `None` without classes.
pub fn likeliest(probabilities: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (at, &p) in probabilities.iter().enumerate() {
        if best.is_none_or(|(_, b)| p > b) {
            best = Some((at, p));
        }
    }
    best.map(|(at, _)| at)
}

/// Classes by probability, the likeliest first.
pub fn ranked(probabilities: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    order
}

/// Figures over rows of `classes` classes.
pub fn report(rows: &[Scored], classes: usize) -> ClassReport {
    let mut found = vec![0usize; classes];
    let mut said = vec![0usize; classes];
    let mut there = vec![0usize; classes];
    let (mut right, mut near) = (0usize, 0usize);
    for row in rows {
        let Some(top) = likeliest(&row.probabilities).filter(|t| *t < classes) else {
            continue;
        };
        said[top] += 1;
        if let Some(n) = there.get_mut(row.class) {
            *n += 1;
        }
        if top == row.class {
            found[top] += 1;
            right += 1;
        }
        let first = ranked(&row.probabilities);
        near += usize::from(first.iter().take(3).any(|c| *c == row.class));
    }
    let share = |a: usize, b: usize| (b > 0).then(|| a as f64 / b as f64);
    let class = |c: usize| ClassMetrics {
        count: there[c],
        precision: share(found[c], said[c]),
        recall: share(found[c], there[c]),
    };
    ClassReport {
        classes: (0..classes).map(class).collect(),
        accuracy: share(right, rows.len()).unwrap_or(0.0),
        top3: share(near, rows.len()).unwrap_or(0.0),
        ece: ece(rows),
    }
}

/// Expected calibration error: how far the confidence of the likeliest class lies from how often it is right.
pub fn ece(rows: &[Scored]) -> f64 {
    let mut bins = [(0usize, 0.0f64, 0.0f64); BINS];
    for row in rows {
        let Some(top) = likeliest(&row.probabilities) else {
            continue;
        };
        let confidence = f64::from(row.probabilities[top]);
        let bin = &mut bins[((confidence * BINS as f64) as usize).min(BINS - 1)];
        bin.0 += 1;
        bin.1 += confidence;
        bin.2 += f64::from(u8::from(top == row.class));
    }
    let off = |b: &(usize, f64, f64)| (b.1 - b.2).abs();
    bins.iter().map(off).sum::<f64>() / rows.len().max(1) as f64
}

/// Folds of a cross-validation by group: rows of one group are always in the same fold.
pub fn fold(group: u64, folds: u64) -> u64 {
    // The groups are hashes or counters: mixed once more, both spread evenly.
    let mut z = group.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % folds.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(class: usize, probabilities: &[f32]) -> Scored {
        Scored {
            row: 0,
            class,
            probabilities: probabilities.to_vec(),
        }
    }

    #[test]
    fn figures_by_hand() {
        let rows = [
            row(0, &[0.9, 0.1]),
            row(0, &[0.8, 0.2]),
            row(1, &[0.7, 0.3]),
            row(1, &[0.1, 0.9]),
        ];
        let r = report(&rows, 2);
        assert_eq!(r.accuracy, 0.75);
        assert_eq!(r.top3, 1.0);
        assert_eq!(r.classes[0].precision, Some(2.0 / 3.0));
        assert_eq!(r.classes[0].recall, Some(1.0));
        assert_eq!(r.classes[1].precision, Some(1.0));
        assert_eq!(r.classes[1].recall, Some(0.5));
        assert!((r.classes[1].f1() - 2.0 / 3.0).abs() < 1e-12);
        // Bins: 0.9 twice, both right; 0.8, right; 0.7, wrong.
        assert!((r.ece - (0.2 + 0.2 + 0.7) / 4.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_scored_gives_nothing() {
        let r = report(&[], 2);
        assert_eq!((r.accuracy, r.ece), (0.0, 0.0));
        assert_eq!(r.classes[0].precision, None);
        assert_eq!(r.classes[0].f1(), 0.0);
    }

    #[test]
    fn folds_are_even() {
        let mut counts = [0; 5];
        (0..1000).for_each(|g| counts[fold(g, 5) as usize] += 1);
        assert!(counts.iter().all(|c| (150..250).contains(c)), "{counts:?}");
    }
}
