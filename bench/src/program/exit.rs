//! How the program ends.

use std::fmt::Display;
use std::path::Path;

use crate::suites::Tally;

/// Why the program ends, as its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was measured, and every result is right.
    Right = 0,
    /// A result is wrong.
    Wrong = 1,
    /// The command line says nothing that can be done.
    Usage = 2,
    /// A file could not be read or written.
    File = 3,
    /// There is no such device.
    NoDevice = 4,
    /// A case could not be measured, or the program not go on.
    Failed = 5,
    /// A comparison found something slower than its gate allows.
    Slower = 6,
}

impl Exit {
    /// The worst that happened.
    pub(crate) fn of(tally: &Tally) -> Self {
        match (tally.wrong, tally.unreadable, tally.errors) {
            (1.., ..) => Self::Wrong,
            (_, 1.., _) => Self::File,
            (.., 1..) => Self::Failed,
            _ => Self::Right,
        }
    }
}

/// What ends the program before its end.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What to tell the user.
    pub(crate) message: String,
}

impl Failure {
    /// A failure that ends in `exit`.
    pub(crate) fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// A failure with a file.
    pub(crate) fn file(path: &Path, error: impl Display) -> Self {
        Self::new(Exit::File, format!("{}: {error}", path.display()))
    }

    /// A command line that says nothing that can be done.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_that_happened_is_told() {
        let tally = |wrong, errors, unreadable| Tally { cases: 9, wrong, errors, unreadable, skipped: 4 };
        assert_eq!(Exit::of(&tally(1, 1, 1)), Exit::Wrong);
        assert_eq!(Exit::of(&tally(0, 1, 1)), Exit::File);
        assert_eq!(Exit::of(&tally(0, 1, 0)), Exit::Failed);
        assert_eq!(Exit::of(&tally(0, 0, 0)), Exit::Right);
    }
}
