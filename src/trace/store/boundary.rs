//! Boundary residuals (`BNDX`): the stream at the end of each window of tokens.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::F32;
use super::chains::floats;
use super::error::{Problem, StoreError};
use super::head::{Head, open_file, read_head, settled};
use super::windows::{Checked, Index, Progress, Window, entry_at, find, u32_at};
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
    checked: Checked,
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
        let index = Index {
            version: fields.version,
            listed: fields.n_boundaries,
            total_tokens: fields.total_tokens,
            data_start: needed,
            item_bytes: fields.vector_bytes(),
            len,
        };
        let bytes = map.bytes();
        let checked = index
            .check(fields.window_size, fields.max_boundaries, |i| {
                Some((window(bytes, i)?, data_offset(bytes, fields.version, i)?))
            })
            .map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            map,
            fields,
            checked,
        })
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
        self.checked.progress.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most boundaries that the file can hold; `None` in version 1, which does not say.
    pub fn max_boundaries(&self) -> Option<u32> {
        (self.fields.version > 1).then_some(self.fields.max_boundaries)
    }

    /// Tokens of all windows; version 1: as its header says.
    pub fn total_tokens(&self) -> u64 {
        self.checked.progress.total_tokens.into()
    }

    /// Bytes at the end that belong to nothing complete; 0 in a file that was finished, and in version 1, which cannot tell.
    pub fn dropped_bytes(&self) -> u64 {
        self.checked.dropped_bytes
    }

    /// Boundaries that the header counts and the file is too short for; 0 unless it was cut.
    pub fn missing_boundaries(&self) -> u32 {
        self.fields.n_boundaries - self.len()
    }

    /// A residual of `hidden_size` numbers, straight from the map; `None` beyond the last.
    pub fn residual(&self, i: u32) -> Option<&[f32]> {
        if i >= self.len() {
            return None;
        }
        let start = data_offset(self.map.bytes(), self.fields.version, i)?;
        let end = start.checked_add(self.fields.vector_bytes())?;
        floats(self.map.bytes(), start, end)
    }

    /// The tokens of a window, its end excluded; `None` beyond the last.
    pub fn token_range(&self, i: u32) -> Option<Range<u64>> {
        (i < self.len())
            .then(|| window(self.map.bytes(), i))?
            .map(Window::range)
    }

    /// The window that holds a token.
    pub fn boundary_for_token(&self, token: u32) -> Option<u32> {
        let bytes = self.map.bytes();
        find(self.len(), self.checked.sorted, token, |i| window(bytes, i))
    }

    pub(super) fn fields(&self) -> Fields {
        self.fields
    }

    /// What a writer that goes on starts from.
    pub(super) fn progress(&self) -> Progress {
        self.checked.progress
    }
}

fn window(file: &[u8], entry: u32) -> Option<Window> {
    let at = entry_at(HEAD, ENTRY, entry)?;
    Some(Window {
        token_offset: u32_at(file, at)?,
        window_tokens: u32_at(file, at + 4)?,
    })
}

/// Absolute; version 2 has its high half where version 1 has nothing.
fn data_offset(file: &[u8], version: u32, entry: u32) -> Option<u64> {
    let at = entry_at(HEAD, ENTRY, entry)?;
    let low = u64::from(u32_at(file, at + 8)?);
    let high = match version {
        1 => 0,
        _ => u64::from(u32_at(file, at + 12)?),
    };
    Some(high << 32 | low)
}

#[cfg(test)]
#[path = "boundary_tests.rs"]
mod tests;
