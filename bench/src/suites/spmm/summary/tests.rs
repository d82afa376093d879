//! Summaries of records whose figures are known.

use windrow::{Csr, Device};

use super::*;
use crate::measure::Timing;
use crate::suites::facts::{Bounds, PeerFacts, TimeFacts};
use crate::suites::matrices::MatrixSource;
use crate::suites::spmm::tests::options;
use crate::suites::spmm::{Options, Spmm};
use crate::suites::testing::records_of;

fn timing(median_us: f64) -> Timing {
    Timing { median_us, min_us: median_us, max_us: median_us, noise: 0.0, batches: 1, calls: 1 }
}

fn facts(math: &str, algorithm: &str, us: f64) -> PeerFacts {
    PeerFacts {
        math: math.to_owned(),
        version: None,
        algorithm: Some(algorithm.to_owned()),
        median_us: Some(us),
        attempts: Vec::new(),
        error: None,
    }
}

/// A record as a sweep makes it, with these figures.
fn record(matrix: &str, width: usize, path: &str, us: f64, cusparse_us: [f64; 2]) -> Record {
    let source = MatrixSource::InMemory { name: matrix.to_owned(), csr: Csr::identity(4).unwrap() };
    let options = Options { paths: vec![path.parse().unwrap()], ..options(&[width], vec![source]) };
    let device = Device::cpu();
    let (mut records, _) = records_of(&device, &mut Spmm::open(&device, options));
    let mut record = records.remove(0);
    record.time = Some(TimeFacts {
        timing: timing(us),
        bounds: Bounds {
            gathered_gbps: None,
            roofline_us: Some(us / 2.0),
            roofline_fraction: Some(0.5),
            once_us: Some(us / 4.0),
        },
    });
    record.facts.cusparse =
        vec![facts("f32", "CSR_ALG3", cusparse_us[0]), facts("f16", "CSR_ALG2", cusparse_us[1])];
    record
}

#[test]
fn nothing_is_summed_up_too() {
    assert!(summarise(&[], None).contains("0 records"));
}

#[test]
fn means_and_losses_are_those_of_the_records() {
    let records = [
        record("a", 64, "auto-f16", 10.0, [20.0, 5.0]),
        record("a", 128, "auto-f16", 10.0, [80.0, 20.0]),
        record("b", 64, "auto-f16+reorder", 30.0, [30.0, 30.0]),
    ];
    let published = Published::parse("a,64,40,Other\nb,64,15,Else\n").unwrap();
    let text = summarise(&records, Some(&published));
    for line in [
        "3 records, 0 with a wrong result, 0 failed in all.",
        "| auto-f16 | 64 | 1 | 2.00 (0 of 1 lose) | 0.50 (1 of 1 lose) | 4.00 (0 of 1 lose) | 0.50 |",
        "| auto-f16 | all | 2 | 4.00 (0 of 2 lose) | 1.00 (1 of 2 lose) | 4.00 (0 of 1 lose) | 0.50 |",
        "| auto-f16+reorder | all | 1 | 1.00 (0 of 1 lose) | 1.00 (0 of 1 lose) | 0.50 (1 of 1 lose) | 0.50 |",
        "- auto-f16 against cuSPARSE f16: a at 64 (0.50)\n",
        "- auto-f16+reorder against the fastest published: b at 64 (0.50)\n",
        "| a | 64 | 10.0 | – | 20.0 (ALG3) | 5.0 (ALG2) | 40.0 (Other) |",
        "| b | 64 | – | 30.0 | 30.0 (ALG3) | 30.0 (ALG2) | 15.0 (Else) |",
        "## Time over moving every byte once\n",
        "| a | 64 | 4.00 | – |",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    assert!(!text.contains("## Failed cases"), "{text}");
    assert!(text.contains("| b | similarity |"), "{text}");
    let tables = text.lines().filter(|line| line.starts_with("| a | 64")).count();
    assert_eq!(tables, 1 + 3 + 2, "times, three references, roofline, bytes:\n{text}");
}

#[test]
fn the_last_record_of_a_case_counts_and_failures_are_listed() {
    let mut failed = record("a", 64, "hybrid-f16", 1.0, [1.0, 1.0]);
    (failed.time, failed.error) = (None, Some("it broke".to_owned()));
    let records = [
        record("a", 64, "auto-f16", 10.0, [20.0, 20.0]),
        record("a", 64, "auto-f16", 5.0, [20.0, 20.0]),
        failed,
    ];
    let text = summarise(&records, None);
    assert!(text.contains("| a | 64 | 5.0 | – |") && !text.contains("published"), "{text}");
    assert!(text.contains("## Failed cases\n\n- a at 64, hybrid-f16: it broke\n"), "{text}");
    assert!(text.contains("1 failed in all"), "{text}");
}
