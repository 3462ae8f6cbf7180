//! Parts to learn from and parts to test with, so that nothing of a test was seen before.

use crate::tuner::run::Run;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// What two runs share that may not stand in both parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The trial: other rows of the same machine and model may be known.
    Trial,
    /// The machine.
    Machine,
    /// The model, whatever its name and quantisation: its parameters to three digits.
    Model,
    /// The quantisation.
    Quant,
    /// The machine; of a machine with more than a tenth of the rows one model at a time. This is how far new questions are
    /// from what was learned: another machine, or another model on the machine that most runs come from.
    New,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Trial,
        Self::New,
        Self::Machine,
        Self::Model,
        Self::Quant,
    ];

    /// What is held out, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trial => "trials",
            Self::Machine => "machines",
            Self::Model => "models",
            Self::Quant => "quantisations",
            Self::New => "machines, or models of the commonest",
        }
    }
}

/// Places of the runs of two parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fold {
    /// To learn from.
    pub train: Vec<usize>,
    /// To test with.
    pub test: Vec<usize>,
}

impl Fold {
    /// The two parts of the runs.
    pub fn parts<'a>(&self, runs: &[&'a Run]) -> (Vec<&'a Run>, Vec<&'a Run>) {
        let of = |at: &[usize]| at.iter().filter_map(|&i| runs.get(i).copied()).collect();
        (of(&self.train), of(&self.test))
    }
}

/// The group of every run.
pub fn groups(runs: &[&Run], by: By) -> Vec<String> {
    let mut of_machine: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs {
        *of_machine
            .entry(&run.trial.hardware.fingerprint)
            .or_default() += 1;
    }
    let group = |run: &&Run| {
        let t = &run.trial;
        let machine = &t.hardware.fingerprint;
        match by {
            By::Trial => t.key(),
            By::Machine => machine.clone(),
            By::Model => shape(t.model.params),
            By::Quant => t.model.quant.clone(),
            By::New if of_machine.get(machine.as_str()).copied() > Some(runs.len() / 10) => {
                format!("{machine}|{}", shape(t.model.params))
            }
            By::New => machine.clone(),
        }
    };
    runs.iter().map(group).collect()
}

/// Parameters to three digits: the same model under another name has as many.
fn shape(params: f64) -> String {
    format!("{params:.2e}")
}

/// `k` folds of about the same size (fewer where there are fewer groups), each group tested in one of them. Folds with
/// nothing to learn from or to test are left out.
pub fn k_fold(runs: &[&Run], by: By, k: usize, seed: u64) -> Vec<Fold> {
    let groups = groups(runs, by);
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, g) in groups.iter().enumerate() {
        members.entry(g).or_default().push(i);
    }
    let mut order: Vec<Vec<usize>> = members.into_values().collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for i in (1..order.len()).rev() {
        order.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
    // Large groups first, each to the smallest fold: the sort keeps the drawn order of equal ones.
    order.sort_by_key(|g| std::cmp::Reverse(g.len()));
    let mut tests: Vec<Vec<usize>> = vec![Vec::new(); k.min(order.len())];
    for group in order {
        if let Some(smallest) = tests.iter_mut().min_by_key(|t| t.len()) {
            smallest.extend(group);
        }
    }
    let fold = |mut test: Vec<usize>| {
        test.sort_unstable();
        let train = (0..runs.len()).filter(|i| test.binary_search(i).is_err());
        Fold {
            train: train.collect(),
            test,
        }
    };
    let folds = tests.into_iter().map(fold);
    folds
        .filter(|f| !f.train.is_empty() && !f.test.is_empty())
        .collect()
}

/// The newest `share` of the runs to test with. Runs without a time are learned from; trials that were learned from are not
/// tested again, and runs of the same second stay together.
pub fn by_time(runs: &[&Run], share: f64) -> Fold {
    let mut times: Vec<i64> = runs.iter().filter_map(|r| r.unix_s).collect();
    times.sort_unstable();
    let at = (times.len() as f64 * (1.0 - share.clamp(0.0, 1.0))) as usize;
    let Some(&from) = times.get(at) else {
        return Fold {
            train: (0..runs.len()).collect(),
            test: Vec::new(),
        };
    };
    let newer = |i: &usize| runs[*i].unix_s.is_some_and(|t| t >= from);
    let (test, train): (Vec<usize>, Vec<usize>) = (0..runs.len()).partition(newer);
    let known: BTreeSet<String> = train.iter().map(|&i| runs[i].trial.key()).collect();
    let unseen = |i: &usize| !known.contains(&runs[*i].trial.key());
    Fold {
        test: test.into_iter().filter(unseen).collect(),
        train,
    }
}

/// Groups that stand in both parts of a fold.
pub fn leaks(runs: &[&Run], fold: &Fold, by: By) -> Vec<String> {
    let groups = groups(runs, by);
    let of =
        |at: &[usize]| -> BTreeSet<&String> { at.iter().filter_map(|&i| groups.get(i)).collect() };
    let (train, test) = (of(&fold.train), of(&fold.test));
    train.intersection(&test).map(|g| (*g).clone()).collect()
}
