//! `PATCH` as a table: layers down, positions across.

use super::cells::{self, Grid, Side::Right, signed, token};
use super::table::notes;
use crate::trace::figures::PatchMap;
use crate::trace::lang::Statement;
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// Columns of the terminal that positions side by side take at most; a longer prompt is cut into several grids.
const WIDTH: usize = 100;

/// The map.
pub(super) fn map(map: &PatchMap, statement: &Statement) -> String {
    let mut out = format!("{}\n", cells::line(&statement.to_string()));
    let _ = writeln!(
        out,
        "{}: {} patched, what that adds to the logit of {} (id {})",
        cells::line(&map.model),
        cells::line(&map.site),
        token(&map.answer.text),
        map.answer.id
    );
    let _ = writeln!(
        out,
        "logit {} without a patch, {} in the other prompt's run",
        signed(map.base_logit),
        signed(map.source_logit)
    );
    let columns: Vec<Vec<String>> = (0..map.tokens.len()).map(|p| column(map, p)).collect();
    let mut from = 0;
    while from < columns.len() {
        let n = fitting(columns.get(from..).unwrap_or_default());
        let block = columns.get(from..from + n).unwrap_or_default();
        out.push('\n');
        print(map, block, &mut out);
        from += n;
    }
    largest(map, &mut out);
    notes(&map.notes, &mut out);
    out
}

/// A position: its number, its tokens in both prompts, its cells.
fn column(map: &PatchMap, position: usize) -> Vec<String> {
    let own = map.tokens.get(position);
    let source = map.source_tokens.get(position).and_then(Option::as_ref);
    let text = |t: Option<&_>| {
        t.map_or_else(
            || cells::UNKNOWN.into(),
            |t: &crate::trace::figures::TokenText| token(&t.text),
        )
    };
    let mut column = vec![position.to_string(), text(own), text(source)];
    let cell = |row: &Vec<Option<f64>>| row.get(position).copied().flatten();
    column.extend(
        map.cells
            .iter()
            .map(|row| cell(row).map_or_else(|| cells::UNKNOWN.into(), signed)),
    );
    column
}

/// How many of the columns fit side by side, at least one.
fn fitting(columns: &[Vec<String>]) -> usize {
    let mut used = 0;
    for (i, column) in columns.iter().enumerate() {
        used += 2 + column.iter().map(|c| c.width()).max().unwrap_or(0);
        if used > WIDTH && i > 0 {
            return i;
        }
    }
    columns.len()
}

fn print(map: &PatchMap, columns: &[Vec<String>], out: &mut String) {
    let titles = ["position", "prompt", "from"].map(str::to_owned);
    let layers = map.layers.iter().map(|l| format!("layer {l}"));
    let mut names = titles.into_iter().chain(layers);
    let row = |i: usize| columns.iter().filter_map(move |c| c.get(i).cloned());
    let mut grid = Grid::new(names.next().into_iter().chain(row(0)).map(|t| (t, Right)));
    for (i, name) in names.enumerate() {
        grid.row([name].into_iter().chain(row(i + 1)).collect());
    }
    grid.print(out);
}

/// The cell that moves the logit most.
fn largest(map: &PatchMap, out: &mut String) {
    let rows = map.layers.iter().zip(&map.cells);
    let cells = rows.flat_map(|(layer, row)| {
        let row = row.iter().enumerate();
        row.filter_map(move |(p, by)| Some((*layer, p, (*by)?)))
    });
    let known = cells.filter(|(_, _, by)| by.is_finite());
    if let Some((layer, position, by)) = known.max_by(|a, b| a.2.abs().total_cmp(&b.2.abs())) {
        let text = map.tokens.get(position);
        let text = text.map_or_else(String::new, |t| format!(", {}", token(&t.text)));
        let _ = writeln!(
            out,
            "\nlargest: layer {layer}, position {position}{text}: {} of the {} between the two runs",
            signed(by),
            signed(map.source_logit - map.base_logit)
        );
    }
}
