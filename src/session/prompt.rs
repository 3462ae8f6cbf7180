//! From a prompt's text to the ids a run starts with.

use super::load::Loaded;
use super::run::SessionError;
use crate::engine::{Config, EngineError, Overflow};
use crate::tokenizer::{ChatMessage, render_chat};

/// The ids of a prompt as the model is to see it.
///
/// # Errors
/// `--chat` without a template, a template that fails, or text that cannot be encoded.
pub fn encode_prompt(loaded: &Loaded, prompt: &str, chat: bool) -> Result<Vec<u32>, SessionError> {
    let t = &loaded.tokenizer;
    if !chat {
        return Ok(t.encode(prompt, true, true)?);
    }
    let template = t.chat_template().ok_or(SessionError::NoChatTemplate)?;
    let special = |id: Option<u32>| id.and_then(|id| t.token_text(id)).unwrap_or_default();
    let messages = [ChatMessage {
        role: "user".into(),
        content: prompt.into(),
    }];
    let text = render_chat(
        template,
        &messages,
        special(t.bos()),
        special(t.eos()),
        true,
    )?;
    // Templates write the beginning-of-text token themselves when they want one.
    Ok(t.encode(&text, false, true)?)
}

/// A prompt must leave room for one token.
pub(super) fn check_fits(ids: &[u32], config: &Config) -> Result<(), EngineError> {
    if ids.is_empty() {
        return Err(EngineError::Empty);
    }
    if config.overflow == Overflow::Stop && ids.len() >= config.n_ctx {
        return Err(EngineError::ContextFull {
            needed: ids.len() + 1,
            n_ctx: config.n_ctx,
        });
    }
    Ok(())
}
