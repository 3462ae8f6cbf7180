//! Kernel sets chosen by weight type: what is best for one quantisation need not be for another.

use super::cpu::KernelSet;
use crate::gguf::GgmlType;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Kernel sets of single weight types, in the order of their names: `Q4_K=avx2,Q6_K=avx512`; `none` where there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelsFor(BTreeMap<GgmlType, KernelSet>);

impl KernelsFor {
    /// The set of a type, where it has one.
    pub fn get(&self, ty: GgmlType) -> Option<KernelSet> {
        self.0.get(&ty).copied()
    }

    /// Gives a type a set of its own.
    pub fn insert(&mut self, ty: GgmlType, set: KernelSet) {
        self.0.insert(ty, set);
    }

    /// All that are set.
    pub fn iter(&self) -> impl Iterator<Item = (GgmlType, KernelSet)> + '_ {
        self.0.iter().map(|(&ty, &set)| (ty, set))
    }

    /// Whether no type has a set of its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for KernelsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, (ty, set)) in self.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{ty}={}", set.name())?;
        }
        Ok(())
    }
}

impl FromStr for KernelsFor {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let mut sets = Self::default();
        if s == "none" {
            return Ok(sets);
        }
        for part in s.split(',') {
            let (name, set) = part.split_once('=').ok_or_else(|| {
                format!("'{part}' is no kernel choice; give a weight type and a kernel set, for example Q4_K=avx2")
            })?;
            let ty = GgmlType::ALL
                .iter()
                .copied()
                .find(|t| t.name().eq_ignore_ascii_case(name))
                .ok_or_else(|| format!("'{name}' is no weight type; Q4_K and F16 are some"))?;
            let set: KernelSet = set.parse().map_err(|e| format!("{name}: {e}"))?;
            if sets.0.insert(ty, set).is_some() {
                return Err(format!("{ty} is named twice; give one kernel set for it"));
            }
        }
        Ok(sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back_and_mistakes_named() {
        for text in ["none", "Q4_K=avx2", "Q8_0=scalar,Q4_K=avx2,Q6_K=avx512"] {
            let read: KernelsFor = text.parse().expect(text);
            assert_eq!(read.to_string(), text);
        }
        for (text, says) in [
            ("Q4_K", "no kernel choice"),
            ("Q4_X=avx2", "no weight type"),
            ("Q4_K=fast", "fast"),
            ("Q4_K=avx2,Q4_K=scalar", "twice"),
            ("", "no kernel choice"),
        ] {
            let error = text.parse::<KernelsFor>().expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
}
