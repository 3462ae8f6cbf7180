//! Token texts that mean the same in every model family, whatever type the file gives them.
//!
//! The lists were checked against llama.cpp by asking it, name by name, which tokens it takes
//! for control tokens and which end a generation (`tests/tokenizer_vocab.rs` holds the result).

use crate::gguf::Strings;
use std::collections::BTreeMap;

/// Ends of a turn, the most specific first: the first one found is the vocabulary's end of turn.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
];

/// Further texts after which generation stops.
const END: &[&str] = &[
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "<|eom_id|>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
];

/// Fill-in-the-middle markers by role; of each role only the first one found counts.
const FILL_IN: &[(Fim, &[&str])] = &[
    (
        Fim::Prefix,
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "▁<PRE>",
            "<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    ),
    (
        Fim::Suffix,
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "▁<SUF>",
            "<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    ),
    (
        Fim::Middle,
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "▁<MID>",
            "<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
    ),
    (
        Fim::Pad,
        &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    ),
    (
        Fim::Repo,
        &[
            "<|fim_repo|>",
            "<|repo_name|>",
            "<fim-repo>",
            "<REPO>",
            "<reponame>",
        ],
    ),
    (Fim::Separator, &["<|file_sep|>"]),
];

/// A fill-in-the-middle role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fim {
    Prefix,
    Suffix,
    Middle,
    Pad,
    Repo,
    Separator,
}

/// What a token's text says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedRole {
    End,
    Fim(Fim),
}

impl NamedRole {
    /// Prefix, suffix and middle open a part; everything else named here closes the text.
    pub fn ends_generation(self) -> bool {
        !matches!(self, Self::Fim(Fim::Prefix | Fim::Suffix | Fim::Middle))
    }
}

/// Result of [`find`].
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Role of each token that has one.
    pub by_role: BTreeMap<u32, NamedRole>,
    /// The vocabulary's end of turn, should the metadata not name one.
    pub end_of_turn: Option<u32>,
    /// Tokens that separate rather than end in this vocabulary, although their names say otherwise.
    pub not_an_end: Vec<u32>,
}

/// Looks the known names up in a vocabulary. Of duplicates the last id counts, as in llama.cpp.
pub(super) fn find(texts: &Strings) -> Named {
    let mut ids: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, text) in texts.iter().enumerate() {
        if is_known(text) {
            ids.insert(text, id as u32);
        }
    }
    let mut named = Named::default();
    for name in END_OF_TURN.iter().chain(END) {
        if let Some(&id) = ids.get(name) {
            named.by_role.insert(id, NamedRole::End);
        }
    }
    named.end_of_turn = END_OF_TURN.iter().find_map(|name| ids.get(name).copied());
    for (role, names) in FILL_IN {
        if let Some(&id) = names.iter().find_map(|name| ids.get(name)) {
            named.by_role.insert(id, NamedRole::Fim(*role));
        }
    }
    // gpt-oss ends messages with <|end|> inside one turn; Gemma 4 keeps </s> as an HTML tag.
    let harmony = ids.contains_key("<|return|>")
        && (ids.contains_key("<|call|>")
            || ids.contains_key("<|calls|>") && ids.contains_key("<|flush|>"));
    if harmony && let Some(&id) = ids.get("<|end|>") {
        named.not_an_end.push(id);
    }
    if ids.contains_key("<|tool_response>")
        && let Some(&id) = ids.get("</s>")
    {
        named.not_an_end.push(id);
        named.by_role.remove(&id);
    }
    named
}

fn is_known(text: &str) -> bool {
    // Almost every token fails here; the lists are only walked for texts shaped like a marker.
    let marker = text.starts_with(['<', '[', '_', '▁']) && text.len() <= 40;
    marker
        && (END_OF_TURN.contains(&text)
            || END.contains(&text)
            || FILL_IN.iter().any(|(_, names)| names.contains(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> Named {
        find(&texts.iter().collect())
    }

    #[test]
    fn the_most_specific_end_of_turn_wins() {
        let found = named(&["a", "<|endoftext|>", "<|im_end|>", "<eos>"]);
        assert_eq!(found.end_of_turn, Some(2));
        assert_eq!(found.by_role.len(), 3);
        assert!(found.by_role.values().all(|r| r.ends_generation()));
    }

    #[test]
    fn fill_in_openers_do_not_end_a_generation_and_padding_does() {
        let found = named(&["<fim_prefix>", "<fim_pad>", "<reponame>"]);
        let ends: Vec<_> = found
            .by_role
            .values()
            .map(|r| r.ends_generation())
            .collect();
        assert_eq!(ends, [false, true, true]);
        assert_eq!(found.end_of_turn, None);
    }

    #[test]
    fn gpt_oss_messages_end_without_ending_the_turn() {
        let found = named(&["<|end|>", "<|return|>", "<|call|>"]);
        assert_eq!(found.not_an_end, [0]);
    }
}
