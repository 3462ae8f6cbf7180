//! The critical path by brick: how long each is on the longest chain over all threads, what limits it, and what halving it
//! would bring. [`super::graph`] finds the chain; without threads to see, every brick of thread 0 lies on it.

use crate::model::brick::{BrickId, Category};
use crate::profiler::figures::{BrickRow, CriticalNode, CriticalPath};
use crate::profiler::graph::{BrickPath, StepPath};

/// From this share of the roof's bandwidth on a brick counts as limited by memory.
pub const MEMORY_SHARE: f64 = 0.6;
/// Above this share the bytes cannot have come from memory: the caches serve them, and memory is not the limit.
pub const CACHED_SHARE: f64 = 1.2;
/// Calls shorter than this are mostly dispatch and cold caches, unless they move bytes at the roof's speed.
const SHORT_CALL_US: f64 = 2.0;
/// What a short call moves at most to count as overhead where no roof is known.
const LITTLE_TRAFFIC_BYTES: f64 = 16_384.0;

/// The attainable read bandwidth that traffic is judged against, GB/s (10^9).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Roof {
    /// The probe did not run: memory and compute cannot be told apart.
    Unknown,
    /// Seen by the probe at the current thread count.
    Probed(f64),
    /// Of the modelled clock's machine.
    Modelled(f64),
}

impl Roof {
    /// The probe's figure, if it is usable.
    pub fn probed(gbps: Option<f64>) -> Self {
        gbps.filter(|g| g.is_finite() && *g > 0.0)
            .map_or(Self::Unknown, Self::Probed)
    }

    /// GB/s, if known.
    pub fn gbps(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Probed(g) | Self::Modelled(g) => Some(g),
        }
    }

    fn owner(self) -> &'static str {
        if matches!(self, Self::Modelled(_)) {
            "the modelled"
        } else {
            "this machine's"
        }
    }
}

/// What limits a brick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Memory traffic.
    Memory,
    /// Arithmetic, by elimination: traffic is far below the roof.
    Compute,
    /// Caches or arithmetic: more bytes a second than memory can give.
    Cache,
    /// Waiting, dispatch, or time that no brick accounts for.
    Overhead,
    /// Memory or compute; no roof is known to tell.
    Unknown,
}

impl Bound {
    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Cache => "cache",
            Self::Overhead => "overhead",
            Self::Unknown => "unknown",
        }
    }

    /// As the path counts it: what comes from the caches scales with cores, as arithmetic does.
    fn on_path(self) -> Self {
        match self {
            Self::Cache => Self::Compute,
            other => other,
        }
    }
}

/// Achieved traffic of a brick, GB/s (10^9); `None` where no bytes were counted or no time passed.
pub fn achieved_gbps(row: &BrickRow) -> Option<f64> {
    (row.bytes_per_step > 0 && row.us_per_step > 0.0)
        .then(|| row.bytes_per_step as f64 / row.us_per_step * 1e-3)
}

/// What limits a brick.
pub fn bound(row: &BrickRow, roof: Roof) -> Bound {
    if row.category == Category::Overhead {
        return Bound::Overhead;
    }
    let roof_share = roof
        .gbps()
        .zip(achieved_gbps(row))
        .map(|(roof, got)| got / roof);
    let at_roof = roof_share.is_some_and(|s| s >= MEMORY_SHARE);
    let bytes_per_call = row.bytes_per_step as f64 * row.steps as f64 / row.calls.max(1) as f64;
    let little = roof_share.is_some() || bytes_per_call <= LITTLE_TRAFFIC_BYTES;
    if row.mean_us < SHORT_CALL_US && !at_roof && little {
        return Bound::Overhead;
    }
    match roof_share {
        Some(s) if s > CACHED_SHARE => Bound::Cache,
        Some(s) if s >= MEMORY_SHARE => Bound::Memory,
        // No bytes counted: it is not memory, whatever the roof.
        None if row.bytes_per_step > 0 => Bound::Unknown,
        _ => Bound::Compute,
    }
}

/// The path of a mean step; `None` without rows or time. `rows` are those of one kind of step and sum to its wall time;
/// `threads` is the path over all threads of the same steps, where they were seen.
pub fn critical_path(
    rows: &[BrickRow],
    roof: Roof,
    threads: Option<&StepPath>,
) -> Option<CriticalPath> {
    let length_us: f64 = rows.iter().map(|r| r.us_per_step).sum();
    if length_us.is_nan() || length_us <= 0.0 {
        return None;
    }
    let rows = threads.map_or_else(|| rows.to_vec(), |path| on_the_path(rows, path, length_us));
    let mut path: Vec<&BrickRow> = rows.iter().filter(|r| r.us_per_step > 0.0).collect();
    path.sort_by(|a, b| b.us_per_step.total_cmp(&a.us_per_step));
    let node = |row: &&BrickRow| {
        let seen = threads.and_then(|path| Some((path, of_brick(path, row.id)?)));
        // The path may be that of a few steps fewer than the rows.
        let saved = seen.map_or(row.us_per_step / 2.0, |(path, brick)| {
            scale(path, length_us) * (path.length_us - brick.length_if_half_us)
        });
        CriticalNode {
            id: row.id,
            us: row.us_per_step,
            slack_us: seen.map_or(0.0, |(path, brick)| scale(path, length_us) * brick.slack_us),
            share: row.us_per_step / length_us,
            gbps: achieved_gbps(row),
            intensity: (row.bytes_per_step > 0)
                .then(|| row.flops_per_step as f64 / row.bytes_per_step as f64),
            tok_s_if_2x: 1e6 / (length_us - saved.clamp(0.0, length_us / 2.0)),
            bound: bound(row, roof).on_path().name().to_owned(),
        }
    };
    Some(CriticalPath {
        length_us,
        nodes: path.iter().map(node).collect(),
        verdict: verdict(&path, length_us, roof),
    })
}

/// From times of a path to those of steps of `length_us`.
fn scale(path: &StepPath, length_us: f64) -> f64 {
    let wall = path.length_us + path.barrier_us + path.gap_us;
    if wall > 0.0 { length_us / wall } else { 1.0 }
}

fn of_brick(path: &StepPath, id: BrickId) -> Option<&BrickPath> {
    path.bricks.iter().find(|b| b.id == id)
}

/// The rows with their time on the path in place of thread 0's. What is left of the step is waiting: that of the thread
/// which the path goes through.
fn on_the_path(rows: &[BrickRow], path: &StepPath, length_us: f64) -> Vec<BrickRow> {
    let mut rows = rows.to_vec();
    for row in &mut rows {
        if let Some(brick) = of_brick(path, row.id) {
            row.us_per_step = scale(path, length_us) * brick.path_us;
            // A call is as long as its slowest share.
            row.mean_us = row.us_per_step * row.steps as f64 / row.calls.max(1) as f64;
        }
    }
    let others: f64 = rows
        .iter()
        .filter(|r| r.id != BrickId::Sync)
        .map(|r| r.us_per_step)
        .sum();
    if let Some(sync) = rows.iter_mut().find(|r| r.id == BrickId::Sync) {
        sync.us_per_step = (length_us - others).max(0.0);
    }
    if others > length_us {
        // The path counts whole nanoseconds, a share at a time.
        rows.iter_mut()
            .for_each(|r| r.us_per_step *= length_us / others);
    }
    rows
}

/// Time of the path by what limits it: memory, compute, overhead, unknown; as shares that sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BoundShares {
    /// Limited by memory.
    pub memory: f64,
    /// Limited by arithmetic or caches.
    pub compute: f64,
    /// Waiting and dispatch.
    pub overhead: f64,
    /// Not known which.
    pub unknown: f64,
}

/// How a step's time divides over limits; `None` without time.
pub fn bound_shares(rows: &[BrickRow], roof: Roof) -> Option<BoundShares> {
    let length: f64 = rows.iter().map(|r| r.us_per_step).sum();
    if length.is_nan() || length <= 0.0 {
        return None;
    }
    let mut shares = BoundShares::default();
    for row in rows {
        let share = match bound(row, roof) {
            Bound::Memory => &mut shares.memory,
            Bound::Compute | Bound::Cache => &mut shares.compute,
            Bound::Overhead => &mut shares.overhead,
            Bound::Unknown => &mut shares.unknown,
        };
        *share += row.us_per_step / length;
    }
    Some(shares)
}

/// One sentence about the limit that holds most of the path. `path` is not empty and in descending order of time.
fn verdict(path: &[&BrickRow], length_us: f64, roof: Roof) -> String {
    let time = |b: Bound| -> f64 {
        path.iter()
            .filter(|r| bound(r, roof).on_path() == b)
            .map(|r| r.us_per_step)
            .sum()
    };
    let [mut worst, others @ ..] = [
        Bound::Memory,
        Bound::Compute,
        Bound::Overhead,
        Bound::Unknown,
    ];
    for b in others {
        if time(b) > time(worst) {
            worst = b;
        }
    }
    let group: Vec<&BrickRow> = path
        .iter()
        .copied()
        .filter(|r| bound(r, roof).on_path() == worst)
        .collect();
    let us: f64 = group.iter().map(|r| r.us_per_step).sum();
    let bytes: f64 = group.iter().map(|r| r.bytes_per_step as f64).sum();
    let flops: f64 = group.iter().map(|r| r.flops_per_step as f64).sum();
    let gbps = bytes / us * 1e-3;
    let percent = us / length_us * 100.0;
    let one = group.len() == 1;
    let names = names(&group);
    let moves = if one { "moves" } else { "move" };
    match (worst, roof.gbps()) {
        (Bound::Memory, Some(roof_gbps)) => format!(
            "{names} {moves} {} a token at {gbps:.1} GB/s, {:.0}% of {} {roof_gbps:.1} GB/s: memory-bound ({percent:.0}% of the step)",
            si_bytes(bytes),
            gbps / roof_gbps * 100.0,
            roof.owner(),
        ),
        (Bound::Compute, Some(roof_gbps)) if gbps > roof_gbps * CACHED_SHARE => format!(
            "{names} {moves} {} a token at {gbps:.1} GB/s, more than {} {roof_gbps:.1} GB/s: the data comes from the caches, compute-bound ({percent:.0}% of the step)",
            si_bytes(bytes),
            roof.owner(),
        ),
        (Bound::Compute, Some(roof_gbps)) if bytes > 0.0 => format!(
            "{names} {} {percent:.0}% of the step at {:.1} GFLOP/s and {gbps:.1} GB/s, {:.0}% of {} {roof_gbps:.1} GB/s: compute-bound",
            if one { "takes" } else { "take" },
            flops / us * 1e-3,
            gbps / roof_gbps * 100.0,
            roof.owner(),
        ),
        (Bound::Overhead, _) => format!(
            "{names} {} {percent:.0}% of the step in waiting and short calls: overhead-bound",
            if one { "takes" } else { "take" },
        ),
        (Bound::Unknown, _) => format!(
            "{names} {moves} {} a token at {gbps:.1} GB/s ({percent:.0}% of the step); memory or compute cannot be told without the bandwidth probe",
            si_bytes(bytes),
        ),
        _ => format!(
            "{names} {} {percent:.0}% of the step at {:.1} GFLOP/s: compute-bound",
            if one { "takes" } else { "take" },
            flops / us * 1e-3,
        ),
    }
}

/// The three longest by name, the rest as a count.
fn names(group: &[&BrickRow]) -> String {
    let name = |r: &&BrickRow| {
        if r.id == BrickId::Unattributed {
            "unattributed time"
        } else {
            r.id.name()
        }
    };
    let first: Vec<&str> = group.iter().take(3).map(name).collect();
    match (group.len(), first.split_last()) {
        (n @ 4.., _) => format!("{} and {} more", first.join(", "), n - 3),
        (_, Some((last, []))) => (*last).to_owned(),
        (_, Some((last, head))) => format!("{} and {last}", head.join(", ")),
        (_, None) => String::new(),
    }
}

fn si_bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b * 1e-9),
        b if b >= 1e6 => format!("{:.1} MB", b * 1e-6),
        b => format!("{:.1} kB", b * 1e-3),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of `calls` calls in one step, taking `us` in all.
    pub(crate) fn row(id: BrickId, calls: u64, us: f64, bytes: u64, flops: u64) -> BrickRow {
        let mean = us / calls.max(1) as f64;
        BrickRow {
            id,
            category: id.category(),
            calls,
            steps: 1,
            total_us: us,
            us_per_step: us,
            mean_us: mean,
            stddev_us: 0.0,
            min_us: mean,
            max_us: mean,
            p50_us: mean,
            p99_us: mean,
            elements_per_step: 1,
            bytes_per_step: bytes,
            flops_per_step: flops,
            share: 0.0,
            step_stddev_us: None,
            history_us: Vec::new(),
            cycles_per_call: None,
        }
    }

    fn typical() -> Vec<BrickRow> {
        vec![
            row(BrickId::AttnNorm, 30, 30.0, 60_000, 90_000),
            row(BrickId::QProj, 30, 1000.0, 12_000_000, 24_000_000),
            row(BrickId::Attention, 30, 500.0, 1_000_000, 3_000_000),
            row(BrickId::LmHead, 1, 2000.0, 30_000_000, 60_000_000),
            row(BrickId::Sync, 90, 100.0, 0, 0),
            row(BrickId::Unattributed, 1, 20.0, 0, 0),
        ]
    }

    #[test]
    fn nothing_to_say_without_time() {
        assert!(critical_path(&[], Roof::Probed(10.0), None).is_none());
        assert!(critical_path(&[row(BrickId::QProj, 1, 0.0, 1, 1)], Roof::Unknown, None).is_none());
        assert!(bound_shares(&[], Roof::Unknown).is_none());
    }

    #[test]
    fn bricks_are_ordered_by_time_with_figures() {
        let path = critical_path(&typical(), Roof::Probed(18.4), None).expect("time passed");
        assert!((path.length_us - 3650.0).abs() < 1e-9);
        let bounds: Vec<_> = path
            .nodes
            .iter()
            .map(|n| (n.id, n.bound.as_str()))
            .collect();
        assert_eq!(
            bounds,
            [
                (BrickId::LmHead, "memory"),
                (BrickId::QProj, "memory"),
                (BrickId::Attention, "compute"),
                (BrickId::Sync, "overhead"),
                (BrickId::AttnNorm, "overhead"),
                (BrickId::Unattributed, "overhead"),
            ]
        );
        let head = &path.nodes[0];
        assert!(head.gbps.is_some_and(|g| (g - 15.0).abs() < 1e-9));
        assert!(head.intensity.is_some_and(|i| (i - 2.0).abs() < 1e-9));
        assert!((head.tok_s_if_2x - 1e6 / 2650.0).abs() < 1e-9);
        assert!((path.nodes.iter().map(|n| n.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(path.nodes[3].gbps.is_none() && path.nodes[3].intensity.is_none());
        assert_eq!(
            path.verdict,
            "LmHead and QProj move 42.0 MB a token at 14.0 GB/s, 76% of this machine's 18.4 GB/s: memory-bound (82% of the step)"
        );
    }

    #[test]
    fn verdict_names_the_limit_that_holds_most_time() {
        let say = |rows: &[BrickRow], roof| {
            critical_path(rows, roof, None)
                .expect("time passed")
                .verdict
        };
        let q = |us, bytes| row(BrickId::QProj, 1, us, bytes, 2 * bytes);
        let cases = [
            (
                vec![q(1000.0, 1_000_000)],
                Roof::Probed(10.0),
                "QProj takes 100% of the step at 2.0 GFLOP/s and 1.0 GB/s, 10% of this machine's 10.0 GB/s: compute-bound",
            ),
            (
                vec![q(100.0, 3_000_000)],
                Roof::Probed(10.0),
                "QProj moves 3.0 MB a token at 30.0 GB/s, more than this machine's 10.0 GB/s: the data comes from the caches, compute-bound (100% of the step)",
            ),
            (
                vec![q(1000.0, 9_000_000)],
                Roof::Modelled(10.0),
                "QProj moves 9.0 MB a token at 9.0 GB/s, 90% of the modelled 10.0 GB/s: memory-bound (100% of the step)",
            ),
            (
                vec![q(1000.0, 9_000_000)],
                Roof::Unknown,
                "QProj moves 9.0 MB a token at 9.0 GB/s (100% of the step); memory or compute cannot be told without the bandwidth probe",
            ),
            (
                vec![q(100.0, 900_000), row(BrickId::Sync, 9, 300.0, 0, 0)],
                Roof::Probed(10.0),
                "sync takes 75% of the step in waiting and short calls: overhead-bound",
            ),
            (
                vec![row(BrickId::Sample, 1, 50.0, 0, 1_000_000)],
                Roof::Unknown,
                "Sample takes 100% of the step at 20.0 GFLOP/s: compute-bound",
            ),
        ];
        for (rows, roof, expected) in cases {
            assert_eq!(say(&rows, roof), expected);
        }
    }

    #[test]
    fn short_calls_are_overhead_unless_they_run_at_the_roof() {
        let short = |bytes| row(BrickId::Rope, 10, 10.0, bytes, 100);
        assert_eq!(bound(&short(10_000), Roof::Probed(10.0)), Bound::Overhead);
        assert_eq!(bound(&short(90_000), Roof::Probed(10.0)), Bound::Memory);
        assert_eq!(bound(&short(10_000), Roof::Unknown), Bound::Overhead);
        assert_eq!(bound(&short(900_000), Roof::Unknown), Bound::Unknown);
    }

    #[test]
    fn thresholds_belong_to_a_class() {
        let at = |bytes| {
            bound(
                &row(BrickId::QProj, 1, 1000.0, bytes, 1),
                Roof::Probed(10.0),
            )
        };
        assert_eq!(at(6_000_000), Bound::Memory);
        assert_eq!(at(5_990_000), Bound::Compute);
        assert_eq!(at(12_000_000), Bound::Memory);
        assert_eq!(at(12_100_000), Bound::Cache);
    }

    #[test]
    fn a_useless_probe_is_no_roof() {
        for g in [None, Some(0.0), Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(Roof::probed(g), Roof::Unknown);
        }
        assert_eq!(Roof::probed(Some(3.0)).gbps(), Some(3.0));
    }

    #[test]
    fn long_groups_are_cut_to_three_names() {
        let rows = [
            BrickId::QProj,
            BrickId::UpProj,
            BrickId::DownProj,
            BrickId::LmHead,
            BrickId::OProj,
        ]
        .map(|id| row(id, 1, 100.0, 900_000, 1));
        let path = critical_path(&rows, Roof::Probed(10.0), None).expect("time passed");
        assert!(
            path.verdict
                .starts_with("QProj, UpProj, DownProj and 2 more move 4.5 MB"),
            "{}",
            path.verdict
        );
    }
}
