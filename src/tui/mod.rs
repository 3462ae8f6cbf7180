//! The dashboard: state, update, view.
//!
//! - [`state`]: what is shown and where the user is in it
//! - [`update`]: messages change the state and give commands; pure
//! - [`view`]: the state drawn on a frame; pure; [`panels`] holds one widget a file
//! - [`views`]: where the user is in the panels drawn to scale or as a tree
//! - [`layout`]: where everything is, shared by drawing and mouse
//! - [`keymap`], [`theme`]: keys, colours and glyphs as data; [`config`] reads the user's choice of them
//! - [`own`]: what the dashboard's event loop costs
//! - [`replay`]: the keys and the bar of a recording
//! - [`event_loop`], [`terminal`]: the only parts that touch a terminal

pub mod columns;
pub mod config;
pub mod editor;
pub mod event_loop;
pub mod format;
pub mod keymap;
pub mod layout;
pub mod names;
pub mod own;
pub mod palette;
pub mod panels;
pub mod replay;
pub mod state;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod update;
pub mod view;
pub mod views;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use event_loop::run;

use crate::session::snapshot::Snapshot;
use columns::Sort;
use keymap::Keymap;
use ratatui::layout::Rect;
use state::{App, Panel};
use std::sync::Arc;
use std::time::Duration;
use theme::{Depth, Theme, ThemeName};

/// How the dashboard starts and draws.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Start with the recommendations focused.
    pub recommend: bool,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// Colours.
    pub theme: ThemeName,
    /// How many colours the terminal shows.
    pub depth: Depth,
    /// The panel focused at the start.
    pub focus: Panel,
    /// Whether it fills the screen at the start.
    pub zoomed: bool,
    /// Order of the brick table.
    pub sort: Sort,
    /// Frames a second while the model runs.
    pub frame_rate: u32,
    /// Keys.
    pub keymap: Keymap,
    /// Whether what is shown is saved as it comes.
    pub saving: bool,
}

/// Frames a second while the model runs: drawing takes its time from the cores that generate.
pub const FRAME_RATE: u32 = 8;

impl Default for Options {
    fn default() -> Self {
        Self {
            recommend: false,
            ascii: false,
            theme: ThemeName::default(),
            depth: Depth::default(),
            focus: Panel::Bricks,
            zoomed: false,
            sort: Sort::default(),
            frame_rate: FRAME_RATE,
            keymap: Keymap::default(),
            saving: false,
        }
    }
}

impl Options {
    /// Defaults for this process's environment: ASCII unless the locale is UTF-8, no colour with `NO_COLOR` set or
    /// `TERM=dumb`.
    pub fn from_env() -> Self {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    /// [`Self::from_env`] with the environment variables that `var` gives.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Self {
        let theme = if no_colour(&var) {
            ThemeName::None
        } else {
            ThemeName::default()
        };
        Self {
            ascii: !theme::locale_is_utf8(&var),
            theme,
            depth: Depth::from_env(&var),
            ..Self::default()
        }
    }

    /// Time between two frames while the model runs.
    pub fn frame_gap(&self) -> Duration {
        Duration::from_secs(1) / self.frame_rate.max(1)
    }

    /// A dashboard that starts with `snapshot` on a screen of `area`.
    pub fn app(&self, snapshot: Arc<Snapshot>, area: Rect) -> App {
        let theme = Theme::named(self.theme, self.depth, self.ascii);
        let mut app = App::new(snapshot, area, theme);
        app.focus = self.focus;
        app.zoomed = self.zoomed;
        app.sort = self.sort;
        app.saving = self.saving;
        app.keymap = if app.snapshot().playback.is_some() {
            self.keymap.clone().for_replay()
        } else {
            self.keymap.clone()
        };
        if self.recommend {
            app.focus = Panel::Advice;
        }
        app
    }
}

/// Whether the environment asks for no colour (<https://no-color.org>) or the terminal has none.
pub fn no_colour(var: impl Fn(&str) -> Option<String>) -> bool {
    var("NO_COLOR").is_some_and(|v| !v.is_empty()) || var("TERM").is_some_and(|t| t == "dumb")
}

/// Why the dashboard ended.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// Standard input or output is not a terminal.
    #[error(
        "the dashboard needs a terminal on standard input and output; use --headless to print one frame or a JSON report"
    )]
    NotATerminal,
    /// The session is gone.
    #[error("the session ended unexpectedly: {0}; start cbtop again")]
    SessionEnded(String),
    /// The terminal failed.
    #[error("the terminal failed: {0}; use --headless where there is no usable terminal")]
    Io(#[from] std::io::Error),
}
