//! `promises`: the table of what the project promises, each line with the tests that would fail if it were broken.
//!
//! A test says what it vouches for in its documentation, up to the end of that comment:
//!
//! ```text
//! /// Promise, determinism: two runs of a plan give the same bits.
//! #[test]
//! fn two_runs_give_the_same_bits() {
//! ```
//!
//! `docs/promises.md` is written from these, so that a promise cannot outlive its test. `tidy` compares.

use std::collections::BTreeMap;

use crate::failure::{Context, Failure, Result};
use crate::workspace::Workspace;

/// The document that is written.
pub(crate) const DOCUMENT: &str = "docs/promises.md";

/// What a line begins with that makes a promise.
const MARK: &str = "Promise, ";

/// Subjects in the order in which they are told, each with what it is about.
const SUBJECTS: &[(&str, &str)] = &[
    ("results", "What a product is."),
    ("determinism", "Two runs give the same bits, unless a plan is told `Determinism::Fast`."),
    ("zero and not-a-number", "What `β = 0`, NaN and infinity do, and do not."),
    ("shapes", "Extents and leading dimensions."),
    ("large sizes", "Around 2³¹ and 2³²."),
    ("memory", "What is allocated, and what is left."),
    ("faults", "What a device that fails, or bad input, leads to; by family in [faults](faults.md)."),
    ("files", "What becomes of files."),
];

/// A promise: its subject, what is promised, and the test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    subject: String,
    text: String,
    test: String,
}

/// Writes the document that the tests in these files make.
pub(crate) fn run(workspace: &Workspace, files: &[(String, String)]) -> Result<()> {
    let text = document(files)?;
    let path = workspace.root().join(DOCUMENT);
    std::fs::write(&path, text).context(path.display())?;
    println!("{DOCUMENT} is written");
    Ok(())
}

/// The document that these files, paths and texts, make.
pub(crate) fn document(files: &[(String, String)]) -> Result<String> {
    let mut by_subject: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (path, text) in files {
        for Promise { subject, text, test } in promises(path, text)? {
            let Some((subject, _)) = SUBJECTS.iter().find(|(known, _)| *known == subject) else {
                return Err(Failure::new(format!("{test}: {subject:?} is no subject of promises")));
            };
            by_subject.entry(subject).or_default().entry(text).or_default().push(test);
        }
    }
    let mut document = "# Promises\n\nEach line is a promise, and the tests that fail if it is broken: \
                        `cargo xtask promises` writes this page from their documentation. What a result may be \
                        off by is in [numerics](numerics.md).\n"
        .to_owned();
    for (subject, about) in SUBJECTS {
        let Some(promises) = by_subject.get(subject) else { continue };
        let title = subject[..1].to_uppercase() + &subject[1..];
        document += &format!("\n## {title}\n\n{about}\n\n| promise | tests |\n| --- | --- |\n");
        for (text, tests) in promises {
            let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
            document += &format!("| {text} | {} |\n", tests.join("<br>"));
        }
    }
    Ok(document)
}

/// The promises of one file.
fn promises(path: &str, text: &str) -> Result<Vec<Promise>> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim).enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let Some(promise) = line.strip_prefix("///").and_then(|doc| doc.trim().strip_prefix(MARK)) else {
            continue;
        };
        let mut promise = promise.to_owned();
        while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with("///")) {
            promise = format!("{promise} {}", more[3..].trim());
        }
        let at = |what: &str| Failure::new(format!("{path}:{}: {what}", number + 1));
        let (subject, text) = promise.split_once(": ").ok_or_else(|| at("want `Promise, SUBJECT: …`"))?;
        let attributes: Vec<&str> =
            std::iter::from_fn(|| lines.next_if(|(_, line)| line.starts_with('#')).map(|(_, line)| line))
                .collect();
        let name = lines.next().and_then(|(_, line)| {
            let rest = line.strip_prefix("fn ")?;
            rest.split_once('(').map(|(name, _)| name)
        });
        let Some(name) = name.filter(|_| attributes.contains(&"#[test]")) else {
            return Err(at("a promise is made by the documentation of a test"));
        };
        let test = format!("{path}: {name}");
        found.push(Promise { subject: subject.to_owned(), text: text.to_owned(), test });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "    /// Something else.\n    ///\n    /// Promise, memory: nothing is\n    /// left.\n    #[test]\n    \
                          #[cfg(unix)]\n    fn nothing_is_left() {\n";

    #[test]
    fn a_promise_reaches_to_the_end_of_its_comment() {
        let promise = Promise {
            subject: "memory".to_owned(),
            text: "nothing is left.".to_owned(),
            test: "a.rs: nothing_is_left".to_owned(),
        };
        assert_eq!(promises("a.rs", SAMPLE).unwrap(), [promise]);
    }

    #[test]
    fn a_promise_without_a_test_is_refused() {
        for wrong in [
            "/// Promise, memory: nothing.\nfn helper() {",
            "/// Promise, memory: nothing.\n#[test]\nstruct A;",
            "/// Promise, memory, nothing\n#[test]\nfn a() {",
        ] {
            assert!(promises("a.rs", wrong).is_err(), "{wrong}");
        }
        let unknown = SAMPLE.replace("memory", "weather");
        assert!(document(&[("a.rs".to_owned(), unknown)]).is_err());
    }

    #[test]
    fn tests_of_one_promise_share_a_line() {
        let files = ["a.rs", "b.rs"].map(|path| (path.to_owned(), SAMPLE.to_owned()));
        let document = document(&files).unwrap();
        let line = "| nothing is left. | `a.rs: nothing_is_left`<br>`b.rs: nothing_is_left` |";
        assert!(document.lines().any(|found| found == line), "{document}");
    }
}
