//! The runs that tests of the tuner's models learn from and are held out of.

use cbtop::tuner::learn::evaluate::{Method, Outcome, outcomes};
use cbtop::tuner::learn::split::{By, k_fold};
use cbtop::tuner::learn::throughput::TrainOptions;
use cbtop::tuner::run::{Origin, Run};
use cbtop::tuner::store::dataset;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Runs of this machine that tests learn from: a part of them, so that a test takes seconds. `cbtop tune validate` takes all.
const LOCAL: usize = 1500;

/// The committed runs, or those of the folder that `CBTOP_TEST_RUNS` names.
pub fn data() -> &'static [Run] {
    static DATA: OnceLock<Vec<Run>> = OnceLock::new();
    DATA.get_or_init(|| {
        let committed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/runs");
        let dir = std::env::var_os("CBTOP_TEST_RUNS").map_or(committed, PathBuf::from);
        let all = dataset::read(&dir).expect("runs to learn from");
        let local = all.iter().filter(|r| r.origin != Origin::Public).count();
        let step = local.div_ceil(LOCAL).max(1);
        let mut seen = 0;
        let kept = all.into_iter().filter(|r| {
            let local = r.origin != Origin::Public;
            seen += usize::from(local);
            r.tok_s > 0.0 && (!local || seen % step == 0)
        });
        kept.collect()
    })
}

/// All of them by reference.
pub fn runs() -> Vec<&'static Run> {
    data().iter().collect()
}

/// Quick to train, with intervals.
pub fn options() -> TrainOptions {
    TrainOptions {
        folds: 3,
        ..TrainOptions::default()
    }
}

/// Quicker: without intervals.
pub fn mids_only() -> TrainOptions {
    TrainOptions {
        folds: 0,
        ..TrainOptions::default()
    }
}

/// Predictions of held-out runs, computed once for every kind of split.
pub fn held_out(by: By) -> &'static [Vec<Outcome>] {
    static ALL: [OnceLock<Vec<Vec<Outcome>>>; 5] = [const { OnceLock::new() }; 5];
    let at = By::ALL.iter().position(|b| *b == by).expect("a split");
    ALL[at].get_or_init(|| predict(by, Method::GradientBoosting, &options()))
}

/// Predictions of held-out runs by a method.
pub fn predict(by: By, method: Method, options: &TrainOptions) -> Vec<Vec<Outcome>> {
    let runs = runs();
    let folds = k_fold(&runs, by, 5, 1);
    outcomes(&runs, &folds, method, options).expect("enough runs")
}

/// Those of the outcomes whose run is wanted.
pub fn only(folds: &[Vec<Outcome>], wanted: impl Fn(&Run) -> bool) -> Vec<Vec<Outcome>> {
    let of_fold = |f: &Vec<Outcome>| {
        f.iter()
            .filter(|o| wanted(&data()[o.run]))
            .copied()
            .collect()
    };
    folds.iter().map(of_fold).collect()
}
