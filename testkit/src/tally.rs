//! Counts what a test ran, so that a test that ran nothing fails.

use std::collections::BTreeMap;

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

    /// Cases that ran.
    pub fn count(&self) -> usize {
        self.ran
    }

    /// One line on standard error: cases, elements, the worst ratio seen, and skips by reason.
    ///
    /// # Panics
    /// If no case ran.
    pub fn finish(self) {
        let skips: Vec<String> =
            self.skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let skips = if skips.is_empty() { String::from("none") } else { skips.join(", ") };
        let Self { name, ran, elements, worst_ratio, .. } = self;
        assert!(ran > 0, "{name}: no case ran; skipped: {skips}");
        eprintln!(
            "{name}: {ran} cases, {elements} elements, worst {worst_ratio:.3} of the bound; skipped: {skips}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    #[should_panic(expected = "nothing: no case ran; skipped: 2 too wide")]
    fn nothing_run_is_a_failure() {
        let mut tally = Tally::new("nothing");
        tally.skipped("too wide");
        tally.skipped("too wide");
        tally.finish();
    }
}
