//! Vocabularies: decoding is the inverse of encoding, damaged ones are refused.

mod common;
mod vocabularies;

use cbtop::tokenizer::{Tokenizer, TokenizerError, Vocabulary};
use common::{GEMMA3, SMOLLM2, real_model};
use proptest::prelude::*;
use std::sync::OnceLock;
use vocabularies::{load, small_bpe, small_spm};

/// The vocabularies that are there, loaded once.
fn loaded() -> &'static [(String, Tokenizer)] {
    static LOADED: OnceLock<Vec<(String, Tokenizer)>> = OnceLock::new();
    LOADED.get_or_init(|| {
        let mut files = vocabularies::files();
        files.extend([SMOLLM2, GEMMA3].into_iter().filter_map(real_model));
        let mut all: Vec<(String, Tokenizer)> = files
            .iter()
            .map(|path| (path.display().to_string(), load(path)))
            .collect();
        all.push(("small gpt2".into(), Tokenizer::new(small_bpe()).unwrap()));
        all.push(("small llama".into(), Tokenizer::new(small_spm()).unwrap()));
        all
    })
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[ \t\r\n]{1,8}",
        "[a-zA-Z]{1,12}",
        "[0-9]{1,6}",
        Just("<|im_end|>".to_owned()),
        Just("</s>".to_owned()),
        Just("'S 'll".to_owned()),
        "[\u{300}-\u{36F}]{1,3}",
        "[一-鿿぀-ヿ가-힣]{1,6}",
        "[🀀-🫿]{1,3}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decoding_is_the_inverse_of_encoding(text in any_text()) {
        // ▁ is how a SentencePiece-style vocabulary writes a space: the two cannot be told apart.
        let text = text.replace('▁', " ");
        for (name, tokenizer) in loaded() {
            let ids = tokenizer.encode(&text, false, false).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &text, "{}", name);
            let ids = tokenizer.encode(&text, true, false).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &text, "{}", name);
        }
    }

    #[test]
    fn streaming_gives_the_same_text(seeds in proptest::collection::vec(any::<u32>(), 0..60)) {
        for (name, tokenizer) in loaded() {
            let ids: Vec<u32> = seeds.iter().map(|s| s % tokenizer.n_vocab() as u32).collect();
            let mut stream = tokenizer.stream();
            let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
            text += &stream.flush();
            prop_assert_eq!(text, tokenizer.decode_continuation(&ids).unwrap(), "{}", name);
        }
    }

    /// Byte tokens and byte-level pieces break characters anywhere.
    #[test]
    fn streaming_bytes_gives_the_same_text(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let tokenizer = Tokenizer::new(small_spm()).unwrap();
        let ids: Vec<u32> = bytes.iter().map(|&b| u32::from(b) + 3).collect();
        let mut stream = tokenizer.stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text += &stream.flush();
        prop_assert_eq!(&text, &tokenizer.decode_continuation(&ids).unwrap());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
    }

    #[test]
    fn no_vocabulary_panics(
        texts in proptest::collection::vec("[ab▁Ġ <>\\|]{0,3}|<0x4[0-9]>|</s>", 0..12),
        types in proptest::collection::vec(0..8i32, 0..12),
        scores in proptest::collection::vec(any::<f32>(), 0..12),
        merges in proptest::collection::vec("[ab ]{0,4}", 0..4),
        special in any::<[Option<u8>; 3]>(),
        llama in any::<bool>(),
        text in any_text(),
    ) {
        let vocabulary = Vocabulary {
            model: if llama { "llama" } else { "gpt2" }.into(),
            tokens: texts.into(),
            token_types: (types.len() > 4).then_some(types),
            scores: Some(scores),
            merges: Some(merges.into()),
            bos: special[0].map(u32::from),
            eos: special[1].map(u32::from),
            unknown: special[2].map(|id| u32::from(id % 4)),
            ..Vocabulary::default()
        };
        if let Ok(tokenizer) = Tokenizer::new(vocabulary)
            && let Ok(ids) = tokenizer.encode(&text, true, true)
        {
            prop_assert!(tokenizer.decode(&ids).is_ok());
        }
    }
}

fn refusal(vocabulary: Vocabulary) -> String {
    Tokenizer::new(vocabulary)
        .expect_err("a damaged vocabulary was taken")
        .to_string()
}

#[test]
fn equal_scores_merge_leftmost_first() {
    let tokenizer = Tokenizer::new(Vocabulary {
        add_space_prefix: Some(false),
        ..small_spm()
    })
    .unwrap();
    let texts = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text, false, false).unwrap();
        ids.iter()
            .map(|&id| tokenizer.token_text(id).unwrap().to_owned())
            .collect()
    };
    assert_eq!(texts("aaaa"), ["aaa", "a"]);
    assert_eq!(texts("aab"), ["aa", "b"]);
    assert_eq!(texts("a  aé"), ["a", "▁", "▁a", "<0xC3>", "<0xA9>"]);
}

#[test]
fn the_file_decides_about_bos_eos_and_space() {
    let ids = |vocabulary| {
        Tokenizer::new(vocabulary)
            .unwrap()
            .encode("a", true, false)
            .unwrap()
    };
    let (a, spaced) = (260, 265);
    assert_eq!(ids(small_spm()), [1, spaced]);
    let plain = Vocabulary {
        add_bos: Some(false),
        add_eos: Some(true),
        add_space_prefix: Some(false),
        ..small_spm()
    };
    assert_eq!(ids(plain), [a, 2]);
}

/// As llama.cpp reads a `llama` vocabulary whose metadata name no special token.
#[test]
fn unsaid_special_tokens_are_sentencepieces_own() {
    let unsaid = Vocabulary {
        bos: None,
        eos: None,
        unknown: None,
        ..small_spm()
    };
    let tokenizer = Tokenizer::new(unsaid).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert_eq!(tokenizer.encode("a", true, false).unwrap(), [1, 265]);
}

#[test]
fn damaged_vocabularies_are_refused_with_the_reason() {
    assert!(refusal(Vocabulary::default()).contains("no vocabulary"));
    let unknown = Vocabulary {
        model: "t5".into(),
        ..small_spm()
    };
    assert!(refusal(unknown).contains("\"t5\", which cannot be run; what can: gpt2, llama"));
    // What llama.cpp has for encoders and for models of other kinds is refused by name, not guessed.
    for model in [
        "bert",
        "rwkv",
        "gemma4",
        "plamo2",
        "hybriddna",
        "whitespace",
    ] {
        let other = Vocabulary {
            model: model.into(),
            ..small_bpe()
        };
        assert!(refusal(other).contains(&format!("model is \"{model}\"")));
    }
    for pre in [
        "gemma4",
        "sarvam-moe",
        "whitespace",
        "jina-v2-code",
        "modern-bert",
    ] {
        let other = Vocabulary {
            pre: Some(pre.into()),
            ..small_bpe()
        };
        assert!(refusal(other).contains(&format!("pre is \"{pre}\"")));
    }
    let unknown = Vocabulary {
        pre: Some("klingon".into()),
        ..small_bpe()
    };
    assert!(refusal(unknown).contains("klingon"));
    assert!(
        refusal(Vocabulary {
            tokens: Default::default(),
            ..small_spm()
        })
        .contains("empty")
    );
    assert!(
        refusal(Vocabulary {
            scores: None,
            ..small_spm()
        })
        .contains("tokenizer.ggml.scores")
    );
    assert!(
        refusal(Vocabulary {
            merges: None,
            ..small_bpe()
        })
        .contains("tokenizer.ggml.merges")
    );
    let short = Vocabulary {
        scores: Some(vec![0.0; 5]),
        ..small_spm()
    };
    assert!(refusal(short).contains("scores has 5 entries for 267 tokens"));
    let short = Vocabulary {
        token_types: Some(vec![1; 5]),
        ..small_bpe()
    };
    assert!(refusal(short).contains("token_type has 5 entries for 259 tokens"));
    let mut scores = small_spm().scores.unwrap();
    scores[7] = f32::NAN;
    assert!(
        refusal(Vocabulary {
            scores: Some(scores),
            ..small_spm()
        })
        .contains("score of token 7")
    );
    let mut types = small_spm().token_types.unwrap();
    types[9] = -1;
    let strange = Vocabulary {
        token_types: Some(types),
        ..small_spm()
    };
    assert!(refusal(strange).contains("token 9 has type -1"));
    for (bos, eos) in [(Some(267), None), (None, Some(u32::MAX))] {
        assert!(
            refusal(Vocabulary {
                bos,
                eos,
                ..small_spm()
            })
            .contains("267 tokens")
        );
    }
    for (merge, problem) in [
        ("ab", "no space"),
        ("", "no space"),
        ("a ", "does not have"),
        ("a zz", "joins a token"),
        ("c b", "makes a token"),
    ] {
        let merges = Some(vec![merge].into());
        let message = refusal(Vocabulary {
            merges,
            ..small_bpe()
        });
        assert!(
            message.contains("merge rule 0") && message.contains(problem),
            "{message}"
        );
    }
}

#[test]
fn what_has_no_token_is_said_or_replaced() {
    let mut vocabulary = small_bpe();
    vocabulary.tokens = vocabulary.tokens.iter().filter(|t| *t != "x").collect();
    let tokenizer = Tokenizer::new(vocabulary.clone()).unwrap();
    assert_eq!(
        tokenizer.encode("axb", false, false),
        Err(TokenizerError::Unencodable(b'x'))
    );
    vocabulary.unknown = Some(0);
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    let ids = tokenizer.encode("abxab", false, false).unwrap();
    assert_eq!((ids.len(), ids[1]), (3, 0));
}

#[test]
fn ids_outside_the_vocabulary_are_an_error_not_a_panic() {
    let tokenizer = Tokenizer::new(small_spm()).unwrap();
    let error = tokenizer.decode(&[260, 267]).unwrap_err();
    assert_eq!(
        error,
        TokenizerError::IdOutOfRange {
            id: 267,
            n_vocab: 267
        }
    );
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.stream().push(u32::MAX), "");
    assert!(!tokenizer.is_control(u32::MAX) && !tokenizer.is_end_of_generation(u32::MAX));
}

/// One line of ten million bytes: these would not finish if anything were quadratic.
#[test]
fn a_ten_megabyte_line_is_encoded() {
    let bpe = Tokenizer::new(small_bpe()).unwrap();
    let spm = Tokenizer::new(small_spm()).unwrap();
    for (tokenizer, unit) in [
        (&bpe, "a"),
        (&bpe, " "),
        (&bpe, "ab c"),
        (&spm, "a"),
        (&spm, "ab c "),
    ] {
        let text = unit.repeat(10_000_000 / unit.len());
        let ids = tokenizer.encode(&text, false, true).unwrap();
        assert!(tokenizer.decode(&ids).unwrap() == text, "{unit:?}");
    }
}
