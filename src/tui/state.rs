//! What the dashboard knows: the snapshot it shows and where the user is in it.

use super::columns::{Phase, Sort};
use super::editor::{Editor, Purpose};
use super::keymap::{Action, Keymap};
use super::layout::{Inputs, Layout};
use super::own::Own;
use super::panels::advice::confirm::Question;
use super::theme::Theme;
use crate::model::brick::BrickId;
use crate::session::snapshot::{
    AsyncTask, BrickRow, Message, Recommendation, RunState, Snapshot, TracerKind,
};
use ratatui::layout::Rect;
use std::sync::Arc;
use std::time::Duration;

/// The panels, in the order of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Panel {
    /// Time per brick.
    Bricks,
    /// Time per layer, or layer by brick.
    Layers,
    /// Prompt and generated text.
    Text,
    /// What bounds a step.
    Path,
    /// Recommendations.
    Advice,
    /// Memory and page faults.
    Memory,
    /// The last step thread by thread, and the newest tokens.
    Timeline,
    /// Roofs of the machine and the bricks under them.
    Roofline,
    /// What the processor and the system count.
    Counters,
    /// Times of tokens.
    Latency,
    /// The execution tree of a step.
    Tree,
    /// How an answer forms in the residual stream.
    Trace,
    /// What the tracers find: activations, attention, logits, quantisation error, kv cache.
    Model,
    /// The dashboard's own event loop.
    Debug,
}

impl Panel {
    /// All panels, in the order of their keys and of Tab.
    pub const ALL: [Panel; 14] = [
        Panel::Bricks,
        Panel::Layers,
        Panel::Text,
        Panel::Path,
        Panel::Advice,
        Panel::Memory,
        Panel::Timeline,
        Panel::Roofline,
        Panel::Counters,
        Panel::Latency,
        Panel::Tree,
        Panel::Trace,
        Panel::Model,
        Panel::Debug,
    ];

    /// Title of the panel.
    pub fn title(self) -> &'static str {
        match self {
            Self::Bricks => "bricks",
            Self::Layers => "layers",
            Self::Text => "text",
            Self::Path => "critical path",
            Self::Advice => "recommendations",
            Self::Memory => "memory",
            Self::Timeline => "timeline",
            Self::Roofline => "roofline",
            Self::Counters => "counters",
            Self::Latency => "token latency",
            Self::Tree => "execution tree",
            Self::Trace => "residual trace",
            Self::Model => "model tracer",
            Self::Debug => "cbtop itself",
        }
    }

    /// One word for the tab line.
    pub fn short(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Advice => "tune",
            Self::Memory => "mem",
            Self::Counters => "perf",
            Self::Timeline => "time",
            Self::Roofline => "roof",
            Self::Latency => "lat",
            Self::Tree => "tree",
            Self::Trace => "trace",
            Self::Model => "model",
            Self::Debug => "debug",
            other => other.title(),
        }
    }

    /// What its key does, for help.
    pub fn help(self) -> &'static str {
        match self {
            Self::Bricks => "bricks: time of every operation",
            Self::Layers => "layers: time of every layer",
            Self::Text => "text: prompt and what is generated",
            Self::Path => "critical path: what bounds a step",
            Self::Advice => "recommendations: what to change",
            Self::Memory => "memory, page faults, switches",
            Self::Timeline => "timeline: a step thread by thread",
            Self::Roofline => "roofline: how near the machine's peak",
            Self::Counters => "counters of processor and system",
            Self::Latency => "token latency: histogram, percentiles",
            Self::Tree => "execution tree of a step",
            Self::Trace => "residual trace: how the answer forms",
            Self::Model => "model tracer: what the model computes",
            Self::Debug => "cbtop itself: its event loop and cost",
        }
    }

    /// The key that focuses it.
    pub fn key(self) -> char {
        match self {
            Self::Bricks => '1',
            Self::Layers => '2',
            Self::Text => '3',
            Self::Path => '4',
            Self::Advice => '5',
            Self::Memory => '6',
            Self::Timeline => '7',
            Self::Roofline => '8',
            Self::Counters => '9',
            Self::Latency => '0',
            Self::Tree => 't',
            Self::Trace => 'R',
            Self::Model => 'M',
            Self::Debug => 'D',
        }
    }

    /// Its place in [`Self::ALL`], from 0.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What lies over the panels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys, scrolled down by so many lines.
    Help(u16),
    /// A text being typed.
    Edit(Purpose, Editor),
    /// A change is shown before it is made.
    Confirm(Question),
}

/// A non-error message of the session gives way to the verdict after this many snapshots.
const MESSAGE_SNAPSHOTS: u64 = 150;

/// The dashboard's state. [`super::update::update`] changes it, [`super::view::view`] draws it.
#[derive(Debug, Clone)]
pub struct App {
    /// Colours and glyphs.
    pub theme: Theme,
    /// Keys.
    pub keymap: Keymap,
    /// The screen.
    pub area: Rect,
    /// The panel that keys act on.
    pub focus: Panel,
    /// Whether it fills the screen.
    pub zoomed: bool,
    /// Order of the brick table.
    pub sort: Sort,
    /// Which steps the brick table is about; `None` follows the run.
    pub phase: Option<Phase>,
    /// The brick under the cursor; `None` is the first row.
    pub brick_cursor: Option<BrickId>,
    /// Where the user is in the timeline, the heat map, the execution tree, the trace and the tracers' views.
    pub views: super::views::Views,
    /// The layer under the cursor.
    pub layer_cursor: Option<usize>,
    /// First line of the text shown; `None` follows the end.
    pub text_top: Option<usize>,
    /// Node of the critical path under the cursor.
    pub path_cursor: usize,
    /// Id of the recommendation under the cursor; `None` is the first.
    pub advice_cursor: Option<String>,
    /// Point of the roofline under the cursor.
    pub roof_cursor: usize,
    /// First line of the counters shown.
    pub counters_top: usize,
    /// First line of the panel about cbtop itself.
    pub debug_top: usize,
    /// Help or editor.
    pub overlay: Overlay,
    /// Statements typed in this session, newest last.
    pub statements: Vec<String>,
    /// A line from the dashboard itself about the last key.
    pub notice: Option<String>,
    /// Whether what is shown is saved as it comes.
    pub saving: bool,
    /// Set when the program should end.
    pub quit: bool,
    /// Set when the program should suspend to the shell.
    pub suspend: bool,
    /// The dashboard's own event loop: itself, its sources, drawing; empty before the first reading.
    pub own: Vec<AsyncTask>,
    /// Time between the newest two snapshots shown, to about 10 ms; known while the debug panel has the focus.
    pub frame_interval: Option<Duration>,
    shown: Arc<Snapshot>,
    newest: Arc<Snapshot>,
    frozen: bool,
    /// The message last seen and the sequence number it came with; `None` after it was dismissed.
    message: Option<(Message, u64)>,
}

impl App {
    /// A dashboard about `snapshot` on a screen of `area`.
    pub fn new(snapshot: Arc<Snapshot>, area: Rect, theme: Theme) -> Self {
        let message = snapshot.message.clone().map(|m| (m, snapshot.seq));
        let mut views = super::views::Views::default();
        views.trace.follow(None, snapshot.trace.as_deref());
        // The pane opens on something that is on.
        let on = snapshot.tracer.as_deref().map(|t| t.on);
        let first = TracerKind::ALL
            .into_iter()
            .find(|k| on.is_some_and(|on| on.has(*k)));
        views.model.view = first.unwrap_or(views.model.view);
        Self {
            theme,
            keymap: if snapshot.playback.is_some() {
                Keymap::default().for_replay()
            } else {
                Keymap::default()
            },
            area,
            focus: Panel::Bricks,
            zoomed: false,
            sort: Sort::default(),
            phase: None,
            brick_cursor: None,
            views,
            layer_cursor: None,
            text_top: None,
            path_cursor: 0,
            advice_cursor: None,
            roof_cursor: 0,
            counters_top: 0,
            debug_top: 0,
            overlay: Overlay::None,
            statements: Vec::new(),
            notice: None,
            saving: false,
            quit: false,
            suspend: false,
            own: Vec::new(),
            frame_interval: None,
            shown: snapshot.clone(),
            newest: snapshot,
            frozen: false,
            message,
        }
    }

    /// What is shown.
    pub fn snapshot(&self) -> &Snapshot {
        &self.shown
    }

    /// Takes a new snapshot; while frozen it is kept for later. Returns whether the display changes.
    pub fn take(&mut self, snapshot: Arc<Snapshot>) -> bool {
        self.newest = snapshot;
        if !self.frozen {
            self.show_newest();
        }
        !self.frozen
    }

    /// Takes new figures of the dashboard itself; a frozen display keeps those it has.
    pub fn take_own(&mut self, own: Own) {
        if !self.frozen {
            self.own = own.tasks;
            self.frame_interval = own.frame_interval;
        }
    }

    fn show_newest(&mut self) {
        let next = self.newest.clone();
        if next.message != self.shown.message {
            self.message = next.message.clone().map(|m| (m, next.seq));
            self.notice = None;
        }
        if next.prompt != self.shown.prompt || next.generated < self.shown.generated {
            self.text_top = None;
        }
        self.views
            .trace
            .follow(self.shown.trace.as_deref(), next.trace.as_deref());
        self.shown = next;
    }

    /// Whether the display is frozen.
    pub fn frozen(&self) -> bool {
        self.frozen
    }

    /// Freezes the display, or shows the newest snapshot again.
    pub fn toggle_freeze(&mut self) {
        self.frozen = !self.frozen;
        if !self.frozen {
            self.show_newest();
        }
    }

    /// The first key that focuses `panel`; empty where none does.
    pub fn panel_key(&self, panel: Panel) -> String {
        self.keymap
            .label(Action::Focus(panel.index() as u8))
            .unwrap_or_default()
    }

    /// The layout of the screen.
    pub fn layout(&self) -> Layout {
        self.layout_of(self.area)
    }

    /// The layout of a screen of `area`.
    pub fn layout_of(&self, area: Rect) -> Layout {
        // Room for a usual decoder from the start, so that the panels do not move when the first row arrives.
        let brick_rows = self.rows().len().clamp(16, 26) as u16;
        Layout::new(
            area,
            Inputs {
                focus: self.focus,
                zoomed: self.zoomed,
                brick_rows,
            },
        )
    }

    /// Which steps the brick table is about: the user's choice, else decode once there is any.
    pub fn phase(&self) -> Phase {
        self.phase.unwrap_or(
            if self.shown.bricks.is_empty() && !self.shown.prefill_bricks.is_empty() {
                Phase::Prefill
            } else {
                Phase::Decode
            },
        )
    }

    /// Rows of the brick table, in execution order.
    pub fn rows(&self) -> &[BrickRow] {
        match self.phase() {
            Phase::Decode => &self.shown.bricks,
            Phase::Prefill => &self.shown.prefill_bricks,
        }
    }

    /// The bricks under the roofs; they are of decode steps, so there are none in a table of prefill chunks.
    pub fn points(&self) -> &[crate::session::snapshot::RoofPoint] {
        match self.phase() {
            Phase::Decode => &self.shown.roofline.points,
            Phase::Prefill => &[],
        }
    }

    /// Rows of the brick table as sorted, and the index of the one under the cursor.
    pub fn sorted_rows(&self) -> (Vec<&BrickRow>, usize) {
        let rows = self.sort.apply(self.rows(), self.points());
        let at = self
            .brick_cursor
            .and_then(|id| rows.iter().position(|r| r.id == id))
            .unwrap_or(0);
        (rows, at)
    }

    /// Recommendations, the largest expected gain first, those of unknown gain last. What became of one does not move it.
    pub fn ranked_advice(&self) -> Vec<&Recommendation> {
        let mut all: Vec<&Recommendation> = self.shown.recommendations.iter().collect();
        let now = self.shown.rates.decode_mean_tok_s;
        all.sort_by(|a, b| b.worth(now).total_cmp(&a.worth(now)));
        all
    }

    /// The recommendation under the cursor and its index in [`Self::ranked_advice`].
    pub fn selected_advice(&self) -> Option<(usize, &Recommendation)> {
        let ranked = self.ranked_advice();
        let under = |r: &&Recommendation| Some(&r.id) == self.advice_cursor.as_ref();
        let at = ranked.iter().position(under).unwrap_or(0);
        ranked.get(at).map(|r| (at, *r))
    }

    /// Puts the cursor on the recommendation at `index` of [`Self::ranked_advice`].
    pub fn select_advice(&mut self, index: usize) {
        let id = self.ranked_advice().get(index).map(|r| r.id.clone());
        self.advice_cursor = id;
    }

    /// The message to show, if it is new enough; errors stay until dismissed.
    pub fn message(&self) -> Option<&Message> {
        let (message, since) = self.message.as_ref()?;
        let fresh = self.shown.seq.saturating_sub(*since) < MESSAGE_SNAPSHOTS;
        (message.is_error || fresh).then_some(message)
    }

    /// Takes the message away. Returns whether there was one.
    pub fn dismiss(&mut self) -> bool {
        let shown = self.message().is_some() || self.notice.is_some();
        self.message = None;
        self.notice = None;
        shown
    }

    /// Whether the run has ended, well or not.
    pub fn ended(&self) -> bool {
        matches!(
            self.shown.state,
            RunState::Finished { .. } | RunState::Failed { .. }
        )
    }
}
