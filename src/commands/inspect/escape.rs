//! Text out of a file, which may hold anything, on its way to a terminal.

use cbtop::gguf::{Array, Value};
use cbtop::trace::render::cells;
use std::fmt::Write;

/// Elements of an array shown.
pub(super) const ELEMENTS: usize = 6;

/// `text` with everything that a terminal would not simply draw as an escape (`\n`, `\u{1b}`), cut to `limit` characters.
pub(super) fn text(text: &str, limit: usize) -> String {
    let mut chars = text.chars();
    let shown: String = chars.by_ref().take(limit).collect();
    let mut out = cells::visible(&shown);
    let rest = chars.count();
    if rest > 0 {
        let _ = write!(out, "… (+{} characters)", grouped(rest as u64));
    }
    out
}

/// A number with its thousands apart.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

/// Short name of a value's type: `u32`, `string`, `f32[]`.
pub(super) fn type_name(value: &Value) -> String {
    match value {
        Value::Array(a) => format!("{}[]", a.element_name()),
        other => other.type_name(),
    }
}

/// A value on one line of about `limit` characters.
pub(super) fn value(value: &Value, limit: usize) -> String {
    match value {
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        // Debug: the shortest digits that give the value back, in exponent form where that is shorter.
        Value::F32(v) => format!("{v:?}"),
        Value::F64(v) => format!("{v:?}"),
        Value::Bool(v) => v.to_string(),
        Value::String(v) => text(v, limit),
        Value::Bytes(v) => bytes(v, limit),
        Value::Array(a) => array(a, limit),
    }
}

fn bytes(v: &[u8], limit: usize) -> String {
    let shown = v.get(..limit).unwrap_or(v);
    let mut out = shown.escape_ascii().to_string();
    if shown.len() < v.len() {
        let _ = write!(
            out,
            "… (+{} bytes)",
            grouped((v.len() - shown.len()) as u64)
        );
    }
    out
}

fn array(a: &Array, limit: usize) -> String {
    let short = (limit / ELEMENTS).max(1);
    let shown = match head(a) {
        Array::U8(v) => list(v, |x| x.to_string()),
        Array::I8(v) => list(v, |x| x.to_string()),
        Array::U16(v) => list(v, |x| x.to_string()),
        Array::I16(v) => list(v, |x| x.to_string()),
        Array::U32(v) => list(v, |x| x.to_string()),
        Array::I32(v) => list(v, |x| x.to_string()),
        Array::U64(v) => list(v, |x| x.to_string()),
        Array::I64(v) => list(v, |x| x.to_string()),
        Array::F32(v) => list(v, |x| format!("{x:?}")),
        Array::F64(v) => list(v, |x| format!("{x:?}")),
        Array::Bool(v) => list(v, |x| x.to_string()),
        Array::String(v) => list(v.iter().collect(), |x: &str| {
            format!("\"{}\"", text(x, short))
        }),
        Array::Bytes(v) => list(v, |x| format!("\"{}\"", bytes(&x, short))),
        Array::Nested(v) => list(v, |x| {
            format!("{}[{}]", x.element_name(), grouped(x.len() as u64))
        }),
    };
    let more = if a.len() > ELEMENTS { ", …" } else { "" };
    format!("[{}] {shown}{more}", grouped(a.len() as u64))
        .trim_end()
        .to_owned()
}

fn list<T>(items: Vec<T>, show: impl Fn(T) -> String) -> String {
    items.into_iter().map(show).collect::<Vec<_>>().join(", ")
}

/// The first elements of an array; those of nested arrays are cut too.
pub(super) fn head(a: &Array) -> Array {
    fn cut<T: Clone>(v: &[T]) -> Vec<T> {
        v.iter().take(ELEMENTS).cloned().collect()
    }
    match a {
        Array::U8(v) => Array::U8(cut(v)),
        Array::I8(v) => Array::I8(cut(v)),
        Array::U16(v) => Array::U16(cut(v)),
        Array::I16(v) => Array::I16(cut(v)),
        Array::U32(v) => Array::U32(cut(v)),
        Array::I32(v) => Array::I32(cut(v)),
        Array::U64(v) => Array::U64(cut(v)),
        Array::I64(v) => Array::I64(cut(v)),
        Array::F32(v) => Array::F32(cut(v)),
        Array::F64(v) => Array::F64(cut(v)),
        Array::Bool(v) => Array::Bool(cut(v)),
        Array::String(v) => Array::String(v.iter().take(ELEMENTS).collect()),
        Array::Bytes(v) => Array::Bytes(cut(v)),
        Array::Nested(v) => Array::Nested(v.iter().take(ELEMENTS).cloned().collect()),
    }
}
