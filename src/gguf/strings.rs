//! Many strings in one piece of memory: a vocabulary has a quarter of a million of a few bytes each.

/// A list of strings, one behind the other in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`.
    ends: Vec<usize>,
}

impl Strings {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = match i.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.text.get(start..end)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    /// Adds one.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }
}

impl serde::Serialize for Strings {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.iter())
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(items: I) -> Self {
        let mut strings = Self::default();
        for s in items {
            strings.push(s.as_ref());
        }
        strings.text.shrink_to_fit();
        strings.ends.shrink_to_fit();
        strings
    }
}

impl<S: AsRef<str>> From<Vec<S>> for Strings {
    fn from(items: Vec<S>) -> Self {
        items.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Strings;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_is_what_went_in(list in prop::collection::vec(".{0,5}", 0..20)) {
            let strings = Strings::from(list.clone());
            prop_assert_eq!(strings.len(), list.len());
            prop_assert_eq!(strings.is_empty(), list.is_empty());
            prop_assert!(strings.iter().eq(list.iter().map(String::as_str)));
            prop_assert_eq!(strings.get(list.len()), None);
            prop_assert_eq!(strings.get(usize::MAX), None);
        }
    }
}
