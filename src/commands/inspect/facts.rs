//! Everything `cbtop inspect` says about a file, as data; its JSON form is this, field by field.

use super::escape;
use anyhow::Context;
use cbtop::engine::cpu::exec::Executor;
use cbtop::engine::cpu::kv::bytes_per_token;
use cbtop::engine::cpu::{KernelSet, mat_kernel};
use cbtop::engine::{Config, EngineError, KvType};
use cbtop::gguf::{Array, GgmlType, Gguf, Value};
use cbtop::model::{Hparams, Model, quantisation_name, weight_bytes_per_token};
use cbtop::profiler::os;
use cbtop::session::LoadError;
use cbtop::tokenizer::Tokenizer;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file. Sizes are in bytes; `None` means "not known".
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    /// Its path as given.
    pub file: String,
    /// Version of the GGUF format.
    pub gguf_version: u32,
    /// Number of files, more than 1 for a split model.
    pub files: usize,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// `general.name`.
    pub name: Option<String>,
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// llama.cpp's name of the quantisation.
    pub quantisation: String,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub weight_bytes: u64,
    /// Bits a parameter takes on average.
    pub bits_per_weight: Option<f64>,
    /// Tokens of the vocabulary, if it can be read.
    pub vocabulary: Option<usize>,
    /// Sizes of the network, if its architecture is known.
    pub shape: Option<Shape>,
    /// Whether `cbtop --model` runs it.
    pub can_run: bool,
    /// Why not.
    pub refusals: Vec<String>,
    /// Memory needed to run.
    pub memory: Option<Memory>,
    /// Bytes read to make one token.
    pub read_per_token: Option<ReadPerToken>,
    /// Totals of every element type, most bytes first.
    pub types: Vec<TypeTotal>,
    /// Keys in file order.
    pub metadata: Vec<Entry>,
    /// Tensors in file order.
    pub tensors: Vec<Tensor>,
}

/// Experts of a layer, and how many of them a token uses.
#[derive(Debug, Serialize)]
pub(super) struct ExpertCount {
    pub n: usize,
    pub used: usize,
}

/// Sizes of a network.
#[derive(Debug, Serialize)]
pub(super) struct Shape {
    pub layers: usize,
    pub width: usize,
    pub query_heads: usize,
    pub kv_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub feed_forward: Option<usize>,
    pub experts: Option<ExpertCount>,
    pub trained_context: usize,
    /// Tokens that a windowed layer sees.
    pub window: Option<usize>,
}

/// Memory needed to run.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    /// Context length, tokens.
    pub context: usize,
    /// Threads.
    pub threads: usize,
    /// Weights, mapped from the file.
    pub weights_bytes: u64,
    /// Keys and values at the full context.
    pub kv_bytes: u64,
    /// Element type of keys and values.
    pub kv_type: &'static str,
    /// Activations.
    pub buffer_bytes: u64,
    /// The sum.
    pub total_bytes: u64,
    /// What the system could give now.
    pub available_bytes: Option<u64>,
}

/// Bytes read to make one token.
#[derive(Debug, Serialize)]
pub(super) struct ReadPerToken {
    /// Every matrix once, one row of the embedding, norms and biases.
    pub weight_bytes: u64,
    /// Keys and values, when the context is full; windowed layers read their window.
    pub kv_full_bytes: u64,
}

/// All tensors of one type.
#[derive(Debug, Serialize)]
pub(super) struct TypeTotal {
    #[serde(rename = "type")]
    pub ty: GgmlType,
    pub tensors: u64,
    pub elements: u64,
    pub bytes: u64,
    pub bits_per_weight: f64,
}

/// A metadata entry.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub key: String,
    #[serde(rename = "type")]
    pub ty: String,
    /// The value on one line, for people.
    #[serde(skip)]
    pub line: String,
    #[serde(flatten)]
    pub content: Content,
}

/// A value, or the start of an array.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Content {
    Scalar { value: Value },
    Array { count: usize, first: Array },
}

/// A row of the tensor table.
#[derive(Debug, Serialize)]
pub(super) struct Tensor {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: GgmlType,
    /// Innermost first.
    pub dims: Vec<u64>,
    pub elements: u64,
    pub bytes: u64,
    /// Which file, from 0.
    pub file: usize,
    /// Where in that file.
    pub offset: u64,
}

/// Characters of a value on a line.
const LINE: usize = 96;

impl Facts {
    /// Reads everything; `ctx` overrides the context length for the memory needed.
    pub fn gather(
        gguf: &Arc<Gguf>,
        ctx: Option<usize>,
        kv_type: Option<KvType>,
    ) -> anyhow::Result<Self> {
        let sum =
            |f: fn(&cbtop::gguf::TensorInfo) -> u64| gguf.tensors().iter().map(f).sum::<u64>();
        let (parameters, weight_bytes) = (sum(|t| t.elements()), sum(|t| t.bytes));
        let text = |key| gguf.str(key).ok().flatten().map(str::to_owned);
        let (mut refusals, vocabulary, model) = judge(gguf);
        refusals.dedup();
        let config = model
            .as_ref()
            .map(|m| config(&m.hparams, ctx, kv_type))
            .transpose()?;
        let run = model.as_ref().zip(config.as_ref());
        Ok(Self {
            file: gguf.path().display().to_string(),
            gguf_version: gguf.version(),
            files: gguf.n_shards(),
            file_bytes: gguf.file_bytes(),
            name: text("general.name"),
            architecture: text("general.architecture"),
            quantisation: quantisation_name(gguf),
            parameters,
            weight_bytes,
            bits_per_weight: bits(weight_bytes, parameters),
            vocabulary,
            shape: Hparams::from_gguf(gguf).ok().map(|hp| Shape::new(&hp)),
            can_run: refusals.is_empty(),
            refusals,
            memory: run
                .map(|(m, c)| Memory::new(m, c, weight_bytes))
                .transpose()?,
            read_per_token: run.map(|(m, c)| ReadPerToken::new(m, c)),
            types: type_totals(gguf),
            metadata: gguf.metadata().map(|(k, v)| Entry::new(k, v)).collect(),
            tensors: gguf.tensors().iter().map(Tensor::new).collect(),
        })
    }
}

/// Why the file cannot run, if so; the size of its vocabulary and its model, as far as they can be read.
fn judge(gguf: &Arc<Gguf>) -> (Vec<String>, Option<usize>, Option<Model>) {
    let mut refusals = Vec::new();
    let mut model = None;
    if gguf.tensors().is_empty() {
        refusals.push(
            "the file has no tensors, only a vocabulary; `cbtop tokenize` can use that".into(),
        );
    } else {
        match Model::new(Arc::clone(gguf)) {
            Ok(m) => {
                refusals.extend(without_kernels(&m));
                model = Some(m);
            }
            Err(e) => refusals.push(e.to_string()),
        }
    }
    let vocabulary = match Tokenizer::from_gguf(gguf) {
        Ok(t) => Some(t.n_vocab()),
        Err(e) => {
            refusals.push(e.to_string());
            None
        }
    };
    if let (Some(tokens), Some(m)) = (vocabulary, &model)
        && tokens > m.n_vocab
    {
        let mismatch = LoadError::VocabularySize {
            source_name: gguf.path().display().to_string(),
            tokens,
            rows: m.n_vocab,
        };
        refusals.push(mismatch.to_string());
    }
    (refusals, vocabulary, model)
}

fn without_kernels(model: &Model) -> Option<String> {
    let set = KernelSet::best();
    let (missing, _) = model
        .plan
        .matrices()
        .find(|(w, _)| mat_kernel(set, w.ty).is_none())?;
    let missing = missing.ty;
    Some(format!("kernels '{set}' cannot multiply {missing} weights"))
}

fn config(hp: &Hparams, ctx: Option<usize>, kv_type: Option<KvType>) -> anyhow::Result<Config> {
    let mut config = Config::for_context(hp.n_ctx_train);
    config.n_ctx = ctx.unwrap_or(config.n_ctx);
    config.chunk = config.chunk.min(config.n_ctx.max(1));
    config.kv_type = kv_type.unwrap_or(config.kv_type);
    config.check().context("--ctx")?;
    config.check_heads(hp)?;
    Ok(config)
}

fn bits(bytes: u64, elements: u64) -> Option<f64> {
    (elements > 0).then(|| 8.0 * bytes as f64 / elements as f64)
}

impl Shape {
    fn new(hp: &Hparams) -> Self {
        Self {
            layers: hp.n_layers,
            width: hp.n_embd,
            query_heads: hp.n_head,
            kv_heads: hp.n_head_kv,
            key_dim: hp.head_dim_k,
            value_dim: hp.head_dim_v,
            feed_forward: hp.n_ff,
            experts: hp.experts.map(|e| ExpertCount {
                n: e.n,
                used: e.n_used,
            }),
            trained_context: hp.n_ctx_train,
            window: hp.window.as_ref().map(|w| w.tokens),
        }
    }
}

impl Memory {
    fn new(model: &Model, c: &Config, weights_bytes: u64) -> Result<Self, EngineError> {
        let kv_bytes = bytes_per_token(&model.hparams, c.kv_type).saturating_mul(c.n_ctx as u64);
        let buffer_bytes = buffer_bytes(model, c)?;
        Ok(Self {
            context: c.n_ctx,
            threads: c.threads,
            weights_bytes,
            kv_bytes,
            kv_type: c.kv_type.name(),
            buffer_bytes,
            total_bytes: weights_bytes
                .saturating_add(kv_bytes)
                .saturating_add(buffer_bytes),
            available_bytes: os::memory_available_bytes(),
        })
    }
}

/// Bytes of the engine's activation buffers under `c`, without a cache of its context.
///
/// Only the context is too large to try: buffers grow by as much with every 16 positions, so two small ones tell.
pub(in crate::commands) fn buffer_bytes(model: &Model, c: &Config) -> Result<u64, EngineError> {
    const LINE: usize = 16;
    let of = |lines| {
        let small = Config {
            n_ctx: lines * LINE,
            logit_rows: 1,
            ..c.clone()
        };
        Executor::new(model, &small).map(|e| e.scratch_bytes())
    };
    let least = of(1)?;
    let per_line = of(2)? - least;
    Ok(least + (c.n_ctx.div_ceil(LINE) as u64 - 1) * per_line)
}

impl ReadPerToken {
    fn new(model: &Model, c: &Config) -> Self {
        let hp = &model.hparams;
        let position = bytes_per_token(hp, c.kv_type) / hp.n_layers as u64;
        let seen = |layer| c.n_ctx.min(hp.layer_window(layer).unwrap_or(usize::MAX)) as u64;
        Self {
            weight_bytes: weight_bytes_per_token(model),
            kv_full_bytes: (0..hp.n_layers)
                .map(|l| position.saturating_mul(seen(l)))
                .fold(0, u64::saturating_add),
        }
    }
}

fn type_totals(gguf: &Gguf) -> Vec<TypeTotal> {
    let mut by_type: BTreeMap<GgmlType, (u64, u64, u64)> = BTreeMap::new();
    for t in gguf.tensors() {
        let (tensors, elements, bytes) = by_type.entry(t.ty).or_default();
        *tensors += 1;
        *elements += t.elements();
        *bytes += t.bytes;
    }
    let mut totals: Vec<_> = by_type
        .into_iter()
        .map(|(ty, (tensors, elements, bytes))| TypeTotal {
            ty,
            tensors,
            elements,
            bytes,
            bits_per_weight: bits(bytes, elements).unwrap_or_default(),
        })
        .collect();
    totals.sort_by_key(|t| std::cmp::Reverse(t.bytes));
    totals
}

impl Entry {
    fn new(key: &str, value: &Value) -> Self {
        Self {
            key: key.into(),
            ty: escape::type_name(value),
            line: escape::value(value, LINE),
            content: match value {
                Value::Array(a) => Content::Array {
                    count: a.len(),
                    first: escape::head(a),
                },
                other => Content::Scalar {
                    value: other.clone(),
                },
            },
        }
    }
}

impl Tensor {
    fn new(t: &cbtop::gguf::TensorInfo) -> Self {
        Self {
            name: t.name.clone(),
            ty: t.ty,
            dims: t.dims.clone(),
            elements: t.elements(),
            bytes: t.bytes,
            file: t.shard(),
            offset: t.offset(),
        }
    }
}
