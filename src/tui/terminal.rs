//! The terminal taken over and given back exactly once, whatever ends the program.

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{Command, execute};
use std::fmt;
use std::io::{self, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};
use std::thread::ThreadId;

/// Whether the terminal is ours; whoever swaps it to `false` restores.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The thread that draws. A panic elsewhere must not restore the screen under it.
static OWNER: Mutex<Option<ThreadId>> = Mutex::new(None);
/// Panics of other threads, told once the screen is given back.
static LATER: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Mouse buttons and the wheel in SGR coordinates, without reports of mere motion: those would wake an idle dashboard.
struct EnableMouseButtons;

impl Command for EnableMouseButtons {
    fn write_ansi(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str("\x1b[?1000h\x1b[?1006h")
    }

    #[cfg(windows)]
    fn execute_winapi(&self) -> io::Result<()> {
        crossterm::event::EnableMouseCapture.execute_winapi()
    }

    #[cfg(windows)]
    fn is_ansi_code_supported(&self) -> bool {
        false
    }
}

/// Raw mode, alternate screen, mouse and bracketed paste, until dropped.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal over. On an error nothing of it stays.
    pub fn new() -> io::Result<Self> {
        install_hook();
        if let Ok(mut owner) = OWNER.lock() {
            *owner = Some(std::thread::current().id());
        }
        TAKEN.store(true, Ordering::SeqCst);
        let guard = Self(());
        enable_raw_mode()?;
        execute!(
            stdout(),
            EnterAlternateScreen,
            EnableMouseButtons,
            EnableBracketedPaste,
            Hide
        )?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back if it is taken; does nothing otherwise, so it can be called from anywhere and twice.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Each step on its own: a closed terminal fails them all, and none may keep the others from being tried.
    let _ = execute!(
        stdout(),
        DisableBracketedPaste,
        DisableMouseCapture,
        Show,
        LeaveAlternateScreen
    );
    let _ = disable_raw_mode();
    let _ = stdout().flush();
    let later = LATER
        .lock()
        .map(|mut l| std::mem::take(&mut *l))
        .unwrap_or_default();
    for line in later {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Chains a panic hook before the present one: the drawing thread's panic restores the terminal first, another
/// thread's waits until the screen is given back.
fn install_hook() {
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let here = std::thread::current().id();
            let ours = OWNER.lock().map(|o| *o == Some(here)).unwrap_or(true);
            if ours {
                restore();
            } else if TAKEN.load(Ordering::SeqCst) {
                let name = std::thread::current()
                    .name()
                    .unwrap_or("unnamed")
                    .to_string();
                if let Ok(mut later) = LATER.lock() {
                    later.push(format!("thread '{name}' {info}"));
                }
                return;
            }
            previous(info);
        }));
    });
}
