//! The results of many test executables as one line.

use std::fmt;

/// Sums over `test result:` lines, and over the lines by which a test says that it skipped cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    failed: u64,
    skipped: u64,
    /// What was skipped for want of something that a person might install, and of what.
    installable: Vec<String>,
}

impl Tally {
    /// Adds the counts of a line such as `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
    pub(super) fn add(&mut self, line: &str) {
        if let Some((_, skip)) = line.split_once("skipped: ") {
            let count = skip.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            self.skipped += count.unwrap_or(0);
            if skip.contains(" tests of Python: ") || skip.contains(" look at a page: ") {
                self.installable.push(skip.trim().to_owned());
            }
            return;
        }
        let Some(counts) = line.trim().strip_prefix("test result: ") else { return };
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(count), Some(what)) =
                (words.next().and_then(|word| word.parse::<u64>().ok()), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        if self.installable.is_empty() {
            Ok(())
        } else {
            write!(f, " (of these {})", self.installable.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added() {
        let mut tally = Tally::default();
        tally.add("running 3 tests");
        tally.add(
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.10s",
        );
        tally.add("skipped: 7 of products on a GPU: no GPU");
        tally.add("test result: FAILED. 51 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(tally, Tally { passed: 56, failed: 2, skipped: 8, ..Tally::default() });
        assert_eq!(tally.to_string(), "56 passed, 2 failed, 8 skipped");
        tally.add("skipped: 5 tests of Python: PyTorch is not installed");
        let closing =
            "56 passed, 2 failed, 13 skipped (of these 5 tests of Python: PyTorch is not installed)";
        assert_eq!(tally.to_string(), closing);
    }
}
