use super::mat::MatKernel;
use super::*;
use crate::gguf::GgmlType;
use crate::quant::{dequantise_row, supported};
use half::{bf16, f16};
use proptest::prelude::*;

/// Deterministic noise (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// -1..1
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Makes the common scale of a block finite, -1..1, and its minimum too.
fn set_scales(ty: GgmlType, block: &mut [u8], mut float: impl FnMut() -> f32) {
    let halves: &[usize] = match ty {
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        GgmlType::TQ1_0 => &[52],
        GgmlType::TQ2_0 => &[64],
        GgmlType::IQ1_M | GgmlType::MXFP4 => &[],
        _ => &[0],
    };
    for &at in halves {
        block[at..at + 2].copy_from_slice(&f16::from_f32(float()).to_le_bytes());
    }
    if ty == GgmlType::IQ1_M {
        let bits = f16::from_f32(float()).to_bits();
        for i in 0..4 {
            let top = &mut block[49 + 2 * i];
            *top = *top & 15 | (bits >> (4 * i) << 4) as u8;
        }
    }
    if ty == GgmlType::MXFP4 {
        block[0] = 118 + (8.0 * float().abs()) as u8;
    }
}

/// Any bits but for the scales, which are finite.
fn weights(ty: GgmlType, n: usize, noise: &mut Noise) -> Vec<u8> {
    match ty {
        GgmlType::F32 => (0..n).flat_map(|_| noise.float().to_le_bytes()).collect(),
        GgmlType::F16 => (0..n)
            .flat_map(|_| f16::from_f32(noise.float()).to_le_bytes())
            .collect(),
        GgmlType::BF16 => (0..n)
            .flat_map(|_| bf16::from_f32(noise.float()).to_le_bytes())
            .collect(),
        _ => (0..n / ty.block_len())
            .flat_map(|_| {
                let mut block: Vec<u8> =
                    (0..ty.block_bytes()).map(|_| noise.next() as u8).collect();
                set_scales(ty, &mut block, || noise.float());
                block
            })
            .collect(),
    }
}

/// Every kernel this machine can run, and the AVX-512 ones with their instructions emulated.
fn kernels(ty: GgmlType) -> Vec<MatKernel> {
    let mut all: Vec<MatKernel> = KernelSet::available()
        .into_iter()
        .map(|set| mat_kernel(set, ty).expect("every supported type has a kernel"))
        .collect();
    #[cfg(target_arch = "x86_64")]
    if KernelSet::Avx2.is_available() {
        all.extend(simd::EMULATED.iter().filter(|k| k.ty == ty));
    }
    all
}

struct Case {
    ty: GgmlType,
    rows: usize,
    first_row: usize,
    k: usize,
    cols: usize,
    first_col: usize,
    seed: u64,
}

/// Compares every kernel with the reference expansion and sums in f64.
fn check(case: &Case) -> Result<(), TestCaseError> {
    let &Case {
        ty,
        rows,
        first_row,
        k,
        cols,
        first_col,
        seed,
    } = case;
    let mut noise = Noise(seed | 1);
    let (all_rows, all_cols) = (first_row + rows, first_col + cols);
    let row_bytes = k / ty.block_len() * ty.block_bytes();
    // One byte in front: no kernel may rely on alignment.
    let mut w = vec![0xaa];
    w.extend(weights(ty, all_rows * k, &mut noise));
    let x: Vec<f32> = (0..all_cols * k).map(|_| noise.float()).collect();
    let mut acts = QActs::new(all_cols + 1, k + 64);
    acts.set_shape(k, all_cols, all_cols);
    for col in 0..all_cols {
        acts.set_column(float_ops(KernelSet::Scalar), col, &x[col * k..][..k]);
    }
    let mut dense = vec![0.0; all_rows * k];
    dequantise_row(ty, &w[1..], &mut dense).expect("whole blocks");
    // What a kernel multiplies with depends on the type alone.
    let wants: Vec<Vec<(f64, f64)>> = (first_col..all_cols)
        .map(|col| {
            let x: Vec<f64> = match kernels(ty)[0].input {
                Input::F32 => x[col * k..][..k].iter().map(|x| f64::from(*x)).collect(),
                Input::Q8 => {
                    let d = acts.d(col).iter().flat_map(|d| [f64::from(*d); 4]);
                    d.zip(acts.qs(col))
                        .map(|(d, q)| d * f64::from(*q))
                        .collect()
                }
            };
            let rows = dense.chunks(k).skip(first_row);
            rows.map(|w| {
                let terms = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * x);
                terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
            })
            .collect()
        })
        .collect();
    let ldy = all_rows + 3;
    for kernel in kernels(ty) {
        let mut y = vec![f32::MIN; all_cols * ldy];
        let call = MatCall {
            w: w[1..].as_ptr(),
            row_bytes,
            k,
            rows: first_row..all_rows,
            acts: match kernel.input {
                Input::Q8 => Acts::Q8(&acts),
                Input::F32 => Acts::F32 { x: &x, stride: k },
            },
            cols: first_col..all_cols,
            y: y.as_mut_ptr(),
            ldy,
        };
        // SAFETY: only kernels of sets that are available; weights and results cover the call.
        unsafe { kernel.run(&call) };
        for col in 0..all_cols {
            for row in 0..ldy {
                let got = y[col * ldy + row];
                if col < first_col || !(first_row..all_rows).contains(&row) {
                    prop_assert_eq!(got, f32::MIN, "{} wrote outside its range", kernel.name);
                    continue;
                }
                let (want, size) = wants[col - first_col][row - first_row];
                let error = (f64::from(got) - want).abs();
                prop_assert!(
                    error <= 1e-5 * size + 1e-6,
                    "{}: row {row} of {rows}, column {col} of {cols}, k {k}: {got}, not {want} (terms {size})",
                    kernel.name
                );
            }
        }
    }
    Ok(())
}

#[test]
fn every_supported_type_has_a_kernel_in_every_set() {
    for &ty in supported() {
        for set in KernelSet::ALL {
            let exists = match set {
                KernelSet::Scalar => true,
                KernelSet::Avx2 | KernelSet::Avx512 => cfg!(target_arch = "x86_64"),
                KernelSet::Neon | KernelSet::Dotprod => cfg!(target_arch = "aarch64"),
            };
            if !exists {
                assert!(mat_kernel(set, ty).is_none());
            } else if mat_kernel(set, ty).is_some_and(|k| k.set != KernelSet::Scalar)
                || set == KernelSet::Scalar
            {
                let kernel = mat_kernel(set, ty).expect("kernel");
                assert_eq!(kernel.name, format!("{ty}/{set}").to_lowercase());
                assert_eq!((kernel.ty, kernel.set), (ty, set));
            }
        }
    }
    assert!(mat_kernel(KernelSet::Scalar, GgmlType::Q8_1).is_none());
}

#[test]
fn every_tail_of_rows_and_columns() {
    for &ty in supported() {
        let names: Vec<_> = kernels(ty).iter().map(|k| k.name).collect();
        println!("kernels: {}", names.join(" "));
        for n in 1..=9 {
            let k = ty.block_len().max(32) * if n % 2 == 0 { 1 } else { 3 };
            // Scales of four elements, of sixteen, and of sixteen for the first or last of many columns.
            for (rows, cols, first_col) in [
                (n, 1, n % 2),
                (n, 5, n % 2),
                (3, n, n % 2),
                (33, n, n % 2),
                (n, 9, 0),
                (3, n, 8),
                (33, n, 8),
            ] {
                check(&Case {
                    ty,
                    rows,
                    first_row: n % 3,
                    k,
                    cols,
                    first_col,
                    seed: 77 + n as u64,
                })
                .expect("agrees");
            }
        }
    }
}

#[test]
fn extreme_integers_do_not_saturate() {
    // All bits set: the largest integers of every unsigned format, -1 or 127 of the signed ones.
    for &ty in supported() {
        if matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16) {
            continue;
        }
        for byte in [0xff, 0x80, 0x7f, 0x81] {
            let k = 512;
            let mut block = vec![byte; ty.block_bytes()];
            set_scales(ty, &mut block, || 0.5);
            let w: Vec<u8> = block
                .iter()
                .copied()
                .cycle()
                .take(9 * k / ty.block_len() * ty.block_bytes())
                .collect();
            let xs = [1.0, -1.0, 1.0, -1.0, 0.25, 1.0, -1.0, 1.0, -1.0];
            let mut acts = QActs::new(xs.len(), k);
            let mut dense = vec![0.0; k];
            dequantise_row(ty, &w[..w.len() / 9], &mut dense).expect("whole blocks");
            let sum: f32 = dense.iter().sum();
            for kernel in kernels(ty) {
                for cols in [1, 5, 9] {
                    acts.set_shape(k, cols, cols);
                    for (col, x) in xs.iter().enumerate().take(cols) {
                        acts.set_column(float_ops(KernelSet::Scalar), col, &vec![*x; k]);
                    }
                    let mut y = vec![0.0; 9 * cols];
                    let call = MatCall {
                        w: w.as_ptr(),
                        row_bytes: w.len() / 9,
                        k,
                        rows: 0..9,
                        acts: Acts::Q8(&acts),
                        cols: 0..cols,
                        y: y.as_mut_ptr(),
                        ldy: 9,
                    };
                    // SAFETY: as in `check`.
                    unsafe { kernel.run(&call) };
                    for (i, y) in y.iter().enumerate() {
                        let want = sum * xs[i / 9];
                        let bound = dense.iter().map(|v| v.abs()).sum::<f32>() * 1e-5;
                        assert!(
                            (y - want).abs() <= bound,
                            "{} {byte:x}: {y}, not {want}",
                            kernel.name
                        );
                    }
                }
            }
        }
    }
}

proptest! {
    // `PROPTEST_CASES` may ask for fewer: an emulated machine is slow.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.min(48)))]

    #[test]
    fn kernels_agree_with_the_reference(
        which in 0..supported().len(),
        rows in 1usize..40,
        first_row in 0usize..3,
        blocks in 1usize..=64,
        cols in 1usize..14,
        first_col in 0usize..2,
        seed in any::<u64>(),
    ) {
        let ty = supported()[which];
        let step = ty.block_len().max(32);
        let k = (blocks * 32).div_ceil(step) * step;
        check(&Case { ty, rows, first_row, k, cols, first_col, seed })?;
    }

    #[test]
    fn unquantised_rows_of_any_length(k in 1usize..100, cols in 1usize..7, rows in 1usize..6, seed in any::<u64>()) {
        for ty in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
            let mut noise = Noise(seed | 1);
            let w = weights(ty, rows * k, &mut noise);
            let x: Vec<f32> = (0..cols * k).map(|_| noise.float()).collect();
            let mut dense = vec![0.0; rows * k];
            dequantise_row(ty, &w, &mut dense).expect("whole");
            for kernel in kernels(ty) {
                let mut y = vec![0.0; rows * cols];
                let call = MatCall {
                    w: w.as_ptr(), row_bytes: w.len() / rows, k, rows: 0..rows,
                    acts: Acts::F32 { x: &x, stride: k }, cols: 0..cols, y: y.as_mut_ptr(), ldy: rows,
                };
                // SAFETY: as in `check`.
                unsafe { kernel.run(&call) };
                for (i, y) in y.iter().enumerate() {
                    let (w, x) = (&dense[i % rows * k..][..k], &x[i / rows * k..][..k]);
                    let want: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    prop_assert!((f64::from(*y) - want).abs() < 1e-4, "{}: {y}, not {want}", kernel.name);
                }
            }
        }
    }
}

#[test]
fn kernel_set_names_round_trip_and_errors_list_what_can_run() {
    for set in KernelSet::available() {
        assert_eq!(set.name().parse(), Ok(set));
    }
    let err = "sse9"
        .parse::<KernelSet>()
        .expect_err("no such set")
        .to_string();
    assert!(err.contains("sse9") && err.contains("scalar"), "{err}");
    for set in KernelSet::ALL.into_iter().filter(|s| !s.is_available()) {
        let err = set.name().parse::<KernelSet>().expect_err("unavailable");
        assert_eq!(err, KernelSetError::Unavailable { set });
    }
    assert!(KernelSet::best().is_available());
}

#[test]
fn threads_fill_disjoint_pieces_of_activations() {
    fill_by_threads(4);
    fill_by_threads(9);
}

fn fill_by_threads(cols: usize) {
    let k = 96;
    let x: Vec<f32> = (0..k * cols).map(|i| (i as f32 * 0.37).sin()).collect();
    let ops = float_ops(KernelSet::best());
    let mut whole = QActs::new(cols, k);
    for col in 0..cols {
        whole.set_column(ops, col, &x[col * k..][..k]);
    }
    let pieces = QActs::new(cols, k);
    let writer = &pieces;
    std::thread::scope(|scope| {
        for col in 0..cols {
            for start in (0..k).step_by(32) {
                let x = &x[col * k + start..][..32];
                // SAFETY: each thread has its own 32 elements.
                scope.spawn(move || unsafe { writer.quantise(ops, col, start, x) });
            }
        }
    });
    for col in 0..cols {
        assert_eq!(whole.qs(col), pieces.qs(col));
        assert_eq!(whole.d(col), pieces.d(col));
        assert_eq!(whole.s32(col), pieces.s32(col));
        assert_eq!(whole.s16(col), pieces.s16(col));
        assert_eq!(whole.qs(col).as_ptr() as usize % 64, 0);
    }
}

#[test]
fn few_columns_have_finer_scales_and_smaller_errors() {
    let k = 4096;
    let mut noise = Noise(5);
    let x: Vec<f32> = (0..k).map(|_| noise.float().powi(5)).collect();
    for set in KernelSet::available() {
        let mut acts = QActs::new(8, k);
        let mut error = |cols| {
            acts.set_shape(k, cols, cols);
            assert_eq!(acts.is_fine(), cols < 8);
            acts.set_column(float_ops(set), cols - 1, &x);
            let (qs, d) = (acts.qs(cols - 1), acts.d(cols - 1));
            let errors = (0..k).map(|i| f64::from(x[i]) - f64::from(d[i / 4]) * f64::from(qs[i]));
            errors.map(|e| e * e).sum::<f64>()
        };
        let (fine, coarse) = (error(7), error(8));
        assert_eq!(fine, error(1));
        assert!(fine < 0.5 * coarse, "{set}: {fine} {coarse}");
        acts.set_shape(k, 8, 8);
        acts.set_column(float_ops(set), 7, &x);
        let lanes = acts.d(7).as_chunks::<4>().0;
        assert!(lanes.iter().all(|d| *d == [d[0]; 4]));
    }
}
