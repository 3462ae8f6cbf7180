use super::*;
use crate::engine::knobs::Setting;
use crate::tuner::run::{Hardware, ModelShape, Test};
use proptest::prelude::*;

/// Any number there is, with what real rows hold among them.
fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![prop::num::f64::ANY, 0.0..1e13, Just(0.0), Just(-1.0)]
}

fn hardware() -> impl Strategy<Value = Hardware> {
    let kinds = prop_oneof![
        Just(MachineKind::Cpu),
        Just(MachineKind::Gpu),
        Just(MachineKind::Apple)
    ];
    let figures = prop::collection::vec(prop::option::of(figure()), 5);
    (kinds, figures, prop::option::of(any::<u32>())).prop_map(|(kind, f, cores)| Hardware {
        kind,
        mem_gbps: f[0],
        gflops: f[1],
        int8_gops: f[2],
        cache_mb: f[3],
        memory_gb: f[4],
        cores,
        ..Hardware::default()
    })
}

fn model() -> impl Strategy<Value = ModelShape> {
    let figures = prop::collection::vec(figure(), 2);
    let optional = prop::collection::vec(prop::option::of(figure()), 2);
    let shape = prop::collection::vec(prop::option::of(any::<u32>()), 4);
    (figures, optional, shape, "[QFI][0-9]_[K0]|F16|.{0,6}").prop_map(|(f, o, s, quant)| {
        ModelShape {
            quant,
            params: f[0],
            weight_bytes: f[1],
            active_params: o[0],
            kv_bytes_per_token: o[1],
            layers: s[0],
            heads: s[1],
            head_dim: s[2],
            hidden: s[3],
            ..ModelShape::default()
        }
    })
}

/// Trials with whatever a damaged store could hold.
pub(crate) fn any_trial() -> impl Strategy<Value = Trial> {
    let names = KNOBS
        .iter()
        .map(|k| k.name)
        .chain(["flash-attn", "cuda-graphs", "?"]);
    let names: Vec<&'static str> = names.collect();
    let value = "on|off|[0-9]{0,20}|avx512|q8_0|[a-z,:-]{0,12}";
    let settings = prop::collection::vec(
        (prop::sample::select(names), value).prop_map(|(n, v)| Setting::new(n, v)),
        0..8,
    );
    let test = any::<(u32, u32, u32, u32)>();
    let backend = "cbtop cpu|llama.cpp (CUDA|Vulkan|ROCm)|.{0,10}";
    (hardware(), model(), backend, test, settings).prop_map(
        |(hardware, model, backend, (prompt, generated, depth, batch), settings)| Trial {
            hardware,
            model,
            backend,
            test: Test {
                prompt,
                generated,
                depth,
                batch,
            },
            settings,
        },
    )
}

proptest! {
    // F021, F022, F023, F095, F096: whatever stands in a row, its columns are numbers from 0 to 1.
    #[test]
    fn columns_are_numbers_from_0_to_1(trial in any_trial(), rate in prop::option::of(figure())) {
        let measured = rate.map(|tok_s| Measured { tok_s });
        let f = TunerFeatures::of(&trial, measured.as_ref());
        for (name, v) in names().iter().zip(f.as_slice()) {
            prop_assert!((0.0..=1.0).contains(v), "{name} is {v}");
        }
        prop_assert_eq!(f, TunerFeatures::of(&trial, measured.as_ref()));
        let json = serde_json::to_string(&f).expect("json");
        prop_assert_eq!(serde_json::from_str::<TunerFeatures>(&json).expect("read"), f);
    }

    // F029
    #[test]
    fn one_hots_sum_to_1(trial in any_trial()) {
        let f = TunerFeatures::of(&trial, None);
        let sum = |names: &[&str]| names.iter().filter_map(|n| f.get(n)).sum::<f32>();
        let [programs, quants, kernels] = one_hots();
        prop_assert_eq!(sum(programs), 1.0);
        prop_assert_eq!(sum(quants), 1.0);
        prop_assert!(sum(kernels) <= 1.0);
    }

    // F027
    #[test]
    fn bytes_flop_and_bound_are_positive(trial in any_trial()) {
        let (b, f) = (roofline::bytes_per_token(&trial), roofline::flops_per_token(&trial));
        prop_assert!(b > 0.0 && f > 0.0 && (f / b) > 0.0);
        prop_assert!(roofline::roofline_tok_s(&trial).is_none_or(|r| r.is_finite() && r >= 0.0));
    }

    #[test]
    fn what_was_measured_does_not_reach_the_predictors(trial in any_trial(), tok_s in figure()) {
        let with = TunerFeatures::of(&trial, Some(&Measured { tok_s }));
        let without = TunerFeatures::of(&trial, None);
        prop_assert_eq!(with.predictors(), without.predictors());
    }
}

#[test]
fn columns_have_names_of_their_own() {
    let mut sorted = names().to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), DIM);
    assert!(sorted.iter().all(|n| !n.is_empty()));
    for knob in KNOBS.iter().flat_map(|k| k.columns) {
        assert!(column(knob).is_some_and(|at| at < PREDICTORS));
    }
}

fn llama_8b(generated: u32, prompt: u32, batch: u32) -> Trial {
    Trial {
        hardware: Hardware {
            kind: MachineKind::Gpu,
            mem_gbps: Some(1000.0),
            gflops: Some(80_000.0),
            cache_mb: Some(72.0),
            ..Hardware::default()
        },
        model: ModelShape {
            quant: "Q4_K_M".into(),
            params: 8e9,
            weight_bytes: 4.9e9,
            kv_bytes_per_token: Some(131_072.0),
            layers: Some(32),
            heads: Some(32),
            head_dim: Some(128),
            ..ModelShape::default()
        },
        backend: "llama.cpp CUDA".into(),
        test: Test {
            prompt,
            generated,
            depth: 0,
            batch,
        },
        settings: Vec::new(),
    }
}

#[test]
fn a_batch_shares_the_weights_and_not_the_cache() {
    let kv = 64.0 * 131_072.0;
    let one = roofline::bytes_per_token(&llama_8b(128, 0, 1));
    let four = roofline::bytes_per_token(&llama_8b(128, 0, 4));
    assert_eq!(one, 4.9e9 + kv);
    assert_eq!(four, 4.9e9 / 4.0 + kv);
    assert_eq!(
        roofline::bytes_per_token(&llama_8b(0, 512, 1)),
        (4.9e9 + 256.0 * 131_072.0) / 512.0
    );
}

#[test]
fn generation_is_bound_by_bandwidth_and_a_prompt_by_arithmetic() {
    let t = llama_8b(128, 0, 1);
    let bytes = roofline::bytes_per_token(&t) - 72e6;
    let bound = roofline::roofline_tok_s(&t).expect("known");
    assert!((bound - 1e12 / bytes).abs() < 1e-6);
    let t = llama_8b(0, 512, 8);
    let bound = roofline::roofline_tok_s(&t).expect("known");
    assert!((bound - 16.0 * 80e12 / roofline::flops_per_token(&t)).abs() < 1e-6);
}

#[test]
fn a_model_in_the_cache_is_not_bound_by_memory() {
    let mut t = llama_8b(128, 0, 1);
    t.model.weight_bytes = 1e6;
    t.model.params = 2e6;
    let compute = 16.0 * 80e12 / roofline::flops_per_token(&t);
    assert_eq!(roofline::roofline_tok_s(&t), Some(compute));
    t.hardware.gflops = None;
    assert_eq!(roofline::roofline_tok_s(&t), None);
    t.model.weight_bytes = 4.9e9;
    t.hardware.mem_gbps = None;
    assert_eq!(roofline::roofline_tok_s(&t), None);
}
