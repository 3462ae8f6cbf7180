//! The colours of each theme, and what of them a terminal can show. None has a background: the terminal's own stays.

use ratatui::style::Color;

/// The themes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThemeName {
    /// For dark backgrounds; the sixteen ANSI colours.
    #[default]
    Dark,
    /// For light backgrounds.
    Light,
    /// Told apart with every kind of colour vision, on dark and on light backgrounds.
    ColourBlind,
    /// No colour.
    None,
}

impl ThemeName {
    /// All themes, in the order in which the key goes through them.
    pub const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::ColourBlind, Self::None];

    /// Name in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::ColourBlind => "colour-blind",
            Self::None => "none",
        }
    }

    /// The theme with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The theme after this one.
    pub fn next(self) -> Self {
        let [dark, light, blind, none] = Self::ALL;
        match self {
            Self::Dark => light,
            Self::Light => blind,
            Self::ColourBlind => none,
            Self::None => dark,
        }
    }
}

impl std::str::FromStr for ThemeName {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::parse(s).ok_or_else(|| {
            let s = super::text::sanitise(s, true);
            format!("there is no theme '{s}'; themes: {}", Self::names())
        })
    }
}

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// The sixteen ANSI colours.
    #[default]
    Ansi,
    /// The 256 colours of xterm.
    Indexed,
    /// 24 bits.
    True,
}

impl Depth {
    /// By the environment variables `COLORTERM` and `TERM`.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let has = |name: &str, what: &[&str]| {
            var(name).is_some_and(|v| what.iter().any(|w| v.to_ascii_lowercase().contains(w)))
        };
        if has("COLORTERM", &["truecolor", "24bit"]) {
            Self::True
        } else if has("TERM", &["256color"]) {
            Self::Indexed
        } else {
            Self::Ansi
        }
    }
}

/// A colour, and the ANSI colour that stands for it where there are only sixteen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tone {
    rgb: Option<(u8, u8, u8)>,
    ansi: Color,
}

impl Tone {
    const fn ansi(ansi: Color) -> Self {
        Self { rgb: None, ansi }
    }

    const fn rgb(r: u8, g: u8, b: u8, ansi: Color) -> Self {
        Self {
            rgb: Some((r, g, b)),
            ansi,
        }
    }

    /// The colour for a terminal of `depth`.
    pub(super) fn at(self, depth: Depth) -> Color {
        match (depth, self.rgb) {
            (Depth::Ansi, _) | (_, None) => self.ansi,
            (Depth::Indexed, Some(rgb)) => Color::Indexed(nearest(rgb)),
            (Depth::True, Some((r, g, b))) => Color::Rgb(r, g, b),
        }
    }
}

/// Levels of a channel in the colour cube of xterm.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The colour of xterm's cube and grey ramp that is nearest by squared distance.
fn nearest((r, g, b): (u8, u8, u8)) -> u8 {
    let far = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
    let level = |v: u8| (0u8..6).zip(CUBE).min_by_key(|(_, c)| far(v, *c));
    let [(ri, rv), (gi, gv), (bi, bv)] = [r, g, b].map(|v| level(v).unwrap_or((0, 0)));
    let cube = (
        far(r, rv) + far(g, gv) + far(b, bv),
        16 + 36 * ri + 6 * gi + bi,
    );
    (0u8..24)
        .map(|i| {
            let v = 8 + 10 * i;
            (far(r, v) + far(g, v) + far(b, v), 232 + i)
        })
        .fold(cube, |a, b| if b.0 < a.0 { b } else { a })
        .1
}

/// Colours by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Palette {
    pub(super) accent: Tone,
    pub(super) border: Tone,
    pub(super) good: Tone,
    pub(super) warn: Tone,
    pub(super) bad: Tone,
    pub(super) prompt: Tone,
    pub(super) heat: [Tone; 5],
    pub(super) category: [Tone; 5],
}

/// The colours of `name`; `None` where it has none.
pub(super) fn palette(name: ThemeName) -> Option<Palette> {
    match name {
        ThemeName::Dark => Some(DARK),
        ThemeName::Light => Some(LIGHT),
        ThemeName::ColourBlind => Some(COLOUR_BLIND),
        ThemeName::None => None,
    }
}

const CYAN: Tone = Tone::ansi(Color::Cyan);
const BLUE: Tone = Tone::ansi(Color::Blue);
const GREEN: Tone = Tone::ansi(Color::Green);
const YELLOW: Tone = Tone::ansi(Color::Yellow);
const RED: Tone = Tone::ansi(Color::Red);
const MAGENTA: Tone = Tone::ansi(Color::Magenta);

const DARK: Palette = Palette {
    accent: CYAN,
    border: BLUE,
    good: GREEN,
    warn: YELLOW,
    bad: RED,
    prompt: CYAN,
    heat: [BLUE, CYAN, GREEN, YELLOW, RED],
    category: [BLUE, MAGENTA, CYAN, GREEN, YELLOW],
};

// On white: at least 4.5 to 1 where there are more than sixteen colours. Of the sixteen, cyan and yellow are too pale.
const L_BLUE: Tone = Tone::rgb(0x00, 0x5f, 0xaf, Color::Blue);
const L_TEAL: Tone = Tone::rgb(0x00, 0x5f, 0x5f, Color::Blue);
const L_GREEN: Tone = Tone::rgb(0x00, 0x5f, 0x00, Color::Green);
const L_BROWN: Tone = Tone::rgb(0x87, 0x5f, 0x00, Color::Magenta);
const L_RED: Tone = Tone::rgb(0xaf, 0x00, 0x00, Color::Red);
const L_PURPLE: Tone = Tone::rgb(0x87, 0x00, 0xaf, Color::Magenta);
const L_GREY: Tone = Tone::rgb(0x58, 0x58, 0x58, Color::Reset);

const LIGHT: Palette = Palette {
    accent: L_BLUE,
    border: L_GREY,
    good: L_GREEN,
    warn: L_BROWN,
    bad: L_RED,
    prompt: L_TEAL,
    heat: [L_GREY, L_BLUE, L_TEAL, L_BROWN, L_RED],
    category: [L_BLUE, L_PURPLE, L_TEAL, L_GREEN, L_BROWN],
};

// Of the palette of Okabe and Ito (2008, https://jfly.uni-koeln.de/color/) those with a contrast of 3 to 1 on black and on
// white; their yellow, orange and sky blue vanish on white. Green and purple are darker than theirs.
const O_BLUE: Tone = Tone::rgb(0x00, 0x72, 0xb2, Color::Blue);
const O_GREEN: Tone = Tone::rgb(0x00, 0x87, 0x5f, Color::Cyan);
const O_VERMILLION: Tone = Tone::rgb(0xd5, 0x5e, 0x00, Color::Red);
const O_PURPLE: Tone = Tone::rgb(0xc0, 0x6f, 0x9c, Color::Magenta);
const O_GREY: Tone = Tone::rgb(0x80, 0x80, 0x80, Color::Reset);

const COLOUR_BLIND: Palette = Palette {
    accent: O_BLUE,
    border: O_GREY,
    good: O_GREEN,
    warn: O_PURPLE,
    bad: O_VERMILLION,
    prompt: O_BLUE,
    heat: [O_GREY, O_BLUE, O_GREEN, O_PURPLE, O_VERMILLION],
    category: [O_GREY, O_BLUE, O_GREEN, O_PURPLE, O_VERMILLION],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of WCAG 2.
    fn luminance((r, g, b): (u8, u8, u8)) -> f64 {
        let [r, g, b] = [r, g, b].map(|v| {
            let v = f64::from(v) / 255.0;
            if v <= 0.03928 {
                v / 12.92
            } else {
                ((v + 0.055) / 1.055).powf(2.4)
            }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn contrast(a: f64, b: f64) -> f64 {
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn tones(p: &Palette) -> Vec<Tone> {
        [p.accent, p.border, p.good, p.warn, p.bad, p.prompt]
            .into_iter()
            .chain(p.heat)
            .chain(p.category)
            .collect()
    }

    fn rgb(color: Color) -> (u8, u8, u8) {
        match color {
            Color::Rgb(r, g, b) => (r, g, b),
            Color::Indexed(i @ 16..=231) => {
                let i = usize::from(i - 16);
                (CUBE[i / 36], CUBE[i / 6 % 6], CUBE[i % 6])
            }
            Color::Indexed(i) => {
                let v = 8 + 10 * (i - 232);
                (v, v, v)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn contrast_is_enough() {
        for depth in [Depth::Indexed, Depth::True] {
            for tone in tones(&LIGHT) {
                let c = contrast(luminance(rgb(tone.at(depth))), 1.0);
                assert!(c >= 4.5, "{tone:?} on white: {c}");
            }
            for tone in tones(&COLOUR_BLIND) {
                let l = luminance(rgb(tone.at(depth)));
                let c = contrast(l, 1.0).min(contrast(l, 0.0));
                assert!(c >= 3.0, "{tone:?}: {c}");
            }
        }
    }

    #[test]
    fn sixteen_colours_are_the_terminals_own() {
        for name in ThemeName::ALL {
            for tone in palette(name).iter().flat_map(tones) {
                let colour = tone.at(Depth::Ansi);
                assert!(!matches!(colour, Color::Rgb(..) | Color::Indexed(_)));
            }
        }
    }

    #[test]
    fn names_are_read_back_and_go_round() {
        let mut at = ThemeName::default();
        for name in ThemeName::ALL {
            assert_eq!(name.name().parse(), Ok(name));
            at = at.next();
        }
        assert_eq!(at, ThemeName::default());
        let refused = "blue\u{1b}".parse::<ThemeName>().unwrap_err();
        assert!(refused.contains("dark, light, colour-blind, none") && refused.is_ascii());
    }

    #[test]
    fn depth_by_environment() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |k: &str| {
                let found = pairs.iter().find(|(n, _)| *n == k)?;
                Some(found.1.to_string())
            }
        };
        assert_eq!(
            Depth::from_env(env(&[("COLORTERM", "truecolor")])),
            Depth::True
        );
        assert_eq!(
            Depth::from_env(env(&[("TERM", "xterm-256color")])),
            Depth::Indexed
        );
        assert_eq!(Depth::from_env(env(&[("TERM", "linux")])), Depth::Ansi);
        assert_eq!(nearest((0, 0, 0)), 16);
        assert_eq!(nearest((128, 128, 128)), 244);
        assert_eq!(nearest((255, 0, 0)), 196);
    }
}
