//! Why counters cannot be had, in words, and what to set.

use super::group::Kind;
use crate::profiler::figures::Support;
use std::io::Error;

/// What the system allows, for the words about it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// `kernel.perf_event_paranoid`.
    pub(super) paranoid: Option<i64>,
}

impl Limits {
    pub(super) fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).ok();
        Self {
            paranoid: read("/proc/sys/kernel/perf_event_paranoid")
                .and_then(|text| text.trim().parse().ok()),
        }
    }
}

fn unavailable(why: impl Into<String>, remedy: impl Into<String>) -> Support {
    Support::Unavailable {
        why: why.into(),
        remedy: remedy.into(),
    }
}

/// What an error of perf_event_open(2) means.
pub(super) fn explain(error: &Error, kind: Kind, limits: Limits) -> Support {
    // The highest setting that allows the group to a user without rights: user code at 2, the kernel's events at 1.
    let allowing = match kind {
        Kind::Hardware => 2,
        Kind::Software => 1,
    };
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => match kind {
            Kind::Hardware => unavailable(
                "the processor's counters are not shown here, as in a virtual machine without a PMU",
                "give the machine a virtual PMU (QEMU/KVM: -cpu host,pmu=on; in a cloud: a bare-metal instance), or run on the \
                 host",
            ),
            Kind::Software => unavailable(
                "this kernel has no such events",
                "use a kernel with CONFIG_PERF_EVENTS",
            ),
        },
        Some(libc::EACCES | libc::EPERM) => match limits.paranoid {
            Some(level) if level > allowing => unavailable(
                format!("this user may not count: kernel.perf_event_paranoid is {level}"),
                format!(
                    "sudo sysctl kernel.perf_event_paranoid={allowing}, or give cbtop CAP_PERFMON: sudo setcap \
                     cap_perfmon+ep on its file"
                ),
            ),
            _ => unavailable(
                "perf_event_open is forbidden here, as by the seccomp filter of a container",
                "start the container with --cap-add PERFMON, or with --security-opt seccomp=unconfined",
            ),
        },
        Some(libc::ENOSYS) => unavailable(
            "this kernel is built without perf events",
            "use a kernel with CONFIG_PERF_EVENTS",
        ),
        Some(libc::EMFILE | libc::ENFILE) => too_many_files(),
        Some(libc::EBUSY) => unavailable(
            "another program holds the processor's counters for itself",
            "end other profilers, and see whether `perf stat true` counts cycles",
        ),
        _ => unavailable(
            format!("perf_event_open says: {error}"),
            "see whether `perf stat true` counts, and what perf_event_open(2) says of this error",
        ),
    }
}

/// Ten files a thread are more than this process may open.
pub(super) fn too_many_files() -> Support {
    unavailable(
        "counting needs ten open files a thread, more than this process may have",
        "ulimit -n 65536 before starting cbtop, or fewer threads",
    )
}

/// The group is open, but the processor has never had counters for it.
pub(super) fn never_scheduled() -> Support {
    unavailable(
        "the processor has fewer free counters than the group needs, so it was never counted",
        "sudo sysctl kernel.nmi_watchdog=0 frees one; end other profilers",
    )
}

/// There is no thread to count for.
pub(super) fn no_threads() -> Support {
    unavailable(
        "the threads that run the model are not there",
        "wait for the engine to start",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(errno: i32, kind: Kind, paranoid: Option<i64>) -> (String, String) {
        match explain(&Error::from_raw_os_error(errno), kind, Limits { paranoid }) {
            Support::Unavailable { why, remedy } => (why, remedy),
            Support::Available => panic!("{errno} is an error"),
        }
    }

    #[test]
    fn f148_every_refusal_says_why_and_what_to_set() {
        let (why, remedy) = words(libc::ENOENT, Kind::Hardware, Some(2));
        assert!(why.contains("virtual machine without a PMU") && remedy.contains("pmu=on"));
        for denied in [libc::EACCES, libc::EPERM] {
            let (why, remedy) = words(denied, Kind::Hardware, Some(3));
            assert!(why.ends_with("kernel.perf_event_paranoid is 3"), "{why}");
            assert!(remedy.contains("sysctl kernel.perf_event_paranoid=2"));
            let (_, remedy) = words(denied, Kind::Software, Some(2));
            assert!(remedy.contains("sysctl kernel.perf_event_paranoid=1"));
            // The setting allows it, or is not shown: something else forbids it.
            for paranoid in [Some(2), Some(-1), None] {
                let (why, _) = words(denied, Kind::Hardware, paranoid);
                assert!(why.contains("container"), "{why}");
            }
        }
        let (why, _) = words(libc::EMFILE, Kind::Software, None);
        assert!(why.contains("open files"));
        for errno in 1..140 {
            for kind in [Kind::Hardware, Kind::Software] {
                let (why, remedy) = words(errno, kind, None);
                assert!(!why.is_empty() && !remedy.is_empty());
            }
        }
    }
}
