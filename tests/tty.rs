//! The dashboard on a real (pseudo-)terminal, driven by `tests/tty.py`: keys, sizes, and every way it can end.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};

/// Python 3 is there. With `CI=true` it must be.
fn has_python() -> bool {
    let found = Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    assert!(
        found || std::env::var("CI").as_deref() != Ok("true"),
        "python3 is not there"
    );
    if !found {
        println!("skipped: python3 is not there");
    }
    found
}

fn scenario(name: &str) {
    if !has_python() {
        return;
    }
    let done = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tty.py"))
        .args([env!("CARGO_BIN_EXE_cbtop"), name])
        .output()
        .expect("python3 runs");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn keys_work_and_any_size_is_drawn() {
    scenario("keys_and_sizes");
}

#[test]
fn flags_reach_the_screen() {
    scenario("model_and_flags");
}

#[test]
fn a_finished_run_stays_on_the_screen() {
    scenario("until_the_end");
}

#[test]
fn control_c_restores_the_terminal() {
    scenario("control_c");
    scenario("paused_then_control_c");
}

#[test]
fn signals_restore_the_terminal() {
    for name in ["sigterm", "sighup", "sigint"] {
        scenario(name);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn suspending_gives_the_terminal_back() {
    scenario("suspended");
}

#[test]
fn being_killed_leaves_no_process() {
    scenario("killed");
}

#[test]
fn a_terminal_that_goes_ends_the_program() {
    scenario("terminal_gone");
}

#[test]
fn an_early_error_leaves_the_terminal_alone() {
    scenario("refused_before_the_screen");
}
