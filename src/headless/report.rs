//! The JSON report: a versioned envelope around the snapshot that the dashboard shows.

use crate::session::GENERATOR;
use crate::session::snapshot::Snapshot;
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Raised when a field changes its meaning or goes; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// One run, for scripts and CI. The schema is checked in as `docs/src/report.schema.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of the schema: raised when a field changes its meaning or goes; new fields do not raise it.
    pub schema_version: u32,
    /// Program and version, for example `cbtop 0.1.0`.
    pub generator: String,
    /// The run at its end.
    pub snapshot: Snapshot,
}

impl Report {
    /// The report of a run.
    pub fn new(snapshot: &Snapshot) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            generator: GENERATOR.into(),
            snapshot: snapshot.clone(),
        }
    }

    /// Writes it as JSON with a line end.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// The JSON schema of a report.
    pub fn schema() -> Schema {
        schema_for!(Self)
    }
}
