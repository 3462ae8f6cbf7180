//! Draws the dashboard as an SVG: a model runs, and its last frame is written as it would stand on a terminal.
//!
//! ```text
//! cargo run --release --example screenshot -- [--model FILE] [--tokens N] [--width N] [--height N] docs/src/dashboard.svg
//! ```

use cbtop::engine::config::cpus;
use cbtop::engine::sampler::SamplerConfig;
use cbtop::profiler::Clock;
use cbtop::profiler::probe::read_bandwidth;
use cbtop::session::snapshot::Snapshot;
use cbtop::session::{Loaded, Options, Session, Source};
use cbtop::tui;
use cbtop::tui::view::view;
use clap::Parser;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Parser)]
struct Args {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long)]
    model: Option<PathBuf>,
    /// Threads [default: every CPU].
    #[arg(short, long)]
    threads: Option<usize>,
    /// Tokens to generate before the frame is drawn.
    #[arg(short = 'n', long, default_value_t = 200)]
    tokens: u64,
    /// Text to continue.
    #[arg(short, long, default_value = "Once upon a time")]
    prompt: String,
    /// Columns.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u16).range(1..=500))]
    width: u16,
    /// Rows.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=500))]
    height: u16,
    /// SVG file to write.
    out: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let snapshot = run(&args)?;
    let area = Rect::new(0, 0, args.width, args.height);
    let app = tui::Options::default().app(Arc::new(snapshot), area);
    let mut terminal = Terminal::new(TestBackend::new(area.width, area.height))?;
    terminal.draw(|frame| view(&app, frame))?;
    write_whole(&args.out, &svg(terminal.backend().buffer()))?;
    Ok(())
}

/// The session while it still generates, one token short of its end.
fn run(args: &Args) -> Result<Snapshot, Box<dyn Error>> {
    let loaded = Loaded::open(args.model.clone().map_or(Source::Demo, Source::File))?;
    let mut config = loaded.config();
    config.threads = args.threads.unwrap_or(config.threads);
    config.n_ctx = config.n_ctx.min(2048);
    config.chunk = config.chunk.min(config.n_ctx);
    config.check()?;
    // The rules compare the bandwidth of the threads in use with that of one and of all.
    let mut counts = vec![1, config.threads, cpus()];
    counts.sort_unstable();
    counts.dedup();
    let bandwidth = read_bandwidth(&counts);
    let (kernels, threads) = (config.kernels, config.threads);
    let options = Options {
        tuner: None,
        config,
        explicit: BTreeSet::new(),
        sampler: SamplerConfig {
            temperature: 0.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed: 42,
        },
        prompt: args.prompt.clone(),
        chat: false,
        max_tokens: None,
        endless: true,
        pace: None,
        clock: Clock::calibrated(),
        sync_mode: cbtop::engine::SyncMode::Deferred,
        peaks: cbtop::profiler::probe::peaks(&bandwidth, kernels, threads),
        bandwidth,
        beside: None,
        overlay: None,
        tracers: Default::default(),
        reference: None,
    };
    let mut session = Session::new(loaded, options)?;
    let mut tokens = 0;
    while tokens < args.tokens && !session.is_over() {
        session.tick();
        tokens += 1;
    }
    Ok(session.snapshot())
}

/// Writes beside the target, then renames: a reader never sees half a file.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("svg.part");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

/// Size of a cell, pixels.
const CELL: (f64, f64) = (8.4, 18.0);
/// Of the text, pixels; a monospace glyph is 0.6 of it wide.
const FONT: f64 = 14.0;
const MARGIN: f64 = 12.0;
const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d4d7dd";

fn svg(buffer: &Buffer) -> String {
    let (width, height) = (buffer.area.width, buffer.area.height);
    let (w, h) = (
        f64::from(width) * CELL.0 + 2.0 * MARGIN,
        f64::from(height) * CELL.1 + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w:.1} {h:.1}\" width=\"{w:.0}\" height=\"{h:.0}\">\n\
         <title>The cbtop dashboard</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\" font-family=\"'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"{FONT}\" xml:space=\"preserve\">\n"
    );
    for y in 0..height {
        let row: Vec<&Cell> = (0..width).filter_map(|x| buffer.cell((x, y))).collect();
        let mut x = 0;
        for run in row.chunk_by(|a, b| looks(a) == looks(b) && drawn(a) == drawn(b)) {
            draw_run(&mut out, run, x, y);
            x += run.len();
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// Everything of a cell but its character.
fn looks(cell: &Cell) -> (Color, Color, Modifier) {
    (cell.fg, cell.bg, cell.modifier)
}

/// Bars and frames are drawn, not written: glyphs of most fonts leave gaps between lines.
fn drawn(cell: &Cell) -> bool {
    shape(cell.symbol()).is_some()
}

fn draw_run(out: &mut String, run: &[&Cell], x: usize, y: u16) {
    let Some(first) = run.first() else { return };
    let mut fg = colour(first.fg).unwrap_or(FOREGROUND);
    let mut bg = colour(first.bg);
    if first.modifier.contains(Modifier::REVERSED) {
        (fg, bg) = (bg.unwrap_or(BACKGROUND), Some(fg));
    }
    let opacity = if first.modifier.contains(Modifier::DIM) {
        " opacity=\"0.6\""
    } else {
        ""
    };
    let (left, top) = (x as f64 * CELL.0, f64::from(y) * CELL.1);
    let width = run.len() as f64 * CELL.0;
    if let Some(bg) = bg {
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{bg}\"/>",
            CELL.1
        );
    }
    if drawn(first) {
        for (i, cell) in run.iter().enumerate() {
            if let Some(shape) = shape(cell.symbol()) {
                draw_shape(out, shape, left + i as f64 * CELL.0, top, fg, opacity);
            }
        }
        return;
    }
    let text: String = run.iter().map(|c| c.symbol()).collect();
    if text.trim().is_empty() {
        return;
    }
    // Words of their own places: a fallback font of another width then shifts nothing after it.
    let mut at = 0;
    for word in text.split_inclusive(' ') {
        let glyphs = word.trim_end();
        if !glyphs.is_empty() {
            let bold = if first.modifier.contains(Modifier::BOLD) {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let n = glyphs.chars().count() as f64;
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{fg}\"{bold}{opacity} textLength=\"{:.1}\">{}</text>",
                left + f64::from(at) * CELL.0,
                top + CELL.1 * 0.74,
                n * CELL.0,
                escaped(glyphs)
            );
        }
        at += word.chars().count() as u32;
    }
}

/// What a cell of a bar or a frame looks like, in shares of the cell.
enum Shape {
    /// Left, top, width, height.
    Filled(f64, f64, f64, f64),
    /// An SVG path.
    Line(&'static str),
}

fn shape(symbol: &str) -> Option<Shape> {
    const WIDTHS: [&str; 8] = ["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
    const HEIGHTS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let eighths =
        |set: [&str; 8]| Some(set.iter().position(|s| *s == symbol)? as f64 / 8.0 + 0.125);
    if let Some(share) = eighths(WIDTHS) {
        return Some(Shape::Filled(0.0, 0.0, share, 1.0));
    }
    if let Some(share) = eighths(HEIGHTS) {
        return Some(Shape::Filled(0.0, 1.0 - share, 1.0, share));
    }
    // The cell is 8.4 by 18; its middle 4.2, 9.
    Some(Shape::Line(match symbol {
        "─" => "M0 9H8.4",
        "│" => "M4.2 0V18",
        "╭" => "M4.2 18V13.2Q4.2 9 8.4 9",
        "╮" => "M4.2 18V13.2Q4.2 9 0 9",
        "╰" => "M4.2 0V4.8Q4.2 9 8.4 9",
        "╯" => "M4.2 0V4.8Q4.2 9 0 9",
        _ => return None,
    }))
}

fn draw_shape(out: &mut String, shape: Shape, left: f64, top: f64, fg: &str, opacity: &str) {
    let _ = match shape {
        // A hair wider, so that neighbours meet.
        Shape::Filled(x, y, w, h) => writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{fg}\"{opacity}/>",
            left + x * CELL.0,
            top + y * CELL.1,
            w * CELL.0 + if w < 1.0 { 0.0 } else { 0.1 },
            h * CELL.1 + 0.1
        ),
        Shape::Line(path) => writeln!(
            out,
            "<path d=\"{path}\" transform=\"translate({left:.1} {top:.1})\" fill=\"none\" stroke=\"{fg}\"{opacity}/>"
        ),
    };
}

fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".into(),
            '<' => "&lt;".into(),
            '>' => "&gt;".into(),
            // XML 1.0 has no control characters.
            c if c.is_control() => "?".into(),
            c => c.to_string(),
        })
        .collect()
}

/// The sixteen ANSI colours of a dark terminal; `None` is the terminal's own.
fn colour(colour: Color) -> Option<&'static str> {
    Some(match colour {
        Color::Black => "#16181d",
        Color::Red => "#e5646b",
        Color::Green => "#8cc570",
        Color::Yellow => "#e3bd6a",
        Color::Blue => "#5c8fd6",
        Color::Magenta => "#c07ddb",
        Color::Cyan => "#55b9c4",
        Color::Gray => "#b4b8c0",
        Color::DarkGray => "#6b717d",
        Color::LightRed => "#f08a90",
        Color::LightGreen => "#abdc92",
        Color::LightYellow => "#f2d590",
        Color::LightBlue => "#86b1ec",
        Color::LightMagenta => "#d6a1ec",
        Color::LightCyan => "#83d6df",
        Color::White => "#f4f5f7",
        _ => return None,
    })
}
