//! Writes a recording: snapshots come in through a bounded channel, a thread of its own encodes, appends and syncs them. A slow disk
//! loses frames; it never delays a token.

use super::RecordingError;
use super::encode::Encoder;
use super::format::{self, Header};
use crate::session::GENERATOR;
use crate::session::snapshot::Snapshot;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Snapshots that wait for a slow disk.
const WAITING: usize = 16;
/// Least time between two frames.
const FRAME_EVERY: Duration = Duration::from_millis(100);
/// Longest time between two frames, however slow encoding is: so much is lost at most with the process.
const FRAME_WITHIN: Duration = Duration::from_millis(500);
/// A frame may take one part of so many of one CPU's time.
const COST: u32 = 50;
/// Most bytes a second, averaged over a few frames: some 15 MB a minute of a large model.
const BYTES_PER_SECOND: f64 = 256e3;
/// Least time between two requests that the disk keep what it has.
const SYNC_EVERY: Duration = Duration::from_secs(1);

enum Item {
    /// A snapshot and when it was taken, since the recording's start.
    Frame(Duration, Arc<Snapshot>),
    End,
}

/// A recording in progress.
pub struct Recorder {
    tap: Tap,
    path: PathBuf,
    thread: JoinHandle<io::Result<Summary>>,
}

/// Where snapshots go into a recording.
#[derive(Clone)]
pub struct Tap {
    items: SyncSender<Item>,
    began: Instant,
    lost: Arc<AtomicU64>,
}

/// What became of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Frames written.
    pub frames: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Snapshots left out because another followed sooner than frames are written.
    pub thinned: u64,
    /// Snapshots lost because the disk was too slow.
    pub lost: u64,
    /// Snapshots left out because no reader would take them: their JSON is beyond [`format::MAX_JSON`].
    pub too_large: u64,
    /// Time of the last frame.
    pub duration: Duration,
}

/// Whether a recording may be written to `path`: nothing is there, or with `replace` a recording or an empty file.
///
/// # Errors
/// [`RecordingError::Exists`], [`RecordingError::NotReplaced`], [`RecordingError::Io`].
pub fn check(path: &Path, replace: bool) -> Result<(), RecordingError> {
    let looking = || RecordingError::io(path, "looking at what is there");
    let meta = match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta.map_err(looking())?,
    };
    let ours = meta.is_file()
        && (meta.len() == 0 || {
            let mut file = File::open(path).map_err(looking())?;
            !matches!(
                format::read_header(&mut file).map_err(looking())?,
                Header::NotARecording
            )
        });
    match (ours, replace) {
        (true, true) => Ok(()),
        (true, false) => Err(RecordingError::Exists(path.into())),
        (false, _) => Err(RecordingError::NotReplaced(path.into())),
    }
}

impl Recorder {
    /// Begins a recording at `path`; see [`check`] for what may be there with `replace`.
    ///
    /// # Errors
    /// As [`check`], and where the file or the thread cannot be had.
    pub fn create(path: &Path, replace: bool) -> Result<Self, RecordingError> {
        check(path, replace)?;
        let creating = || RecordingError::io(path, "creating the recording");
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(replace)
            .create(replace)
            .create_new(!replace)
            .open(path)
            .map_err(creating())?;
        let header = format::header(GENERATOR);
        file.write_all(&header).map_err(creating())?;
        let (items, taken) = mpsc::sync_channel(WAITING);
        let writer = Writer {
            file,
            encoder: Encoder::default(),
            summary: Summary {
                bytes: header.len() as u64,
                ..Summary::default()
            },
            pending: None,
            next_frame: Instant::now(),
            unsynced: Some(Instant::now()),
        };
        let thread = std::thread::Builder::new()
            .name("cbtop-recorder".into())
            .spawn(move || writer.run(&taken))
            .map_err(creating())?;
        let tap = Tap {
            items,
            began: Instant::now(),
            lost: Arc::default(),
        };
        Ok(Self {
            tap,
            path: path.into(),
            thread,
        })
    }

    /// Where the snapshots go.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// Writes what is waiting and ends the recording; snapshots that come later are not in it.
    ///
    /// # Errors
    /// What went wrong with the disk, now or earlier. The frames written before are whole.
    pub fn finish(self) -> Result<Summary, RecordingError> {
        // A writer that has failed takes nothing any more, and says why below.
        let _ = self.tap.items.send(Item::End);
        let ended = self
            .thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the recorder's thread failed")));
        let mut summary = ended.map_err(RecordingError::io(&self.path, "writing the recording"))?;
        summary.lost = self.tap.lost.load(Ordering::Relaxed);
        Ok(summary)
    }
}

impl Tap {
    /// Gives a snapshot to the recording. Never waits: with a disk that is too slow it is lost, and counted.
    pub fn offer(&self, snapshot: &Arc<Snapshot>) {
        let item = Item::Frame(self.began.elapsed(), Arc::clone(snapshot));
        if let Err(TrySendError::Full(_)) = self.items.try_send(item) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The writing side, on its own thread.
struct Writer {
    file: File,
    encoder: Encoder,
    summary: Summary,
    /// The newest snapshot that is not written yet.
    pending: Option<(Duration, Arc<Snapshot>)>,
    next_frame: Instant,
    /// Since when something waits for the disk to keep it.
    unsynced: Option<Instant>,
}

impl Writer {
    fn run(mut self, items: &Receiver<Item>) -> io::Result<Summary> {
        loop {
            match self.next(items) {
                Ok(Item::Frame(at, snapshot)) => {
                    let replaced = self.pending.replace((at, snapshot));
                    self.summary.thinned += u64::from(replaced.is_some());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.write_pending()?;
                    self.file.sync_data()?;
                    return Ok(self.summary);
                }
            }
            let now = Instant::now();
            if now >= self.next_frame {
                self.write_pending()?;
            }
            if self.unsynced.is_some_and(|since| now >= since + SYNC_EVERY) {
                self.file.sync_data()?;
                self.unsynced = None;
            }
        }
    }

    /// Waits for the next item, not beyond the time when something is due.
    fn next(&self, items: &Receiver<Item>) -> Result<Item, RecvTimeoutError> {
        let frame = self.pending.as_ref().map(|_| self.next_frame);
        let sync = self.unsynced.map(|since| since + SYNC_EVERY);
        match frame.into_iter().chain(sync).min() {
            Some(due) => items.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => items.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let Some((at, snapshot)) = self.pending.take() else {
            return Ok(());
        };
        let began = Instant::now();
        let at = at.max(self.summary.duration);
        let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let encoded = self.encoder.encode(&snapshot)?;
        let Some(frame) = encoded.and_then(|(kind, p)| format::frame(kind, millis, &p)) else {
            self.summary.too_large += 1;
            return Ok(());
        };
        self.append(&frame)?;
        self.summary.frames += 1;
        self.summary.duration = at;
        self.unsynced.get_or_insert(began);
        let room = Duration::from_secs_f64(frame.len() as f64 / BYTES_PER_SECOND);
        let pause = (began.elapsed() * COST)
            .max(room)
            .clamp(FRAME_EVERY, FRAME_WITHIN);
        self.next_frame = began + pause;
        Ok(())
    }

    /// Appends all of `frame` or, as far as the system lets, nothing.
    fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        if let Err(e) = self.file.write_all(frame) {
            // A full disk: a reader would drop the torso too, so a failure here loses nothing.
            let _ = self.file.set_len(self.summary.bytes);
            return Err(e);
        }
        self.summary.bytes += frame.len() as u64;
        Ok(())
    }
}
