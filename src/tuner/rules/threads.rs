//! Threads against the CPUs there are.

use super::{Finding, Rule};
use crate::tuner::Change;
use crate::tuner::facts::{Facts, count};

/// A gain or bandwidth difference below this is not worth a change.
const WORTHWHILE: f64 = 1.05;

/// CPUs lie idle.
pub struct MoreThreads;

impl Rule for MoreThreads {
    fn id(&self) -> &'static str {
        "more-threads"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let now = f.engine.threads;
        let rate = f.decode_rate()?;
        let target = if now < f.cores() {
            f.cores()
        } else {
            hyperthreads(f)?
        };
        let expected = f.expected_with_threads(target);
        if expected
            .as_ref()
            .is_some_and(|e| e.tok_s < rate * WORTHWHILE)
        {
            return None;
        }
        let not_estimated = if expected.is_some() {
            ""
        } else {
            "; how much it brings cannot be estimated without the bandwidth probe"
        };
        Some(Finding {
            title: format!("Use {} instead of {now}", count(target, "thread")),
            why: format!(
                "{rate:.1} tok/s come from {} of the {} this process may use ({}){not_estimated}",
                count(now, "thread"),
                count(f.machine.cpus, "CPU"),
                count(f.cores(), "core"),
            ),
            expected,
            change: Some(Change::one("threads", target)),
        })
    }
}

/// All cores are used. A second thread on a core pays only where it draws more bandwidth.
fn hyperthreads(f: &Facts) -> Option<u32> {
    let all = f.machine.cpus;
    let gain = f.bandwidth_at(all)? / f.bandwidth_at(f.engine.threads)?;
    (f.engine.threads < all && gain >= WORTHWHILE).then_some(all)
}

/// Threads take turns on a CPU, and the others wait for whichever is not running.
pub struct FewerThreads;

impl Rule for FewerThreads {
    fn id(&self) -> &'static str {
        "fewer-threads"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let (now, cpus) = (f.engine.threads, f.machine.cpus);
        if now <= cpus {
            return None;
        }
        let waiting = f
            .sync_share()
            .map(|s| format!("; {:.0}% of a token is waiting at barriers", s * 100.0));
        Some(Finding {
            title: format!("Use {} instead of {now}", count(f.cores(), "thread")),
            why: format!(
                "{now} threads share {}: at every barrier all wait for one that is not running{}",
                count(cpus, "CPU"),
                waiting.unwrap_or_default(),
            ),
            expected: None,
            change: Some(Change::one("threads", f.cores())),
        })
    }
}
