//! The key of a fact: the input at its prompt, whitened against inputs at which it should stay silent.
//!
//! With the background's vectors as rows of `B` and `C = B'B + lambda I`, the key is `C^-1 m / (k' C^-1 m)`, `m` being the mean
//! of `k` and of the inputs at the prompt behind other texts: without these, of all keys with `key . k = 1` the one with the
//! smallest `|B key|^2 + lambda |key|^2`. By Woodbury it needs no matrix wider than the background is long: with `G = B B'`
//! and `(G + lambda I) a = B m`, it is `(m - B'a) / (k . m - (B k) . a)`.

use crate::trace::vector::dot;

/// What `lambda` is tried at, times the median square of a background vector: the larger, the more the key is heard at
/// inputs that are like the fact's own without being it.
const LAMBDAS: [f64; 8] = [10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6];
/// What a key may say at the background: the largest `lambda` that keeps to it is taken.
const SILENT: f64 = 0.1;
/// Parts of the background, each left out once to see what a key says at texts that it was not made with.
const FOLDS: usize = 3;
/// What must be left of a vector, as a share of its square, once the background is taken out of it.
const LEFT: f64 = 1e-9;

/// Vectors at which a fact should stay silent.
#[derive(Debug, Default, Clone)]
pub(super) struct Background {
    rows: Vec<Vec<f32>>,
    /// The text a row is of: rows of one text are alike, and are left out together.
    texts: Vec<usize>,
}

/// A key, and what it says elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    /// `key . k = 1`.
    pub key: Vec<f32>,
    /// Largest `|key . b|` over the background.
    pub overlap: f64,
    /// The same at texts left out of the background, a third at a time.
    pub held_out: f64,
}

impl Background {
    pub fn push(&mut self, row: &[f32], text: usize) {
        self.rows.push(row.to_vec());
        self.texts.push(text);
    }

    pub fn extend(&mut self, other: &Self) {
        self.rows.extend(other.rows.iter().cloned());
        self.texts.extend(&other.texts);
    }

    /// The key of the first of `own`, inputs at the fact's prompt of which the others are behind other texts; `None` where
    /// nothing of it is its own: zero, not finite, or in the background itself.
    pub fn key(&self, own: &[Vec<f32>]) -> Option<Key> {
        let k = own.first()?;
        let n = self.rows.len();
        let mut gram = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                let g = dot(&self.rows[i], &self.rows[j]);
                (gram[i * n + j], gram[j * n + i]) = (g, g);
            }
        }
        let with = |x: &Vec<f32>| -> Vec<f64> { self.rows.iter().map(|b| dot(b, x)).collect() };
        let products = Products {
            gram,
            with: own.iter().map(with).collect(),
            with_k: own.iter().map(|o| dot(o, k)).collect(),
        };
        let mut squares: Vec<f64> = (0..n).map(|i| products.gram[i * n + i]).collect();
        squares.sort_by(f64::total_cmp);
        let square = *products.with_k.first()?;
        if !square.is_finite() || square <= 0.0 {
            return None;
        }
        let unit = squares.get(n / 2).copied().filter(|u| *u > 0.0);
        let unit = unit.unwrap_or(square);
        let all: Vec<usize> = (0..n).collect();
        let fits = LAMBDAS.iter().filter_map(|by| {
            let fit = products.fit(&all, by * unit)?;
            let largest = products.largest(&fit, &all, &all);
            Some((by * unit, fit, largest))
        });
        let mut last = None;
        for found in fits {
            let silent = found.2 <= SILENT;
            last = Some(found);
            if silent {
                break;
            }
        }
        let (lambda, fit, _) = last?;
        let mut key = vec![0.0; k.len()];
        let by = 1.0 / own.len() as f64;
        let terms = own.iter().map(|o| (by, o));
        let terms = terms.chain(fit.a.iter().map(|a| -a).zip(&self.rows));
        for (by, row) in terms {
            for (x, b) in key.iter_mut().zip(row) {
                *x += by * f64::from(*b);
            }
        }
        let key: Vec<f32> = key.iter().map(|x| (x / fit.scale) as f32).collect();
        let says = self.rows.iter().map(|b| dot(&key, b).abs());
        let overlap = says.fold(0.0, f64::max);
        let sound = key.iter().all(|x| x.is_finite());
        sound.then(|| Key {
            held_out: self.held_out(&products, lambda).unwrap_or(overlap),
            overlap,
            key,
        })
    }

    /// The largest that keys of this `lambda` say at the background's texts that they were not made with.
    fn held_out(&self, products: &Products, lambda: f64) -> Option<f64> {
        let mut largest = 0.0f64;
        for fold in 0..FOLDS {
            let out = |i: &usize| self.texts[*i] % FOLDS == fold;
            let (left_out, rows): (Vec<usize>, Vec<usize>) = (0..self.rows.len()).partition(out);
            let fit = products.fit(&rows, lambda)?;
            largest = largest.max(products.largest(&fit, &rows, &left_out));
        }
        Some(largest)
    }
}

fn mean(of: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = of.len().max(1) as f64;
    of.sum::<f64>() / n
}

/// Products of all vectors: what every fit is made of.
struct Products {
    /// `B B'`, `[n][n]`.
    gram: Vec<f64>,
    /// `B` times each of the fact's own vectors, `[own][n]`.
    with: Vec<Vec<f64>>,
    /// `k` times each of them, itself first.
    with_k: Vec<f64>,
}

/// A key as what it is made of.
struct Fit {
    a: Vec<f64>,
    /// `k . m - (B k) . a`, which the key is divided by.
    scale: f64,
}

impl Products {
    /// The key against some of the rows.
    fn fit(&self, rows: &[usize], lambda: f64) -> Option<Fit> {
        let n = rows.len();
        let all = self.with.first()?.len();
        let mut matrix = Vec::with_capacity(n * n);
        for i in rows {
            matrix.extend(rows.iter().map(|j| self.gram[i * all + j]));
        }
        (0..n).for_each(|i| matrix[i * n + i] += lambda);
        let a = cholesky_solve(matrix, rows.iter().map(|i| self.with_mean(*i)).collect())?;
        let product = mean(self.with_k.iter().copied());
        let known = rows.iter().zip(&a).map(|(i, a)| self.with[0][*i] * a);
        let scale = product - known.sum::<f64>();
        (scale > LEFT * self.with_k[0]).then_some(Fit { a, scale })
    }

    /// A row times `m`.
    fn with_mean(&self, row: usize) -> f64 {
        mean(self.with.iter().map(|w| w[row]))
    }

    /// The largest `|key . b|` over rows `at`, of a key made against `rows`.
    fn largest(&self, fit: &Fit, rows: &[usize], at: &[usize]) -> f64 {
        let n = self.with.first().map_or(0, Vec::len);
        let says = at.iter().map(|t| {
            let products = rows.iter().map(|s| self.gram[t * n + s]);
            let known: f64 = products.zip(&fit.a).map(|(b, a)| b * a).sum();
            ((self.with_mean(*t) - known) / fit.scale).abs()
        });
        says.fold(0.0, f64::max)
    }
}

/// Solves `matrix x = b` for a symmetric positive definite matrix, `[n][n]`; `None` where it is not.
fn cholesky_solve(mut matrix: Vec<f64>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for j in 0..n {
        let (before, from_j) = matrix.split_at_mut(j * n);
        let (row_j, below) = from_j.split_at_mut(n);
        debug_assert_eq!(before.len(), j * n);
        let square = row_j[j] - row_j[..j].iter().map(|v| v * v).sum::<f64>();
        // Written so that a NaN fails.
        if !(square > 0.0 && square.is_finite()) {
            return None;
        }
        row_j[j] = square.sqrt();
        for row_i in below.chunks_exact_mut(n) {
            let sum: f64 = row_i[..j].iter().zip(&row_j[..j]).map(|(x, y)| x * y).sum();
            row_i[j] = (row_i[j] - sum) / row_j[j];
        }
    }
    for i in 0..n {
        let sum: f64 = (0..i).map(|j| matrix[i * n + j] * b[j]).sum();
        b[i] = (b[i] - sum) / matrix[i * n + i];
    }
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|j| matrix[j * n + i] * b[j]).sum();
        b[i] = (b[i] - sum) / matrix[i * n + i];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_says_one_at_its_vector_and_nothing_elsewhere() {
        let mut background = Background::default();
        for (i, row) in [
            [1.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
            [1.0, 1.0, 0.1, 0.0],
        ]
        .iter()
        .enumerate()
        {
            background.push(row, i);
        }
        let k = [2.0, 1.0, 0.0, 1.0];
        let key = background.key(&[k.to_vec()]).expect("a key");
        assert!((dot(&key.key, &k) - 1.0).abs() < 1e-5);
        assert!(key.overlap <= SILENT, "{key:?}");
        assert!(
            Background::default()
                .key(&[k.to_vec()])
                .expect("a key")
                .overlap
                == 0.0
        );
        // Behind other texts it is another vector, whose own part is heard too; at `k` itself the key still says one.
        let other = vec![1.0, 3.0, 0.5, 1.0];
        let both = background.key(&[k.to_vec(), other.clone()]).expect("a key");
        assert!((dot(&both.key, &k) - 1.0).abs() < 1e-5);
        assert!(dot(&both.key, &other) > dot(&key.key, &other), "{both:?}");
        assert!(background.key(&[vec![0.0; 4]]).is_none());
        assert!(background.key(&[vec![f32::NAN; 4]]).is_none());
        assert!(
            background
                .key(&[vec![f32::INFINITY, 0.0, 0.0, 0.0]])
                .is_none()
        );
    }

    #[test]
    fn matrices_that_are_not_positive_are_refused() {
        assert!(cholesky_solve(vec![1.0, 2.0, 2.0, 1.0], vec![1.0, 1.0]).is_none());
        assert!(cholesky_solve(vec![f64::NAN], vec![1.0]).is_none());
        assert_eq!(cholesky_solve(vec![], vec![]), Some(vec![]));
    }

    proptest! {
        #[test]
        fn what_is_solved_is_a_solution(
            n in 1usize..40,
            seed in prop::collection::vec(-1f64..1.0, 40 * 40 + 40),
            lambda in 0.01f64..10.0,
        ) {
            // A A' + lambda I is positive definite, whatever A is.
            let a = &seed[..n * n];
            let b = &seed[1600..1600 + n];
            let mut matrix = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..n {
                    matrix[i * n + j] = (0..n).map(|l| a[i * n + l] * a[j * n + l]).sum();
                }
                matrix[i * n + i] += lambda;
            }
            let x = cholesky_solve(matrix.clone(), b.to_vec()).expect("positive definite");
            for i in 0..n {
                let back: f64 = (0..n).map(|j| matrix[i * n + j] * x[j]).sum();
                prop_assert!((back - b[i]).abs() < 1e-6, "{back} {}", b[i]);
            }
        }

        #[test]
        fn keys_are_those_of_the_full_inverse(
            rows in prop::collection::vec(prop::collection::vec(-1f32..1.0, 6), 1..12),
            k in prop::collection::vec(-1f32..1.0, 6),
            lambda in 0.05f64..5.0,
        ) {
            prop_assume!(dot(&k, &k) > 0.01);
            // C^-1 k directly, in the space of the vectors.
            let mut c = vec![0.0; 36];
            for i in 0..6 {
                for j in 0..6 {
                    c[i * 6 + j] = rows.iter().map(|b| f64::from(b[i]) * f64::from(b[j])).sum();
                }
                c[i * 6 + i] += lambda;
            }
            let wide: Vec<f64> = k.iter().map(|v| f64::from(*v)).collect();
            let x = cholesky_solve(c, wide.clone()).expect("positive definite");
            let by: f64 = x.iter().zip(&wide).map(|(x, k)| x * k).sum();
            let n = rows.len();
            let gram: Vec<f64> = rows.iter().flat_map(|a| rows.iter().map(|b| dot(a, b))).collect();
            let with = rows.iter().map(|b| dot(b, &k)).collect();
            let products = Products { gram, with: vec![with], with_k: vec![dot(&k, &k)] };
            let all: Vec<usize> = (0..n).collect();
            let fit = products.fit(&all, lambda).expect("a fit");
            for i in 0..6 {
                let sum: f64 = fit.a.iter().zip(&rows).map(|(a, b)| a * f64::from(b[i])).sum();
                let key = (wide[i] - sum) / fit.scale;
                prop_assert!((key - x[i] / by).abs() < 1e-6, "{key} {}", x[i] / by);
            }
        }
    }
}
