//! `cbtop record`: the dashboard or its headless form, with every snapshot saved.

use super::{dashboard, export, printable};
use crate::cli::RecordArgs;
use anyhow::Context;
use cbtop::recording::{self, Recorder, Summary};
use cbtop::session::snapshot::{Command, RunState, Snapshot};
use cbtop::session::{self, SessionHandle};
use cbtop::tui;
use cbtop::tui::event_loop::Signals;
use cbtop::tui::format::bytes;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs and records; says at the end, on standard error, what is in the file.
pub fn run(args: &RecordArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    dashboard::check_terminal(args.dashboard.frame.headless)?;
    dashboard::check_format(args.dashboard.frame.format)?;
    // Before a model is loaded for nothing.
    let mut options = dashboard::dashboard_look(&args.dashboard)?;
    options.saving = !args.dashboard.frame.headless;
    recording::check(&args.file, args.force)?;
    let session = dashboard::session(&args.dashboard)?;
    let recorder = Recorder::create(&args.file, args.force)?;
    let tap = recorder.tap();
    let handle = session::spawn_watched(session, move |snapshot| tap.offer(snapshot))
        .context("starting the session's thread")?;
    let last = if args.dashboard.frame.headless {
        follow(handle).map(Some)
    } else {
        tui::run(handle, &options)
            .map(|()| None)
            .map_err(Into::into)
    };
    let summary = recorder.finish();
    // The run is there to be printed whatever became of the recording.
    let code = match last? {
        None => ExitCode::SUCCESS,
        Some(last) => {
            let (format, size) = (args.dashboard.frame.format, args.dashboard.frame.size);
            let print = |out: &mut dyn Write| dashboard::print(out, &last, format, size, &options);
            match &args.dashboard.out {
                Some(path) => export::to_file(path, print)?,
                None => print(out)?,
            }
            dashboard::finished(&last.state)?
        }
    };
    eprintln!("cbtop: {}", says(args, &summary?));
    Ok(code)
}

/// Waits for the end of the run, or for a signal to end it, and gives the last snapshot.
fn follow(mut handle: SessionHandle) -> anyhow::Result<Arc<Snapshot>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("waiting for the run")?;
    let over =
        |s: &Arc<Snapshot>| matches!(s.state, RunState::Finished { .. } | RunState::Failed { .. });
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            _ = handle.frames.wait_for(over) => {}
            () = signals.next() => {}
        }
        std::io::Result::Ok(())
    })?;
    let last = handle.frames.borrow().clone();
    // The session may have ended on its own.
    let _ = handle.commands.send(Command::Quit);
    Ok(last)
}

fn says(args: &RecordArgs, summary: &Summary) -> String {
    let file = printable(&args.file.display());
    let mut lost = String::new();
    for (n, why) in [
        (summary.lost, "lost, the disk was too slow"),
        (summary.too_large, "left out, too large"),
    ] {
        if n > 0 {
            lost.push_str(&format!("; {n} {why}"));
        }
    }
    format!(
        "{} frame{} of {:.1} s, {}, in {file}{lost}",
        summary.frames,
        if summary.frames == 1 { "" } else { "s" },
        summary.duration.as_secs_f64(),
        bytes(summary.bytes),
    )
}
