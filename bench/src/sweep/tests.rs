//! Sweeps end to end: on the CPU, and through the GPU's code on the emulator.

use windrow::{EmulatorSchedule, Precision};

use super::*;

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

fn run(device: &Device, sources: &[MatrixSource], options: &SweepOptions) -> (Vec<Record>, SweepSummary) {
    let mut records = Vec::new();
    let summary = sweep(device, sources, options, &mut |record| {
        // What is written must be read back as the same.
        let line = record.to_json_line();
        assert!(!line.contains('\n'));
        let back: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(&back, record, "{line}");
        records.push(back);
        Ok(())
    });
    (records, summary.unwrap())
}

fn rates() -> DeviceRates {
    let gather = crate::GatherRates::try_new(vec![1e6], vec![64.0], vec![1e10]).unwrap();
    DeviceRates { copy: 1e10, gather }
}

#[test]
fn a_sweep_on_the_cpu_measures_every_case() {
    let options = SweepOptions {
        widths: vec![1, 7, 32],
        rates: Some(rates()),
        revision: "v0-test".to_owned(),
        sampling: Sampling { warm_up_calls: 1, min_batches: 3, min_calls: 6 },
        ..SweepOptions::default()
    };
    let (records, summary) = run(&Device::cpu(), &[tiny()], &options);
    assert_eq!(summary, SweepSummary { cases: 15, ..SweepSummary::default() });
    assert_eq!(records.len(), 15);
    for record in &records {
        assert_eq!(
            (record.schema, record.revision.as_str(), record.error.as_deref()),
            (SCHEMA, "v0-test", None)
        );
        assert_eq!((record.device.kind.as_str(), record.matrix.name.as_str()), ("cpu", "tiny"));
        assert_eq!((record.matrix.rows, record.matrix.cols), (Some(70), Some(50)));
        assert_eq!(record.matrix.checksum.as_ref().map(String::len), Some(16));
        let check = record.check.as_ref().unwrap();
        assert_eq!((check.failures, check.checked), (0, 70 * record.width as u64));
        assert!(check.worst_ratio.unwrap() <= 1.0);
        let time = record.time.as_ref().unwrap();
        assert!(time.timing.median_us > 0.0 && time.timing.min_us <= time.timing.median_us);
        assert!(time.timing.calls >= 6 && time.gathered_gbps.unwrap() > 0.0);
        let fraction = time.roofline_us.unwrap() / time.timing.median_us;
        assert!((time.roofline_fraction.unwrap() - fraction).abs() <= 1e-12 * fraction);
        assert!(record.plan.as_ref().unwrap().preprocess_ms > 0.0);
        assert!(record.cusparse.is_empty() && record.cublas.is_empty());
    }
    let cases: Vec<(usize, &str)> =
        records.iter().map(|record| (record.width, record.path.as_str())).collect();
    assert_eq!(cases[0], (1, "row-split-f32"));
    assert_eq!(cases[14], (32, "auto-f16"));
}

#[test]
fn kernels_are_swept_on_the_emulator() {
    let options = SweepOptions { widths: vec![8, 33], sampling: Sampling::SMOKE, ..SweepOptions::default() };
    let (records, summary) = run(&Device::emulator(EmulatorSchedule::InOrder), &[tiny()], &options);
    assert_eq!((summary.cases, summary.failed()), (10, 0), "{records:#?}");
    let entries = |path: &str| {
        let record = records.iter().find(|record| record.path == path).unwrap();
        record.plan.as_ref().unwrap().entries.join(" ")
    };
    assert!(entries("row-split-f32").starts_with("spmm_row_split_f32"), "{}", entries("row-split-f32"));
    assert!(entries("tile-stream-f16").contains("spmm_tile_stream_f16"));
    assert!(records.iter().all(|record| record.check.as_ref().is_some_and(|check| check.failures == 0)));
}

#[test]
fn a_failed_case_does_not_end_the_sweep() {
    let missing = MatrixSource::File("no-such-folder/no-such-file.mtx".into());
    // No path has kernels for this; it cannot be written as text.
    let impossible = SweepPath::new(windrow::Algorithm::TileStream, Precision::F32);
    let options = SweepOptions {
        widths: vec![4],
        paths: vec![impossible, SweepPath::DEFAULT[0]],
        sampling: Sampling::SMOKE,
        ..SweepOptions::default()
    };
    let (records, summary) = run(&Device::cpu(), &[missing, tiny()], &options);
    assert_eq!(summary, SweepSummary { cases: 3, wrong: 0, errors: 1, unreadable: 1 });
    assert_eq!(summary.failed(), 2);
    assert_eq!((records[0].matrix.name.as_str(), records[0].matrix.rows), ("no-such-file", None));
    assert!(records[0].error.as_ref().is_some_and(|error| error.contains("no-such-file.mtx")));
    assert!(records[1].error.as_ref().is_some_and(|error| error.contains("does not support precision f32")));
    assert!(records[1].time.is_none() && records[1].plan.is_none());
    assert!(records[2].error.is_none() && records[2].time.is_some());
    let rows: Vec<String> = records.iter().map(|record| Table.row(record)).collect();
    assert!(rows[1].contains("FAILED: algorithm tile-stream") && !rows[2].contains("FAILED"), "{rows:#?}");
}

#[test]
fn an_empty_product_has_no_rate() {
    let empty = MatrixSource::InMemory { name: "empty".to_owned(), csr: Csr::zeros(3, 4).unwrap() };
    let options = SweepOptions { widths: vec![0, 5], sampling: Sampling::SMOKE, ..SweepOptions::default() };
    let (records, summary) = run(&Device::cpu(), &[empty], &options);
    assert_eq!(summary.failed(), 0, "{records:#?}");
    assert!(records.iter().all(|record| record.time.as_ref().unwrap().gathered_gbps.is_none()));
}

#[test]
fn what_emit_refuses_ends_the_sweep() {
    let options = SweepOptions { widths: vec![4], sampling: Sampling::SMOKE, ..SweepOptions::default() };
    let mut seen = 0;
    let result = sweep(&Device::cpu(), &[tiny()], &options, &mut |_| {
        seen += 1;
        Err(io::ErrorKind::BrokenPipe.into())
    });
    assert_eq!((result.unwrap_err().kind(), seen), (io::ErrorKind::BrokenPipe, 1));
}

#[test]
fn a_wrong_result_is_a_record_without_a_time() {
    let record = Record::blank(&Device::cpu(), &SweepOptions::default(), "m".to_owned());
    let verification = windrow::Verification {
        worst_ratio: f64::INFINITY,
        worst_row: 1,
        worst_col: 2,
        failures: 3,
        checked: 4,
    };
    let check = Some(CheckFacts::of(&verification));
    let record = Record { check, error: Some(BenchError::Wrong(verification).to_string()), ..record };
    let back: Record = serde_json::from_str(&record.to_json_line()).unwrap();
    assert_eq!(back, record);
    assert_eq!(back.check, Some(CheckFacts { worst_ratio: None, failures: 3, checked: 4 }));
    assert!(back.error.unwrap().contains("3 beyond the bound"));
}

#[test]
fn columns_of_the_table_line_up() {
    let options = SweepOptions { widths: vec![4], sampling: Sampling::SMOKE, ..SweepOptions::default() };
    let (records, _) = run(&Device::cpu(), &[tiny()], &options);
    let titles = Table.titles();
    let widths: Vec<usize> = titles.lines().map(|line| line.chars().count()).collect();
    assert_eq!((widths.len(), widths[0]), (2, widths[1]));
    assert!(records.iter().all(|record| Table.row(record).chars().count() == widths[0]));
}
