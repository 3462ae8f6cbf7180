//! Contexts in tiers (`CTXT`): of each window of tokens a residual, and the deltas of critical layers after it.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::chains::floats;
use super::context_shape::{ContextShape, ENTRY, Encoding, HEAD, Layout, MAGIC};
use super::error::{Problem, StoreError};
use super::head::{Head, open_file, read_head, settled};
use super::template::{Template, decode};
use super::windows::{Checked, Index, Progress, Window, entry_at, find, u32_at, u64_at};
use crate::gguf::Mapping;

/// The header's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub version: u32,
    pub shape: ContextShape,
    pub encoding: Encoding,
    pub layout: Layout,
    pub n_boundaries: u32,
    pub total_tokens: u32,
    /// Entries that the index has room for; in version 1 it is not known, and this is `n_boundaries`.
    pub max_boundaries: u32,
    /// Checksum of the template; 0 without one.
    pub template_sum: u32,
}

impl Fields {
    /// The header of version 2 for a shape that was checked.
    pub fn write(&self, list: &[u8]) -> Head<128> {
        let mut head = Head::new(MAGIC, 2);
        head.put_u32(8, self.shape.hidden_size);
        head.put_u32(12, self.shape.n_layers);
        head.put_u32(16, self.shape.window_size);
        head.put(20, &[self.shape.tier as u8]);
        head.put_u32(32, self.n_boundaries);
        head.put_u32(36, self.total_tokens);
        head.put_u32(40, self.max_boundaries);
        head.put(44, &[self.encoding as u8]);
        // A list is checked against n_layers, which is a u32.
        head.put_u32(48, self.shape.critical_layers.len() as u32);
        head.put_u32(52, self.shape.residual_layer);
        head.put_u64(56, self.layout.index);
        if self.layout.template_bytes > 0 {
            head.put_u64(64, self.layout.template);
            head.put_u32(80, self.template_sum);
        }
        head.put_u64(72, self.layout.data);
        head.seal(list)
    }

    fn read_1(head: &Head<128>) -> Result<Self, Problem> {
        let shape = ContextShape::read_1(head)?;
        let n_boundaries = head.u32(32);
        let layout = Layout::new(&shape, Encoding::F32, 0, n_boundaries);
        Ok(Self {
            version: 1,
            layout: layout.ok_or(Problem::Overflow)?,
            shape,
            encoding: Encoding::F32,
            n_boundaries,
            total_tokens: head.u32(36),
            max_boundaries: n_boundaries,
            template_sum: 0,
        })
    }

    fn read_2(head: &Head<128>, list: &[u8]) -> Result<Self, Problem> {
        head.check_seal(list)?;
        for (from, to) in [(21, 32), (45, 48), (84, 124)] {
            head.check_unused(from, to)?;
        }
        let shape = ContextShape::read_2(head, list)?;
        let encoding = match head.get::<1>(44)[0] {
            0 => Encoding::F32,
            1 => Encoding::TemplateInt8,
            other => {
                return Err(Problem::Field {
                    field: "encoding",
                    value: other.into(),
                    must: "0 or 1",
                });
            }
        };
        let max_boundaries = head.u32(40);
        let layout = Layout::new(&shape, encoding, list.len() as u64, max_boundaries);
        let fields = Self {
            version: 2,
            layout: layout.ok_or(Problem::Overflow)?,
            shape,
            encoding,
            n_boundaries: head.u32(32),
            total_tokens: head.u32(36),
            max_boundaries,
            template_sum: head.u32(80),
        };
        if fields.n_boundaries > max_boundaries {
            return Err(Problem::Field {
                field: "n_boundaries",
                value: fields.n_boundaries.into(),
                must: "max_boundaries at most",
            });
        }
        // Places are told for readers that do not want to compute them; there is one right value.
        let expected = fields.write(list);
        for (at, field) in [
            (56, "index_offset"),
            (64, "template_offset"),
            (72, "data_offset"),
            (80, "template_crc32"),
        ] {
            if head.get::<4>(at) != expected.get(at)
                || head.get::<4>(at + 4) != expected.get(at + 4)
            {
                return Err(Problem::Field {
                    field,
                    value: head.u64(at),
                    must: "what follows from the sizes",
                });
            }
        }
        Ok(fields)
    }
}

/// A file of contexts, open for reading. Shows what was complete when it was opened.
#[derive(Debug)]
pub struct ContextStore {
    path: PathBuf,
    map: Mapping,
    fields: Fields,
    checked: Checked,
}

impl ContextStore {
    /// Maps a file and checks it, every index entry and the template too.
    ///
    /// A version-2 file that a killed writer left, or that was cut, opens with its whole windows:
    /// [`dropped_bytes`](Self::dropped_bytes) and [`missing_boundaries`](Self::missing_boundaries) say what is not there.
    ///
    /// # Errors
    /// Any defect of header, index, template or length, and what the system refuses.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        settled(|| Self::open_once(path))
    }

    fn open_once(path: &Path) -> Result<Self, StoreError> {
        let fail = |problem| StoreError::new(path, problem);
        let file = open_file(path, false)?;
        let (head, len) = read_head(&file, path, MAGIC, "CTXT")?;
        let fields = match head.version() {
            1 => Fields::read_1(&head),
            _ => read_list(&file, &head, len).and_then(|list| Fields::read_2(&head, &list)),
        }
        .map_err(fail)?;
        let needed = fields.layout.data;
        if len < needed {
            return Err(fail(Problem::TooShort { len, needed }));
        }
        let mapped = usize::try_from(len).map_err(|_| fail(Problem::Overflow))?;
        let map = Mapping::first(&file, mapped).map_err(StoreError::io(path, "mapping"))?;
        let bytes = map.bytes();
        if fields.encoding == Encoding::TemplateInt8 {
            let range = fields.layout.template as usize..fields.layout.data as usize;
            let sum = bytes.get(range).map(crc32fast::hash);
            if sum != Some(fields.template_sum) {
                return Err(fail(Problem::TemplateChecksum));
            }
        }
        let index = Index {
            version: fields.version,
            listed: fields.n_boundaries,
            total_tokens: fields.total_tokens,
            data_start: needed,
            item_bytes: fields.layout.window_bytes,
            len,
        };
        let (start, window_size) = (fields.layout.index, fields.shape.window_size);
        let checked = index
            .check(window_size, fields.max_boundaries, |i| {
                Some((window(bytes, start, i)?, data_offset(bytes, start, i)?))
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

    /// What is kept of each window.
    pub fn shape(&self) -> &ContextShape {
        &self.fields.shape
    }

    /// How vectors are stored.
    pub fn encoding(&self) -> Encoding {
        self.fields.encoding
    }

    /// Windows that are whole.
    pub fn len(&self) -> u32 {
        self.checked.progress.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most windows that the file can hold; `None` in version 1, which does not say.
    pub fn max_boundaries(&self) -> Option<u32> {
        (self.fields.version > 1).then_some(self.fields.max_boundaries)
    }

    /// Tokens of all windows; version 1: as its header says.
    pub fn total_tokens(&self) -> u64 {
        self.checked.progress.total_tokens.into()
    }

    /// Bytes that a window takes, without its index entry.
    pub fn window_bytes(&self) -> u64 {
        self.fields.layout.window_bytes
    }

    /// Bytes at the end that belong to nothing complete; 0 in a file that was finished, and in version 1, which cannot tell.
    pub fn dropped_bytes(&self) -> u64 {
        self.checked.dropped_bytes
    }

    /// Windows that the header counts and the file is too short for; 0 unless it was cut.
    pub fn missing_boundaries(&self) -> u32 {
        self.fields.n_boundaries - self.len()
    }

    /// The tokens of a window, its end excluded; `None` beyond the last.
    pub fn token_range(&self, i: u32) -> Option<Range<u64>> {
        self.window(i).map(Window::range)
    }

    /// The window that holds a token.
    pub fn boundary_for_token(&self, token: u32) -> Option<u32> {
        find(self.len(), self.checked.sorted, token, |i| self.window(i))
    }

    /// The residual of a window, after layer [`ContextShape::residual_layer`]: straight from the map where it is stored as
    /// f32, else decoded. `None` beyond the last window.
    pub fn residual(&self, i: u32) -> Option<Cow<'_, [f32]>> {
        self.slot(i, 0)
    }

    /// What came after attention in a critical layer; `None` beyond the last window and for a layer that is not kept.
    pub fn ffn_delta(&self, i: u32, layer: u32) -> Option<Cow<'_, [f32]>> {
        self.slot(i, 1 + self.critical(layer)?)
    }

    /// What attention added in a critical layer; `None` beyond the last window, and for a layer or in a tier without.
    pub fn attn_delta(&self, i: u32, layer: u32) -> Option<Cow<'_, [f32]>> {
        self.slot(
            i,
            1 + self.fields.shape.critical_layers.len() + self.critical(layer)?,
        )
    }

    /// A vector of a window by its place: the residual, the FFN deltas, the attention deltas.
    pub fn slot(&self, i: u32, slot: usize) -> Option<Cow<'_, [f32]>> {
        let layout = &self.fields.layout;
        if i >= self.len() || slot >= self.fields.shape.vectors() {
            return None;
        }
        let bytes = self.map.bytes();
        let start = data_offset(bytes, layout.index, i)?
            .checked_add(layout.vector_bytes.checked_mul(slot as u64)?)?;
        let end = start.checked_add(layout.vector_bytes)?;
        if self.fields.encoding == Encoding::F32 {
            return floats(bytes, start, end).map(Cow::Borrowed);
        }
        let (scale, values) = bytes
            .get(start as usize..end as usize)?
            .split_first_chunk()?;
        let width = self.fields.shape.hidden_size as usize;
        let mean = self.template_vectors()?.chunks_exact(width).nth(slot)?;
        let values = values.iter().take(width).map(|&b| b as i8);
        Some(Cow::Owned(decode(mean, f32::from_le_bytes(*scale), values)))
    }

    /// The residual after layer [`ContextShape::rebuilds`]: the stored one, and the deltas of each layer added to it in
    /// the order of a forward pass, attention before FFN, every sum rounded to f32. With f32 vectors it is the engine's
    /// own residual, bit by bit.
    ///
    /// # Errors
    /// A window that does not exist, a tier without attention deltas, layers with gaps.
    pub fn reconstruct(&self, i: u32) -> Result<Vec<f32>, StoreError> {
        let fail = |problem| StoreError::new(&self.path, problem);
        let shape = &self.fields.shape;
        if shape.rebuilds().is_none() {
            let why = match shape.tier {
                super::Tier::One | super::Tier::Two => "there are no attention deltas",
                _ => "layers are missing after the stored residual",
            };
            return Err(fail(Problem::NotRebuilt { why }));
        }
        let out_of_range = || {
            fail(Problem::OutOfRange {
                what: "window",
                index: i.into(),
                count: self.len().into(),
            })
        };
        let n = shape.critical_layers.len();
        let mut residual = self.residual(i).ok_or_else(out_of_range)?.into_owned();
        for layer in 0..n {
            for slot in [1 + n + layer, 1 + layer] {
                let delta = self.slot(i, slot).ok_or_else(out_of_range)?;
                for (x, d) in residual.iter_mut().zip(delta.iter()) {
                    *x += d;
                }
            }
        }
        Ok(residual)
    }

    /// The template of the file; `None` where vectors are stored as f32.
    pub fn template(&self) -> Option<Template> {
        let vectors = self.template_vectors()?;
        Some(Template::from_vectors(
            self.fields.shape.hidden_size,
            vectors,
        ))
    }

    fn template_vectors(&self) -> Option<&[f32]> {
        let layout = &self.fields.layout;
        (self.fields.encoding == Encoding::TemplateInt8)
            .then(|| floats(self.map.bytes(), layout.template, layout.data))?
    }

    fn critical(&self, layer: u32) -> Option<usize> {
        self.fields
            .shape
            .critical_layers
            .iter()
            .position(|&l| l == layer)
    }

    fn window(&self, i: u32) -> Option<Window> {
        (i < self.len()).then(|| window(self.map.bytes(), self.fields.layout.index, i))?
    }

    /// The fields, and what a writer that goes on starts from.
    pub(super) fn state(&self) -> (Fields, Progress) {
        (self.fields.clone(), self.checked.progress)
    }
}

/// The list of critical layers after a header of version 2, with its padding.
fn read_list(file: &File, head: &Head<128>, len: u64) -> Result<Vec<u8>, Problem> {
    let bytes = (u64::from(head.u32(48)) * 4).next_multiple_of(8);
    let needed = HEAD + bytes;
    let short = Problem::TooShort { len, needed };
    let mut list = Vec::new();
    let size = usize::try_from(bytes).map_err(|_| Problem::Overflow)?;
    if needed > len || list.try_reserve_exact(size).is_err() {
        return Err(short);
    }
    list.resize(size, 0);
    match file.read_exact_at(&mut list, HEAD) {
        Ok(()) => Ok(list),
        Err(_) => Err(short),
    }
}

fn window(file: &[u8], index: u64, entry: u32) -> Option<Window> {
    let at = entry_at(index, ENTRY, entry)?;
    Some(Window {
        token_offset: u32_at(file, at)?,
        window_tokens: u32_at(file, at + 4)?,
    })
}

fn data_offset(file: &[u8], index: u64, entry: u32) -> Option<u64> {
    u64_at(file, entry_at(index, ENTRY, entry)? + 8)
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
