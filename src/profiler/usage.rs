//! What the process has used so far, read between two tokens in less than a microsecond and without allocating.
#![allow(unsafe_code)]

/// Page faults and context switches of the process since it began, all threads together, ended ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    /// Page faults served without the disk.
    pub minor_faults: u64,
    /// Page faults read from the disk.
    pub major_faults: u64,
    /// Times a thread gave up its core to wait.
    pub voluntary_switches: u64,
    /// Times a thread was put off its core: preempted.
    pub involuntary_switches: u64,
}

impl TokenUsage {
    /// The counts now (getrusage(2)); `None` where the system does not tell.
    #[inline]
    pub fn now() -> Option<Self> {
        let usage = read()?;
        // The system's counters are signed and never negative.
        let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
        Some(Self {
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        })
    }

    /// What was counted since an earlier reading.
    #[inline]
    pub fn since(self, then: Self) -> Self {
        Self {
            minor_faults: self.minor_faults.saturating_sub(then.minor_faults),
            major_faults: self.major_faults.saturating_sub(then.major_faults),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(then.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(then.involuntary_switches),
        }
    }
}

#[inline]
fn read() -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole `rusage` of our own, which the call fills; it keeps no reference to it.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: zeroes are a valid `rusage`, and the call writes nothing but valid ones over them.
    (failed == 0).then(|| unsafe { usage.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::os::FaultCounter;

    /// Touches fresh pages, so that there is something to count.
    fn touch_pages() {
        // Not from the allocator, which may hand out what it has had before.
        let mut pages = memmap2::MmapMut::map_anon(8 << 20).expect("memory");
        pages.iter_mut().step_by(4096).for_each(|b| *b = 1);
        std::hint::black_box(&pages);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn f155_faults_match_proc_self_stat() {
        let stat = FaultCounter::open().expect("/proc/self/stat");
        let stat = || stat.read().expect("/proc/self/stat");
        for _ in 0..20 {
            touch_pages();
            // Other threads of the test program fault too, so the reading lies between two of the other kind.
            let before = stat();
            let usage = TokenUsage::now().expect("getrusage");
            let after = stat();
            let minor = before.minor..=after.minor;
            let major = before.major..=after.major;
            assert!(minor.contains(&usage.minor_faults), "{usage:?} {minor:?}");
            assert!(major.contains(&usage.major_faults), "{usage:?} {major:?}");
        }
    }

    #[test]
    fn f155_touched_pages_are_counted() {
        let before = TokenUsage::now().expect("getrusage");
        touch_pages();
        let used = TokenUsage::now().expect("getrusage").since(before);
        // 2048 small pages, or four huge ones.
        assert!(used.minor_faults >= 4, "{used:?}");
        assert_eq!(before.since(before), TokenUsage::default());
    }

    #[test]
    fn counts_that_run_backward_give_zero() {
        let later = TokenUsage {
            minor_faults: 9,
            major_faults: 9,
            voluntary_switches: 9,
            involuntary_switches: 9,
        };
        assert_eq!(TokenUsage::default().since(later), TokenUsage::default());
    }

    /// `cargo test --release --lib usage -- --ignored --nocapture` prints what a reading costs here.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn cost_of_a_reading() {
        let start = std::time::Instant::now();
        for _ in 0..10_000 {
            std::hint::black_box(TokenUsage::now());
        }
        println!("getrusage: {:?}", start.elapsed() / 10_000);
    }
}
