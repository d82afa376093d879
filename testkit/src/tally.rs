//! Counts what a test ran, so that a test that ran nothing fails.

use std::collections::BTreeMap;
use std::io::Write;

use crate::Comparison;

/// What became of the cases of one test.
#[derive(Debug, Clone)]
#[must_use = "a tally that is not finished says nothing"]
pub struct Tally {
    name: String,
    ran: usize,
    elements: usize,
    worst_ratio: f64,
    skipped: BTreeMap<String, usize>,
}

impl Tally {
    /// Nothing has run yet. `name` says what is tested, and on what.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ran: 0, elements: 0, worst_ratio: 0.0, skipped: BTreeMap::new() }
    }

    /// A case ran and was compared.
    pub fn ran(&mut self, comparison: &Comparison) {
        self.ran += 1;
        self.elements += comparison.elements;
        self.worst_ratio = self.worst_ratio.max(comparison.worst_ratio);
    }

    /// A case did not run, for this reason.
    pub fn skipped(&mut self, reason: impl Into<String>) {
        *self.skipped.entry(reason.into()).or_default() += 1;
    }

    /// How many cases ran.
    pub fn count(&self) -> usize {
        self.ran
    }

    /// One line on standard output: cases, elements, the worst ratio seen, and skips by reason.
    ///
    /// # Panics
    /// If no case ran, or none that has an element.
    pub fn finish(self) {
        let skips: Vec<String> =
            self.skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let skips = if skips.is_empty() { String::from("none") } else { skips.join(", ") };
        let Self { name, ran, elements, worst_ratio, .. } = self;
        assert!(ran > 0, "{name}: no case ran; skipped: {skips}");
        assert!(elements > 0, "{name}: {ran} cases ran, and no element was compared; skipped: {skips}");
        announce(&format!(
            "{name}: {ran} cases, {elements} elements, worst {worst_ratio:.3} of the bound; left out: {skips}"
        ));
    }
}

/// Writes a line that the test harness does not swallow when the test passes: it holds back what
/// `println!` prints, not what is written to the stream.
///
/// A stream that is closed loses the line, not the test.
pub fn announce(line: &str) {
    let _closed = writeln!(std::io::stdout().lock(), "{line}");
}

/// Says that `cases` cases of `name` did not run, in the form that `cargo xtask ci` adds up.
pub fn announce_skip(name: &str, cases: usize, reason: &str) {
    announce(&format!("skipped: {cases} of {name}: {reason}"));
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Tally};

    #[test]
    #[should_panic(expected = "empty: 1 cases ran, and no element was compared; skipped: none")]
    fn cases_without_elements_are_a_failure() {
        let mut tally = Tally::new("empty");
        tally.ran(&Comparison::default());
        tally.finish();
    }

    #[test]
    #[should_panic(expected = "nothing: no case ran; skipped: 2 too wide")]
    fn nothing_run_is_a_failure() {
        let mut tally = Tally::new("nothing");
        tally.skipped("too wide");
        tally.skipped("too wide");
        tally.finish();
    }
}
