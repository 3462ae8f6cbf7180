//! The user's configuration: a TOML text read, checked and written. Finding and opening the file is the caller's.

mod show;

pub use show::show;

use super::columns::{Column, Sort};
use super::keymap::{Action, Key, Keymap};
use super::names::{SORT, key_names};
use super::state::Panel;
use super::text::sanitise;
use super::theme::ThemeName;
use super::{Options, text};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest configuration that is read, bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Frames a second that can be asked for.
pub const FRAME_RATES: std::ops::RangeInclusive<u32> = 1..=60;
/// Keys that one action can have.
const MAX_KEYS: usize = 8;

/// Options at the top of the file with what they mean, in the order in which they are written.
pub const OPTIONS: [(&str, &str); 7] = [
    ("theme", "Colours: dark, light, colour-blind or none."),
    (
        "ascii",
        "Draw with ASCII only; without this line the locale decides.",
    ),
    ("recommend", "Start with the recommendations focused."),
    ("focus", "The panel focused at the start."),
    ("sort", "The column that the brick table is sorted by."),
    ("sort-reverse", "Sort against the column's usual direction."),
    (
        "frame-rate",
        "Frames a second while the model runs, 1 to 60.",
    ),
];

/// What a configuration says; `None` where it says nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// Colours.
    pub theme: Option<ThemeName>,
    /// Draw with ASCII only.
    pub ascii: Option<bool>,
    /// Start with the recommendations focused.
    pub recommend: Option<bool>,
    /// The panel focused at the start.
    pub focus: Option<Panel>,
    /// The column that the brick table is sorted by.
    pub sort: Option<Column>,
    /// Sort against the column's usual direction.
    pub sort_reverse: Option<bool>,
    /// Frames a second while the model runs.
    pub frame_rate: Option<u32>,
    /// Keys: the default ones but for those bound anew.
    pub keymap: Keymap,
}

/// What is wrong with a configuration, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Longer than [`MAX_BYTES`].
    #[error("longer than {} KiB: this is no configuration of cbtop", MAX_BYTES >> 10)]
    TooLong,
    /// Not UTF-8.
    #[error("line {line}: not UTF-8")]
    NotUtf8 {
        /// Line, from 1.
        line: usize,
    },
    /// Anything else, with its line.
    #[error("line {line}: {what}")]
    At {
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
}

/// Where a value stands: for messages.
struct Place<'a> {
    text: &'a str,
}

impl Place<'_> {
    fn error(&self, span: Range<usize>, what: String) -> ConfigError {
        ConfigError::At {
            line: line_of(self.text.as_bytes(), span.start),
            what,
        }
    }

    fn wrong(&self, name: &str, value: &Spanned<DeValue<'_>>, wanted: &str) -> ConfigError {
        let what = format!("`{name}` is {wanted}, not {}", shown(value.get_ref()));
        self.error(value.span(), what)
    }
}

fn line_of(text: &[u8], at: usize) -> usize {
    let before = text.get(..at.min(text.len())).unwrap_or_default();
    before.iter().filter(|b| **b == b'\n').count() + 1
}

/// A value in a message: strings quoted and short, else what kind it is.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(s) => format!("\"{}\"", short(s)),
        DeValue::Integer(i) => short(&i.to_string()),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Float(_) => "a number with a point".into(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

fn short(s: &str) -> String {
    text::fit(&sanitise(s, true), 40, "...")
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`ConfigError`] for text that is too long, not UTF-8 or not TOML, for unknown options, actions and keys, for
    /// values of the wrong type or out of range, for a key bound twice, and when no key is left to quit.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        if bytes.len() > MAX_BYTES {
            return Err(ConfigError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|e| ConfigError::NotUtf8 {
            line: line_of(bytes, e.valid_up_to()),
        })?;
        let place = Place { text };
        let table = DeTable::parse(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            place.error(at..at, format!("not TOML: {}", short_line(e.message())))
        })?;
        let mut config = Self::default();
        for (name, value) in table.get_ref() {
            if name.get_ref() == "keys" {
                keys(&place, value, &mut config.keymap)?;
            } else {
                config.option(&place, name, value)?;
            }
        }
        Ok(config)
    }

    fn option(
        &mut self,
        place: &Place<'_>,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let key = name.get_ref().as_ref();
        let string = || value.get_ref().as_str();
        let boolean = || match value.get_ref() {
            DeValue::Boolean(b) => Ok(*b),
            _ => Err(place.wrong(key, value, "true or false")),
        };
        match key {
            "theme" => {
                let theme = string().and_then(ThemeName::parse);
                let wanted = || format!("one of {}", ThemeName::names());
                self.theme = Some(theme.ok_or_else(|| place.wrong(key, value, &wanted()))?);
            }
            "ascii" => self.ascii = Some(boolean()?),
            "recommend" => self.recommend = Some(boolean()?),
            "focus" => {
                let panel = string().and_then(|s| Panel::ALL.into_iter().find(|p| p.name() == s));
                let wanted = || format!("one of {}", Panel::ALL.map(Panel::name).join(", "));
                self.focus = Some(panel.ok_or_else(|| place.wrong(key, value, &wanted()))?);
            }
            "sort" => {
                let column = string().and_then(|s| SORT.iter().find(|(n, _)| *n == s));
                let wanted = || format!("one of {}", SORT.map(|(n, _)| n).join(", "));
                let found = column.ok_or_else(|| place.wrong(key, value, &wanted()))?;
                self.sort = Some(found.1);
            }
            "sort-reverse" => self.sort_reverse = Some(boolean()?),
            "frame-rate" => {
                let rate = match value.get_ref() {
                    DeValue::Integer(i) if i.radix() == 10 => i.as_str().parse().ok(),
                    _ => None,
                };
                let rate = rate.filter(|r| FRAME_RATES.contains(r));
                self.frame_rate =
                    Some(rate.ok_or_else(|| place.wrong(key, value, "a number from 1 to 60"))?);
            }
            other => {
                let known = OPTIONS.map(|(n, _)| n).join(", ");
                let what = format!(
                    "there is no option `{}`; options: {known}, and the table [keys]",
                    short(other)
                );
                return Err(place.error(name.span(), what));
            }
        }
        Ok(())
    }

    /// `options` with what the configuration says; `no_colour` (from the environment) wins over its theme.
    pub fn apply(&self, options: &Options, no_colour: bool) -> Options {
        Options {
            recommend: self.recommend.unwrap_or(options.recommend),
            ascii: self.ascii.unwrap_or(options.ascii),
            theme: match self.theme {
                Some(theme) if !no_colour => theme,
                _ => options.theme,
            },
            depth: options.depth,
            focus: self.focus.unwrap_or(options.focus),
            zoomed: options.zoomed,
            sort: Sort {
                column: self.sort.unwrap_or(options.sort.column),
                reversed: self.sort_reverse.unwrap_or(options.sort.reversed),
            },
            frame_rate: self.frame_rate.unwrap_or(options.frame_rate),
            keymap: self.keymap.clone(),
            saving: options.saving,
        }
    }
}

/// The parser's message in one line.
fn short_line(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    text::fit(&sanitise(&line, true), 120, "...")
}

/// Reads the table of keys.
fn keys(
    place: &Place<'_>,
    value: &Spanned<DeValue<'_>>,
    keymap: &mut Keymap,
) -> Result<(), ConfigError> {
    let Some(table) = value.get_ref().as_table() else {
        return Err(place.wrong("keys", value, "a table of actions"));
    };
    let mut bound: Vec<(Action, Range<usize>)> = Vec::new();
    for (name, keys) in table {
        let Some(action) = keymap.named(name.get_ref()) else {
            let what = format!(
                "there is no action `{}`; `cbtop config` lists them",
                short(name.get_ref())
            );
            return Err(place.error(name.span(), what));
        };
        let keys = key_list(place, name.get_ref(), keys)?;
        if action == Action::Quit && keys.is_empty() {
            return Err(place.error(name.span(), "`quit` needs a key".into()));
        }
        keymap.rebind(action, keys);
        bound.push((action, name.span()));
    }
    let Some((key, a, b)) = keymap.conflict() else {
        return Ok(());
    };
    // The later one of those that the file names is where to look.
    let span = bound
        .iter()
        .filter(|(action, _)| *action == a || *action == b)
        .map(|(_, span)| span.clone())
        .max_by_key(|span| span.start)
        .unwrap_or(value.span());
    let (key, a, b) = (key.label(), a.name(), b.name());
    let what = format!("key `{key}` is bound to `{a}` and to `{b}`; give one of them other keys");
    Err(place.error(span, what))
}

/// A key or a list of keys.
fn key_list(
    place: &Place<'_>,
    action: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<Key>, ConfigError> {
    let one = |value: &Spanned<DeValue<'_>>| {
        let name = value
            .get_ref()
            .as_str()
            .ok_or_else(|| place.wrong(action, value, "a key or a list of keys"))?;
        Key::parse(name).ok_or_else(|| {
            let what = format!(
                "`{action}`: there is no key \"{}\"; keys: {}",
                short(name),
                key_names()
            );
            place.error(value.span(), what)
        })
    };
    let Some(list) = value.get_ref().as_array() else {
        return Ok(vec![one(value)?]);
    };
    if list.len() > MAX_KEYS {
        return Err(place.error(
            value.span(),
            format!("`{action}` has more than {MAX_KEYS} keys"),
        ));
    }
    list.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        Config::parse(text.as_bytes())
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn everything_can_be_said() {
        let text = r#"
            theme = "light"
            ascii = true
            recommend = true
            focus = "roofline"
            sort = "p99"
            sort-reverse = true
            frame-rate = 20
            [keys]
            pause = "y"
            zoom = ["Ctrl-w", "F5"]
            undo = []
        "#;
        let config = Config::parse(text.as_bytes()).expect("good");
        let options = config.apply(&Options::default(), false);
        assert_eq!(options.theme, ThemeName::Light);
        assert_eq!(
            (options.focus, options.sort.column),
            (Panel::Roofline, Column::P99)
        );
        assert!(options.ascii && options.recommend && options.sort.reversed);
        assert_eq!(options.frame_rate, 20);
        let does = |c| {
            let key = KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
            options.keymap.action(&key)
        };
        assert_eq!(does('y'), Some(Action::Pause));
        assert_eq!((does(' '), does('u')), (None, None));
        assert_eq!(options.keymap.label(Action::Zoom), Some("Ctrl-W".into()));
        assert_eq!(options.keymap.label(Action::Undo), None);
    }

    #[test]
    fn no_colour_wins_over_the_theme_of_the_file() {
        let config = Config::parse(b"theme = \"light\"").expect("good");
        let dark = Options::default();
        assert_eq!(config.apply(&dark, false).theme, ThemeName::Light);
        let none = Options {
            theme: ThemeName::None,
            ..dark
        };
        assert_eq!(config.apply(&none, true).theme, ThemeName::None);
    }

    #[test]
    fn errors_name_line_and_key() {
        for (text, says) in [
            (
                "theme = \"blue\"",
                "line 1: `theme` is one of dark, light, colour-blind, none, not \"blue\"",
            ),
            ("\n\nascii = 1", "line 3: `ascii` is true or false, not 1"),
            (
                "focus = 3",
                "line 1: `focus` is one of bricks, layers, text",
            ),
            ("sort = \"colour\"", "not \"colour\""),
            (
                "frame-rate = 0",
                "line 1: `frame-rate` is a number from 1 to 60, not 0",
            ),
            ("frame-rate = 99999999999999999999", "from 1 to 60"),
            ("frame-rate = 1.5", "a number with a point"),
            (
                "colour = true",
                "line 1: there is no option `colour`; options: theme, ascii",
            ),
            ("keys = 1", "line 1: `keys` is a table of actions, not 1"),
            ("[keys]\nfly = \"x\"", "line 2: there is no action `fly`"),
            (
                "[keys]\npause = \"Hyper-x\"",
                "line 2: `pause`: there is no key \"Hyper-x\"; keys: a character, Space",
            ),
            (
                "[keys]\npause = [\"x\", 1]",
                "line 2: `pause` is a key or a list of keys, not 1",
            ),
            ("[keys]\nquit = []", "line 2: `quit` needs a key"),
            (
                "[keys]\npause = \"n\"",
                "line 2: key `n` is bound to `pause` and to `step-token`",
            ),
            (
                "[keys]\nzoom = \"x\"\n\npause = \"x\"",
                "line 4: key `x` is bound to `pause` and to `zoom`",
            ),
            ("ascii = true\nascii = true", "line 2: not TOML"),
            ("[keys", "line 1: not TOML"),
            ("theme = \"\u{1b}[2J\"", "line 1"),
        ] {
            let got = error(text);
            assert!(got.contains(says), "{text:?}: {got}");
            assert!(!got.chars().any(char::is_control), "{got:?}");
        }
        let not_utf8 = Config::parse(b"ascii = true\n# \xff");
        assert_eq!(not_utf8, Err(ConfigError::NotUtf8 { line: 2 }));
        let long = vec![b'#'; MAX_BYTES + 1];
        assert_eq!(Config::parse(&long), Err(ConfigError::TooLong));
        let deep = "a = ".to_string() + &"[".repeat(30_000);
        assert!(error(&deep).contains("line 1"));
        let keys = vec!["\"x\""; 99].join(",");
        assert!(error(&format!("[keys]\npause = [{keys}]")).contains("more than"));
    }

    #[test]
    fn keys_can_be_swapped() {
        let config = Config::parse(b"[keys]\npause = \"n\"\nstep-token = \"Space\"").expect("good");
        assert_eq!(config.keymap.label(Action::Pause), Some("n".into()));
    }

    #[test]
    fn the_page_has_every_option_action_key_and_name() {
        let page = include_str!("../../docs/src/configuration.md");
        let default = Options::default();
        for (name, _) in OPTIONS {
            let value = show::value(&default, name);
            let by_locale = name == "ascii";
            let row = if by_locale {
                format!("| `{name}` | by the locale |")
            } else {
                format!("| `{name}` | `{value}` |")
            };
            assert!(page.contains(&row), "configuration.md lacks: {row}");
        }
        let names = Panel::ALL.map(Panel::name).into_iter();
        let names = names
            .chain(SORT.map(|(n, _)| n))
            .chain(ThemeName::ALL.map(ThemeName::name));
        for name in names {
            assert!(page.contains(&format!("`\"{name}\"`")), "{name}");
        }
        for binding in Keymap::default().bindings {
            let keys: Vec<String> = binding
                .keys
                .iter()
                .map(|k| format!("`{}`", k.label()))
                .collect();
            let row = format!("| `{}` | {} |", binding.action.name(), keys.join(", "));
            assert!(page.contains(&row), "configuration.md lacks: {row}");
        }
        let example = page.split("```toml\n").nth(1).unwrap_or_default();
        let example = example.split("```").next().unwrap_or_default();
        assert!(Config::parse(example.as_bytes()).is_ok(), "{example}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err(e) = Config::parse(&bytes) {
                prop_assert!(!e.to_string().chars().any(char::is_control));
            }
        }

        #[test]
        fn any_values_are_read_or_refused(
            name in proptest::sample::select(OPTIONS.map(|(n, _)| n).to_vec()), value in "[a-z0-9\"\\[\\]{}.,= -]{0,20}",
        ) {
            if let Err(e) = Config::parse(format!("{name} = {value}").as_bytes()) {
                prop_assert!(e.to_string().starts_with("line "));
            }
        }
    }
}
