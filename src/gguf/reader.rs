//! A cursor over the file's bytes that cannot read past their end.

use super::error::{Fault, Problem};

/// Memory that one file's metadata and tensor table may take. A 262,144-token vocabulary with merges needs about 50 MB.
pub(super) const MEMORY_LIMIT: u64 = 1 << 30;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    memory_left: u64,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            pos: 0,
            memory_left: MEMORY_LIMIT,
        }
    }

    /// Offset of the next byte in the file.
    pub fn offset(&self) -> u64 {
        self.pos as u64
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.pos..).unwrap_or_default()
    }

    fn fault<T>(&self, problem: Problem) -> Result<T, Fault> {
        Err(Fault {
            offset: self.offset(),
            problem,
        })
    }

    pub fn take(&mut self, need: u64, what: &'static str) -> Result<&'a [u8], Fault> {
        let rest = self.rest();
        match usize::try_from(need)
            .ok()
            .and_then(|n| rest.split_at_checked(n))
        {
            Some((taken, _)) => {
                self.pos += taken.len();
                Ok(taken)
            }
            None => self.fault(Problem::Truncated {
                what,
                need,
                left: rest.len() as u64,
            }),
        }
    }

    pub fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Fault> {
        match self.rest().first_chunk::<N>() {
            Some(chunk) => {
                self.pos += N;
                Ok(*chunk)
            }
            None => self.fault(Problem::Truncated {
                what,
                need: N as u64,
                left: self.rest().len() as u64,
            }),
        }
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Fault> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Fault> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    /// Reads a count of items of which each takes at least `encoded` bytes of file and `held` bytes of memory.
    pub fn count(&mut self, what: &'static str, encoded: u64, held: u64) -> Result<usize, Fault> {
        let offset = self.offset();
        let count = self.u64("a count")?;
        self.check_count(offset, what, count, encoded, held)
    }

    /// Refuses a count before anything is reserved for it: the rest of the file must be able to hold that many items,
    /// and the memory limit that many results. The second bound matters for sparse files, which cost nothing to make.
    pub fn check_count(
        &mut self,
        offset: u64,
        what: &'static str,
        count: u64,
        encoded: u64,
        held: u64,
    ) -> Result<usize, Fault> {
        let left = self.rest().len() as u64;
        let max = left / encoded.max(1);
        if count > max {
            return Err(Fault {
                offset,
                problem: Problem::Count {
                    what,
                    count,
                    left,
                    max,
                },
            });
        }
        let remaining = count
            .checked_mul(held)
            .and_then(|need| self.memory_left.checked_sub(need));
        match (remaining, usize::try_from(count)) {
            (Some(remaining), Ok(count)) => {
                self.memory_left = remaining;
                Ok(count)
            }
            _ => Err(Fault {
                offset,
                problem: Problem::Memory {
                    what,
                    count,
                    limit: MEMORY_LIMIT,
                },
            }),
        }
    }

    /// A length-prefixed string, as the bytes in the file.
    pub fn string(&mut self, what: &'static str) -> Result<&'a [u8], Fault> {
        let offset = self.offset();
        let len = self.u64("a string's length")?;
        let left = self.rest().len() as u64;
        if len > left {
            return Err(Fault {
                offset,
                problem: Problem::Truncated {
                    what,
                    need: len,
                    left,
                },
            });
        }
        self.check_count(offset, "bytes of text", len, 1, 1)?;
        self.take(len, what)
    }

    /// A key or name: UTF-8, not empty, at most 65,535 bytes (the format document's limit for keys).
    pub fn name(&mut self, what: &'static str) -> Result<&'a str, Fault> {
        const MAX: u64 = u16::MAX as u64;
        let offset = self.offset();
        let fault = |problem| Fault { offset, problem };
        let raw = self.string(what)?;
        if raw.is_empty() {
            return Err(fault(Problem::EmptyString { what }));
        }
        if raw.len() as u64 > MAX {
            return Err(fault(Problem::TooLong {
                what,
                len: raw.len() as u64,
                max: MAX,
            }));
        }
        std::str::from_utf8(raw).map_err(|e| {
            fault(Problem::NotUtf8 {
                what,
                at: e.valid_up_to(),
            })
        })
    }
}
