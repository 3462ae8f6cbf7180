//! Hyperparameters: what the GGUF metadata says about an architecture, checked before anything is built on it.

use super::ModelError;
use crate::gguf::Gguf;

/// Architectures this program can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// Llama 1-3, Mistral, SmolLM and everything else that GGUF calls `llama`, dense.
    Llama,
    /// Qwen 2 and 2.5.
    Qwen2,
    /// Qwen 3, dense.
    Qwen3,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3, text.
    Gemma3,
}

impl Arch {
    /// Every architecture, by its GGUF name.
    pub const ALL: &'static [(&'static str, Arch)] = &[
        ("llama", Arch::Llama),
        ("qwen2", Arch::Qwen2),
        ("qwen3", Arch::Qwen3),
        ("gemma2", Arch::Gemma2),
        ("gemma3", Arch::Gemma3),
    ];

    /// The architecture that GGUF calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|&(_, a)| a)
    }

    fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }
}

/// Which elements of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Adjacent pairs `(x[2i], x[2i+1])`, as GGUF's llama files are permuted for.
    Adjacent,
    /// Halves `(x[i], x[i+n/2])`, GPT-NeoX.
    Halves,
}

/// Gate activation of the feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateAct {
    /// SiLU (SwiGLU).
    Silu,
    /// GELU, tanh form (GEGLU).
    GeluTanh,
}

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
        /// Multiplier of the attention temperature.
        attn_factor: f64,
        /// Rotations above which frequencies are kept.
        beta_fast: f64,
        /// Rotations below which frequencies are interpolated.
        beta_slow: f64,
    },
}

/// Hyperparameters of one model.
#[derive(Debug, Clone)]
pub struct Hparams {
    /// Architecture.
    pub arch: Arch,
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
    /// Width of the feed-forward block.
    pub n_ff: usize,
    /// Context length of training, tokens.
    pub n_ctx_train: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f32,
    /// Rotated elements of a head; even.
    pub rope_dims: usize,
    /// Which elements rotate together.
    pub rope_style: RopeStyle,
    /// Base of the rotary frequencies in global layers.
    pub rope_base: f64,
    /// Scaling of the rotary frequencies in global layers.
    pub rope_scaling: RopeScaling,
    /// Sliding-window layers: window in tokens (own position included), every how many layers a global one comes,
    /// and the rotary base of the windowed layers.
    pub window: Option<Window>,
    /// Multiplier of the token embeddings.
    pub embed_scale: f32,
    /// Multiplier of attention scores.
    pub attn_scale: f32,
    /// Soft cap of attention scores (Gemma 2).
    pub attn_softcap: Option<f32>,
    /// Soft cap of the final logits (Gemma 2).
    pub logit_softcap: Option<f32>,
    /// Gate activation.
    pub gate: GateAct,
}

/// Sliding-window attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Visible tokens, own position included.
    pub tokens: usize,
    /// Layer `l` is global when `(l + 1) % pattern == 0`.
    pub pattern: usize,
    /// Rotary base of windowed layers.
    pub rope_base: f64,
}

/// The most layers a file may claim; larger counts are a damaged file.
const MAX_LAYERS: usize = 1024;
/// The largest width, head count or feed-forward size a file may claim.
const MAX_WIDTH: usize = 1 << 20;

struct Keys<'a> {
    gguf: &'a Gguf,
    arch: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn size(&self, name: &str, max: usize) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        let Some(v) = self.gguf.u64(&key)? else {
            return Ok(None);
        };
        match usize::try_from(v) {
            Ok(n) if (1..=max).contains(&n) => Ok(Some(n)),
            _ => Err(ModelError::BadValue {
                key,
                value: v.to_string(),
                expected: format!("1 to {max}"),
            }),
        }
    }

    fn required(&self, name: &str, max: usize) -> Result<usize, ModelError> {
        self.size(name, max)?.ok_or_else(|| ModelError::MissingKey {
            key: self.key(name),
        })
    }

    /// A size that some files give per layer; equal in every layer, or refused.
    fn uniform(&self, name: &str, max: usize) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        match self.gguf.get(&key) {
            Some(crate::gguf::Value::Array(_)) => {}
            _ => return self.size(name, max),
        }
        let values = self.gguf.u32s(&key)?.unwrap_or_default();
        match values.first() {
            Some(&first)
                if values.iter().all(|&v| v == first) && (1..=max).contains(&(first as usize)) =>
            {
                Ok(Some(first as usize))
            }
            _ => Err(ModelError::Unsupported {
                what: format!("{key} that differs between layers"),
            }),
        }
    }

    fn float(&self, name: &str) -> Result<Option<f64>, ModelError> {
        let key = self.key(name);
        match self.gguf.f32(&key)? {
            None => Ok(None),
            Some(v) if v.is_finite() && v > 0.0 => Ok(Some(f64::from(v))),
            Some(v) => Err(ModelError::BadValue {
                key,
                value: v.to_string(),
                expected: "a positive finite number".into(),
            }),
        }
    }
}

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
        let arch = Arch::from_name(name).ok_or_else(|| ModelError::UnknownArch {
            name: name.into(),
            supported: Arch::ALL
                .iter()
                .map(|(n, _)| *n)
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        let k = Keys { gguf, arch: name };
        // llama.cpp writes the key with 0 into dense models too.
        if gguf.u64(&k.key("expert_count"))?.is_some_and(|n| n > 0) {
            return Err(ModelError::Unsupported {
                what: "mixture-of-experts feed-forward layers".into(),
            });
        }
        let n_embd = k.required("embedding_length", MAX_WIDTH)?;
        let n_head =
            k.uniform("attention.head_count", 4096)?
                .ok_or_else(|| ModelError::MissingKey {
                    key: k.key("attention.head_count"),
                })?;
        let n_head_kv = k
            .uniform("attention.head_count_kv", 4096)?
            .unwrap_or(n_head);
        if !n_head.is_multiple_of(n_head_kv) {
            return Err(ModelError::BadValue {
                key: k.key("attention.head_count_kv"),
                value: n_head_kv.to_string(),
                expected: format!("a divisor of head_count {n_head}"),
            });
        }
        let head_dim = |key: &str| match k.size(key, 4096)? {
            Some(dim) => Ok(dim),
            None if n_embd >= n_head => Ok(n_embd / n_head),
            None => Err(ModelError::MissingKey { key: k.key(key) }),
        };
        let head_dim_k = head_dim("attention.key_length")?;
        let head_dim_v = head_dim("attention.value_length")?;
        let rope_dims = k.size("rope.dimension_count", 4096)?.unwrap_or(head_dim_k);
        if rope_dims > head_dim_k || !rope_dims.is_multiple_of(2) {
            return Err(ModelError::BadValue {
                key: k.key("rope.dimension_count"),
                value: rope_dims.to_string(),
                expected: format!("an even number up to the head size {head_dim_k}"),
            });
        }
        let n_ctx_train = k.required("context_length", 1 << 30)?;
        let n_layers = k.required("block_count", MAX_LAYERS)?;
        let cap = |key: &str, default: Option<f32>| {
            Ok::<_, ModelError>(k.float(key)?.map(|v| v as f32).or(default))
        };
        let gemma2 = arch == Arch::Gemma2;
        Ok(Self {
            arch,
            n_layers,
            n_embd,
            n_head,
            n_head_kv,
            head_dim_k,
            head_dim_v,
            n_ff: k
                .uniform("feed_forward_length", MAX_WIDTH)?
                .ok_or_else(|| ModelError::MissingKey {
                    key: k.key("feed_forward_length"),
                })?,
            n_ctx_train,
            norm_eps: k
                .float("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| ModelError::MissingKey {
                    key: k.key("attention.layer_norm_rms_epsilon"),
                })? as f32,
            rope_dims,
            rope_style: match arch {
                Arch::Llama => RopeStyle::Adjacent,
                _ => RopeStyle::Halves,
            },
            rope_base: k.float("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling: rope_scaling(&k, n_ctx_train)?,
            window: window(&k, arch)?,
            embed_scale: if arch.is_gemma() {
                (n_embd as f32).sqrt()
            } else {
                1.0
            },
            // The 27B models scale by the width of a head in the residual stream; files do not say so.
            attn_scale: match (arch, n_layers) {
                (Arch::Gemma2, 46) | (Arch::Gemma3, 62) => {
                    1.0 / ((n_embd / n_head).max(1) as f32).sqrt()
                }
                _ => 1.0 / (head_dim_k as f32).sqrt(),
            },
            // Files of Gemma 2 may leave its caps out; no other architecture here caps attention.
            attn_softcap: if gemma2 {
                cap("attn_logit_softcapping", Some(50.0))?
            } else {
                None
            },
            logit_softcap: cap("final_logit_softcapping", gemma2.then_some(30.0))?,
            gate: if arch.is_gemma() {
                GateAct::GeluTanh
            } else {
                GateAct::Silu
            },
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

    /// The attention window of a layer, `None` where the layer sees everything.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window
            .filter(|w| !(layer + 1).is_multiple_of(w.pattern))
            .map(|w| w.tokens)
    }
}

fn window(k: &Keys<'_>, arch: Arch) -> Result<Option<Window>, ModelError> {
    let default_pattern = match arch {
        Arch::Gemma2 => 2,
        Arch::Gemma3 => 6,
        // Mistral's early files carry the key too; llama.cpp runs them with full attention.
        _ => return Ok(None),
    };
    // 0 says that there is none.
    if k.gguf.u64(&k.key("attention.sliding_window"))? == Some(0) {
        return Ok(None);
    }
    let Some(tokens) = k.size("attention.sliding_window", 1 << 30)? else {
        return Ok(None);
    };
    Ok(Some(Window {
        tokens,
        pattern: default_pattern,
        rope_base: match arch {
            Arch::Gemma3 => k.float("rope.freq_base_swa")?.unwrap_or(10_000.0),
            _ => k.float("rope.freq_base")?.unwrap_or(10_000.0),
        },
    }))
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
        "linear" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor }),
        "yarn" => Ok(RopeScaling::Yarn {
            factor,
            original_context: k
                .size("rope.scaling.original_context_length", 1 << 30)?
                .unwrap_or(n_ctx_train) as f64,
            attn_factor: k.float("rope.scaling.attn_factor")?.unwrap_or(1.0),
            beta_fast: k.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: k.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        }),
        other => Err(ModelError::Unsupported {
            what: format!("rope scaling type '{other}' ({key}; can: none, linear, yarn)"),
        }),
    }
}
