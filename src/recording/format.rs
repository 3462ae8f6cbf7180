//! The bytes of a recording, all numbers little-endian.
//!
//! Header: [`MAGIC`], version `u32`, length of the generator's name `u32`, that name (UTF-8), CRC-32 of all of it `u32`.
//! Then frames, one after another, only ever appended: length of the payload `u32`, CRC-32 `u32` of the 12 bytes that follow
//! and the payload, milliseconds since the recording's start `u64`, kind `u32`, payload. A payload is raw DEFLATE (RFC 1951)
//! over JSON: of a key frame the whole snapshot, of a change what differs from the key frame before it.

use std::io::{self, Read};

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"cbtoprec";
/// Raised when an older reader would misread; fields that a snapshot gains do not raise it.
pub const VERSION: u32 = 1;
/// Longest payload, bytes.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Longest JSON of a frame, bytes; also of a snapshot put together again.
pub const MAX_JSON: usize = 32 << 20;
/// Most frames of a recording: four days at ten a second.
pub const MAX_FRAMES: usize = 1 << 22;
/// Latest time of a frame, milliseconds: a hundred years.
pub const MAX_MILLIS: u64 = 100 * 366 * 86_400_000;
/// Bytes of a frame before its payload.
pub const FRAME_HEAD: usize = 20;

const MAX_GENERATOR: usize = 256;

/// What the payload of a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole snapshot.
    Key,
    /// What changed since the last key frame.
    Change,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Self::Key => 1,
            Self::Change => 2,
        }
    }

    fn of(code: u32) -> Option<Self> {
        [Self::Key, Self::Change]
            .into_iter()
            .find(|k| k.code() == code)
    }
}

/// The head of a frame as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the payload.
    pub length: u32,
    /// Milliseconds since the recording's start.
    pub millis: u64,
    /// What the payload is; `None` for a kind of a later version.
    pub kind: Option<Kind>,
    crc: u32,
    /// CRC of what of the head it covers.
    begun: u32,
}

impl Head {
    /// The parts of a head. Any bytes are one; whether they make sense shows in `length` and [`Self::fits`].
    pub fn parse(bytes: &[u8; FRAME_HEAD]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let [m0, m1, m2, m3, m4, m5, m6, m7, k0, k1, k2, k3] = rest;
        Self {
            length: u32::from_le_bytes([a, b, c, d]),
            crc: u32::from_le_bytes([e, f, g, h]),
            millis: u64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]),
            kind: Kind::of(u32::from_le_bytes([k0, k1, k2, k3])),
            begun: crc32fast::hash(&rest),
        }
    }

    /// Whether `payload` is what the checksum was made of.
    pub fn fits(&self, payload: &[u8]) -> bool {
        let mut crc = crc32fast::Hasher::new_with_initial_len(self.begun, 12);
        crc.update(payload);
        crc.finalize() == self.crc
    }
}

/// A frame as it goes into the file; `None` when the payload is longer than [`MAX_PAYLOAD`].
pub fn frame(kind: Kind, millis: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|l| *l <= MAX_PAYLOAD)?;
    let mut covered = millis.to_le_bytes().to_vec();
    covered.extend(kind.code().to_le_bytes());
    covered.extend(payload);
    let mut bytes = Vec::with_capacity(FRAME_HEAD + payload.len());
    bytes.extend(length.to_le_bytes());
    bytes.extend(crc32fast::hash(&covered).to_le_bytes());
    bytes.extend(covered);
    Some(bytes)
}

/// The header of a file written by `generator`, of which at most 256 bytes are kept.
pub fn header(generator: &str) -> Vec<u8> {
    let mut name = String::new();
    for c in generator.chars() {
        if name.len() + c.len_utf8() > MAX_GENERATOR {
            break;
        }
        name.push(c);
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(name.bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// What the beginning of a file says.
#[derive(Debug, PartialEq, Eq)]
pub enum Header {
    /// A recording of this version, by this program; the header's length in bytes.
    Good {
        /// Program and version.
        generator: String,
        /// Bytes.
        length: u64,
    },
    /// Another kind of file.
    NotARecording,
    /// A recording of another version.
    Version(u32),
    /// Cut off or damaged.
    Damaged,
}

/// Reads the header.
///
/// # Errors
/// Those of `input`, its end apart.
pub fn read_header(input: &mut impl Read) -> io::Result<Header> {
    let mut bytes = vec![0; MAGIC.len()];
    if !fill(input, &mut bytes)? || bytes != MAGIC {
        return Ok(Header::NotARecording);
    }
    let mut word = [0; 4];
    let mut next = |bytes: &mut Vec<u8>| -> io::Result<Option<u32>> {
        let whole = fill(input, &mut word)?;
        bytes.extend(word);
        Ok(whole.then(|| u32::from_le_bytes(word)))
    };
    match next(&mut bytes)? {
        Some(VERSION) => {}
        Some(other) => return Ok(Header::Version(other)),
        None => return Ok(Header::Damaged),
    }
    let Some(length) = next(&mut bytes)?
        .map(|l| l as usize)
        .filter(|l| *l <= MAX_GENERATOR)
    else {
        return Ok(Header::Damaged);
    };
    let mut name = vec![0; length];
    let whole = fill(input, &mut name)? && fill(input, &mut word)?;
    bytes.extend(&name);
    if !whole || crc32fast::hash(&bytes) != u32::from_le_bytes(word) {
        return Ok(Header::Damaged);
    }
    Ok(match String::from_utf8(name) {
        Ok(generator) => Header::Good {
            generator,
            length: bytes.len() as u64 + 4,
        },
        Err(_) => Header::Damaged,
    })
}

/// Fills `bytes`; `false` where the input ends before.
///
/// # Errors
/// Those of `input`, its end apart.
pub fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
