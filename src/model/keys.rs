//! Metadata values of an architecture, checked against what is possible.

use super::ModelError;
use crate::gguf::{Gguf, Value};

/// Metadata keys of an architecture: `{arch}.{name}`.
pub(super) struct Keys<'a> {
    pub gguf: &'a Gguf,
    pub arch: &'a str,
}

impl Keys<'_> {
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    pub fn size(&self, name: &str, max: usize) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        let Some(v) = self.gguf.u64(&key)? else {
            return Ok(None);
        };
        match usize::try_from(v) {
            Ok(n) if (1..=max).contains(&n) => Ok(Some(n)),
            _ => Err(ModelError::BadValue {
                key,
                value: v.to_string(),
                expected: format!("1 to {max}"),
            }),
        }
    }

    pub fn required(&self, name: &str, max: usize) -> Result<usize, ModelError> {
        self.size(name, max)?.ok_or_else(|| ModelError::MissingKey {
            key: self.key(name),
        })
    }

    /// A size that some files give per layer; equal in every layer, or refused.
    pub fn uniform(&self, name: &str, max: usize) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        match self.gguf.get(&key) {
            Some(Value::Array(_)) => {}
            _ => return self.size(name, max),
        }
        let values = self.gguf.u32s(&key)?.unwrap_or_default();
        match values.first() {
            Some(&first)
                if values.iter().all(|&v| v == first) && (1..=max).contains(&(first as usize)) =>
            {
                Ok(Some(first as usize))
            }
            _ => Err(ModelError::Unsupported {
                what: format!("{key} that differs between layers"),
            }),
        }
    }

    pub fn float(&self, name: &str) -> Result<Option<f64>, ModelError> {
        let key = self.key(name);
        match self.gguf.f32(&key)? {
            None => Ok(None),
            Some(v) if v.is_finite() && v > 0.0 => Ok(Some(f64::from(v))),
            Some(v) => Err(ModelError::BadValue {
                key,
                value: v.to_string(),
                expected: "a positive finite number".into(),
            }),
        }
    }
}
