//! How far ahead, and into which caches, decode fetches weights: a knob, since memories differ.

use crate::engine::EngineError;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes ahead: more than any first-level cache holds.
const MOST: usize = 1 << 20;
const LINE: usize = 64;

/// Which caches a fetched line goes to, by how soon it is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// Used once: past the caches as far as the CPU can.
    None,
    /// The outermost cache.
    Low,
    /// The second-level cache.
    Moderate,
    /// All caches.
    High,
}

impl Locality {
    /// All of them, least first.
    pub const ALL: [Self; 4] = [Self::None, Self::Low, Self::Moderate, Self::High];

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Moderate => "moderate",
            Self::High => "high",
        }
    }
}

/// Where decode fetches weights: `4096` or `4096:low`; `0` leaves it to the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// Bytes ahead of the weights in use, a multiple of 64.
    pub ahead: usize,
    /// Into which caches.
    pub locality: Locality,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self {
            ahead: 4096,
            locality: Locality::High,
        }
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.locality {
            Locality::High => write!(f, "{}", self.ahead),
            other => write!(f, "{}:{}", self.ahead, other.name()),
        }
    }
}

impl FromStr for Prefetch {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (ahead, locality) = s.split_once(':').unwrap_or((s, Locality::High.name()));
        let locality = Locality::ALL.into_iter().find(|l| l.name() == locality);
        let ahead = ahead
            .parse()
            .ok()
            .filter(|_| ahead.bytes().all(|b| b.is_ascii_digit()));
        let (Some(ahead), Some(locality)) = (ahead, locality) else {
            return Err(format!(
                "'{s}' is not a prefetch; give the bytes ahead and, if wanted, a locality: 4096 or 4096:low (none, low, moderate, high)"
            ));
        };
        Ok(Self { ahead, locality })
    }
}

/// What kernels do now: bytes ahead, and the locality's place in the low bits.
static NOW: AtomicUsize = AtomicUsize::new(4096 | Locality::High as usize);

impl Prefetch {
    /// Checks the distance.
    ///
    /// # Errors
    /// [`EngineError::Config`].
    pub fn check(self) -> Result<(), EngineError> {
        if self.ahead <= MOST && self.ahead.is_multiple_of(LINE) {
            return Ok(());
        }
        Err(EngineError::Config(format!(
            "the prefetch distance is {}, expected a multiple of {LINE} from 0 to {MOST}",
            self.ahead
        )))
    }

    /// Makes this what the kernels do from now on. For the whole process: of two engines that run at the same time with
    /// different values both run with either; results are the same.
    pub(super) fn apply(self) {
        NOW.store(
            self.ahead & !(LINE - 1) | self.locality as usize,
            Ordering::Relaxed,
        );
    }
}

/// What is to be done, for [`line`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn now() -> usize {
    NOW.load(Ordering::Relaxed)
}

/// Fetches the line that lies as far behind `p` as `now` says. Any address will do: the CPU ignores what is not there.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn line(now: usize, p: *const u8) {
    use std::arch::x86_64::*;
    let ahead = now & !(LINE - 1);
    if ahead == 0 {
        return;
    }
    let p = p.wrapping_add(ahead).cast();
    // SAFETY: a prefetch reads nothing that the program could see, whatever the address; SSE is part of x86-64.
    unsafe {
        match now & 3 {
            3 => _mm_prefetch::<_MM_HINT_T0>(p),
            2 => _mm_prefetch::<_MM_HINT_T1>(p),
            1 => _mm_prefetch::<_MM_HINT_T2>(p),
            _ => _mm_prefetch::<_MM_HINT_NTA>(p),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f162_localities_are_told_apart() {
        for (i, locality) in Locality::ALL.into_iter().enumerate() {
            let p = Prefetch {
                ahead: 1024,
                locality,
            };
            assert_eq!(p.to_string().parse(), Ok(p));
            assert_eq!(locality as usize, i);
            assert!(p.check().is_ok());
        }
        assert_eq!("0".parse::<Prefetch>().map(|p| p.ahead), Ok(0));
        for wrong in [
            "",
            "x",
            "-64",
            "+64",
            "64:",
            "64:far",
            ":low",
            "99999999999999999999",
        ] {
            assert!(wrong.parse::<Prefetch>().is_err(), "{wrong}");
        }
        for (ahead, fine) in [
            (0, true),
            (64, true),
            (65, false),
            (MOST, true),
            (MOST + 64, false),
        ] {
            let p = Prefetch {
                ahead,
                ..Prefetch::default()
            };
            assert_eq!(p.check().is_ok(), fine, "{ahead}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn any_address_may_be_fetched() {
        for now in [0, 3, 4096, 4097, 4098, 4099, MOST | 3] {
            line(now, std::ptr::null());
            line(now, usize::MAX as *const u8);
        }
    }
}
