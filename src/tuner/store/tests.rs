use super::*;
use crate::engine::knobs::Setting;
use crate::tuner::run::{Hardware, MachineKind, ModelShape, Test, TimeShares, Trial};
use proptest::prelude::*;

/// A run of this machine's kind, told apart by `n`.
pub fn run(n: u32) -> Run {
    Run {
        trial: Trial {
            hardware: Hardware {
                name: "Some CPU".into(),
                kind: MachineKind::Cpu,
                fingerprint: "cpu-0011223344556677".into(),
                mem_gbps: Some(12.5),
                cores: Some(2),
                ..Hardware::default()
            },
            model: ModelShape {
                name: "tiny".into(),
                arch: "llama".into(),
                quant: "Q4_K_M".into(),
                params: 1e6,
                weight_bytes: 6e5,
                ..ModelShape::default()
            },
            backend: "cbtop cpu".into(),
            test: Test {
                prompt: 0,
                generated: 128,
                depth: 0,
                batch: 1,
            },
            settings: vec![
                Setting::new("threads", (n + 1).to_string()),
                Setting::new("kernels-for", "Q4_K=avx2,\"odd\""),
            ],
        },
        origin: Origin::Collect,
        source: "cbtop 0.1.0".into(),
        unix_s: Some(1_790_000_000 + i64::from(n)),
        tok_s: 100.0 + f64::from(n),
        stddev: Some(0.0),
        repetitions: 5,
        warm: Some(false),
        background: Some(0.01),
        shares: Some(TimeShares {
            memory: 0.5,
            launch: 0.5,
            ..TimeShares::default()
        }),
    }
}

fn some_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e16, Just(f64::MIN_POSITIVE), Just(1e16)]
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(
    of: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(of)
}

fn hardware() -> impl Strategy<Value = Hardware> {
    let kind = prop_oneof![
        Just(MachineKind::Cpu),
        Just(MachineKind::Gpu),
        Just(MachineKind::Apple)
    ];
    let amounts = (maybe(amount()), maybe(amount()), maybe(amount()));
    let sizes = (maybe(any::<u32>()), maybe(amount()), maybe(amount()));
    (some_text(), kind, "[a-z0-9-]{1,20}", amounts, sizes).prop_map(
        |(name, kind, fingerprint, (mem_gbps, gflops, int8_gops), (cores, cache_mb, memory_gb))| {
            Hardware {
                name,
                kind,
                fingerprint,
                mem_gbps,
                gflops,
                int8_gops,
                cores,
                cache_mb,
                memory_gb,
            }
        },
    )
}

fn model() -> impl Strategy<Value = ModelShape> {
    let n = || maybe(any::<u32>());
    let sizes = (1.0..1e12f64, maybe(amount()), 1.0..1e12f64, maybe(amount()));
    let texts = (some_text(), some_text(), some_text());
    (texts, sizes, (n(), n(), n(), n(), n())).prop_map(|(texts, sizes, shape)| ModelShape {
        name: texts.0,
        arch: texts.1,
        quant: texts.2,
        params: sizes.0,
        active_params: sizes.1,
        weight_bytes: sizes.2,
        kv_bytes_per_token: sizes.3,
        hidden: shape.0,
        layers: shape.1,
        heads: shape.2,
        head_dim: shape.3,
        vocab: shape.4,
    })
}

fn settings() -> impl Strategy<Value = Vec<Setting>> {
    let of = |names: Vec<(String, String)>| {
        let mut settings: Vec<Setting> = Vec::new();
        for (knob, value) in names {
            if settings.iter().all(|s| s.knob != knob) {
                settings.push(Setting { knob, value });
            }
        }
        settings
    };
    proptest::collection::vec((some_text(), some_text()), 0..5).prop_map(of)
}

fn shares() -> impl Strategy<Value = TimeShares> {
    let part = || prop_oneof![Just(0.0), 0.0..0.2f64];
    (part(), part(), part(), part(), part()).prop_map(|s| TimeShares {
        memory: s.0,
        compute: s.1,
        launch: s.2,
        attention: s.3,
        unknown: s.4,
    })
}

/// Any run that may be kept.
pub fn any_run() -> impl Strategy<Value = Run> {
    let test = (any::<u32>(), 1..=u32::MAX, any::<u32>(), 1..=u32::MAX);
    let trial = (hardware(), model(), some_text(), test, settings());
    let origin = proptest::sample::select(Origin::ALL.to_vec());
    let from = (origin, some_text(), maybe(946_684_800..4_102_444_800_i64));
    let rate = (1e-300..1e16f64, maybe(amount()), 1..=u32::MAX);
    let protocol = (maybe(any::<bool>()), maybe(amount()), maybe(shares()));
    (trial, from, rate, protocol).prop_map(|(trial, from, rate, protocol)| Run {
        trial: Trial {
            hardware: trial.0,
            model: trial.1,
            backend: trial.2,
            test: Test {
                prompt: trial.3.0,
                generated: trial.3.1,
                depth: trial.3.2,
                batch: trial.3.3,
            },
            settings: trial.4,
        },
        origin: from.0,
        source: from.1,
        unix_s: from.2,
        tok_s: rate.0,
        stddev: rate.1,
        repetitions: rate.2,
        warm: protocol.0,
        background: protocol.1,
        shares: protocol.2,
    })
}

fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("runs.sqlite")).expect("opens")
}

#[test]
fn what_is_kept_comes_back() {
    let dir = tempfile::tempdir().expect("folder");
    let mut store = open(&dir);
    let runs: Vec<Run> = (0..3).map(run).collect();
    assert_eq!(store.insert_all(&runs).expect("kept"), 3);
    // The same again adds nothing.
    store.insert(&runs[1]).expect("there already");
    let key = runs[2].trial.key();
    assert!(store.contains(&key, Origin::Collect).expect("read"));
    assert!(!store.contains(&key, Origin::Feedback).expect("read"));
    drop(store);
    let store = open(&dir);
    assert_eq!(store.runs().expect("read"), runs);
    assert_eq!(store.count().expect("read"), 3);
    let newest = store.newest(2).expect("read");
    assert_eq!(newest, [runs[2].clone(), runs[1].clone()]);
}

#[test]
fn runs_that_are_none_are_refused_and_nothing_of_their_batch_is_kept() {
    let dir = tempfile::tempdir().expect("folder");
    let mut store = open(&dir);
    type Break = fn(&mut Run);
    let wrong: [(&str, Break); 7] = [
        ("tok_s", |r| r.tok_s = f64::NAN),
        ("tok_s", |r| r.tok_s = 0.0),
        ("stddev", |r| r.stddev = Some(f64::INFINITY)),
        ("repetitions", |r| r.repetitions = 0),
        ("fingerprint", |r| r.trial.hardware.fingerprint.clear()),
        ("model", |r| {
            r.trial.model.name = "m".repeat(columns::MAX_TEXT + 1)
        }),
        ("settings", |r| {
            r.trial.settings = vec![Setting::new("threads", "1"); 2];
        }),
    ];
    for (column, change) in wrong {
        let mut bad = run(1);
        change(&mut bad);
        match store.insert_all(&[run(0), bad]) {
            Err(StoreError::Row(e)) => assert_eq!(e.column, column),
            other => panic!("{column}: {other:?}"),
        }
    }
    assert_eq!(store.count().expect("read"), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn every_run_comes_back_from_the_database(runs in proptest::collection::vec(any_run(), 0..8)) {
        let dir = tempfile::tempdir().expect("folder");
        let mut store = open(&dir);
        for run in &runs {
            store.insert(run).expect("kept");
        }
        prop_assert_eq!(store.runs().expect("read"), runs);
    }

    #[test]
    fn every_row_of_cells_is_a_run_or_an_error(run in any_run(), at in 0..COLUMNS.len(), with in 0..5) {
        let mut cells = columns::cells(&run);
        cells[at] = match with {
            0 => Cell::Null,
            1 => Cell::Text("{\"a\":1}".into()),
            2 => Cell::Real(f64::NAN),
            3 => Cell::Int(-1),
            _ => Cell::Bool(true),
        };
        if let Err(e) = columns::run(cells) {
            prop_assert!(COLUMNS.iter().any(|c| c.name == e.column));
        }
        let _ = columns::run(columns::cells(&run).into_iter().take(at).collect());
    }
}

#[test]
fn default_path_follows_the_environment() {
    let with = |vars: &[(&str, &str)]| {
        let vars: Vec<(String, String)> = vars
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        default_path(|name| Some(vars.iter().find(|(k, _)| k == name)?.1.clone().into()))
    };
    let home = ("HOME", "/h");
    let path = |p: &str| Some(PathBuf::from(p));
    assert_eq!(with(&[home, ("CBTOP_RUNS", "a.db")]), path("a.db"), "named");
    assert_eq!(
        with(&[home, ("XDG_DATA_HOME", "/x"), ("CBTOP_RUNS", "")]),
        path("/x/cbtop/runs.sqlite")
    );
    let of_home = path("/h/.local/share/cbtop/runs.sqlite");
    assert_eq!(with(&[home]), of_home);
    assert_eq!(with(&[home, ("XDG_DATA_HOME", "relative")]), of_home);
    assert_eq!(with(&[]), None);
}
