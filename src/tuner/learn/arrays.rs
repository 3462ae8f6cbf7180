//! A model as named arrays, and those as a safetensors file.
//!
//! Nothing of a file is trusted: every array is asked for by name, kind and length, floats must be finite, and a file larger
//! than [`MOST_BYTES`] is not read. The header is one JSON text, so that equal models are equal files.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Largest file, bytes (F288).
pub const MOST_BYTES: usize = 5_000_000;
/// Key of the header in the file's metadata.
const HEADER: &str = "cbtop";

/// One array.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Finite floats.
    F32(Vec<f32>),
    /// Whole numbers.
    U32(Vec<u32>),
    /// Small whole numbers.
    U16(Vec<u16>),
}

/// Named arrays and a header.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arrays {
    /// What is no array.
    pub header: Map<String, Value>,
    arrays: BTreeMap<String, Array>,
}

/// A file that is no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArraysError {
    /// Not this kind of file, or damaged.
    #[error("the file is no model of cbtop: {0}; train one with cbtop tune train")]
    File(String),
    /// An array is not there or not what it should be.
    #[error("'{name}' in the model is {wrong}; train it again with cbtop tune train")]
    Array {
        /// Its name.
        name: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
}

impl Arrays {
    /// Adds an array; one of the same name is replaced.
    pub fn put(&mut self, name: impl Into<String>, array: Array) {
        self.arrays.insert(name.into(), array);
    }

    /// Whether there is an array of a name.
    pub fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    /// Floats of a name.
    ///
    /// # Errors
    /// None there, or another kind.
    pub fn f32(&self, name: &str) -> Result<&[f32], ArraysError> {
        match self.arrays.get(name) {
            Some(Array::F32(v)) => Ok(v),
            other => Err(wrong(name, other)),
        }
    }

    /// As [`Self::f32`], of a given length.
    ///
    /// # Errors
    /// And another length.
    pub fn f32_of(&self, name: &str, length: usize) -> Result<&[f32], ArraysError> {
        let values = self.f32(name)?;
        if values.len() != length {
            return Err(broken(name, "of another length"));
        }
        Ok(values)
    }

    /// Whole numbers of a name.
    ///
    /// # Errors
    /// None there, or another kind.
    pub fn u32(&self, name: &str) -> Result<&[u32], ArraysError> {
        match self.arrays.get(name) {
            Some(Array::U32(v)) => Ok(v),
            other => Err(wrong(name, other)),
        }
    }

    /// Small whole numbers of a name.
    ///
    /// # Errors
    /// None there, or another kind.
    pub fn u16(&self, name: &str) -> Result<&[u16], ArraysError> {
        match self.arrays.get(name) {
            Some(Array::U16(v)) => Ok(v),
            other => Err(wrong(name, other)),
        }
    }

    /// A text of the header.
    ///
    /// # Errors
    /// None there, or no text.
    pub fn text(&self, name: &str) -> Result<&str, ArraysError> {
        let value = self.header.get(name).and_then(Value::as_str);
        value.ok_or_else(|| broken(name, "missing or no text"))
    }

    /// A list of texts of the header.
    ///
    /// # Errors
    /// None there, or something else.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, ArraysError> {
        let list = self.header.get(name).and_then(Value::as_array);
        let list = list.ok_or_else(|| broken(name, "missing or no list"))?;
        let texts = list.iter().map(|v| v.as_str().map(str::to_owned));
        let texts: Option<Vec<String>> = texts.collect();
        texts.ok_or_else(|| broken(name, "no list of texts"))
    }

    /// A list of numbers of the header.
    ///
    /// # Errors
    /// None there, or something else.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, ArraysError> {
        let list = self.header.get(name).and_then(Value::as_array);
        let list = list.ok_or_else(|| broken(name, "missing or no list"))?;
        let finite = |v: &Value| v.as_f64().filter(|v| v.is_finite());
        let numbers: Option<Vec<f64>> = list.iter().map(finite).collect();
        numbers.ok_or_else(|| broken(name, "no list of numbers"))
    }

    /// A number of the header.
    ///
    /// # Errors
    /// None there, or no finite number.
    pub fn number(&self, name: &str) -> Result<f64, ArraysError> {
        let value = self.header.get(name).and_then(Value::as_f64);
        value
            .filter(|v| v.is_finite())
            .ok_or_else(|| broken(name, "missing or no number"))
    }

    /// The file.
    ///
    /// # Errors
    /// Larger than [`MOST_BYTES`], or with floats that are not finite.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ArraysError> {
        let file = |e: &dyn std::fmt::Display| ArraysError::File(e.to_string());
        let mut data = Vec::with_capacity(self.arrays.len());
        for (name, array) in &self.arrays {
            let (dtype, length, bytes): (Dtype, usize, Vec<u8>) = match array {
                Array::F32(v) if !v.iter().all(|v| v.is_finite()) => {
                    return Err(broken(name, "not finite"));
                }
                Array::F32(v) => (Dtype::F32, v.len(), le(v, |v| v.to_le_bytes())),
                Array::U32(v) => (Dtype::U32, v.len(), le(v, |v| v.to_le_bytes())),
                Array::U16(v) => (Dtype::U16, v.len(), le(v, |v| v.to_le_bytes())),
            };
            data.push((name.as_str(), dtype, length, bytes));
        }
        let views = data.iter().map(|(name, dtype, length, bytes)| {
            TensorView::new(*dtype, vec![*length], bytes).map(|view| (*name, view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(|e| file(&e))?;
        let header = serde_json::to_string(&self.header).map_err(|e| file(&e))?;
        let header = HashMap::from([(HEADER.to_owned(), header)]);
        let bytes = safetensors::serialize(views, Some(header)).map_err(|e| file(&e))?;
        if bytes.len() > MOST_BYTES {
            return Err(ArraysError::File(format!(
                "{} bytes are more than {MOST_BYTES}",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Whatever is not as [`Self::to_bytes`] writes it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ArraysError> {
        let file = |e: &dyn std::fmt::Display| ArraysError::File(e.to_string());
        if bytes.len() > MOST_BYTES {
            return Err(file(&format!("it has more than {MOST_BYTES} bytes")));
        }
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| file(&e))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get(HEADER));
        let header = header.ok_or_else(|| file(&"it has no header"))?;
        let header: Map<String, Value> = serde_json::from_str(header).map_err(|e| file(&e))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| file(&e))?;
        let mut arrays = BTreeMap::new();
        for (name, view) in tensors.iter() {
            arrays.insert(name.to_owned(), array(name, &view)?);
        }
        Ok(Self { header, arrays })
    }
}

fn broken(name: &str, wrong: &'static str) -> ArraysError {
    ArraysError::Array {
        name: name.to_owned(),
        wrong,
    }
}

fn wrong(name: &str, found: Option<&Array>) -> ArraysError {
    let wrong = if found.is_some() {
        "of another kind"
    } else {
        "missing"
    };
    broken(name, wrong)
}

fn le<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|v| bytes(*v)).collect()
}

fn array(name: &str, view: &TensorView) -> Result<Array, ArraysError> {
    if view.shape().len() != 1 {
        return Err(broken(name, "no list"));
    }
    let data = view.data();
    let array = match view.dtype() {
        Dtype::F32 => {
            let values: Vec<f32> = of_le(data, f32::from_le_bytes);
            if !values.iter().all(|v| v.is_finite()) {
                return Err(broken(name, "not finite"));
            }
            Array::F32(values)
        }
        Dtype::U32 => Array::U32(of_le(data, u32::from_le_bytes)),
        Dtype::U16 => Array::U16(of_le(data, u16::from_le_bytes)),
        _ => return Err(broken(name, "of an unknown kind")),
    };
    Ok(array)
}

fn of_le<T, const N: usize>(data: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = data.as_chunks::<N>();
    chunks.iter().map(|c| value(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some() -> Arrays {
        let mut a = Arrays::default();
        a.header.insert("format".into(), 2.into());
        a.header.insert("names".into(), vec!["x", "y"].into());
        a.put("floats", Array::F32(vec![1.5, -2.0]));
        a.put("empty", Array::F32(Vec::new()));
        a.put("whole", Array::U32(vec![7, u32::MAX]));
        a.put("small", Array::U16(vec![1, 2, 3]));
        a
    }

    #[test]
    fn f070_arrays_survive_a_file_and_equal_ones_are_equal_files() {
        let bytes = some().to_bytes().expect("written");
        assert_eq!(Arrays::from_bytes(&bytes), Ok(some()));
        assert_eq!(some().to_bytes(), Ok(bytes));
        assert_eq!(some().f32_of("floats", 2).map(<[f32]>::len), Ok(2));
        assert!(some().f32_of("floats", 3).is_err());
        assert!(some().f32("small").is_err() && some().u32("none").is_err());
        assert_eq!(some().texts("names").map(|t| t.len()), Ok(2));
        assert_eq!(some().number("format"), Ok(2.0));
    }

    #[test]
    fn what_is_not_finite_or_too_large_is_neither_written_nor_read() {
        let mut a = some();
        a.put("floats", Array::F32(vec![f32::NAN]));
        assert!(a.to_bytes().is_err());
        a.put("floats", Array::F32(vec![0.0; MOST_BYTES / 4]));
        assert!(a.to_bytes().is_err());
        let bytes = some().to_bytes().expect("written");
        let at = bytes.windows(4).position(|w| w == 1.5f32.to_le_bytes());
        let mut damaged = bytes.clone();
        damaged[at.expect("there")..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(Arrays::from_bytes(&damaged).is_err());
        assert!((0..bytes.len()).all(|n| Arrays::from_bytes(&bytes[..n]).is_err()));
    }

    proptest! {
        #[test]
        fn f075_damaged_files_are_refused_or_read(
            at in any::<prop::sample::Index>(),
            byte: u8,
            noise in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = some().to_bytes().expect("written");
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Arrays::from_bytes(&bytes);
            let _ = Arrays::from_bytes(&noise);
        }
    }
}
