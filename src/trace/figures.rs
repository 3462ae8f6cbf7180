//! Traces as plain data: what tables, JSON and the trace pane show.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token of the text traced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenText {
    /// Its id.
    pub id: u32,
    /// Its text, as the tokenizer writes it alone.
    pub text: String,
}

/// A token whose way through the layers is followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The word as asked for.
    pub word: String,
    /// The token followed: the first one of the word.
    pub token: TokenText,
    /// All tokens of the word, in order.
    pub pieces: Vec<TokenText>,
    /// Probability of the whole word after the prompt, the product over its pieces; `None` where the word is one token.
    pub word_prob: Option<f64>,
}

/// A trace of one text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceView {
    /// The model's name.
    pub model: String,
    /// The text.
    pub prompt: String,
    /// Its tokens, generated ones included.
    pub tokens: Vec<TokenText>,
    /// Layers of the model; a position has one waypoint more, 0 being the embedding.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Whether the lens is put on the stream between attention and FFN of each layer instead of behind it.
    #[serde(default)]
    pub after_attention: bool,
    /// The words asked for; every waypoint has one [`Track`] for each. Without any, every position follows what the model
    /// says there at the end.
    pub answers: Vec<Answer>,
    /// The positions traced, ascending.
    pub positions: Vec<PositionTrace>,
    /// Interventions in force, as statements write them.
    pub edits: Vec<String>,
    /// Facts of the overlay in force.
    pub facts: u32,
    /// What the reader should know: how a word of several tokens is taken, what is approximate.
    pub notes: Vec<String>,
}

impl TraceView {
    /// What the tracks of a position are of: the words asked for, or the token said there.
    pub fn answers_at(&self, position: &PositionTrace) -> Vec<Answer> {
        if !self.answers.is_empty() {
            return self.answers.clone();
        }
        let said = position.tracked.iter().map(|token| Answer {
            word: token.text.clone(),
            token: token.clone(),
            pieces: vec![token.clone()],
            word_prob: None,
        });
        said.collect()
    }
}

/// One position of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PositionTrace {
    /// The position, from 0.
    pub position: u32,
    /// The tokens followed here, in the order of the tracks: of the words asked for, or the one said here.
    pub tracked: Vec<TokenText>,
    /// `n_layers + 1` waypoints, or none where there is no model to read the stream with (see `norms`).
    pub waypoints: Vec<Waypoint>,
    /// Where each tracked token is decided.
    pub phases: Vec<PhaseTransition>,
    /// What the embedding adds to each tracked token's logit.
    pub embedding_logits: Vec<f64>,
    /// What the biases of norm and head add to each tracked token's logit, the same for every text.
    pub constant_logits: Vec<f64>,
}

/// The stream after one layer, at one position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waypoint {
    /// 0 is the embedding, 1 the stream after the first layer.
    pub layer: u32,
    /// L2 norm of the residual stream.
    pub residual_norm: f64,
    /// L2 norm of what attention added; 0 for the embedding.
    pub attn_norm: f64,
    /// L2 norm of what the FFN added; 0 for the embedding.
    pub ffn_norm: f64,
    /// What the logit lens says, most probable first; as many as were asked for. Empty in a file without them.
    pub top: Vec<Candidate>,
    /// Entropy of the lens, nats.
    pub entropy: Option<f64>,
    /// Forward Kullback-Leibler divergence from the final distribution to the lens, nats.
    pub kl_to_final: Option<f64>,
    /// One for each tracked token.
    pub tracks: Vec<Track>,
}

/// A token and its probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The token.
    pub token: TokenText,
    /// Its probability.
    pub prob: f64,
}

/// Where an answer stands after one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// 1 + number of tokens with a strictly larger probability.
    pub rank: u32,
    /// Probability by the logit lens: final norm with its scale computed here, head, softmax.
    pub prob: f64,
    /// Logit by the lens.
    pub logit: f64,
    /// What this layer's attention adds to the final logit: through the final norm with the scale of the last layer.
    pub attn_logit: f64,
    /// What this layer's FFN adds to it.
    pub ffn_logit: f64,
    /// Of `attn_logit`, the part of every head; empty unless asked for. They and the output bias sum to it.
    pub head_logits: Vec<f64>,
}

/// Attention or FFN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubLayer {
    /// Attention.
    Attention,
    /// The feed-forward block.
    Ffn,
}

impl SubLayer {
    /// As tables and pane name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Ffn => "FFN",
        }
    }
}

/// Where an answer is decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseTransition {
    /// The layer after which probability has risen most from the one before.
    pub largest_rise: u32,
    /// By how much it rose there.
    pub rise: f64,
    /// Which of that layer's parts added more to the answer's logit.
    pub decided_by: SubLayer,
    /// The first layer after which it has rank 1; `None` if never.
    pub first_rank_1: Option<u32>,
    /// The first layer from which it keeps rank 1 to the end; `None` if it does not have it at the end.
    pub settled: Option<u32>,
}

/// Effect of patching a layer and position on the answer's logit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PatchMap {
    /// The model's name.
    pub model: String,
    /// The run that was patched.
    pub prompt: String,
    /// The run that the patches come from.
    pub source: String,
    /// What was patched: `attention`, `ffn` or `residual`.
    pub site: String,
    /// The token watched.
    pub answer: TokenText,
    /// Tokens of the patched run, one a column.
    pub tokens: Vec<TokenText>,
    /// Tokens of the source at the same positions, aligned at the end; `None` where it has none.
    pub source_tokens: Vec<Option<TokenText>>,
    /// Its logit without a patch.
    pub base_logit: f64,
    /// Its logit in the source's run.
    pub source_logit: f64,
    /// The layers patched, one a row, ascending.
    pub layers: Vec<u32>,
    /// `cells[row][column]`: its logit with the patch less that without; `None`: not computed yet, or no such position.
    pub cells: Vec<Vec<Option<f64>>>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// What the trace pane shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TraceFrame {
    /// Grows with every new trace, so that a reader knows another when it comes; a token that a followed generation adds
    /// is no new trace.
    pub number: u64,
    /// The trace looked at.
    pub shown: Option<std::sync::Arc<TraceView>>,
    /// The one it is compared with: of another prompt, of another model, or from before an edit.
    pub beside: Option<std::sync::Arc<TraceView>>,
    /// The newest map of activation patching.
    pub map: Option<std::sync::Arc<PatchMap>>,
    /// Whether generated tokens are traced as they come.
    pub following: bool,
    /// What is being computed, and how far it is: done, of.
    pub work: Option<(String, u32, u32)>,
    /// Lines of the last statement that has no picture (facts of the overlay, a file saved), newest last.
    pub lines: Vec<String>,
}
