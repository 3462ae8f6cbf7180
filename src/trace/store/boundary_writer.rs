//! Writes files of boundary residuals, one window after the other.

use std::path::Path;

use super::boundary::{BoundaryStore, ENTRY, Fields, HEAD};
use super::error::{Problem, StoreError};
use super::target::Target;
use super::windows::{Progress, Window};

/// Writes a file of boundary residuals. Keeps a few numbers in memory, however many boundaries there are.
///
/// Dropped without [`finish`](Self::finish), a new file leaves no trace, and one appended to keeps every boundary.
#[derive(Debug)]
pub struct BoundaryWriter {
    target: Target,
    fields: Fields,
    progress: Progress,
}

impl BoundaryWriter {
    /// Begins a new file, which takes the place of what is at `path` when it is finished. To keep every boundary as it
    /// comes, finish it empty and go on with [`append_to`](Self::append_to).
    ///
    /// The index has room for `max_boundaries` from the start: 16 bytes each, which take no disk space until they are
    /// used.
    ///
    /// # Errors
    /// A size of 0, more boundaries than any file holds, another writer at work, and what the system refuses.
    pub fn create(
        path: &Path,
        hidden_size: u32,
        window_size: u32,
        max_boundaries: u32,
    ) -> Result<Self, StoreError> {
        for (field, value) in [
            ("hidden_size", hidden_size),
            ("window_size", window_size),
            ("max_boundaries", max_boundaries),
        ] {
            if value == 0 {
                let problem = Problem::Shape {
                    field,
                    value: 0,
                    must: "1 or more",
                };
                return Err(StoreError::new(path, problem));
            }
        }
        let fields = Fields {
            version: 2,
            hidden_size,
            window_size,
            n_boundaries: 0,
            total_tokens: 0,
            max_boundaries,
        };
        if fields.end(max_boundaries).is_none() {
            return Err(StoreError::new(path, Problem::Overflow));
        }
        let writer = Self {
            target: Target::create(path)?,
            fields,
            progress: Progress {
                window_size,
                max: max_boundaries,
                count: 0,
                total_tokens: 0,
                end: 0,
            },
        };
        writer.target.set_len(fields.data_start())?;
        writer.write_head(writer.progress)?;
        Ok(writer)
    }

    /// Goes on in a finished file, or in one that a killed writer left: what was not complete is cut off.
    ///
    /// # Errors
    /// As [`BoundaryStore::open`]; version 1, another writer at work, and what the system refuses.
    pub fn append_to(path: &Path) -> Result<Self, StoreError> {
        let target = Target::open(path)?;
        let store = BoundaryStore::open(path)?;
        if store.version() == 1 {
            return Err(StoreError::new(path, Problem::AppendToVersion1));
        }
        let (fields, progress) = (store.fields(), store.progress());
        let cut = store.dropped_bytes() > 0 || store.missing_boundaries() > 0;
        drop(store);
        let writer = Self {
            target,
            fields,
            progress,
        };
        if cut {
            writer.write_head(progress)?;
            writer.target.sync()?;
            writer.target.set_len(writer.data_end()?)?;
        }
        Ok(writer)
    }

    /// Numbers of a residual.
    pub fn hidden_size(&self) -> u32 {
        self.fields.hidden_size
    }

    /// Boundaries so far.
    pub fn len(&self) -> u32 {
        self.progress.count
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.progress.count == 0
    }

    /// Stores the residual at the end of a window. In a file appended to it is on the disk before the header counts it.
    ///
    /// # Errors
    /// A residual of another width, a window of 0 or more than `window_size` tokens, one that begins before the last one
    /// ended, a full index, a failed write. The file then is as it was before.
    pub fn append(
        &mut self,
        token_offset: u32,
        window_tokens: u32,
        residual: &[f32],
    ) -> Result<(), StoreError> {
        if residual.len() as u64 != u64::from(self.fields.hidden_size) {
            return Err(self.fail(Problem::Width {
                got: residual.len(),
                wanted: self.fields.hidden_size,
            }));
        }
        let window = Window {
            token_offset,
            window_tokens,
        };
        let after = self.progress.after(window).map_err(|p| self.fail(p))?;
        let at = self.data_end()?;
        let mut entry = [0; ENTRY as usize];
        let [low, high] = [at as u32, (at >> 32) as u32];
        let words = [token_offset, window_tokens, low, high];
        for (bytes, word) in entry.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.target.write_at(bytemuck::cast_slice(residual), at)?;
        let place = HEAD + u64::from(self.progress.count) * ENTRY;
        self.target.write_at(&entry, place)?;
        if self.target.in_place() {
            self.target.sync()?;
        }
        self.write_head(after)?;
        self.progress = after;
        Ok(())
    }

    /// Ends the file; a new one takes its name. All is on the disk afterwards.
    ///
    /// # Errors
    /// A failed write. A new file then leaves what it would have replaced; one appended to keeps its boundaries.
    pub fn finish(self) -> Result<(), StoreError> {
        self.target.finish()
    }

    fn write_head(&self, progress: Progress) -> Result<(), StoreError> {
        let fields = Fields {
            n_boundaries: progress.count,
            total_tokens: progress.total_tokens,
            ..self.fields
        };
        self.target.write_at(&fields.write().0, 0)
    }

    fn data_end(&self) -> Result<u64, StoreError> {
        let end = self.fields.end(self.progress.count);
        end.ok_or_else(|| self.fail(Problem::Overflow))
    }

    fn fail(&self, problem: Problem) -> StoreError {
        StoreError::new(self.target.path(), problem)
    }
}
