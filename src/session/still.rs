//! A saved trace on the dashboard, without a model: one snapshot that only the trace pane has something of.

use super::SessionHandle;
use super::snapshot::{Command, Message, ModelInfo, Playback, Snapshot, Speed};
use crate::trace::figures::{TraceFrame, TraceView};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use tokio::sync::watch;

/// The snapshot of a saved trace, with another one beside it.
pub fn snapshot(shown: TraceView, beside: Option<TraceView>) -> Snapshot {
    let model = ModelInfo {
        name: shown.model.clone(),
        path: "(saved trace)".into(),
        n_layers: shown.n_layers,
        n_embd: shown.hidden_size,
        ..ModelInfo::default()
    };
    let prompt = shown.prompt.clone();
    let frame = TraceFrame {
        number: 1,
        shown: Some(Arc::new(shown)),
        beside: beside.map(Arc::new),
        ..TraceFrame::default()
    };
    Snapshot {
        prompt,
        trace: Some(Arc::new(frame)),
        // As of a recording of one moment: keys of a running session say that nothing runs.
        playback: Some(Playback {
            frame: 0,
            frames: 1,
            at: Duration::ZERO,
            total: Duration::ZERO,
            playing: false,
            speed: Speed::default(),
        }),
        model: Arc::new(model),
        ..Snapshot::default()
    }
}

/// Shows it on a thread of its own, for the dashboard, until [`Command::Quit`] or the handle is dropped.
///
/// # Errors
/// When the system refuses a thread.
pub fn spawn(mut snapshot: Snapshot) -> std::io::Result<SessionHandle> {
    let (frame_tx, frames) = watch::channel(Arc::new(snapshot.clone()));
    let (commands, orders) = mpsc::channel();
    std::thread::Builder::new()
        .name("cbtop-still".into())
        .spawn(move || drive(&mut snapshot, &orders, &frame_tx))?;
    Ok(SessionHandle { frames, commands })
}

fn drive(
    snapshot: &mut Snapshot,
    orders: &Receiver<Command>,
    frames: &watch::Sender<Arc<Snapshot>>,
) {
    while let Ok(command) = orders.recv() {
        if command == Command::Quit {
            return;
        }
        snapshot.seq += 1;
        snapshot.message = Some(Message {
            is_error: true,
            text: "this is a saved trace: there is no model to run; give one with --model".into(),
        });
        if frames.send(Arc::new(snapshot.clone())).is_err() {
            return;
        }
    }
}
