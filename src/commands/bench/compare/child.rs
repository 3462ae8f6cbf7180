//! A child process that does not outlive an interrupted cbtop.

use anyhow::{anyhow, bail};
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell reports of a program that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// Most bytes of a child's output that are kept: a result has a few hundred.
const MOST_OUTPUT: u64 = 1 << 20;
/// Time between two looks whether a child that closed its output has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs children one after the other. SIGINT and SIGTERM kill the one that runs and end the program.
pub(super) struct Children(Arc<Mutex<Option<Child>>>);

/// What a child left.
pub(super) struct Done {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Children {
    /// Starts to listen for signals.
    ///
    /// # Errors
    /// A system that refuses threads or signals.
    pub fn new() -> anyhow::Result<Self> {
        Self::listen().map_err(|e| anyhow!("signals cannot be received here: {e}"))
    }

    fn listen() -> std::io::Result<Self> {
        let running: Arc<Mutex<Option<Child>>> = Arc::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        let watched = Arc::clone(&running);
        thread::Builder::new()
            .name("cbtop-signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                });
                // The lock is kept to the end, so that no other child begins.
                let mut running = lock(&watched);
                if let Some(child) = running.as_mut() {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                std::process::exit(INTERRUPTED)
            })?;
        Ok(Self(running))
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// A program that cannot start or floods its output.
    pub fn run(&self, mut command: Command) -> anyhow::Result<Done> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let (out, err) = {
            let mut running = lock(&self.0);
            let mut child = command
                .spawn()
                .map_err(|e| anyhow!("{name} cannot start: {e}"))?;
            let pipes = (child.stdout.take(), child.stderr.take());
            *running = Some(child);
            pipes
        };
        let err = thread::spawn(move || err.map(read));
        let out = out.map(read);
        let err = err.join().ok().flatten();
        let status = self.wait().map_err(|e| anyhow!("{name}: {e}"))?;
        let (Some(Some(out)), Some(Some(err))) = (out, err) else {
            bail!("{name} prints more than {MOST_OUTPUT} bytes, which is no result");
        };
        Ok(Done { status, out, err })
    }

    fn wait(&self) -> std::io::Result<ExitStatus> {
        loop {
            let mut running = lock(&self.0);
            let Some(child) = running.as_mut() else {
                return Err(std::io::ErrorKind::NotFound.into());
            };
            if let Some(status) = child.try_wait()? {
                *running = None;
                return Ok(status);
            }
            drop(running);
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        if let Some(child) = lock(&self.0).as_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lock(running: &Mutex<Option<Child>>) -> MutexGuard<'_, Option<Child>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All output as text; `None` of too much. The rest is not read: the child gets SIGPIPE.
fn read(pipe: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let _ = pipe.take(MOST_OUTPUT + 1).read_to_end(&mut bytes);
    (bytes.len() as u64 <= MOST_OUTPUT).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
