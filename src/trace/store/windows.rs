//! Windows of tokens that index entries name, the same for boundaries and contexts.

use std::ops::Range;

use super::error::Problem;

/// The tokens of an index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub token_offset: u32,
    pub window_tokens: u32,
}

impl Window {
    pub fn range(self) -> Range<u64> {
        let from = u64::from(self.token_offset);
        from..from + u64::from(self.window_tokens)
    }
}

/// Where an entry of the index begins; `None` beyond any file.
pub(super) fn entry_at(index: u64, entry_bytes: u64, entry: u32) -> Option<u64> {
    u64::from(entry)
        .checked_mul(entry_bytes)?
        .checked_add(index)
}

/// Four bytes of a file as a number.
pub(super) fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?;
    bytes.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Eight bytes of a file as a number.
pub(super) fn u64_at(bytes: &[u8], at: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?;
    bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
}

/// Whether windows stand in order and none overlaps the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    end: u64,
    pub sorted: bool,
}

impl Order {
    pub fn new() -> Self {
        Self {
            end: 0,
            sorted: true,
        }
    }

    /// Whether the window begins where the ones before have ended, or later.
    pub fn take(&mut self, window: Window) -> bool {
        let range = window.range();
        let follows = range.start >= self.end;
        self.sorted &= follows;
        self.end = self.end.max(range.end);
        follows
    }
}

/// The window that holds a token: found by halving where they are sorted, else the first that does.
pub(super) fn find(
    count: u32,
    sorted: bool,
    token: u32,
    window: impl Fn(u32) -> Option<Window>,
) -> Option<u32> {
    let token = u64::from(token);
    let holds = |&i: &u32| window(i).is_some_and(|w| w.range().contains(&token));
    if !sorted {
        return (0..count).find(holds);
    }
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if window(middle)?.range().end <= token {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low).filter(|&i| i < count).filter(holds)
}

/// What a writer of windows keeps: the same few numbers however many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub window_size: u32,
    pub max: u32,
    pub count: u32,
    /// Sum of the windows' tokens.
    pub total_tokens: u32,
    /// Where the last window ended.
    pub end: u64,
}

impl Progress {
    /// The state after one more window, if it may come.
    pub fn after(self, window: Window) -> Result<Self, Problem> {
        if self.count >= self.max {
            return Err(Problem::Full {
                limit: self.max.into(),
                what: "windows",
            });
        }
        if window.window_tokens == 0 || window.window_tokens > self.window_size {
            return Err(Problem::Shape {
                field: "a window's number of tokens",
                value: window.window_tokens.into(),
                must: "1 to window_size",
            });
        }
        let range = window.range();
        if range.start < self.end {
            return Err(Problem::Overlap {
                from: window.token_offset,
                end: self.end,
            });
        }
        let total = self.total_tokens.checked_add(window.window_tokens);
        match total {
            Some(total_tokens) if range.end <= u64::from(u32::MAX) => Ok(Self {
                count: self.count + 1,
                total_tokens,
                end: range.end,
                ..self
            }),
            _ => Err(Problem::Full {
                limit: u32::MAX.into(),
                what: "tokens",
            }),
        }
    }
}
