//! The event loop: input first, then signals, drawing and snapshots, on one thread.

use super::own::Watch;
use super::state::{App, Panel};
use super::terminal::{Guard, restore};
use super::update::{Message, update};
use super::view::view;
use super::{Options, TuiError};
use crate::session::SessionHandle;
use crate::session::snapshot::{Command, RunState};
use crossterm::event::{Event, EventStream};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use futures_util::StreamExt;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use std::io::{BufWriter, IsTerminal, Stdout, Write, stdin, stdout};
use std::time::{Duration, Instant};

/// Least time between two frames after a key, so that a held key does not flood a slow terminal.
const FRAME_AFTER_INPUT: Duration = Duration::from_millis(33);

/// Longest wait for the session to keep what it has found.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// Runs the dashboard until the user quits, a signal or the end of the terminal or of the session. The terminal is as
/// before when it returns, error or not.
///
/// # Errors
/// [`TuiError::NotATerminal`] without a terminal, [`TuiError::SessionEnded`] when the session is gone without having
/// been told to, [`TuiError::Io`] when the terminal fails.
pub fn run(handle: SessionHandle, options: &Options) -> Result<(), TuiError> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(TuiError::NotATerminal);
    }
    // Before raw mode, so that a failure here leaves the terminal alone.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let own = Watch::new();
    let whole = own.whole.clone();
    runtime.block_on(whole.watch(drive(handle, options, own)))
}

async fn drive(
    mut handle: SessionHandle,
    options: &Options,
    mut own: Watch,
) -> Result<(), TuiError> {
    let mut signals = Signals::new()?;
    let guard = Guard::new()?;
    let mut screen = open()?;
    let mut input = EventStream::new();
    let size = screen.size()?;
    let first = handle.frames.borrow_and_update().clone();
    let mut app = options.app(first, Rect::new(0, 0, size.width, size.height));
    let mut schedule = Schedule::new();
    while !app.quit {
        if let Some(suspend) =
            std::mem::take(&mut app.suspend).then(|| own.whole.leave_out(|| suspend(&mut app)))
        {
            suspend?;
            screen = open()?;
            schedule.request(Duration::ZERO);
        }
        let message = tokio::select! {
            biased;
            event = own.input.watch(input.next()) => match event {
                Some(Ok(event)) => translate(event),
                // The terminal is gone.
                Some(Err(_)) | None => break,
            },
            () = own.signals.watch(signals.next()) => break,
            () = own.timer.watch(schedule.due()) => {
                let newest = handle.frames.borrow_and_update().clone();
                own.shows(&newest);
                update(&mut app, Message::Snapshot(newest));
                if let Some(figures) = own.figures(app.focus == Panel::Debug) {
                    update(&mut app, Message::Own(figures));
                }
                own.drawing.time(|| draw(&mut screen, &app))?;
                schedule.drawn();
                continue;
            }
            // With a frame to come there is nothing to wake up for: it takes the newest snapshot itself.
            changed = own.session.watch(handle.frames.changed()), if !schedule.pending() => {
                if changed.is_err() {
                    drop(guard);
                    return Err(session_ended(&app));
                }
                Some(Message::Snapshot(handle.frames.borrow_and_update().clone()))
            }
        };
        let Some(message) = message else { continue };
        let from_session = matches!(message, Message::Snapshot(_));
        if matches!(message, Message::Resize(..)) {
            // Even to the size it had: what the terminal cut off in between is blank now.
            screen = open()?;
        }
        if !(from_session && app.frozen()) {
            schedule.request(if from_session {
                options.frame_gap()
            } else {
                FRAME_AFTER_INPUT
            });
        }
        for command in update(&mut app, message) {
            if handle.commands.send(command).is_err() && !app.quit {
                drop(guard);
                return Err(session_ended(&app));
            }
        }
    }
    // A session that has ended already needs no word of it.
    let _ = handle.commands.send(Command::Quit);
    drop(guard);
    // The session keeps what it has found; one that hangs is not waited for.
    let ended = async { while handle.frames.changed().await.is_ok() {} };
    let _ = tokio::time::timeout(LAST_WORDS, ended).await;
    Ok(())
}

/// A screen with nothing on it, so that the next frame is drawn whole.
fn open() -> Result<Screen, TuiError> {
    let mut screen = Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(
        1 << 16,
        stdout(),
    )))?;
    // Not `Terminal::clear`: it asks for the cursor's position, which not every terminal tells.
    queue!(screen.backend_mut(), Clear(ClearType::All))?;
    Ok(screen)
}

fn draw(screen: &mut Screen, app: &App) -> Result<(), TuiError> {
    queue!(screen.backend_mut(), BeginSynchronizedUpdate)?;
    screen.draw(|frame| view(app, frame))?;
    queue!(screen.backend_mut(), EndSynchronizedUpdate)?;
    Write::flush(screen.backend_mut())?;
    Ok(())
}

fn translate(event: Event) -> Option<Message> {
    match event {
        Event::Key(key) => Some(Message::Key(key)),
        Event::Mouse(mouse) => Some(Message::Mouse(mouse)),
        Event::Paste(text) => Some(Message::Paste(text)),
        Event::Resize(width, height) => Some(Message::Resize(width, height)),
        Event::FocusGained | Event::FocusLost => None,
    }
}

fn session_ended(app: &App) -> TuiError {
    let why = match &app.snapshot().state {
        RunState::Failed { error } => super::text::sanitise(error, false),
        _ => "it gave no reason".into(),
    };
    TuiError::SessionEnded(why)
}

/// Gives the terminal back, stops the process until it is continued, and takes the terminal again.
fn suspend(app: &mut App) -> Result<(), TuiError> {
    restore();
    // The whole process group, as the terminal's own Ctrl-Z would: a `cargo run` above us must stop too.
    let stopped = std::process::Command::new("kill")
        .args(["-TSTP", "0"])
        .status();
    if !stopped.is_ok_and(|s| s.success()) {
        app.notice = Some("cannot suspend here: the `kill` command did not work".into());
    }
    // The guard of the caller restores again at the end.
    std::mem::forget(Guard::new()?);
    let (width, height) = crossterm::terminal::size()?;
    update(app, Message::Resize(width, height));
    Ok(())
}

/// When to draw next.
struct Schedule {
    last: Instant,
    next: Option<Instant>,
}

impl Schedule {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            last: now,
            next: Some(now),
        }
    }

    /// Asks for a frame at least `gap` after the last one; an earlier request stands.
    fn request(&mut self, gap: Duration) {
        let at = self.last + gap;
        self.next = Some(self.next.map_or(at, |n| n.min(at)));
    }

    fn pending(&self) -> bool {
        self.next.is_some()
    }

    fn drawn(&mut self) {
        self.last = Instant::now();
        self.next = None;
    }

    /// Resolves when a frame is due; never while nothing is asked for.
    async fn due(&self) {
        match self.next {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }
}

/// Signals that end the program in good order, the terminal restored.
#[cfg(unix)]
pub struct Signals([tokio::signal::unix::Signal; 4]);

#[cfg(unix)]
impl Signals {
    /// Catches them from here on.
    ///
    /// # Errors
    /// Where the system refuses, or there is no runtime.
    pub fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
        ]))
    }

    /// Waits for one of them.
    pub async fn next(&mut self) {
        let [terminate, hangup, interrupt, quit] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// Ctrl-C, which ends the program in good order, the terminal restored.
#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Never fails.
    ///
    /// # Errors
    /// None.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    /// Waits for one of them.
    pub async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
