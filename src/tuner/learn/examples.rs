//! What the classifiers learn from: runs as rows with the class that was measured.

use super::forest::Example;
use super::logistic;
use crate::engine::knobs::{Setting, knob};
use crate::tuner::features::{self, PREDICTORS, TunerFeatures};
use crate::tuner::run::{Run, Trial};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Knobs that choose a kernel variant.
const KERNEL_KNOBS: [&str; 2] = ["backend", "kernels-for"];

/// Name of the kernel variant of a trial: `avx512`, `avx512 + Q4_K=avx2`; `None` where the row does not tell it.
pub fn variant(trial: &Trial) -> Option<String> {
    let set = trial.setting("backend")?;
    Some(match trial.setting("kernels-for") {
        None | Some("" | "none") => set.to_owned(),
        Some(mixed) => format!("{set} + {mixed}"),
    })
}

/// The trial with the kernels of a variant, as [`variant`] names it.
pub fn with_variant(trial: &Trial, name: &str) -> Trial {
    let (set, mixed) = name.split_once(" + ").unwrap_or((name, "none"));
    trial.with(&[
        Setting::new("backend", set),
        Setting::new("kernels-for", mixed),
    ])
}

/// The trial with what chooses its kernels taken out: what is known before they are chosen.
pub fn without_kernels(trial: &Trial) -> Trial {
    let mut trial = trial.clone();
    trial
        .settings
        .retain(|s| !KERNEL_KNOBS.contains(&s.knob.as_str()));
    trial
}

/// Places of the columns of [`KERNEL_KNOBS`].
static KERNEL_COLUMNS: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let knobs = KERNEL_KNOBS.iter().filter_map(|name| knob(name));
    let names = knobs.flat_map(|k| k.columns);
    names.filter_map(|name| features::column(name)).collect()
});

/// The columns a kernel is chosen from: those known before a run, without the kernel of the trial itself.
pub fn kernel_columns(features: &TunerFeatures) -> [f32; PREDICTORS] {
    let mut x = [0.0; PREDICTORS];
    x.copy_from_slice(features.predictors());
    for at in KERNEL_COLUMNS.iter() {
        if let Some(v) = x.get_mut(*at) {
            *v = 0.0;
        }
    }
    x
}

/// Trials that differ in their kernels alone.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelGroup {
    /// What they share.
    pub trial: Trial,
    /// Variants with their mean rate, tokens a second, the fastest first; at least two.
    pub rates: Vec<(String, f64)>,
    /// Standard deviation of a rate as a share of it, the largest of the two fastest; 0 where not known.
    pub cv: f64,
}

impl KernelGroup {
    /// By how much the fastest variant is ahead, a share of its rate.
    pub fn margin(&self) -> f64 {
        match self.rates.as_slice() {
            [(_, first), (_, second), ..] if *first > 0.0 => 1.0 - second / first,
            _ => 0.0,
        }
    }

    /// Whether the margin is more than chance: twice the deviation of a rate, and 1% at least.
    pub fn decided(&self) -> bool {
        self.margin() > (2.0 * self.cv).max(0.01)
    }
}

/// Runs that are the same trial but for their kernels, where there are two or more variants; in a stable order.
pub fn kernel_groups(runs: &[&Run]) -> Vec<KernelGroup> {
    let mut by_key: BTreeMap<String, (Trial, BTreeMap<String, Vec<&Run>>)> = BTreeMap::new();
    for run in runs {
        let Some(name) = variant(&run.trial) else {
            continue;
        };
        if !(run.tok_s.is_finite() && run.tok_s > 0.0) {
            continue;
        }
        let shared = without_kernels(&run.trial);
        let (_, variants) = by_key
            .entry(shared.key())
            .or_insert_with(|| (shared, BTreeMap::new()));
        variants.entry(name).or_default().push(run);
    }
    by_key.into_values().filter_map(group).collect()
}

fn group((trial, variants): (Trial, BTreeMap<String, Vec<&Run>>)) -> Option<KernelGroup> {
    if variants.len() < 2 {
        return None;
    }
    let mut rates: Vec<(String, f64, f64)> = variants
        .into_iter()
        .map(|(name, runs)| {
            let mean = runs.iter().map(|r| r.tok_s).sum::<f64>() / runs.len() as f64;
            let cv = runs.iter().filter_map(|r| r.cv()).fold(0.0, f64::max);
            (name, mean, cv)
        })
        .collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let cv = rates.iter().take(2).map(|r| r.2).fold(0.0, f64::max);
    Some(KernelGroup {
        trial,
        rates: rates
            .into_iter()
            .map(|(name, rate, _)| (name, rate))
            .collect(),
        cv,
    })
}

/// Rows with a class, kept together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Examples {
    /// Names of the classes.
    pub classes: Vec<String>,
    rows: Vec<([f32; PREDICTORS], usize, u64)>,
}

impl Examples {
    /// The rows.
    pub fn rows(&self) -> Vec<Example<'_>> {
        self.rows
            .iter()
            .map(|(x, class, group)| Example {
                x,
                class: *class,
                group: *group,
            })
            .collect()
    }

    /// Number of rows of each class.
    pub fn counts(&self) -> Vec<usize> {
        let count = |c: usize| self.rows.iter().filter(|r| r.1 == c).count();
        (0..self.classes.len()).map(count).collect()
    }
}

/// The fastest kernel of each group whose margin is more than chance, as rows without kernels.
pub fn kernel_examples(groups: &[KernelGroup]) -> Examples {
    let decided: Vec<&KernelGroup> = groups.iter().filter(|g| g.decided()).collect();
    let mut classes: Vec<String> = decided.iter().map(|g| g.rates[0].0.clone()).collect();
    classes.sort();
    classes.dedup();
    let row = |g: &&KernelGroup| {
        let class = classes.binary_search(&g.rates[0].0).ok()?;
        let features = TunerFeatures::of(&g.trial, None);
        Some((kernel_columns(&features), class, group_of(&g.trial)))
    };
    let rows = decided.iter().filter_map(row).collect();
    Examples { classes, rows }
}

/// Every run as a row without a class, for what is new and what drifts.
pub fn plain_examples(runs: &[&Run]) -> Examples {
    let row = |r: &&Run| {
        let mut x = [0.0; PREDICTORS];
        x.copy_from_slice(TunerFeatures::of(&r.trial, None).predictors());
        (x, 0, group_of(&r.trial))
    };
    Examples {
        classes: Vec::new(),
        rows: runs.iter().map(row).collect(),
    }
}

/// What limited each run whose time was measured by brick.
pub fn bottleneck_examples(runs: &[&Run]) -> Examples {
    let row = |r: &&Run| {
        let class = logistic::label(r.shares.as_ref()?)?;
        let mut x = [0.0; PREDICTORS];
        x.copy_from_slice(TunerFeatures::of(&r.trial, None).predictors());
        Some((x, class, group_of(&r.trial)))
    };
    Examples {
        classes: logistic::CLASSES.map(str::to_owned).to_vec(),
        rows: runs.iter().filter_map(row).collect(),
    }
}

/// Runs of one machine, model and test are one group, whatever their settings: no side of a split sees half of them.
pub fn group_of(trial: &Trial) -> u64 {
    let name = format!(
        "{}|{}|{}|{}|{}",
        trial.hardware.fingerprint, trial.model.name, trial.model.quant, trial.backend, trial.test
    );
    // FNV-1a: the same on every machine and in every version.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::run::{Hardware, ModelShape, Origin, Test, TimeShares};

    fn run(threads: u32, kernels: &str, mixed: &str, tok_s: f64) -> Run {
        let settings = vec![
            Setting::new("threads", threads.to_string()),
            Setting::new("backend", kernels),
            Setting::new("kernels-for", mixed),
        ];
        Run {
            trial: Trial {
                hardware: Hardware::default(),
                model: ModelShape {
                    params: 1e9,
                    weight_bytes: 5e8,
                    ..ModelShape::default()
                },
                backend: "cbtop cpu".into(),
                test: Test {
                    prompt: 0,
                    generated: 64,
                    depth: 0,
                    batch: 1,
                },
                settings,
            },
            origin: Origin::Collect,
            source: "test".into(),
            unix_s: None,
            tok_s,
            stddev: Some(tok_s * 0.01),
            repetitions: 3,
            warm: Some(true),
            background: None,
            shares: None,
        }
    }

    #[test]
    fn the_fastest_of_equal_trials_is_the_class() {
        let runs = [
            run(1, "avx2", "none", 10.0),
            run(1, "avx512", "none", 12.0),
            run(2, "avx2", "none", 20.0),
            run(2, "avx512", "none", 19.9),
            run(4, "avx2", "none", 30.0),
            run(8, "avx512", "none", 30.0),
            run(8, "avx512", "Q4_K=avx2", 33.0),
        ];
        let all: Vec<&Run> = runs.iter().collect();
        let groups = kernel_groups(&all);
        assert_eq!(groups.len(), 3);
        let examples = kernel_examples(&groups);
        assert_eq!(examples.classes, ["avx512", "avx512 + Q4_K=avx2"]);
        assert_eq!(examples.counts(), [1, 1]);
        let kernel = crate::tuner::features::column("kernel_avx512").expect("a column");
        assert!(examples.rows().iter().all(|r| r.x[kernel] == 0.0));
        let two = groups
            .iter()
            .find(|g| g.trial.setting("threads") == Some("2"));
        assert!(two.is_some_and(|g| !g.decided() && g.rates[0].0 == "avx2"));
    }

    #[test]
    fn f008_classes_of_bottlenecks_are_counted_as_measured() {
        let mut runs = [run(1, "avx2", "none", 10.0), run(2, "avx2", "none", 10.0)];
        runs[0].shares = Some(TimeShares {
            memory: 0.9,
            launch: 0.1,
            ..TimeShares::default()
        });
        let all: Vec<&Run> = runs.iter().collect();
        assert_eq!(bottleneck_examples(&all).counts(), [1, 0, 0, 0]);
        assert_eq!(kernel_groups(&all), []);
    }
}
