//! What the tuner costs: loading its model (F065), a prediction (F010, F289), the columns alone.

use cbtop::tuner::features::TunerFeatures;
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::store::dataset;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::Path;

fn tuner(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/runs");
    let runs = dataset::read(&folder).expect("the committed runs");
    let model = BrickTuner::pretrained();
    let mut next = runs.iter().cycle();
    c.bench_function("tuner/load", |b| {
        b.iter(|| BrickTuner::from_bytes(black_box(BrickTuner::embedded())));
    });
    c.bench_function("tuner/features", |b| {
        b.iter(|| next.next().map(|r| TunerFeatures::of(&r.trial, None)));
    });
    let mut next = runs.iter().cycle();
    c.bench_function("tuner/predict", |b| {
        b.iter(|| next.next().map(|r| model.predict(&r.trial, None)));
    });
}

criterion_group!(benches, tuner);
criterion_main!(benches);
