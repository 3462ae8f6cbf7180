//! Where a step leaves the vectors that are captured, each written by the thread that has just computed it.

use super::buffers::Columns;
use crate::engine::EngineError;
use crate::engine::capture::{Capture, Part, Which};
use crate::model::Model;

/// Bytes of vectors held before they are handed on: a chunk of a prompt takes many times that.
const HELD_BYTES: usize = 32 << 20;

/// Vectors per layer and token whose length is that of the stream.
const STREAM: [Part; 3] = [Part::Residual, Part::AttnDelta, Part::FfnDelta];

/// The vectors of a few layers. Layer `l` lies where layer `l + held` will.
pub(super) struct Tap {
    pub(super) capture: Capture,
    /// Layers that are held at once.
    pub(super) held: usize,
    /// Tokens of a layer.
    cols: usize,
    stream: Columns,
    heads: Columns,
    keys: Columns,
    zeros: Vec<f32>,
}

impl Tap {
    /// Room for steps of `chunk` tokens.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub(super) fn new(model: &Model, capture: Capture, chunk: usize) -> Result<Self, EngineError> {
        let hp = &model.hparams;
        let cols = match capture.which {
            Which::Last => 1,
            Which::All => chunk,
        };
        let dim = |wanted: bool, n: usize| if wanted { n } else { 0 };
        let (heads, keys) = (
            dim(capture.heads, hp.attn_dim()),
            dim(capture.keys, key_dim(model)),
        );
        let layer = (3 * hp.n_embd + heads + keys) * cols * size_of::<f32>();
        let held = (HELD_BYTES / layer.max(1)).clamp(1, hp.n_layers + 1);
        let bytes = held * layer;
        let mut probe: Vec<u8> = Vec::new();
        probe
            .try_reserve_exact(bytes)
            .map_err(|_| EngineError::OutOfMemory {
                what: "the captured stream",
                bytes: bytes as u64,
            })?;
        Ok(Self {
            capture,
            held,
            cols,
            stream: Columns::new(hp.n_embd, held * cols * STREAM.len()),
            heads: Columns::new(heads, held * cols),
            keys: Columns::new(keys, held * cols),
            zeros: vec![0.0; hp.n_embd],
        })
    }

    /// The column of a token in a step of `tokens`, if it is captured.
    pub(super) fn column(&self, token: usize, tokens: usize) -> Option<usize> {
        match self.capture.which {
            Which::Last => (token + 1 == tokens).then_some(0),
            Which::All => Some(token),
        }
    }

    /// The first captured token of a step of `tokens`.
    pub(super) fn first(&self, tokens: usize) -> usize {
        match self.capture.which {
            Which::Last => tokens.saturating_sub(1),
            Which::All => 0,
        }
    }

    fn place(&self, layer: usize, part: Part, col: usize) -> (&Columns, usize) {
        let at = layer % self.held * self.cols + col;
        match part {
            Part::Residual => (&self.stream, at * STREAM.len()),
            Part::AttnDelta => (&self.stream, at * STREAM.len() + 1),
            Part::FfnDelta => (&self.stream, at * STREAM.len() + 2),
            Part::Heads => (&self.heads, at),
            Part::Key => (&self.keys, at),
        }
    }

    /// Stores elements of a vector from `first` on.
    ///
    /// # Safety
    /// No other thread reads or writes these elements of this vector meanwhile.
    pub(super) unsafe fn put(&self, layer: usize, part: Part, col: usize, first: usize, x: &[f32]) {
        let (columns, at) = self.place(layer, part, col);
        // SAFETY: the caller's promise.
        unsafe { columns.part_mut(at, first, x.len()) }.copy_from_slice(x);
    }

    /// A vector of a layer that has run, as long as `len` where the longest of its kind is longer.
    pub(super) fn get(&mut self, layer: usize, part: Part, col: usize, len: usize) -> &[f32] {
        if layer == 0 && part != Part::Residual {
            return &self.zeros;
        }
        let (columns, at) = self.place(layer, part, col);
        // SAFETY: `&mut self`: no job is running.
        unsafe { columns.part(at, 0, len) }
    }

    /// The kinds of vectors a layer has.
    pub(super) fn parts(&self, layer: usize) -> impl Iterator<Item = Part> + use<> {
        let Capture { heads, keys, .. } = self.capture;
        let more = [(Part::Heads, heads), (Part::Key, keys)];
        let more = more.into_iter().filter(move |m| m.1 && layer > 0);
        STREAM.into_iter().chain(more.map(|m| m.0))
    }
}

/// The longest key of any layer.
fn key_dim(model: &Model) -> usize {
    let layers = 1..=model.hparams.n_layers;
    let lens = layers.map(|l| crate::engine::edit::Edits::key_len(model, l));
    lens.max().unwrap_or(0)
}
