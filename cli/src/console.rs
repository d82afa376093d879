//! Standard output for data, standard error for talk.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use windrow::io::{Progress, Stage};

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Where a command writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Console {
    /// One JSON object instead of text.
    pub(crate) json: bool,
    /// Nothing on standard error but errors.
    pub(crate) quiet: bool,
}

/// A JSON object with its schema in front.
#[derive(Serialize)]
struct Object<'a, T> {
    schema: String,
    windrow: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl Console {
    /// Writes `text` and a line end to standard output, at once; nothing when the output is JSON.
    pub(crate) fn line(self, text: impl Display) -> Result<()> {
        if self.json { Ok(()) } else { write_line(&text.to_string()) }
    }

    /// Writes `text` about what was written to `output`: beside it on standard error, if that is standard output.
    pub(crate) fn summary(self, output: Output<'_>, text: impl Display) -> Result<()> {
        if !output.is_standard() {
            return self.line(text);
        }
        self.note(text);
        Ok(())
    }

    /// Writes the result of `command` as one JSON object if that was asked for.
    pub(crate) fn object<T: Serialize>(self, command: &str, body: &T) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let object =
            Object { schema: format!("windrow.{command}/1"), windrow: env!("CARGO_PKG_VERSION"), body };
        match serde_json::to_string(&object) {
            Ok(text) => write_line(&text),
            Err(error) => Err(Failure::output(&error.into())),
        }
    }

    /// Writes a line to standard error, unless there is to be quiet. Nobody listening is no failure.
    pub(crate) fn note(self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Whether progress bars are drawn: a person looks at standard error.
    fn shows_progress(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    fn bar(self, length: Option<u64>, template: &str) -> ProgressBar {
        let target =
            if self.shows_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(length, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━ "));
        }
        bar
    }

    /// A bar over bytes, for [`tell`].
    pub(crate) fn bytes_bar(self, what: &str) -> ProgressBar {
        let bar =
            self.bar(None, "{prefix:<11} {bar:30} {bytes:>11} / {total_bytes:<11} {bytes_per_sec:>12} {msg}");
        bar.set_prefix(what.to_owned());
        bar
    }

    /// A bar over `steps` steps that show a message each.
    pub(crate) fn steps_bar(self, what: &str, steps: usize) -> ProgressBar {
        let bar = self.bar(Some(steps as u64), "{prefix:<11} {bar:30} {pos:>4} / {len:<4} {msg}");
        bar.set_prefix(what.to_owned());
        bar
    }

    /// A bar for work of several stages, whose name and length come with each.
    pub(crate) fn stages_bar(self) -> ProgressBar {
        self.bar(None, "{prefix:<17} {bar:30} {percent:>3} % {elapsed:>4}")
    }

    /// A mark of life beside `what`, for work that cannot tell how far it is.
    pub(crate) fn spinner(self, what: impl Display) -> ProgressBar {
        let bar = self.bar(None, "{spinner} {msg}");
        bar.set_message(what.to_string());
        if self.shows_progress() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        bar
    }
}

/// Moves `bar` to where a reader or writer is.
pub(crate) fn tell(bar: &ProgressBar, progress: Progress) {
    let stage = match progress.stage {
        Stage::Reading => "reading",
        Stage::Assembling => "assembling",
        Stage::Writing => "writing",
        _ => "working",
    };
    if bar.prefix() != stage {
        bar.set_prefix(stage);
        bar.reset_eta();
    }
    if let Some(total) = progress.total_bytes {
        bar.set_length(total);
    }
    bar.set_position(progress.done_bytes);
}

fn write_line(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}
