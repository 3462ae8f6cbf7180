//! `cbtop replay`: the dashboard on a recording, or one frame of it.

use super::{dashboard, printable};
use crate::cli::ReplayArgs;
use anyhow::Context;
use cbtop::recording::Recording;
use cbtop::recording::replay::{self, Player};
use cbtop::tui;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Plays the file, or prints what shows at a time.
pub fn run(args: &ReplayArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    dashboard::check_terminal(args.frame.headless)?;
    dashboard::check_format(args.frame.format)?;
    let recording = Recording::open(&args.file)?;
    let options = dashboard::look(&args.frame, false)?;
    if args.frame.headless {
        return print(args, recording, &options, out);
    }
    let mut player = Player::new(recording, args.at.unwrap_or(Duration::ZERO))?;
    if args.at.is_none() {
        player.play();
    }
    let handle = replay::spawn(player).context("starting the replay's thread")?;
    tui::run(handle, &options)?;
    Ok(ExitCode::SUCCESS)
}

fn print(
    args: &ReplayArgs,
    mut recording: Recording,
    options: &tui::Options,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let file = printable(&args.file.display());
    for note in recording.take_notes() {
        eprintln!("cbtop: {file}: {note}");
    }
    let at = args.at.unwrap_or(recording.duration());
    // A script wants this frame or an error, not the one beside it.
    recording.frame(recording.frame_at(at))?;
    let snapshot = Player::new(recording, at)?.snapshot();
    dashboard::print(out, &snapshot, args.frame.format, args.frame.size, options)?;
    Ok(ExitCode::SUCCESS)
}
