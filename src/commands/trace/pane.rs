//! `cbtop trace --open FILE --pane`: a saved trace in the dashboard, without its model.

use super::super::{config, dashboard};
use crate::cli::{LookArgs, TraceArgs};
use anyhow::Context;
use cbtop::headless;
use cbtop::session::still;
use cbtop::trace::saved::Saved;
use cbtop::tui;
use cbtop::tui::state::Panel;
use std::io::Write;
use std::path::Path;

/// Opens the pane, or prints a frame of it.
pub fn run(args: &TraceArgs, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    dashboard::check_terminal(args.size.is_some())?;
    let shown = Saved::open(path)?.view();
    let beside = match &args.beside {
        Some(path) => Some(Saved::open(path)?.view()),
        None => None,
    };
    let snapshot = still::snapshot(shown, beside);
    let look = tui::Options {
        focus: Panel::Trace,
        zoomed: true,
        ..config::options(&LookArgs::default())?
    };
    if let Some((width, height)) = args.size {
        let frame = headless::text::render(&snapshot, width, height, &look);
        out.write_all(frame.as_bytes())?;
        return Ok(());
    }
    let handle = still::spawn(snapshot).context("starting the pane's thread")?;
    tui::run(handle, &look)?;
    Ok(())
}
