//! The first eight bytes: what kind of file this is.

use super::error::GgufError;

/// Bytes of the magic number and the version together.
pub(super) const LEN: u64 = 8;

/// The version of a GGUF file, or what the file is instead.
pub(super) fn version(bytes: &[u8], file: &str) -> Result<u32, GgufError> {
    let file = || file.to_owned();
    if bytes.is_empty() {
        return Err(GgufError::Empty { file: file() });
    }
    if bytes.starts_with(b"FUGG") {
        return Err(GgufError::BigEndian { file: file() });
    }
    if !bytes.starts_with(b"GGUF") {
        let start = bytes.get(..bytes.len().min(8)).unwrap_or_default();
        let found = format!("\"{}\"", start.escape_ascii());
        return Err(GgufError::NotGguf {
            file: file(),
            found,
            hint: hint(bytes),
        });
    }
    let Some(raw) = bytes.get(4..).and_then(|rest| rest.first_chunk::<4>()) else {
        let found = format!("\"{}\" and ends there", bytes.escape_ascii());
        return Err(GgufError::NotGguf {
            file: file(),
            found,
            hint: CUT_SHORT,
        });
    };
    let version = u32::from_le_bytes(*raw);
    match version {
        2 | 3 => Ok(version),
        // Writers keep the magic's byte order and swap everything after it.
        v if v > 0xffff && v.swap_bytes() <= 0xffff => Err(GgufError::BigEndian { file: file() }),
        version => Err(GgufError::Version {
            file: file(),
            version,
        }),
    }
}

const CUT_SHORT: &str = ": it is cut short, download it again";

fn hint(bytes: &[u8]) -> &'static str {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"lmgg", OLD),
        (b"fmgg", OLD),
        (b"tjgg", OLD),
        (b"algg", OLD),
        (
            b"PK\x03\x04",
            ": it looks like a PyTorch checkpoint; convert the model with convert_hf_to_gguf.py",
        ),
        (
            b"version https://git-lfs",
            ": it is a Git LFS pointer, not the model; run `git lfs pull`",
        ),
        (
            b"<",
            ": it looks like a web page; download the model itself",
        ),
        (
            b"\x1f\x8b",
            ": it is compressed with gzip; decompress it first",
        ),
        (
            b"\x28\xb5\x2f\xfd",
            ": it is compressed with zstd; decompress it first",
        ),
    ];
    const OLD: &str = ": it is in the GGML format from before GGUF; convert the model again";
    if let Some((_, hint)) = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return hint;
    }
    if b"GGUF".starts_with(bytes) {
        return CUT_SHORT;
    }
    // A safetensors file is a header length, then a JSON object.
    if bytes.get(8) == Some(&b'{') {
        return ": it looks like a safetensors file; convert the model with convert_hf_to_gguf.py";
    }
    ""
}
