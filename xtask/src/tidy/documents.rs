//! Documents: how long the two that everybody reads may be, where links lead, how wide comments are, and which say
//! nothing.

use super::Findings;
use super::files::File;
use std::collections::BTreeMap;

/// Words (as `wc -w` counts them) that a document may have.
const MOST_WORDS: [(&str, usize); 2] = [("README.md", 1000), ("ARCHITECTURE.md", 1500)];

/// Columns of a comment, the indent included.
const COMMENT_COLUMNS: usize = 120;
/// Crates with comments wider than that: counted, not yet refused.
const WIDE_CRATES: [&str; 3] = ["bench/", "device-kernels/", "host/"];

/// Words below which a documentation comment hardly says more than the name that it stands at.
const FEW_WORDS: usize = 4;

/// Looks at all of them.
pub(super) fn check(files: &[File], findings: &mut Findings) {
    let mut wide = [0_usize; WIDE_CRATES.len()];
    let mut short: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        let Some(text) = &file.text else { continue };
        if file.is_rust() {
            wide_comments(&file.path, text, &mut wide, findings);
            let folder = file.path.split('/').next().unwrap_or_default();
            *short.entry(folder).or_default() += short_docs(text);
        } else if file.path.ends_with(".md") {
            words(&file.path, text, findings);
            links(files, &file.path, text, findings);
        }
    }
    for (name, count) in WIDE_CRATES.into_iter().zip(wide).filter(|(_, count)| *count > 0) {
        findings.warning(format!("{name}: {count} comment lines of more than {COMMENT_COLUMNS} columns"));
    }
    let counts: Vec<String> = short
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !counts.is_empty() {
        let most = FEW_WORDS - 1;
        findings.warning(format!("documentation comments of at most {most} words: {}", counts.join(", ")));
    }
}

/// Documentation comments, successive lines of one kind, of fewer than [`FEW_WORDS`] words.
fn short_docs(text: &str) -> usize {
    let kind = |line: &str| ["///", "//!"].into_iter().find(|kind| line.starts_with(kind));
    let (mut count, mut last, mut words) = (0, None, 0);
    for line in text.lines().map(str::trim_start).chain([""]) {
        let this = kind(line);
        if this != last {
            count += usize::from(last.is_some() && words < FEW_WORDS);
            words = 0;
        }
        words += this.map_or(0, |kind| line[kind.len()..].split_whitespace().count());
        last = this;
    }
    count
}

fn words(path: &str, text: &str, findings: &mut Findings) {
    let Some((_, most)) = MOST_WORDS.into_iter().find(|(name, _)| *name == path) else { return };
    let count = text.split_whitespace().count();
    if count > most {
        findings.problem(format!("{path}: {count} words, more than {most}: move some of it to docs/"));
    }
}

fn wide_comments(path: &str, text: &str, wide: &mut [usize], findings: &mut Findings) {
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        let comment = line.trim_start().strip_prefix("//");
        // Rows of a table cannot be cut.
        let table = |text: &str| text.trim_start_matches(['/', '!']).trim_start().starts_with('|');
        if columns <= COMMENT_COLUMNS || comment.is_none_or(table) {
            continue;
        }
        match WIDE_CRATES.iter().position(|name| path.starts_with(name)) {
            Some(at) => wide[at] += 1,
            None => findings.problem(format!(
                "{path}:{}: a comment of {columns} columns, more than {COMMENT_COLUMNS}",
                index + 1
            )),
        }
    }
}

/// Every link to a file of the tree leads to one, and to a heading that it has.
fn links(files: &[File], path: &str, text: &str, findings: &mut Findings) {
    for (line, target) in targets(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (name, heading) = target.split_once('#').map_or((target, None), |(name, it)| (name, Some(it)));
        let Some(name) = resolve(path, name) else {
            findings.problem(format!("{path}:{line}: {target} leads out of the tree"));
            continue;
        };
        let folder = format!("{}/", name.trim_end_matches('/'));
        let Some(file) = files.iter().find(|file| file.path == name) else {
            if heading.is_some() || !files.iter().any(|file| file.path.starts_with(&folder)) {
                findings.problem(format!("{path}:{line}: {target}: no such file"));
            }
            continue;
        };
        let known = |heading: &str| file.text.as_ref().is_some_and(|text| has_heading(text, heading));
        if heading.is_some_and(|heading| !known(heading)) {
            findings.problem(format!("{path}:{line}: {target}: the file has no such heading"));
        }
    }
}

/// What Markdown's `[text](target)` and `![text](target)` lead to, with lines; code is left out.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let mut code = false;
        for (at, c) in line.char_indices() {
            code ^= c == '`';
            let inside = line[at..].strip_prefix("](").filter(|_| !code);
            if let Some((target, _)) = inside.and_then(|rest| rest.split_once(')')) {
                found.push((index + 1, target.split_whitespace().next().unwrap_or_default()));
            }
        }
    }
    found
}

/// `name` as seen from the file `from`, as a path from the root; `None` if that is outside.
fn resolve(from: &str, name: &str) -> Option<String> {
    if name.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether the document has a heading with this anchor, made as GitHub makes it.
fn has_heading(text: &str, anchor: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix('#')).any(|heading| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).eq(anchor.chars())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: Some(text.to_owned()) }
    }

    fn found(files: &[File]) -> Findings {
        let mut findings = Findings::default();
        check(files, &mut findings);
        findings
    }

    #[test]
    fn the_first_documents_are_short() {
        let of = |path: &str, words: usize| found(&[file(path, &"word ".repeat(words))]).problems.len();
        assert_eq!([of("README.md", 1000), of("README.md", 1001), of("bench/README.md", 1001)], [0, 1, 0]);
        assert_eq!([of("ARCHITECTURE.md", 1500), of("ARCHITECTURE.md", 1501)], [0, 1]);
    }

    #[test]
    fn links_lead_to_files_folders_and_headings() {
        let tree = |links: &str| {
            let files = [
                file("README.md", links),
                file("docs/a.md", "# One, two: `three`\n\n[up](../README.md) [here](#one-two-three)\n"),
            ];
            found(&files).problems
        };
        for good in [
            "[a](docs/a.md)",
            "[a](docs/a.md#one-two-three \"title\")",
            "![a](docs/) and [b](docs)",
            "[a](https://example.com/#x)",
            "`[a](none)` and\n```\n[a](none)\n```\n",
        ] {
            assert_eq!(tree(good), [""; 0], "{good}");
        }
        for (bad, part) in [
            ("one\n[a](docs/b.md)", "README.md:2: docs/b.md: no such file"),
            ("[a](docs/a.md#one-two)", "no such heading"),
            ("[a](../a.md)", "leads out of the tree"),
            ("[a](docs#one)", "no such file"),
        ] {
            let problems = tree(bad);
            assert!(problems.len() == 1 && problems[0].contains(part), "{bad}: {problems:?}");
        }
    }

    #[test]
    fn comments_that_say_nothing_are_counted() {
        let text = "//! A module of four.\n\n/// Rows.\nfn rows() {}\n/// The number\n/// of\nlet a = 1;\n\
                    /// Rows that have entries.\n//! At the end";
        assert_eq!(short_docs(text), 3);
        assert_eq!(short_docs("// not one\nlet a = \"/// nor this\";\n"), 0);
        let findings =
            found(&[file("host/src/a.rs", text), file("cli/src/a.rs", "/// Four words are enough.\n")]);
        assert_eq!(findings.warnings, ["documentation comments of at most 3 words: host 3"]);
    }

    #[test]
    fn wide_comments_are_refused_or_counted() {
        let wide = format!("    /// a b c {}\nlet a = \"{}\";\n", "é".repeat(107), "b".repeat(150));
        let findings = found(&[file("formats/src/a.rs", &wide), file("host/src/a.rs", &wide)]);
        assert_eq!(findings.problems, ["formats/src/a.rs:1: a comment of 121 columns, more than 120"]);
        assert_eq!(findings.warnings, ["host/: 1 comment lines of more than 120 columns"]);
        for narrow in [wide.replace("éé", "é"), wide.replace("/// a", "/// | a")] {
            assert!(found(&[file("xtask/src/a.rs", &narrow)]).problems.is_empty());
        }
    }
}
