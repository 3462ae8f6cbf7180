//! What attention heads add to an answer, as a table.

use super::cells::{Grid, Side::Left, Side::Right, signed, token};
use crate::trace::figures::{Answer, PositionTrace, Track};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Heads with a column each; of more, every layer's strongest are named.
const COLUMNS: usize = 10;
/// Heads named of a layer that has more than [`COLUMNS`].
const NAMED: usize = 3;
/// Heads named of all layers together.
const LARGEST: usize = 5;

/// The table of one answer.
pub(super) fn print(
    position: &PositionTrace,
    answer: usize,
    said: &Answer,
    shown: &BTreeSet<u32>,
    out: &mut String,
) {
    let rows: Vec<Row<'_>> = position
        .waypoints
        .iter()
        .filter(|w| w.layer > 0 && shown.contains(&w.layer))
        .filter_map(|w| {
            let track = w.tracks.get(answer)?;
            Some(Row {
                layer: w.layer,
                all: track.attn_logit,
                heads: &track.head_logits,
            })
        })
        .collect();
    let n = rows.iter().map(|r| r.heads.len()).max().unwrap_or(0);
    let name = token(&said.token.text);
    if n == 0 {
        let _ = writeln!(
            out,
            "\n{name}: the heads of these layers cannot be told apart"
        );
        return;
    }
    let _ = writeln!(out, "\n{name}: what heads add [logit]");
    let grid = if n <= COLUMNS {
        each(&rows, n)
    } else {
        strongest(&rows)
    };
    let mut all: Vec<_> = rows.iter().flat_map(Row::ranked).collect();
    all.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
    all.truncate(LARGEST);
    grid.print(out);
    let _ = writeln!(out, "  largest: {}", named(all.iter()));
    let rest: f64 = rows
        .iter()
        .map(|r| r.all - r.heads.iter().sum::<f64>())
        .sum();
    if rest.abs() >= 0.005 {
        let _ = writeln!(
            out,
            "  Attn less its heads, the output bias: {}",
            signed(rest)
        );
    }
}

/// The heads that add most to one answer more than to another, and most less; nothing where there are no heads.
pub(super) fn compare(one: &[&Track], other: &[&Track], out: &mut String) {
    let layers = one.iter().zip(other).enumerate();
    let all = layers.flat_map(|(layer, (a, b))| {
        let pairs = a.head_logits.iter().zip(&b.head_logits).enumerate();
        pairs.map(move |(head, (a, b))| (layer as u32, head, a - b))
    });
    let mut all: Vec<_> = all.filter(|h| h.2.is_finite()).collect();
    all.sort_by(|a, b| b.2.total_cmp(&a.2));
    let for_it = all.iter().filter(|h| h.2 > 0.0).take(NAMED);
    let against = all.iter().rev().filter(|h| h.2 < 0.0).take(NAMED);
    for (side, heads) in [("for", named(for_it)), ("against", named(against))] {
        if !heads.is_empty() {
            let _ = writeln!(out, "  heads {side}: {heads}");
        }
    }
}

/// Heads in a row: layer, head, logits.
fn named<'a>(heads: impl Iterator<Item = &'a (u32, usize, f64)>) -> String {
    let names = heads.map(|(layer, head, by)| format!("L{layer} H{head} {}", signed(*by)));
    names.collect::<Vec<_>>().join(", ")
}

/// A layer.
struct Row<'a> {
    layer: u32,
    all: f64,
    heads: &'a [f64],
}

impl Row<'_> {
    /// Layer, head and logits, in the order of the heads.
    fn ranked(&self) -> Vec<(u32, usize, f64)> {
        let heads = self.heads.iter().enumerate();
        heads.map(|(h, by)| (self.layer, h, *by)).collect()
    }
}

fn each(rows: &[Row<'_>], n: usize) -> Grid {
    let mut titles = vec![("Layer".to_owned(), Right), ("Attn".into(), Right)];
    titles.extend((0..n).map(|h| (format!("H{h}"), Right)));
    let mut grid = Grid::new(titles);
    for row in rows {
        let mut cells = vec![row.layer.to_string(), signed(row.all)];
        cells.extend(row.heads.iter().map(|by| signed(*by)));
        grid.row(cells);
    }
    grid
}

fn strongest(rows: &[Row<'_>]) -> Grid {
    let mut titles = vec![("Layer".to_owned(), Right), ("Attn".into(), Right)];
    for i in 1..=NAMED {
        titles.extend([(format!("Head-{i}"), Left), ("adds".into(), Right)]);
    }
    let mut grid = Grid::new(titles);
    for row in rows {
        let mut heads = row.ranked();
        heads.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
        let mut cells = vec![row.layer.to_string(), signed(row.all)];
        let named = heads.iter().take(NAMED);
        cells.extend(named.flat_map(|(_, h, by)| [format!("H{h}"), signed(*by)]));
        grid.row(cells);
    }
    grid
}
