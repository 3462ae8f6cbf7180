//! Keys as data: which key does what, in which words. The help window, the footer and the dispatch all read this table.

use crate::session::snapshot::Scrub;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Pause or go on.
    Pause,
    /// Run one token, then pause.
    StepToken,
    /// Run one layer, then pause.
    StepLayer,
    /// Run the prompt again.
    Restart,
    /// Open the prompt editor.
    EditPrompt,
    /// Clear statistics.
    ResetStats,
    /// Apply the selected recommendation.
    Apply,
    /// Undo the last applied recommendation.
    Undo,
    /// Try all open recommendations one by one, or stop.
    TryAll,
    /// The bandit over kernel variants on or off.
    Bandit,
    /// Focus the next panel.
    FocusNext,
    /// Focus the previous panel.
    FocusPrevious,
    /// Focus the panel with this index, from 0.
    Focus(u8),
    /// Show the focused panel full screen, or go back.
    Zoom,
    /// Close what is open: help, zoom, message.
    Back,
    /// Move the cursor or scroll by this many rows.
    Move(i16),
    /// Move sideways: the layer cursor, the timeline, folding of the tree.
    MoveSide(i16),
    /// Magnify (1) or shrink (-1) what the focused panel draws to scale.
    Magnify(i16),
    /// One page up (-1) or down (1).
    Page(i16),
    /// First row.
    First,
    /// Last row; text follows its end again.
    Last,
    /// Sort by the next column.
    SortNext,
    /// Reverse the sort order.
    SortReverse,
    /// Brick table of decode steps or of prefill chunks.
    Phase,
    /// Stop or go on taking snapshots, while generation goes on.
    Freeze,
    /// Open the line for statements of the TRACE language.
    TraceLine,
    /// Trace the prompt of the run.
    TracePrompt,
    /// To the layer that decided the answer.
    JumpPhase,
    /// The next of the answers followed.
    NextAnswer,
    /// The layers of the trace, or the map of activation patching; of the attention tracer the heads, or one of them.
    TraceMap,
    /// Trace generated tokens as they come, or no longer.
    FollowTrace,
    /// Keep the trace beside the next ones, or no longer.
    KeepTrace,
    /// The view of the tracer before (-1) or after (1).
    TracerView(i16),
    /// Switch the tracer shown on or off.
    SwitchTracer,
    /// Switch all tracers on, or off where all are on.
    SwitchTracers,
    /// Measure the quantisation error of the whole model, or stop.
    MeasureError,
    /// Change to the next theme.
    Theme,
    /// Open or close help.
    Help,
    /// Suspend to the shell.
    Suspend,
    /// Move within a recording.
    Scrub(Scrub),
    /// Say that a recording runs nothing: what the keys of a session do there.
    NoSession,
    /// Leave.
    Quit,
}

/// A key with its modifiers. For characters the case carries Shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub code: KeyCode,
    /// Whether Ctrl is held.
    pub ctrl: bool,
}

impl Key {
    /// Whether `event` is this key.
    pub fn matches(self, event: &KeyEvent) -> bool {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        let alt = event
            .modifiers
            .intersects(KeyModifiers::ALT | KeyModifiers::SUPER | KeyModifiers::META);
        // Terminals differ in whether Shift-Tab is BackTab or Tab with a modifier.
        let code = match event.code {
            KeyCode::Tab if event.modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
            code => code,
        };
        code == self.code && ctrl == self.ctrl && !alt
    }

    /// The event a terminal sends for this key.
    pub fn event(self) -> KeyEvent {
        KeyEvent::new(
            self.code,
            if self.ctrl {
                KeyModifiers::CONTROL
            } else {
                KeyModifiers::NONE
            },
        )
    }

    /// Name for help and footer.
    pub fn label(self) -> String {
        let name = match self.code {
            KeyCode::Char(' ') => "Space".into(),
            KeyCode::Char(c) if self.ctrl => c.to_uppercase().to_string(),
            KeyCode::Char(c) => c.to_string(),
            KeyCode::F(n) => format!("F{n}"),
            KeyCode::BackTab => "Shift-Tab".into(),
            KeyCode::Esc => "Esc".into(),
            KeyCode::PageUp => "PgUp".into(),
            KeyCode::PageDown => "PgDn".into(),
            code => format!("{code:?}"),
        };
        if self.ctrl {
            format!("Ctrl-{name}")
        } else {
            name
        }
    }
}

/// Headings of the help window, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Controlling the run.
    Run,
    /// Panels.
    Panels,
    /// Moving and sorting.
    Move,
    /// The residual trace.
    Trace,
    /// The tracers.
    Model,
    /// Recommendations.
    Advice,
    /// The program.
    Program,
}

impl Group {
    /// All groups, in the order of the help window.
    pub const ALL: [Group; 7] = [
        Group::Run,
        Group::Panels,
        Group::Move,
        Group::Trace,
        Group::Model,
        Group::Advice,
        Group::Program,
    ];

    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Panels => "Panels",
            Self::Move => "Move and sort",
            Self::Trace => "Residual trace",
            Self::Model => "Model tracer",
            Self::Advice => "Recommendations",
            Self::Program => "Program",
        }
    }
}

/// One line of the keymap: any of `keys` does `action`.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// What it does.
    pub action: Action,
    /// Keys that do it; the first is shown in the footer.
    pub keys: Vec<Key>,
    /// What it does, in words, for help.
    pub help: &'static str,
    /// One word for the footer; `None` keeps it out of there.
    pub short: Option<&'static str>,
    /// Heading in help.
    pub group: Group,
}

/// All bindings.
#[derive(Debug, Clone, PartialEq)]
pub struct Keymap {
    /// In the order of help and footer.
    pub bindings: Vec<Binding>,
}

impl Keymap {
    /// What `event` does, if anything.
    pub fn action(&self, event: &KeyEvent) -> Option<Action> {
        self.bindings
            .iter()
            .find(|b| b.keys.iter().any(|k| k.matches(event)))
            .map(|b| b.action)
    }

    /// Label of the first key bound to `action`.
    pub fn label(&self, action: Action) -> Option<String> {
        self.bindings
            .iter()
            .find(|b| b.action == action)?
            .keys
            .first()
            .map(|k| k.label())
    }
}

impl Default for Keymap {
    fn default() -> Self {
        use Action as A;
        use Group as G;
        let ch = |c| Key {
            code: KeyCode::Char(c),
            ctrl: false,
        };
        let ctrl = |c| Key {
            code: KeyCode::Char(c),
            ctrl: true,
        };
        let key = |code| Key { code, ctrl: false };
        let bind = |action, keys: &[Key], short, group, help| Binding {
            action,
            keys: keys.to_vec(),
            help,
            short,
            group,
        };
        let mut bindings = vec![
            bind(
                A::Pause,
                &[ch(' ')],
                Some("pause"),
                G::Run,
                "pause, or go on",
            ),
            bind(
                A::StepToken,
                &[ch('n'), ch('s')],
                Some("token"),
                G::Run,
                "run one token, then pause",
            ),
            bind(
                A::StepLayer,
                &[ch('N')],
                Some("layer"),
                G::Run,
                "run one layer, pause inside the token",
            ),
            bind(
                A::EditPrompt,
                &[ch('p'), ch('i')],
                Some("prompt"),
                G::Run,
                "type a new prompt",
            ),
            bind(
                A::Restart,
                &[ch('r')],
                Some("restart"),
                G::Run,
                "run the same prompt again",
            ),
            bind(
                A::ResetStats,
                &[ch('c')],
                None,
                G::Run,
                "clear the statistics, keep generating",
            ),
            bind(
                A::Freeze,
                &[ch('f')],
                None,
                G::Run,
                "freeze the display, keep generating",
            ),
            bind(
                A::Apply,
                &[ch('a')],
                Some("apply"),
                G::Advice,
                "show the change, then apply it",
            ),
            bind(
                A::Undo,
                &[ch('u')],
                Some("undo"),
                G::Advice,
                "undo the last one applied",
            ),
            bind(
                A::TryAll,
                &[ch('A')],
                Some("try all"),
                G::Advice,
                "try all one by one, or stop",
            ),
            bind(
                A::Bandit,
                &[ch('B')],
                Some("bandit"),
                G::Advice,
                "bandit over kernels on or off",
            ),
            bind(
                A::Zoom,
                &[ch('z'), key(KeyCode::Enter)],
                Some("zoom"),
                G::Panels,
                "focused panel full screen, or back",
            ),
            bind(
                A::SortNext,
                &[ch('o')],
                Some("sort"),
                G::Move,
                "sort by the next column",
            ),
            bind(
                A::SortReverse,
                &[ch('O')],
                None,
                G::Move,
                "reverse the sort order",
            ),
            bind(
                A::Phase,
                &[ch('d')],
                None,
                G::Move,
                "brick table of decode or of prefill",
            ),
            bind(
                A::FocusNext,
                &[key(KeyCode::Tab)],
                None,
                G::Panels,
                "focus the next panel",
            ),
            bind(
                A::FocusPrevious,
                &[key(KeyCode::BackTab)],
                None,
                G::Panels,
                "focus the previous panel",
            ),
        ];
        for panel in super::state::Panel::ALL {
            bindings.push(bind(
                A::Focus(panel.index() as u8),
                &[ch(panel.key())],
                None,
                G::Panels,
                panel.help(),
            ));
        }
        bindings.extend([
            bind(
                A::Back,
                &[key(KeyCode::Esc)],
                None,
                G::Panels,
                "close help, zoom or message",
            ),
            bind(
                A::Move(-1),
                &[ch('k'), key(KeyCode::Up)],
                None,
                G::Move,
                "up",
            ),
            bind(
                A::Move(1),
                &[ch('j'), key(KeyCode::Down)],
                None,
                G::Move,
                "down",
            ),
            bind(
                A::MoveSide(-1),
                &[ch('h'), key(KeyCode::Left)],
                None,
                G::Move,
                "left: layer, position, pan, fold",
            ),
            bind(
                A::MoveSide(1),
                &[ch('l'), key(KeyCode::Right)],
                None,
                G::Move,
                "right: layer, position, pan, unfold",
            ),
            bind(
                A::Magnify(1),
                &[ch('+'), ch('=')],
                None,
                G::Move,
                "magnify; heat by the hottest cell",
            ),
            bind(
                A::Magnify(-1),
                &[ch('-')],
                None,
                G::Move,
                "shrink; heat by the brick's mean",
            ),
            bind(
                A::Page(-1),
                &[key(KeyCode::PageUp), ctrl('b')],
                None,
                G::Move,
                "one page up; timeline: lane up",
            ),
            bind(
                A::Page(1),
                &[key(KeyCode::PageDown), ctrl('f')],
                None,
                G::Move,
                "one page down; timeline: lane down",
            ),
            bind(
                A::First,
                &[ch('g'), key(KeyCode::Home)],
                None,
                G::Move,
                "to the start",
            ),
            bind(
                A::Last,
                &[ch('G'), key(KeyCode::End)],
                None,
                G::Move,
                "to the end (the text follows again)",
            ),
            bind(
                A::TraceLine,
                &[ch(':')],
                Some("line"),
                G::Trace,
                "type a statement: TRACE, PATCH, ...",
            ),
            bind(
                A::TracePrompt,
                &[ch('P')],
                Some("trace"),
                G::Trace,
                "trace the prompt of the run",
            ),
            bind(
                A::JumpPhase,
                &[ch('J')],
                Some("jump"),
                G::Trace,
                "to the layer that decided the answer",
            ),
            bind(
                A::TraceMap,
                &[ch('m')],
                Some("map"),
                G::Trace,
                "map: patching; head: query by key",
            ),
            bind(
                A::NextAnswer,
                &[ch('w')],
                Some("answer"),
                G::Trace,
                "next of the answers followed",
            ),
            bind(
                A::KeepTrace,
                &[ch('K')],
                Some("beside"),
                G::Trace,
                "keep the trace beside the next",
            ),
            bind(
                A::FollowTrace,
                &[ch('F')],
                Some("follow"),
                G::Trace,
                "trace tokens as they come, or stop",
            ),
            bind(
                A::TracerView(-1),
                &[ch('['), ch('{')],
                None,
                G::Model,
                "previous view",
            ),
            bind(
                A::TracerView(1),
                &[ch(']'), ch('}')],
                Some("next view"),
                G::Model,
                "next view",
            ),
            bind(
                A::SwitchTracer,
                &[ch('x')],
                Some("on/off"),
                G::Model,
                "tracer of this view on or off",
            ),
            bind(
                A::SwitchTracers,
                &[ch('X')],
                Some("all"),
                G::Model,
                "all tracers on or off",
            ),
            bind(
                A::MeasureError,
                &[ch('E')],
                Some("measure"),
                G::Model,
                "measure the whole model, or stop",
            ),
            bind(A::Theme, &[ch('T')], None, G::Program, "next colour theme"),
            bind(
                A::Help,
                &[ch('?'), key(KeyCode::F(1))],
                Some("help"),
                G::Program,
                "this help",
            ),
            bind(
                A::Quit,
                &[ch('q'), ctrl('c')],
                Some("quit"),
                G::Program,
                "quit",
            ),
        ]);
        if cfg!(unix) {
            bindings.push(bind(
                A::Suspend,
                &[ctrl('z')],
                None,
                G::Program,
                "suspend to the shell (fg comes back)",
            ));
        }
        Self { bindings }
    }
}

#[cfg(test)]
mod tests;
