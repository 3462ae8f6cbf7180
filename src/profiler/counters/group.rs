//! One group of counters of one thread.
#![allow(unsafe_code)]

use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, ReadFormat};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsRawFd, FromRawFd};

/// Events in the largest group.
pub const MAX_EVENTS: usize = 6;

/// Which group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of the processor: the values of [`Counted`] are those of [`HARDWARE`].
    Hardware,
    /// Of the kernel: those of [`SOFTWARE`].
    Software,
}

/// Cycles, instructions, last-level cache references, misses of it, branches, branch misses; in user code.
pub const HARDWARE: [Hardware; MAX_EVENTS] = [
    Hardware::CPU_CYCLES,
    Hardware::INSTRUCTIONS,
    Hardware::CACHE_REFERENCES,
    Hardware::CACHE_MISSES,
    Hardware::BRANCH_INSTRUCTIONS,
    Hardware::BRANCH_MISSES,
];
/// Nanoseconds on a CPU, page faults, context switches, moves to another CPU.
pub const SOFTWARE: [Software; 4] = [
    Software::TASK_CLOCK,
    Software::PAGE_FAULTS,
    Software::CONTEXT_SWITCHES,
    Software::CPU_MIGRATIONS,
];

impl Kind {
    fn events(self) -> Vec<Event> {
        match self {
            Self::Hardware => HARDWARE.map(Event::from).into(),
            Self::Software => SOFTWARE.map(Event::from).into(),
        }
    }
}

/// The kernel's number of the calling thread, for [`super::ThreadGroups::open`].
pub fn thread_id() -> i32 {
    // SAFETY: the call takes nothing, touches no memory and cannot fail.
    unsafe { libc::gettid() }
}

/// What a group has counted: in all, or between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// By event; `None` for one that the processor does not have.
    pub values: [Option<u64>; MAX_EVENTS],
    /// Time that the thread ran with the group open, nanoseconds.
    pub enabled_ns: u64,
    /// Of it the time that the group had its counters: less where it shares them with others in turns.
    pub running_ns: u64,
}

impl Counted {
    /// What was counted since an earlier reading of the same group.
    #[inline]
    pub fn since(&self, then: &Self) -> Self {
        let mut values = self.values;
        for (value, then) in values.iter_mut().zip(then.values) {
            *value = value.zip(then).map(|(now, then)| now.saturating_sub(then));
        }
        Self {
            values,
            enabled_ns: self.enabled_ns.saturating_sub(then.enabled_ns),
            running_ns: self.running_ns.saturating_sub(then.running_ns),
        }
    }

    /// The value of an event over the whole time, scaled up where the group had its counters for a part of it only; `None`
    /// where it never had.
    pub fn scaled(&self, event: usize) -> Option<u64> {
        let value = *self.values.get(event)?.as_ref()?;
        match (self.enabled_ns, self.running_ns) {
            (0, _) => Some(value),
            (_, 0) => None,
            (enabled, running) if running >= enabled => Some(value),
            (enabled, running) => {
                let scaled = u128::from(value) * u128::from(enabled) / u128::from(running);
                Some(u64::try_from(scaled).unwrap_or(u64::MAX))
            }
        }
    }
}

/// An open group, counting.
#[derive(Debug)]
pub(super) struct Group {
    leader: File,
    /// Their being open is what keeps them counting.
    _members: Vec<File>,
    /// Event of each value, in the order that the kernel shows them in.
    events: Vec<usize>,
}

/// A count, the two times, then value and identity of each member.
const WORDS: usize = 3 + 2 * MAX_EVENTS;

impl Group {
    /// Opens the group on the thread `tid` of this process, on whatever CPU it runs. An event other than the first that the
    /// processor does not have is left out.
    ///
    /// # Errors
    /// Those of perf_event_open(2) for the first event; for others all but `ENOENT`, `EINVAL` and `EOPNOTSUPP`.
    pub(super) fn open(tid: i32, kind: Kind) -> Result<Self> {
        let mut events = kind.events().into_iter().enumerate();
        let Some((_, first)) = events.next() else {
            return Err(ErrorKind::InvalidInput.into());
        };
        // To the kernel 0 is the calling thread and -1 everybody.
        if tid <= 0 {
            return Err(Error::from_raw_os_error(libc::ESRCH));
        }
        let leader = open(tid, kind, first, None)?;
        let (mut members, mut opened) = (Vec::new(), vec![0]);
        for (i, event) in events {
            match open(tid, kind, event, Some(&leader)) {
                Ok(file) => {
                    members.push(file);
                    opened.push(i);
                }
                Err(e) if is_unknown_event(&e) => {}
                Err(e) => return Err(e),
            }
        }
        let group = Self {
            leader,
            _members: members,
            events: opened,
        };
        group.enable()?;
        Ok(group)
    }

    fn enable(&self) -> Result<()> {
        /// `_IO('$', 0)` and the flag that means all members, linux/perf_event.h.
        const ENABLE: libc::c_ulong = 0x2400;
        const WHOLE_GROUP: libc::c_ulong = 1;
        // SAFETY: the request takes a number, not a pointer, and the file is open as long as `self`.
        let failed = unsafe { libc::ioctl(self.leader.as_raw_fd(), ENABLE as _, WHOLE_GROUP) };
        if failed == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    }

    /// What it has counted since it was opened. Allocates nothing.
    ///
    /// # Errors
    /// Those of read(2); a reading that is not of this group.
    #[inline]
    pub(super) fn read(&self) -> Result<Counted> {
        let mut bytes = [0; WORDS * 8];
        let length = (&self.leader).read(&mut bytes)?;
        self.decode(bytes.get(..length).unwrap_or_default())
            .ok_or_else(|| ErrorKind::InvalidData.into())
    }

    #[inline]
    fn decode(&self, bytes: &[u8]) -> Option<Counted> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |i: usize| words.get(i).map(|w| u64::from_ne_bytes(*w));
        if usize::try_from(word(0)?).ok()? != self.events.len() {
            return None;
        }
        let mut counted = Counted {
            enabled_ns: word(1)?,
            running_ns: word(2)?,
            ..Counted::default()
        };
        for (i, &event) in self.events.iter().enumerate() {
            *counted.values.get_mut(event)? = Some(word(3 + 2 * i)?);
        }
        Some(counted)
    }
}

fn is_unknown_event(e: &Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP)
    )
}

fn open(tid: i32, kind: Kind, event: Event, leader: Option<&File>) -> Result<File> {
    let mut builder = Builder::new().kind(event);
    builder
        // Members go with their leader, which starts when all are there.
        .enabled(leader.is_some())
        // Switches and migrations happen in the kernel: without it they would always be 0.
        .exclude_kernel(kind == Kind::Hardware)
        .read_format(
            ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING,
        );
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    const ANY_CPU: libc::c_int = -1;
    let leader = leader.map_or(-1, AsRawFd::as_raw_fd);
    // `perf_event` opens groups for the calling thread only, so the call is ours and the attributes are its.
    // SAFETY: the attributes are valid, say their own size, and outlive the call, which keeps no reference to them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(builder.attrs()),
            tid,
            ANY_CPU,
            leader,
            CLOSE_ON_EXEC,
        )
    };
    let Some(fd) = libc::c_int::try_from(fd).ok().filter(|&fd| fd >= 0) else {
        return Err(Error::last_os_error());
    };
    // SAFETY: the call gave us this descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(value: u64, enabled_ns: u64, running_ns: u64) -> Counted {
        let mut values = [None; MAX_EVENTS];
        values[0] = Some(value);
        Counted {
            values,
            enabled_ns,
            running_ns,
        }
    }

    #[test]
    fn counts_are_scaled_to_the_whole_time() {
        assert_eq!(counted(7, 0, 0).scaled(0), Some(7));
        assert_eq!(counted(7, 100, 100).scaled(0), Some(7));
        assert_eq!(counted(7, 100, 50).scaled(0), Some(14));
        assert_eq!(counted(7, 100, 0).scaled(0), None);
        assert_eq!(counted(7, 100, 50).scaled(1), None);
        assert_eq!(counted(7, 100, 50).scaled(MAX_EVENTS), None);
        assert_eq!(counted(u64::MAX, u64::MAX, 1).scaled(0), Some(u64::MAX));
    }

    #[test]
    fn differences_never_wrap() {
        let (early, late) = (counted(5, 10, 10), counted(9, 30, 20));
        assert_eq!(late.since(&early), counted(4, 20, 10));
        assert_eq!(early.since(&late), counted(0, 0, 0));
        assert_eq!(late.since(&Counted::default()).values[0], None);
    }

    fn group(events: Vec<usize>) -> Group {
        Group {
            leader: File::open("/dev/null").expect("/dev/null"),
            _members: Vec::new(),
            events,
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn values_go_to_their_events() {
        let group = group(vec![0, 3, 5]);
        let read = group.decode(&bytes(&[3, 100, 50, 7, 0, 8, 1, 9, 2]));
        let read = read.expect("a whole reading");
        assert_eq!(read.values, [Some(7), None, None, Some(8), None, Some(9)]);
        assert_eq!((read.enabled_ns, read.running_ns), (100, 50));
        assert_eq!(group.decode(&bytes(&[2, 100, 50, 7, 0, 8, 1])), None);
        assert!(group.read().is_err());
    }

    proptest! {
        #[test]
        fn no_reading_is_taken_for_more_than_it_is(data in proptest::collection::vec(any::<u8>(), 0..WORDS * 8)) {
            let group = group((0..MAX_EVENTS).collect());
            prop_assert_eq!(group.decode(&data), None);
        }
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        for kind in [Kind::Hardware, Kind::Software] {
            for tid in [i32::MAX, 0, -1] {
                assert!(Group::open(tid, kind).is_err());
            }
        }
    }
}
