//! The header: which model on which machine, how fast now, how full the context is; and the tabs of the panels.

use super::chrome::{self, Part};
use crate::session::snapshot::RunState;
use crate::tui::format::{bytes, count, number, percent, seconds, tok_s};
use crate::tui::keymap::Action;
use crate::tui::replay;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, sanitise, width};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// How much of a tab's text is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tabs {
    /// Key and name of every panel, with air.
    Roomy,
    /// Key and name of every panel.
    Tight,
    /// Keys, and the title of the focused panel.
    Title,
    /// Keys, and one word for the focused panel.
    Word,
    /// Keys.
    Keys,
}

/// What stands in the tab of `panel`, after the mark of the focused one.
fn tab_text(app: &App, panel: Panel, tabs: Tabs) -> (String, String) {
    let key = app.panel_key(panel);
    let name = match tabs {
        Tabs::Roomy => format!(" {} ", panel.short()),
        Tabs::Tight => format!(" {}", panel.short()),
        Tabs::Title if panel == app.focus => format!(" {} ", panel.title()),
        Tabs::Word if panel == app.focus => format!(" {} ", panel.short()),
        Tabs::Title | Tabs::Word | Tabs::Keys => " ".into(),
    };
    (key, name)
}

fn tab_style(app: &App, area: Rect) -> Tabs {
    let columns = |tabs| {
        let tab = |p| {
            let (key, name) = tab_text(app, p, tabs);
            width(&key) + width(&name) + 2
        };
        Panel::ALL.into_iter().map(tab).sum::<usize>() + 3
    };
    [Tabs::Roomy, Tabs::Tight, Tabs::Title, Tabs::Word]
        .into_iter()
        .find(|t| columns(*t) <= area.width.into())
        .unwrap_or(Tabs::Keys)
}

/// Where the tabs of the panels are in the lower border of a header of `area`.
pub fn tabs(app: &App, area: Rect) -> Vec<(Panel, Rect)> {
    let style = tab_style(app, area);
    let mut x = area.x.saturating_add(2);
    let y = area.bottom().saturating_sub(1);
    Panel::ALL
        .into_iter()
        .map(|panel| {
            let (key, name) = tab_text(app, panel, style);
            let w = (1 + width(&key) + width(&name)) as u16;
            let tab = Rect::new(x, y, w, 1).intersection(area);
            x = x.saturating_add(w + 1);
            (panel, tab)
        })
        // The corner of the frame stays.
        .filter(|(_, tab)| tab.right() < area.right())
        .collect()
}

/// Draws the header with its frame.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let badge = badge(app);
    let room = usize::from(area.width).saturating_sub(badge.width() + 7);
    let inner = chrome::frame(
        app,
        area,
        buf,
        false,
        model(app, room),
        badge,
        Line::default(),
    );
    let tab_style = tab_style(app, area);
    for (panel, tab) in tabs(app, area) {
        let (key, name) = tab_text(app, panel, tab_style);
        let style = if panel == app.focus {
            theme.accent
        } else {
            theme.dim
        };
        let mark = if panel == app.focus {
            theme.glyphs.pointer
        } else {
            " "
        };
        let line = Line::from(vec![
            Span::styled(mark, theme.accent),
            Span::styled(key, theme.accent),
            Span::styled(name, style),
        ]);
        chrome::put(&line, tab, buf);
    }
    // With three lines there is room for a tall sparkline on the right, else it is part of the first line.
    let tall = inner.height >= 3 && inner.width >= 106;
    let chart = if tall { (inner.width / 3).min(64) } else { 0 };
    let facts = Rect {
        width: inner.width - chart,
        ..inner
    };
    let columns = usize::from(facts.width).saturating_sub(usize::from(tall));
    let gap = Span::raw("  ");
    let lines = match inner.height {
        0 => Vec::new(),
        _ if app.snapshot().is_saved_trace() => vec![saved_trace(app)],
        1 => vec![[rates(app), context(app)].into_iter().flatten().collect()],
        2 => vec![
            [rates(app), prefill(app)].into_iter().flatten().collect(),
            [context(app), machine(app, columns)]
                .into_iter()
                .flatten()
                .collect(),
        ],
        _ => vec![
            rates(app),
            [prefill(app), context(app)].into_iter().flatten().collect(),
            machine(app, columns),
        ],
    };
    for (i, parts) in lines.into_iter().enumerate() {
        let line = chrome::join(parts, &gap, columns);
        let used = line.width() as u16;
        let place = chrome::row(facts, i);
        chrome::put(&line, place, buf);
        if i == 0 && !tall {
            let free = place.width.saturating_sub(used + 2);
            history(
                app,
                Rect {
                    x: place.right() - free,
                    width: free,
                    ..place
                },
                buf,
            );
        }
    }
    if tall {
        history(
            app,
            Rect {
                x: facts.right(),
                width: chart.saturating_sub(1),
                ..inner
            },
            buf,
        );
    }
}

/// What a saved trace is of: there is no run whose figures could stand here.
fn saved_trace(app: &App) -> Vec<Part> {
    let model = &app.snapshot().model;
    let shown = app.snapshot().trace.as_ref().and_then(|t| t.shown.as_ref());
    let tokens = shown.map_or(0, |t| t.tokens.len());
    let text = format!(
        "saved trace: {} layers, width {}, {tokens} tokens; no model is loaded",
        model.n_layers, model.n_embd
    );
    vec![Part::new(0, vec![Span::raw(text)])]
}

/// One line without a frame, for small terminals.
pub fn render_line(app: &App, area: Rect, buf: &mut Buffer) {
    let name = fit(
        &sanitise(&app.snapshot().model.name, app.theme.glyphs.ascii),
        24,
        app.theme.glyphs.ellipsis,
    );
    let mut parts = vec![
        Part::new(0, vec![now(app)]),
        Part::new(1, badge(app).spans),
        Part::new(3, vec![Span::raw(name)]),
    ];
    parts.extend(context(app).into_iter().map(|p| Part::new(4, p.spans)));
    chrome::put(
        &chrome::join(parts, &Span::raw(" "), area.width.into()),
        area,
        buf,
    );
}

/// A handful of lines, throughput first, for terminals too small for anything else.
pub fn render_tiny(app: &App, area: Rect, buf: &mut Buffer) {
    let snapshot = app.snapshot();
    let key = |a| app.keymap.label(a).unwrap_or_default();
    let lines = [
        Line::from(now(app)),
        badge(app),
        Line::raw(format!(
            "ctx {}/{}",
            snapshot.context_used, snapshot.engine.n_ctx
        )),
        Line::raw(sanitise(&snapshot.model.name, app.theme.glyphs.ascii)),
        Line::styled(format!("{} quit", key(Action::Quit)), app.theme.dim),
    ];
    for (i, line) in lines.iter().enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
    }
}

/// `cbtop · name · llama · 134.5M · Q4_1`, the name cut to what is left.
fn model(app: &App, room: usize) -> Line<'static> {
    let theme = &app.theme;
    let m = &app.snapshot().model;
    let ascii = theme.glyphs.ascii;
    let dot = theme.glyphs.dot;
    let ellipsis = theme.glyphs.ellipsis;
    let short = |t: &str| fit(&sanitise(t, ascii), 24, ellipsis);
    let facts = format!(
        " {dot} {} {dot} {} {dot} {} {dot} {} ",
        short(&m.arch),
        count(m.params),
        short(&m.quantisation),
        bytes(m.file_bytes)
    );
    let facts = if app.snapshot().is_saved_trace() {
        " ".into()
    } else if room > width(&facts) + 24 {
        facts
    } else {
        format!(
            " {dot} {} {dot} {} ",
            short(&m.arch),
            short(&m.quantisation)
        )
    };
    let left = room.saturating_sub(width(&facts) + 9).max(8);
    Line::from(vec![
        Span::styled(" cbtop ", theme.accent),
        Span::styled(format!("{dot} "), theme.dim),
        Span::styled(fit(&sanitise(&m.name, ascii), left, ellipsis), theme.strong),
        Span::styled(facts, theme.dim),
    ])
}

/// What the session is doing.
fn badge(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let [running, paused, finished, failed, frozen] = theme.glyphs.state;
    let mut spans: Vec<Span<'static>> = replay::badge(app).into_iter().collect();
    if app.saving {
        spans.push(Span::styled(
            format!(" saving {}", theme.glyphs.dot),
            theme.warn,
        ));
    }
    if app.frozen() {
        let key = app.keymap.label(Action::Freeze).unwrap_or_default();
        spans.push(Span::styled(
            format!(" {frozen} display frozen ({key})"),
            theme.warn,
        ));
    }
    let (mark, text, style) = match &app.snapshot().state {
        RunState::Prefill { .. } => (running, "prefill", theme.good),
        RunState::Decode => (running, "decode", theme.good),
        RunState::Paused | RunState::PausedAtLayer { .. } => (paused, "paused", theme.warn),
        RunState::Finished { .. } => (finished, "finished", theme.warn),
        RunState::Failed { .. } => (failed, "failed", theme.bad),
    };
    spans.push(Span::styled(format!(" {mark} {text} "), style));
    Line::from(spans)
}

/// The rate that matters now.
fn now(app: &App) -> Span<'static> {
    let rates = &app.snapshot().rates;
    let rate = match app.snapshot().state {
        RunState::Prefill { .. } => rates.prefill_tok_s,
        _ => rates.decode_now_tok_s,
    };
    let unit = if app.area.width < 12 { "t/s" } else { "tok/s" };
    Span::styled(format!("{:>5} {unit}", tok_s(rate)), app.theme.good)
}

fn label(app: &App, name: &str, value: String) -> Vec<Span<'static>> {
    vec![
        Span::styled(format!("{name} "), app.theme.dim),
        Span::raw(value),
    ]
}

fn rates(app: &App) -> Vec<Part> {
    let theme = &app.theme;
    let rates = &app.snapshot().rates;
    let mut mean = label(app, "mean", tok_s(rates.decode_mean_tok_s));
    if let Some(deviation) = rates.decode_stddev_tok_s {
        mean.push(Span::styled(
            format!(" {}{}", theme.glyphs.plus_minus, tok_s(Some(deviation))),
            theme.dim,
        ));
    }
    let mut traffic = vec![
        Span::raw(rates.decode_gbps.map_or("-".into(), |v| number(v, 1))),
        Span::styled(" GB/s", theme.dim),
    ];
    if let (Some(used), Some(roof)) = (
        rates.decode_gbps,
        app.snapshot()
            .machine
            .read_bandwidth_gbps
            .filter(|r| *r > 0.0),
    ) {
        traffic.push(Span::styled(
            format!(
                " = {}% of {}",
                number(used / roof * 100.0, 0),
                number(roof, 1)
            ),
            theme.dim,
        ));
    }
    vec![
        Part::new(0, vec![now(app)]),
        Part::new(2, mean),
        Part::new(3, traffic),
    ]
}

fn prefill(app: &App) -> Vec<Part> {
    let rates = &app.snapshot().rates;
    let first = rates
        .ttft_s
        .map_or("-".into(), |s| seconds(s, app.theme.glyphs.micro));
    vec![
        Part::new(
            4,
            label(
                app,
                "prefill",
                format!("{} tok/s", tok_s(rates.prefill_tok_s)),
            ),
        ),
        Part::new(5, label(app, "first token", first)),
    ]
}

fn context(app: &App) -> Vec<Part> {
    let theme = &app.theme;
    let (used, all) = (app.snapshot().context_used, app.snapshot().engine.n_ctx);
    let share = if all > 0 {
        f64::from(used) / f64::from(all)
    } else {
        0.0
    };
    let style = match share {
        s if s > 0.95 => theme.bad,
        s if s > 0.8 => theme.warn,
        _ => theme.accent,
    };
    let digits = all.to_string().len();
    let mut spans = vec![Span::styled("context ", theme.dim)];
    spans.extend(chrome::bar(share, 10, &theme.glyphs, style, theme.dim));
    spans.push(Span::raw(format!(" {used:>digits$}/{all}")));
    vec![
        Part::new(1, spans),
        Part::new(
            6,
            vec![Span::styled(format!("{:>5}", percent(share)), theme.dim)],
        ),
    ]
}

fn machine(app: &App, columns: usize) -> Vec<Part> {
    let theme = &app.theme;
    let ascii = theme.glyphs.ascii;
    let (e, m) = (&app.snapshot().engine, &app.snapshot().machine);
    let plain = |rank, text: String| Part::new(rank, vec![Span::styled(text, theme.dim)]);
    let threads = format!(
        "{} thread{}",
        e.threads,
        if e.threads == 1 { "" } else { "s" }
    );
    let mut parts = vec![
        Part::new(
            2,
            vec![Span::raw(format!(
                "{} {}",
                sanitise(&e.backend, ascii),
                sanitise(&e.kernels, ascii)
            ))],
        ),
        Part::new(
            3,
            vec![
                Span::raw(threads),
                Span::styled(format!(" of {}", m.cpus), theme.dim),
            ],
        ),
    ];
    if e.clock != "measured" {
        parts.push(Part::new(
            1,
            vec![Span::styled(
                format!("{} times", sanitise(&e.clock, ascii)),
                theme.warn,
            )],
        ));
    }
    if let Some(pace) = e.pace_tok_s {
        parts.push(Part::new(
            2,
            vec![Span::styled(format!("paced to {pace} tok/s"), theme.warn)],
        ));
    }
    let cpu = sanitise(&m.cpu, ascii)
        .replace("(R)", "")
        .replace("(TM)", "")
        .replace(" CPU", "");
    let cpu = cpu.split_whitespace().collect::<Vec<_>>().join(" ");
    parts.push(plain(
        4,
        fit(
            &cpu,
            columns.saturating_sub(30).clamp(12, 48),
            theme.glyphs.ellipsis,
        ),
    ));
    parts.push(plain(6, format!("kv {}", sanitise(&e.kv_type, ascii))));
    parts.push(plain(7, sanitise(&e.sampler, ascii)));
    if let Some(share) = app.snapshot().rates.overhead_share {
        parts.push(plain(8, format!("profiler {}", percent(share))));
    }
    parts
}

/// The sparkline of single-token rates with its range.
fn history(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let values = &app.snapshot().rates.history_tok_s;
    if area.width < 16 || values.is_empty() {
        return;
    }
    let shown = values
        .get(values.len().saturating_sub(area.width.into())..)
        .unwrap_or(values);
    let finite = || shown.iter().copied().filter(|v| v.is_finite());
    let high = finite().fold(0.0, f64::max);
    let low = finite().fold(high, f64::min);
    let style: Style = theme.category[3];
    // Half of the highest rate is the floor unless a rate was lower: a dip of a tenth is visible and not a cliff.
    let floor = low.min(high * 0.5);
    if area.height == 1 {
        let range = format!(
            " {}{}{} ",
            tok_s(Some(low)),
            theme.glyphs.to,
            tok_s(Some(high))
        );
        let text = width(&range) as u16;
        if area.width > text + 8 {
            let chart = Rect {
                width: area.width - text,
                ..area
            };
            chrome::sparkline(values, floor, high, chart, buf, &theme.glyphs, style);
            buf.set_stringn(chart.right(), area.y, range, text.into(), theme.dim);
            return;
        }
        return chrome::sparkline(values, floor, high, area, buf, &theme.glyphs, style);
    }
    let scale = 7.min(area.width);
    let chart = Rect {
        width: area.width - scale,
        ..area
    };
    chrome::sparkline(values, floor, high, chart, buf, &theme.glyphs, style);
    let last = area.height - 1;
    for (row, text) in [
        (0, tok_s(Some(high))),
        (last / 2, "tok/s".into()),
        (last, tok_s(Some(floor))),
    ] {
        buf.set_stringn(
            chart.right(),
            area.y + row,
            format!(" {text}"),
            scale.into(),
            theme.dim,
        );
    }
}
