//! The roofline: how near each brick comes to what this machine can do.
//!
//! Attainable is the lower of the compute peak and arithmetic intensity times memory bandwidth (Williams, Waterman and
//! Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009). Both
//! peaks are probed, never looked up. What limits a brick is [`bound`]'s word, here and on the critical path.

use crate::engine::Config;
use crate::engine::cpu::{Input, KernelSet, mat_kernel};
use crate::model::brick::BrickId;
use crate::model::{Matrix, Op, Plan};
use crate::profiler::critical::{Bound, MEMORY_SHARE, Roof, achieved_gbps, bound};
use crate::profiler::figures::{BrickRow, Peak, PeakKind, RoofPoint, Roofline};

/// The bricks whose products are of int8 with the kernel sets of `config`: those that mostly multiply quantised weights,
/// which vector kernels meet with activations quantised alike. The portable kernels multiply floats.
pub fn int8_bricks(plan: &Plan, config: &Config) -> Vec<BrickId> {
    // Elements of quantised weights less those of others.
    let mut balance = vec![0i128; BrickId::COUNT];
    for brick in &plan.bricks {
        balance[brick.id as usize] += match &brick.op {
            Op::MatMul { w, .. } => weigh(w, config),
            Op::ExpertMatMul { w, .. } => w.iter().map(|w| weigh(w, config)).sum(),
            _ => 0,
        };
    }
    let mostly = |id: &BrickId| balance[*id as usize] > 0;
    BrickId::ALL.iter().copied().filter(mostly).collect()
}

fn weigh(w: &Matrix, config: &Config) -> i128 {
    let elements = w.rows as i128 * w.k as i128;
    match mat_kernel(config.kernels_of(w.ty), w.ty) {
        Some(kernel) if kernel.set != KernelSet::Scalar && kernel.input == Input::Q8 => elements,
        _ => -elements,
    }
}

/// The bricks of `rows` (those of decode steps) under the peaks that are marked as in use. `roof` is the bandwidth that
/// the critical path is judged by, `int8` the bricks whose compute roof is that of int8 products. On the modelled machine,
/// where arithmetic costs nothing, memory alone is the roof.
pub fn roofline(rows: &[BrickRow], peaks: &[Peak], roof: Roof, int8: &[BrickId]) -> Roofline {
    let Some(gbps) = roof.gbps() else {
        return Roofline {
            peaks: peaks.to_vec(),
            points: Vec::new(),
            reading:
                "No roof is known: the bandwidth probe did not run for this number of threads."
                    .into(),
        };
    };
    let roofs = Roofs {
        gbps,
        peaks,
        modelled: matches!(roof, Roof::Modelled(_)),
    };
    let kind = |row: &BrickRow| match int8.contains(&row.id) {
        true => PeakKind::Int8,
        false => PeakKind::Fp32,
    };
    let mut points: Vec<(f64, RoofPoint)> = rows
        .iter()
        .filter_map(|row| {
            Some((
                row.us_per_step,
                roofs.point(row, kind(row), bound(row, roof))?,
            ))
        })
        .collect();
    points.sort_by(|a, b| b.0.total_cmp(&a.0));
    let points: Vec<RoofPoint> = points.into_iter().map(|(_, p)| p).collect();
    let reading = match points.first() {
        Some(longest) => roofs.reading(longest),
        None if !roofs.modelled && roofs.compute(PeakKind::Fp32).is_none() => {
            "No compute peak was probed for these kernels and this number of threads.".into()
        }
        None => "No decode step has counted operations and bytes so far.".into(),
    };
    Roofline {
        peaks: peaks.to_vec(),
        points,
        reading,
    }
}

struct Roofs<'a> {
    gbps: f64,
    peaks: &'a [Peak],
    modelled: bool,
}

impl Roofs<'_> {
    /// The compute peak in use, operations a nanosecond.
    fn compute(&self, kind: PeakKind) -> Option<f64> {
        let usable = |p: &&Peak| p.kind == kind && p.in_use && p.value.is_finite() && p.value > 0.0;
        self.peaks.iter().find(usable).map(|p| p.value)
    }

    /// `None` where the brick counts no operations or no bytes, took no time, or has no compute peak.
    fn point(&self, row: &BrickRow, compute: PeakKind, bound: Bound) -> Option<RoofPoint> {
        let gbps = achieved_gbps(row).filter(|_| row.flops_per_step > 0)?;
        let peak = match self.compute(compute) {
            None if self.modelled => f64::INFINITY,
            peak => peak?,
        };
        let intensity = row.flops_per_step as f64 / row.bytes_per_step as f64;
        let gflops = row.flops_per_step as f64 / row.us_per_step * 1e-3;
        let roof_gflops = peak.min(intensity * self.gbps);
        Some(RoofPoint {
            id: row.id,
            intensity,
            gflops,
            gbps,
            roof_gflops,
            of_roof: gflops / roof_gflops,
            compute,
            bound: bound.name().into(),
        })
    }

    /// What the roofs say of a brick.
    fn reading(&self, p: &RoofPoint) -> String {
        let name = p.id.name();
        let percent = |share: f64| (share * 100.0).round();
        let memory = percent(p.gbps / self.gbps);
        let compute = self.compute(p.compute).map(|peak| p.gflops / peak);
        let roof = match p.compute {
            PeakKind::Int8 => "int8",
            PeakKind::Fp32 | PeakKind::Memory => "FP32",
        };
        let both = match compute {
            Some(share) => format!(
                "{memory}% of the memory roof and {}% of the {roof} roof",
                percent(share)
            ),
            None => format!("{memory}% of the memory roof"),
        };
        if p.bound == Bound::Memory.name() {
            return format!("{name} is at {memory}% of the memory roof: only fewer bytes help.");
        }
        if p.bound == Bound::Overhead.name() {
            return format!("{name} is at {both}: its calls are too short for either to matter.");
        }
        if let Some(share) = compute.filter(|share| *share >= MEMORY_SHARE) {
            return format!(
                "{name} is at {}% of the {roof} roof: only fewer operations help.",
                percent(share)
            );
        }
        if p.bound == Bound::Cache.name() {
            return format!(
                "{name} is at {both}: it runs from the caches, and memory is not its limit."
            );
        }
        format!("{name} is at {both}: its kernel can be faster.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::critical::critical_path;
    use crate::profiler::critical::tests::row;
    use proptest::prelude::*;

    const INT8: &[BrickId] = &[BrickId::QProj, BrickId::DownProj, BrickId::LmHead];

    fn peak(kind: PeakKind, value: f64, in_use: bool) -> Peak {
        Peak {
            kind,
            isa: "avx2".into(),
            threads: 2,
            value,
            in_use,
        }
    }

    fn peaks() -> Vec<Peak> {
        vec![
            peak(PeakKind::Memory, 20.0, true),
            peak(PeakKind::Fp32, 10.0, false),
            peak(PeakKind::Fp32, 80.0, true),
            peak(PeakKind::Int8, 320.0, true),
        ]
    }

    fn of(rows: &[BrickRow]) -> Roofline {
        roofline(rows, &peaks(), Roof::Probed(20.0), INT8)
    }

    #[test]
    fn bricks_lie_under_the_roof_of_their_arithmetic() {
        let r = of(&[
            row(BrickId::AttnNorm, 1, 50.0, 100_000, 100_000),
            row(BrickId::Sync, 9, 500.0, 0, 0),
            row(BrickId::KvWrite, 1, 10.0, 4_000, 0),
            row(BrickId::QProj, 1, 1000.0, 18_000_000, 72_000_000),
            row(BrickId::Attention, 1, 100.0, 4_000_000, 4_000_000),
        ]);
        let points: Vec<_> = r
            .points
            .iter()
            .map(|p| (p.id, p.compute, p.bound.as_str()))
            .collect();
        assert_eq!(
            points,
            [
                (BrickId::QProj, PeakKind::Int8, "memory"),
                (BrickId::Attention, PeakKind::Fp32, "cache"),
                (BrickId::AttnNorm, PeakKind::Fp32, "compute"),
            ]
        );
        let q = &r.points[0];
        assert!((q.intensity - 4.0).abs() < 1e-12 && (q.roof_gflops - 80.0).abs() < 1e-9);
        assert!((q.of_roof - 0.9).abs() < 1e-9 && (q.gbps - 18.0).abs() < 1e-9);
        assert!(r.points[1].of_roof > 1.0);
        assert_eq!(r.peaks.len(), 4);
        assert_eq!(
            r.reading,
            "QProj is at 90% of the memory roof: only fewer bytes help."
        );
    }

    #[test]
    fn the_longest_brick_is_read() {
        let cases = [
            (
                row(BrickId::DownProj, 1, 1000.0, 6_000_000, 24_000_000),
                "DownProj is at 30% of the memory roof and 8% of the int8 roof: its kernel can be faster.",
            ),
            (
                row(BrickId::Attention, 1, 100.0, 4_000_000, 800_000),
                "Attention is at 200% of the memory roof and 10% of the FP32 roof: it runs from the caches, and memory is not its limit.",
            ),
            (
                row(BrickId::Attention, 1, 1000.0, 4_000_000, 60_000_000),
                "Attention is at 75% of the FP32 roof: only fewer operations help.",
            ),
            (
                row(BrickId::Rope, 100, 100.0, 100_000, 80_000),
                "Rope is at 5% of the memory roof and 1% of the FP32 roof: its calls are too short for either to matter.",
            ),
        ];
        for (row, says) in cases {
            assert_eq!(of(&[row]).reading, says);
        }
    }

    #[test]
    fn without_peaks_there_are_no_points() {
        let rows = [row(BrickId::QProj, 1, 1000.0, 18_000_000, 72_000_000)];
        let r = roofline(&rows, &[], Roof::Unknown, INT8);
        assert!(r.points.is_empty() && r.reading.starts_with("No roof is known"));
        let r = roofline(&rows, &[], Roof::Probed(20.0), INT8);
        assert!(r.points.is_empty() && r.reading.starts_with("No compute peak"));
        let r = roofline(&[], &peaks(), Roof::Probed(20.0), INT8);
        assert!(r.points.is_empty() && r.reading.starts_with("No decode step"));
        let r = roofline(&rows, &[], Roof::Modelled(20.0), INT8);
        assert!((r.points[0].roof_gflops - 80.0).abs() < 1e-9);
        assert!(r.reading.contains("90% of the memory roof"));
    }

    #[test]
    fn path_and_roofline_agree_on_what_limits_a_brick() {
        let rows: Vec<BrickRow> = BrickId::ALL
            .iter()
            .zip(1u64..)
            .map(|(&id, n)| row(id, n, 100.0, 150_000 * n, 1_000_000))
            .collect();
        let roof = Roof::Probed(20.0);
        let path = critical_path(&rows, roof, None).expect("time passed");
        for p in roofline(&rows, &peaks(), roof, INT8).points {
            let node = path
                .nodes
                .iter()
                .find(|n| n.id == p.id)
                .expect("on the path");
            let on_path = if p.bound == "cache" {
                "compute"
            } else {
                &p.bound
            };
            assert_eq!(node.bound, on_path);
        }
    }

    proptest! {
        #[test]
        fn f130_distance_from_the_roof_matches_the_model(
            bytes in 1_000u64..1_000_000_000,
            flops in 1_000u64..100_000_000_000,
            gbps in 1.0f64..500.0,
            peak_gflops in 1.0f64..5000.0,
            of_roof in 0.01f64..1.0,
        ) {
            // The model: a kernel that overlaps perfectly takes the longer of moving and computing.
            let us = (bytes as f64 / gbps).max(flops as f64 / peak_gflops) * 1e-3 / of_roof;
            let rows = [row(BrickId::QProj, 1, us, bytes, flops)];
            let peaks = [peak(PeakKind::Int8, peak_gflops, true)];
            let r = roofline(&rows, &peaks, Roof::Probed(gbps), INT8);
            prop_assert!((r.points[0].of_roof / of_roof - 1.0).abs() < 1e-9);
        }

        #[test]
        fn f134_achieved_gflops_are_operations_by_time(flops in 1u64..1 << 50, us in 0.1f64..1e7) {
            let r = of(&[row(BrickId::QProj, 1, us, 1000, flops)]);
            let by_hand = flops as f64 / (us * 1e-6) / 1e9;
            prop_assert!((r.points[0].gflops / by_hand - 1.0).abs() < 1e-12);
        }

        #[test]
        fn odd_rows_and_peaks_do_no_harm(us in prop::num::f64::ANY, value in prop::num::f64::ANY, bytes: u64, flops: u64) {
            let rows = [row(BrickId::QProj, 1, us, bytes, flops)];
            let r = roofline(&rows, &[peak(PeakKind::Int8, value, true)], Roof::probed(Some(value)), INT8);
            prop_assert!(r.points.len() <= 1 && !r.reading.is_empty());
        }
    }
}
