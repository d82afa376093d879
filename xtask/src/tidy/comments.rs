//! Comments: how wide they are, and which say nothing.

use super::Findings;
use super::allow::Exceptions;

/// Columns of a comment line, the indent included.
const COMMENT_COLUMNS: usize = 120;

/// Words below which a documentation comment hardly says more than the name that it stands at.
const FEW_WORDS: usize = 4;

/// Reports the comments of a Rust file that are too wide, and the documentation that is too short.
pub(super) fn check(path: &str, text: &str, allowed: &mut Exceptions, findings: &mut Findings) {
    let mut problems = wide(text);
    problems.extend(short(text));
    problems.sort_unstable_by_key(|(line, _)| *line);
    if problems.is_empty() || allowed.comments(path) {
        return;
    }
    for (line, problem) in problems {
        findings.problem(format!("{path}:{line}: {problem}"));
    }
}

/// Lines that are a comment and wider than [`COMMENT_COLUMNS`]. Rows of a table, and a word that fills a line, cannot
/// be cut.
fn wide(text: &str) -> Vec<(usize, String)> {
    let too_wide = |(index, line): (usize, &str)| {
        let columns = line.chars().count();
        let comment = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim();
        let uncut = comment.starts_with('|') || !comment.contains(char::is_whitespace);
        let problem =
            format!("a comment of {columns} columns, more than {COMMENT_COLUMNS}: go on in the next line");
        (columns > COMMENT_COLUMNS && !uncut).then_some((index + 1, problem))
    };
    text.lines().enumerate().filter_map(too_wide).collect()
}

/// Documentation comments, successive lines of `///` or of `//!`, of fewer than [`FEW_WORDS`] words. A word is what
/// stands between spaces: `a = b` has three.
fn short(text: &str) -> Vec<(usize, String)> {
    let kind = |line: &str| {
        ["///", "//!"].into_iter().find(|kind| line.starts_with(kind) && !line.starts_with("////"))
    };
    let (mut found, mut last, mut words, mut begin) = (Vec::new(), None, 0, 0);
    for (index, line) in text.lines().map(str::trim_start).chain([""]).enumerate() {
        let this = kind(line);
        if this != last {
            if last.is_some() && words < FEW_WORDS {
                let problem = format!(
                    "documentation of {words} word(s), fewer than {FEW_WORDS}: say what the name does not, or nothing"
                );
                found.push((begin, problem));
            }
            (words, begin) = (0, index + 1);
        }
        words += this.map_or(0, |kind| line[kind.len()..].split_whitespace().count());
        last = this;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: &[(usize, String)]) -> Vec<usize> {
        found.iter().map(|(line, _)| *line).collect()
    }

    #[test]
    fn documentation_that_says_nothing_is_found() {
        let text = "//! A module of four.\n\n/// Rows.\nfn rows() {}\n/// The number\n/// of\nlet a = 1;\n\
                    /// Rows that have entries.\n//! At the end";
        assert_eq!(lines(&short(text)), [3, 5, 9]);
        assert_eq!(
            short("/// Its rows.").remove(0).1.split(':').next(),
            Some("documentation of 2 word(s), fewer than 4")
        );
        assert_eq!(lines(&short("    ///\n    /// One two three four.\n")), [0; 0]);
        assert_eq!(lines(&short("// not one\nlet a = \"/// nor this\";\n//// nor this\n")), [0; 0]);
    }

    #[test]
    fn wide_comments_are_found() {
        let at = |columns: usize| {
            format!("    /// a b {}\nlet a = \"{}\";\n", "é".repeat(columns - 12), "b".repeat(150))
        };
        assert_eq!(lines(&wide(&at(121))), [1]);
        assert!(wide(&at(121))[0].1.starts_with("a comment of 121 columns, more than 120"));
        assert_eq!(lines(&wide(&at(120))), [0; 0]);
        for uncut in ["/// | a", "//! https://example.com/", "// | b"] {
            assert_eq!(lines(&wide(&format!("{uncut}{}", "c".repeat(150)))), [0; 0], "{uncut}");
        }
    }

    #[test]
    fn an_exception_is_for_a_file() {
        let mut findings = Findings::default();
        let mut allowed = Exceptions::parse("comments a.rs written by another program\n", &mut findings);
        for path in ["a.rs", "b.rs"] {
            check(path, "/// Rows.\n", &mut allowed, &mut findings);
        }
        allowed.report_unused(&mut findings);
        assert_eq!(findings.problems.len(), 1, "{:?}", findings.problems);
        assert!(
            findings.problems[0].starts_with("b.rs:1: documentation of 1 word(s)"),
            "{:?}",
            findings.problems
        );
    }

    #[test]
    fn an_exception_that_nothing_needs_is_reported() {
        let mut findings = Findings::default();
        let mut allowed = Exceptions::parse("comments a.rs written by another program\n", &mut findings);
        check("a.rs", "/// Rows that have entries.\n", &mut allowed, &mut findings);
        allowed.report_unused(&mut findings);
        assert_eq!(findings.problems, ["xtask/tidy.allow:1: nothing in a.rs needs it any more"]);
    }
}
