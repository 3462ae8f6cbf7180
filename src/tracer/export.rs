//! What the tracers found, as a file and as a short text.

mod summary;
#[cfg(test)]
mod tests;

use super::figures::{
    ActivationAnomaly, AttentionNote, AttentionWeightTrace, KvCacheSessionTrace,
    LogitEvolutionTrace, ModelActivationTrace, ModelQuantisationError, TracerFrame, TracerSet,
};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Raised when a field changes its meaning or goes; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

const GENERATOR: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// Traces of a run. Written and read again it is the same bit for bit, floats that are not finite included (but every NaN
/// is one NaN: see [`super::exact::Exact`]), and so is its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracerExport {
    /// Version of the schema: raised when a field changes its meaning or goes; new fields do not raise it.
    pub schema_version: u32,
    /// Program and version, for example `cbtop 0.1.0`.
    pub generator: String,
    /// The model's name.
    pub model: String,
    /// The tracers that were on.
    pub on: TracerSet,
    /// Steps, oldest first.
    pub activations: Vec<ModelActivationTrace>,
    /// As [`super::figures::ActivationView::anomalies`].
    pub anomalies: Vec<ActivationAnomaly>,
    /// Those beyond.
    pub more_anomalies: u64,
    /// Heads, by query, layer and head.
    pub attention: Vec<AttentionWeightTrace>,
    /// What those of the newest query amount to.
    pub attention_notes: Vec<AttentionNote>,
    /// Tokens chosen, oldest first.
    pub logits: Vec<LogitEvolutionTrace>,
    /// Error of the whole model, where it was measured.
    pub quantisation: Option<ModelQuantisationError>,
    /// The kv cache; empty where its tracer was off.
    pub kv: KvCacheSessionTrace,
}

/// Why a file of traces cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TracerExportError {
    /// It is no such JSON.
    #[error(
        "these are no traces of cbtop: {0}\nName a file that the tracers of a run were exported to."
    )]
    Json(#[from] serde_json::Error),
    /// Of a version that this program does not know.
    #[error(
        "traces of schema version {0}; this cbtop reads version {SCHEMA_VERSION}\nRead them with the cbtop that wrote them."
    )]
    Version(u32),
}

impl TracerExport {
    /// What `frame` shows.
    pub fn new(model: &str, frame: &TracerFrame) -> Self {
        let activations = frame.activations.as_deref();
        let attention = frame.attention.as_deref();
        Self {
            schema_version: SCHEMA_VERSION,
            generator: GENERATOR.into(),
            model: model.into(),
            on: frame.on,
            activations: activations
                .filter(|view| view.steps > 0)
                .map(|view| view.latest.clone())
                .into_iter()
                .collect(),
            anomalies: activations.map_or_else(Vec::new, |view| view.anomalies.clone()),
            more_anomalies: activations.map_or(0, |view| view.more_anomalies),
            attention: attention.map_or_else(Vec::new, |view| view.heads.clone()),
            attention_notes: attention.map_or_else(Vec::new, |view| view.notes.clone()),
            logits: frame
                .logits
                .as_deref()
                .map_or_else(Vec::new, |view| view.traces.clone()),
            quantisation: frame
                .quantisation
                .as_deref()
                .and_then(|view| view.model.clone()),
            kv: frame
                .kv
                .as_deref()
                .map_or_else(KvCacheSessionTrace::default, |view| view.session.clone()),
        }
    }

    /// Writes it as JSON on one line, with a line end: lists of floats on lines of their own would be most of the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn to_json(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// [`TracerExportError`].
    pub fn from_json(json: &[u8]) -> Result<Self, TracerExportError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let Version { schema_version } = serde_json::from_slice(json)?;
        if schema_version != SCHEMA_VERSION {
            return Err(TracerExportError::Version(schema_version));
        }
        Ok(serde_json::from_slice(json)?)
    }

    /// The JSON schema.
    pub fn schema() -> Schema {
        schema_for!(Self)
    }

    /// A short report for people, in lines of text.
    pub fn summary(&self) -> String {
        summary::summary(self)
    }
}
