//! Chat templates: rendered as Jinja2 does it.

mod common;
mod vocabularies;

use cbtop::tokenizer::{ChatMessage, render_chat};
use common::{SMOLLM2, real_model};
use vocabularies::{fixture, load};

#[test]
fn smollm2_adds_its_system_message() {
    let Some(path) = real_model(SMOLLM2) else {
        return;
    };
    let tokenizer = load(&path);
    let template = tokenizer.chat_template().unwrap();
    let user = [ChatMessage::new("user", "Hi")];
    let system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n";
    let rendered = render_chat(template, &user, "<|im_start|>", "<|im_end|>", true).unwrap();
    assert_eq!(
        rendered,
        format!("{system}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    );
    let ids = tokenizer.encode(&rendered, false, true).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 3);
    assert!(!tokenizer.decode(&ids).unwrap().contains("im_start"));
    let told = [
        ChatMessage::new("system", "Be brief."),
        ChatMessage::new("user", "Hi"),
    ];
    let rendered = render_chat(template, &told, "<|im_start|>", "<|im_end|>", false).unwrap();
    assert_eq!(
        rendered,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    );
}

#[test]
fn templates_render_as_jinja2_does() {
    let fixture = fixture("chat_templates.json");
    for case in fixture["cases"].as_array().unwrap() {
        let template = fixture["templates"][case["template"].as_str().unwrap()]
            .as_str()
            .unwrap();
        let messages: Vec<ChatMessage> = serde_json::from_value(case["messages"].clone()).unwrap();
        let prompt = case["add_generation_prompt"].as_bool().unwrap();
        let rendered = render_chat(template, &messages, "<bos>", "<eos>", prompt);
        match case["rendered"].as_str() {
            Some(expected) => assert_eq!(rendered.as_deref(), Ok(expected), "{case}"),
            None => assert!(rendered.is_err(), "{case}"),
        }
    }
}
