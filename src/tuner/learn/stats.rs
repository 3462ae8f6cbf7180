//! Statistics of predictions.

/// The value that a share `q` of `values` does not exceed, linear between ranks; `None` without values. Values that are no
/// numbers stand last.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64))
}

/// The value that `1 - miss` of exchangeable values to come do not exceed: the conformal quantile, with its correction for
/// few values. Infinite where there are too few for that share.
pub fn conformal(values: &[f64], miss: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = ((sorted.len() + 1) as f64 * (1.0 - miss)).ceil() as usize;
    let found = rank.checked_sub(1).and_then(|i| sorted.get(i));
    found.copied().unwrap_or(f64::INFINITY)
}

/// Weighted median of (value, weight); `None` without weight.
pub fn weighted_median(values: &[(f64, f64)]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = sorted.iter().map(|v| v.1).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    sorted.into_iter().find_map(|(value, weight)| {
        sum += weight;
        (weight > 0.0 && sum >= half).then_some(value)
    })
}

/// Share of the variance of `actual` that `predicted` explains; `None` with fewer than two different values.
pub fn r2(actual: &[f64], predicted: &[f64]) -> Option<f64> {
    let mean = actual.iter().sum::<f64>() / actual.len() as f64;
    let spread: f64 = actual.iter().map(|a| (a - mean).powi(2)).sum();
    let missed = actual.iter().zip(predicted).map(|(a, p)| (a - p).powi(2));
    (spread > 0.0).then(|| 1.0 - missed.sum::<f64>() / spread)
}

/// Pearson's correlation; `None` where either does not vary.
pub fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().min(b.len()) as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x - mean_a, y - mean_b);
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    let down = (aa * bb).sqrt();
    (down > 0.0).then(|| ab / down)
}

/// Spearman's rank correlation; `None` where either does not vary.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    correlation(&ranks(a), &ranks(b))
}

/// Values that differ by less, as a share of them, are equal: a difference is rounding.
const ROUNDING: f64 = 1e-9;

/// Ranks, equal values sharing their mean.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let same = |a: f64, b: f64| a == b || (a - b).abs() < ROUNDING * a.abs().max(b.abs());
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| same(values[a], values[b])) {
        let rank = first as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|&i| ranks[i] = rank);
        first += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_ranks() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.25), Some(1.25));
        assert_eq!(quantile(&[], 0.5), None);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(conformal(&ten, 0.1), 10.0);
        assert_eq!(conformal(&ten, 0.5), 6.0);
        assert_eq!(conformal(&ten[..8], 0.1), f64::INFINITY);
        assert_eq!(
            weighted_median(&[(1.0, 1.0), (9.0, 3.0), (5.0, 1.0)]),
            Some(9.0)
        );
    }

    #[test]
    fn correlations_agree_with_what_is_known() {
        assert_eq!(r2(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), Some(1.0));
        assert_eq!(r2(&[1.0, 2.0, 3.0], &[2.0; 3]), Some(0.0));
        assert_eq!(
            spearman(&[1.0, 2.0, 3.0, 4.0], &[1.0, 8.0, 27.0, 64.0]),
            Some(1.0)
        );
        assert_eq!(spearman(&[1.0, 2.0], &[1.0, 1.0]), None);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [1.5, 0.0, 1.5]);
        let constant_but_for_rounding = [2.3, 2.3 + 4e-16, 2.3 - 4e-16, 2.3];
        assert_eq!(
            spearman(&constant_but_for_rounding, &[1.0, 2.0, 3.0, 4.0]),
            None
        );
    }
}
