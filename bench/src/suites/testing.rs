//! What tests of suites share.

use std::path::PathBuf;

use clap::{Args, Command as Clap};
use windrow::Device;

use super::record::Record;
use super::{Suite, Tally, run};

/// The arguments of a suite from words.
pub(crate) fn parse_suite<A: Args>(words: &[&str]) -> A {
    let command = A::augment_args(Clap::new("suite"));
    let matches = command.try_get_matches_from(["suite"].iter().chain(words));
    A::from_arg_matches(&matches.unwrap_or_else(|error| panic!("{words:?}: {error}"))).unwrap()
}

/// Runs every case; what is written must be read back as the same.
pub(crate) fn records_of<S: Suite<Facts: PartialEq + std::fmt::Debug>>(
    device: &Device,
    suite: &mut S,
) -> (Vec<Record<S::Facts>>, Tally) {
    let mut records = Vec::new();
    let tally = run(suite, device, &|_| false, &mut |record| {
        let line = record.to_json_line();
        assert!(!line.contains('\n'));
        let back: Record<S::Facts> =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(&back, record, "{line}");
        records.push(back);
        Ok(())
    });
    let tally = tally.unwrap();
    assert_eq!(tally.cases, records.len() as u64);
    let names: std::collections::HashSet<_> = records.iter().map(|record| &record.case).collect();
    assert_eq!(names.len(), records.len(), "every case has a name of its own");
    (records, tally)
}

/// A file of this test.
pub(crate) fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("windrow-bench-test-{}-{name}", std::process::id()))
}
