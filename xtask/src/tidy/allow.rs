//! `xtask/tidy.allow`: exceptions, each with its reason.

use super::Findings;
use crate::failure::Result;
use crate::workspace::{Workspace, read};

/// One line: `size PATH reason`, `comments PATH reason` or `word PATH IDENTIFIER reason`.
#[derive(Debug)]
struct Exception {
    line: usize,
    kind: Kind,
    path: String,
    used: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Size,
    Comments,
    Word(String),
}

/// The exceptions, and which of them were needed.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    list: Vec<Exception>,
}

impl Exceptions {
    /// Reads the file; without one there are no exceptions.
    pub(super) fn read(workspace: &Workspace, findings: &mut Findings) -> Result<Self> {
        let path = workspace.root().join("xtask/tidy.allow");
        if !path.is_file() {
            return Ok(Self::default());
        }
        Ok(Self::parse(&read(&path)?, findings))
    }

    /// Reads the text; a line without a reason is a problem.
    pub(super) fn parse(text: &str, findings: &mut Findings) -> Self {
        let mut list = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let words: Vec<&str> = line.split_whitespace().collect();
            let (kind, path) = match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                ["size", path, _, ..] => (Kind::Size, *path),
                ["comments", path, _, ..] => (Kind::Comments, *path),
                ["word", path, word, _, ..] => (Kind::Word((*word).to_owned()), *path),
                _ => {
                    findings.problem(format!(
                        "xtask/tidy.allow:{line_number}: want `size PATH REASON`, `comments PATH REASON` or \
                         `word PATH IDENTIFIER REASON`"
                    ));
                    continue;
                }
            };
            list.push(Exception { line: line_number, kind, path: path.to_owned(), used: false });
        }
        Self { list }
    }

    /// Whether the file may be longer than the limit.
    pub(super) fn size(&mut self, path: &str) -> bool {
        self.take(path, &Kind::Size)
    }

    /// Whether the file may have wide comments and short documentation.
    pub(super) fn comments(&mut self, path: &str) -> bool {
        self.take(path, &Kind::Comments)
    }

    /// Whether the file may use the identifier.
    pub(super) fn word(&mut self, path: &str, word: &str) -> bool {
        self.take(path, &Kind::Word(word.to_owned()))
    }

    fn take(&mut self, path: &str, kind: &Kind) -> bool {
        let found = self.list.iter_mut().find(|exception| exception.path == path && exception.kind == *kind);
        found.is_some_and(|exception| {
            exception.used = true;
            true
        })
    }

    /// An exception that nothing needs is a problem: it would hide the next case.
    pub(super) fn report_unused(&self, findings: &mut Findings) {
        for exception in self.list.iter().filter(|exception| !exception.used) {
            findings.problem(format!(
                "xtask/tidy.allow:{}: nothing in {} needs it any more",
                exception.line, exception.path
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_uses_and_reports() {
        let mut findings = Findings::default();
        let text =
            "# comment\n\nsize a.rs one table of tests\nword b.rs indptr the archive's own key\nsize c.rs\n";
        let mut exceptions = Exceptions::parse(text, &mut findings);
        assert_eq!(findings.problems.len(), 1, "{:?}", findings.problems);
        assert!(findings.problems[0].contains("tidy.allow:5"));
        assert!(exceptions.size("a.rs"));
        assert!(!exceptions.size("b.rs"));
        assert!(!exceptions.word("b.rs", "edgeList"));
        exceptions.report_unused(&mut findings);
        assert_eq!(findings.problems.len(), 2);
        assert!(findings.problems[1].contains("tidy.allow:4"));
        assert!(exceptions.word("b.rs", "indptr"));
    }
}
