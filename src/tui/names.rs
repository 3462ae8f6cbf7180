//! Names of actions, keys, panels and columns in the configuration file, and how keys are bound anew.

use super::columns::Column;
use super::keymap::{Action, Key, Keymap};
use super::state::Panel;
use crossterm::event::KeyCode;

/// Columns that the configuration can sort by.
pub const SORT: [(&str, Column); 16] = [
    ("brick", Column::Brick),
    ("block", Column::Block),
    ("time", Column::Time),
    ("share", Column::Share),
    ("calls", Column::Calls),
    ("elements", Column::Elements),
    ("element-rate", Column::ElementRate),
    ("bandwidth", Column::Bandwidth),
    ("flops", Column::Flops),
    ("mean", Column::Mean),
    ("p50", Column::P50),
    ("p99", Column::P99),
    ("spread", Column::Spread),
    ("min", Column::Min),
    ("max", Column::Max),
    ("roof", Column::Roof),
];

impl Panel {
    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bricks => "bricks",
            Self::Layers => "layers",
            Self::Text => "text",
            Self::Path => "path",
            Self::Advice => "advice",
            Self::Memory => "memory",
            Self::Timeline => "timeline",
            Self::Roofline => "roofline",
            Self::Counters => "counters",
            Self::Latency => "latency",
            Self::Tree => "tree",
            Self::Trace => "trace",
            Self::Model => "model",
            Self::Debug => "debug",
        }
    }
}

impl Action {
    /// Name in the configuration.
    pub fn name(self) -> String {
        let name = match self {
            Self::Pause => "pause",
            Self::StepToken => "step-token",
            Self::StepLayer => "step-layer",
            Self::Restart => "restart",
            Self::EditPrompt => "edit-prompt",
            Self::ResetStats => "reset-stats",
            Self::Apply => "apply",
            Self::Undo => "undo",
            Self::TryAll => "try-all",
            Self::Bandit => "bandit",
            Self::FocusNext => "focus-next",
            Self::FocusPrevious => "focus-previous",
            Self::Focus(index) => {
                let panel = Panel::ALL.get(usize::from(index));
                return format!("focus-{}", panel.map_or("none", |p| p.name()));
            }
            Self::Zoom => "zoom",
            Self::Back => "back",
            Self::Move(by) if by < 0 => "up",
            Self::Move(_) => "down",
            Self::MoveSide(by) if by < 0 => "left",
            Self::MoveSide(_) => "right",
            Self::Magnify(by) if by < 0 => "shrink",
            Self::Magnify(_) => "magnify",
            Self::Page(by) if by < 0 => "page-up",
            Self::Page(_) => "page-down",
            Self::First => "first",
            Self::Last => "last",
            Self::SortNext => "sort-next",
            Self::SortReverse => "sort-reverse",
            Self::Phase => "phase",
            Self::Freeze => "freeze",
            Self::TraceLine => "trace-line",
            Self::TracePrompt => "trace-prompt",
            Self::JumpPhase => "jump-phase",
            Self::NextAnswer => "next-answer",
            Self::TraceMap => "trace-map",
            Self::FollowTrace => "follow-trace",
            Self::KeepTrace => "keep-trace",
            Self::TracerView(by) if by < 0 => "previous-tracer",
            Self::TracerView(_) => "next-tracer",
            Self::SwitchTracer => "switch-tracer",
            Self::SwitchTracers => "switch-tracers",
            Self::MeasureError => "measure-error",
            Self::Theme => "theme",
            // These two are of a recording, whose keys are its own.
            Self::Scrub(_) => "scrub",
            Self::NoSession => "no-session",
            Self::Help => "help",
            Self::Suspend => "suspend",
            Self::Quit => "quit",
        };
        name.into()
    }
}

/// Names of keys that are no single character, as [`Key::label`] writes them.
const KEYS: [(&str, KeyCode); 17] = [
    ("Space", KeyCode::Char(' ')),
    ("Enter", KeyCode::Enter),
    ("Tab", KeyCode::Tab),
    ("Shift-Tab", KeyCode::BackTab),
    ("Esc", KeyCode::Esc),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Insert", KeyCode::Insert),
    ("Delete", KeyCode::Delete),
    ("Backspace", KeyCode::Backspace),
    ("F1", KeyCode::F(1)),
];

/// Names of keys, for messages.
pub fn key_names() -> String {
    let named: Vec<&str> = KEYS
        .iter()
        .map(|(n, _)| *n)
        .filter(|n| *n != "F1")
        .collect();
    format!(
        "a character, {}, F1 to F12, Ctrl- and a letter",
        named.join(", ")
    )
}

impl Key {
    /// The key with this [`label`](Key::label); names in any case.
    pub fn parse(name: &str) -> Option<Self> {
        let plain = |code| Some(Self { code, ctrl: false });
        let mut chars = name.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            let drawn = unicode_width::UnicodeWidthChar::width(c) == Some(1) && !c.is_control();
            return if drawn { plain(KeyCode::Char(c)) } else { None };
        }
        if let Some((_, code)) = KEYS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
            return plain(*code);
        }
        if let Some(n) = name.strip_prefix(['F', 'f']) {
            let n = n.parse().ok().filter(|n| (1..=12u8).contains(n))?;
            return plain(KeyCode::F(n));
        }
        let letter = name
            .get(..5)
            .filter(|p| p.eq_ignore_ascii_case("ctrl-"))
            .and_then(|_| name.get(5..))?;
        let mut chars = letter.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) if c.is_ascii_alphabetic() => Some(Self {
                code: KeyCode::Char(c.to_ascii_lowercase()),
                ctrl: true,
            }),
            _ => None,
        }
    }
}

impl Keymap {
    /// The action with this name among those bound.
    pub fn named(&self, name: &str) -> Option<Action> {
        self.bindings
            .iter()
            .map(|b| b.action)
            .find(|a| a.name() == name)
    }

    /// Takes the keys from `action` and gives it `keys`.
    pub fn rebind(&mut self, action: Action, keys: Vec<Key>) {
        for binding in self.bindings.iter_mut().filter(|b| b.action == action) {
            binding.keys.clone_from(&keys);
        }
    }

    /// A key that two actions have, and those.
    pub fn conflict(&self) -> Option<(Key, Action, Action)> {
        let mut seen: Vec<(Key, Action)> = Vec::new();
        for binding in &self.bindings {
            for key in &binding.keys {
                match seen.iter().find(|(k, _)| k == key) {
                    Some((_, other)) if *other != binding.action => {
                        return Some((*key, *other, binding.action));
                    }
                    Some(_) => {}
                    None => seen.push((*key, binding.action)),
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_action_has_a_name_of_its_own() {
        let map = Keymap::default();
        let mut names: Vec<String> = Vec::new();
        for b in &map.bindings {
            let name = b.action.name();
            assert!(!names.contains(&name), "{name} twice");
            assert_eq!(map.named(&name), Some(b.action));
            names.push(name);
        }
    }

    #[test]
    fn labels_are_read_back() {
        for key in Keymap::default().bindings.into_iter().flat_map(|b| b.keys) {
            assert_eq!(Key::parse(&key.label()), Some(key), "{}", key.label());
        }
        for (name, code) in KEYS {
            let key = Key { code, ctrl: false };
            assert_eq!((Key::parse(name), key.label()), (Some(key), name.into()));
        }
        for bad in [
            "", "\u{1b}", "F0", "F13", "Ctrl-", "Ctrl-ab", "Ctrl-é", "Alt-x", "日",
        ] {
            assert_eq!(Key::parse(bad), None, "{bad}");
        }
        assert_eq!(Key::parse("ctrl-C"), Key::parse("Ctrl-c"));
    }

    #[test]
    fn the_default_keys_do_not_collide() {
        let mut map = Keymap::default();
        assert_eq!(map.conflict(), None);
        let quit = Key::parse("q").into_iter().collect();
        map.rebind(Action::Pause, quit);
        assert!(map.conflict().is_some());
    }

    proptest! {
        #[test]
        fn any_name_is_read_or_refused(name in ".{0,12}") {
            if let Some(key) = Key::parse(&name) {
                prop_assert_eq!(Key::parse(&key.label()), Some(key));
            }
        }
    }
}
