//! The tuner on the emulator, and its records.

use std::time::Duration;

use windrow::{Csr, Device, EmulatorSchedule};

use super::facts::FamilyFacts;
use super::summary::summarise;
use super::*;
use crate::program::{Command, Exit};
use crate::suites::testing::{parse_suite, records_of};

/// Rows of 0 to 9 entries, and a long one.
fn matrix() -> Csr<f32> {
    let (mut offsets, mut columns) = (vec![0], Vec::new());
    for row in 0..40_u32 {
        let len = if row == 7 { 40 } else { row * 7 % 10 };
        columns.extend((0..len).map(|at| (at + row) % 40).collect::<std::collections::BTreeSet<_>>());
        offsets.push(columns.len() as u64);
    }
    let values = (0..columns.len()).map(|at| (at % 9) as f32 - 4.0).collect();
    Csr::try_from_parts(40, 40, offsets, columns, values).unwrap()
}

fn records_with(limits: Option<Limits>, widths: &[usize]) -> Vec<TunedRecord> {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let options = Options {
        sources: vec![MatrixSource::InMemory { name: "uneven".to_owned(), csr: matrix() }],
        widths: widths.to_vec(),
        precision: Precision::F32,
        determinism: Determinism::RunToRun,
        limits,
        batches: 1,
        values: Values::File,
        seed: 1,
        sampling: Sampling::default(),
        peers: true,
        progress: |_| {},
    };
    let (records, tally) = records_of(&device, &mut Tuned::open(&device, options));
    assert_eq!(tally, Tally { cases: widths.len() as u64, ..Tally::default() });
    records
}

#[test]
fn every_division_of_the_tree_is_timed_and_right() {
    for TunedRecord { facts: record, .. } in records_with(None, &[1, 9]) {
        assert_eq!(record.tried.len(), 1 + windrow::internal::divisions(record.width).len());
        for tried in &record.tried {
            assert!(tried.median_us.is_some_and(|us| us > 0.0), "{tried:?}");
            assert!(tried.worst_ratio.is_some_and(|ratio| ratio <= 1.0), "{tried:?}");
        }
        let default = record.default.unwrap();
        // The default of one column is a path of merged rows, which is no division of the tree.
        let of_the_tree = record.tried.iter().any(|tried| tried.path == default);
        assert_eq!(of_the_tree, record.width > 1, "{default}");
        assert_eq!(record.matrix.longest_row, Some(40));
    }
}

#[test]
fn a_search_on_the_emulator_times_every_family() {
    let limits = Limits { budget: Duration::from_secs(60), patience: 4, rounds: 3, ..Limits::default() };
    let [record] = &records_with(Some(limits), &[3])[..] else { panic!("one record") };
    let record = &record.facts;
    let families: Vec<_> = record.families.iter().map(|facts| facts.family.as_str()).collect();
    for family in ["row-split", "short-rows", "{<g nnz, c col>, 1}", "{<g nnz, c col>, r}", "1/g row"] {
        assert!(families.iter().any(|name| name.contains(family)), "no {family} in {families:?}");
    }
    let errors: Vec<_> = record.tried.iter().filter(|tried| tried.error.is_some()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(record.ended.is_some() && record.default_us.is_some());
}

#[test]
fn a_summary_has_means_families_and_matrices() {
    let limits = Limits { budget: Duration::from_millis(1), rounds: 3, ..Limits::default() };
    let mut records = records_with(Some(limits), &[2, 4]);
    for TunedRecord { facts: record, .. } in &mut records {
        (record.default_us, record.winner_us, record.winner) = (Some(8.0), Some(4.0), Some("w".to_owned()));
        record.families = vec![FamilyFacts {
            family: "row-split".to_owned(),
            path: "row-split-f32".to_owned(),
            median_us: 2.0,
        }];
    }
    (records[1].facts.winner_us, records[1].facts.winner) = (None, None);
    let mut blank = TunedRecord { error: Some("no matrix".to_owned()), ..records[1].clone() };
    blank.facts.default_us = None;
    records.push(blank);
    let text = summarise(&records);
    for line in [
        "3 cases, 1 without a default's time",
        "| 2 | 2.00 (2.00 to 2.00) | - | - | 1 of 1 |",
        "| all | 1.41 (1.00 to 2.00) | - | - | 1 of 2 |",
        "| row-split | 4.00 (4.00 to 4.00) | 4.00 (4.00 to 4.00) |",
        "| uneven | 2 | 8.0 | 4.0 | 2.00 | - |",
        "uneven at 4: no matrix",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    assert!(summarise(&[]).starts_with("0 cases"));
}

#[test]
fn every_case_on_the_cpu_is_a_record() {
    let words = ["no-such-file.mtx", "--synthetic", "molbatch300k", "--widths", "1,20", "--budget", "0.1"];
    let arguments: Arguments = parse_suite(&words);
    let device = Device::cpu();
    let mut suite = arguments.open(&device, &mut std::io::sink()).unwrap();
    let (records, tally) = records_of(&device, &mut suite);
    assert_eq!(tally, Tally { cases: 3, unreadable: 1, ..Tally::default() });
    assert!(records[0].error.is_some() && records[0].facts.tried.is_empty());
    for (record, width) in records[1..].iter().zip([1, 20]) {
        let facts = &record.facts;
        assert_eq!((facts.width, facts.default.as_deref()), (width, Some("row-split-f32+tasks:8:-")));
        assert!(facts.default_us.is_some_and(|us| us > 0.0) && !facts.tried.is_empty());
        let line = Arguments::line(record);
        assert!(line.contains("tried in"), "{line}");
    }
    for budget in ["--budget=-1", "--budget=NaN"] {
        let arguments: Arguments = parse_suite(&["x.mtx", budget]);
        assert_eq!(arguments.check().unwrap_err().exit, Exit::Usage);
    }
}
