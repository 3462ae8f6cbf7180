//! A snapshot as its JSON fields, and what changed between two: fields that are equal are left out, and of a list that only
//! moved on (tokens, their times) what came is kept.

use super::format::MAX_JSON;
use crate::session::snapshot::Snapshot;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// The fields of a snapshot, each as JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fields(#[serde(deserialize_with = "few")] BTreeMap<String, Box<RawValue>>);

/// What turns the fields of one snapshot into those of another.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Change {
    /// CRC-32 of the payload of the key frame that it is about.
    pub base: u32,
    /// Fields with another value.
    #[serde(deserialize_with = "few")]
    set: BTreeMap<String, Box<RawValue>>,
    /// Lists that moved on.
    #[serde(deserialize_with = "few")]
    moved: BTreeMap<String, Moved>,
}

/// A list that lost elements in front and gained some at its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Moved {
    /// Elements lost in front.
    lost: usize,
    /// Elements kept behind them.
    kept: usize,
    /// The list of those that follow.
    new: Box<RawValue>,
}

/// Lists shorter than this are written anew.
const LIST: usize = 32;
/// Most fields of a snapshot.
const MOST: usize = 256;

/// A map of at most [`MOST`] fields: a small file is not to fill the memory.
fn few<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    from: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    struct Few<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Few<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an object of at most {MOST} fields")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut fields = BTreeMap::new();
            while let Some((name, value)) = from.next_entry()? {
                if fields.len() == MOST {
                    return Err(A::Error::invalid_length(MOST + 1, &self));
                }
                fields.insert(name, value);
            }
            Ok(fields)
        }
    }
    from.deserialize_map(Few(PhantomData))
}

impl Fields {
    /// The fields of `snapshot`.
    ///
    /// # Errors
    /// Those of serde_json; a snapshot that can be written as a report has none.
    pub fn of(snapshot: &Snapshot) -> serde_json::Result<Self> {
        serde_json::from_str(&serde_json::to_string(snapshot)?)
    }

    /// What turns these fields, those of the key frame `base`, into `next`.
    pub fn change(&self, base: u32, next: &Self) -> Change {
        let mut change = Change {
            base,
            ..Change::default()
        };
        for (name, value) in &next.0 {
            let old = self.0.get(name);
            if old.is_some_and(|old| old.get() == value.get()) {
                continue;
            }
            match old.and_then(|old| moved(old, value)) {
                Some(moved) => {
                    change.moved.insert(name.clone(), moved);
                }
                None => {
                    change.set.insert(name.clone(), value.clone());
                }
            }
        }
        change
    }

    /// These fields after `change`.
    ///
    /// # Errors
    /// One line of what does not fit.
    pub fn with(&self, change: Change) -> Result<Self, String> {
        let mut fields = self.clone();
        fields.0.extend(change.set);
        for (name, moved) in change.moved {
            let old = self
                .0
                .get(&name)
                .ok_or_else(|| format!("{name} moved, and there was none"))?;
            fields.0.insert(name, moved.apply(old)?);
        }
        Ok(fields)
    }

    /// The snapshot of these fields.
    ///
    /// # Errors
    /// One line of what is wrong.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        let length: usize = self
            .0
            .iter()
            .map(|(name, value)| name.len() + value.get().len() + 8)
            .sum();
        if length > MAX_JSON {
            return Err(format!(
                "{length} bytes of JSON, at most {MAX_JSON} are read"
            ));
        }
        let json = serde_json::to_string(self).map_err(|e| e.to_string())?;
        serde_json::from_str(&json).map_err(|e| e.to_string())
    }
}

/// How `new` comes of `old`, where that is shorter than `new` itself.
fn moved(old: &RawValue, new: &RawValue) -> Option<Moved> {
    let list = |v: &RawValue| v.get().starts_with('[');
    if !list(old) || !list(new) {
        return None;
    }
    let (old, new) = (elements(old)?, elements(new)?);
    let first = new.first().filter(|_| new.len() >= LIST)?;
    let lost = old.iter().position(|e| e.get() == first.get())?;
    let kept = old
        .get(lost..)?
        .iter()
        .zip(&new)
        .take_while(|(a, b)| a.get() == b.get())
        .count();
    // A list that changed in most places is better written anew.
    let new = new.get(kept..).filter(|_| kept * 2 > new.len())?;
    let new = to_raw_value(new).ok()?;
    Some(Moved { lost, kept, new })
}

fn elements(list: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(list.get()).ok()
}

impl Moved {
    fn apply(&self, old: &RawValue) -> Result<Box<RawValue>, String> {
        let old = elements(old).ok_or("a list moved that is none")?;
        let kept = self
            .lost
            .checked_add(self.kept)
            .and_then(|end| old.get(self.lost..end))
            .ok_or("more of a list is kept than there was")?;
        let new = elements(&self.new).ok_or("what follows in a list is none")?;
        to_raw_value(&[kept, &new].concat()).map_err(|e| e.to_string())
    }
}
