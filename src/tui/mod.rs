//! The dashboard: state, update, view.
//!
//! - [`state`]: what is shown and where the user is in it
//! - [`update`]: messages change the state and give commands; pure
//! - [`view`]: the state drawn on a frame; pure; [`panels`] holds one widget a file
//! - [`layout`]: where everything is, shared by drawing and mouse
//! - [`keymap`], [`theme`]: keys, colours and glyphs as data
//! - [`replay`]: the keys and the bar of a recording
//! - [`event_loop`], [`terminal`]: the only parts that touch a terminal

pub mod columns;
pub mod editor;
pub mod event_loop;
pub mod format;
pub mod keymap;
pub mod layout;
pub mod panels;
pub mod replay;
pub mod state;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod update;
pub mod view;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use event_loop::run;

use crate::session::snapshot::Snapshot;
use ratatui::layout::Rect;
use state::{App, Panel};
use std::sync::Arc;
use theme::Theme;

/// How the dashboard starts and draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Start with the recommendations focused.
    pub recommend: bool,
    /// Draw with ASCII only.
    pub ascii: bool,
    /// Draw with colours.
    pub colour: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recommend: false,
            ascii: false,
            colour: true,
        }
    }
}

impl Options {
    /// Defaults for this process's environment: ASCII unless the locale is UTF-8, no colour with `NO_COLOR` set or
    /// `TERM=dumb`.
    pub fn from_env() -> Self {
        let var = |name: &str| std::env::var(name).ok();
        let no_colour = var("NO_COLOR").is_some_and(|v| !v.is_empty())
            || var("TERM").is_some_and(|t| t == "dumb");
        Self {
            recommend: false,
            ascii: !theme::locale_is_utf8(var),
            colour: !no_colour,
        }
    }

    /// A dashboard that starts with `snapshot` on a screen of `area`.
    pub fn app(&self, snapshot: Arc<Snapshot>, area: Rect) -> App {
        let mut app = App::new(snapshot, area, Theme::new(self.colour, self.ascii));
        if self.recommend {
            app.focus = Panel::Advice;
        }
        app
    }
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
