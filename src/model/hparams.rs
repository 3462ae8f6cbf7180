//! Hyperparameters: what the GGUF metadata says about an architecture, checked before anything is built on it.

use super::ModelError;
use super::arch::{
    ARCHITECTURES, Architecture, Blocks, Gating, LogitScale, NormKind, RopeLayers, Routing,
};
use super::keys::Keys;
use crate::gguf::{Gguf, Value};

/// Position scaling of the rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Positions as they are.
    None,
    /// Positions divided by the factor.
    Linear {
        /// Division factor.
        factor: f64,
    },
    /// YaRN, <https://arxiv.org/abs/2309.00071>.
    Yarn {
        /// Context extension factor.
        factor: f64,
        /// Context length before the extension, tokens.
        original_context: f64,
        /// Rotations above which frequencies are kept.
        beta_fast: f64,
        /// Rotations below which frequencies are interpolated.
        beta_slow: f64,
        /// Share of the temperature's logarithm that is taken back (`mscale_all_dim`).
        log_multiplier: f64,
    },
}

/// Hyperparameters of one model.
#[derive(Debug, Clone)]
pub struct Hparams {
    /// Architecture.
    pub arch: &'static Architecture,
    /// Where norms are, which a file may say otherwise than its architecture.
    pub blocks: Blocks,
    /// Layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads; divides `n_head`.
    pub n_head_kv: usize,
    /// Elements of a query or key head.
    pub head_dim_k: usize,
    /// Elements of a value head.
    pub head_dim_v: usize,
    /// Width of the dense feed-forward block; `None` where the file gives none (experts only).
    pub n_ff: Option<usize>,
    /// Experts of a layer and how they are chosen; `None` for a dense model.
    pub experts: Option<Experts>,
    /// Context length of training, tokens.
    pub n_ctx_train: usize,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Rotated elements of a head; even.
    pub rope_dims: usize,
    /// Base of the rotary frequencies in global layers.
    pub rope_base: f64,
    /// Scaling of the rotary frequencies in global layers.
    pub rope_scaling: RopeScaling,
    /// Multiplier of sine and cosine.
    pub rope_attn_factor: f64,
    /// Context length before an extension, tokens.
    pub original_context: usize,
    /// Sliding-window layers.
    pub window: Option<Window>,
    /// Multiplier of the token embeddings.
    pub embed_scale: f32,
    /// Multiplier of a block's output where it is added to the residual stream.
    pub residual_scale: f32,
    /// Multiplier of the logits.
    pub logit_scale: f32,
    /// Multiplier of attention scores.
    pub attn_scale: f32,
    /// How attention scores grow with the position, beside `attn_scale` (Mistral 3).
    pub attn_temperature: Option<Temperature>,
    /// Soft cap of attention scores (Gemma 2).
    pub attn_softcap: Option<f32>,
    /// Soft cap of the final logits (Gemma 2).
    pub logit_softcap: Option<f32>,
}

/// Experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub n: usize,
    /// How many a token is sent to.
    pub n_used: usize,
    /// How they are chosen.
    pub routing: Routing,
    /// Multiplier of their weights.
    pub scale: f32,
}

/// Multiplier of the scores of position `p`: `1 + scale ln(1 + floor(p / floor))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// How fast it grows.
    pub scale: f32,
    /// Tokens below which it is 1.
    pub floor: usize,
}

/// Sliding-window attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Visible tokens, own position included.
    pub tokens: usize,
    /// Whether each layer has the window; the others see everything.
    pub layers: Vec<bool>,
    /// Rotary base of windowed layers.
    pub rope_base: f64,
}

/// The most layers a file may claim; larger counts are a damaged file.
const MAX_LAYERS: usize = 1024;
/// The most experts of a layer.
const MAX_EXPERTS: usize = 1024;
/// The largest width, head count or feed-forward size a file may claim.
const MAX_WIDTH: usize = 1 << 20;

impl Hparams {
    /// Reads and checks the hyperparameters.
    ///
    /// # Errors
    /// A missing or absurd value, an unknown architecture, or a feature this program cannot run.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let name = gguf
            .str("general.architecture")?
            .ok_or_else(|| ModelError::MissingKey {
                key: "general.architecture".into(),
            })?;
        let arch = Architecture::from_name(name).ok_or_else(|| ModelError::UnknownArch {
            name: name.into(),
            supported: ARCHITECTURES
                .iter()
                .map(|a| a.name)
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        let k = Keys { gguf, arch: name };
        let n_embd = k.required("embedding_length", MAX_WIDTH)?;
        // Layers that predict further tokens stand behind the others.
        let ahead = k.gguf.u64(&k.key("nextn_predict_layers"))?.unwrap_or(0);
        let n_layers = k.required("block_count", MAX_LAYERS)?;
        let n_layers = usize::try_from(ahead)
            .ok()
            .and_then(|ahead| n_layers.checked_sub(ahead))
            .filter(|&n| n > 0)
            .ok_or_else(|| ModelError::BadValue {
                key: k.key("nextn_predict_layers"),
                value: ahead.to_string(),
                expected: format!("less than block_count {n_layers}"),
            })?;
        let n_ctx_train = k.required("context_length", 1 << 30)?;
        let heads = Heads::read(&k, n_embd)?;
        let experts = experts(&k, arch)?;
        let n_ff = k.uniform("feed_forward_length", MAX_WIDTH)?;
        if n_ff.is_none() && experts.is_none() {
            return Err(ModelError::MissingKey {
                key: k.key("feed_forward_length"),
            });
        }
        let eps = match arch.norm {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
            NormKind::Layer => "attention.layer_norm_epsilon",
        };
        let norm_eps = k
            .float(eps)?
            .ok_or_else(|| ModelError::MissingKey { key: k.key(eps) })?;
        let float = |key: &str, default: f32| {
            Ok::<_, ModelError>(k.float(key)?.map_or(default, |v| v as f32))
        };
        let gemma2 = arch.name == "gemma2";
        let cap = |key: &str, default: f32| {
            let cap = k.float(key)?.map(|v| v as f32);
            Ok::<_, ModelError>(cap.or(gemma2.then_some(default)))
        };
        let (embed, residual, logit) = default_scales(arch, n_embd, n_layers);
        let logit = float("logit_scale", logit)?;
        Ok(Self {
            arch,
            blocks: blocks(&k, arch)?,
            n_layers,
            n_embd,
            n_head: heads.n,
            n_head_kv: heads.n_kv,
            head_dim_k: heads.dim_k,
            head_dim_v: heads.dim_v,
            n_ff,
            experts,
            n_ctx_train,
            norm_eps: norm_eps as f32,
            rope_dims: heads.rope_dims,
            rope_base: k.float("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling: rope_scaling(&k, n_ctx_train)?,
            rope_attn_factor: k.float("rope.scaling.attn_factor")?.unwrap_or(1.0),
            original_context: original_context(&k, n_ctx_train)?,
            window: window(&k, arch, n_layers)?,
            embed_scale: if arch.sqrt_embed {
                embed
            } else {
                float("embedding_scale", embed)?
            },
            residual_scale: float("residual_scale", residual)?,
            logit_scale: match arch.logit_scale {
                LogitScale::None => 1.0,
                LogitScale::Times => logit,
                LogitScale::Over => 1.0 / logit,
            },
            // The 27B models scale by the width of a head in the residual stream; files do not say so.
            attn_scale: match (arch.name, n_layers) {
                ("gemma2", 46) | ("gemma3", 62) => 1.0 / ((n_embd / heads.n).max(1) as f32).sqrt(),
                _ => float("attention.scale", 1.0 / (heads.dim_k as f32).sqrt())?,
            },
            attn_temperature: temperature(&k, n_ctx_train)?,
            // Files of Gemma 2 may leave its caps out; no other architecture here caps attention.
            attn_softcap: if gemma2 {
                cap("attn_logit_softcapping", 50.0)?
            } else {
                None
            },
            logit_softcap: cap("final_logit_softcapping", 30.0)?,
        })
    }

    /// Elements of all query heads of a token.
    pub fn q_dim(&self) -> usize {
        self.n_head * self.head_dim_k
    }

    /// Elements of all key heads of a token.
    pub fn k_dim(&self) -> usize {
        self.n_head_kv * self.head_dim_k
    }

    /// Elements of all value heads of a token.
    pub fn v_dim(&self) -> usize {
        self.n_head_kv * self.head_dim_v
    }

    /// Elements of the attention output of a token, before its projection.
    pub fn attn_dim(&self) -> usize {
        self.n_head * self.head_dim_v
    }

    /// Multiplier of the attention scores of a query at `position`.
    pub fn score_scale(&self, position: usize) -> f32 {
        let growth = self.attn_temperature.map_or(1.0, |t| {
            1.0 + t.scale * ((position / t.floor) as f32).ln_1p()
        });
        self.attn_scale * growth
    }

    /// The attention window of a layer, `None` where the layer sees everything.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        let w = self.window.as_ref()?;
        w.layers
            .get(layer)
            .is_some_and(|&has| has)
            .then_some(w.tokens)
    }

    /// Whether a layer rotates its queries and keys.
    pub fn rotates(&self, layer: usize) -> bool {
        match self.arch.rope_layers {
            _ if self.arch.rope.is_none() => false,
            RopeLayers::All => true,
            RopeLayers::AllButEvery(n) => !(layer + 1).is_multiple_of(n),
            RopeLayers::Windowed => self.window.is_none() || self.layer_window(layer).is_some(),
        }
    }

    /// Experts a token is sent to; 0 for a dense model.
    pub fn n_expert_used(&self) -> usize {
        self.experts.map_or(0, |e| e.n_used)
    }
}

struct Heads {
    n: usize,
    n_kv: usize,
    dim_k: usize,
    dim_v: usize,
    rope_dims: usize,
}

impl Heads {
    fn read(k: &Keys<'_>, n_embd: usize) -> Result<Self, ModelError> {
        let n = k
            .uniform("attention.head_count", 4096)?
            .ok_or_else(|| ModelError::MissingKey {
                key: k.key("attention.head_count"),
            })?;
        let n_kv = k.uniform("attention.head_count_kv", 4096)?.unwrap_or(n);
        if !n.is_multiple_of(n_kv) {
            return Err(ModelError::BadValue {
                key: k.key("attention.head_count_kv"),
                value: n_kv.to_string(),
                expected: format!("a divisor of head_count {n}"),
            });
        }
        let head_dim = |key: &str| match k.size(key, 4096)? {
            Some(dim) => Ok(dim),
            None if n_embd >= n => Ok(n_embd / n),
            None => Err(ModelError::MissingKey { key: k.key(key) }),
        };
        let dim_k = head_dim("attention.key_length")?;
        let dim_v = head_dim("attention.value_length")?;
        let rope_dims = k.size("rope.dimension_count", 4096)?.unwrap_or(dim_k);
        if rope_dims > dim_k || !rope_dims.is_multiple_of(2) {
            return Err(ModelError::BadValue {
                key: k.key("rope.dimension_count"),
                value: rope_dims.to_string(),
                expected: format!("an even number up to the head size {dim_k}"),
            });
        }
        Ok(Self {
            n,
            n_kv,
            dim_k,
            dim_v,
            rope_dims,
        })
    }
}

/// Multipliers of embeddings, block outputs and logits where the file names none.
fn default_scales(arch: &Architecture, n_embd: usize, n_layers: usize) -> (f32, f32, f32) {
    match arch.name {
        // Older MiniCPM files leave them out; the values are those of its configuration.
        "minicpm" => (12.0, 1.4 / (n_layers as f32).sqrt(), n_embd as f32 / 256.0),
        _ if arch.sqrt_embed => ((n_embd as f32).sqrt(), 1.0, 1.0),
        _ => (1.0, 1.0, 1.0),
    }
}

fn blocks(k: &Keys<'_>, arch: &Architecture) -> Result<Blocks, ModelError> {
    let sequential = k.gguf.bool(&k.key("use_parallel_residual"))? == Some(false);
    Ok(match arch.blocks {
        Blocks::Parallel if sequential => Blocks::Pre,
        b => b,
    })
}

fn experts(k: &Keys<'_>, arch: &Architecture) -> Result<Option<Experts>, ModelError> {
    // llama.cpp writes the key with 0 into dense models too.
    let key = k.key("expert_count");
    let Some(n) = k.gguf.u64(&key)?.filter(|&n| n > 0) else {
        return Ok(None);
    };
    let Some(mut routing) = arch.routing else {
        return Err(ModelError::Unsupported {
            what: format!("experts in architecture '{}'", arch.name),
        });
    };
    let n = match usize::try_from(n) {
        Ok(n) if n <= MAX_EXPERTS => n,
        _ => {
            return Err(ModelError::BadValue {
                key,
                value: n.to_string(),
                expected: format!("1 to {MAX_EXPERTS}"),
            });
        }
    };
    match k.gguf.u64(&k.key("expert_gating_func"))? {
        None | Some(0) => {}
        Some(1) => routing.gating = Gating::Softmax,
        Some(2) => routing.gating = Gating::Sigmoid,
        Some(3) => routing.gating = Gating::SoftmaxSelected,
        Some(other) => {
            return Err(ModelError::Unsupported {
                what: format!("expert gating function {other}"),
            });
        }
    }
    if k.gguf
        .u64(&k.key("expert_group_count"))?
        .is_some_and(|n| n > 1)
    {
        return Err(ModelError::Unsupported {
            what: "experts chosen by group".into(),
        });
    }
    if let Some(normalise) = k.gguf.bool(&k.key("expert_weights_norm"))? {
        routing.normalise = normalise;
    }
    Ok(Some(Experts {
        n,
        n_used: k.required("expert_used_count", n)?,
        routing,
        scale: k.float("expert_weights_scale")?.map_or(1.0, |v| v as f32),
    }))
}

fn temperature(k: &Keys<'_>, n_ctx_train: usize) -> Result<Option<Temperature>, ModelError> {
    let key = k.key("attention.temperature_scale");
    // 0 says that there is none.
    if k.gguf.f32(&key)?.is_none_or(|v| v == 0.0) {
        return Ok(None);
    }
    let floor = k.size("attention.temperature_length", 1 << 30)?;
    Ok(k.float("attention.temperature_scale")?
        .map(|v| v as f32)
        .zip(Some(floor.unwrap_or(original_context(k, n_ctx_train)?)))
        .map(|(scale, floor)| Temperature { scale, floor }))
}

fn window(
    k: &Keys<'_>,
    arch: &Architecture,
    n_layers: usize,
) -> Result<Option<Window>, ModelError> {
    // Mistral's and Phi 3's files carry the key too; llama.cpp runs them with full attention.
    let Some(default_pattern) = arch.window_pattern else {
        return Ok(None);
    };
    // llama.cpp gives windows to the 32B model only.
    if arch.name == "exaone4" && n_layers != 64 {
        return Ok(None);
    }
    // 0 says that there is none.
    if k.gguf.u64(&k.key("attention.sliding_window"))? == Some(0) {
        return Ok(None);
    }
    let Some(tokens) = k.size("attention.sliding_window", 1 << 30)? else {
        return Ok(None);
    };
    let key = k.key("attention.sliding_window_pattern");
    let layers = match k.gguf.get(&key) {
        Some(Value::Array(_)) => {
            let layers = k.gguf.bools(&key)?.unwrap_or_default();
            if layers.len() < n_layers {
                return Err(ModelError::BadValue {
                    key,
                    value: format!("{} entries", layers.len()),
                    expected: format!("one for each of {n_layers} layers"),
                });
            }
            layers
        }
        _ => {
            let pattern = k
                .size("attention.sliding_window_pattern", MAX_LAYERS)?
                .unwrap_or(default_pattern);
            (1..=n_layers).map(|l| !l.is_multiple_of(pattern)).collect()
        }
    };
    let base = k.float("rope.freq_base_swa")?;
    Ok(Some(Window {
        tokens,
        layers,
        rope_base: match arch.name {
            "gemma3" => base.unwrap_or(10_000.0),
            _ => base.or(k.float("rope.freq_base")?).unwrap_or(10_000.0),
        },
    }))
}

fn original_context(k: &Keys<'_>, n_ctx_train: usize) -> Result<usize, ModelError> {
    let stated = k.size("rope.scaling.original_context_length", 1 << 30)?;
    Ok(stated.unwrap_or(n_ctx_train))
}

fn rope_scaling(k: &Keys<'_>, n_ctx_train: usize) -> Result<RopeScaling, ModelError> {
    let key = k.key("rope.scaling.type");
    // Files older than the `type` key say linear scaling by `rope.scale_linear` alone.
    let factor = match k.float("rope.scaling.factor")? {
        Some(f) => f,
        None => k.float("rope.scale_linear")?.unwrap_or(1.0),
    };
    let kind = k.gguf.str(&key)?.unwrap_or("linear");
    match kind {
        "none" => Ok(RopeScaling::None),
        // What else longrope does is in the file's factors, one a frequency.
        "linear" | "longrope" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" | "longrope" => Ok(RopeScaling::Linear { factor }),
        "yarn" => Ok(RopeScaling::Yarn {
            factor,
            original_context: original_context(k, n_ctx_train)? as f64,
            beta_fast: k.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: k.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            log_multiplier: k
                .gguf
                .f32(&k.key("rope.scaling.yarn_log_multiplier"))?
                .filter(|v| v.is_finite() && *v >= 0.0)
                .map_or(0.0, f64::from),
        }),
        other => Err(ModelError::Unsupported {
            what: format!("rope scaling type '{other}' ({key}; can: none, linear, yarn, longrope)"),
        }),
    }
}
