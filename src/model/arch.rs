//! What sets one architecture apart from another, as data.
//!
//! Names and conventions are those of GGUF files as llama.cpp's converter writes them; values that a file states itself
//! (widths, bases, scales) are in [`super::Hparams`].

/// Which elements of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Adjacent pairs `(x[2i], x[2i+1])`, as GGUF's llama files are permuted for.
    Adjacent,
    /// Halves `(x[i], x[i+n/2])`, GPT-NeoX.
    Halves,
}

/// Which layers rotate queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayers {
    /// All.
    All,
    /// All but every n-th (SmolLM3).
    AllButEvery(usize),
    /// Only those with a sliding window (Command R7B).
    Windowed,
}

/// Kind of norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Root mean square, <https://arxiv.org/abs/1910.07467>.
    Rms,
    /// LayerNorm, <https://arxiv.org/abs/1607.06450>, with a bias where the file has one.
    Layer,
}

/// RMS norm of queries and keys, before they are rotated where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNormKind {
    /// None.
    None,
    /// Every head on its own.
    Head,
    /// Every head on its own, where the file has the weights.
    OptionalHead,
    /// Every head on its own, after its rotation.
    HeadAfterRope,
    /// All heads of a token together.
    Full,
}

/// Where a layer has norms, and what its feed-forward block reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// A norm before each block.
    Pre,
    /// A norm before and after each block.
    PreAndPost,
    /// A norm after each block only.
    Post,
    /// Attention and feed-forward both read the layer's input: through the same norm, or through `ffn_norm`
    /// (`attn_norm_2` is then attention's) where the file has it. GPT-NeoX files may ask for [`Self::Pre`].
    Parallel,
}

/// Activation of the feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SiLU.
    Silu,
    /// GELU, tanh form.
    GeluTanh,
    /// The square of the positive part.
    Relu2,
    /// gpt-oss: gate clamped at 7 from above, up to -7..7; `gate * sigmoid(1.702 gate) * (up + 1)`.
    SwigluOai,
}

/// How a router's logits become weights of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts, then the largest.
    Softmax,
    /// Sigmoid of each, then the largest.
    Sigmoid,
    /// The largest logits, then softmax over those.
    SoftmaxSelected,
}

/// How tokens are sent to experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing {
    /// From logits to weights.
    pub gating: Gating,
    /// Whether the weights of the selected experts are made to sum to 1, unless the file says.
    pub normalise: bool,
}

/// A multiplier that a file states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitScale {
    /// None.
    None,
    /// Logits are multiplied by the file's `logit_scale`.
    Times,
    /// Logits are divided by it.
    Over,
}

/// An architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Architecture {
    /// Its name in GGUF.
    pub name: &'static str,
    /// Kind of its norms.
    pub norm: NormKind,
    /// Rotation of queries and keys; `None`: learned positions are added to the embeddings.
    pub rope: Option<RopeStyle>,
    /// Which layers rotate.
    pub rope_layers: RopeLayers,
    /// Norm of queries and keys.
    pub qk_norm: QkNormKind,
    /// Where the norms are.
    pub blocks: Blocks,
    /// Activation of the feed-forward block.
    pub act: Act,
    /// Whether a second projection multiplies the activation.
    pub gated: bool,
    /// Whether embeddings are multiplied by the root of their width.
    pub sqrt_embed: bool,
    /// What becomes of the file's `logit_scale`.
    pub logit_scale: LogitScale,
    /// Every how many layers one sees everything, where the others have a sliding window; `None`: all see everything.
    pub window_pattern: Option<usize>,
    /// How its experts are chosen, where it may have them.
    pub routing: Option<Routing>,
    /// Whether every head has a learned logit that takes part in the softmax and adds nothing (gpt-oss).
    pub sinks: bool,
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    norm: NormKind::Rms,
    rope: Some(RopeStyle::Adjacent),
    rope_layers: RopeLayers::All,
    qk_norm: QkNormKind::None,
    blocks: Blocks::Pre,
    act: Act::Silu,
    gated: true,
    sqrt_embed: false,
    logit_scale: LogitScale::None,
    window_pattern: None,
    routing: Some(NORMALISED),
    sinks: false,
};

const NORMALISED: Routing = Routing {
    gating: Gating::Softmax,
    normalise: true,
};

const PLAIN: Routing = Routing {
    normalise: false,
    ..NORMALISED
};

const DENSE: Architecture = Architecture {
    routing: None,
    ..LLAMA
};

const QWEN: Architecture = Architecture {
    name: "qwen2",
    rope: Some(RopeStyle::Halves),
    ..DENSE
};

const GEMMA: Architecture = Architecture {
    name: "gemma",
    act: Act::GeluTanh,
    sqrt_embed: true,
    ..QWEN
};

/// LayerNorm and a feed-forward block without a gate.
const CLASSIC: Architecture = Architecture {
    norm: NormKind::Layer,
    act: Act::GeluTanh,
    gated: false,
    ..QWEN
};

const QWEN3: Architecture = Architecture {
    name: "qwen3",
    qk_norm: QkNormKind::Head,
    ..QWEN
};

const QWEN3_MOE: Architecture = Architecture {
    name: "qwen3moe",
    routing: Some(NORMALISED),
    ..QWEN3
};

const COHERE: Architecture = Architecture {
    name: "command-r",
    norm: NormKind::Layer,
    blocks: Blocks::Parallel,
    logit_scale: LogitScale::Times,
    ..DENSE
};

const GRANITE: Architecture = Architecture {
    name: "granite",
    logit_scale: LogitScale::Over,
    ..DENSE
};

/// Every architecture that runs.
pub static ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    QWEN,
    Architecture {
        name: "qwen2moe",
        routing: Some(PLAIN),
        ..QWEN
    },
    Architecture {
        // Positions of text are the same in all sections of its rotation.
        name: "qwen2vl",
        ..QWEN
    },
    QWEN3,
    QWEN3_MOE,
    Architecture {
        name: "qwen3vl",
        ..QWEN3
    },
    Architecture {
        name: "qwen3vlmoe",
        ..QWEN3_MOE
    },
    Architecture {
        name: "mistral3",
        ..LLAMA
    },
    Architecture {
        name: "seed_oss",
        ..QWEN
    },
    Architecture {
        name: "hunyuan-dense",
        qk_norm: QkNormKind::HeadAfterRope,
        ..QWEN
    },
    Architecture {
        name: "exaone4",
        blocks: Blocks::Post,
        qk_norm: QkNormKind::Head,
        window_pattern: Some(4),
        rope_layers: RopeLayers::Windowed,
        ..QWEN
    },
    Architecture {
        name: "glm4moe",
        qk_norm: QkNormKind::OptionalHead,
        routing: Some(Routing {
            gating: Gating::Sigmoid,
            normalise: true,
        }),
        ..QWEN
    },
    Architecture {
        name: "ernie4_5-moe",
        ..LLAMA
    },
    Architecture {
        name: "bailingmoe",
        routing: Some(PLAIN),
        ..DENSE
    },
    GEMMA,
    Architecture {
        name: "gemma2",
        blocks: Blocks::PreAndPost,
        window_pattern: Some(2),
        ..GEMMA
    },
    Architecture {
        name: "gemma3",
        blocks: Blocks::PreAndPost,
        qk_norm: QkNormKind::Head,
        window_pattern: Some(6),
        ..GEMMA
    },
    Architecture {
        name: "phi2",
        blocks: Blocks::Parallel,
        ..CLASSIC
    },
    Architecture {
        name: "phi3",
        ..QWEN
    },
    Architecture {
        name: "olmo2",
        blocks: Blocks::Post,
        qk_norm: QkNormKind::Full,
        window_pattern: Some(4),
        ..QWEN
    },
    Architecture {
        name: "olmoe",
        qk_norm: QkNormKind::Full,
        routing: Some(PLAIN),
        ..QWEN
    },
    Architecture {
        name: "gpt2",
        rope: None,
        ..CLASSIC
    },
    Architecture {
        name: "starcoder",
        rope: None,
        ..CLASSIC
    },
    Architecture {
        name: "starcoder2",
        ..CLASSIC
    },
    Architecture {
        name: "gptneox",
        blocks: Blocks::Parallel,
        ..CLASSIC
    },
    Architecture {
        name: "falcon",
        blocks: Blocks::Parallel,
        ..CLASSIC
    },
    Architecture {
        name: "stablelm",
        norm: NormKind::Layer,
        ..QWEN
    },
    Architecture {
        name: "nemotron",
        act: Act::Relu2,
        ..CLASSIC
    },
    COHERE,
    Architecture {
        name: "cohere2",
        window_pattern: Some(4),
        rope_layers: RopeLayers::Windowed,
        ..COHERE
    },
    GRANITE,
    Architecture {
        name: "granitemoe",
        routing: Some(NORMALISED),
        ..GRANITE
    },
    Architecture {
        name: "minicpm",
        ..GRANITE
    },
    Architecture {
        name: "internlm2",
        ..DENSE
    },
    Architecture {
        name: "arcee",
        act: Act::Relu2,
        gated: false,
        ..DENSE
    },
    Architecture {
        name: "ernie4_5",
        ..DENSE
    },
    Architecture {
        name: "smollm3",
        rope_layers: RopeLayers::AllButEvery(4),
        ..DENSE
    },
    Architecture {
        name: "deepseek",
        routing: Some(PLAIN),
        ..DENSE
    },
    Architecture {
        name: "exaone",
        ..QWEN
    },
    Architecture {
        name: "glm4",
        blocks: Blocks::PreAndPost,
        ..DENSE
    },
    Architecture {
        name: "gpt-oss",
        act: Act::SwigluOai,
        window_pattern: Some(2),
        routing: Some(Routing {
            gating: Gating::SoftmaxSelected,
            normalise: false,
        }),
        sinks: true,
        ..QWEN
    },
];

impl Architecture {
    /// The architecture that GGUF calls `name`.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        ARCHITECTURES.iter().find(|a| a.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_once() {
        for a in ARCHITECTURES {
            assert_eq!(Architecture::from_name(a.name), Some(a));
            let same = ARCHITECTURES.iter().filter(|b| b.name == a.name);
            assert_eq!(same.count(), 1, "{}", a.name);
        }
        assert!(Architecture::from_name("no such").is_none());
    }
}
