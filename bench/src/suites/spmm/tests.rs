//! Sparse-dense products end to end: on the CPU, and through the GPU's code on the emulator.

use std::io;

use windrow::{Csr, EmulatorSchedule, Precision};

use super::table::Table;
use super::*;
use crate::measure::Timing;
use crate::measure::l2::{Cache, L2Facts};
use crate::suites::Tally;
use crate::suites::record::{SCHEMA, revision};
use crate::suites::testing::records_of;

/// A matrix with short, long and empty rows.
fn tiny() -> MatrixSource {
    let (rows, cols) = (70, 50);
    let mut dense = vec![0.0f32; rows * cols];
    for (r, row) in dense.chunks_exact_mut(cols).enumerate() {
        for (k, x) in row.iter_mut().enumerate() {
            let full = r == 3;
            if full || (r % 5 != 0 && (r * 7 + k * 3) % 11 == 0) {
                *x = (r as f32 - 2.0 * k as f32) / 64.0 + 0.01;
            }
        }
    }
    MatrixSource::InMemory { name: "tiny".to_owned(), csr: Csr::from_dense(rows, cols, &dense).unwrap() }
}

/// Of widths, everything else by default and as little as there is to measure.
pub(crate) fn options(widths: &[usize], sources: Vec<MatrixSource>) -> Options {
    Options {
        sources,
        widths: widths.to_vec(),
        paths: SweepPath::DEFAULT.to_vec(),
        values: Values::File,
        seed: 1,
        sampling: Sampling::SMOKE,
        l2: vec![L2::Warm],
        rates: None,
        peers: true,
        dense_limit_bytes: DENSE_LIMIT_BYTES,
        progress: |_| {},
    }
}

fn run(device: &Device, options: Options) -> (Vec<SpmmRecord>, Tally) {
    records_of(device, &mut Spmm::open(device, options))
}

pub(crate) fn rates() -> DeviceRates {
    let gather = crate::measure::GatherRates::try_new(vec![1e6], vec![64.0], vec![1e10]).unwrap();
    DeviceRates { copy: 1e10, gather }
}

#[test]
fn a_sweep_on_the_cpu_measures_every_case() {
    let options = Options {
        rates: Some(rates()),
        sampling: Sampling { min_batches: 3, min_calls: 6, ..Sampling::SMOKE },
        ..options(&[1, 7, 32], vec![tiny()])
    };
    let (records, tally) = run(&Device::cpu(), options);
    assert_eq!(tally, Tally { cases: 15, ..Tally::default() });
    assert_eq!(records.len(), 15);
    for record in &records {
        assert_eq!(
            (record.schema, record.suite.as_str(), record.revision.clone(), record.error.as_deref()),
            (SCHEMA, "spmm", revision(), None)
        );
        assert_eq!((record.device.kind.as_str(), record.facts.matrix.name.as_str()), ("cpu", "tiny"));
        assert_eq!((record.facts.matrix.rows, record.facts.matrix.cols), (Some(70), Some(50)));
        assert_eq!(record.facts.matrix.checksum.as_ref().map(String::len), Some(16));
        let check = record.check.as_ref().unwrap();
        assert_eq!((check.failures, check.checked), (0, 70 * record.facts.width as u64));
        assert!(check.worst_ratio.unwrap() <= 1.0);
        let time = record.time.as_ref().unwrap();
        assert!(time.timing.median_us > 0.0 && time.timing.min_us <= time.timing.median_us);
        assert!(time.timing.calls >= 6 && time.bounds.gathered_gbps.unwrap() > 0.0);
        let fraction = time.bounds.roofline_us.unwrap() / time.timing.median_us;
        assert!((time.bounds.roofline_fraction.unwrap() - fraction).abs() <= 1e-12 * fraction);
        assert!(record.facts.plan.as_ref().unwrap().preprocess_ms > 0.0);
        assert!(record.facts.cusparse.is_empty() && record.facts.cublas.is_empty());
        let sprs: Vec<_> = record.facts.sprs.iter().map(|facts| facts.median_us.is_some()).collect();
        assert_eq!(sprs, if cfg!(feature = "sprs") { vec![true] } else { vec![] });
    }
    let cases: Vec<(usize, &str)> =
        records.iter().map(|record| (record.facts.width, record.facts.path.as_str())).collect();
    assert_eq!(cases[0], (1, "row-split-f32"));
    assert_eq!(cases[14], (32, "auto-f16"));
}

/// Warm and cold, each with the peer of the device, whose calls are counted as the paths' are.
#[test]
fn paths_and_peers_are_measured_warm_and_cold() {
    let sampling = Sampling { warm_up_calls: 0, min_batches: 3, min_calls: 6, ..Sampling::SMOKE };
    let paths = vec!["row-split-f32".parse().unwrap()];
    let of = || Options {
        sampling,
        l2: vec![L2::Warm, L2::Cold],
        paths: paths.clone(),
        ..options(&[4], vec![tiny()])
    };
    for (device, cache, bytes) in [
        (Device::cpu(), Cache::Processor, 128 << 20),
        (Device::emulator(EmulatorSchedule::InOrder), Cache::None, 64 << 10),
    ] {
        let (records, tally) = run(&device, of());
        assert_eq!((tally.cases, tally.failed()), (2, 0), "{records:#?}");
        let [warm, cold] = &records[..] else { panic!("two records") };
        assert_eq!((warm.l2, cold.l2), (L2Facts::Warm, L2Facts::Cold { flushed_bytes: bytes, cache }));
        let name = "tiny at 4, row-split-f32";
        assert_eq!((warm.case.as_str(), cold.case.as_str()), (name, "tiny at 4, row-split-f32, cold L2"));
        let is_cpu = device.kind() == windrow::DeviceKind::Cpu;
        // How many calls make a batch depends on how long one takes.
        for (record, batches, calls) in [(warm, 3, 6..=18), (cold, 6, 6..=6)] {
            let timing = record.time.unwrap().timing;
            let is_right = |of: Timing| of.batches == batches && calls.contains(&of.calls);
            assert!(is_right(timing), "{timing:?}: {batches} batches and {calls:?} calls");
            let peers: Vec<_> = record.facts.sprs.iter().flat_map(|facts| &facts.attempts).collect();
            assert_eq!(peers.len(), usize::from(is_cpu && cfg!(feature = "sprs")));
            let as_the_path = peers.iter().all(|of| of.time.is_some_and(is_right));
            assert!(as_the_path, "the peer is measured as the path is: {peers:?}");
        }
    }
}

#[test]
fn kernels_are_swept_on_the_emulator() {
    let options = options(&[8, 33], vec![tiny()]);
    let (records, tally) = run(&Device::emulator(EmulatorSchedule::InOrder), options);
    assert_eq!((tally.cases, tally.failed()), (10, 0), "{records:#?}");
    let entries = |path: &str| {
        let record = records.iter().find(|record| record.facts.path == path).unwrap();
        record.facts.plan.as_ref().unwrap().entries.join(" ")
    };
    assert!(entries("row-split-f32").starts_with("spmm_row_split_f32"), "{}", entries("row-split-f32"));
    assert!(entries("tile-stream-f16").contains("spmm_tile_stream_f16"));
    assert!(records.iter().all(|record| record.check.as_ref().is_some_and(|check| check.failures == 0)));
}

#[test]
fn doubles_are_swept_where_they_are_asked_for() {
    let names = ["auto-f64", "row-split-f64", "short-rows-f64", "segment-group-f64", "row-split-f32"];
    let paths = names.map(|name| name.parse().unwrap()).to_vec();
    let options = Options { paths, ..options(&[1, 9], vec![tiny()]) };
    let (records, tally) = run(&Device::emulator(EmulatorSchedule::InOrder), options);
    assert_eq!((tally.cases, tally.failed()), (10, 0), "{records:#?}");
    for record in &records {
        let entries = &record.facts.plan.as_ref().unwrap().entries;
        let double = record.facts.path.ends_with("-f64");
        assert!(entries.iter().any(|entry| entry.contains("_f64")) == double, "{record:#?}");
        let check = record.check.as_ref().unwrap();
        assert!(check.failures == 0 && check.worst_ratio.is_some_and(|ratio| ratio > 0.0), "{record:#?}");
    }
    assert!(SweepPath::DEFAULT.iter().all(|path| path.options.precision != Precision::F64));
}

#[test]
fn a_failed_case_does_not_end_the_sweep() {
    let missing = MatrixSource::File("no-such-folder/no-such-file.mtx".into());
    // No path has kernels for this; it cannot be written as text.
    let impossible = SweepPath::new(windrow::Algorithm::TileStream, Precision::F32);
    let options =
        Options { paths: vec![impossible, SweepPath::DEFAULT[0]], ..options(&[4], vec![missing, tiny()]) };
    let (records, tally) = run(&Device::cpu(), options);
    assert_eq!(tally, Tally { cases: 3, errors: 1, unreadable: 1, ..Tally::default() });
    assert_eq!(tally.failed(), 2);
    assert_eq!((records[0].facts.matrix.name.as_str(), records[0].facts.matrix.rows), ("no-such-file", None));
    assert!(records[0].error.as_ref().is_some_and(|error| error.contains("no-such-file.mtx")));
    assert!(records[1].error.as_ref().is_some_and(|error| error.contains("does not support precision f32")));
    assert!(records[1].time.is_none() && records[1].facts.plan.is_none());
    assert!(records[2].error.is_none() && records[2].time.is_some());
    let rows: Vec<String> = records.iter().map(|record| Table.row(record)).collect();
    assert!(rows[1].contains("FAILED: algorithm tile-stream") && !rows[2].contains("FAILED"), "{rows:#?}");
}

#[test]
fn an_empty_product_has_no_rate() {
    let empty = MatrixSource::InMemory { name: "empty".to_owned(), csr: Csr::zeros(3, 4).unwrap() };
    let (records, tally) = run(&Device::cpu(), options(&[0, 5], vec![empty]));
    assert_eq!(tally.failed(), 0, "{records:#?}");
    assert!(records.iter().all(|record| record.time.as_ref().unwrap().bounds.gathered_gbps.is_none()));
}

#[test]
fn what_emit_refuses_ends_the_sweep() {
    let (device, mut seen) = (Device::cpu(), 0);
    let mut suite = Spmm::open(&device, options(&[4], vec![tiny()]));
    let result = crate::suites::run(&mut suite, &device, &|_| false, &mut |_| {
        seen += 1;
        Err(io::ErrorKind::BrokenPipe.into())
    });
    assert_eq!((result.unwrap_err().kind(), seen), (io::ErrorKind::BrokenPipe, 1));
}

#[test]
fn cases_that_are_done_are_not_measured_again() {
    let device = Device::cpu();
    let mut suite = Spmm::open(&device, options(&[4, 5], vec![tiny()]));
    let mut cases = Vec::new();
    let done = |name: &str| name == "tiny at 4, row-split-f32" || name.contains("auto");
    let tally = crate::suites::run(&mut suite, &device, &done, &mut |record| {
        cases.push(record.case.clone());
        Ok(())
    });
    assert_eq!((tally.unwrap().cases, cases.len(), cases[0].as_str()), (7, 7, "tiny at 4, row-split-f16"));
}

#[test]
fn columns_of_the_table_line_up() {
    let (records, _) = run(&Device::cpu(), options(&[4], vec![tiny()]));
    let titles = Table.titles();
    let widths: Vec<usize> = titles.lines().map(|line| line.chars().count()).collect();
    assert_eq!((widths.len(), widths[0]), (2, widths[1]));
    assert!(records.iter().all(|record| Table.row(record).chars().count() == widths[0]));
}
