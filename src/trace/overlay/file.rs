//! The overlay's file: safetensors, `fact.N.key` and `fact.N.value` beside a JSON text under `cbtop.overlay`. Layout byte by
//! byte: `docs/src/overlay.md`.

use super::{Fact, Kind, MAX_EDITS, MAX_FACTS, Overlay, OverlayError, Provenance, Reached};
use crate::engine::edit::{Edits, RankOne};
use crate::model::Model;
use crate::trace::figures::TokenText;
use crate::trace::store::{Problem, StoreError, Target, open_file};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// The key of the text in the file's metadata.
const KEY: &str = "cbtop.overlay";
/// The version written; others are refused.
const VERSION: u32 = 1;
/// Bytes of a file at most.
const MAX_FILE: u64 = 1 << 30;
/// Bytes of its header at most: texts of the facts and a line for every tensor.
const MAX_HEADER: u64 = 64 << 20;
/// Bytes of a prompt or an answer at most.
const MAX_TEXT: usize = 1 << 20;

/// What is in the metadata.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    version: u32,
    model: Provenance,
    facts: Vec<MetaFact>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaFact {
    kind: Kind,
    prompt: String,
    answer: String,
    pieces: Vec<TokenText>,
    layer: u32,
    before: Reached,
    after: Reached,
    size: f64,
}

/// Read on its own, so that a later version is named and not taken for damage.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Overlay {
    /// Reads an overlay of `model`, which is called `name`.
    ///
    /// # Errors
    /// A file that cannot be read, is no overlay, is damaged, or is another model's.
    pub fn open(path: &Path, name: &str, model: &Model) -> Result<Self, OverlayError> {
        let file = open_file(path, false)?;
        let reading = |source| {
            let doing = "reading the overlay";
            StoreError::new(path, Problem::Io { doing, source })
        };
        let len = file.metadata().map_err(reading)?.len();
        let damaged = |what: String| OverlayError::File {
            path: path.to_owned(),
            what,
        };
        if len > MAX_FILE {
            return Err(damaged(format!(
                "{len} bytes are more than the {MAX_FILE} of an overlay"
            )));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE)
            .read_to_end(&mut bytes)
            .map_err(reading)?;
        let (overlay, shapes) = parse(&bytes).map_err(damaged)?;
        overlay.check_model(name, model)?;
        overlay.check_shapes(model, &shapes).map_err(damaged)?;
        Ok(overlay)
    }

    /// Opens an overlay, or begins one where there is no file yet.
    ///
    /// # Errors
    /// As [`Self::open`], but for a file that is not there.
    pub fn open_or_new(path: &Path, name: &str, model: &Model) -> Result<Self, OverlayError> {
        match Self::open(path, name, model) {
            Err(OverlayError::Store(StoreError {
                problem: Problem::NotFound,
                ..
            })) => Ok(Self::new(name, model)),
            other => other,
        }
    }

    /// Writes the overlay: whole, or not at all, what was there before staying until it is.
    ///
    /// # Errors
    /// A file that cannot be written, or that another writer has.
    pub fn save(&self, path: &Path) -> Result<(), OverlayError> {
        let bytes = self
            .to_bytes()
            .map_err(|what| OverlayError::Full { what })?;
        let target = Target::create(path)?;
        target.write_at(&bytes, 0)?;
        Ok(target.finish()?)
    }

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let meta = Meta {
            version: VERSION,
            model: self.provenance.clone(),
            facts: self.facts.iter().map(MetaFact::of).collect(),
        };
        let text = serde_json::to_string(&meta).map_err(|e| e.to_string())?;
        let mut tensors: Vec<(String, usize, Vec<u8>)> = Vec::new();
        for (i, fact) in self.facts.iter().enumerate() {
            let join = |of: fn(&RankOne) -> &[f32]| -> Vec<u8> {
                let values = fact.edits.iter().flat_map(of);
                values.flat_map(|v| v.to_le_bytes()).collect()
            };
            let n = fact.edits.len();
            tensors.push((format!("fact.{i}.key"), n, join(|e| &e.key)));
            tensors.push((format!("fact.{i}.value"), n, join(|e| &e.value)));
        }
        let size: usize = tensors.iter().map(|t| t.2.len()).sum();
        // What is written must be readable.
        if size as u64 > MAX_FILE - MAX_HEADER || text.len() as u64 > MAX_HEADER / 2 {
            return Err(format!("the overlay's {size} bytes are too many"));
        }
        let mut views = Vec::with_capacity(tensors.len());
        for (name, n, data) in &tensors {
            let width = data.len() / size_of::<f32>() / (*n).max(1);
            let view = TensorView::new(Dtype::F32, vec![*n, width], data);
            views.push((name.as_str(), view.map_err(|e| e.to_string())?));
        }
        let metadata = HashMap::from([(KEY.to_owned(), text)]);
        serialize(views, Some(metadata)).map_err(|e| e.to_string())
    }

    /// Whether the model has the layers and lengths.
    fn check_shapes(&self, model: &Model, shapes: &[Shape]) -> Result<(), String> {
        for (i, (fact, shape)) in self.facts.iter().zip(shapes).enumerate() {
            let layer = fact.layer as usize;
            let n_layers = model.hparams.n_layers;
            if !(1..=n_layers).contains(&layer) {
                return Err(format!("fact {i} is of layer {layer} of {n_layers}"));
            }
            let wanted = (Edits::key_len(model, layer), model.hparams.n_embd);
            if (shape.key, shape.value) != wanted {
                return Err(format!(
                    "key and value of fact {i} have {} and {} elements, layer {layer} wants {} and {}",
                    shape.key, shape.value, wanted.0, wanted.1
                ));
            }
            let n_vocab = model.n_vocab;
            if let Some(t) = fact.pieces.iter().find(|t| t.id as usize >= n_vocab) {
                return Err(format!("fact {i} has token {} of {n_vocab}", t.id));
            }
        }
        Ok(())
    }
}

impl MetaFact {
    fn of(fact: &Fact) -> Self {
        Self {
            kind: fact.kind,
            prompt: fact.prompt.clone(),
            answer: fact.answer.clone(),
            pieces: fact.pieces.clone(),
            layer: fact.layer,
            before: fact.before,
            after: fact.after,
            size: fact.size,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let figures = [self.before.prob, self.after.prob];
        if self.prompt.len().max(self.answer.len()) > MAX_TEXT {
            Err("a text longer than any prompt")
        } else if !(1..=MAX_EDITS).contains(&self.pieces.len()) {
            Err("an answer of no tokens, or of too many")
        } else if !figures.iter().all(|p| (0.0..=1.0).contains(p)) {
            Err("a probability that is none")
        } else if !(self.size >= 0.0 && self.size.is_finite()) {
            Err("a size that is none")
        } else {
            Ok(())
        }
    }
}

/// Lengths of a fact's vectors.
struct Shape {
    key: usize,
    value: usize,
}

/// Reads a file's bytes without a model; all but what only a model can say is checked.
fn parse(bytes: &[u8]) -> Result<(Overlay, Vec<Shape>), String> {
    // Before the header is parsed, which takes several times its length.
    let header = bytes.first_chunk().map(|n| u64::from_le_bytes(*n));
    match header {
        None => return Err("it is too short for an overlay".into()),
        Some(n) if n > MAX_HEADER => return Err(format!("its header would have {n} bytes")),
        Some(_) => {}
    }
    let wrong = |e: safetensors::SafeTensorError| format!("it is no safetensors file ({e})");
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(wrong)?;
    let text = metadata.metadata().as_ref().and_then(|m| m.get(KEY));
    let text = text.ok_or("it holds no overlay of cbtop")?;
    let json = |e: serde_json::Error| format!("its description cannot be read ({e})");
    let version: Version = serde_json::from_str(text).map_err(json)?;
    if version.version != VERSION {
        return Err(format!(
            "it is of version {}, this cbtop reads version {VERSION}",
            version.version
        ));
    }
    let meta: Meta = serde_json::from_str(text).map_err(json)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(wrong)?;
    if meta.facts.len() > MAX_FACTS || tensors.len() != 2 * meta.facts.len() {
        return Err(format!(
            "it has {} tensors for {} facts",
            tensors.len(),
            meta.facts.len()
        ));
    }
    let mut facts = Vec::with_capacity(meta.facts.len());
    let mut shapes = Vec::with_capacity(meta.facts.len());
    for (i, fact) in meta.facts.into_iter().enumerate() {
        fact.check()
            .map_err(|what| format!("fact {i} has {what}"))?;
        let keys = rows(&tensors, &format!("fact.{i}.key"))?;
        let values = rows(&tensors, &format!("fact.{i}.value"))?;
        if keys.len() != values.len() || keys.len() > fact.pieces.len() {
            return Err(format!(
                "fact {i} has {} keys and {} values for {} tokens",
                keys.len(),
                values.len(),
                fact.pieces.len()
            ));
        }
        let width = |rows: &[Vec<f32>]| rows.first().map_or(0, Vec::len);
        shapes.push(Shape {
            key: width(&keys),
            value: width(&values),
        });
        let edits = keys.into_iter().zip(values).map(|(key, value)| RankOne {
            layer: fact.layer as usize,
            key: key.into(),
            value: value.into(),
        });
        facts.push(Fact {
            edits: edits.collect(),
            kind: fact.kind,
            prompt: fact.prompt,
            answer: fact.answer,
            pieces: fact.pieces,
            layer: fact.layer,
            before: fact.before,
            after: fact.after,
            size: fact.size,
        });
    }
    let provenance = meta.model;
    Ok((Overlay { provenance, facts }, shapes))
}

/// A tensor of finite f32, row by row.
fn rows(tensors: &SafeTensors<'_>, name: &str) -> Result<Vec<Vec<f32>>, String> {
    let view = tensors
        .tensor(name)
        .map_err(|_| format!("tensor {name} is missing"))?;
    if view.dtype() != Dtype::F32 {
        return Err(format!("tensor {name} is not of F32"));
    }
    let &[n, width] = view.shape() else {
        return Err(format!("tensor {name} is no matrix"));
    };
    if !(1..=MAX_EDITS).contains(&n) || width == 0 {
        return Err(format!("tensor {name} is {n} x {width}"));
    }
    let numbers = view.data().chunks_exact(size_of::<f32>());
    let numbers: Vec<f32> = numbers
        .filter_map(|b| b.first_chunk().map(|b| f32::from_le_bytes(*b)))
        .collect();
    if let Some(bad) = numbers.iter().find(|v| !v.is_finite()) {
        return Err(format!("tensor {name} holds {bad}"));
    }
    Ok(numbers.chunks(width).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
pub(super) mod hostile {
    //! Reading and writing bytes, for tests.

    use super::*;

    pub fn parse_only(bytes: &[u8]) -> Result<Overlay, String> {
        parse(bytes).map(|(overlay, _)| overlay)
    }

    pub fn bytes(overlay: &Overlay) -> Vec<u8> {
        overlay.to_bytes().expect("bytes")
    }
}
