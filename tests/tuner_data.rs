//! The committed runs (`assets/runs`) and the archive of causes, by criteria F041 to F060: what is there is measured and
//! printed, and a floor below what was measured is asserted.

use cbtop::tuner::fingerprint::{fingerprint, of_name, this_machine};
use cbtop::tuner::five_whys::{self, Outcome, RootCauseKind};
use cbtop::tuner::run::{MachineKind, Origin, Run};
use cbtop::tuner::store::quality::{self, Rule};
use cbtop::tuner::store::{columns, dataset};
use cbtop::tuner::telemetry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::LazyLock;

static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/runs");
    dataset::read(&dir).expect("the committed runs")
});

fn local() -> Vec<Run> {
    let ours = |r: &&Run| r.origin != Origin::Public;
    RUNS.iter().filter(ours).cloned().collect()
}

/// Shares of values, the most frequent first.
fn shares<T: Ord + Clone>(of: impl Iterator<Item = T>) -> Vec<(T, f64)> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in of {
        *counts.entry(value).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    let share = |(v, n): (T, usize)| (v, n as f64 / all as f64);
    let mut shares: Vec<_> = counts.into_iter().map(share).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

fn accepted() -> Vec<Run> {
    let verdicts = quality::judge(&RUNS);
    let good = RUNS.iter().zip(verdicts).filter(|(_, v)| v.accepted());
    good.map(|(r, _)| r.clone()).collect()
}

#[test]
fn f041_samples_are_counted() {
    let by_origin = shares(RUNS.iter().map(|r| r.origin));
    println!(
        "{} runs, {by_origin:?}; {} accepted",
        RUNS.len(),
        accepted().len()
    );
    println!("{}", quality::summary(&quality::judge(&RUNS)));
    assert!(RUNS.len() >= 800, "{}", RUNS.len());
}

#[test]
fn f042_repetitions_are_three_or_more_or_not_reported() {
    let few = local().iter().filter(|r| r.repetitions < 3).count();
    let public = RUNS.iter().filter(|r| r.origin == Origin::Public);
    let unknown = public.filter(|r| r.repetitions < 3).count();
    println!(
        "{} local runs, {few} with fewer than 3; {unknown} public ones do not tell",
        local().len()
    );
    let verdicts = quality::judge(&RUNS);
    for (run, verdict) in RUNS.iter().zip(verdicts) {
        let known = !verdict.unknown.contains(&Rule::Repetitions);
        let enough = run.repetitions >= 3;
        assert!(
            !verdict.accepted() || enough || !known,
            "{}",
            run.trial.key()
        );
    }
}

#[test]
fn f043_accepted_runs_vary_by_less_than_fifteen_percent() {
    let cvs: Vec<f64> = RUNS.iter().filter_map(Run::cv).collect();
    let wide = cvs.iter().filter(|cv| **cv >= quality::MAX_CV).count();
    println!("{} runs tell their spread, {wide} are left out", cvs.len());
    let worst = accepted().iter().filter_map(Run::cv).fold(0.0, f64::max);
    println!("worst of those accepted: {:.1}%", worst * 100.0);
    assert!(worst < quality::MAX_CV);
}

#[test]
fn f044_no_configuration_is_there_twice() {
    let mut seen = HashSet::new();
    for run in accepted() {
        let source = (run.origin == Origin::Public).then_some(run.source);
        assert!(
            seen.insert((run.trial.key(), run.origin, source)),
            "{}",
            run.trial.key()
        );
    }
}

#[test]
fn f045_kernel_classes_are_counted() {
    let local = local();
    let kernels = shares(local.iter().filter_map(|r| r.trial.setting("backend")));
    println!("kernel sets of {} local runs: {kernels:?}", local.len());
    for (kernel, share) in kernels {
        assert!(share >= 0.05, "{kernel}: {share}");
    }
}

#[test]
fn f046_bottleneck_classes_are_counted() {
    let classes = RUNS.iter().filter_map(|r| {
        let s = r.shares?;
        let by = [
            (s.memory, "memory"),
            (s.compute, "compute"),
            (s.launch, "launch"),
            (s.attention, "attention"),
        ];
        by.into_iter()
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, name)| name)
    });
    println!(
        "what takes most of a step, of runs that were profiled: {:?}",
        shares(classes)
    );
    for run in RUNS.iter() {
        let Some(s) = run.shares else { continue };
        let sum = s.memory + s.compute + s.launch + s.attention + s.unknown;
        assert!((sum - 1.0).abs() < 1e-3, "{}: {sum}", run.trial.key());
    }
}

#[test]
fn f047_hardware_is_diverse() {
    let gpus = RUNS
        .iter()
        .filter(|r| r.trial.hardware.kind == MachineKind::Gpu);
    let gpus: BTreeSet<&str> = gpus.map(|r| r.trial.hardware.name.as_str()).collect();
    let machines: BTreeSet<&str> = RUNS
        .iter()
        .map(|r| r.trial.hardware.fingerprint.as_str())
        .collect();
    println!(
        "{} machines, {} of them graphics cards",
        machines.len(),
        gpus.len()
    );
    assert!(gpus.len() >= 3);
    assert!(machines.len() >= 35);
}

fn range(of: impl Iterator<Item = f64>) -> (f64, f64) {
    of.fold((f64::MAX, 0.0), |(low, high), x| (low.min(x), high.max(x)))
}

#[test]
fn f048_model_sizes_reach_from_half_to_thirty_two_billion() {
    let (low, high) = range(RUNS.iter().map(|r| r.trial.model.params / 1e9));
    println!("{low} to {high} billion parameters");
    assert!(high >= 32.0);
    // 0.5 needs local runs; public reports begin with granite-3.1-3b.
    assert!(low <= 3.5);
}

#[test]
fn f049_batch_sizes_are_counted() {
    let batches = shares(RUNS.iter().map(|r| r.trial.test.batch));
    println!("sequences run together: {batches:?}");
    let (low, high) = range(RUNS.iter().map(|r| f64::from(r.trial.test.batch)));
    assert!(low == 1.0 && high >= 32.0, "{low} to {high}");
}

#[test]
fn f050_sequence_lengths_are_counted() {
    let longest =
        |r: &Run| f64::from(r.trial.test.depth + r.trial.test.prompt + r.trial.test.generated);
    let (low, high) = range(RUNS.iter().map(longest));
    println!("sequences of {low} to {high} tokens");
    assert!(low <= 64.0 && high >= 8192.0);
}

#[test]
fn f051_local_runs_were_warmed_up() {
    let unknown = RUNS.iter().filter(|r| r.warm.is_none()).count();
    println!("{unknown} runs do not tell");
    assert!(local().iter().all(|r| r.warm.is_some()));
    assert!(accepted().iter().all(|r| r.warm != Some(false)));
}

#[test]
fn f052_accepted_runs_were_not_disturbed() {
    let unknown = RUNS.iter().filter(|r| r.background.is_none()).count();
    println!("{unknown} runs do not tell");
    let quiet = |r: &Run| r.background.is_none_or(|b| b < quality::MAX_BACKGROUND);
    assert!(accepted().iter().all(quiet));
}

#[test]
fn f053_timestamps_are_recorded() {
    let without = RUNS.iter().filter(|r| r.unix_s.is_none()).count();
    println!(
        "{without} of {} runs have no time: reports of others do not tell",
        RUNS.len()
    );
    assert!(
        local()
            .iter()
            .all(|r| r.unix_s.is_some_and(|s| s > 1_700_000_000))
    );
}

#[test]
fn f054_hardware_ids_are_recorded() {
    assert!(
        RUNS.iter()
            .all(|r| !r.trial.hardware.fingerprint.is_empty())
    );
    let names: BTreeSet<_> = RUNS
        .iter()
        .map(|r| (&r.trial.hardware.fingerprint, &r.trial.hardware.name))
        .collect();
    let ids: BTreeSet<_> = names.iter().map(|(id, _)| id).collect();
    assert_eq!(names.len(), ids.len(), "an id has two names");
    assert!(RUNS.iter().all(|r| !r.source.is_empty()));
}

#[test]
fn f055_the_archive_has_fifty_annotations() {
    let n = five_whys::archive().len();
    println!("{n} annotations");
    assert!(n >= 50);
}

#[test]
fn f056_successes_and_failures_are_balanced() {
    let archive = five_whys::archive();
    let successes = archive.iter().filter(|a| a.outcome == Outcome::Success);
    let share = successes.count() as f64 / archive.len() as f64;
    println!("{:.0}% successes", share * 100.0);
    assert!((0.3..=0.7).contains(&share));
}

#[test]
fn f057_root_causes_are_diverse() {
    let kinds: BTreeSet<RootCauseKind> = five_whys::archive()
        .iter()
        .map(|a| a.root_cause_kind)
        .filter(|k| *k != RootCauseKind::Unknown)
        .collect();
    println!("{} kinds: {kinds:?}", kinds.len());
    assert!(kinds.len() >= 5);
}

/// Names of the hardware table that the public results came with.
const HARDWARE: &str = include_str!("fixtures/hardware-names.txt");

#[test]
fn f290_distinct_hardware_has_distinct_ids() {
    let names: Vec<&str> = HARDWARE.lines().collect();
    assert_eq!(names.len(), 104);
    let mut ids: HashSet<String> = names.iter().map(|n| of_name(n)).collect();
    assert_eq!(ids.len(), names.len());
    // Every single fact of a local machine counts.
    let facts = ["CPU", "8", "4", "33554432", "16", "avx2,avx512"].map(String::from);
    let mut local = HashSet::from([fingerprint(&facts)]);
    for i in 0..facts.len() {
        for other in ["", "9", "CPU 2", "unknown"] {
            let mut changed = facts.clone();
            changed[i] = other.to_owned();
            assert!(local.insert(fingerprint(&changed)), "{changed:?}");
        }
    }
    ids.extend(local);
    assert_eq!(ids.len(), 104 + 1 + 6 * 4);
    let here = this_machine(None, None, None);
    let again = this_machine(Some(1.0), Some(2.0), Some(3.0));
    assert_eq!(here.fingerprint, again.fingerprint);
    for variable in ["HOSTNAME", "USER", "HOME"] {
        let owner = std::env::var(variable).unwrap_or_default();
        assert!(owner.len() < 4 || !here.fingerprint.contains(&owner));
    }
}

#[test]
fn f293_telemetry_holds_no_name_path_or_prompt() {
    let secret = "/home/alice/secret prompt@host";
    let mut run = RUNS.first().expect("a run").clone();
    let trial = &mut run.trial;
    for text in [
        &mut trial.hardware.name,
        &mut trial.hardware.fingerprint,
        &mut trial.model.name,
        &mut trial.model.arch,
        &mut trial.model.quant,
        &mut trial.backend,
        &mut run.source,
    ] {
        secret.clone_into(text);
    }
    let setting = cbtop::engine::knobs::Setting::new;
    trial.settings = vec![
        setting("threads", "2"),
        setting("threads", secret),
        setting("kernels-for", secret),
        setting(secret, "on"),
        setting("load", secret),
        setting("waiting", "sleep"),
    ];
    run.unix_s = Some(1_790_012_345);
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("telemetry.jsonl");
    telemetry::append(&path, &run).expect("written");
    telemetry::append(&path, &run).expect("written");
    let text = std::fs::read_to_string(&path).expect("there");
    assert_eq!(text.lines().count(), 2);
    for word in ["alice", "secret", "home", "host", "/"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let line: serde_json::Value =
        serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let fields: Vec<&str> = line
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let allowed = "version origin day kind mem_gbps gflops int8_gops cores cache_mb memory_gb arch bits_per_weight params \
        active_params weight_bytes layers hidden test settings tok_s stddev repetitions warm background shares";
    let allowed: HashSet<&str> = allowed.split_whitespace().collect();
    assert_eq!(fields.iter().copied().collect::<HashSet<_>>(), allowed);
    let settings = line["settings"].as_array().expect("settings");
    assert_eq!(settings.len(), 2);
    assert_eq!(line["day"], 1_790_012_345 / 86_400);
}

#[test]
fn f060_every_committed_run_keeps_to_the_schema() {
    for run in RUNS.iter() {
        columns::check(run).expect("a run");
        assert_eq!(columns::cells(run).len(), columns::COLUMNS.len());
    }
}
