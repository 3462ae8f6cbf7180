//! Reads a recording: finds the frames by their heads, decodes those that are asked for.

use super::RecordingError;
use super::fields::{Change, Fields};
use super::format::{
    FRAME_HEAD, Head, Header, Kind, MAX_FRAMES, MAX_JSON, MAX_MILLIS, MAX_PAYLOAD, fill,
    read_header,
};
use crate::session::snapshot::Snapshot;
use flate2::read::DeflateDecoder;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Decoded frames that are kept: stepping back and forth decodes nothing anew.
const KEPT: usize = 4;
/// Bytes checked at a time.
const PIECE: u64 = 1 << 16;

/// Where a frame is.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Of its payload, from the start of the file.
    offset: u64,
    head: Head,
    /// As in the head, but never before the frame before.
    millis: u64,
    /// The key frame it is based on; itself for a key frame.
    key: u32,
}

/// The key frame used last.
struct KeyFrame {
    index: u32,
    /// CRC-32 of its payload: changes name their key by it.
    crc: u32,
    fields: Fields,
}

/// A recording, open for reading.
pub struct Recording<R = BufReader<File>> {
    input: R,
    path: PathBuf,
    generator: String,
    entries: Vec<Entry>,
    notes: Vec<String>,
    key: Option<KeyFrame>,
    decoded: VecDeque<(usize, Arc<Snapshot>)>,
}

impl Recording {
    /// Opens the file at `path` and checks all of it.
    ///
    /// # Errors
    /// A file that cannot be opened or is no recording, or one without a whole frame. A damaged or cut-off frame is no
    /// error: see [`Self::notes`].
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let opening = || RecordingError::io(path, "opening the recording");
        // Before it is opened: to open a pipe would wait for its other end.
        if !std::fs::metadata(path).map_err(opening())?.is_file() {
            return Err(RecordingError::NotARecording(path.into()));
        }
        let file = File::open(path).map_err(opening())?;
        Self::read(BufReader::with_capacity(PIECE as usize, file), path)
    }
}

impl<R: Read + Seek> Recording<R> {
    /// Reads a recording from `input`; errors call it `path`.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn read(mut input: R, path: &Path) -> Result<Self, RecordingError> {
        let failed = || RecordingError::io(path, "reading the recording");
        let (generator, start) = match read_header(&mut input).map_err(failed())? {
            Header::Good { generator, length } => (generator, length),
            Header::NotARecording => return Err(RecordingError::NotARecording(path.into())),
            Header::Damaged => return Err(RecordingError::Header(path.into())),
            Header::Version(version) => {
                return Err(RecordingError::Version {
                    path: path.into(),
                    version,
                });
            }
        };
        let mut scan = Scan::default();
        scan.run(&mut input, start).map_err(failed())?;
        if scan.entries.is_empty() {
            return Err(RecordingError::Empty(path.into()));
        }
        Ok(Self {
            input,
            path: path.into(),
            generator,
            entries: scan.entries,
            notes: scan.notes,
            key: None,
            decoded: VecDeque::new(),
        })
    }

    /// Program and version that wrote it.
    pub fn generator(&self) -> &str {
        &self.generator
    }

    /// What was found damaged, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Takes the notes away: whoever did says them.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Frames that are whole; at least one.
    pub fn frames(&self) -> usize {
        self.entries.len()
    }

    /// When frame `index` was taken, since the recording's start; the last one's for an index beyond it.
    pub fn time(&self, index: usize) -> Duration {
        self.entries
            .get(index)
            .or(self.entries.last())
            .map_or(Duration::ZERO, |e| Duration::from_millis(e.millis))
    }

    /// When the last frame was taken.
    pub fn duration(&self) -> Duration {
        self.time(usize::MAX)
    }

    /// The frame that shows at `time`: the last one taken by then, the first before any.
    pub fn frame_at(&self, time: Duration) -> usize {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.entries
            .partition_point(|e| e.millis <= millis)
            .saturating_sub(1)
    }

    /// Decodes frame `index`.
    ///
    /// # Errors
    /// [`RecordingError::Frame`] for one that is not what it should be or beyond the last, [`RecordingError::Io`].
    pub fn frame(&mut self, index: usize) -> Result<Arc<Snapshot>, RecordingError> {
        if let Some((_, snapshot)) = self.decoded.iter().find(|(i, _)| *i == index) {
            return Ok(Arc::clone(snapshot));
        }
        let bad = |why: String| RecordingError::Frame { frame: index, why };
        let entry = self
            .entries
            .get(index)
            .copied()
            .ok_or_else(|| bad("there is no such frame".into()))?;
        let snapshot = Arc::new(self.decode(entry).map_err(bad)?);
        self.decoded.truncate(KEPT - 1);
        self.decoded.push_front((index, Arc::clone(&snapshot)));
        Ok(snapshot)
    }

    fn decode(&mut self, entry: Entry) -> Result<Snapshot, String> {
        let change = match entry.head.kind {
            Some(Kind::Change) => Some(self.payload(entry)?),
            _ => None,
        };
        let key = self.key_frame(entry.key)?;
        let Some(change) = change else {
            return key.fields.snapshot();
        };
        let change: Change = parse(&inflate(&change)?)?;
        if change.base != key.crc {
            return Err("the key frame that it is about is damaged".into());
        }
        key.fields.with(change)?.snapshot()
    }

    fn key_frame(&mut self, index: u32) -> Result<&KeyFrame, String> {
        let key = match self.key.take().filter(|k| k.index == index) {
            Some(key) => key,
            None => {
                let entry = self.entries.get(index as usize).copied();
                let payload = self.payload(entry.ok_or("its key frame is gone")?)?;
                KeyFrame {
                    index,
                    crc: crc32fast::hash(&payload),
                    fields: parse(&inflate(&payload)?)?,
                }
            }
        };
        Ok(self.key.insert(key))
    }

    /// The payload of a frame, checked again: the file may have changed since it was opened.
    fn payload(&mut self, entry: Entry) -> Result<Vec<u8>, String> {
        let mut payload = vec![0; entry.head.length as usize];
        let read = self
            .input
            .seek(SeekFrom::Start(entry.offset))
            .and_then(|_| fill(&mut self.input, &mut payload))
            .map_err(|e| format!("{}: {e}", self.path.display()))?;
        if !read || !entry.head.fits(&payload) {
            return Err("the file changed while it was read".into());
        }
        Ok(payload)
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|e| e.to_string())
}

fn inflate(payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut json = Vec::new();
    DeflateDecoder::new(payload)
        .take(MAX_JSON as u64 + 1)
        .read_to_end(&mut json)
        .map_err(|e| format!("it does not decompress: {e}"))?;
    if json.len() > MAX_JSON {
        return Err(format!("it decompresses to more than {MAX_JSON} bytes"));
    }
    Ok(json)
}

/// The search for frames.
#[derive(Default)]
struct Scan {
    entries: Vec<Entry>,
    notes: Vec<String>,
    /// The last key frame, unless a damaged frame may have been one.
    key: Option<u32>,
    damaged: u64,
}

impl Scan {
    fn run(&mut self, input: &mut (impl Read + Seek), start: u64) -> io::Result<()> {
        let end = input.seek(SeekFrom::End(0))?;
        input.seek(SeekFrom::Start(start))?;
        let mut at = start;
        let mut piece = Vec::new();
        while at < end {
            if self.entries.len() == MAX_FRAMES {
                self.notes
                    .push(format!("only the first {MAX_FRAMES} frames are read"));
                break;
            }
            let mut head = [0; FRAME_HEAD];
            let head = if fill(input, &mut head)? {
                Some(Head::parse(&head))
            } else {
                None
            };
            let next = head.map(|h| at + FRAME_HEAD as u64 + u64::from(h.length));
            let (Some(head), Some(next)) = (head, next.filter(|n| *n <= end)) else {
                self.notes.push(cut_off(end - at));
                break;
            };
            if head.length == 0 && !head.fits(&[]) {
                // A file system that lost power leaves zeros.
                self.notes.push(cut_off(end - at));
                break;
            }
            if head.length > MAX_PAYLOAD {
                self.notes.push(lost(end - at));
                break;
            }
            piece.resize(head.length as usize, 0);
            if !fill(input, &mut piece)? {
                self.notes.push(cut_off(end - at));
                break;
            }
            if head.fits(&piece) {
                self.take(head, at + FRAME_HEAD as u64);
            } else if next == end {
                self.notes.push(cut_off(end - at));
            } else {
                self.damaged += 1;
                if head.kind != Some(Kind::Change) {
                    // It was the key of those that follow.
                    self.key = None;
                }
            }
            at = next;
        }
        if self.damaged > 0 {
            self.notes.push(format!(
                "{} frame{} damaged and left out",
                self.damaged,
                if self.damaged == 1 { " is" } else { "s are" }
            ));
        }
        Ok(())
    }

    fn take(&mut self, head: Head, offset: u64) {
        let index = self.entries.len() as u32;
        if head.kind == Some(Kind::Key) {
            self.key = Some(index);
        }
        let before = self.entries.last().map_or(0, |e| e.millis);
        match (head.kind, self.key) {
            (Some(_), Some(key)) if head.millis <= MAX_MILLIS => {
                self.entries.push(Entry {
                    offset,
                    head,
                    millis: head.millis.max(before),
                    key,
                });
            }
            _ => self.damaged += 1,
        }
    }
}

fn cut_off(bytes: u64) -> String {
    format!(
        "the last {bytes} bytes are of a frame that was not written to its end, and are left out"
    )
}

fn lost(bytes: u64) -> String {
    format!("the last {bytes} bytes are damaged and left out")
}
