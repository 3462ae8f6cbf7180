//! The dashboard on a recording: its keys, and the bar that shows and changes where it stands.

use super::keymap::{Action, Binding, Group, Key, Keymap};
use super::layout::Mode;
use super::panels::chrome;
use super::state::{App, Overlay};
use super::text::width;
use crate::session::snapshot::{Playback, Scrub};
use crossterm::event::{KeyCode, MouseButton, MouseEvent, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use std::time::Duration;

/// Said when a key asks for what only a running session can do.
pub const NO_SESSION: &str = "this is a recording: nothing runs that could obey";
/// From this width on the bar shares the status line with the verdict.
const SHARED: u16 = 100;
/// Narrower than this a bar says nothing.
const LEAST: u16 = 8;

/// Whether an action is one of a running session.
fn needs_session(action: Action) -> bool {
    matches!(
        action,
        Action::Pause
            | Action::StepToken
            | Action::StepLayer
            | Action::Restart
            | Action::EditPrompt
            | Action::ResetStats
            | Action::Freeze
            | Action::Apply
            | Action::Undo
            | Action::TryAll
            | Action::Bandit
            | Action::TraceLine
            | Action::TracePrompt
            | Action::FollowTrace
            | Action::KeepTrace
            | Action::SwitchTracer
            | Action::SwitchTracers
            | Action::MeasureError
    )
}

/// What scrubs, with the keys for it: `(action, keys, short, help)`.
fn scrubs() -> [(Scrub, Vec<KeyCode>, Option<&'static str>, &'static str); 9] {
    use KeyCode as K;
    let ch = K::Char;
    [
        (Scrub::Toggle, vec![ch(' ')], Some("play"), "play, or pause"),
        (
            Scrub::Frames(-1),
            vec![K::Left, ch(',')],
            Some("back"),
            "one frame back",
        ),
        (
            Scrub::Frames(1),
            vec![K::Right, ch('.')],
            Some("on"),
            "one frame on",
        ),
        (
            Scrub::Seconds(-10),
            vec![ch('['), K::PageUp],
            Some("-10 s"),
            "ten seconds back",
        ),
        (
            Scrub::Seconds(10),
            vec![ch(']'), K::PageDown],
            Some("+10 s"),
            "ten seconds on",
        ),
        (
            Scrub::First,
            vec![K::Home],
            None,
            "to the recording's start",
        ),
        (Scrub::Last, vec![K::End], None, "to the recording's end"),
        (
            Scrub::Slower,
            vec![ch('<'), ch('-')],
            Some("slower"),
            "half as fast (to a quarter)",
        ),
        (
            Scrub::Faster,
            vec![ch('>'), ch('+')],
            Some("faster"),
            "twice as fast (to sixteen times)",
        ),
    ]
}

impl Keymap {
    /// These keys for a recording: scrubbing takes the keys it needs from what has others too, and whatever needs a running
    /// session only says that there is none.
    pub fn for_replay(self) -> Self {
        let (refused, mut rest): (Vec<Binding>, Vec<Binding>) = self
            .bindings
            .into_iter()
            .partition(|b| needs_session(b.action));
        let mut refused: Vec<Key> = refused.into_iter().flat_map(|b| b.keys).collect();
        let mut bindings = Vec::new();
        for (scrub, codes, short, help) in scrubs() {
            let keys: Vec<Key> = codes
                .into_iter()
                .map(|code| Key { code, ctrl: false })
                .filter(|key| give(&mut rest, *key))
                .collect();
            refused.retain(|k| !keys.contains(k));
            if !keys.is_empty() {
                bindings.push(Binding {
                    action: Action::Scrub(scrub),
                    keys,
                    help,
                    short,
                    group: Group::Run,
                });
            }
        }
        bindings.extend(rest);
        if !refused.is_empty() {
            bindings.push(Binding {
                action: Action::NoSession,
                keys: refused,
                help: "not in a recording",
                short: None,
                group: Group::Program,
            });
        }
        Self { bindings }
    }
}

/// Takes `key` from whatever has it; `false` where that would be left without one.
fn give(bindings: &mut [Binding], key: Key) -> bool {
    match bindings.iter_mut().find(|b| b.keys.contains(&key)) {
        None => true,
        Some(owner) if owner.keys.len() > 1 => {
            owner.keys.retain(|k| *k != key);
            true
        }
        Some(_) => false,
    }
}

/// The status line's part for text, and the bar's: all of it where there is not room for both and nothing to say.
pub fn split(app: &App, status: Rect) -> (Rect, Rect) {
    let none = Rect { width: 0, ..status };
    if app.snapshot().playback.is_none() {
        return (status, none);
    }
    if status.width >= SHARED {
        let text = status.width / 2;
        let bar = Rect {
            x: status.x + text,
            width: status.width - text,
            ..status
        };
        return (
            Rect {
                width: text,
                ..status
            },
            bar,
        );
    }
    if app.notice.is_some() || app.message().is_some() {
        (status, none)
    } else {
        (none, status)
    }
}

/// The texts beside the bar.
fn sides(app: &App, playback: &Playback) -> (String, String) {
    let [play, pause, ..] = app.theme.glyphs.state;
    let total = clock(playback.total);
    let at = clock(playback.at);
    let left = format!(
        " {} {at:>columns$} ",
        if playback.playing { play } else { pause },
        columns = total.len()
    );
    let digits = playback.frames.to_string().len();
    let right = format!(
        " {total}  {}  frame {:>digits$}/{} ",
        playback.speed,
        playback.frame + 1,
        playback.frames
    );
    (left, right)
}

/// Where the bar itself is in `area`; without width when there is no room.
fn track(area: Rect, left: &str, right: &str) -> Rect {
    let room = area
        .width
        .saturating_sub((width(left) + width(right)) as u16);
    Rect {
        x: area.x + width(left) as u16,
        width: if room < LEAST { 0 } else { room },
        ..area
    }
}

/// Draws the bar in `area`, as [`split`] gives it.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let Some(playback) = &app.snapshot().playback else {
        return;
    };
    let theme = &app.theme;
    let (left, right) = sides(app, playback);
    let track = track(area, &left, &right);
    let mut spans = vec![Span::styled(left, theme.accent)];
    spans.extend(chrome::bar(
        playback.share(),
        track.width.into(),
        &theme.glyphs,
        theme.accent,
        theme.dim,
    ));
    spans.push(Span::styled(right, theme.dim));
    chrome::put(&Line::from(spans), area, buf);
}

/// For the header: that this is a recording, and where it stands if there is no bar.
pub fn badge(app: &App) -> Option<Span<'static>> {
    let playback = app.snapshot().playback?;
    let dot = app.theme.glyphs.dot;
    let text = if app.layout().mode == Mode::Full {
        format!(" recording {dot}")
    } else {
        // There is no bar, and little room.
        format!(" rec {} {dot}", clock(playback.at))
    };
    Some(Span::styled(text, app.theme.accent))
}

/// Where a click on the bar leads to.
pub fn mouse(app: &App, mouse: MouseEvent) -> Option<Scrub> {
    let pressed = mouse.kind == MouseEventKind::Down(MouseButton::Left);
    let playback = app.snapshot().playback.filter(|_| pressed)?;
    let (_, area) = split(app, app.layout().status);
    let (left, right) = sides(app, &playback);
    let track = track(area, &left, &right);
    let at = Position::new(mouse.column, mouse.row);
    if app.overlay != Overlay::None || !track.contains(at) {
        return None;
    }
    let share = f64::from(at.x - track.x) / f64::from(track.width.saturating_sub(1).max(1));
    let millis = playback.total.as_secs_f64() * share * 1e3;
    Some(Scrub::Millis(millis.round() as u64))
}

/// `m:ss.t`, from an hour on `h:mm:ss`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}.{}", time.subsec_millis() / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headless::text::draw;
    use crate::session::snapshot::{Command, Snapshot, Speed};
    use crate::tui::Options;
    use crate::tui::fixture::{decode, measured};
    use crate::tui::state::Panel;
    use crate::tui::update::{Message, update};
    use crossterm::event::{KeyEvent, KeyModifiers};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn app(columns: u16, rows: u16) -> App {
        let mut snapshot = decode(120);
        snapshot.playback = Some(Playback {
            frame: 122,
            frames: 600,
            at: Duration::from_millis(12_345),
            total: Duration::from_secs(60),
            playing: true,
            speed: Speed::default().faster(),
        });
        Options::default().app(Arc::new(snapshot), Rect::new(0, 0, columns, rows))
    }

    fn press(app: &mut App, code: KeyCode) -> Vec<Command> {
        update(app, Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    #[test]
    fn the_bar_and_the_badge_show_where_it_stands() {
        let screen = draw(&app(120, 40), 120, 40);
        let status = screen.lines().nth(38).expect("a status line");
        assert!(status.contains("0:12.3 "), "{status}");
        assert!(
            status.trim_end().ends_with("1:00.0  2x  frame 123/600"),
            "{status}"
        );
        assert!(
            status.contains('█') && status.contains("Memory traffic"),
            "{status}"
        );
        for (w, h) in [(120, 40), (80, 24), (60, 15), (45, 12), (30, 6)] {
            let screen = draw(&app(w, h), w, h);
            assert!(screen.contains("0:12.3"), "{w}x{h}\n{screen}");
            assert!(w == 60 || screen.contains("rec"), "{w}x{h}\n{screen}");
        }
        let narrow = draw(&app(80, 24), 80, 24);
        assert!(narrow.contains("frame 123/600"), "{narrow}");
    }

    #[test]
    fn every_scrub_has_its_keys_and_no_key_is_bound_twice() {
        let map = Keymap::default().for_replay();
        let mut seen: Vec<Key> = Vec::new();
        for key in map.bindings.iter().flat_map(|b| &b.keys) {
            assert!(!seen.contains(key), "{} is bound twice", key.label());
            seen.push(*key);
        }
        let mut a = app(120, 40);
        for (code, scrub) in [
            (KeyCode::Char(' '), Scrub::Toggle),
            (KeyCode::Left, Scrub::Frames(-1)),
            (KeyCode::Char('.'), Scrub::Frames(1)),
            (KeyCode::PageUp, Scrub::Seconds(-10)),
            (KeyCode::Char(']'), Scrub::Seconds(10)),
            (KeyCode::Home, Scrub::First),
            (KeyCode::End, Scrub::Last),
            (KeyCode::Char('<'), Scrub::Slower),
            (KeyCode::Char('>'), Scrub::Faster),
        ] {
            assert_eq!(press(&mut a, code), [Command::Scrub(scrub)], "{code:?}");
        }
        // What moves within panels keeps a key.
        for action in [
            Action::MoveSide(1),
            Action::Page(1),
            Action::First,
            Action::Last,
        ] {
            assert!(map.label(action).is_some(), "{action:?}");
        }
    }

    #[test]
    fn commands_to_a_session_say_that_this_is_a_recording() {
        for c in ['a', 'u', 'p', 'r', 'n', 'N', 'c', 'f'] {
            let mut a = app(80, 24);
            assert_eq!(press(&mut a, KeyCode::Char(c)), [], "{c}");
            assert_eq!(a.notice.as_deref(), Some(NO_SESSION), "{c}");
            assert!(draw(&a, 80, 24).contains(NO_SESSION), "{c}");
            assert!(!a.frozen() && a.overlay == Overlay::None);
        }
        let mut a = app(80, 24);
        assert_eq!(update(&mut a, Message::Paste("text".into())), []);
        assert_eq!(a.notice.as_deref(), Some(NO_SESSION));
    }

    #[test]
    fn a_click_on_the_bar_jumps_there() {
        for (w, h) in [(120, 40), (80, 24)] {
            let mut a = app(w, h);
            let row = a.layout().status.y;
            let hits: Vec<u64> = (0..w)
                .filter_map(|column| {
                    let event = MouseEvent {
                        kind: MouseEventKind::Down(MouseButton::Left),
                        column,
                        row,
                        modifiers: KeyModifiers::NONE,
                    };
                    match update(&mut a, Message::Mouse(event)).as_slice() {
                        [Command::Scrub(Scrub::Millis(ms))] => Some(*ms),
                        _ => None,
                    }
                })
                .collect();
            assert_eq!((hits.first(), hits.last()), (Some(&0), Some(&60_000)));
            assert!(hits.len() >= 8 && hits.is_sorted());
        }
    }

    #[test]
    fn help_shows_the_keys_of_a_recording() {
        let mut a = app(200, 60);
        press(&mut a, KeyCode::Char('?'));
        let screen = draw(&a, 200, 60);
        for words in ["play, or pause", "ten seconds back", "not in a recording"] {
            assert!(screen.contains(words), "{words}\n{screen}");
        }
        for words in [
            "While typing a prompt",
            "run one token",
            "apply the selected",
        ] {
            assert!(!screen.contains(words), "{words}");
        }
    }

    #[test]
    fn nothing_names_a_key_that_is_not_there() {
        for mut snapshot in [decode(120), measured()] {
            snapshot.playback = app(120, 40).snapshot().playback;
            snapshot.state = crate::session::snapshot::RunState::Finished {
                reason: "token limit".into(),
            };
            snapshot.message = None;
            let mut a = Options::default().app(Arc::new(snapshot), Rect::new(0, 0, 120, 40));
            press(&mut a, KeyCode::Char('5'));
            let screen = draw(&a, 120, 40);
            for words in ["applies it", "undoes it", "runs it again"] {
                assert!(!screen.contains(words), "{words}\n{screen}");
            }
        }
    }

    #[test]
    fn long_times_have_hours() {
        assert_eq!(clock(Duration::from_millis(59_999)), "0:59.9");
        assert_eq!(clock(Duration::from_secs(3_661)), "1:01:01");
    }

    /// Puts `with` in the place of leaf `at` of `value`; `false` when there are not so many.
    fn replace(value: &mut Value, at: &mut usize, with: &Value) -> bool {
        match value {
            Value::Array(items) if !items.is_empty() => {
                items.iter_mut().any(|v| replace(v, at, with))
            }
            Value::Object(fields) => fields.values_mut().any(|v| replace(v, at, with)),
            leaf if *at == 0 => {
                *leaf = with.clone();
                true
            }
            _ => {
                *at -= 1;
                false
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_recording_that_lies_does_not_break_the_view(
            lies in prop::collection::vec((any::<prop::sample::Index>(), 0usize..60, 0usize..8), 1..6), panel in 0usize..14,
        ) {
            let mut json = serde_json::to_value(decode(30)).unwrap();
            let with = [
                json!(0), json!(-1), json!(u32::MAX), json!(u64::MAX), json!(1e300), json!(null), json!([]), json!("\u{1b}[2J"),
            ];
            for (field, mut leaf, what) in lies {
                let fields = json.as_object_mut().unwrap();
                let i = field.index(fields.len());
                if let Some(value) = fields.values_mut().nth(i) {
                    replace(value, &mut leaf, &with[what]);
                }
            }
            // What is no snapshot is refused by the reader.
            if let Ok(snapshot) = serde_json::from_value::<Snapshot>(json) {
                let mut a = Options::default().app(Arc::new(snapshot), Rect::new(0, 0, 120, 40));
                a.focus = Panel::ALL[panel];
                draw(&a, 120, 40);
                a.zoomed = true;
                draw(&a, 120, 40);
            }
        }
    }
}
