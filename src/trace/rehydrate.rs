//! A saved trace back into an engine: its kv cache, and the logits of its last position.

use super::TraceError;
use super::saved::Saved;
use super::stream::Chains;
use crate::engine::capture::Part;
use crate::engine::{Engine, EngineError, Observer};
use std::path::Path;

/// What was put into an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehydrated {
    /// Positions, from 0.
    pub positions: usize,
    /// Their tokens; `None` where the file has chains without figures.
    pub ids: Option<Vec<u32>>,
    /// Tokens of the steps that the text was taken to have been run in.
    pub chunk: usize,
    /// What the reader should know: what of the file's model or run is not known.
    pub notes: Vec<String>,
}

/// Fills sequence 0 of an engine, from position 0 on, with the text of a file that `TRACE ... POSITIONS ALL SAVE` has
/// written; the engine is then where it would be had it run the text itself, with the logits of the last position in row 0.
///
/// A file holds f32 vectors of every layer and position, so nothing of the cache is lost: it is bit for bit that of the run
/// where kernels and types are the same and `chunk` is the chunk that the run had (the file does not say; with another one
/// rounding differs where weights are quantised). Interventions of the run are in its stream and therefore in
/// the cache; the engine's own continue to hold for what follows. What the engine's sampler had drawn is not in a file.
///
/// # Errors
/// A file that is no whole trace, of another model, with values that are no numbers, longer than the context; a chunk larger
/// than the engine's. The engine's sequence is then empty.
pub fn rehydrate<O: Observer>(
    engine: &mut Engine<O>,
    path: &Path,
    chunk: usize,
) -> Result<Rehydrated, TraceError> {
    let saved = Saved::open(path)?;
    let refuse = |what: String| {
        let path = path.display();
        Err(TraceError::Statement(format!("{path}: {what}")))
    };
    let hp = &engine.model().hparams;
    let (layers, width) = (hp.n_layers, hp.n_embd);
    if (saved.n_layers(), saved.hidden_size()) != (layers, width) {
        return refuse(format!(
            "the trace is of a model of {} layers and width {}, this one has {layers} and {width}; open the model it was \
             made with",
            saved.n_layers(),
            saved.hidden_size(),
        ));
    }
    let positions = saved.positions().len();
    match saved.missing_tokens() {
        0 if positions == 0 => {
            return refuse("the trace holds no position; save it again".into());
        }
        0 => {}
        missing => {
            return refuse(format!(
                "{missing} of {} positions are not in the file: it was cut; save the trace again",
                positions + missing as usize
            ));
        }
    }
    let mut notes = Vec::new();
    let ids = saved.ids();
    // An edit of the embedding is in the stream, which then does not begin with what the tokens say.
    let checked = ids.as_deref().filter(|_| !saved.is_edited());
    if checked.is_none() {
        let why = match ids {
            Some(_) => "the run was edited",
            None => "the file holds chains without tokens",
        };
        notes.push(format!(
            "{why}: whether it is of this model was checked by its size alone"
        ));
    }
    let chunk = chunk.clamp(1, positions);
    let mut steps = vec![chunk; positions / chunk];
    steps.extend(Some(positions % chunk).filter(|rest| *rest > 0));
    engine.truncate(0);
    let residual = |layer, position| {
        let x = saved.vector(position, layer, Part::Residual);
        Some(x).filter(|x| !x.is_empty())
    };
    match engine.rehydrate(0, &steps, checked, &residual) {
        Err(EngineError::Stream(what)) => return refuse(what),
        done => done?,
    };
    Ok(Rehydrated {
        positions,
        ids,
        chunk,
        notes,
    })
}
