//! `docs/glossary.md`: one meaning for each word, and the words that stand for nothing else here.
//!
//! The table's third column is read: `code` there may not be an identifier of any Rust file, and *italics* may not
//! occur in documentation.

use super::Findings;
use crate::failure::Result;
use crate::workspace::{Workspace, read};

/// Where the table is.
pub(super) const PATH: &str = "docs/glossary.md";

/// A word that is not used, and the one that is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// In lower case if it is a phrase.
    pub(super) word: String,
    /// The first word of the line.
    pub(super) better: String,
}

/// What the table says, line by line.
#[derive(Debug, Default)]
pub(super) struct Glossary {
    /// Words that have a meaning.
    terms: Vec<String>,
    /// Identifiers that no Rust file may have.
    pub(super) identifiers: Vec<Replaced>,
    /// Phrases that no documentation may have.
    pub(super) phrases: Vec<Replaced>,
}

impl Glossary {
    /// Reads the file; a tree without it breaks a rule.
    pub(super) fn read(workspace: &Workspace, findings: &mut Findings) -> Result<Self> {
        let path = workspace.root().join(PATH);
        if !path.is_file() {
            findings.problem(format!("{PATH}: missing"));
            return Ok(Self::default());
        }
        Ok(Self::parse(&read(&path)?, findings))
    }

    /// Reads the lines `| words | meaning | not |` of the text.
    pub(super) fn parse(text: &str, findings: &mut Findings) -> Self {
        let mut glossary = Self::default();
        for (index, line) in text.lines().enumerate() {
            let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                continue;
            };
            let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
            let place = format!("{PATH}:{}", index + 1);
            match cells.as_slice() {
                ["word", ..] => {}
                [rule, ..] if rule.starts_with("---") => {}
                [words, meaning, not] if !words.is_empty() && !meaning.is_empty() => {
                    glossary.line(&place, words, not, findings);
                }
                _ => findings.problem(format!("{place}: want `| words | meaning | not |`")),
            }
        }
        glossary.check(findings);
        glossary
    }

    /// Adds one line of the table.
    fn line(&mut self, place: &str, words: &str, not: &str, findings: &mut Findings) {
        let words: Vec<String> =
            words.split(',').map(|word| word.trim().trim_matches('`').to_owned()).collect();
        let better = words.first().cloned().unwrap_or_default();
        for word in words {
            if self.terms.contains(&word) {
                findings.problem(format!("{place}: `{word}` has a meaning already"));
            }
            self.terms.push(word);
        }
        for item in not.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let inside = |mark: char| item.strip_prefix(mark).and_then(|item| item.strip_suffix(mark));
            let (list, word) = match (inside('`'), inside('*')) {
                (Some(word), _) => (&mut self.identifiers, word.to_owned()),
                (_, Some(phrase)) => (&mut self.phrases, phrase.to_lowercase()),
                (None, None) => {
                    findings.problem(format!("{place}: {item}: want `an_identifier` or *a phrase*"));
                    continue;
                }
            };
            if list.iter().any(|known| known.word == word) {
                findings.problem(format!("{place}: {word} is replaced already"));
            }
            list.push(Replaced { word, better: better.clone() });
        }
    }

    /// A word with a meaning is not one that stands for nothing.
    fn check(&self, findings: &mut Findings) {
        for Replaced { word, better } in self.identifiers.iter().chain(&self.phrases) {
            if self.terms.contains(word) {
                findings.problem(format!("{PATH}: `{word}` has a meaning, and is replaced by `{better}`"));
            }
        }
    }

    /// Reports every phrase of a document, or of a Rust file's comments, that has a better word.
    pub(super) fn documentation(&self, path: &str, text: &str, findings: &mut Findings) {
        if path == PATH {
            return;
        }
        let comments_only = path.ends_with(".rs");
        for (index, line) in text.lines().enumerate() {
            if comments_only && !line.trim_start().starts_with("//") {
                continue;
            }
            let line = line.to_lowercase();
            for Replaced { word, better } in self.phrases.iter().filter(|phrase| has(&line, &phrase.word)) {
                findings.problem(format!("{path}:{}: {word}: the word here is {better}", index + 1));
            }
        }
    }
}

/// Whether `line` has `phrase` as whole words, in the singular or with an s.
fn has(line: &str, phrase: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase).any(|(at, _)| {
        let rest = &line[at + phrase.len()..];
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        !line[..at].ends_with(word) && !rest.starts_with(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &str) -> (Glossary, Vec<String>) {
        let mut findings = Findings::default();
        let text = format!("# Words\n\n| word | meaning | not |\n| --- | --- | --- |\n{lines}");
        (Glossary::parse(&text, &mut findings), findings.problems)
    }

    #[test]
    fn a_line_is_words_meaning_and_what_they_replace() {
        let (glossary, problems) = parsed(
            "| window | eight rows | `winId`, *block row* |\n| `lda`, `ldb` | elements from row to row | |\n",
        );
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(glossary.terms, ["window", "lda", "ldb"]);
        let replaced = |word: &str| Replaced { word: word.to_owned(), better: "window".to_owned() };
        assert_eq!(glossary.identifiers, [replaced("winId")]);
        assert_eq!(glossary.phrases, [replaced("block row")]);
    }

    #[test]
    fn a_word_means_one_thing() {
        for (lines, part) in [
            ("| a | one | |\n| b, a | two | |\n", "docs/glossary.md:6: `a` has a meaning already"),
            ("| a | one | `c` |\n| b | two | `c` |\n", "c is replaced already"),
            ("| a | one | `b` |\n| b | two | |\n", "`b` has a meaning, and is replaced by `a`"),
            ("| a | one | plain |\n", "want `an_identifier` or *a phrase*"),
            ("| a | one |\n", "want `| words | meaning | not |`"),
            ("| a | | |\n", "want `| words | meaning | not |`"),
        ] {
            let problems = parsed(lines).1;
            assert!(problems.len() == 1 && problems[0].contains(part), "{lines}: {problems:?}");
        }
    }

    #[test]
    fn phrases_are_found_in_documents_and_comments() {
        let (glossary, _) = parsed("| window | eight rows | *block row* |\n");
        let found = |path: &str, text: &str| {
            let mut findings = Findings::default();
            glossary.documentation(path, text, &mut findings);
            findings.problems
        };
        assert_eq!(found("a.md", "one\nBlock rows are\n"), ["a.md:2: block row: the word here is window"]);
        assert_eq!(found("a.rs", "let block row;\n    /// A block row.\n").len(), 1);
        assert!(found("a.md", "a block rowing, a subblock row\n").is_empty());
        assert!(found(PATH, "block row\n").is_empty());
    }
}
