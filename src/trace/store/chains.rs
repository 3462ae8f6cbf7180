//! Full chains (`TRAC`): for every token and layer the residual and what attention and the FFN added to it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::F32;
use super::error::{Problem, StoreError};
use super::head::{Head, open_file, read_head, settled};
use crate::gguf::Mapping;

pub(super) const MAGIC: [u8; 4] = *b"TRAC";
/// Bytes of the header; the first chain follows.
pub(super) const HEAD: u64 = 64;
/// Vectors of a waypoint.
pub(super) const KINDS: u64 = 3;

/// Which vector of a waypoint, in the file's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The stream after the layer.
    Residual,
    /// What attention added in the layer; zeros at layer 0.
    AttnDelta,
    /// What came after attention in the layer; zeros at layer 0.
    FfnDelta,
}

impl Kind {
    /// All three, in the file's order.
    pub const ALL: [Kind; 3] = [Kind::Residual, Kind::AttnDelta, Kind::FfnDelta];
}

/// Width and depth of chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub hidden_size: u32,
    pub n_layers: u32,
}

impl Shape {
    /// Vectors of a token's chain.
    pub fn vectors(self) -> u64 {
        (u64::from(self.n_layers) + 1) * KINDS
    }

    pub fn vector_bytes(self) -> u64 {
        u64::from(self.hidden_size) * F32
    }

    /// Where so many chains end; `None` beyond any file.
    pub fn end(self, tokens: u32) -> Option<u64> {
        u64::from(tokens)
            .checked_mul(self.vectors())?
            .checked_mul(self.vector_bytes())?
            .checked_add(HEAD)
            .filter(|&end| i64::try_from(end).is_ok())
    }

    /// The chains that are whole in a file of this length.
    pub fn whole(self, len: u64) -> Option<u64> {
        let chain = self.vectors().checked_mul(self.vector_bytes())?;
        len.saturating_sub(HEAD).checked_div(chain)
    }
}

/// The header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fields {
    pub version: u32,
    pub shape: Shape,
    pub n_tokens: u32,
    /// Where metadata stand, their length and checksum.
    pub meta: Option<(u64, u32, u32)>,
}

impl Fields {
    pub fn write(&self) -> Head<64> {
        let mut head = Head::new(MAGIC, self.version);
        head.put_u32(8, self.shape.hidden_size);
        head.put_u32(12, self.shape.n_layers);
        head.put_u32(16, self.n_tokens);
        if self.version == 1 {
            return head;
        }
        if let Some((offset, len, sum)) = self.meta {
            head.put_u64(24, offset);
            head.put_u32(32, len);
            head.put_u32(36, sum);
        }
        head.seal(&[])
    }

    fn read(head: &Head<64>) -> Result<Self, Problem> {
        let version = head.version();
        if version == 2 {
            head.check_seal(&[])?;
            head.check_unused(20, 24)?;
            head.check_unused(40, 60)?;
        }
        let shape = Shape {
            hidden_size: head.positive(8, "hidden_size")?,
            n_layers: head.positive(12, "n_layers")?,
        };
        let meta = match (version, head.u64(24)) {
            (1, _) | (_, 0) => None,
            (_, offset) => Some((offset, head.u32(32), head.u32(36))),
        };
        Ok(Self {
            version,
            shape,
            n_tokens: head.u32(16),
            meta,
        })
    }
}

/// A file of chains, open for reading. Shows what was complete when it was opened.
#[derive(Debug)]
pub struct TraceStore {
    path: PathBuf,
    map: Mapping,
    fields: Fields,
    n_tokens: u32,
    meta: Option<Vec<u8>>,
    meta_damaged: bool,
    dropped_bytes: u64,
}

impl TraceStore {
    /// Maps a file and checks it.
    ///
    /// A version-2 file whose length is not what its header says was left by a writer that was killed, or was cut: it
    /// opens with its whole chains, and [`dropped_bytes`](Self::dropped_bytes) and
    /// [`missing_tokens`](Self::missing_tokens) say what is not there. Version 1 cannot tell that from a wrong header, so
    /// there the length must match exactly.
    ///
    /// # Errors
    /// Any defect of header or length, and what the system refuses.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        settled(|| Self::open_once(path))
    }

    fn open_once(path: &Path) -> Result<Self, StoreError> {
        let fail = |problem| StoreError::new(path, problem);
        let file = open_file(path, false)?;
        let (head, len) = read_head(&file, path, MAGIC, "TRAC")?;
        let fields = Fields::read(&head).map_err(fail)?;
        let overflow = || fail(Problem::Overflow);
        let expected = fields.shape.end(fields.n_tokens).ok_or_else(overflow)?;
        if fields.version == 1 && len != expected {
            return Err(fail(Problem::Length { len, expected }));
        }
        let whole = fields.shape.whole(len).ok_or_else(overflow)?;
        let n_tokens = fields
            .n_tokens
            .min(u32::try_from(whole).unwrap_or(u32::MAX));
        let end = fields.shape.end(n_tokens).ok_or_else(overflow)?;
        let mut used = end;
        let mut meta = None;
        if let Some((offset, meta_len, sum)) = fields.meta {
            if offset < expected {
                return Err(fail(Problem::Field {
                    field: "meta_offset",
                    value: offset,
                    must: "after the last chain",
                }));
            }
            let meta_end = offset
                .checked_add(u64::from(meta_len))
                .ok_or_else(overflow)?;
            if meta_end <= len {
                used = meta_end;
                meta = read_meta(&file, offset, meta_len).filter(|m| crc32fast::hash(m) == sum);
            }
        }
        let mapped = usize::try_from(end).map_err(|_| overflow())?;
        let map = Mapping::first(&file, mapped).map_err(StoreError::io(path, "mapping"))?;
        Ok(Self {
            path: path.to_owned(),
            map,
            fields,
            n_tokens,
            meta_damaged: fields.meta.is_some() && meta.is_none(),
            meta,
            dropped_bytes: len.saturating_sub(used),
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

    /// Numbers of a vector.
    pub fn hidden_size(&self) -> u32 {
        self.fields.shape.hidden_size
    }

    /// Layers of the model; a chain has one waypoint more, layer 0 being the embedding.
    pub fn n_layers(&self) -> u32 {
        self.fields.shape.n_layers
    }

    /// Whole chains.
    pub fn n_tokens(&self) -> u32 {
        self.n_tokens
    }

    /// Bytes of header and whole chains.
    pub fn chain_bytes(&self) -> u64 {
        self.map.bytes().len() as u64
    }

    /// Bytes at the end that belong to nothing complete; 0 in a file that was finished.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Chains that the header counts and the file is too short for; 0 unless it was cut.
    pub fn missing_tokens(&self) -> u32 {
        self.fields.n_tokens - self.n_tokens
    }

    /// What its writer stored beside the chains, as bytes (cbtop: JSON). `None`: nothing, or it is damaged.
    pub fn meta(&self) -> Option<&[u8]> {
        self.meta.as_deref()
    }

    /// Whether there was something beside the chains that cannot be read any more.
    pub fn meta_damaged(&self) -> bool {
        self.meta_damaged
    }

    /// A vector of `hidden_size` numbers, straight from the map; `None` beyond the last token or layer.
    pub fn vector(&self, token: u32, layer: u32, kind: Kind) -> Option<&[f32]> {
        if token >= self.n_tokens || layer > self.n_layers() {
            return None;
        }
        let shape = self.fields.shape;
        let vector = u64::from(token) * shape.vectors() + u64::from(layer) * KINDS + kind as u64;
        let start = vector
            .checked_mul(shape.vector_bytes())?
            .checked_add(HEAD)?;
        let end = start.checked_add(shape.vector_bytes())?;
        floats(self.map.bytes(), start, end)
    }

    /// The stream of a token after a layer; 0 is the embedding.
    pub fn residual(&self, token: u32, layer: u32) -> Option<&[f32]> {
        self.vector(token, layer, Kind::Residual)
    }

    /// What attention added in a layer; zeros at layer 0.
    pub fn attn_delta(&self, token: u32, layer: u32) -> Option<&[f32]> {
        self.vector(token, layer, Kind::AttnDelta)
    }

    /// What came after attention in a layer; zeros at layer 0.
    pub fn ffn_delta(&self, token: u32, layer: u32) -> Option<&[f32]> {
        self.vector(token, layer, Kind::FfnDelta)
    }

    pub(super) fn shape(&self) -> Shape {
        self.fields.shape
    }

    pub(super) fn into_meta(self) -> Option<Vec<u8>> {
        self.meta
    }
}

/// Bytes of metadata that a file may hold.
pub(super) const MAX_META: u32 = 256 << 20;

/// Copied rather than mapped: a writer that appends writes over them.
fn read_meta(file: &File, offset: u64, len: u32) -> Option<Vec<u8>> {
    if len > MAX_META {
        return None;
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len as usize).ok()?;
    bytes.resize(len as usize, 0);
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Numbers between two places of a mapping; `None` where they are outside or not aligned.
pub(super) fn floats(bytes: &[u8], start: u64, end: u64) -> Option<&[f32]> {
    let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    bytemuck::try_cast_slice(bytes.get(range)?).ok()
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
