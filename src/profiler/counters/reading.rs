//! One sentence: what the counters say.

use super::threads::ratio;
use crate::profiler::figures::{Counters, Support, ThreadCounters};

/// Fewer instructions a cycle than this: the cores mostly wait.
const STALLED_IPC: f64 = 1.0;
/// More than this: the cores are mostly busy computing.
const BUSY_IPC: f64 = 2.0;
/// Moves to another core, in a second on a CPU, that are worth a word: each comes to cold caches.
const MANY_MIGRATIONS: f64 = 1.0;

/// The most useful thing there is to say, the most urgent first.
pub(super) fn of(counters: &Counters) -> String {
    let sentence = counters
        .system
        .warnings
        .first()
        .cloned()
        .or_else(|| moving(&counters.threads))
        .or_else(|| instructions_a_cycle(&counters.threads))
        .unwrap_or_else(|| quiet(counters));
    capitalised(&sentence)
}

fn sum(threads: &[ThreadCounters], of: impl Fn(&ThreadCounters) -> Option<u64>) -> Option<u64> {
    threads.iter().filter_map(of).reduce(u64::saturating_add)
}

/// Per second that the threads were on a CPU.
fn rate(threads: &[ThreadCounters], of: impl Fn(&ThreadCounters) -> Option<u64>) -> Option<f64> {
    let seconds = threads.iter().filter_map(|t| t.cpu_ms).sum::<f64>() * 1e-3;
    // In less than this a few switches at the start would look like many.
    let count = sum(threads, of).filter(|_| seconds >= 0.5)?;
    Some(count as f64 / seconds)
}

fn moving(threads: &[ThreadCounters]) -> Option<String> {
    let moves = rate(threads, |t| t.migrations).filter(|&r| r > MANY_MIGRATIONS)?;
    Some(format!(
        "threads moved to another core {moves:.0} times in a second of work: bind them to cores"
    ))
}

fn instructions_a_cycle(threads: &[ThreadCounters]) -> Option<String> {
    let ipc = ratio(sum(threads, |t| t.instructions), sum(threads, |t| t.cycles))?;
    let meaning = if ipc < STALLED_IPC {
        "the cores mostly wait, for memory or for each other"
    } else if ipc > BUSY_IPC {
        "the cores are mostly busy computing"
    } else {
        "between waiting and computing"
    };
    Some(format!("{ipc:.2} instructions a cycle: {meaning}"))
}

fn quiet(counters: &Counters) -> String {
    let without = match &counters.hardware {
        Support::Available => "no instructions were counted yet".to_owned(),
        Support::Unavailable { why, .. } => format!("no instructions a cycle: {why}"),
    };
    match rate(&counters.threads, |t| t.context_switches) {
        Some(switches) => {
            format!("{switches:.0} context switches in a second of work; {without}")
        }
        None => without,
    }
}

fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::figures::SystemFigures;

    fn counters(threads: Vec<ThreadCounters>, warning: Option<&str>) -> Counters {
        Counters {
            hardware: Support::Unavailable {
                why: "there is no PMU".into(),
                remedy: "get one".into(),
            },
            software: Support::Available,
            threads,
            bricks: Vec::new(),
            system: SystemFigures {
                warnings: warning.map(str::to_owned).into_iter().collect(),
                ..SystemFigures::default()
            },
            reading: String::new(),
        }
    }

    fn thread(instructions: Option<u64>, migrations: u64) -> ThreadCounters {
        ThreadCounters {
            cycles: instructions.map(|_| 1000),
            instructions,
            cpu_ms: Some(2000.0),
            context_switches: Some(24),
            migrations: Some(migrations),
            ..ThreadCounters::default()
        }
    }

    #[test]
    fn the_most_urgent_is_said() {
        let warned = counters(vec![thread(Some(500), 100)], Some("it is hot"));
        assert_eq!(of(&warned), "It is hot");
        let moved = counters(vec![thread(Some(500), 100); 2], None);
        assert!(of(&moved).starts_with("Threads moved to another core 50 times"));
        let quiet = counters(vec![thread(None, 0); 2], None);
        assert_eq!(
            of(&quiet),
            "12 context switches in a second of work; no instructions a cycle: there is no PMU"
        );
        let nothing = counters(Vec::new(), None);
        assert_eq!(of(&nothing), "No instructions a cycle: there is no PMU");
    }

    #[test]
    fn f148_instructions_a_cycle_are_of_all_threads_and_only_counted_ones() {
        let of_threads = |counts: &[Option<u64>]| {
            let threads = counts.iter().map(|&n| thread(n, 0)).collect();
            of(&counters(threads, None))
        };
        assert!(
            of_threads(&[Some(600), Some(1000), None])
                .starts_with("0.80 instructions a cycle: the cores mostly wait")
        );
        assert!(of_threads(&[Some(1500)]).starts_with("1.50 instructions a cycle: between"));
        assert!(of_threads(&[Some(3000)]).contains("busy computing"));
        assert!(!of_threads(&[None]).contains("0.00"));
    }
}
