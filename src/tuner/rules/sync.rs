//! Threads that wait for each other.

use super::{Finding, Rule};
use crate::tuner::Change;
use crate::tuner::facts::{Facts, count};

/// A share of waiting that even work does not reach.
const HIGH: f64 = 0.10;

/// Barriers take a good part of a token.
pub struct Waiting;

impl Rule for Waiting {
    fn id(&self) -> &'static str {
        "sync"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let share = f.sync_share().filter(|&s| s > HIGH && s < 1.0)?;
        let rate = f.decode_rate()?;
        let threads = f.engine.threads;
        // With one thread there is no barrier; with more threads than CPUs another rule speaks.
        if threads < 2 || threads > f.machine.cpus {
            return None;
        }
        let (title, change) = if f.schedule == Some("static") {
            let title =
                "Give rows to threads as they get free (schedule dynamic instead of static)"
                    .to_owned();
            (title, Some(Change::one("schedule", "dynamic")))
        } else if threads >= f.cores() {
            let title = format!(
                "Use {} instead of {threads}: leave a core to the rest of the system",
                count(threads - 1, "thread")
            );
            (title, Some(Change::one("threads", threads - 1)))
        } else {
            (
                "Stop other work on this machine: the threads wait for each other".to_owned(),
                None,
            )
        };
        let switches = f.memory.involuntary_switches.filter(|&n| n > 0);
        let switches =
            switches.map(|n| format!("; the system took the CPU away {n} times in this session"));
        Some(Finding {
            title,
            why: format!(
                "Waiting at barriers takes {:.0}% of a token with {threads} threads{}. \
                 With none of it the rate would be {:.1} tok/s instead of {rate:.1}; how much of that comes back has to be measured",
                share * 100.0,
                switches.unwrap_or_default(),
                rate / (1.0 - share),
            ),
            expected: None,
            change,
        })
    }
}
