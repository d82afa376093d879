//! Products of tensors end to end: on the CPU, and through the GPU's code on the emulator.

use windrow::EmulatorSchedule;

use super::arguments::Arguments;
use super::summary::summarise;
use super::*;
use crate::program::{Command, Exit};
use crate::suites::Tally;
use crate::suites::testing::{parse_suite, records_of, temporary};

#[test]
fn points_are_those_that_the_width_leaves() {
    let texts = |width| segment_points(width).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(8)[..2], ["{<1 nnz, 4 col>, 16}", "{<1 nnz, 4 col>, 1}"]);
    assert_eq!(texts(128), [1, 4, 16, 32].map(|g| format!("{{<{g} nnz, 4 col>, 1}}")));
    assert_eq!(texts(1).len(), 8);
}

fn options(sources: Vec<TensorSource>) -> Options {
    Options {
        sources,
        operations: TensorOperation::ALL.to_vec(),
        modes: vec![0, 2],
        widths: vec![4, 9],
        points: vec!["{<4 nnz, 2 col>, 8}".parse().unwrap()],
        determinisms: Determinism::ALL.to_vec(),
        seed: 3,
        sampling: Sampling::SMOKE,
        l2: vec![L2::Warm],
        progress: |_| {},
    }
}

#[test]
fn states_of_the_cache_are_cases() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let sources = vec![TensorSource::Synthetic("9x20x14:300".parse().unwrap())];
    let options =
        Options { modes: vec![0], widths: vec![4], l2: vec![L2::Warm, L2::Cold], ..options(sources) };
    let (records, tally) = records_of(&device, &mut Tensor::open(&device, options));
    assert_eq!(tally.failed(), 0, "{records:#?}");
    let cold = records.iter().filter(|record| record.l2.state() == L2::Cold);
    assert!(cold.clone().all(|record| record.case.ends_with(", cold L2") && record.us().is_some()));
    assert_eq!(
        (cold.clone().count() * 2, cold.filter(|of| of.facts.path == "atomic").count()),
        (records.len(), 2)
    );
}

/// All paths, verified, on the emulator; the summary names the best.
#[test]
fn every_path_is_measured_and_right() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let sources = vec![TensorSource::Synthetic("9x20x14:300".parse().unwrap())];
    let (records, tally) = records_of(&device, &mut Tensor::open(&device, options(sources)));
    // MTTKRP has default and a point in two ways each, and atomic; TTM segment-group too.
    let cases = 2 * 2 * (2 * 2 + 1) + 2 * 2 * (2 * 3 + 1);
    assert_eq!(tally, Tally { cases, ..Tally::default() }, "{records:?}");
    for TensorFacts { gflops, fibers, plan, path, kernel_time, .. } in
        records.iter().map(|record| &record.facts)
    {
        assert!(gflops.is_some_and(|rate| rate > 0.0) && *fibers > 0);
        assert_eq!((plan.is_none(), kernel_time.is_some()), (path == "atomic", path == "atomic"));
    }
    let text = summarise(&records);
    assert!(text.contains("## mttkrp, mode 2") && text.contains("9x20x14:300"), "{text}");
    assert!(text.contains("{<4 nnz, 2 col>, 8}"), "{text}");
}

#[test]
fn the_cpu_has_one_path() {
    let sources = vec![
        TensorSource::Synthetic("9x20x14:300".parse().unwrap()),
        TensorSource::File("no-such-file.tns".into()),
    ];
    let options = Options {
        operations: vec![TensorOperation::Mttkrp],
        modes: vec![1],
        widths: vec![3],
        determinisms: vec![Determinism::RunToRun],
        ..options(sources)
    };
    let device = Device::cpu();
    let (records, tally) = records_of(&device, &mut Tensor::open(&device, options));
    assert_eq!(tally, Tally { cases: 2, unreadable: 1, ..Tally::default() });
    assert_eq!((records[0].facts.path.as_str(), records[0].error.as_ref()), ("default", None));
    assert!(records[1].error.as_ref().is_some_and(|error| error.contains("no-such-file.tns")));
    let text = summarise(&records);
    assert!(text.contains("9x20x14:300") && !text.contains("no-such-file"), "{text}");
}

#[test]
fn files_and_made_up_tensors_become_a_table() {
    let tensor = temporary("small.tns");
    std::fs::write(&tensor, "1 1 1 2.5\n2 3 1 -1\n2 1 2 4\n").unwrap();
    let file = tensor.to_str().unwrap();
    let arguments: Arguments =
        parse_suite(&[file, "--smoke", "--synthetic", "40x30x20:900", "--modes", "0,1,2"]);
    let device = Device::cpu();
    arguments.check().unwrap();
    let mut suite = arguments.open(&device, &mut std::io::sink()).unwrap();
    let (records, tally) = records_of(&device, &mut suite);
    let cases = 2 * 2 * 3 * 4 * 2;
    assert_eq!(tally, Tally { cases, ..Tally::default() });
    let text = summarise(&records);
    assert!(text.contains("## ttm, mode 1") && text.contains("| 40x30x20:900 | 64 |"), "{text}");
    std::fs::remove_file(tensor).unwrap();
    for wrong in [&[][..], &["--synthetic", "nell2-like", "--modes", "3"]] {
        assert_eq!(parse_suite::<Arguments>(wrong).check().unwrap_err().exit, Exit::Usage);
    }
}
