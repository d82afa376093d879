//! Signals that ask the command to end: it removes what it has not finished, says so, and ends with the exit code that
//! shells report of programs that a signal ended.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use windrow::io;

use crate::failure::{Exit, Failure, Result};

/// How far the file is that the command is to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none, or it is written.
    Other = 0,
    /// It is not touched yet.
    Before = 1,
    /// Something is written to it, or beside it.
    Writing = 2,
}

static STAGE: AtomicU8 = AtomicU8::new(Stage::Other as u8);

/// Says how far the file is.
pub(crate) fn enter(stage: Stage) {
    STAGE.store(stage as u8, Ordering::SeqCst);
}

/// From now on, a signal ends the command in order.
///
/// # Errors
/// Whatever the operating system says.
pub(crate) fn listen() -> Result<()> {
    wait().map_err(|error| Failure::new(Exit::Limit, format!("cannot listen to signals: {error}")))
}

#[cfg(unix)]
fn wait() -> std::io::Result<()> {
    use std::sync::Arc;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let (mut signals, removed) = (Signals::new([0; 0])?, Arc::new(AtomicBool::new(false)));
    for (signal, exit) in [(SIGINT, Exit::Interrupted), (SIGTERM, Exit::Terminated), (SIGHUP, Exit::HungUp)] {
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // Nobody may be reading standard error: a second signal ends the command whatever it waits for.
        signal_hook::flag::register_conditional_shutdown(signal, exit as i32, Arc::clone(&removed))?;
        signals.add_signal(signal)?;
    }
    let work = move || {
        if let Some(signal) = signals.forever().next() {
            let exit = match signal {
                SIGTERM => Exit::Terminated,
                SIGHUP => Exit::HungUp,
                _ => Exit::Interrupted,
            };
            // Other threads are at work: what a driver does at an orderly exit is not for this one to start.
            signal_hook::low_level::exit(end(exit, &removed));
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
}

/// Whether whoever started the command had it ignore the signal, as `nohup` does. Known on Linux.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        Some(u64::from_str_radix(mask.trim(), 16).ok()? >> (signal - 1) & 1 == 1)
    };
    ignored().unwrap_or(false)
}

#[cfg(not(unix))]
fn wait() -> std::io::Result<()> {
    let end = || std::process::exit(end(Exit::Interrupted, &AtomicBool::new(false)));
    ctrlc::set_handler(end).map_err(std::io::Error::other)
}

/// Removes what is not finished, raises the flag, says what became of it, and returns the code to end with. No file is
/// finished after.
fn end(exit: Exit, removed: &AtomicBool) -> i32 {
    let unfinished = io::remove_unfinished();
    removed.store(true, Ordering::SeqCst);
    let stage = STAGE.load(Ordering::SeqCst);
    let nothing = stage == Stage::Before as u8 || (stage == Stage::Writing as u8 && unfinished.removed() > 0);
    let what = match exit {
        Exit::Interrupted => "interrupted",
        _ => "terminated",
    };
    let left = if nothing { "; nothing was written" } else { "" };
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "error: {what}{left}");
    // The process ends first.
    std::mem::forget(unfinished);
    exit as i32
}
