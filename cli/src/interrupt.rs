//! Ctrl-C: work that leaves something behind ends by itself and cleans up; any other ends where it is.

use std::io::Write;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use windrow::reorder::Stopped;

use crate::failure::{Exit, Failure, Result};

/// Whether Ctrl-C was pressed.
static PRESSED: AtomicBool = AtomicBool::new(false);
/// Whether the work looks at [`PRESSED`].
static HEEDED: AtomicBool = AtomicBool::new(false);

/// From now on, Ctrl-C ends the command with its exit code: at once, until [`heed`].
///
/// # Errors
/// Whatever the operating system says.
pub(crate) fn listen() -> Result<()> {
    let pressed = || {
        PRESSED.store(true, Ordering::SeqCst);
        if !HEEDED.load(Ordering::SeqCst) {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(std::io::stderr(), "error: {}", failure());
            exit(i32::from(Exit::Interrupted as u8));
        }
    };
    ctrlc::set_handler(pressed)
        .map_err(|error| Failure::new(Exit::Limit, format!("cannot listen to Ctrl-C: {error}")))
}

/// From now on, the work asks the flag that is returned, and ends by itself.
pub(crate) fn heed() -> &'static AtomicBool {
    HEEDED.store(true, Ordering::SeqCst);
    &PRESSED
}

/// A failure if Ctrl-C was pressed.
pub(crate) fn check() -> Result<()> {
    if PRESSED.load(Ordering::SeqCst) { Err(failure()) } else { Ok(()) }
}

fn failure() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted; nothing was written")
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Cancelled => failure(),
            Stopped::OutOfMemory(error) => error.into(),
        }
    }
}
