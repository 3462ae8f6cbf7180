//! Styles and glyphs as data. The terminal's own background stays; dim text uses the attribute, because "bright black" is
//! invisible in some palettes.

pub use super::palette::{Depth, ThemeName};

use super::palette::{Palette, Tone, palette};
use crate::model::brick::Category;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

/// Styles by meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    /// Which theme it is.
    pub name: ThemeName,
    /// How many colours the terminal shows.
    pub depth: Depth,
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
    /// The default theme or the one without colour, with Unicode or ASCII glyphs.
    pub fn new(colour: bool, ascii: bool) -> Self {
        let name = if colour {
            ThemeName::default()
        } else {
            ThemeName::None
        };
        Self::named(name, Depth::default(), ascii)
    }

    /// The theme `name` for a terminal of `depth`, with Unicode or ASCII glyphs.
    pub fn named(name: ThemeName, depth: Depth, ascii: bool) -> Self {
        let plain = Style::new();
        let palette = palette(name);
        let colour = palette.is_some();
        // An explicit default, so that titles do not take the colour of the border they stand in.
        let reset = if colour {
            plain.fg(Color::Reset)
        } else {
            plain
        };
        let fg = |tone: fn(&Palette) -> Tone| match &palette {
            Some(p) => plain.fg(tone(p).at(depth)),
            None => plain,
        };
        let five = |tones: fn(&Palette) -> [Tone; 5]| match &palette {
            Some(p) => tones(p).map(|tone| plain.fg(tone.at(depth))),
            None => [plain; 5],
        };
        Self {
            name,
            depth,
            dim: reset.add_modifier(Modifier::DIM),
            accent: fg(|p| p.accent).add_modifier(Modifier::BOLD),
            strong: reset.add_modifier(Modifier::BOLD),
            border: if colour {
                fg(|p| p.border)
            } else {
                plain.add_modifier(Modifier::DIM)
            },
            border_focus: fg(|p| p.accent),
            good: fg(|p| p.good).add_modifier(Modifier::BOLD),
            warn: fg(|p| p.warn).add_modifier(Modifier::BOLD),
            bad: fg(|p| p.bad).add_modifier(Modifier::BOLD),
            prompt: fg(|p| p.prompt).add_modifier(if colour {
                Modifier::empty()
            } else {
                Modifier::UNDERLINED
            }),
            selected: plain.add_modifier(Modifier::REVERSED),
            heat: five(|p| p.heat),
            category: five(|p| p.category),
            glyphs: if ascii { ASCII } else { UNICODE },
        }
    }

    /// The next theme with the same glyphs.
    pub fn next(&self) -> Self {
        Self::named(self.name.next(), self.depth, self.glyphs.ascii)
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
