//! Metadata values as they are encoded.

use super::error::{Fault, Problem};
use super::reader::Reader;
use super::strings::Strings;
use super::value::{Array, Value};

/// Deepest nesting of arrays; no known writer nests at all.
const MAX_DEPTH: u32 = 4;

/// Element type numbers of the format document.
mod id {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// Reads a type number and a value of that type.
pub(super) fn read_value(r: &mut Reader<'_>) -> Result<Value, Fault> {
    let offset = r.offset();
    let ty = r.u32("the value's type")?;
    const WHAT: &str = "the value";
    Ok(match ty {
        id::U8 => Value::U8(u8::from_le_bytes(r.fixed(WHAT)?)),
        id::I8 => Value::I8(i8::from_le_bytes(r.fixed(WHAT)?)),
        id::U16 => Value::U16(u16::from_le_bytes(r.fixed(WHAT)?)),
        id::I16 => Value::I16(i16::from_le_bytes(r.fixed(WHAT)?)),
        id::U32 => Value::U32(u32::from_le_bytes(r.fixed(WHAT)?)),
        id::I32 => Value::I32(i32::from_le_bytes(r.fixed(WHAT)?)),
        id::F32 => Value::F32(f32::from_le_bytes(r.fixed(WHAT)?)),
        id::U64 => Value::U64(u64::from_le_bytes(r.fixed(WHAT)?)),
        id::I64 => Value::I64(i64::from_le_bytes(r.fixed(WHAT)?)),
        id::F64 => Value::F64(f64::from_le_bytes(r.fixed(WHAT)?)),
        id::BOOL => {
            let offset = r.offset();
            let [byte] = r.fixed(WHAT)?;
            Value::Bool(boolean(byte, offset)?)
        }
        id::STRING => match String::from_utf8(r.string(WHAT)?.to_vec()) {
            Ok(text) => Value::String(text),
            Err(e) => Value::Bytes(e.into_bytes()),
        },
        id::ARRAY => Value::Array(read_array(r, 1)?),
        id => {
            return Err(Fault {
                offset,
                problem: Problem::ValueType { id },
            });
        }
    })
}

fn boolean(byte: u8, offset: u64) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        byte => Err(Fault {
            offset,
            problem: Problem::Bool { byte },
        }),
    }
}

macro_rules! numbers {
    ($r:expr, $variant:ident, $t:ty) => {{
        const SIZE: usize = size_of::<$t>();
        let count = $r.count("array elements", SIZE as u64, SIZE as u64)?;
        let raw = $r.take(count as u64 * SIZE as u64, "the array")?;
        let (chunks, _) = raw.as_chunks::<SIZE>();
        Array::$variant(chunks.iter().map(|c| <$t>::from_le_bytes(*c)).collect())
    }};
}

fn read_array(r: &mut Reader<'_>, depth: u32) -> Result<Array, Fault> {
    let offset = r.offset();
    if depth > MAX_DEPTH {
        return Err(Fault {
            offset,
            problem: Problem::Depth { max: MAX_DEPTH },
        });
    }
    Ok(match r.u32("the array's element type")? {
        id::U8 => numbers!(r, U8, u8),
        id::I8 => numbers!(r, I8, i8),
        id::U16 => numbers!(r, U16, u16),
        id::I16 => numbers!(r, I16, i16),
        id::U32 => numbers!(r, U32, u32),
        id::I32 => numbers!(r, I32, i32),
        id::F32 => numbers!(r, F32, f32),
        id::U64 => numbers!(r, U64, u64),
        id::I64 => numbers!(r, I64, i64),
        id::F64 => numbers!(r, F64, f64),
        id::BOOL => read_booleans(r)?,
        id::STRING => read_strings(r)?,
        id::ARRAY => {
            let count = r.count("nested arrays", 4 + 8, size_of::<Array>() as u64)?;
            Array::Nested(
                (0..count)
                    .map(|_| read_array(r, depth + 1))
                    .collect::<Result<_, _>>()?,
            )
        }
        id => {
            return Err(Fault {
                offset,
                problem: Problem::ValueType { id },
            });
        }
    })
}

fn read_booleans(r: &mut Reader<'_>) -> Result<Array, Fault> {
    let count = r.count("array elements", 1, 1)?;
    let start = r.offset();
    let raw = r.take(count as u64, "the array")?;
    let booleans = raw
        .iter()
        .zip(start..)
        .map(|(&byte, offset)| boolean(byte, offset));
    Ok(Array::Bool(booleans.collect::<Result<_, _>>()?))
}

/// The list's slot, the slice it is read through, and what a vocabulary makes of it.
const STRING_MEMORY: u64 = (size_of::<String>() + size_of::<&[u8]>() + 24) as u64;

fn read_strings(r: &mut Reader<'_>) -> Result<Array, Fault> {
    let count = r.count("strings", 8, STRING_MEMORY)?;
    let raw = (0..count)
        .map(|_| r.string("a string of the array"))
        .collect::<Result<Vec<_>, _>>()?;
    let text: Result<Strings, _> = raw.iter().map(|s| std::str::from_utf8(s)).collect();
    Ok(match text {
        Ok(text) => Array::String(text),
        Err(_) => Array::Bytes(raw.into_iter().map(<[u8]>::to_vec).collect()),
    })
}
