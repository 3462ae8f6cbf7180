//! Boundary residuals (`BNDX`): the stream at the end of each window of tokens.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::F32;
use super::chains::floats;
use super::error::{Problem, StoreError};
use super::head::{Head, open_file, read_head, settled};
use super::windows::{Order, Progress, Window, entry_at, find, u32_at};
use crate::gguf::Mapping;

pub(super) const MAGIC: [u8; 4] = *b"BNDX";
/// Bytes of the header; the index follows.
pub(super) const HEAD: u64 = 64;
/// Bytes of an index entry.
pub(super) const ENTRY: u64 = 16;

/// The header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fields {
    pub version: u32,
    pub hidden_size: u32,
    pub window_size: u32,
    pub n_boundaries: u32,
    pub total_tokens: u32,
    /// Entries that the index has room for; in version 1 it is not known, and this is `n_boundaries`.
    pub max_boundaries: u32,
}

impl Fields {
    pub fn write(&self) -> Head<64> {
        let mut head = Head::new(MAGIC, self.version);
        head.put_u32(8, self.hidden_size);
        head.put_u32(12, self.window_size);
        head.put_u32(16, self.n_boundaries);
        head.put_u32(20, self.total_tokens);
        head.put_u32(24, self.max_boundaries);
        head.seal(&[])
    }

    fn read(head: &Head<64>) -> Result<Self, Problem> {
        let version = head.version();
        let n_boundaries = head.u32(16);
        let mut max_boundaries = n_boundaries;
        if version == 2 {
            head.check_seal(&[])?;
            head.check_unused(28, 60)?;
            max_boundaries = head.u32(24);
            if n_boundaries > max_boundaries {
                return Err(Problem::Field {
                    field: "n_boundaries",
                    value: n_boundaries.into(),
                    must: "max_boundaries at most",
                });
            }
        }
        Ok(Self {
            version,
            hidden_size: head.positive(8, "hidden_size")?,
            window_size: match version {
                1 => head.u32(12),
                _ => head.positive(12, "window_size")?,
            },
            n_boundaries,
            total_tokens: head.u32(20),
            max_boundaries,
        })
    }

    pub fn vector_bytes(&self) -> u64 {
        u64::from(self.hidden_size) * F32
    }

    /// Where the index ends; version 2 has its data from there.
    pub fn data_start(&self) -> u64 {
        HEAD + u64::from(self.max_boundaries) * ENTRY
    }

    /// Where the data of version 2 end; `None` beyond any file.
    pub fn end(&self, boundaries: u32) -> Option<u64> {
        u64::from(boundaries)
            .checked_mul(self.vector_bytes())?
            .checked_add(self.data_start())
            .filter(|&end| i64::try_from(end).is_ok())
    }
}

/// A file of boundary residuals, open for reading. Shows what was complete when it was opened.
#[derive(Debug)]
pub struct BoundaryStore {
    path: PathBuf,
    map: Mapping,
    fields: Fields,
    count: u32,
    sorted: bool,
    dropped_bytes: u64,
    progress: Progress,
}

impl BoundaryStore {
    /// Maps a file and checks it, every index entry too.
    ///
    /// A version-2 file that a killed writer left, or that was cut, opens with its whole boundaries:
    /// [`dropped_bytes`](Self::dropped_bytes) and [`missing_boundaries`](Self::missing_boundaries) say what is not there.
    ///
    /// # Errors
    /// Any defect of header, index or length, and what the system refuses.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        settled(|| Self::open_once(path))
    }

    fn open_once(path: &Path) -> Result<Self, StoreError> {
        let fail = |problem| StoreError::new(path, problem);
        let file = open_file(path, false)?;
        let (head, len) = read_head(&file, path, MAGIC, "BNDX")?;
        let fields = Fields::read(&head).map_err(fail)?;
        let needed = fields.data_start();
        if len < needed {
            return Err(fail(Problem::TooShort { len, needed }));
        }
        let mapped = usize::try_from(len).map_err(|_| fail(Problem::Overflow))?;
        let map = Mapping::first(&file, mapped).map_err(StoreError::io(path, "mapping"))?;
        let mut store = Self {
            path: path.to_owned(),
            map,
            fields,
            count: 0,
            sorted: true,
            dropped_bytes: 0,
            progress: Progress {
                window_size: fields.window_size,
                max: fields.max_boundaries,
                count: 0,
                total_tokens: 0,
                end: 0,
            },
        };
        store.check(len).map_err(fail)?;
        Ok(store)
    }

    /// Goes through the index, and counts the boundaries that are whole.
    fn check(&mut self, len: u64) -> Result<(), Problem> {
        let strict = self.fields.version > 1;
        let mut order = Order::new();
        let mut used = self.fields.data_start();
        for entry in 0..self.fields.n_boundaries {
            let wrong = |what| Problem::Entry { entry, what };
            let window = self.window_at(entry).ok_or(wrong("it is not there"))?;
            let data = self.data_offset(entry).ok_or(wrong("it is not there"))?;
            let end = data
                .checked_add(self.fields.vector_bytes())
                .ok_or(wrong("its data lie beyond any file"))?;
            if data % F32 != 0 {
                return Err(wrong("its data are not aligned to 4 bytes"));
            }
            if data < self.fields.data_start() {
                return Err(wrong("its data lie within header or index"));
            }
            if strict {
                if Some(data) != self.fields.end(entry) {
                    return Err(wrong("its data do not follow those before"));
                }
                self.progress = self
                    .progress
                    .after(window)
                    .map_err(|_| wrong("its tokens do not follow those before"))?;
                if end > len {
                    // All entries after it lie beyond the end too.
                    break;
                }
            } else if end > len {
                return Err(wrong("its data lie beyond the end of the file"));
            }
            order.take(window);
            used = used.max(end);
            self.count = entry + 1;
        }
        self.sorted = order.sorted;
        if strict {
            let whole = self.count == self.fields.n_boundaries;
            if whole && self.progress.total_tokens != self.fields.total_tokens {
                return Err(Problem::Field {
                    field: "total_tokens",
                    value: self.fields.total_tokens.into(),
                    must: "the sum of the windows' tokens",
                });
            }
            self.dropped_bytes = len.saturating_sub(used);
        }
        Ok(())
    }

    fn window_at(&self, entry: u32) -> Option<Window> {
        let at = entry_at(HEAD, ENTRY, entry)?;
        Some(Window {
            token_offset: u32_at(self.map.bytes(), at)?,
            window_tokens: u32_at(self.map.bytes(), at + 4)?,
        })
    }

    /// Absolute; version 2 has its high half where version 1 has nothing.
    fn data_offset(&self, entry: u32) -> Option<u64> {
        let at = entry_at(HEAD, ENTRY, entry)?;
        let low = u64::from(u32_at(self.map.bytes(), at + 8)?);
        let high = match self.fields.version {
            1 => 0,
            _ => u64::from(u32_at(self.map.bytes(), at + 12)?),
        };
        Some(high << 32 | low)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Version of the layout, 1 or 2.
    pub fn version(&self) -> u32 {
        self.fields.version
    }

    /// Numbers of a residual.
    pub fn hidden_size(&self) -> u32 {
        self.fields.hidden_size
    }

    /// Tokens of a full window.
    pub fn window_size(&self) -> u32 {
        self.fields.window_size
    }

    /// Boundaries that are whole.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Most boundaries that the file can hold; `None` in version 1, which does not say.
    pub fn max_boundaries(&self) -> Option<u32> {
        (self.fields.version > 1).then_some(self.fields.max_boundaries)
    }

    /// Tokens of all windows; version 1: as its header says.
    pub fn total_tokens(&self) -> u64 {
        if self.fields.version == 1 {
            return self.fields.total_tokens.into();
        }
        let windows = (0..self.count).filter_map(|i| self.window_at(i));
        windows.map(|w| u64::from(w.window_tokens)).sum()
    }

    /// Bytes at the end that belong to nothing complete; 0 in a file that was finished, and in version 1, which cannot tell.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Boundaries that the header counts and the file is too short for; 0 unless it was cut.
    pub fn missing_boundaries(&self) -> u32 {
        self.fields.n_boundaries - self.count
    }

    /// A residual of `hidden_size` numbers, straight from the map; `None` beyond the last.
    pub fn residual(&self, i: u32) -> Option<&[f32]> {
        if i >= self.count {
            return None;
        }
        let start = self.data_offset(i)?;
        let end = start.checked_add(self.fields.vector_bytes())?;
        floats(self.map.bytes(), start, end)
    }

    /// The tokens of a window, its end excluded; `None` beyond the last.
    pub fn token_range(&self, i: u32) -> Option<Range<u64>> {
        (i < self.count)
            .then(|| self.window_at(i))?
            .map(Window::range)
    }

    /// The window that holds a token.
    pub fn boundary_for_token(&self, token: u32) -> Option<u32> {
        find(self.count, self.sorted, token, |i| self.window_at(i))
    }

    pub(super) fn fields(&self) -> Fields {
        self.fields
    }

    /// What a writer that goes on starts from.
    pub(super) fn progress(&self) -> Progress {
        let last = self.count.checked_sub(1).and_then(|i| self.token_range(i));
        Progress {
            count: self.count,
            // As `after` has checked for every window.
            total_tokens: u32::try_from(self.total_tokens()).unwrap_or(u32::MAX),
            end: last.map_or(0, |range| range.end),
            ..self.progress
        }
    }
}

#[cfg(test)]
#[path = "boundary_tests.rs"]
mod tests;
