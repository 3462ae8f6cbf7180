//! Windows of tokens that index entries name, the same for boundaries and contexts.

use std::ops::Range;

use super::F32;
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

/// What an index says of itself, and the file around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    pub version: u32,
    /// Entries that the header counts.
    pub listed: u32,
    /// Sum of the windows' tokens as the header has it.
    pub total_tokens: u32,
    /// Where data can begin.
    pub data_start: u64,
    /// Bytes of a window's data.
    pub item_bytes: u64,
    /// Bytes of the file.
    pub len: u64,
}

/// What an index was found to hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    /// Whether windows stand in order and none overlaps the next.
    pub sorted: bool,
    /// After the windows whose data are whole.
    pub progress: Progress,
    /// Bytes at the end that belong to none of them.
    pub dropped_bytes: u64,
}

impl Index {
    /// Goes through the entries and counts those whose data are whole. From version 2 on data and tokens follow each other;
    /// version 1 has them where its offsets lead, and all of them within the file.
    pub fn check(
        self,
        window_size: u32,
        max: u32,
        entry: impl Fn(u32) -> Option<(Window, u64)>,
    ) -> Result<Checked, Problem> {
        let strict = self.version > 1;
        let mut sorted = true;
        let mut used = self.data_start;
        let mut progress = Progress {
            window_size,
            max,
            count: 0,
            total_tokens: 0,
            end: 0,
        };
        for i in 0..self.listed {
            let wrong = |what| Problem::Entry { entry: i, what };
            let (window, data) = entry(i).ok_or(wrong("it lies beyond the end of the file"))?;
            let end = data
                .checked_add(self.item_bytes)
                .ok_or(wrong("its data lie beyond any file"))?;
            if data % F32 != 0 {
                return Err(wrong("its data are not aligned to 4 bytes"));
            }
            if data < self.data_start {
                return Err(wrong("its data lie within header or index"));
            }
            if strict {
                if data != used {
                    return Err(wrong("its data do not follow those before"));
                }
                let after = progress.after(window);
                let after = after.map_err(|_| wrong("its tokens do not follow those before"))?;
                if end > self.len {
                    // The file was cut: all after it lie beyond the end too.
                    break;
                }
                progress = after;
            } else {
                if end > self.len {
                    return Err(wrong("its data lie beyond the end of the file"));
                }
                let range = window.range();
                sorted &= range.start >= progress.end;
                progress.count += 1;
                progress.end = range.end;
            }
            used = used.max(end);
        }
        if !strict {
            progress.total_tokens = self.total_tokens;
        } else if progress.count == self.listed && progress.total_tokens != self.total_tokens {
            return Err(Problem::Field {
                field: "total_tokens",
                value: self.total_tokens.into(),
                must: "the sum of the windows' tokens",
            });
        }
        let left = self.len.saturating_sub(used);
        Ok(Checked {
            sorted,
            progress,
            dropped_bytes: if strict { left } else { 0 },
        })
    }
}
