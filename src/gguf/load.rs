//! How a file's bytes come into memory: choices that change speed and memory, never results.

use std::fmt;
use std::str::FromStr;

/// Where the bytes of a file are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadMethod {
    /// The page cache, mapped: nothing is copied, other processes share it.
    #[default]
    Mmap,
    /// A copy of our own, read through the page cache.
    Read,
    /// A copy of our own, read past the page cache (`O_DIRECT`): no second copy of a large model, the disk every time.
    Direct,
}

impl LoadMethod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mmap, Self::Read, Self::Direct];

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Read => "read",
            Self::Direct => "direct",
        }
    }
}

impl FromStr for LoadMethod {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        named(s, "way to load", &Self::ALL, Self::name)
    }
}

/// What the system is told about a mapped file before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapAdvice {
    /// Nothing.
    None,
    /// Read it ahead (`MADV_WILLNEED`).
    #[default]
    WillNeed,
    /// Read it and enter every page into the page table now (`MADV_POPULATE_READ`): no page faults later.
    Populate,
    /// It is read from front to back (`MADV_SEQUENTIAL`).
    Sequential,
    /// Read it ahead now, and nothing around a page later (`MADV_WILLNEED`, then `MADV_RANDOM`).
    Random,
}

impl MapAdvice {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::WillNeed,
        Self::Populate,
        Self::Sequential,
        Self::Random,
    ];

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::WillNeed => "willneed",
            Self::Populate => "populate",
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }
}

impl FromStr for MapAdvice {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        named(s, "advice", &Self::ALL, Self::name)
    }
}

fn named<T: Copy>(
    s: &str,
    what: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|&t| name(t) == s).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|&t| name(t)).collect();
        format!(
            "{what} '{s}' does not exist; these do: {}",
            names.join(", ")
        )
    })
}

/// How to load a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// Where the bytes are read from.
    pub method: LoadMethod,
    /// What the system is told of a mapping; a copy needs none.
    pub advice: MapAdvice,
    /// Ask for huge pages under a copy (`MADV_HUGEPAGE`); a mapped file cannot have them.
    pub huge_pages: bool,
}

impl LoadOptions {
    /// What is best for a file of `bytes` where `available` bytes of memory are free, as far as was measured
    /// (`docs/src/engine.md`): a copy in huge pages for all but small files, which start quicker mapped, and large ones, of
    /// which a copy takes seconds and memory that others may need.
    pub fn automatic(bytes: u64, available: Option<u64>) -> Self {
        let fits = available.is_some_and(|a| bytes <= a / 4);
        if !(COPY_FROM..=COPY_UP_TO).contains(&bytes) || !fits {
            return Self::default();
        }
        Self {
            method: LoadMethod::Read,
            huge_pages: true,
            ..Self::default()
        }
    }
}

/// Smallest file that [`LoadOptions::automatic`] copies, bytes.
const COPY_FROM: u64 = 128 << 20;
/// Largest, bytes.
const COPY_UP_TO: u64 = 4 << 30;

impl fmt::Display for LoadOptions {
    /// `mmap, willneed` or `read, huge pages`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method.name())?;
        match (self.method, self.huge_pages) {
            (LoadMethod::Mmap, _) => write!(f, ", {}", self.advice.name()),
            (_, true) => f.write_str(", huge pages"),
            (_, false) => Ok(()),
        }
    }
}

/// How a file was loaded in the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadOutcome {
    /// What holds now: differs from what was asked where that was not possible.
    pub options: LoadOptions,
    /// Why it differs.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_between_are_copied_where_memory_is_free() {
        let copied =
            |bytes, available| LoadOptions::automatic(bytes, available).method == LoadMethod::Read;
        let free = Some(64 << 30);
        assert!(!copied(COPY_FROM - 1, free) && copied(COPY_FROM, free));
        assert!(copied(COPY_UP_TO, free) && !copied(COPY_UP_TO + 1, free));
        assert!(!copied(COPY_FROM, Some(COPY_FROM * 4 - 4)) && !copied(COPY_FROM, None));
    }

    #[test]
    fn names_are_read_back_and_others_refused() {
        for method in LoadMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
        }
        for advice in MapAdvice::ALL {
            assert_eq!(advice.name().parse(), Ok(advice));
        }
        let error = "fast".parse::<LoadMethod>().expect_err("unknown");
        assert_eq!(
            error,
            "way to load 'fast' does not exist; these do: mmap, read, direct"
        );
        assert!("".parse::<MapAdvice>().is_err());
    }

    #[test]
    fn options_say_what_matters() {
        let mut options = LoadOptions::default();
        assert_eq!(options.to_string(), "mmap, willneed");
        (options.method, options.huge_pages) = (LoadMethod::Read, true);
        assert_eq!(options.to_string(), "read, huge pages");
    }
}
