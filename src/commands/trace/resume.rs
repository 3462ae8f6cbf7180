//! `cbtop trace --resume FILE`: a saved trace back into the kv cache, and on from there.

use crate::cli::TraceArgs;
use crate::commands::{printable, setup};
use cbtop::engine::sampler::argmax;
use cbtop::engine::{Engine, Unobserved};
use cbtop::tokenizer::StreamDecoder;
use cbtop::trace::rehydrate::rehydrate;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Rebuilds the cache of the trace in `path` and continues its text with the most probable tokens.
pub fn run(args: &TraceArgs, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let (config, _) = setup::config(&args.engine, &loaded)?;
    let chunk = config.chunk;
    let mut engine = Engine::new(Arc::clone(&loaded.model), config, Unobserved)?;
    engine.set_edits(setup::facts(&args.facts, &loaded)?);
    let done = rehydrate(&mut engine, path, chunk)?;
    for note in &done.notes {
        eprintln!("cbtop: {}", printable(note));
    }
    eprintln!(
        "cbtop: {} positions are in the cache again, without attention or feed-forward blocks having run",
        engine.cached()
    );
    if engine.cached() < done.positions {
        eprintln!(
            "cbtop: the trace has {}; those before have been evicted, but the run that was traced had seen them",
            done.positions
        );
    }
    let mut stream = StreamDecoder::new(Arc::clone(&loaded.tokenizer));
    for id in done.ids.iter().flatten() {
        write!(out, "{}", stream.push(*id))?;
    }
    for _ in 0..args.tokens {
        let Some(id) = engine.last_logits().map(argmax) else {
            break;
        };
        if loaded.tokenizer.is_end_of_generation(id) || engine.room() == 0 {
            break;
        }
        write!(out, "{}", stream.push(id))?;
        out.flush()?;
        engine.decode(id)?;
    }
    writeln!(out, "{}", stream.flush())?;
    Ok(())
}
