//! Traces as text: tables for people, JSON and CSV for programs. Pure functions of the figures and the statement.

pub mod cells;
mod csv;
mod grid;
mod heads;
mod json;
mod summary;
mod table;
#[cfg(test)]
mod tests;

use super::figures::TraceView;
use super::lang::{Format, Statement, Trace};
use super::patch;
use super::summary::SummaryView;
use super::tracer::Outcome;
use std::collections::BTreeSet;

/// Program and version.
const GENERATOR: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));

/// What came of a statement, as whole lines.
///
/// Tables show what the statement asks for; JSON is one object on one line, CSV a header line and rows, each with the
/// layers and candidates that the statement names and no others. What has no figures, such as a list of facts, is text
/// except in JSON.
pub fn outcome(outcome: &Outcome, statement: &Statement, format: Format) -> String {
    match (outcome, format) {
        (Outcome::Trace(view), Format::Table) => table::trace(view, &trace_of(statement)),
        (Outcome::Trace(view), Format::Csv) => csv::trace(&shown(view, &trace_of(statement))),
        (Outcome::Trace(view), Format::Json) => {
            json::of(statement, "trace", &shown(view, &trace_of(statement)))
        }
        (Outcome::Map(map), Format::Table) => grid::map(map, statement),
        (Outcome::Map(map), Format::Csv) => csv::map(map),
        (Outcome::Map(map), Format::Json) => json::of(statement, "patch", map),
        (Outcome::Lines(lines), Format::Json) => json::of(statement, "lines", lines),
        (Outcome::Lines(lines), _) => {
            let lines = lines.iter().map(|l| cells::line(l) + "\n");
            lines.collect()
        }
    }
}

/// The figures of many prompts, as whole lines.
pub fn summary(view: &SummaryView, format: Format) -> String {
    match format {
        Format::Table => summary::table(view),
        Format::Json => json::summary(view),
        Format::Csv => summary::csv(view),
    }
}

/// The clauses of a statement; of another one than `TRACE`, none.
fn trace_of(statement: &Statement) -> Trace {
    match statement {
        Statement::Trace(trace) => trace.clone(),
        _ => Trace::default(),
    }
}

/// The layers that a statement shows; all where it names some that are not there, which whoever runs it has refused.
fn layers(view: &TraceView, statement: &Trace) -> BTreeSet<u32> {
    let wanted = statement.layers.as_ref();
    let waypoints = view.positions.iter().flat_map(|p| &p.waypoints);
    let there: BTreeSet<u32> = waypoints.map(|w| w.layer).collect();
    match patch::layers(wanted, 0, view.n_layers) {
        Ok(layers) => layers.into_iter().filter(|l| there.contains(l)).collect(),
        Err(_) => there,
    }
}

/// The figures with the layers and candidates that the statement asks for.
fn shown(view: &TraceView, statement: &Trace) -> TraceView {
    let layers = layers(view, statement);
    let top = statement.top.unwrap_or(1) as usize;
    let mut view = view.clone();
    for position in &mut view.positions {
        position.waypoints.retain(|w| layers.contains(&w.layer));
        for waypoint in &mut position.waypoints {
            waypoint.top.truncate(top);
        }
    }
    view
}
