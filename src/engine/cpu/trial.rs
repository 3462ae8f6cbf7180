//! A kernel set that computes wrongly on this machine (an emulator, a hypervisor that promises too much) is not used
//! unless the user names it: the best set that agrees with the portable one is.

use super::acts::FINE_BELOW;
use super::{Acts, KernelSet, MatCall, QActs, float_ops, mat_kernel};
use crate::gguf::GgmlType;
use half::f16;
use std::sync::OnceLock;

/// Elements of a row in the trial: whole blocks of every type tried, and no multiple of the widest unrolling.
const K: usize = 96;
const ROWS: usize = 3;

/// The best set that works, and what was found wrong with better ones.
struct Found {
    best: KernelSet,
    rejected: Vec<KernelSet>,
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| first_working(&KernelSet::available(), agrees))
}

/// The fastest kernel set this machine runs rightly.
pub(super) fn best() -> KernelSet {
    found().best
}

/// One line when a better set was there and wrong.
pub fn rejected() -> Option<String> {
    let found = found();
    let names: Vec<_> = found.rejected.iter().map(|s| s.name()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "kernels {} compute wrongly on this machine: {} run instead; --backend NAME insists",
            names.join(", "),
            found.best
        )
    })
}

/// Tries `sets`, slowest first, from the fastest down; the portable set is what remains.
fn first_working(sets: &[KernelSet], works: impl Fn(KernelSet) -> bool) -> Found {
    let mut rejected = Vec::new();
    for &set in sets.iter().rev() {
        if set == KernelSet::Scalar || works(set) {
            return Found {
                best: set,
                rejected,
            };
        }
        rejected.push(set);
    }
    Found {
        best: KernelSet::Scalar,
        rejected,
    }
}

/// Whether a set gives the portable set's results, for few columns and for many, on integers and on floats.
fn agrees(set: KernelSet) -> bool {
    [GgmlType::Q8_0, GgmlType::F16].into_iter().all(|ty| {
        [1, FINE_BELOW + 1].into_iter().all(|cols| {
            let (ours, theirs) = (product(set, ty, cols), product(KernelSet::Scalar, ty, cols));
            ours.is_some_and(|ours| {
                theirs.is_some_and(|theirs| {
                    ours.iter()
                        .zip(&theirs)
                        .all(|(a, b)| (a - b).abs() <= 1e-2 + 1e-2 * b.abs())
                })
            })
        })
    })
}

fn weights(ty: GgmlType) -> Vec<u8> {
    let value = |i: usize| ((i * 37 + 11) % 251) as u8;
    let mut w = Vec::new();
    for row in 0..ROWS {
        for at in (0..K).step_by(32) {
            if ty == GgmlType::Q8_0 {
                w.extend(f16::from_f32(0.01).to_le_bytes());
                w.extend((0..32).map(|i| value(row * K + at + i)));
            } else {
                let float = |i| f32::from(value(row * K + at + i)) / 128.0 - 1.0;
                w.extend((0..32).flat_map(|i| f16::from_f32(float(i)).to_le_bytes()));
            }
        }
    }
    w
}

fn product(set: KernelSet, ty: GgmlType, cols: usize) -> Option<Vec<f32>> {
    let kernel = mat_kernel(set, ty)?;
    let w = weights(ty);
    let x: Vec<f32> = (0..K * cols)
        .map(|i| ((i * 29 % 101) as f32 - 50.0) / 50.0)
        .collect();
    let mut q8 = QActs::new(cols, K);
    for (c, column) in x.chunks_exact(K).enumerate() {
        q8.set_column(float_ops(set), c, column);
    }
    let mut y = vec![f32::NAN; ROWS * cols];
    let call = MatCall {
        w: w.as_ptr(),
        row_bytes: w.len() / ROWS,
        k: K,
        rows: 0..ROWS,
        acts: match kernel.input {
            super::Input::Q8 => Acts::Q8(&q8),
            super::Input::F32 => Acts::F32 { x: &x, stride: K },
        },
        cols: 0..cols,
        y: y.as_mut_ptr(),
        ldy: ROWS,
    };
    // SAFETY: only sets whose instructions the CPU has are tried; weights and results are as long as the call says.
    unsafe { kernel.run(&call) };
    Some(y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_set_agrees_with_the_portable_one() {
        for set in KernelSet::available() {
            assert!(agrees(set), "{set}");
        }
        assert_eq!(rejected(), None);
    }

    #[test]
    fn f175_a_set_that_fails_is_replaced_by_the_next() {
        use KernelSet::{Avx2, Avx512, Scalar};
        let all = [Scalar, Avx2, Avx512];
        for (works, best, rejected) in [
            (vec![Avx2, Avx512], Avx512, vec![]),
            (vec![Avx2], Avx2, vec![Avx512]),
            (vec![], Scalar, vec![Avx512, Avx2]),
        ] {
            let found = first_working(&all, |set| works.contains(&set));
            assert_eq!((found.best, found.rejected), (best, rejected));
        }
        assert_eq!(first_working(&[], |_| false).best, Scalar);
    }
}
