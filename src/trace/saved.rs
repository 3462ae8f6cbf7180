//! Traces in files: saved as they are made, opened without their model.

use super::TraceError;
use super::figures::{PositionTrace, TokenText, TraceView, Waypoint};
use super::store::{Kind, StoreError, TraceStore, TraceWriter};
use super::stream::Chains;
use super::vector::norm;
use crate::engine::capture::{Captured, Part};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// Layers that a file may be of.
const MAX_LAYERS: u32 = 4096;
/// Positions of a file without figures whose norms are computed, the last ones.
const NORMS: u32 = 512;

/// What stands beside the chains of a file: where they come from, and what was read of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Provenance {
    /// Program and version.
    generator: String,
    /// The statement as it was run.
    statement: String,
    /// The figures.
    trace: TraceView,
}

/// A file of chains, with the figures that were saved beside them.
pub struct Saved {
    store: TraceStore,
    view: Option<TraceView>,
    statement: Option<String>,
}

impl Saved {
    /// Opens a file.
    ///
    /// # Errors
    /// A file that is not whole chains.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let store = TraceStore::open(path)?;
        if store.n_layers() > MAX_LAYERS {
            return Err(TraceError::Statement(format!(
                "{}: the file says {} layers, no model has more than {MAX_LAYERS}; it is damaged",
                path.display(),
                store.n_layers()
            )));
        }
        let said: Option<Provenance> = store
            .meta()
            .and_then(|bytes| serde_json::from_slice(bytes).ok());
        let fits = |view: &TraceView| {
            view.n_layers == store.n_layers()
                && view.hidden_size == store.hidden_size()
                && view.tokens.len() == store.n_tokens() as usize
        };
        let said = said.filter(|p| fits(&p.trace));
        let (view, statement) = said.map(|p| (p.trace, p.statement)).unzip();
        Ok(Self {
            view,
            statement,
            store,
        })
    }

    /// The statement that the file was saved by, if its figures are there.
    pub fn statement(&self) -> Option<&str> {
        self.statement.as_deref()
    }

    /// The tokens of the text, if the figures are there.
    pub fn ids(&self) -> Option<Vec<u32>> {
        let view = self.view.as_ref()?;
        Some(view.tokens.iter().map(|t| t.id).collect())
    }

    /// Whether the figures say that the run was changed on its way.
    pub fn is_edited(&self) -> bool {
        self.view.as_ref().is_some_and(|v| !v.edits.is_empty())
    }

    /// Positions that are not in the file any more, because it was cut.
    pub fn missing_tokens(&self) -> u32 {
        self.store.missing_tokens()
    }

    /// The figures saved with the chains; of a file without them, norms alone.
    pub fn view(&self) -> TraceView {
        let mut notes = Vec::new();
        if self.store.dropped_bytes() > 0 {
            notes.push(format!(
                "{} bytes at the end of the file are no whole chain and are left out",
                self.store.dropped_bytes()
            ));
        }
        if self.store.missing_tokens() > 0 {
            notes.push(format!(
                "{} tokens of {} are not in the file any more: it was cut",
                self.store.missing_tokens(),
                self.store.missing_tokens() + self.store.n_tokens()
            ));
        }
        if let Some(view) = &self.view {
            let mut view = view.clone();
            view.notes.extend(notes);
            return view;
        }
        let why = if self.store.meta_damaged() || self.store.meta().is_some() {
            "the figures saved beside the chains are damaged"
        } else {
            "the file holds chains without figures"
        };
        notes.push(format!(
            "{why}: norms are computed from the chains, probabilities need the model"
        ));
        let first = self.store.n_tokens().saturating_sub(NORMS);
        if first > 0 {
            notes.push(format!("norms are those of the last {NORMS} positions"));
        }
        let token = |position: u32| TokenText {
            id: 0,
            text: format!("#{position}"),
        };
        TraceView {
            model: self.store.path().display().to_string(),
            prompt: String::new(),
            tokens: (0..self.store.n_tokens()).map(token).collect(),
            n_layers: self.store.n_layers(),
            hidden_size: self.store.hidden_size(),
            after_attention: false,
            answers: Vec::new(),
            positions: (first..self.store.n_tokens())
                .map(|p| self.norms(p))
                .collect(),
            edits: Vec::new(),
            facts: 0,
            notes,
        }
    }

    fn norms(&self, position: u32) -> PositionTrace {
        let of = |layer, part| norm(self.vector(position as usize, layer as usize, part));
        let waypoint = |layer| Waypoint {
            layer,
            residual_norm: of(layer, Part::Residual),
            attn_norm: of(layer, Part::AttnDelta),
            ffn_norm: of(layer, Part::FfnDelta),
            top: Vec::new(),
            entropy: None,
            kl_to_final: None,
            tracks: Vec::new(),
        };
        PositionTrace {
            position,
            tracked: Vec::new(),
            waypoints: (0..=self.store.n_layers()).map(waypoint).collect(),
            phases: Vec::new(),
            embedding_logits: Vec::new(),
            constant_logits: Vec::new(),
        }
    }
}

impl Chains for Saved {
    fn n_layers(&self) -> usize {
        self.store.n_layers() as usize
    }

    fn hidden_size(&self) -> usize {
        self.store.hidden_size() as usize
    }

    fn positions(&self) -> Range<usize> {
        0..self.store.n_tokens() as usize
    }

    fn vector(&self, position: usize, layer: usize, part: Part) -> &[f32] {
        let (Ok(position), Ok(layer)) = (u32::try_from(position), u32::try_from(layer)) else {
            return &[];
        };
        kind(part)
            .and_then(|kind| self.store.vector(position, layer, kind))
            .unwrap_or(&[])
    }
}

/// The place of a part in a chain.
pub fn kind(part: Part) -> Option<Kind> {
    match part {
        Part::Residual => Some(Kind::Residual),
        Part::AttnDelta => Some(Kind::AttnDelta),
        Part::FfnDelta => Some(Kind::FfnDelta),
        Part::Heads | Part::Key => None,
    }
}

/// Refuses a place that cannot be saved to, and a file that is something else than chains: a slip of the keyboard is not
/// to replace a model.
fn check_target(path: &Path) -> Result<(), TraceError> {
    let refuse = |what: String| Err(TraceError::Statement(what));
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|f| !f.is_dir()) {
        return refuse(format!(
            "the folder {} does not exist; make it, or SAVE elsewhere",
            folder.display()
        ));
    }
    let mut magic = [0; 4];
    let there = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0);
    let mut read = || std::fs::File::open(path)?.read_exact(&mut magic);
    if there && (read().is_err() || &magic != b"TRAC") {
        return refuse(format!(
            "{} is there and is no trace; SAVE replaces traces only, name another file",
            path.display()
        ));
    }
    Ok(())
}

/// A trace being saved: vectors go to the file as they come, in bounded memory.
pub struct Saving {
    writer: TraceWriter,
    failed: Option<StoreError>,
}

impl Saving {
    /// A new file for the chains of `n_tokens` tokens; what `path` holds now stays until [`Self::finish`].
    ///
    /// # Errors
    /// A place that cannot be written to, or that someone else writes to.
    pub fn create(
        path: &Path,
        hidden_size: usize,
        n_layers: usize,
        n_tokens: usize,
    ) -> Result<Self, TraceError> {
        check_target(path)?;
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut writer = TraceWriter::create(path, small(hidden_size), small(n_layers))?;
        writer.begin_chunk(small(n_tokens))?;
        Ok(Self {
            writer,
            failed: None,
        })
    }

    /// Takes a vector of the run.
    pub fn hear(&mut self, c: &Captured<'_>) {
        let Some(kind) = kind(c.part).filter(|_| self.failed.is_none()) else {
            return;
        };
        let done = self
            .writer
            .put(c.position as u32, c.layer as u32, kind, c.data);
        self.failed = done.err();
    }

    /// Every vector has come: the chains are whole, in the file that has no name yet.
    ///
    /// # Errors
    /// The first write that failed, a vector that did not come.
    pub fn complete(&mut self) -> Result<(), TraceError> {
        if let Some(e) = self.failed.take() {
            return Err(e.into());
        }
        Ok(self.writer.end_chunk()?)
    }

    /// Ends a file whose chains are [complete](Self::complete) as version 1, which has no figures.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_version_1(self) -> Result<(), TraceError> {
        Ok(self.writer.finish_version_1()?)
    }

    /// Ends a file whose chains are [complete](Self::complete), with the figures of the trace and the statement that made
    /// it, if there are any.
    ///
    /// # Errors
    /// A write that failed; the target is then as it was.
    pub fn finish(self, figures: Option<(&str, &TraceView)>) -> Result<(), TraceError> {
        let Some((statement, view)) = figures else {
            return Ok(self.writer.finish(None)?);
        };
        let provenance = Provenance {
            generator: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).into(),
            statement: statement.into(),
            trace: view.clone(),
        };
        let json = serde_json::to_vec(&provenance)
            .map_err(|e| TraceError::Statement(format!("the figures cannot be written: {e}")))?;
        Ok(self.writer.finish(Some(&json))?)
    }
}
