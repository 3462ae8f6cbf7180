//! What `/proc/self/task` shows of a thread: where it runs, and the software events where perf may not count them.

use std::time::Duration;

/// Of one thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Task {
    /// CPU it was last on.
    pub(super) core: Option<u32>,
    /// Minor and major page faults.
    pub(super) page_faults: Option<u64>,
    /// Time on a CPU.
    pub(super) cpu: Option<Duration>,
    /// Voluntary and involuntary.
    pub(super) context_switches: Option<u64>,
    /// Moves to another CPU.
    pub(super) migrations: Option<u64>,
}

impl Task {
    /// Everything; a thread that is gone shows nothing.
    pub(super) fn read(tid: i32) -> Self {
        let stat = text(tid, "stat").unwrap_or_default();
        Self {
            core: core(&stat),
            page_faults: page_faults(&stat),
            cpu: text(tid, "schedstat").and_then(|t| run_time(&t)),
            context_switches: text(tid, "status").and_then(|t| switches(&t)),
            migrations: text(tid, "sched").and_then(|t| migrations(&t)),
        }
    }

    /// Only the CPU it was last on.
    pub(super) fn core_of(tid: i32) -> Option<u32> {
        core(&text(tid, "stat")?)
    }

    /// What was counted since an earlier reading; the core is the later one.
    pub(super) fn since(self, then: Self) -> Self {
        let count = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        Self {
            core: self.core,
            page_faults: count(self.page_faults, then.page_faults),
            cpu: self
                .cpu
                .zip(then.cpu)
                .map(|(now, then)| now.saturating_sub(then)),
            context_switches: count(self.context_switches, then.context_switches),
            migrations: count(self.migrations, then.migrations),
        }
    }
}

fn text(tid: i32, file: &str) -> Option<String> {
    // The name of a thread in these files need not be UTF-8.
    let bytes = std::fs::read(format!("/proc/self/task/{tid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Field `number` of proc_pid_stat(5), 3 and up. The name, field 2, may hold blanks and brackets; the last `)` ends it.
fn stat_field<T: std::str::FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn core(stat: &str) -> Option<u32> {
    stat_field(stat, 39)
}

fn page_faults(stat: &str) -> Option<u64> {
    stat_field::<u64>(stat, 10)?.checked_add(stat_field(stat, 12)?)
}

/// Nanoseconds on a CPU, nanoseconds waiting for one, time slices.
fn run_time(schedstat: &str) -> Option<Duration> {
    let mut fields = schedstat.split_ascii_whitespace();
    let ns = fields.next()?.parse().ok()?;
    // Kernels that do not keep them show three zeroes.
    (ns > 0 && fields.count() == 2).then(|| Duration::from_nanos(ns))
}

fn switches(status: &str) -> Option<u64> {
    let voluntary = after_colon(status, "voluntary_ctxt_switches")?;
    voluntary.checked_add(after_colon(status, "nonvoluntary_ctxt_switches")?)
}

fn migrations(sched: &str) -> Option<u64> {
    after_colon(sched, "se.nr_migrations")
}

fn after_colon(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value)
    })?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "23 (a) b) (c) R 1 2 3 0 -1 64 100 0 7 0 5 6 0 0 20 0 9 0 4 5 6 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 \
                        0 17 11 0 0 0 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn fields_are_found_behind_any_name() {
        assert_eq!(core(STAT), Some(11));
        assert_eq!(page_faults(STAT), Some(107));
        assert_eq!(core("23 (a) R 1"), None);
        let many = STAT.replace(" 100 ", " 18446744073709551615 ");
        assert_eq!(page_faults(&many), None);
    }

    #[test]
    fn counts_are_found_by_their_names() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(switches(status), Some(7));
        assert_eq!(switches("nonvoluntary_ctxt_switches: 2"), None);
        let sched = "x (1, #threads: 1)\n----\nse.nr_migrations         :      12\n";
        assert_eq!(migrations(sched), Some(12));
        assert_eq!(
            run_time("1500000 22 3\n"),
            Some(Duration::from_micros(1500))
        );
        for bad in ["", "0 0 0", "5", "5 6 7 8", "-5 6 7", "x 6 7"] {
            assert_eq!(run_time(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_count(text in "\\PC{0,200}") {
            let _ = (core(&text), page_faults(&text), run_time(&text), switches(&text), migrations(&text));
        }
    }

    #[test]
    fn linux_shows_this_thread_and_no_other() {
        let tid = super::super::thread_id();
        let task = Task::read(tid);
        assert!(
            task.core.is_some() && task.page_faults.is_some(),
            "{task:?}"
        );
        assert!(task.context_switches.is_some());
        assert_eq!(Task::read(i32::MAX), Task::default());
        assert_eq!(Task::core_of(i32::MAX), None);
    }
}
