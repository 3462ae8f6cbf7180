//! Outcomes as JSON, an object a line.

use super::GENERATOR;
use super::cells;
use crate::trace::lang::Statement;
use crate::trace::summary::SummaryView;
use serde::Serialize;

#[derive(Serialize)]
struct Document<'a, T> {
    schema_version: u32,
    generator: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    statement: Option<&'a str>,
    #[serde(flatten)]
    of: std::collections::BTreeMap<&'static str, &'a T>,
}

/// What came of a statement, under the name of its kind.
pub(super) fn of<T: Serialize>(statement: &Statement, kind: &'static str, value: &T) -> String {
    line(Some(&statement.to_string()), kind, value)
}

/// The figures of many prompts.
pub(super) fn summary(view: &SummaryView) -> String {
    line(None, "summary", view)
}

fn line<T: Serialize>(statement: Option<&str>, kind: &'static str, value: &T) -> String {
    let document = Document {
        schema_version: 1,
        generator: GENERATOR,
        statement,
        of: [(kind, value)].into(),
    };
    // Maps with keys of text and numbers can always be written.
    let text = serde_json::to_string(&document).unwrap_or_default();
    cells::json(&text) + "\n"
}
