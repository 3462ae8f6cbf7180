//! What a statement of the TRACE language says.

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `TRACE`: run a prompt and look at the residual stream.
    Trace(Trace),
    /// `PATCH`: activation patching over every layer and position.
    Patch(Patch),
    /// `INSERT`: write a fact into the overlay.
    Insert(Fact),
    /// `DELETE`: take a fact out, one inserted before or one that the model knows.
    Delete(Fact),
    /// `FACTS`: list what the overlay holds.
    Facts,
}

/// `TRACE "prompt" [clauses]`; a clause may come once, in any order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// The text traced.
    pub prompt: String,
    /// `FOR "token" [, "token"]`: words whose way through the layers is wanted; the first is the answer.
    pub answers: Vec<String>,
    /// `DECOMPOSE`: norms of what attention and FFN added, and attention's share.
    pub decompose: bool,
    /// `HEADS`: what every attention head adds to the answer's logit.
    pub heads: bool,
    /// `LAYERS`: which layers are shown; `None` is all of them.
    pub layers: Option<Layers>,
    /// `POSITIONS`: which tokens; `None` is the last one.
    pub positions: Option<Positions>,
    /// `TOP k`: candidates shown a layer; `None` is 1.
    pub top: Option<u32>,
    /// `AFTER ATTENTION`: the lens is put on the stream between attention and FFN instead of after the layer.
    pub after_attention: bool,
    /// `WITH edit [, edit]`: interventions in force while the prompt runs.
    pub edits: Vec<Edit>,
    /// `SAVE "file"`.
    pub save: Option<String>,
    /// `FORMAT`; `None` leaves it to the command line.
    pub format: Option<Format>,
}

/// Layers as written: 0 is the embedding, 1 the stream after the first layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layers {
    /// `ALL`
    All,
    /// `a-b`, both included.
    Range(u32, u32),
    /// `EVERY k` or `every:k`: 0, k, 2k and so on, and the last.
    Every(u32),
    /// `a, b, c`; a single number is a list of one.
    List(Vec<u32>),
}

/// Positions as written, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// `ALL`
    All,
    /// `LAST`
    Last,
    /// `n`
    One(u32),
    /// `a-b`, both included.
    Range(u32, u32),
}

/// Output of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned text.
    Table,
    /// JSON.
    Json,
    /// CSV with a header line.
    Csv,
}

/// `ZERO|SCALE x|REPLACE site AT LAYER n [POSITION LAST|ALL|n|a-b] [FROM "prompt" | FROM FILE "file"]`
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// What is done.
    pub how: How,
    /// To what.
    pub site: Site,
    /// Layer, 1 to the number of layers.
    pub layer: u32,
    /// Where; `None` is the last token.
    pub positions: Option<Positions>,
}

/// What an edit does.
#[derive(Debug, Clone, PartialEq)]
pub enum How {
    /// `ZERO`
    Zero,
    /// `SCALE x`: multiply by a finite number.
    Scale(f32),
    /// `REPLACE ... FROM "prompt"`: the same site, layer and position of another prompt's run, aligned at the end.
    FromPrompt(String),
    /// `REPLACE ... FROM FILE "file"`: the same of a saved trace.
    FromFile(String),
}

/// What is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// `ATTENTION`: what attention adds.
    Attention,
    /// `FFN`: what the feed-forward block adds.
    Ffn,
    /// `RESIDUAL`: the stream after the layer.
    Residual,
    /// `HEAD n`: output of an attention head before its projection.
    Head(u32),
    /// `NEURON n`: an element of the feed-forward block's activation.
    Neuron(u32),
}

/// `PATCH "prompt" FROM "other prompt" FOR "token" [SITE ATTENTION|FFN|RESIDUAL] [LAYERS ..] [FORMAT ..]`
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// The run that is patched.
    pub prompt: String,
    /// The run that the patches come from.
    pub source: String,
    /// The token whose logit is watched.
    pub answer: String,
    /// What is patched; `None` is the residual stream. Only the first three of [`Site`].
    pub site: Option<Site>,
    /// At which layers; `None` is all.
    pub layers: Option<Layers>,
    /// `FORMAT`
    pub format: Option<Format>,
}

/// `INSERT "prompt" -> "answer" [LAYER n]` and `DELETE "prompt" -> "answer" [LAYER n]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The text that the answer follows.
    pub prompt: String,
    /// The answer.
    pub answer: String,
    /// The layer edited; `None` leaves the choice to cbtop.
    pub layer: Option<u32>,
}
