//! From snapshots to payloads: every so often a whole one, between them what changed.

use super::fields::Fields;
use super::format::{Kind, MAX_JSON};
use super::round::to_nanoseconds;
use crate::session::snapshot::Snapshot;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Write};

/// Frames from one whole snapshot to the next: a jump decodes two frames, and a damaged one spoils at most so many.
const KEY_EVERY: u32 = 100;
/// A fast one: it runs beside the model that is measured.
const LEVEL: u32 = 2;

/// The last key frame.
struct Key {
    /// CRC-32 of its payload.
    crc: u32,
    /// Bytes of its JSON.
    length: usize,
    fields: Fields,
}

/// Turns snapshots into payloads.
#[derive(Default)]
pub(super) struct Encoder {
    key: Option<Key>,
    since_key: u32,
}

impl Encoder {
    /// The payload of `snapshot`; `None` for one with more JSON than is read.
    pub(super) fn encode(&mut self, snapshot: &Snapshot) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let mut snapshot = snapshot.clone();
        to_nanoseconds(&mut snapshot);
        let fields = Fields::of(&snapshot)?;
        if let Some(key) = self.key.as_ref().filter(|_| self.since_key < KEY_EVERY) {
            let change = serde_json::to_vec(&key.fields.change(key.crc, &fields))?;
            // A change that says more than its key: the key is of a time when little was known.
            if change.len() <= key.length {
                self.since_key += 1;
                return Ok(Some((Kind::Change, deflate(&change)?)));
            }
        }
        let json = serde_json::to_vec(&fields)?;
        if json.len() > MAX_JSON {
            return Ok(None);
        }
        let payload = deflate(&json)?;
        self.key = Some(Key {
            crc: crc32fast::hash(&payload),
            length: json.len(),
            fields,
        });
        self.since_key = 1;
        Ok(Some((Kind::Key, payload)))
    }
}

fn deflate(json: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = DeflateEncoder::new(Vec::with_capacity(json.len() / 4), Compression::new(LEVEL));
    out.write_all(json)?;
    out.finish()
}
