//! Ties engine, profiler and tuner together behind channels; no terminal code.
//!
//! [`Session`] is the synchronous core; [`spawn`] runs one on its own thread, publishing [`snapshot::Snapshot`]s and
//! taking [`snapshot::Command`]s. A slow reader misses frames, it never delays a token.

mod advice;
mod bandit;
mod change;
mod counting;
mod faults;
pub mod load;
mod measure;
mod orders;
pub mod playback;
mod profile;
mod prompt;
mod publish;
mod race;
mod run;
pub mod snapshot;
pub mod still;
mod tracers;
pub mod tracing;
pub mod tuner;

pub use load::{DEMO_NAME, LoadError, Loaded, Source};
pub use prompt::encode_prompt;
pub use publish::model_info;
pub use run::{Options, Session, SessionError};

use snapshot::{Command, Snapshot};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Program and version, as in reports and recordings.
pub const GENERATOR: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// Time between two snapshots while tokens flow: ten a second is what an eye follows.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// The front end's side of a running session.
pub struct SessionHandle {
    /// The latest snapshot.
    pub frames: watch::Receiver<Arc<Snapshot>>,
    /// Orders to the session.
    pub commands: Sender<Command>,
}

/// Starts `session` on a thread of its own. It ends with [`Command::Quit`] or when the handle is dropped.
///
/// # Errors
/// When the system refuses a thread.
pub fn spawn(session: Session) -> std::io::Result<SessionHandle> {
    spawn_watched(session, |_| ())
}

/// As [`spawn`]; `watch` sees every snapshot that is published, on the session's thread: it must not wait.
///
/// # Errors
/// When the system refuses a thread.
pub fn spawn_watched(
    mut session: Session,
    mut watch: impl FnMut(&Arc<Snapshot>) + Send + 'static,
) -> std::io::Result<SessionHandle> {
    let first = Arc::new(session.snapshot());
    watch(&first);
    let (frame_tx, frames) = watch::channel(first);
    let (commands, command_rx) = mpsc::channel();
    std::thread::Builder::new()
        .name("cbtop-session".into())
        .spawn(move || {
            drive(&mut session, &command_rx, |snapshot| {
                watch(&snapshot);
                frame_tx.send(snapshot).is_ok()
            });
            // What the session has found is kept before its end is seen.
            drop(session);
            drop(frame_tx);
        })?;
    Ok(SessionHandle { frames, commands })
}

fn drive(
    session: &mut Session,
    commands: &Receiver<Command>,
    mut publish: impl FnMut(Arc<Snapshot>) -> bool,
) {
    let mut published = Instant::now();
    let mut next_token = Instant::now();
    loop {
        let order = if session.is_idle() && !session.is_tracing() {
            if session.is_measuring() || session.awaits_tuner() {
                // What is measured beside it is shown as it goes.
                commands.recv_timeout(PUBLISH_EVERY)
            } else {
                commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
        } else {
            // Pacing waits here, so that a command is obeyed at once.
            let due = if session.is_tracing() {
                Instant::now()
            } else {
                next_token
            };
            commands.recv_timeout(due.saturating_duration_since(Instant::now()))
        };
        let obeyed = match order {
            Ok(command) => {
                if !session.obey(command) {
                    return;
                }
                // A step that was asked for runs before the next command: two commands are two steps.
                if session.step_pending() {
                    session.tick();
                }
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if !obeyed && session.is_tracing() {
            session.tick();
        } else if !obeyed {
            session.tick();
            next_token = session.next_due(next_token);
        }
        if obeyed
            || (session.is_idle() && !session.is_tracing())
            || published.elapsed() >= PUBLISH_EVERY
        {
            let began = Instant::now();
            let snapshot = Arc::new(session.snapshot());
            if !publish(snapshot) {
                return;
            }
            if !session.is_idle() {
                session.count_overhead(began.elapsed(), published.elapsed());
            }
            published = Instant::now();
        }
    }
}
