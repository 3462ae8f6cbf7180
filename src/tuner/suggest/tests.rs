use super::*;
use crate::engine::{Config, SyncMode};
use crate::gguf::LoadOptions;
use crate::session::{Loaded, Source};
use crate::tuner::describe;
use crate::tuner::run::{Hardware, Test};

struct Scene {
    loaded: Loaded,
    setup: Setup,
    explicit: BTreeSet<&'static str>,
}

impl Scene {
    fn new() -> Self {
        let loaded = Loaded::open(Source::Demo).expect("the demo");
        let setup = Setup {
            config: Config {
                threads: 1,
                ..loaded.config()
            },
            load: LoadOptions::default(),
            sync_mode: SyncMode::Deferred,
        };
        Self {
            loaded,
            setup,
            explicit: BTreeSet::new(),
        }
    }

    fn trial(&self, prompt: u32, generated: u32) -> Trial {
        Trial {
            hardware: Hardware {
                fingerprint: "here".into(),
                ..Hardware::default()
            },
            model: describe::model_shape(&self.loaded.model, "demo"),
            backend: "cbtop cpu".into(),
            test: Test {
                prompt,
                generated,
                depth: 0,
                batch: 1,
            },
            settings: self.setup.settings(),
        }
    }

    fn suggest(&self, predict: &dyn Fn(&Trial) -> Option<Interval>, runs: &[Run]) -> Vec<Advice> {
        let types = describe::matrix_types(&self.loaded.model);
        let around = describe::around(&self.loaded.model, &types, 100);
        let around = Around {
            cpus: 4,
            cores: 4,
            ..around
        };
        let (decode, prefill) = (self.trial(0, 64), self.trial(100, 0));
        let moment = Moment {
            decode: &decode,
            prefill: &prefill,
            tok_s: Some(100.0),
            setup: &self.setup,
            around: &around,
            explicit: &self.explicit,
        };
        let lesson = |knob: &str| (knob == "threads").then(|| "threads wait for each other".into());
        let grounds = Grounds {
            predict,
            ratio_error: &|_| None,
            runs,
            lesson: &lesson,
        };
        suggest(&moment, &grounds)
    }

    fn run(&self, setting: Option<Setting>, tok_s: f64, origin: Origin, at: i64) -> Run {
        let trial = self.trial(0, 64);
        Run {
            trial: setting.map_or(trial.clone(), |s| trial.with(&[s])),
            origin,
            source: format!("comparison {at}"),
            unix_s: Some(at),
            tok_s,
            stddev: None,
            repetitions: 5,
            warm: Some(true),
            background: None,
            shares: None,
        }
    }
}

fn rate(mid: f64) -> Option<Interval> {
    Some(Interval {
        low: mid * 0.9,
        mid,
        high: mid * 1.1,
    })
}

/// One machine in which threads help and all else loses.
fn threads_help(trial: &Trial) -> Option<Interval> {
    let base = Scene::new().setup;
    let threads: f64 = trial.setting("threads")?.parse().ok()?;
    let others = trial.settings.iter().filter(|s| {
        let knob = knob(&s.knob);
        s.knob != "threads" && knob.is_some_and(|k| (k.get)(&base) != s.value)
    });
    rate(50.0 * threads * 0.5f64.powi(others.count() as i32))
}

#[test]
fn the_best_comes_first_and_what_loses_is_not_said() {
    let scene = Scene::new();
    let all = scene.suggest(&threads_help, &[]);
    let ids: Vec<_> = all.iter().map(|a| a.recommendation.id.as_str()).collect();
    assert_eq!(ids, ["threads=4", "threads=3", "threads=2"]);
    let first = &all[0].recommendation;
    assert_eq!(first.ratio(None), Some(4.0));
    assert_eq!(first.now, [Setting::new("threads", "1")]);
    assert_eq!(first.evidence, "threads wait for each other");
    assert!(first.risk.contains("other programs"), "{}", first.risk);
    let open: Vec<_> = all.into_iter().map(|a| a.recommendation).collect();
    assert_eq!(
        verdict(&open, Some(100.0)),
        "3 changes worth a try, the best is expected to bring +300%"
    );
    assert!(verdict(&[], Some(100.0)).starts_with("Nothing to change"));
    // One value of a knob, the best, is what all of them come to.
    let all = with_all(&open, Some(100.0)).expect("it helps");
    assert!(
        (all.mid - 400.0).abs() < 1e-9 && all.low < 400.0 && all.high > 400.0,
        "{all:?}"
    );
    assert_eq!(with_all(&[], Some(100.0)), None);
}

#[test]
fn without_models_all_that_was_not_measured_is_worth_a_try() {
    let scene = Scene::new();
    let all = scene.suggest(&|_| None, &[]);
    assert!(all.len() > 4 && all.len() <= MOST);
    assert!(
        all.iter()
            .all(|a| a.recommendation.change[0].knob != "sync-mode")
    );
    assert!(
        all.iter()
            .all(|a| a.recommendation.why.contains("no model knows"))
    );
}

#[test]
fn what_was_measured_here_counts_for_more_than_what_is_predicted() {
    let scene = Scene::new();
    let two = Setting::new("threads", "2");
    let runs = [
        scene.run(None, 100.0, Origin::Collect, 1),
        scene.run(Some(two.clone()), 150.0, Origin::Collect, 2),
        scene.run(None, 100.0, Origin::Feedback, 3),
        scene.run(Some(two.clone()), 99.0, Origin::Feedback, 3),
    ];
    let has = |runs: &[Run]| {
        let all = scene.suggest(&threads_help, runs);
        all.into_iter().find(|a| a.recommendation.id == "threads=2")
    };
    let collected = has(&runs[..2]).expect("it gains").recommendation;
    let gain = collected.gain.expect("known");
    assert_eq!(gain.mid, 1.5);
    // One pair is no interval: it is as wide as what is predicted.
    assert!(gain.low < 1.4 && gain.high > 1.6, "{gain:?}");
    assert!(
        collected.evidence.contains("1 run on this machine"),
        "{}",
        collected.evidence
    );
    assert!(
        collected.evidence.contains("x1.50"),
        "{}",
        collected.evidence
    );
    assert!(
        has(&runs).is_none(),
        "a session found that it brings nothing"
    );
}

#[test]
fn what_the_user_set_and_what_changes_answers_is_left_alone() {
    let mut scene = Scene::new();
    scene.explicit.insert("threads");
    let all = scene.suggest(&threads_help, &[]);
    assert!(all[0].recommendation.why.contains("You set --threads"));
    let threads = [Setting::new("threads", "4")];
    let kv = [Setting::new("kv-type", "q8_0")];
    let waiting = [Setting::new("waiting", "sleep")];
    let alone = |change: &[Setting]| left_alone(change, &scene.explicit);
    assert_eq!(
        alone(&threads).as_deref(),
        Some("threads (you set --threads)")
    );
    assert_eq!(alone(&kv).as_deref(), Some("kv-type (answers may differ)"));
    assert_eq!(alone(&waiting), None);
}

#[test]
fn a_rule_about_the_same_change_says_why() {
    let scene = Scene::new();
    let suggestions = scene.suggest(&threads_help, &[]);
    let mut rule = suggestions[0].clone();
    rule.recommendation.id = "more-threads".into();
    rule.recommendation.why = "CPUs lie idle.".into();
    rule.recommendation.evidence.clear();
    rule.recommendation.gain = None;
    let all = merge(vec![rule], suggestions.clone(), Some(100.0));
    assert_eq!(all.len(), suggestions.len());
    let first = &all[0].recommendation;
    assert_eq!(
        (first.id.as_str(), first.why.as_str()),
        ("more-threads", "CPUs lie idle.")
    );
    assert_eq!(first.ratio(None), Some(4.0));
    assert!(!first.evidence.is_empty());
}

#[test]
fn a_change_without_effect_is_not_said() {
    let mut scene = Scene::new();
    // A prompt of 100 tokens is one chunk of 128 as of 512; the demo's weights stay where they are.
    scene.setup.config.chunk = 512;
    let all = scene.suggest(&|_| None, &[]);
    let of = |knob: &str| -> Vec<String> {
        let changes = all.iter().flat_map(|a| &a.recommendation.change);
        let values = changes.filter(|c| c.knob == knob).map(|c| c.value.clone());
        values.collect()
    };
    assert!(
        of("chunk")
            .iter()
            .all(|c| ["32", "64"].contains(&c.as_str()))
    );
    assert_eq!(of("load"), Vec::<String>::new());
}
