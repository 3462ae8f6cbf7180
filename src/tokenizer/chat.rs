//! Chat templates: the Jinja source in `tokenizer.chat_template`, rendered as Hugging Face does.

use super::TokenizerError;
use super::strftime::strftime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a template may spend: one unit an instruction and one for each 64 bytes it makes, so that it can
/// neither run for ever nor fill the memory. A long conversation takes some ten thousand.
const FUEL: u64 = 2_000_000;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks: `system`, `user`, `assistant`, or whatever else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// Renders a conversation with a model's template.
///
/// The template sees `messages`, `bos_token`, `eos_token`, `add_generation_prompt`, `tools` and
/// `documents` (both none), and may call `raise_exception` and `strftime_now` (UTC). Blocks are trimmed
/// as in `transformers`. Encode the result with `parse_special`, and with `add_special` only if the
/// template did not write the beginning-of-text token itself.
///
/// # Errors
/// [`TokenizerError::Template`]: it does not compile, calls `raise_exception`, or runs for more than two
/// million steps (each 64 bytes of text count as one).
pub fn render_chat(
    template: &str,
    messages: &[ChatMessage],
    bos_token: &str,
    eos_token: &str,
    add_generation_prompt: bool,
) -> Result<String, TokenizerError> {
    let mut environment = Environment::new();
    environment.set_syntax(trimmed_blocks()?);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", to_json);
    let message =
        |m: &ChatMessage| context! { role => m.role.as_str(), content => m.content.as_str() };
    let messages: Vec<Value> = messages.iter().map(message).collect();
    let context = context! {
        messages => messages,
        bos_token => bos_token,
        eos_token => eos_token,
        add_generation_prompt => add_generation_prompt,
        tools => (),
        documents => (),
    };
    environment
        .template_from_str(template)
        .and_then(|t| t.render(context))
        .map_err(|e| TokenizerError::Template(reason(&e)))
}

fn reason(error: &Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("it does not end, or makes too much text (stopped after {FUEL} steps)");
    }
    let what = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// A line that holds only a block leaves nothing behind.
fn trimmed_blocks() -> Result<SyntaxConfig, TokenizerError> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|e| TokenizerError::Template(reason(&e)))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: String) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    strftime(now.as_secs(), &format)
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`; the filter's own escapes HTML.
fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let failed = |e: serde_json::Error| Error::new(ErrorKind::BadSerialization, e.to_string());
    let mut bytes = Vec::new();
    match indent {
        Some(width) => {
            let spaces = vec![b' '; width.min(64)];
            let pretty = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            value
                .serialize(&mut serde_json::Serializer::with_formatter(
                    &mut bytes, pretty,
                ))
                .map_err(failed)?;
        }
        None => value
            .serialize(&mut serde_json::Serializer::with_formatter(
                &mut bytes,
                PythonStyle,
            ))
            .map_err(failed)?,
    }
    String::from_utf8(bytes).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))
}

/// `{"a": 1, "b": 2}`: Python puts a space after commas and colons.
struct PythonStyle;

impl serde_json::ser::Formatter for PythonStyle {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str) -> Result<String, TokenizerError> {
        let messages = [ChatMessage::new("user", "Hi <b> & \"you\" é")];
        render_chat(template, &messages, "<s>", "</s>", true)
    }

    #[test]
    fn blocks_are_trimmed_and_nothing_is_escaped() {
        let template = "{{ bos_token }}\n  {% for m in messages %}\n{{ m['role'] }}: {{ m.content | trim }}\n  {% endfor %}\nend";
        assert_eq!(
            render(template).unwrap(),
            "<s>\nuser: Hi <b> & \"you\" é\nend"
        );
    }

    #[test]
    fn python_methods_and_json_work() {
        let template = "{{ messages[0].content.split(' ')[0].upper() }} {{ messages | tojson }}";
        let expected = "HI [{\"role\": \"user\", \"content\": \"Hi <b> & \\\"you\\\" é\"}]";
        assert_eq!(render(template).unwrap(), expected);
        assert_eq!(
            render("{{ [1, 2] | tojson(indent=2) }}").unwrap(),
            "[\n  1,\n  2\n]"
        );
        assert_eq!(render("{{ strftime_now('%%') }}").unwrap(), "%");
    }

    #[test]
    fn a_template_can_refuse() {
        let error = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
        assert!(
            error.to_string().contains("roles must alternate"),
            "{error}"
        );
    }

    #[test]
    fn an_endless_template_is_stopped() {
        let row = "{% for i in range(9999) %}";
        let endless = format!("{row}{row}{row}x{0}{0}{0}", "{% endfor %}");
        let error = render(&endless).unwrap_err().to_string();
        assert!(error.contains("does not end"), "{error}");
        let recursive = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
        assert!(render(recursive).is_err());
    }

    #[test]
    fn doubling_text_does_not_fill_the_memory() {
        let doubling = "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
        let error = render(doubling).unwrap_err().to_string();
        assert!(error.contains("too much"), "{error}");
    }

    #[test]
    fn a_broken_template_names_its_line() {
        let error = render("a\n{% for %}").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(render(&"{% if 1 %}".repeat(100_000)).is_err());
        assert!(render(&"(".repeat(1_000_000)).is_ok());
        assert!(render(&format!("{{{{ {} }}}}", "(".repeat(100_000))).is_err());
    }
}
