//! Module docs, file sizes, unfinished work and binaries.

use super::Findings;
use super::allow::Exceptions;

/// Lines at which a file is worth splitting.
const WARN_LINES: usize = 500;
/// Lines that no file may exceed.
const MAX_LINES: usize = 800;

/// Marks of unfinished work, in two halves so that this file does not hold them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders for data that is not text.
const BINARY_FOLDERS: [&str; 3] = ["data/", "formats/tests/data/", "fuzz/corpus/"];

/// A Rust file starts by saying what it is for.
pub(super) fn module_doc(path: &str, text: &str, findings: &mut Findings) {
    let documented = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("//!"))
        .is_some_and(|rest| !rest.trim().is_empty());
    if !documented {
        findings.problem(format!("{path}: the first line is not a `//!` module doc"));
    }
}

/// A file that is too long holds more than one concern.
pub(super) fn size(path: &str, text: &str, allowed: &mut Exceptions, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines > MAX_LINES && !allowed.size(path) {
        findings.problem(format!(
            "{path}: {lines} lines, more than {MAX_LINES}: split it (or except it in xtask/tidy.allow)"
        ));
    } else if lines > WARN_LINES {
        findings.warning(format!("{path}: {lines} lines, more than {WARN_LINES}"));
    }
}

/// What is committed is finished.
pub(super) fn unfinished(path: &str, text: &str, findings: &mut Findings) {
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if let Some(word) = words.find(|word| UNFINISHED.contains(word)) {
            findings.problem(format!("{path}:{}: {word}: finish it, or file an issue", index + 1));
        }
    }
}

/// A file that is not text belongs in a data folder.
pub(super) fn binary(path: &str, findings: &mut Findings) {
    if !BINARY_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        findings.problem(format!("{path}: not text, and outside {}", BINARY_FOLDERS.join(" and ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: impl Fn(&mut Findings)) -> Findings {
        let mut findings = Findings::default();
        rule(&mut findings);
        findings
    }

    #[test]
    fn a_module_needs_its_doc_first() {
        assert!(found(|f| module_doc("a.rs", "//! What it is for.\n", f)).problems.is_empty());
        for text in ["", "//!\n", "use std::fmt;\n//! late\n", "/// of an item\n"] {
            assert_eq!(found(|f| module_doc("a.rs", text, f)).problems.len(), 1, "{text:?}");
        }
    }

    #[test]
    fn sizes_warn_then_fail() {
        let outcome = |lines: usize| {
            let findings = found(|f| size("a.rs", &"x\n".repeat(lines), &mut Exceptions::default(), f));
            (findings.warnings.len(), findings.problems.len())
        };
        assert_eq!(
            [outcome(500), outcome(501), outcome(800), outcome(801)],
            [(0, 0), (1, 0), (1, 0), (0, 1)]
        );
        let mut ignored = Findings::default();
        let mut allowed = Exceptions::parse("size a.rs one table\n", &mut ignored);
        assert!(found(|_| ()).problems.is_empty());
        let mut findings = Findings::default();
        size("a.rs", &"x\n".repeat(900), &mut allowed, &mut findings);
        assert_eq!((findings.warnings.len(), findings.problems.len()), (1, 0));
    }

    #[test]
    fn marks_of_unfinished_work_are_found() {
        let mark = UNFINISHED[0];
        let findings = found(|f| unfinished("a.md", &format!("fine\n- {mark}: later\n"), f));
        assert!(findings.problems[0].starts_with("a.md:2"), "{:?}", findings.problems);
        assert!(found(|f| unfinished("a.md", &format!("{mark}S_LIST"), f)).problems.is_empty());
    }

    #[test]
    fn binaries_stay_in_data_folders() {
        assert!(found(|f| binary("data/ct2010.mtx.gz", f)).problems.is_empty());
        assert!(found(|f| binary("formats/tests/data/a.npz", f)).problems.is_empty());
        assert_eq!(found(|f| binary("bench/data.bin", f)).problems.len(), 1);
    }
}
