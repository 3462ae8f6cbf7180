//! The columns of the brick table: what each shows, how wide it is, what it sorts by, which are dropped first.

use super::format::{Scale, number, percent};
use super::theme::Glyphs;
use crate::session::snapshot::{BrickRow, RoofPoint};
use ratatui::layout::Rect;
use std::cmp::Ordering;

/// Which steps the table is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// One token a step.
    Decode,
    /// One chunk of the prompt a step.
    Prefill,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Column {
    /// Name of the brick; sorts by execution order.
    Brick,
    /// Time a step.
    Time,
    /// Share of the step.
    Share,
    /// Bar of the share.
    Bar,
    /// Time a step of the newest steps, as a sparkline.
    History,
    /// How near it is to its roof, and which roof that is.
    Roof,
    /// Timed calls.
    Calls,
    /// Output elements a step.
    Elements,
    /// Output elements a second.
    ElementRate,
    /// Bytes a second.
    Bandwidth,
    /// Mean of a call.
    Mean,
    /// Median call.
    P50,
    /// 99th percentile call.
    P99,
    /// Standard deviation as a share of the mean.
    Spread,
    /// Fastest call.
    Min,
    /// Slowest call.
    Max,
    /// Floating-point operations a second.
    Flops,
    /// The block it belongs to.
    Block,
}

use Column as C;

/// Order from left to right.
const ORDER: [Column; 18] = [
    C::Brick,
    C::Block,
    C::Time,
    C::Share,
    C::Bar,
    C::History,
    C::Roof,
    C::Calls,
    C::Elements,
    C::ElementRate,
    C::Bandwidth,
    C::Flops,
    C::Mean,
    C::P50,
    C::P99,
    C::Spread,
    C::Min,
    C::Max,
];

/// How many of [`PRIORITY`] are the main ones.
const MAIN: usize = 8;

/// Which columns stay as the table gets narrower, most important first.
const PRIORITY: [Column; 18] = [
    C::Brick,
    C::Time,
    C::Share,
    C::Bar,
    C::Bandwidth,
    C::Roof,
    C::Calls,
    C::ElementRate,
    C::Elements,
    C::History,
    C::Mean,
    C::P50,
    C::P99,
    C::Spread,
    C::Flops,
    C::Block,
    C::Min,
    C::Max,
];

/// The same for the zoomed table, where the spread of the calls comes first.
const PRIORITY_ZOOMED: [Column; 18] = [
    C::Brick,
    C::Time,
    C::Share,
    C::P50,
    C::P99,
    C::Spread,
    C::Bandwidth,
    C::Roof,
    C::Calls,
    C::History,
    C::Bar,
    C::ElementRate,
    C::Elements,
    C::Mean,
    C::Min,
    C::Max,
    C::Flops,
    C::Block,
];

impl Column {
    /// Columns of text it takes, the gap before it included; the bar grows beyond it.
    fn width(self, zoomed: bool) -> u16 {
        match self {
            C::Brick => 13,
            C::Time => 10,
            C::Spread => 8,
            C::Share | C::Bar | C::Calls | C::Elements | C::Bandwidth => 7,
            C::Roof => {
                if zoomed {
                    13
                } else {
                    8
                }
            }
            C::Block | C::History => 10,
            _ => 9,
        }
    }

    /// What it sorts by; `None` where the row has no value. The bar sorts by the share, the history by the time.
    fn value(self, row: &BrickRow, points: &[RoofPoint]) -> Option<f64> {
        let timed = |v: f64| (row.us_per_step > 0.0 && v > 0.0).then(|| v / row.us_per_step);
        let value = match self {
            C::Brick | C::Block => f64::from(row.id as u8),
            C::Time | C::History => row.us_per_step,
            C::Share | C::Bar => row.share,
            C::Roof => point(row, points)?.of_roof,
            C::Calls => row.calls as f64,
            C::Elements => (row.elements_per_step > 0).then_some(row.elements_per_step as f64)?,
            C::ElementRate => timed(row.elements_per_step as f64)? * 1e6,
            C::Bandwidth => timed(row.bytes_per_step as f64)? / 1e3,
            C::Flops => timed(row.flops_per_step as f64)? / 1e3,
            C::Mean => row.mean_us,
            C::P50 => row.p50_us,
            C::P99 => row.p99_us,
            C::Spread => (row.mean_us > 0.0).then(|| row.stddev_us / row.mean_us)?,
            C::Min => row.min_us,
            C::Max => row.max_us,
        };
        value.is_finite().then_some(value)
    }

    /// The unit of the column over `rows`.
    fn scale(self, rows: &[BrickRow], glyphs: &Glyphs) -> Scale {
        let max = rows
            .iter()
            .filter_map(|r| self.value(r, &[]))
            .fold(0.0, f64::max);
        match self {
            C::Time => Scale::time(max, glyphs.micro),
            // One unit for all times of a call, so that they compare across columns.
            C::Mean | C::P50 | C::P99 | C::Min | C::Max => Scale::time(
                rows.iter()
                    .map(|r| r.p99_us)
                    .filter(|v| v.is_finite())
                    .fold(0.0, f64::max),
                glyphs.micro,
            ),
            C::Calls | C::Elements => Scale::count(max),
            C::ElementRate => Scale::rate(max),
            _ => Scale {
                div: 1.0,
                unit: "",
                decimals: 1,
            },
        }
    }

    fn title(self, scale: Scale, phase: Phase, glyphs: &Glyphs) -> String {
        let unit = scale.unit;
        match self {
            C::Brick => "brick".into(),
            C::Block => "block".into(),
            C::Time if phase == Phase::Prefill => format!("{unit}/chunk"),
            C::Time => format!("{unit}/token"),
            C::Share => "share".into(),
            C::Bar => String::new(),
            C::History => "history".into(),
            C::Roof => "of roof".into(),
            C::Calls => format!("{unit}calls"),
            C::Elements => format!("{unit}elem"),
            C::ElementRate => format!("{unit}elem/s"),
            C::Bandwidth => "GB/s".into(),
            C::Flops => "GFLOP/s".into(),
            C::Mean => format!("mean {unit}"),
            C::P50 => format!("p50 {unit}"),
            C::P99 => format!("p99 {unit}"),
            C::Spread => format!(
                "{}spread",
                glyphs
                    .plus_minus
                    .get(..glyphs.plus_minus.len().min(2))
                    .filter(|_| !glyphs.ascii)
                    .unwrap_or("")
            ),
            C::Min => format!("min {unit}"),
            C::Max => format!("max {unit}"),
        }
    }

    fn cell(self, row: &BrickRow, scale: Scale) -> String {
        match self {
            C::Brick => row.id.name().into(),
            C::Block => row.category.name().into(),
            C::Bar | C::History | C::Roof => String::new(),
            C::Share => percent(row.share),
            C::Spread => self
                .value(row, &[])
                .map_or("-".into(), |v| format!("{}%", number(v * 100.0, 0))),
            _ => scale.show(self.value(row, &[])),
        }
    }

    /// Whether it is text, on the left of its column.
    pub fn is_text(self) -> bool {
        matches!(self, C::Brick | C::Block)
    }
}

/// The row's place under the roofs.
pub fn point<'a>(row: &BrickRow, points: &'a [RoofPoint]) -> Option<&'a RoofPoint> {
    points.iter().find(|p| p.id == row.id)
}

/// A column at its place, with its unit fixed.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Which.
    pub column: Column,
    /// First column of text, relative to the table.
    pub x: u16,
    /// Width.
    pub width: u16,
    /// Its title with the unit.
    pub title: String,
    scale: Scale,
}

impl Placed {
    /// Text of a cell.
    pub fn cell(&self, row: &BrickRow) -> String {
        self.column.cell(row, self.scale)
    }

    /// The title's area for the mouse in a table whose first line is `line`.
    pub fn title_area(&self, line: Rect) -> Rect {
        Rect::new(line.x.saturating_add(self.x), line.y, self.width, 1).intersection(line)
    }
}

/// The columns that fit in `width`, from left to right. The bar takes what is left.
pub fn place(
    width: u16,
    zoomed: bool,
    rows: &[BrickRow],
    phase: Phase,
    glyphs: &Glyphs,
) -> Vec<Placed> {
    let priority = if zoomed { &PRIORITY_ZOOMED } else { &PRIORITY };
    let mut left = width;
    let mut chosen: Vec<Column> = Vec::new();
    for &column in priority {
        // Beyond the main columns a readable bar is worth more than another figure.
        let reserve = if zoomed || chosen.len() < MAIN { 0 } else { 9 };
        if column.width(zoomed) + reserve > left {
            break;
        }
        left -= column.width(zoomed);
        chosen.push(column);
    }
    let has_bar = chosen.contains(&C::Bar);
    // A longer bar for the roof, its share in figures too, and more steps of history, where the bar stays readable.
    let mut grow = |column, by: u16| {
        let fits = chosen.contains(&column) && left >= by + 8;
        left -= if fits { by } else { 0 };
        if fits { by } else { 0 }
    };
    let roof = grow(C::Roof, 5);
    let history = grow(C::History, 10);
    let mut x = 0;
    let in_order = ORDER.into_iter().filter(|c| chosen.contains(c));
    in_order
        .map(|column| {
            // A bar wider than this says no more; the rest of a very wide table spreads the names out.
            let extra = match column {
                C::Bar => left.min(40),
                C::Roof => roof,
                C::History => history,
                C::Brick if has_bar => left.saturating_sub(40),
                C::Brick => left,
                _ => 0,
            };
            let width = column.width(zoomed) + extra;
            let scale = column.scale(rows, glyphs);
            let placed = Placed {
                column,
                x,
                width,
                title: column.title(scale, phase, glyphs),
                scale,
            };
            x += width;
            placed
        })
        .collect()
}

/// Order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// Column sorted by.
    pub column: Column,
    /// Against the column's usual direction (largest first; execution order for bricks).
    pub reversed: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self {
            column: C::Time,
            reversed: false,
        }
    }
}

impl Sort {
    /// Whether the smallest value comes first.
    pub fn ascending(self) -> bool {
        self.column.is_text() != self.reversed
    }

    /// Sorts by `column`; a second time reverses.
    pub fn select(&mut self, column: Column) {
        let column = match column {
            C::Bar => C::Share,
            C::History => C::Time,
            column => column,
        };
        *self = Self {
            column,
            reversed: self.column == column && !self.reversed,
        };
    }

    /// Sorts by the column after the present one among `visible`.
    pub fn next(&mut self, visible: &[Placed]) {
        let mut columns = visible
            .iter()
            .map(|p| p.column)
            .filter(|c| !matches!(c, C::Bar | C::History));
        let first = columns.clone().next();
        let next = columns
            .find(|c| *c == self.column)
            .and_then(|_| columns.next())
            .or(first);
        if let Some(column) = next {
            *self = Self {
                column,
                reversed: false,
            };
        }
    }

    /// The rows in this order, `points` being theirs under the roofs. Equal rows stay in execution order; rows without a
    /// value come last.
    pub fn apply<'a>(self, rows: &'a [BrickRow], points: &[RoofPoint]) -> Vec<&'a BrickRow> {
        let mut sorted: Vec<&BrickRow> = rows.iter().collect();
        let value = |row: &BrickRow| self.column.value(row, points);
        sorted.sort_by(|a, b| match (value(a), value(b)) {
            (Some(a), Some(b)) if self.ascending() => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        });
        sorted
    }
}
