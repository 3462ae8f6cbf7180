use super::*;
use crate::engine::tensor_stats::{Moments, TensorStats};
use crate::model::brick::BrickId;
use crate::trace::figures::TokenText;
use crate::tracer::figures::*;
use proptest::prelude::*;
use std::sync::Arc;

/// Any float, with what is not finite often enough; NaN in its one form.
fn single() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => any::<u32>().prop_map(f32::from_bits).prop_map(|x| if x.is_nan() { f32::NAN } else { x }),
        1 => Just(f32::NAN),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
        1 => Just(-0.0),
    ]
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => any::<u64>().prop_map(f64::from_bits).prop_map(|x| if x.is_nan() { f64::NAN } else { x }),
        1 => single().prop_map(f64::from),
    ]
}

/// Statistics of such elements.
fn stats() -> impl Strategy<Value = TensorStats> {
    prop::collection::vec(single(), 0..6).prop_map(|x| {
        let mut all = Moments::default();
        x.iter()
            .for_each(|x| all.merge(&crate::engine::tensor_stats::tests::one(*x)));
        all.stats()
    })
}

fn activation() -> impl Strategy<Value = ModelActivationTrace> {
    let layer = (any::<u32>(), prop::array::uniform5(stats()), single()).prop_map(
        |(layer_idx, s, residual_ratio)| {
            let [
                input_stats,
                post_norm_stats,
                post_attn_stats,
                post_ffn_stats,
                output_stats,
            ] = s;
            LayerActivationTrace {
                layer_idx,
                input_stats,
                post_norm_stats,
                post_attn_stats,
                post_ffn_stats,
                output_stats,
                residual_ratio,
            }
        },
    );
    (
        any::<u32>(),
        prop::collection::vec(layer, 0..4),
        stats(),
        stats(),
        prop::option::of(".*"),
    )
        .prop_map(
            |(position, layers, embedding_stats, logits_stats, anomaly_desc)| {
                ModelActivationTrace {
                    position,
                    tokens: 1,
                    layers,
                    embedding_stats,
                    logits_stats,
                    has_anomaly: anomaly_desc.is_some(),
                    anomaly_desc,
                }
            },
        )
}

fn head() -> impl Strategy<Value = AttentionWeightTrace> {
    let top = prop::collection::vec((any::<u32>(), single()), 0..5);
    // A weight is a share, and `None` where there is none.
    (
        top,
        prop::array::uniform4(single()),
        prop::option::of(0.0f32..1.0),
    )
        .prop_map(|(top, f, first_weight)| AttentionWeightTrace {
            top_k_positions: top.iter().map(|t| t.0).collect(),
            top_k_weights: top.iter().map(|t| t.1).collect(),
            tail_mass: f[0],
            sink_logit_mass: f[1],
            entropy: f[2],
            recent_mass: f[3],
            first_weight,
            ..Default::default()
        })
}

fn token() -> impl Strategy<Value = TokenText> {
    (any::<u32>(), ".*").prop_map(|(id, text)| TokenText { id, text })
}

fn logit() -> impl Strategy<Value = LogitEvolutionTrace> {
    let tracked = (token(), prop::collection::vec(single(), 0..6), single()).prop_map(
        |(token, per_layer_logit, final_probability)| TokenLogitEvolution {
            token_id: token.id,
            token_str: token.text,
            per_layer_rank: vec![1; per_layer_logit.len()],
            per_layer_logit,
            final_probability,
            final_rank: 1,
        },
    );
    let cut = (double(), prop::option::of(token())).prop_map(|(cut_mass, first_cut)| SamplingCut {
        name: "top-k".into(),
        setting: "40".into(),
        left: 40,
        cut: 9,
        cut_mass,
        first_cut,
    });
    let sampling = (
        prop::collection::vec(cut, 0..3),
        token(),
        prop::array::uniform4(double()),
    )
        .prop_map(|(cuts, token, f)| SamplingView {
            sampler: "greedy".into(),
            cuts,
            candidates: vec![SampledCandidate {
                token,
                model_prob: f[0],
                drawn_prob: f[1],
                cut_by: None,
            }],
            model_entropy: f[2],
            drawn_entropy: f[3],
        });
    (
        prop::collection::vec(tracked, 0..3),
        token(),
        prop::option::of(any::<u32>()),
        single(),
        single(),
        sampling,
    )
        .prop_map(
            |(tracked_tokens, selected, stable_from, temperature, top_p, sampling)| {
                LogitEvolutionTrace {
                    position: 3,
                    tracked_tokens,
                    selected,
                    decisive_layer: 7,
                    stable_from,
                    top5_overlap: vec![0, 5],
                    temperature,
                    top_p,
                    sampling,
                }
            },
        )
}

fn quantisation() -> impl Strategy<Value = ModelQuantisationError> {
    let error = (
        prop::array::uniform3(double()),
        prop::option::of(double()),
        prop::option::of(any::<u32>()),
    )
        .prop_map(|(f, snr_db, layer_idx)| QuantisationErrorTrace {
            brick_id: BrickId::DownProj,
            layer_idx,
            of: ErrorOf::Own,
            mse: f[0],
            max_abs_error: f[1],
            cosine_similarity: f[2],
            snr_db,
            quant_type: "Q4_K".into(),
            grade: ErrorGrade::Critical,
            vectors: 3,
        });
    (
        prop::collection::vec(error, 0..4),
        prop::array::uniform6(double()),
    )
        .prop_map(|(brick_errors, f)| ModelQuantisationError {
            reference: "F32 of the same weights".into(),
            tokens: 12,
            brick_errors,
            logits_cosine: f[0],
            output_kl_divergence: f[1],
            same_top: f[2],
            perplexity: f[3],
            reference_perplexity: f[4],
            perplexity_delta: f[5],
        })
}

fn kv() -> impl Strategy<Value = KvCacheSessionTrace> {
    let step = (any::<u64>(), prop::option::of(0.0f32..1.0), single()).prop_map(
        |(step, cache_hit_rate, fragmentation)| KvCacheStateTrace {
            step,
            cache_size_bytes: u64::MAX,
            valid_positions: 3,
            max_positions: 8,
            evictions_this_step: 0,
            cache_hit_rate,
            oldest_position: 0,
            fragmentation,
            accessed_positions: vec![0, 1, 2],
        },
    );
    prop::collection::vec(step, 0..4).prop_map(|steps| KvCacheSessionTrace {
        steps,
        avg_hit_rate: Some(0.1),
        ..Default::default()
    })
}

fn anomaly() -> impl Strategy<Value = ActivationAnomaly> {
    (single(), ".*").prop_map(|(value, text)| ActivationAnomaly {
        kind: AnomalyKind::Nan,
        layer: Some(5),
        site: ActivationSite::PostAttention,
        brick: Some(BrickId::VProj),
        position: 12,
        value,
        text,
    })
}

prop_compose! {
    fn export()(
        model in ".*", activations in prop::collection::vec(activation(), 0..3), anomalies in prop::collection::vec(anomaly(), 0..3),
        attention in prop::collection::vec(head(), 0..4), logits in prop::collection::vec(logit(), 0..3),
        quantisation in prop::option::of(quantisation()), kv in kv(),
    ) -> TracerExport {
        TracerExport {
            model, activations, anomalies, attention, logits, quantisation, kv,
            more_anomalies: 3,
            on: TracerSet { activations: true, attention: true, logits: true, quantisation: true, kv: true },
            ..TracerExport::new("", &TracerFrame::default())
        }
    }
}

fn written(export: &TracerExport) -> Vec<u8> {
    let mut json = Vec::new();
    export.to_json(&mut json).expect("a vector takes it");
    json
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn f270_an_export_comes_back_bit_for_bit(export in export()) {
        let json = written(&export);
        let back = TracerExport::from_json(&json).expect("reads");
        // Debug tells -0 from 0 and has a text for every float; NaN equals itself there.
        prop_assert_eq!(format!("{export:?}"), format!("{back:?}"));
        prop_assert_eq!(&json, &written(&back));
        let value: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let schema = TracerExport::schema().to_value();
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        prop_assert!(validator.is_valid(&value), "{:?}", validator.iter_errors(&value).next().map(|e| e.to_string()));
        let acts = |c: char| c.is_control() && c != '\n';
        prop_assert!(!export.summary().contains(acts));
    }

    #[test]
    fn torn_files_are_refused(export in export(), at in any::<prop::sample::Index>()) {
        let json = written(&export);
        prop_assert!(TracerExport::from_json(&json[..at.index(json.len() - 2)]).is_err());
    }
}

#[test]
fn other_versions_are_refused_by_name() {
    let json = br#"{"schema_version": 9, "traces": []}"#;
    let error = TracerExport::from_json(json).expect_err("unknown");
    insta::assert_snapshot!(error, @"
    traces of schema version 9; this cbtop reads version 1
    Read them with the cbtop that wrote them.
    ");
}

#[test]
fn a_frame_is_exported_and_told_in_short() {
    let frame = TracerFrame::default();
    assert_eq!(TracerExport::new("m", &frame).summary(), "traces of m\n");

    let on = TracerSet {
        activations: true,
        attention: true,
        logits: true,
        quantisation: true,
        kv: true,
    };
    let empty = TracerFrame {
        on,
        ..TracerFrame::default()
    };
    insta::assert_snapshot!(TracerExport::new("m", &empty).summary(), @"
    traces of m
    activations: nothing wrong
    attention: no head was traced
    logits: no token was looked at
    quantisation: the whole model was not measured
    kv cache: at most 0 bytes, 0 evictions, full in 0 steps
    ");

    let error = |layer, cosine_similarity, of| QuantisationErrorTrace {
        brick_id: BrickId::DownProj,
        layer_idx: Some(layer),
        of,
        mse: 0.1,
        max_abs_error: 0.2,
        cosine_similarity,
        snr_db: Some(21.26),
        quant_type: "Q4_K".into(),
        grade: ErrorGrade::Warning,
        vectors: 9,
    };
    let trace = |decisive_layer| LogitEvolutionTrace {
        position: 7,
        tracked_tokens: vec![],
        selected: TokenText {
            id: 1,
            text: " Paris\u{1b}".into(),
        },
        decisive_layer,
        stable_from: Some(24),
        top5_overlap: vec![],
        temperature: 0.0,
        top_p: 1.0,
        sampling: SamplingView::default(),
    };
    let frame = TracerFrame {
        on,
        activations: Some(Arc::new(ActivationView {
            steps: 3,
            anomalies: vec![ActivationAnomaly {
                kind: AnomalyKind::Nan,
                layer: Some(5),
                site: ActivationSite::PostAttention,
                brick: None,
                position: 12,
                value: 3.0,
                text: "NaN first at layer 5, after attention (position 12): 3 of 576 elements"
                    .into(),
            }],
            more_anomalies: 98,
            ..Default::default()
        })),
        attention: Some(Arc::new(AttentionView {
            heads: vec![AttentionWeightTrace {
                query_pos: 7,
                top_k_weights: vec![0.5],
                tail_mass: 0.499,
                ..Default::default()
            }],
            notes: vec![AttentionNote {
                finding: AttentionFinding::Sink,
                text: "attention sink: 1 of 1 heads put at least half their weight on position 0"
                    .into(),
            }],
            ..Default::default()
        })),
        logits: Some(Arc::new(LogitView {
            steps: 3,
            traces: vec![trace(3), trace(22), trace(22)],
        })),
        quantisation: Some(Arc::new(QuantisationView {
            model: Some(ModelQuantisationError {
                reference: "F32 of the same weights".into(),
                tokens: 512,
                brick_errors: vec![
                    error(1, 0.9999, ErrorOf::Own),
                    error(2, 0.991, ErrorOf::Own),
                    error(3, f64::NAN, ErrorOf::Own),
                    error(4, 0.5, ErrorOf::Arriving),
                ],
                logits_cosine: 0.99876,
                output_kl_divergence: 0.0123,
                same_top: 0.973,
                perplexity: 12.5,
                reference_perplexity: 12.25,
                perplexity_delta: 0.25,
            }),
            ..Default::default()
        })),
        kv: Some(Arc::new(KvView {
            session: KvCacheSessionTrace {
                peak_memory_bytes: 4096,
                total_evictions: 2,
                avg_hit_rate: Some(0.75),
                window_exhaustions: 1,
                steps: vec![],
            },
            ..Default::default()
        })),
    };
    let export = TracerExport::new("Some Model", &frame);
    assert_eq!(export.activations.len(), 1);
    insta::assert_snapshot!(export.summary(), @r#"
    traces of Some Model
    activations: anomalies
      NaN first at layer 5, after attention (position 12): 3 of 576 elements
      and 98 more places
    attention: 1 heads at position 7, masses sum to 1 within 1e-3
      attention sink: 1 of 1 heads put at least half their weight on position 0
    logits: the newest 3 tokens, decided by layer 22 (2), layer 3 (1)
      newest: " Paris\u{1b}" after position 7, decided by layer 22, first from layer 24 on
    quantisation: 512 tokens against F32 of the same weights
      logits cosine 0.9988, Kullback-Leibler 0.0123 nats, same first token 97.3%, perplexity 12.5000 (+0.2500)
      layer 3 DownProj Q4_K: cosine NaN, 21.3 dB, warning
      layer 2 DownProj Q4_K: cosine 0.99100, 21.3 dB, warning
      layer 1 DownProj Q4_K: cosine 0.99990, 21.3 dB, warning
    kv cache: at most 4096 bytes, 2 evictions, hit rate 0.750, full in 1 steps
    "#);
}
