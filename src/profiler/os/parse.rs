//! What is in the system's files, as far as it can be believed. Pure: text in, a figure or nothing out.

/// CPU time of all CPUs since boot, in ticks; the first line of `/proc/stat`, proc_stat(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CpuTimes {
    busy: u64,
    idle: u64,
    /// Given to others by the hypervisor; kernels before 2.6.11 do not tell.
    steal: Option<u64>,
}

/// Shares of the time between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shares {
    pub(super) busy: f64,
    pub(super) steal: Option<f64>,
}

impl CpuTimes {
    pub(super) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|l| l.strip_prefix("cpu "))?;
        let mut fields = line.split_ascii_whitespace().map(|f| f.parse::<u64>().ok());
        let mut next = || fields.next().flatten();
        let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
        let (iowait, irq, softirq) = (
            next().unwrap_or(0),
            next().unwrap_or(0),
            next().unwrap_or(0),
        );
        // Guests' time is in `user` already.
        let sum = |parts: &[u64]| parts.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
        Some(Self {
            busy: sum(&[user, nice, system, irq, softirq])?,
            idle: sum(&[idle, iowait])?,
            steal: next(),
        })
    }

    /// `None` where no time has passed. Idle time may run backward by a little; then it has not passed.
    pub(super) fn shares_since(self, then: Self) -> Option<Shares> {
        let busy = self.busy.saturating_sub(then.busy) as f64;
        let idle = self.idle.saturating_sub(then.idle) as f64;
        let steal = self
            .steal
            .zip(then.steal)
            .map(|(now, then)| now.saturating_sub(then) as f64);
        let all = busy + idle + steal.unwrap_or(0.0);
        (all > 0.0).then(|| Shares {
            busy: busy / all,
            steal: steal.map(|s| s / all),
        })
    }
}

/// MHz of a `cpufreq` file, which has kHz. Frequencies that no CPU runs at are none.
pub(super) fn khz(text: &str) -> Option<f64> {
    plausible_mhz(text.trim().parse::<u64>().ok()? as f64 * 1e-3)
}

fn plausible_mhz(mhz: f64) -> Option<f64> {
    (50.0..=20_000.0).contains(&mhz).then_some(mhz)
}

/// CPUs and their frequencies in `/proc/cpuinfo`, MHz. `None` unless the processor counts its cycles (`aperfmperf`): without, the
/// file repeats the nominal frequency, which is no reading.
pub(super) fn cpuinfo_mhz(text: &str) -> Option<Vec<(u32, f64)>> {
    let field = |line: &str, name: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    let counts_cycles = text
        .lines()
        .filter_map(|l| field(l, "flags"))
        .any(|flags| flags.split_ascii_whitespace().any(|f| f == "aperfmperf"));
    if !counts_cycles {
        return None;
    }
    let mut cpu = None;
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some(number) = field(line, "processor") {
            cpu = number.parse::<u32>().ok();
        } else if let Some(mhz) = field(line, "cpu MHz").and_then(|v| v.parse().ok())
            && let Some((cpu, mhz)) = cpu.zip(plausible_mhz(mhz))
        {
            all.push((cpu, mhz));
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Degrees of a sensor's file, which has thousandths. A broken sensor reads 0, -128 or 255.
pub(super) fn millidegrees(text: &str) -> Option<f64> {
    let degrees = text.trim().parse::<i64>().ok()? as f64 * 1e-3;
    (1.0..=130.0).contains(&degrees).then_some(degrees)
}

/// The first of the three load averages.
pub(super) fn load_1m(text: &str) -> Option<f64> {
    let load: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}

/// The choice in brackets: `always [madvise] never`.
pub(super) fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    is_word(word).then(|| word.to_owned())
}

/// A name that may be shown as it is.
pub(super) fn word(text: &str) -> Option<String> {
    let word = text.trim();
    is_word(word).then(|| word.to_owned())
}

fn is_word(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let then = CpuTimes::parse("cpu  100 10 50 800 20 3 7 10 90 0\ncpu0 1 1 1 1\n");
        let now = CpuTimes::parse("cpu  140 20 90 860 20 8 12 50 99 0\n");
        let shares = then.zip(now).and_then(|(then, now)| now.shares_since(then));
        // 100 busy, 60 idle, 40 stolen.
        let expected = Shares {
            busy: 0.5,
            steal: Some(0.2),
        };
        assert_eq!(shares, Some(expected));
        assert_eq!(now.and_then(|now| now.shares_since(now)), None);
        // Backward, as `iowait` does.
        assert_eq!(
            then.zip(now).and_then(|(then, now)| then.shares_since(now)),
            None
        );
        let old = CpuTimes::parse("cpu 1 2 3 4");
        assert_eq!(old.map(|t| (t.busy, t.idle, t.steal)), Some((6, 4, None)));
        for bad in [
            "",
            "cpu",
            "cpu  1 2 3",
            "cpu  a b c d",
            "cpu0 1 2 3 4",
            "cpu  -1 2 3 4",
        ] {
            assert_eq!(CpuTimes::parse(bad), None, "{bad}");
        }
        assert_eq!(CpuTimes::parse("cpu 18446744073709551615 2 3 4"), None);
    }

    #[test]
    fn frequencies_are_believed_within_reason() {
        assert_eq!(khz("3400000\n"), Some(3400.0));
        for bad in ["", "0", "-1", "x", "99999999999", "18446744073709551616"] {
            assert_eq!(khz(bad), None, "{bad}");
        }
        let info = "processor\t: 0\nflags\t\t: fpu aperfmperf\ncpu MHz\t\t: 2600.125\n\nprocessor\t: 3\ncpu MHz : 800\n";
        assert_eq!(cpuinfo_mhz(info), Some(vec![(0, 2600.125), (3, 800.0)]));
        assert_eq!(cpuinfo_mhz(&info.replace("aperfmperf", "hypervisor")), None);
        let none = "processor : 0\nflags : aperfmperf\ncpu MHz : unknown\n";
        assert_eq!(cpuinfo_mhz(none), None);
    }

    #[test]
    fn temperatures_are_believed_within_reason() {
        assert_eq!(millidegrees("45500\n"), Some(45.5));
        for bad in ["0", "-128000", "255000", "hot", "", "9223372036854775808"] {
            assert_eq!(millidegrees(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_and_numbers_are_found() {
        assert_eq!(load_1m("0.15 0.73 0.65 1/98 14573\n"), Some(0.15));
        assert_eq!(
            chosen("always [madvise] never\n").as_deref(),
            Some("madvise")
        );
        assert_eq!(word("performance\n").as_deref(), Some("performance"));
        for bad in ["", "NaN 1 2", "inf", "-1.0 2 3", "x"] {
            assert_eq!(load_1m(bad), None, "{bad}");
        }
        for bad in ["", "always", "[", "]a[", "[]", "[a b]", "[\u{1b}[2J]"] {
            assert_eq!(chosen(bad), None, "{bad}");
        }
        assert_eq!(word("\u{1b}[2J"), None);
        assert_eq!(word(&"x".repeat(33)), None);
    }

    proptest! {
        #[test]
        fn garbage_is_no_figure_and_no_panic(text in "(cpu |processor:|cpu MHz:|flags: aperfmperf|[0-9]{1,22}|[\\[\\]\\n -]|\\PC){0,60}") {
            let _ = (khz(&text), cpuinfo_mhz(&text), millidegrees(&text), load_1m(&text), chosen(&text), word(&text));
            if let Some(times) = CpuTimes::parse(&text) {
                let shares = times.shares_since(CpuTimes::default());
                prop_assert!(shares.is_none_or(|s| (0.0..=1.0).contains(&s.busy)));
            }
        }
    }
}
