//! Documents: how long the two that everybody reads may be, and where links lead.

use super::Findings;
use super::files::File;

/// Words (as `wc -w` counts them) that a document may have.
const MOST_WORDS: [(&str, usize); 2] = [("README.md", 1000), ("ARCHITECTURE.md", 1500)];

/// Looks at all of them.
pub(super) fn check(files: &[File], findings: &mut Findings) {
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let Some(text) = &file.text else { continue };
        words(&file.path, text, findings);
        links(files, &file.path, text, findings);
    }
}

fn words(path: &str, text: &str, findings: &mut Findings) {
    let Some((_, most)) = MOST_WORDS.into_iter().find(|(name, _)| *name == path) else { return };
    let count = text.split_whitespace().count();
    if count > most {
        findings.problem(format!("{path}: {count} words, more than {most}: move some of it to docs/"));
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
}
