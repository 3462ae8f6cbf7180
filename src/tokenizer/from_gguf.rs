//! Which metadata keys hold the vocabulary.

use super::{TokenizerError, Vocabulary};
use crate::gguf::{Gguf, GgufError};

impl Vocabulary {
    /// Reads every `tokenizer.*` key that the tokenizer uses.
    ///
    /// # Errors
    /// A key has the wrong type, or there is no vocabulary of a known model.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let unreadable = |e: GgufError| TokenizerError::Metadata(e.to_string());
        let text = |key| {
            gguf.str(key)
                .map_err(unreadable)
                .map(|s| s.map(str::to_owned))
        };
        let id = |key| gguf.u32(key).map_err(unreadable);
        let flag = |key| gguf.bool(key).map_err(unreadable);
        let list = |key| gguf.strings(key).map_err(unreadable).map(|s| s.cloned());

        const MODEL: &str = "tokenizer.ggml.model";
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let model = text(MODEL)?.ok_or(TokenizerError::NoVocabulary(MODEL))?;
        // Checked before the token list: a model that cannot run is the more useful news.
        super::family(&model)?;
        Ok(Self {
            model,
            pre: text("tokenizer.ggml.pre")?,
            tokens: list(TOKENS)?.ok_or(TokenizerError::NoVocabulary(TOKENS))?,
            scores: gguf.f32s("tokenizer.ggml.scores").map_err(unreadable)?,
            token_types: gguf.i32s("tokenizer.ggml.token_type").map_err(unreadable)?,
            merges: list("tokenizer.ggml.merges")?,
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            eot: id("tokenizer.ggml.eot_token_id")?,
            eom: id("tokenizer.ggml.eom_token_id")?,
            unknown: id("tokenizer.ggml.unknown_token_id")?,
            fim_stops: [
                id("tokenizer.ggml.fim_pad_token_id")?,
                id("tokenizer.ggml.fim_rep_token_id")?,
                id("tokenizer.ggml.fim_sep_token_id")?,
            ],
            add_bos: flag("tokenizer.ggml.add_bos_token")?,
            add_eos: flag("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
            chat_template: text("tokenizer.chat_template")?,
            model_name: text("general.name")?,
        })
    }
}
