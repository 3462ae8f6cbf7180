//! Metadata by key and type. Absent is `Ok(None)`; a wrong type or a value out of range is an error that names the key.

use super::Gguf;
use super::error::{GgufError, quote};
use super::strings::Strings;
use super::value::{Array, Value};

const INTEGER: &str = "an unsigned integer";
const INTEGERS: &str = "an integer or an array of integers";

impl Gguf {
    /// An integer of any width that fits in a `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        integer(self.file(), key, self.get(key))
    }

    /// An integer of any width that is not negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        integer(self.file(), key, self.get(key))
    }

    /// A float of either width, as `f32`.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", Value::as_f32)
    }

    /// A boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a boolean", |value| match value {
            Value::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// A string; one that is not UTF-8 is an error.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a UTF-8 string", |value| match value {
            Value::String(s) => Some(s.as_str()),
            _ => None,
        })
    }

    /// An array of strings, such as the vocabulary; one with an element that is not UTF-8 is an error.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, GgufError> {
        self.typed(key, "an array of UTF-8 strings", |value| match value {
            Value::Array(Array::String(v)) => Some(v),
            _ => None,
        })
    }

    /// A float or an array of floats of either width, as `f32`; a scalar gives one element.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.typed(key, "a float or an array of floats", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.clone()),
            Value::Array(Array::F64(v)) => Some(v.iter().map(|&x| x as f32).collect()),
            scalar => scalar.as_f32().map(|x| vec![x]),
        })
    }

    /// A boolean or an array of booleans; a scalar gives one element.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.typed(
            key,
            "a boolean or an array of booleans",
            |value| match value {
                Value::Array(Array::Bool(v)) => Some(v.clone()),
                Value::Bool(b) => Some(vec![*b]),
                _ => None,
            },
        )
    }

    /// An integer or an array of integers of any width; a scalar gives one element, which the caller spreads over the
    /// layers where the key may be either (`{arch}.attention.head_count_kv`).
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.integers(key, "u32")
    }

    /// As [`Gguf::u32s`], signed: token types, for example.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.integers(key, "i32")
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => convert(value)
                .map(Some)
                .ok_or_else(|| wrong_type(self.file(), key, expected, value)),
        }
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let converted = match value {
            Value::Array(array) => array.integers(),
            scalar => scalar
                .as_integer()
                .map(|v| T::try_from(v).map(|v| vec![v]).map_err(|_| v)),
        };
        match converted {
            Some(Ok(values)) => Ok(Some(values)),
            Some(Err(value)) => Err(out_of_range(self.file(), key, value, expected)),
            None => Err(wrong_type(self.file(), key, INTEGERS, value)),
        }
    }
}

/// A scalar integer of any width, converted.
pub(super) fn integer<T: TryFrom<i128>>(
    file: &str,
    key: &str,
    value: Option<&Value>,
) -> Result<Option<T>, GgufError> {
    let Some(value) = value else { return Ok(None) };
    let integer = value
        .as_integer()
        .ok_or_else(|| wrong_type(file, key, INTEGER, value))?;
    match T::try_from(integer) {
        Ok(converted) => Ok(Some(converted)),
        Err(_) => Err(out_of_range(file, key, integer, std::any::type_name::<T>())),
    }
}

fn wrong_type(file: &str, key: &str, expected: &'static str, value: &Value) -> GgufError {
    GgufError::WrongType {
        file: file.to_owned(),
        key: quote(key),
        expected,
        found: value.type_name(),
    }
}

fn out_of_range(file: &str, key: &str, value: i128, expected: &'static str) -> GgufError {
    GgufError::OutOfRange {
        file: file.to_owned(),
        key: quote(key),
        value: value.to_string(),
        expected,
    }
}
