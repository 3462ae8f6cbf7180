//! Metadata values.

use super::strings::Strings;
use serde::Serialize;

/// A metadata value. Integers and floats keep the width they have in the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// Float, 32 bits.
    F32(f32),
    /// Float, 64 bits.
    F64(f64),
    /// Boolean.
    Bool(bool),
    /// Text.
    String(String),
    /// A string that is not UTF-8, kept byte for byte: the file still opens, only asking for this key as text fails.
    Bytes(Vec<u8>),
    /// Values of one type.
    Array(Array),
}

/// An array of values of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Array {
    /// Unsigned, 8 bits.
    U8(Vec<u8>),
    /// Signed, 8 bits.
    I8(Vec<i8>),
    /// Unsigned, 16 bits.
    U16(Vec<u16>),
    /// Signed, 16 bits.
    I16(Vec<i16>),
    /// Unsigned, 32 bits.
    U32(Vec<u32>),
    /// Signed, 32 bits.
    I32(Vec<i32>),
    /// Unsigned, 64 bits.
    U64(Vec<u64>),
    /// Signed, 64 bits.
    I64(Vec<i64>),
    /// Floats, 32 bits.
    F32(Vec<f32>),
    /// Floats, 64 bits.
    F64(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Text, every element UTF-8.
    String(Strings),
    /// Strings of which at least one is not UTF-8, all kept byte for byte.
    Bytes(Vec<Vec<u8>>),
    /// Arrays, which may differ in type.
    Nested(Vec<Array>),
}

/// Runs `$body` with `$v` bound to the content of any integer variant, as `Option`.
macro_rules! on_integers {
    ($of:ident, $value:expr, $v:ident => $body:expr) => {
        match $value {
            $of::U8($v) => Some($body),
            $of::I8($v) => Some($body),
            $of::U16($v) => Some($body),
            $of::I16($v) => Some($body),
            $of::U32($v) => Some($body),
            $of::I32($v) => Some($body),
            $of::U64($v) => Some($body),
            $of::I64($v) => Some($body),
            _ => None,
        }
    };
}

impl Value {
    /// The type as a person would name it: `u32`, `string`, `an array of 3 f32`.
    pub fn type_name(&self) -> String {
        let name = match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F32(_) => "f32",
            Value::F64(_) => "f64",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Bytes(_) => "string (not UTF-8)",
            Value::Array(a) => return format!("an array of {} {}", a.len(), a.element_name()),
        };
        name.to_owned()
    }

    /// The value of any integer type, widened without loss.
    pub fn as_integer(&self) -> Option<i128> {
        on_integers!(Value, self, v => i128::from(*v))
    }

    /// The value of either float type; an `f64` is rounded to the nearest `f32`.
    pub fn as_f32(&self) -> Option<f32> {
        match self {
            Value::F32(v) => Some(*v),
            Value::F64(v) => Some(*v as f32),
            _ => None,
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Bytes(v) => v.len(),
            Array::Nested(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type's name, for example `f32`.
    pub fn element_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "u8",
            Array::I8(_) => "i8",
            Array::U16(_) => "u16",
            Array::I16(_) => "i16",
            Array::U32(_) => "u32",
            Array::I32(_) => "i32",
            Array::U64(_) => "u64",
            Array::I64(_) => "i64",
            Array::F32(_) => "f32",
            Array::F64(_) => "f64",
            Array::Bool(_) => "bool",
            Array::String(_) => "string",
            Array::Bytes(_) => "string (not UTF-8)",
            Array::Nested(_) => "array",
        }
    }

    /// The elements of any integer type converted to `T`; `None` when the elements are not integers,
    /// `Some(Err(value))` with the first element that does not fit.
    pub(super) fn integers<T: TryFrom<i128>>(&self) -> Option<Result<Vec<T>, i128>> {
        on_integers!(Array, self, v => v
            .iter()
            .map(|&x| T::try_from(i128::from(x)).map_err(|_| i128::from(x)))
            .collect())
    }
}
