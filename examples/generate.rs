//! cbtop as a library: load a GGUF file, run its engine, decode greedily.
//!
//! ```text
//! cargo run --release --example generate -- [FILE] [PROMPT]
//! ```

use cbtop::engine::sampler::argmax;
use cbtop::engine::{Engine, Unobserved};
use cbtop::session::{Loaded, Source};
use cbtop::tokenizer::StreamDecoder;
use std::error::Error;
use std::io::Write;

/// Tokens to generate at most.
const TOKENS: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let source = args.next().map_or(Source::Demo, |f| Source::File(f.into()));
    let prompt = args
        .next()
        .unwrap_or_else(|| "The capital of France is".into());

    let loaded = Loaded::open(source)?;
    let ids = loaded.tokenizer.encode(&prompt, true, true)?;

    // Every knob has a default; `Unobserved` leaves the timing of bricks out.
    let mut engine = Engine::new(loaded.model.clone(), loaded.config(), Unobserved)?;
    engine.prefill(&ids)?;

    let mut stream = StreamDecoder::new(loaded.tokenizer.clone());
    let mut out = std::io::stdout().lock();
    write!(out, "{prompt}")?;
    for _ in 0..TOKENS {
        let next = argmax(engine.logits(0));
        if loaded.tokenizer.is_end_of_generation(next) || engine.room() == 0 {
            break;
        }
        write!(out, "{}", stream.push(next))?;
        out.flush()?;
        engine.decode(next)?;
    }
    writeln!(out, "{}", stream.flush())?;
    Ok(())
}
