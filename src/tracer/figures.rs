//! What the tracers found, as plain data: what panes, reports and exports read.
//!
//! Layers count from 0, as llama.cpp's `blk.N` and the panels about time; positions count from 0 within their sequence.
//! `None` is "not known", never zero. Floats that are not finite survive in JSON as [`Exact`] writes them.

pub use crate::engine::tensor_stats::TensorStats;

use super::exact::{Exact, ExactList};
use crate::model::brick::BrickId;
use crate::trace::figures::TokenText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One of the five tracers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TracerKind {
    /// Statistics of activations at layer boundaries.
    Activations,
    /// Attention weights.
    Attention,
    /// Logits of candidates after every layer, and what sampling cuts.
    Logits,
    /// Error of quantised products against F32.
    Quantisation,
    /// State of the kv cache.
    Kv,
}

impl TracerKind {
    /// All, in the order of views and flags.
    pub const ALL: [Self; 5] = [
        Self::Activations,
        Self::Attention,
        Self::Logits,
        Self::Quantisation,
        Self::Kv,
    ];

    /// As flags, titles and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Activations => "activations",
            Self::Attention => "attention",
            Self::Logits => "logits",
            Self::Quantisation => "quantisation",
            Self::Kv => "kv",
        }
    }
}

/// Which tracers are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TracerSet {
    /// [`TracerKind::Activations`].
    pub activations: bool,
    /// [`TracerKind::Attention`].
    pub attention: bool,
    /// [`TracerKind::Logits`].
    pub logits: bool,
    /// [`TracerKind::Quantisation`].
    pub quantisation: bool,
    /// [`TracerKind::Kv`].
    pub kv: bool,
}

/// What the tracers have found so far: `None` of a tracer that is off.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TracerFrame {
    /// Which are on.
    pub on: TracerSet,
    /// Activations.
    pub activations: Option<Arc<ActivationView>>,
    /// Attention.
    pub attention: Option<Arc<AttentionView>>,
    /// Logits.
    pub logits: Option<Arc<LogitView>>,
    /// Quantisation error.
    pub quantisation: Option<Arc<QuantisationView>>,
    /// kv cache.
    pub kv: Option<Arc<KvView>>,
}

// ---------------------------------------------------------------- activations

/// What is wrong with an activation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyKind {
    /// An element is NaN.
    Nan,
    /// An element is infinite.
    Infinity,
    /// A magnitude above 1e6, or a standard deviation above 1e4.
    Explosion,
    /// A standard deviation below 1e-6 (after the first layers).
    Vanishing,
    /// The stream passes by: residual ratio above 0.99.
    ResidualDominance,
}

/// Where in a layer an activation was looked at.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ActivationSite {
    /// The stream before the first layer.
    Embedding,
    /// The input of attention: the stream after its norm, where there is one.
    PostNorm,
    /// What attention adds to the stream.
    PostAttention,
    /// What the feed-forward block adds.
    PostFfn,
    /// The stream after the layer.
    Output,
    /// Logits.
    Logits,
}

/// The first time that something was wrong in one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActivationAnomaly {
    /// What.
    pub kind: AnomalyKind,
    /// Its layer; `None` for embedding and logits.
    pub layer: Option<u32>,
    /// Where it was noticed.
    pub site: ActivationSite,
    /// The brick that first wrote it, found by running the step again; `None` where that found none (dominance has none).
    pub brick: Option<BrickId>,
    /// Position of the token.
    pub position: u32,
    /// The value that broke the rule: a count for NaN and infinities, else magnitude, deviation or ratio.
    #[serde(with = "Exact")]
    pub value: f32,
    /// All of it in one line.
    pub text: String,
}

/// Activations of one layer in one step, over all its tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LayerActivationTrace {
    /// The layer.
    pub layer_idx: u32,
    /// The stream before it.
    pub input_stats: TensorStats,
    /// Behind the norm before attention.
    pub post_norm_stats: TensorStats,
    /// What attention adds.
    pub post_attn_stats: TensorStats,
    /// What the feed-forward block adds.
    pub post_ffn_stats: TensorStats,
    /// The stream after it.
    pub output_stats: TensorStats,
    /// `|input| / (|input| + |attention| + |ffn|)`, L2 norms over the step: 1 where the layer adds nothing.
    #[serde(with = "Exact")]
    pub residual_ratio: f32,
}

/// Activations of one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ModelActivationTrace {
    /// Position of its last token.
    pub position: u32,
    /// Its tokens.
    pub tokens: u32,
    /// Its layers.
    pub layers: Vec<LayerActivationTrace>,
    /// The embedding.
    pub embedding_stats: TensorStats,
    /// Logits, of all tokens whose logits were computed; nothing counted where none were.
    pub logits_stats: TensorStats,
    /// Whether a rule was broken.
    pub has_anomaly: bool,
    /// By what, in words.
    pub anomaly_desc: Option<String>,
}

/// What the pane of activations shows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ActivationView {
    /// Steps looked at since the tracer was switched on or the run began again.
    pub steps: u64,
    /// The newest step.
    pub latest: ModelActivationTrace,
    /// The first anomaly of every kind and layer, in the order they came, at most 64.
    pub anomalies: Vec<ActivationAnomaly>,
    /// Those beyond.
    pub more_anomalies: u64,
}

// ---------------------------------------------------------------- attention

/// What a head does with one query, in a word.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HeadPattern {
    /// At least half of its weight on position 0 (or on a learned sink): it rests.
    Sink,
    /// At least 0.9 of its weight on the newest positions.
    Recent,
    /// Nearly the entropy of equal weights.
    Uniform,
    /// At least half of its weight on one other position.
    Focused,
    /// None of these.
    Mixed,
}

/// The attention weights of one head for one query.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AttentionWeightTrace {
    /// Its layer.
    pub layer_idx: u32,
    /// Its head.
    pub head_idx: u32,
    /// The query's position.
    pub query_pos: u32,
    /// The positions it attends to most, largest weight first; only weights of at least the threshold.
    pub top_k_positions: Vec<u32>,
    /// Their weights.
    #[serde(with = "ExactList")]
    pub top_k_weights: Vec<f32>,
    /// Sum of the other weights.
    #[serde(with = "Exact")]
    pub tail_mass: f32,
    /// Share of the softmax that a learned sink takes (gpt-oss); 0 elsewhere. The top weights, the tail and this sum to 1.
    #[serde(with = "Exact")]
    pub sink_logit_mass: f32,
    /// Entropy of the weights among themselves (as shares of their own sum, without a learned sink), nats.
    #[serde(with = "Exact")]
    pub entropy: f32,
    /// Positions it sees: those of its window that the cache still holds.
    pub seen: u32,
    /// Weight of position 0; `None` where it is not seen.
    pub first_weight: Option<f32>,
    /// Sum of the weights of the newest positions, its own included.
    #[serde(with = "Exact")]
    pub recent_mass: f32,
}

/// A pattern over all heads that a user should know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttentionFinding {
    /// Most heads rest on position 0.
    Sink,
    /// Nearly all weight that does not rest is on the newest positions, in all layers.
    Repetition,
    /// Hardly any weight on what lies between the first and the newest positions.
    LostContext,
    /// Many heads weigh everything alike.
    Uniform,
}

/// A finding in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttentionNote {
    /// What.
    pub finding: AttentionFinding,
    /// In one line, with its figures.
    pub text: String,
}

/// What the pane of attention shows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AttentionView {
    /// Layers of the model.
    pub n_layers: u32,
    /// Query heads of a layer.
    pub n_heads: u32,
    /// Window of every layer, tokens; `None` where it sees everything.
    pub windows: Vec<Option<u32>>,
    /// Positions that count as the newest.
    pub recent: u32,
    /// Position of the newest query.
    pub query_pos: u32,
    /// The heads traced at the newest query, by layer and head.
    pub heads: Vec<AttentionWeightTrace>,
    /// What that amounts to.
    pub notes: Vec<AttentionNote>,
    /// One head over the queries that are kept: query by key.
    pub focus: HeadFocus,
    /// The text by position, from `first_token` on; keys and queries are labelled with it.
    pub tokens: Vec<TokenText>,
    /// Position of the first of `tokens`.
    pub first_token: u32,
    /// Queries kept, and those no longer.
    pub kept: u32,
    /// Queries that were dropped to stay within the tracer's memory.
    pub dropped: u64,
}

/// One head over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HeadFocus {
    /// Its layer.
    pub layer: u32,
    /// The head.
    pub head: u32,
    /// Its newest queries, oldest first, at most 128.
    pub queries: Vec<AttentionWeightTrace>,
}

// ---------------------------------------------------------------- logits

/// A token's way through the layers at one position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenLogitEvolution {
    /// Its id.
    pub token_id: u32,
    /// Its text.
    pub token_str: String,
    /// Its logit by the logit lens: index 0 is the embedding, then after every layer.
    #[serde(with = "ExactList")]
    pub per_layer_logit: Vec<f32>,
    /// Its rank there, from 1.
    pub per_layer_rank: Vec<u32>,
    /// Its probability in the end.
    #[serde(with = "Exact")]
    pub final_probability: f32,
    /// Its rank in the end, from 1.
    pub final_rank: u32,
}

/// What one cut of the sampler leaves, in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplingCut {
    /// `top-k`, `top-p`, `min-p` or `temperature`.
    pub name: String,
    /// Its setting, for example `40`; `off` where it cuts nothing by its setting.
    pub setting: String,
    /// Tokens left behind it.
    pub left: u32,
    /// Tokens it cut.
    pub cut: u32,
    /// Share of the probability before it that it cut.
    #[serde(with = "Exact")]
    pub cut_mass: f64,
    /// The most probable token it cut.
    pub first_cut: Option<TokenText>,
}

/// A candidate and what sampling makes of its probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampledCandidate {
    /// The token.
    pub token: TokenText,
    /// Its probability by the model.
    #[serde(with = "Exact")]
    pub model_prob: f64,
    /// Its probability of being drawn; 0 where it was cut.
    #[serde(with = "Exact")]
    pub drawn_prob: f64,
    /// What cut it.
    pub cut_by: Option<String>,
}

/// What the sampler does with a distribution.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SamplingView {
    /// The sampler in words.
    pub sampler: String,
    /// Its cuts, in order; a greedy sampler leaves one token in one cut.
    pub cuts: Vec<SamplingCut>,
    /// The most probable tokens.
    pub candidates: Vec<SampledCandidate>,
    /// Entropy by the model, nats.
    #[serde(with = "Exact")]
    pub model_entropy: f64,
    /// Entropy of what is drawn from, nats.
    #[serde(with = "Exact")]
    pub drawn_entropy: f64,
}

/// How a token came to be chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogitEvolutionTrace {
    /// Position whose logits these are; the token chosen is the next one.
    pub position: u32,
    /// The tokens followed: the most probable ones, the chosen one, those asked for.
    pub tracked_tokens: Vec<TokenLogitEvolution>,
    /// The token chosen.
    pub selected: TokenText,
    /// The layer whose work raised the chosen token's logit most above the mean of the others followed; index into layers
    /// from 0.
    pub decisive_layer: u32,
    /// The first layer from which on the chosen token is first; `None` where it never is (something else was drawn).
    pub stable_from: Option<u32>,
    /// How many of the five tokens that are first in the end have a rank of at most 5, after the embedding and after every
    /// layer.
    pub top5_overlap: Vec<u32>,
    /// Temperature; 0 for greedy.
    #[serde(with = "Exact")]
    pub temperature: f32,
    /// Top-p.
    #[serde(with = "Exact")]
    pub top_p: f32,
    /// What the sampler did.
    pub sampling: SamplingView,
}

/// What the pane of logits shows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogitView {
    /// Tokens looked at.
    pub steps: u64,
    /// The newest tokens, oldest first, at most 64.
    pub traces: Vec<LogitEvolutionTrace>,
}

// ---------------------------------------------------------------- quantisation

/// How good a product is, by the cosine to its reference.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorGrade {
    /// Cosine of at least 0.995.
    Acceptable,
    /// At least 0.99.
    Warning,
    /// Below that, or no number.
    Critical,
}

/// What an error is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorOf {
    /// The brick's own: it and its reference had the same input.
    Own,
    /// What has arrived at the brick's output since the embedding: everything before it was computed in the other way too.
    Arriving,
}

/// Error of one brick of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantisationErrorTrace {
    /// The brick.
    pub brick_id: BrickId,
    /// Its layer; `None` outside layers.
    pub layer_idx: Option<u32>,
    /// Own or arriving.
    pub of: ErrorOf,
    /// Mean squared error of all elements compared.
    #[serde(with = "Exact")]
    pub mse: f64,
    /// Largest absolute error.
    #[serde(with = "Exact")]
    pub max_abs_error: f64,
    /// Cosine similarity to the reference, the mean over vectors.
    #[serde(with = "Exact")]
    pub cosine_similarity: f64,
    /// Signal-to-noise ratio, dB: sum of squares of the reference over that of the error; `None` where there is no error at all, or nothing to compare.
    #[serde(with = "Exact")]
    pub snr_db: Option<f64>,
    /// Type of the brick's weights, for example `Q4_K`; empty for a brick without weights.
    pub quant_type: String,
    /// By the cosine.
    pub grade: ErrorGrade,
    /// Output vectors compared.
    pub vectors: u64,
}

/// Error of the whole model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelQuantisationError {
    /// What it was compared with: `F32 of the same weights`, or the name of another file.
    pub reference: String,
    /// Tokens compared.
    pub tokens: u32,
    /// By brick and layer, in the order they run, own before arriving.
    pub brick_errors: Vec<QuantisationErrorTrace>,
    /// Mean cosine of the logits.
    #[serde(with = "Exact")]
    pub logits_cosine: f64,
    /// Mean Kullback-Leibler divergence of the output distributions from the reference's, nats.
    #[serde(with = "Exact")]
    pub output_kl_divergence: f64,
    /// Positions whose most probable token is the same, share.
    #[serde(with = "Exact")]
    pub same_top: f64,
    /// Perplexity on the text.
    #[serde(with = "Exact")]
    pub perplexity: f64,
    /// That of the reference.
    #[serde(with = "Exact")]
    pub reference_perplexity: f64,
    /// Difference of the two.
    #[serde(with = "Exact")]
    pub perplexity_delta: f64,
}

/// What the pane of quantisation shows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QuantisationView {
    /// What weights are compared with: `F32 of the same weights`, or the name of another file.
    pub reference: String,
    /// Own errors seen while tokens run, one layer a token, in the order bricks run.
    pub live: Vec<QuantisationErrorTrace>,
    /// Tokens that were looked at.
    pub tokens: u64,
    /// The whole model on the first tokens of the text, once measured.
    pub model: Option<ModelQuantisationError>,
    /// How far that measurement is: done and all, in parts of it; `None` while none runs.
    pub progress: Option<(u32, u32)>,
    /// Why it could not be made.
    pub error: Option<String>,
}

// ---------------------------------------------------------------- kv cache

/// The cache after one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KvCacheStateTrace {
    /// The step, from 1.
    pub step: u64,
    /// Bytes of the positions held.
    pub cache_size_bytes: u64,
    /// Positions held.
    pub valid_positions: u32,
    /// Positions it can hold.
    pub max_positions: u32,
    /// Positions evicted in this step.
    pub evictions_this_step: u32,
    /// Of the earlier positions that attention would look up with a cache without bounds, the share that is held; `None`
    /// where there are none.
    pub cache_hit_rate: Option<f32>,
    /// Oldest position held.
    pub oldest_position: u32,
    /// As [`crate::engine::CacheState::fragmentation`].
    #[serde(with = "Exact")]
    pub fragmentation: f32,
    /// Positions that attention read: where attention is traced, those in the recorded top of any traced head; else all
    /// that are visible. At most 256, the newest.
    pub accessed_positions: Vec<u32>,
}

/// What is wrong with the use of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvFinding {
    /// Many evictions and few hits.
    Thrashing,
    /// Bytes held beyond what is allocated.
    Leak,
    /// The window is full.
    Exhaustion,
}

/// A finding in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KvNote {
    /// What.
    pub finding: KvFinding,
    /// In one line, with its figures.
    pub text: String,
}

/// What a smaller cache would hold of the positions that were read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheWhatIf {
    /// Its slots.
    pub slots: u32,
    /// Share of reads that a ring would have served.
    #[serde(with = "Exact")]
    pub ring_hit_rate: f32,
    /// Share of reads that a cache would have served which evicts what was read longest ago.
    #[serde(with = "Exact")]
    pub lru_hit_rate: f32,
}

/// The cache over a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct KvCacheSessionTrace {
    /// The newest steps, oldest first, at most 256.
    pub steps: Vec<KvCacheStateTrace>,
    /// Evictions in all steps.
    pub total_evictions: u64,
    /// Most bytes ever held.
    pub peak_memory_bytes: u64,
    /// Mean hit rate of the steps that looked anything up.
    pub avg_hit_rate: Option<f32>,
    /// Steps that found the window full.
    pub window_exhaustions: u64,
}

/// What the pane of the kv cache shows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct KvView {
    /// The session.
    pub session: KvCacheSessionTrace,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes of one position.
    pub bytes_per_position: u64,
    /// `stop` or `ring`.
    pub overflow: String,
    /// First positions that are never evicted.
    pub keep: u32,
    /// Element type.
    pub kv_type: String,
    /// How smaller caches would have done; empty before anything was read.
    pub what_if: Vec<CacheWhatIf>,
    /// Whether what was read is known by weight (attention is traced) or by visibility alone.
    pub by_weight: bool,
    /// What a user should know.
    pub notes: Vec<KvNote>,
}
