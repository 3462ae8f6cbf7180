//! Plays a recording in the place of a session: the same snapshots through the same channel, under [`Scrub`] commands.

use super::{Recording, RecordingError};
use crate::session::SessionHandle;
use crate::session::snapshot::{Command, Message, Playback, Scrub, Snapshot, Speed};
use std::io::{Read, Seek};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two snapshots while it plays.
const TICK: Duration = Duration::from_millis(100);
/// Unreadable frames that are passed over in the search for one to begin with.
const TRIES: usize = 256;

/// Where a recording is played and which frame shows. No threads and no clock here.
pub struct Player<R> {
    recording: Recording<R>,
    frame: usize,
    at: Duration,
    playing: bool,
    speed: Speed,
    shown: Arc<Snapshot>,
    /// What the user should know about the frame or the last command.
    message: Option<Message>,
    seq: u64,
}

impl<R: Read + Seek> Player<R> {
    /// Stands at `start`, paused.
    ///
    /// # Errors
    /// [`RecordingError::Frame`] when no frame there or near the start of the recording can be read.
    pub fn new(mut recording: Recording<R>, start: Duration) -> Result<Self, RecordingError> {
        let frame = recording.frame_at(start);
        let mut first = recording.frame(frame);
        for other in 0..recording.frames().min(TRIES) {
            if first.is_ok() {
                break;
            }
            first = recording.frame(other).or(first);
        }
        let notes = recording.notes();
        let message = (!notes.is_empty()).then(|| warning(notes.join("; ")));
        let mut player = Self {
            at: start.min(recording.duration()),
            frame,
            playing: false,
            speed: Speed::default(),
            shown: first?,
            message,
            seq: 0,
            recording,
        };
        player.load();
        Ok(player)
    }

    /// Lets time go on from here.
    pub fn play(&mut self) {
        self.playing = true;
    }

    /// Whether time goes on.
    pub fn playing(&self) -> bool {
        self.playing
    }

    /// `elapsed` of real time has passed.
    pub fn advance(&mut self, elapsed: Duration) {
        if !self.playing {
            return;
        }
        let step = elapsed.as_secs_f64() * self.speed.factor();
        let step = Duration::try_from_secs_f64(step).unwrap_or(Duration::MAX);
        self.go(self.at.saturating_add(step));
        if self.at == self.recording.duration() {
            self.playing = false;
        }
    }

    /// Does what was asked.
    pub fn scrub(&mut self, scrub: Scrub) {
        self.message = None;
        let last = self.recording.frames() - 1;
        match scrub {
            Scrub::Toggle => {
                if !self.playing && self.at == self.recording.duration() {
                    self.go(Duration::ZERO);
                }
                self.playing = !self.playing;
            }
            Scrub::Frames(by) => {
                let by = isize::try_from(by).unwrap_or(0);
                self.show(self.frame.saturating_add_signed(by).min(last));
            }
            Scrub::Seconds(by) => {
                let step = Duration::from_secs(by.unsigned_abs().into());
                self.go(if by < 0 {
                    self.at.saturating_sub(step)
                } else {
                    self.at.saturating_add(step)
                });
            }
            Scrub::First => self.show(0),
            Scrub::Last => self.show(last),
            Scrub::Faster => self.speed = self.speed.faster(),
            Scrub::Slower => self.speed = self.speed.slower(),
            Scrub::Millis(at) => self.go(Duration::from_millis(at)),
        }
    }

    /// A command that only a running session could obey.
    pub fn refuse(&mut self) {
        self.message = Some(warning(
            "this is a recording: nothing runs that could obey".into(),
        ));
    }

    /// What is to be shown now.
    pub fn snapshot(&mut self) -> Snapshot {
        self.seq += 1;
        let mut snapshot = Snapshot::clone(&self.shown);
        // Messages age by the number of snapshots.
        snapshot.seq = self.seq;
        if self.message.is_some() {
            snapshot.message.clone_from(&self.message);
        }
        snapshot.playback = Some(Playback {
            frame: self.frame,
            frames: self.recording.frames(),
            at: self.at,
            total: self.recording.duration(),
            playing: self.playing,
            speed: self.speed,
        });
        snapshot
    }

    /// To a time.
    fn go(&mut self, at: Duration) {
        self.at = at.min(self.recording.duration());
        let frame = self.recording.frame_at(self.at);
        if frame != self.frame {
            self.frame = frame;
            self.load();
        }
    }

    /// To a frame, and pause there.
    fn show(&mut self, frame: usize) {
        self.playing = false;
        self.at = self.recording.time(frame);
        self.frame = frame;
        self.load();
    }

    fn load(&mut self) {
        match self.recording.frame(self.frame) {
            Ok(snapshot) => self.shown = snapshot,
            Err(e) => self.message = Some(warning(e.to_string())),
        }
    }
}

fn warning(text: String) -> Message {
    Message {
        is_error: true,
        text,
    }
}

/// Plays on a thread of its own, for the dashboard, until [`Command::Quit`] or the handle is dropped.
///
/// # Errors
/// When the system refuses a thread.
pub fn spawn<R: Read + Seek + Send + 'static>(
    mut player: Player<R>,
) -> std::io::Result<SessionHandle> {
    let (frame_tx, frames) = watch::channel(Arc::new(player.snapshot()));
    let (commands, orders) = mpsc::channel();
    std::thread::Builder::new()
        .name("cbtop-replay".into())
        .spawn(move || drive(&mut player, &orders, &frame_tx))?;
    Ok(SessionHandle { frames, commands })
}

fn drive<R: Read + Seek>(
    player: &mut Player<R>,
    orders: &Receiver<Command>,
    frames: &watch::Sender<Arc<Snapshot>>,
) {
    let mut then = Instant::now();
    loop {
        let order = if player.playing() {
            orders.recv_timeout(TICK)
        } else {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let now = Instant::now();
        player.advance(now - then);
        then = now;
        match order {
            Ok(Command::Quit) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Command::Scrub(scrub)) => player.scrub(scrub),
            Ok(_) => player.refuse(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if frames.send(Arc::new(player.snapshot())).is_err() {
            return;
        }
    }
}
