//! Colours and glyphs as data. Only the sixteen ANSI colours and the terminal's own background are used, so that dark and
//! light terminals both work; dim text uses the attribute, because "bright black" is invisible in some palettes.

use crate::model::brick::Category;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

/// Styles by meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    /// Text of little weight: units, legends.
    pub dim: Style,
    /// Key hints and the focused panel.
    pub accent: Style,
    /// Titles and the figure that matters most.
    pub strong: Style,
    /// Panel borders.
    pub border: Style,
    /// The border of the focused panel.
    pub border_focus: Style,
    /// Something good: a gain, running.
    pub good: Style,
    /// Something to notice: paused, waiting.
    pub warn: Style,
    /// Something wrong: failures, losses.
    pub bad: Style,
    /// The prompt in the text panel.
    pub prompt: Style,
    /// The row or cell under the cursor.
    pub selected: Style,
    /// Heat from coolest to hottest.
    pub heat: [Style; 5],
    /// Block colours: norm, attention, ffn, head, overhead.
    pub category: [Style; 5],
    /// Characters to draw with.
    pub glyphs: Glyphs,
}

/// Characters to draw with; every one is a single column wide.
#[derive(Debug, Clone, PartialEq)]
pub struct Glyphs {
    /// Whether only ASCII may be written.
    pub ascii: bool,
    /// Panel frame.
    pub border: border::Set<'static>,
    /// Heights from empty to full; also the heat ramp (from index 1), so colour never carries a value alone.
    pub ramp: &'static [&'static str],
    /// Widths from empty to full, for horizontal bars.
    pub bar: &'static [&'static str],
    /// The empty part of a bar.
    pub track: &'static str,
    /// Descending and ascending sort marks.
    pub sort: [&'static str; 2],
    /// Separator between facts.
    pub dot: &'static str,
    /// Mark of the current item.
    pub pointer: &'static str,
    /// Shortened text.
    pub ellipsis: &'static str,
    /// Between two ends of a range.
    pub to: &'static str,
    /// From before to after.
    pub arrow: &'static str,
    /// Microseconds.
    pub micro: &'static str,
    /// Plus or minus.
    pub plus_minus: &'static str,
    /// Times.
    pub times: &'static str,
    /// States: running, paused, finished, failed, frozen.
    pub state: [&'static str; 5],
    /// Marks of a recommendation: open, measuring, gained, no gain, undone.
    pub status: [&'static str; 5],
}

const UNICODE: Glyphs = Glyphs {
    ascii: false,
    border: border::ROUNDED,
    ramp: &[" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    bar: &[" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"],
    track: "·",
    sort: ["▼", "▲"],
    dot: "·",
    pointer: "▸",
    ellipsis: "…",
    to: "–",
    arrow: "→",
    micro: "µs",
    plus_minus: "±",
    times: "×",
    state: ["▶", "‖", "■", "✗", "❄"],
    status: ["○", "◌", "✓", "≈", "↺"],
};

const ASCII: Glyphs = Glyphs {
    ascii: true,
    border: border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    },
    ramp: &[" ", ".", ":", "-", "=", "+", "*", "%", "#"],
    bar: &[" ", "#"],
    track: ".",
    sort: ["v", "^"],
    dot: "|",
    pointer: ">",
    ellipsis: "~",
    to: "-",
    arrow: "->",
    micro: "us",
    plus_minus: "+/-",
    times: "x",
    state: [">", "=", "#", "!", "*"],
    status: ["o", "~", "+", "=", "<"],
};

impl Theme {
    /// A theme with or without colour and with Unicode or ASCII glyphs.
    pub fn new(colour: bool, ascii: bool) -> Self {
        let plain = Style::new();
        let fg = |c: Color| if colour { plain.fg(c) } else { plain };
        Self {
            // An explicit default, so that titles do not take the colour of the border they stand in.
            dim: fg(Color::Reset).add_modifier(Modifier::DIM),
            accent: fg(Color::Cyan).add_modifier(Modifier::BOLD),
            strong: fg(Color::Reset).add_modifier(Modifier::BOLD),
            border: if colour {
                plain.fg(Color::Blue)
            } else {
                plain.add_modifier(Modifier::DIM)
            },
            border_focus: fg(Color::Cyan),
            good: fg(Color::Green).add_modifier(Modifier::BOLD),
            warn: fg(Color::Yellow).add_modifier(Modifier::BOLD),
            bad: fg(Color::Red).add_modifier(Modifier::BOLD),
            prompt: fg(Color::Cyan).add_modifier(if colour {
                Modifier::empty()
            } else {
                Modifier::UNDERLINED
            }),
            selected: plain.add_modifier(Modifier::REVERSED),
            heat: [
                Color::Blue,
                Color::Cyan,
                Color::Green,
                Color::Yellow,
                Color::Red,
            ]
            .map(fg),
            category: [
                Color::Blue,
                Color::Magenta,
                Color::Cyan,
                Color::Green,
                Color::Yellow,
            ]
            .map(fg),
            glyphs: if ascii { ASCII } else { UNICODE },
        }
    }

    /// The colour of a block.
    pub fn category(&self, category: Category) -> Style {
        let [norm, attention, ffn, head, overhead] = self.category;
        match category {
            Category::Norm => norm,
            Category::Attention => attention,
            Category::Ffn => ffn,
            Category::Head => head,
            Category::Overhead => overhead,
        }
    }

    /// Colour and glyph of a value at `t` (0 coolest, 1 hottest).
    pub fn heat(&self, t: f64) -> (&'static str, Style) {
        let t = if t.is_finite() {
            t.clamp(0.0, 1.0)
        } else {
            0.0
        };
        let pick = |n: usize| ((t * n as f64) as usize).min(n.saturating_sub(1));
        let ramp = self.glyphs.ramp.get(1..).unwrap_or_default();
        let glyph = ramp.get(pick(ramp.len())).copied().unwrap_or(" ");
        (
            glyph,
            self.heat
                .get(pick(self.heat.len()))
                .copied()
                .unwrap_or_default(),
        )
    }
}

/// Whether the locale's environment variables (`LC_ALL`, `LC_CTYPE`, `LANG`, first set one wins) name UTF-8.
/// With none set the answer is no: such terminals are usually serial consoles or bare containers.
pub fn locale_is_utf8(var: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(var)
        .find(|v| !v.is_empty())
        .is_some_and(|v| v.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locale_precedence() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |k: &str| {
                pairs
                    .iter()
                    .find(|(n, _)| *n == k)
                    .map(|(_, v)| (*v).to_string())
            }
        };
        assert!(locale_is_utf8(env(&[("LANG", "en_US.UTF-8")])));
        assert!(locale_is_utf8(env(&[("LC_ALL", ""), ("LANG", "C.utf8")])));
        assert!(!locale_is_utf8(env(&[
            ("LC_ALL", "C"),
            ("LANG", "en_US.UTF-8")
        ])));
        assert!(!locale_is_utf8(env(&[])));
    }

    #[test]
    fn monochrome_has_no_colour_and_ascii_is_ascii() {
        let t = Theme::new(false, true);
        for s in [t.dim, t.accent, t.border, t.good, t.warn, t.bad, t.prompt]
            .iter()
            .chain(&t.heat)
            .chain(&t.category)
        {
            assert!(s.fg.is_none() && s.bg.is_none());
        }
        for g in t
            .glyphs
            .ramp
            .iter()
            .chain(t.glyphs.bar)
            .chain(&t.glyphs.state)
            .chain(&t.glyphs.status)
        {
            assert!(g.is_ascii());
        }
        assert_eq!(t.heat(f64::NAN).0, ".");
        assert_eq!(t.heat(1.0).0, "#");
    }
}
