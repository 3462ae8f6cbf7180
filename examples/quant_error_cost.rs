//! What looking at quantisation error costs while tokens run: the same tokens with it and without, in turns.
//!
//!     cargo run --release --example quant_error_cost -- MODEL [TOKENS] [REFERENCE]

use cbtop::engine::{Engine, Logits, StepKind, Unobserved};
use cbtop::session::{Loaded, Source};
use cbtop::tracer::quantisation::{Baseline, LiveErrors, ROWS};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let source = args.next().map_or(Source::Demo, |p| Source::File(p.into()));
    let tokens: usize = args.next().map_or(Ok(64), |n| n.parse())?;
    let loaded = Loaded::open(source)?;
    let baseline = match args.next() {
        None => None,
        Some(path) => Some(Baseline {
            model: Loaded::open(Source::File(path.clone().into()))?.model,
            name: path,
        }),
    };
    let mut engine = Engine::new(Arc::clone(&loaded.model), loaded.config(), Unobserved)?;
    let mut live = LiveErrors::new(Arc::clone(&loaded.model), baseline)?;
    engine.prefill(&[1, 2, 3, 4, 5, 6, 7, 8])?;
    let (mut bare, mut looked) = (Vec::new(), Vec::new());
    for i in 0..2 * tokens {
        let at = engine.past();
        let began = Instant::now();
        engine.begin(&[9], Logits::Last, StepKind::Decode)?;
        let times = if i % 2 == 0 {
            engine.finish()?;
            &mut bare
        } else {
            live.step(&mut engine)?;
            &mut looked
        };
        times.push(began.elapsed().as_secs_f64() * 1e3);
        engine.end_step();
        engine.truncate(at);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    println!(
        "{}: mean {:.3} ms a token, {:.3} with errors of {ROWS} rows of every matrix of a layer: {:+.1}%",
        loaded.name(),
        mean(&bare),
        mean(&looked),
        100.0 * (mean(&looked) / mean(&bare) - 1.0)
    );
    let (b, l) = (median(&mut bare), median(&mut looked));
    println!(
        "median {b:.3} ms and {l:.3} ms: {:+.1}%",
        100.0 * (l / b - 1.0)
    );
    println!("{} bricks seen", live.view().live.len());
    Ok(())
}
