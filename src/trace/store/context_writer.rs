//! Writes files of contexts, one window after the other.

use std::path::Path;

use super::context::{ContextStore, Fields};
use super::context_shape::{ContextShape, ENTRY, Encoding, HEAD, Layout, Tier};
use super::error::{Problem, StoreError};
use super::target::Target;
use super::template::Template;
use super::windows::{Progress, Window};

/// The vectors of a window.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContextVectors<'a> {
    /// The stream after [`ContextShape::residual_layer`].
    pub residual: &'a [f32],
    /// What came after attention in each critical layer; empty in tier 1.
    pub ffn_deltas: &'a [&'a [f32]],
    /// What attention added in each critical layer; empty in tiers 1 and 2.
    pub attn_deltas: &'a [&'a [f32]],
}

impl<'a> ContextVectors<'a> {
    /// All of them in the file's order, as a [`TemplateBuilder`](super::TemplateBuilder) takes them.
    pub fn slots(&self) -> impl Iterator<Item = &'a [f32]> {
        let deltas = self.ffn_deltas.iter().chain(self.attn_deltas);
        std::iter::once(self.residual).chain(deltas.copied())
    }
}

/// Writes a file of contexts. Memory: one window's bytes and the template, however many windows there are.
///
/// Dropped without [`finish`](Self::finish), a new file leaves no trace, and one appended to keeps every window.
#[derive(Debug)]
pub struct ContextWriter {
    target: Target,
    fields: Fields,
    list: Vec<u8>,
    template: Option<Template>,
    progress: Progress,
    /// Of the window being written, to write it with one call.
    bytes: Vec<u8>,
}

impl ContextWriter {
    /// Begins a new file, which takes the place of what is at `path` when it is finished. To keep every window as it comes,
    /// finish it empty and go on with [`append_to`](Self::append_to).
    ///
    /// With a template vectors are stored as int8 differences from it. The index has room for `max_boundaries` windows
    /// from the start: 24 bytes each, which take no disk space until they are used.
    ///
    /// # Errors
    /// A shape that makes no sense, a template of another shape, more than any file holds, another writer at work, and what
    /// the system refuses.
    pub fn create(
        path: &Path,
        shape: &ContextShape,
        max_boundaries: u32,
        template: Option<&Template>,
    ) -> Result<Self, StoreError> {
        let fail = |problem| StoreError::new(path, problem);
        shape.check().map_err(fail)?;
        if max_boundaries == 0 {
            return Err(fail(Problem::Shape {
                field: "max_boundaries",
                value: 0,
                must: "1 or more",
            }));
        }
        let encoding = match template {
            None => Encoding::F32,
            Some(template) => {
                fits(template, shape).map_err(fail)?;
                Encoding::TemplateInt8
            }
        };
        let list = shape.list();
        let layout = Layout::new(shape, encoding, list.len() as u64, max_boundaries)
            .ok_or_else(|| fail(Problem::Overflow))?;
        let template_bytes = template.map(|t| bytemuck::cast_slice(t.vectors()));
        let fields = Fields {
            version: 2,
            shape: shape.clone(),
            encoding,
            layout,
            n_boundaries: 0,
            total_tokens: 0,
            max_boundaries,
            template_sum: template_bytes.map_or(0, crc32fast::hash),
        };
        let progress = Progress {
            window_size: shape.window_size,
            max: max_boundaries,
            count: 0,
            total_tokens: 0,
            end: 0,
        };
        let mut writer = Self::over(Target::create(path)?, fields, template.cloned(), progress);
        writer.target.set_len(layout.data)?;
        writer.target.write_at(&writer.list, HEAD)?;
        if let Some(bytes) = template_bytes {
            writer.target.write_at(bytes, layout.template)?;
        }
        writer.write_head(progress)?;
        Ok(writer)
    }

    /// Goes on in a finished file, or in one that a killed writer left: what was not complete is cut off.
    ///
    /// # Errors
    /// As [`ContextStore::open`]; version 1, another writer at work, and what the system refuses.
    pub fn append_to(path: &Path) -> Result<Self, StoreError> {
        let target = Target::open(path)?;
        let store = ContextStore::open(path)?;
        if store.version() == 1 {
            return Err(StoreError::new(path, Problem::AppendToVersion1));
        }
        let (fields, progress) = store.state();
        let cut = store.dropped_bytes() > 0 || store.missing_boundaries() > 0;
        let template = store.template();
        drop(store);
        let mut writer = Self::over(target, fields, template, progress);
        if cut {
            writer.write_head(progress)?;
            writer.target.sync()?;
            writer.target.set_len(writer.data_end()?)?;
        }
        Ok(writer)
    }

    fn over(
        target: Target,
        fields: Fields,
        template: Option<Template>,
        progress: Progress,
    ) -> Self {
        Self {
            target,
            list: fields.shape.list(),
            fields,
            template,
            progress,
            bytes: Vec::new(),
        }
    }

    /// What is kept of each window.
    pub fn shape(&self) -> &ContextShape {
        &self.fields.shape
    }

    /// Windows so far.
    pub fn len(&self) -> u32 {
        self.progress.count
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.progress.count == 0
    }

    /// Stores a window. In a file appended to it is on the disk before the header counts it.
    ///
    /// # Errors
    /// Vectors of another number or width, with a template one that is not finite, a window of 0 or more than `window_size`
    /// tokens, one that begins before the last one ended, a full index, a failed write. The file then is as it was before.
    pub fn append(
        &mut self,
        token_offset: u32,
        window_tokens: u32,
        vectors: &ContextVectors<'_>,
    ) -> Result<(), StoreError> {
        let window = Window {
            token_offset,
            window_tokens,
        };
        self.encode(vectors).map_err(|p| self.fail(p))?;
        let after = self.progress.after(window).map_err(|p| self.fail(p))?;
        let at = self.data_end()?;
        let mut entry = [0; ENTRY as usize];
        let [low, high] = [at as u32, (at >> 32) as u32];
        let words = [token_offset, window_tokens, low, high];
        for (bytes, word) in entry.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.target.write_at(&self.bytes, at)?;
        let place = self.fields.layout.index + u64::from(self.progress.count) * ENTRY;
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
    /// A failed write. A new file then leaves what it would have replaced; one appended to keeps its windows.
    pub fn finish(self) -> Result<(), StoreError> {
        self.target.finish()
    }

    /// The window's bytes.
    fn encode(&mut self, vectors: &ContextVectors<'_>) -> Result<(), Problem> {
        let shape = &self.fields.shape;
        let n = shape.critical_layers.len();
        let (ffn, attn) = match shape.tier {
            Tier::One => (0, 0),
            Tier::Two => (n, 0),
            Tier::Three | Tier::Four => (n, n),
        };
        for (what, got, wanted) in [
            ("FFN deltas", vectors.ffn_deltas.len(), ffn),
            ("attention deltas", vectors.attn_deltas.len(), attn),
        ] {
            if got != wanted {
                return Err(Problem::Vectors { what, got, wanted });
            }
        }
        self.bytes.clear();
        for (slot, vector) in vectors.slots().enumerate() {
            if vector.len() as u64 != u64::from(shape.hidden_size) {
                return Err(Problem::Width {
                    got: vector.len(),
                    wanted: shape.hidden_size,
                });
            }
            let Some(template) = &self.template else {
                self.bytes.extend_from_slice(bytemuck::cast_slice(vector));
                continue;
            };
            let stored = template.encode(slot, vector)?;
            self.bytes.extend_from_slice(&stored.scale.to_le_bytes());
            self.bytes
                .extend_from_slice(bytemuck::cast_slice(&stored.values));
            self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        }
        Ok(())
    }

    fn write_head(&mut self, progress: Progress) -> Result<(), StoreError> {
        self.fields.n_boundaries = progress.count;
        self.fields.total_tokens = progress.total_tokens;
        let head = self.fields.write(&self.list);
        self.target.write_at(&head.0, 0)
    }

    fn data_end(&self) -> Result<u64, StoreError> {
        let end = self.fields.layout.end(self.progress.count);
        end.ok_or_else(|| self.fail(Problem::Overflow))
    }

    fn fail(&self, problem: Problem) -> StoreError {
        StoreError::new(self.target.path(), problem)
    }
}

fn fits(template: &Template, shape: &ContextShape) -> Result<(), Problem> {
    if template.width() as u64 != u64::from(shape.hidden_size) {
        return Err(Problem::Width {
            got: template.width(),
            wanted: shape.hidden_size,
        });
    }
    if template.slots() != shape.vectors() {
        return Err(Problem::Vectors {
            what: "the template",
            got: template.slots(),
            wanted: shape.vectors(),
        });
    }
    Ok(())
}
