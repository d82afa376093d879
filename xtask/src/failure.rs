//! The one error type of the tasks: a message for the person at the terminal.

use std::fmt;

/// Why a task stopped, in words that name the culprit and the remedy.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// What every task returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Says what was being done when an error of another kind arose.
pub(crate) trait Context<T> {
    /// Turns the error into a [`Failure`] that starts with `what`.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
