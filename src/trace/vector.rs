//! Norms and angles of vectors, summed in f64: a residual stream reaches norms whose squares f32 cannot add up.

/// The scalar product; what the longer of two has more counts as if the other were 0 there.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

/// The Euclidean length.
pub fn norm(a: &[f32]) -> f64 {
    dot(a, a).sqrt()
}

/// Cosine of the angle between two vectors of one length, -1 to 1. NaN where one of them is 0, not finite or of another
/// length: there is no angle then.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    if a.len() != b.len() {
        return f64::NAN;
    }
    // Two roots, not one of the product: squares of norms near the end of f32 leave f64's exact range.
    (dot(a, b) / (norm(a) * norm(b))).clamp(-1.0, 1.0)
}

/// Length of the difference of two vectors of one length, over the length of `truth`; NaN where that is 0 or not finite.
pub fn relative_error(truth: &[f32], other: &[f32]) -> f64 {
    if truth.len() != other.len() {
        return f64::NAN;
    }
    let squares = truth.iter().zip(other).map(|(&t, &o)| {
        let d = f64::from(t) - f64::from(o);
        d * d
    });
    squares.sum::<f64>().sqrt() / norm(truth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn angles() {
        assert_eq!(norm(&[3.0, 4.0]), 5.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[2.0, 0.0], &[-1.0, 0.0]), -1.0);
        assert!(cosine(&[0.0], &[1.0]).is_nan());
        assert!(cosine(&[1.0], &[1.0, 2.0]).is_nan());
        assert!(cosine(&[f32::NAN], &[1.0]).is_nan());
        assert!((cosine(&[f32::MAX; 4], &[f32::MAX; 4]) - 1.0).abs() < 1e-12);
        assert_eq!(relative_error(&[2.0, 0.0], &[1.0, 0.0]), 0.5);
        assert!(relative_error(&[1.0], &[]).is_nan());
    }

    proptest! {
        #[test]
        fn cosine_is_symmetric_and_ignores_length(
            pairs in prop::collection::vec((-1e3f32..1e3, -1e3f32..1e3), 1..50),
        ) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let c = cosine(&a, &b);
            prop_assume!(!c.is_nan());
            prop_assert_eq!(c, cosine(&b, &a));
            let double: Vec<f32> = a.iter().map(|x| x * 2.0).collect();
            prop_assert!((c - cosine(&double, &b)).abs() < 1e-12);
            prop_assert!((relative_error(&a, &double) - 1.0).abs() < 1e-12);
        }
    }
}
