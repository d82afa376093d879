//! The tuner on the emulator, and its records.

use std::time::Duration;

use windrow::{Csr, Device, EmulatorSchedule};

use super::*;
use crate::sweep::{MatrixSource, SweepOptions, SweepSummary};

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

fn sweep_of(limits: Option<Limits>, widths: &[usize]) -> Vec<TuningRecord> {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let options = TuneSweepOptions {
        precision: Precision::F32,
        determinism: Determinism::RunToRun,
        limits,
        batches: 1,
        sweep: SweepOptions { widths: widths.to_vec(), ..SweepOptions::default() },
    };
    let source = MatrixSource::InMemory { name: "uneven".to_owned(), csr: matrix() };
    let mut records = Vec::new();
    let summary = tune_sweep(&device, &[source], &options, &mut |record| {
        records.push(serde_json::from_str(&record.to_json_line())?);
        Ok(())
    });
    let cases = widths.len() as u64;
    assert_eq!(summary.unwrap(), SweepSummary { cases, ..SweepSummary::default() });
    records
}

#[test]
fn every_division_of_the_tree_is_timed_and_right() {
    for record in sweep_of(None, &[1, 9]) {
        assert_eq!(record.tried.len(), 1 + windrow::tree::divisions(record.width).len());
        for tried in &record.tried {
            assert!(tried.median_us.is_some_and(|us| us > 0.0), "{tried:?}");
            assert!(tried.worst_ratio.is_some_and(|ratio| ratio <= 1.0), "{tried:?}");
        }
        let default = record.default.unwrap();
        assert!(record.tried.iter().any(|tried| tried.path == default), "{default}");
        assert_eq!(record.matrix.longest_row, Some(40));
    }
}

#[test]
fn a_search_on_the_emulator_times_every_family() {
    let limits = Limits { budget: Duration::from_secs(5), patience: 4, rounds: 3, ..Limits::default() };
    let [record] = &sweep_of(Some(limits), &[3])[..] else { panic!("one record") };
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
    let mut records = sweep_of(Some(limits), &[2, 4]);
    for record in &mut records {
        (record.default_us, record.winner_us, record.winner) = (Some(8.0), Some(4.0), Some("w".to_owned()));
        record.families = vec![FamilyFacts {
            family: "row-split".to_owned(),
            path: "row-split-f32".to_owned(),
            median_us: 2.0,
        }];
    }
    (records[1].winner_us, records[1].winner) = (None, None);
    let blank = TuningRecord { default_us: None, error: Some("no matrix".to_owned()), ..records[1].clone() };
    records.push(blank);
    let text = summarise_tuning(&records);
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
    assert!(summarise_tuning(&[]).starts_with("0 cases"));
}
