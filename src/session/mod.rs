//! Ties engine, profiler and tuner together behind channels; no terminal code.

pub mod snapshot;

use snapshot::{Command, Snapshot};
use std::sync::Arc;

/// A front end's two ends of a running session. Dropping it ends the session.
#[derive(Debug)]
pub struct SessionHandle {
    /// The latest snapshot; older ones are overwritten, never queued, so a slow terminal drops frames, not tokens.
    pub frames: tokio::sync::watch::Receiver<Arc<Snapshot>>,
    /// Commands to the session, taken in order between two tokens.
    pub commands: std::sync::mpsc::Sender<Command>,
}
