//! The error of vectors against others, as sums in f64.

use crate::model::brick::BrickId;
use crate::tracer::figures::{ErrorGrade, ErrorOf, QuantisationErrorTrace};

impl ErrorGrade {
    /// Least cosine that is acceptable.
    pub const ACCEPTABLE: f64 = 0.995;
    /// Least cosine that is no more than a warning.
    pub const WARNING: f64 = 0.99;

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acceptable => "acceptable",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// By the cosine; a limit that is hit exactly belongs to the better grade.
    pub fn of(cosine: f64) -> Self {
        if cosine >= Self::ACCEPTABLE {
            Self::Acceptable
        } else if cosine >= Self::WARNING {
            Self::Warning
        } else {
            Self::Critical
        }
    }
}

/// Sums over pairs of vectors: what was computed, and what should have been.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ErrorSums {
    vectors: u64,
    elements: u64,
    /// Squared differences.
    error: f64,
    /// Squares of what should have been.
    signal: f64,
    max: f64,
    /// Cosines of the pairs.
    cosines: f64,
    /// Whether something was not finite.
    broken: bool,
}

/// Cosine of two vectors: 1 of two that are zero, 0 of one that is; NaN where an element is not finite.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    if aa == 0.0 && bb == 0.0 {
        return 1.0;
    }
    if aa == 0.0 || bb == 0.0 {
        return if (aa + bb).is_finite() { 0.0 } else { f64::NAN };
    }
    // One root of the product: exactly 1 of equal vectors. Squares of f32 are far from the limits of f64.
    (ab / (aa * bb).sqrt()).clamp(-1.0, 1.0)
}

impl ErrorSums {
    /// Takes in a vector and what it should have been; as many elements as both have.
    pub fn add(&mut self, got: &[f32], want: &[f32]) {
        let n = got.len().min(want.len());
        if n == 0 {
            return;
        }
        self.vectors += 1;
        self.elements += n as u64;
        self.cosines += cosine(&got[..n], &want[..n]);
        for (g, w) in got.iter().zip(want) {
            let (g, w) = (f64::from(*g), f64::from(*w));
            let e = g - w;
            self.error += e * e;
            self.signal += w * w;
            self.max = self.max.max(e.abs());
            self.broken |= !(g.is_finite() && w.is_finite());
        }
    }

    /// Vectors taken in.
    pub fn vectors(&self) -> u64 {
        self.vectors
    }

    /// `value`, NaN where nothing was taken in or something was not finite.
    fn known(&self, value: f64) -> f64 {
        if self.broken || self.vectors == 0 {
            f64::NAN
        } else {
            value
        }
    }

    /// Mean squared error of the elements.
    pub fn mse(&self) -> f64 {
        self.known(self.error / self.elements as f64)
    }

    /// Largest absolute error of an element.
    pub fn max_abs_error(&self) -> f64 {
        self.known(self.max)
    }

    /// Cosine, the mean over vectors: one of great length does not hide the others.
    pub fn cosine(&self) -> f64 {
        self.known(self.cosines / self.vectors as f64)
    }

    /// Signal-to-noise ratio, dB; `None` without an error, without a signal, and where either is no number.
    pub fn snr_db(&self) -> Option<f64> {
        let db = self.known(10.0 * (self.signal / self.error).log10());
        db.is_finite().then_some(db)
    }

    /// As a row of a table.
    pub fn trace(
        &self,
        (brick_id, layer): (BrickId, Option<usize>),
        of: ErrorOf,
        quant_type: String,
    ) -> QuantisationErrorTrace {
        QuantisationErrorTrace {
            brick_id,
            layer_idx: layer.map(|l| l as u32),
            of,
            mse: self.mse(),
            max_abs_error: self.max_abs_error(),
            cosine_similarity: self.cosine(),
            snr_db: self.snr_db(),
            quant_type,
            grade: ErrorGrade::of(self.cosine()),
            vectors: self.vectors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_that_is_hit_belongs_to_the_better_grade() {
        for (cosine, grade) in [
            (1.0, ErrorGrade::Acceptable),
            (0.995, ErrorGrade::Acceptable),
            (0.995f64.next_down(), ErrorGrade::Warning),
            (0.99, ErrorGrade::Warning),
            (0.99f64.next_down(), ErrorGrade::Critical),
            (-1.0, ErrorGrade::Critical),
            (f64::NAN, ErrorGrade::Critical),
        ] {
            assert_eq!(ErrorGrade::of(cosine), grade, "{cosine}");
        }
    }

    #[test]
    fn no_error_has_no_signal_to_noise_ratio() {
        let mut s = ErrorSums::default();
        assert!(s.mse().is_nan() && s.cosine().is_nan() && s.snr_db().is_none());
        s.add(&[1.0, -2.0], &[1.0, -2.0]);
        assert_eq!((s.mse(), s.max_abs_error(), s.cosine()), (0.0, 0.0, 1.0));
        assert_eq!(s.snr_db(), None);
        let mut zeros = ErrorSums::default();
        zeros.add(&[0.0; 4], &[0.0; 4]);
        assert_eq!((zeros.cosine(), zeros.snr_db()), (1.0, None));
        let mut lost = ErrorSums::default();
        lost.add(&[0.0; 4], &[1.0; 4]);
        assert_eq!((lost.cosine(), lost.snr_db()), (0.0, Some(0.0)));
        let mut made_up = ErrorSums::default();
        made_up.add(&[1.0; 4], &[0.0; 4]);
        assert_eq!((made_up.cosine(), made_up.snr_db()), (0.0, None));
    }

    #[test]
    fn what_is_no_number_is_critical() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (got, want) in [
                ([bad, 1.0], [1.0, 1.0]),
                ([1.0, 1.0], [bad, 1.0]),
                ([bad; 2], [bad; 2]),
            ] {
                let mut s = ErrorSums::default();
                s.add(&[1.0, 2.0], &[1.0, 2.5]);
                s.add(&got, &want);
                let row = s.trace((BrickId::QProj, Some(0)), ErrorOf::Own, "Q4_K".into());
                assert_eq!(row.grade, ErrorGrade::Critical, "{got:?} {want:?}");
                assert!(row.mse.is_nan() && row.cosine_similarity.is_nan() && row.snr_db.is_none());
                let json = serde_json::to_string(&row).expect("json");
                let back: QuantisationErrorTrace = serde_json::from_str(&json).expect("back");
                assert!(back.mse.is_nan() && back.vectors == 2);
            }
        }
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_naive_computation(
            pairs in prop::collection::vec(
                prop::collection::vec((-1e3f32..1e3, -1.0f32..1.0), 1..40), 1..6)
        ) {
            let mut s = ErrorSums::default();
            let (mut all, mut cosines) = (Vec::new(), 0.0);
            for pair in &pairs {
                let want: Vec<f32> = pair.iter().map(|p| p.0).collect();
                let got: Vec<f32> = pair.iter().map(|p| p.0 + p.1).collect();
                s.add(&got, &want);
                let d = |a: &[f32], b: &[f32]| -> f64 {
                    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
                };
                cosines += d(&got, &want) / (d(&got, &got) * d(&want, &want)).sqrt();
                all.extend(got.into_iter().zip(want).map(|(g, w)| (f64::from(g), f64::from(w))));
            }
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-9);
            let error: f64 = all.iter().map(|(g, w)| (g - w).powi(2)).sum();
            let signal: f64 = all.iter().map(|(_, w)| w * w).sum();
            let max = all.iter().map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
            prop_assert!(near(s.mse(), error / all.len() as f64));
            prop_assert!(near(s.max_abs_error(), max));
            prop_assert!((s.cosine() - cosines / pairs.len() as f64).abs() < 1e-9);
            match s.snr_db() {
                Some(db) => prop_assert!((db - 10.0 * (signal / error).log10()).abs() < 1e-6),
                None => prop_assert!(error == 0.0 || signal == 0.0),
            }
            prop_assert_eq!(s.vectors(), pairs.len() as u64);
        }
    }
}
