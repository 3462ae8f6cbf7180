//! Bytes a second of every weight kernel at the shapes of small models, beside the rate at which
//! one core reads memory: `cargo bench --bench kernels [-- FILTER]`.

use cbtop::engine::cpu::{
    Acts, Input, KernelSet, MatCall, MatKernel, QActs, float_ops, mat_kernel,
};
use cbtop::gguf::GgmlType;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

/// Larger than any last-level cache this is likely to meet.
const MEMORY: usize = 256 << 20;

/// Weight type, row length, rows: SmolLM2-135M in Q4_1, Gemma 3 270M in Q4_K_M.
const SHAPES: &[(GgmlType, usize, usize)] = &[
    (GgmlType::Q4_1, 576, 1536),
    (GgmlType::Q4_1, 1536, 576),
    (GgmlType::Q4_1, 576, 49152),
    (GgmlType::Q4_K, 2048, 640),
    (GgmlType::Q4_K, 1024, 65536),
    (GgmlType::Q5_0, 640, 2048),
    (GgmlType::Q5_0, 640, 65536),
    (GgmlType::Q6_K, 2048, 640),
    (GgmlType::Q6_K, 1024, 65536),
    (GgmlType::Q8_0, 640, 262_144),
    (GgmlType::Q8_0, 640, 2048),
    (GgmlType::Q4_0, 640, 65536),
    (GgmlType::Q5_1, 640, 65536),
    (GgmlType::Q2_K, 1024, 65536),
    (GgmlType::Q3_K, 1024, 65536),
    (GgmlType::Q5_K, 1024, 65536),
    (GgmlType::IQ4_NL, 640, 65536),
    (GgmlType::IQ4_XS, 1024, 65536),
    (GgmlType::IQ1_S, 1024, 16384),
    (GgmlType::IQ1_M, 1024, 16384),
    (GgmlType::IQ2_XXS, 1024, 16384),
    (GgmlType::IQ2_XS, 1024, 16384),
    (GgmlType::IQ2_S, 1024, 16384),
    (GgmlType::IQ3_XXS, 1024, 16384),
    (GgmlType::IQ3_S, 1024, 16384),
    (GgmlType::TQ1_0, 1024, 16384),
    (GgmlType::TQ2_0, 1024, 16384),
    (GgmlType::MXFP4, 640, 16384),
    (GgmlType::F16, 640, 65536),
    (GgmlType::BF16, 640, 65536),
    (GgmlType::F32, 640, 65536),
];

/// Weights whose blocks all have small finite scales: every byte is 0x11, but 0x77 where the scale is an
/// exponent and 0x11 would make products subnormal.
fn weights(ty: GgmlType, k: usize, rows: usize) -> Vec<u8> {
    let byte = if ty == GgmlType::MXFP4 { 0x77 } else { 0x11 };
    vec![byte; k / ty.block_len() * ty.block_bytes() * rows]
}

fn multiply(kernel: &MatKernel, w: &[u8], k: usize, rows: usize, acts: Acts<'_>, y: &mut [f32]) {
    let call = MatCall {
        w: w.as_ptr(),
        row_bytes: w.len() / rows,
        k,
        rows: 0..rows,
        acts,
        cols: 0..y.len() / rows,
        y: y.as_mut_ptr(),
        ldy: rows,
    };
    // SAFETY: the caller asks for sets that are available; `w` and `y` cover the call.
    unsafe { kernel.run(&call) }
}

fn product(c: &mut Criterion, group: &str, cols: usize) {
    for &(ty, k, rows) in SHAPES {
        let rows = if cols > 1 { rows.min(2048) } else { rows };
        let w = weights(ty, k, rows);
        let x: Vec<f32> = (0..k * cols).map(|i| (i as f32 * 0.1).sin()).collect();
        for set in KernelSet::available() {
            let Some(kernel) = mat_kernel(set, ty) else {
                continue;
            };
            let mut acts = QActs::new(cols, k);
            if kernel.input == Input::Q8 {
                for col in 0..cols {
                    acts.set_column(float_ops(set), col, &x[col * k..][..k]);
                }
            }
            let acts = match kernel.input {
                Input::Q8 => Acts::Q8(&acts),
                Input::F32 => Acts::F32 { x: &x, stride: k },
            };
            let mut y = vec![0.0; rows * cols];
            let mut group = c.benchmark_group(group);
            group.throughput(if cols == 1 {
                Throughput::Bytes(w.len() as u64)
            } else {
                Throughput::Elements((rows * k * cols) as u64)
            });
            group.bench_function(format!("{}/{rows}x{k}", kernel.name), |b| {
                b.iter(|| multiply(&kernel, &w, k, rows, acts, black_box(&mut y)));
            });
        }
    }
}

fn read(c: &mut Criterion) {
    let data = vec![1u64; MEMORY / 8];
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(MEMORY as u64));
    group.bench_function("sum of 256 MiB", |b| {
        b.iter(|| {
            let chunks = black_box(&data).as_chunks::<32>().0;
            let sums = chunks.iter().fold([0u64; 32], |mut sums, chunk| {
                for (sum, v) in sums.iter_mut().zip(chunk) {
                    *sum ^= v;
                }
                sums
            });
            sums.iter().fold(0, |a, b| a ^ b)
        });
    });
}

fn decode(c: &mut Criterion) {
    product(c, "decode", 1);
}

fn prefill(c: &mut Criterion) {
    product(c, "prefill", 64);
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = read, decode, prefill
}
criterion_main!(kernels);
