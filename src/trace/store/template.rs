//! Windows beside a template: the mean of many, and of each window only how it differs, as int8 with a scale a vector.

use super::error::Problem;
use crate::trace::vector;

/// Largest int8 used; -128 is not, so that the code is symmetric.
const LARGEST: f32 = 127.0;

/// The mean of many windows, a vector for each of a window's slots: the residual, the FFN deltas, the attention deltas.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    width: usize,
    vectors: Vec<f32>,
}

/// A vector's difference from its template: `template[i] + scale * values[i]`, in f32, is the vector again, to within half
/// of `scale` and the rounding of f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    /// The largest difference, over 127.
    pub scale: f32,
    /// One for each number of the vector, -127 to 127.
    pub values: Vec<i8>,
}

impl Template {
    /// A template from its vectors, each of `width` numbers, one after the other.
    pub(super) fn from_vectors(width: u32, vectors: &[f32]) -> Self {
        Self {
            width: width as usize,
            vectors: vectors.to_vec(),
        }
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Vectors of a window.
    pub fn slots(&self) -> usize {
        self.vectors.len() / self.width.max(1)
    }

    /// A slot's mean.
    pub fn vector(&self, slot: usize) -> Option<&[f32]> {
        let from = slot.checked_mul(self.width)?;
        self.vectors.get(from..from.checked_add(self.width)?)
    }

    pub(super) fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// How a vector differs from its slot's mean, rounded to the nearest of 255 steps.
    ///
    /// # Errors
    /// No such slot, another width, a number that is not finite or differs by more than f32 can say.
    pub fn encode(&self, slot: usize, actual: &[f32]) -> Result<Quantized, Problem> {
        let mean = self.checked(slot, actual)?;
        let differences = || actual.iter().zip(mean).map(|(a, m)| a - m);
        let largest = differences().fold(0.0, |max: f32, d| match d.abs() {
            d if d.is_nan() || max.is_nan() => f32::NAN,
            d => max.max(d),
        });
        if !largest.is_finite() {
            return Err(Problem::NotFinite { slot });
        }
        let scale = largest / LARGEST;
        let quantise = |d: f32| match scale {
            // Nothing differs, or by less than a step of f32 near 0.
            0.0 => 0,
            _ => (d / scale).round().clamp(-LARGEST, LARGEST) as i8,
        };
        Ok(Quantized {
            scale,
            values: differences().map(quantise).collect(),
        })
    }

    /// A vector again; `None` where slot or width do not exist.
    pub fn decode(&self, slot: usize, stored: &Quantized) -> Option<Vec<f32>> {
        let mean = self.vector(slot)?;
        let values = stored.values.iter().copied();
        (values.len() == self.width).then(|| decode(mean, stored.scale, values))
    }

    /// Cosine between a vector and what [`encode`](Self::encode) keeps of it: how much the int8 form costs this slot.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn cosine(&self, slot: usize, actual: &[f32]) -> Result<f64, Problem> {
        let stored = self.encode(slot, actual)?;
        let again = self.decode(slot, &stored).unwrap_or_default();
        Ok(vector::cosine(actual, &again))
    }

    /// Cosine between a vector and its slot's mean: how well the template alone fits.
    ///
    /// # Errors
    /// No such slot, another width.
    pub fn template_cosine(&self, slot: usize, actual: &[f32]) -> Result<f64, Problem> {
        Ok(vector::cosine(actual, self.checked(slot, actual)?))
    }

    fn checked(&self, slot: usize, actual: &[f32]) -> Result<&[f32], Problem> {
        let mean = self.vector(slot).ok_or(Problem::OutOfRange {
            what: "slot",
            index: slot as u64,
            count: self.slots() as u64,
        })?;
        if actual.len() != self.width {
            return Err(Problem::Width {
                got: actual.len(),
                wanted: self.width as u32,
            });
        }
        Ok(mean)
    }
}

/// Multiplies and adds in f32, each rounded, so that every reader computes the same numbers.
pub(super) fn decode(mean: &[f32], scale: f32, values: impl Iterator<Item = i8>) -> Vec<f32> {
    let steps = values.map(|q| scale * f32::from(q));
    mean.iter().zip(steps).map(|(m, d)| m + d).collect()
}

/// Sums windows to their mean. Memory: one f64 for each number of a window.
#[derive(Debug, Clone)]
pub struct TemplateBuilder {
    width: usize,
    windows: u64,
    sums: Vec<f64>,
}

impl TemplateBuilder {
    /// For windows of `slots` vectors of `width` numbers.
    ///
    /// # Errors
    /// A size of 0, or more than memory has room for.
    pub fn new(slots: usize, width: u32) -> Result<Self, Problem> {
        let shape = |field, value| Problem::Shape {
            field,
            value,
            must: "1 or more, and a window that fits into memory",
        };
        let mut sums = Vec::new();
        let numbers = slots.checked_mul(width as usize).unwrap_or(0);
        if numbers == 0 || sums.try_reserve_exact(numbers).is_err() {
            return Err(shape("slots x width", slots as u64));
        }
        sums.resize(numbers, 0.0);
        Ok(Self {
            width: width as usize,
            windows: 0,
            sums,
        })
    }

    /// Adds a window, its vectors in the order of the slots.
    ///
    /// # Errors
    /// Another number of vectors, another width, a number that is not finite; the sums are then as before.
    pub fn add(&mut self, window: &[&[f32]]) -> Result<(), Problem> {
        let slots = self.sums.len() / self.width;
        if window.len() != slots {
            return Err(Problem::Vectors {
                what: "the template",
                got: window.len(),
                wanted: slots,
            });
        }
        for (slot, vector) in window.iter().enumerate() {
            if vector.len() != self.width {
                return Err(Problem::Width {
                    got: vector.len(),
                    wanted: self.width as u32,
                });
            }
            if !vector.iter().all(|x| x.is_finite()) {
                return Err(Problem::NotFinite { slot });
            }
        }
        for (sums, vector) in self.sums.chunks_exact_mut(self.width).zip(window) {
            for (sum, &x) in sums.iter_mut().zip(*vector) {
                *sum += f64::from(x);
            }
        }
        self.windows += 1;
        Ok(())
    }

    /// The mean of the windows added.
    ///
    /// # Errors
    /// None was added.
    pub fn build(&self) -> Result<Template, Problem> {
        if self.windows == 0 {
            return Err(Problem::Order {
                what: "a template of no windows",
                remedy: "add some first",
            });
        }
        let n = self.windows as f64;
        Ok(Template {
            width: self.width,
            vectors: self.sums.iter().map(|sum| (sum / n) as f32).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn template(windows: &[Vec<f32>]) -> Template {
        let width = windows[0].len() as u32;
        let mut builder = TemplateBuilder::new(1, width).expect("builder");
        for window in windows {
            builder.add(&[window]).expect("added");
        }
        builder.build().expect("a template")
    }

    #[test]
    fn a_template_is_the_mean() {
        let template = template(&[vec![1.0, 5.0], vec![3.0, -5.0]]);
        assert_eq!(template.vector(0), Some(&[2.0, 0.0][..]));
        assert_eq!((template.slots(), template.width()), (1, 2));
        assert_eq!(template.vector(1), None);
        assert_eq!(template.vector(usize::MAX), None);
    }

    #[test]
    fn entity_windows_come_back_almost_parallel() {
        // A common direction with a small part of its own, as the field finds windows to be.
        let window = |seed: u32| -> Vec<f32> {
            let noise = |i: u32| ((i * 7919 + seed * 104_729) % 1000) as f32 / 1000.0 - 0.5;
            (0..512u32)
                .map(|i| (i as f32).sin() * 10.0 + noise(i))
                .collect()
        };
        let windows: Vec<_> = (0..20).map(window).collect();
        let template = template(&windows);
        for window in &windows {
            let mean = template.template_cosine(0, window).expect("a cosine");
            let kept = template.cosine(0, window).expect("a cosine");
            assert!(mean < kept && kept > 0.999_999, "{mean} {kept}");
        }
    }

    #[test]
    fn what_cannot_be_quantised_is_refused() {
        let t = template(&[vec![0.0, 0.0]]);
        for bad in [f32::NAN, f32::INFINITY] {
            assert!(matches!(
                t.encode(0, &[bad, 1.0]),
                Err(Problem::NotFinite { slot: 0 })
            ));
            assert!(matches!(
                t.encode(0, &[1.0, bad]),
                Err(Problem::NotFinite { slot: 0 })
            ));
        }
        let far = template(&[vec![f32::MAX]]);
        assert!(matches!(
            far.encode(0, &[f32::MIN]),
            Err(Problem::NotFinite { .. })
        ));
        assert!(matches!(
            t.encode(1, &[0.0, 0.0]),
            Err(Problem::OutOfRange { .. })
        ));
        assert!(matches!(t.encode(0, &[0.0]), Err(Problem::Width { .. })));
        assert!(TemplateBuilder::new(0, 1).is_err());
        assert!(TemplateBuilder::new(usize::MAX, u32::MAX).is_err());
        assert!(TemplateBuilder::new(usize::MAX / 16, 1).is_err());
        let mut builder = TemplateBuilder::new(2, 1).expect("builder");
        assert!(builder.build().is_err());
        assert!(builder.add(&[&[1.0]]).is_err());
        assert!(builder.add(&[&[1.0], &[1.0, 2.0]]).is_err());
        assert!(builder.add(&[&[1.0], &[f32::NAN]]).is_err());
        // The template itself costs nothing.
        assert_eq!(t.encode(0, &[0.0, 0.0]).expect("encoded").scale, 0.0);
        assert_eq!(t.encode(0, &[1e-45, 0.0]).expect("encoded").values, [0, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_error_is_half_a_step(
            rows in prop::collection::vec(prop::array::uniform3(-1e6f32..1e6), 1..80),
        ) {
            let column = |i: usize| rows.iter().map(|r| r[i]).collect::<Vec<_>>();
            let template = template(&[column(0), column(1)]);
            let actual = column(2);
            let stored = template.encode(0, &actual).expect("encoded");
            let again = template.decode(0, &stored).expect("decoded");
            for (a, b) in actual.iter().zip(&again) {
                let error = (f64::from(*a) - f64::from(*b)).abs();
                prop_assert!(error <= f64::from(stored.scale) * 0.5001 + 0.25, "{a} {b}");
            }
            prop_assert!(stored.values.iter().any(|v| v.abs() == 127) || stored.scale == 0.0);
        }
    }
}
