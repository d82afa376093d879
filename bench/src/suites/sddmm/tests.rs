//! Paths, records and their summary.

use windrow::Csr;

use super::summary::summarise;
use super::*;
use crate::suites::Tally;
use crate::suites::spmm::tests::rates;
use crate::suites::testing::{parse_suite, records_of};

#[test]
fn paths_round_trip() {
    for text in [
        "auto-f16",
        "hybrid-f16:24",
        "tiles-tf32+scale",
        "tiles-f16+scan",
        "entries-f32+scale",
        "groups-f32+scale+group:8x4",
        "auto-f64",
    ] {
        assert_eq!(text.parse::<SampledPath>().unwrap().to_string(), text);
    }
    for (text, why) in [
        ("tiles", "no precision"),
        ("tiles-f8", "\"f8\" is no precision"),
        ("rows-f16", "\"rows\" is no algorithm"),
        ("hybrid-f16:x", "\"x\" entries"),
        ("tiles-f16+fast", "\"fast\""),
        ("groups-f16+group:8", "\"group:8\""),
        ("tiles-f16+group:8x4", "\"group:8x4\""),
    ] {
        let error = text.parse::<SampledPath>().unwrap_err();
        assert!(error.starts_with(&format!("{text:?} is no path ({why}")), "{error}");
    }
}

#[test]
fn a_run_becomes_records_and_a_summary() {
    let matrix = |name: &str, rows| MatrixSource::InMemory {
        name: name.to_owned(),
        csr: Csr::identity(rows).unwrap(),
    };
    let options = Options {
        sources: vec![matrix("a", 5), matrix("b", 9), MatrixSource::File("no-such-file.mtx".into())],
        inners: vec![3, 16],
        paths: vec![
            "auto-f32".parse().unwrap(),
            "entries-bf16+scale".parse().unwrap(),
            "tiles-f32".parse().unwrap(),
        ],
        seed: 1,
        sampling: Sampling::SMOKE,
        l2: vec![L2::Warm],
        rates: None,
        peers: true,
        progress: |_| {},
    };
    let device = Device::cpu();
    let (mut records, tally) = records_of(&device, &mut Sddmm::open(&device, options));
    assert_eq!(tally, Tally { cases: 13, errors: 4, unreadable: 1, ..Tally::default() });
    let right: Vec<_> = records.iter().filter(|record| record.time.is_some()).collect();
    assert_eq!(right.len(), 8);
    assert!(right.iter().all(|record| record.check.as_ref().is_some_and(|check| check.failures == 0)));
    assert!(records[2].error.as_ref().is_some_and(|error| error.contains("do not support precision f32")));
    // As if cuSPARSE had been there and had taken twice as long.
    for record in &mut records {
        let facts = PeerFacts::best_of("f32".to_owned(), "12", Vec::new());
        let median_us = record.us().map(|us| 2.0 * us);
        record.facts.cusparse = vec![PeerFacts { median_us, ..facts }];
    }
    let text = summarise(&records);
    assert!(text.contains("13 records, 5 without a right result"), "{text}");
    assert!(text.contains("| auto-f32 | all | 4 | 2.00 (0 of 4 lose) | – | – |"), "{text}");
    assert!(text.contains("## Slower than cuSPARSE f32\n\nnone"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("| b |")).count(), 2, "{text}");
    // A path of f64 is compared with cuSPARSE in f64, which has a column of its own then.
    for record in records.iter_mut().filter(|record| record.facts.path == "auto-f32") {
        let facts = PeerFacts::best_of("f64".to_owned(), "12", Vec::new());
        let median_us = record.us().map(|us| 0.5 * us);
        record.facts.cusparse.push(PeerFacts { median_us, ..facts });
        record.facts.path = "auto-f64".to_owned();
    }
    let text = summarise(&records);
    assert!(
        text.contains("| auto-f64 | all | 4 | 2.00 (0 of 4 lose) | – | 0.50 (4 of 4 lose) | – |"),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("- auto-f64, ")).count(), 4, "{text}");
}

#[test]
fn rates_bound_what_is_measured() {
    let options = Options {
        sources: vec![MatrixSource::InMemory { name: "a".to_owned(), csr: Csr::identity(5).unwrap() }],
        inners: vec![3],
        paths: SampledPath::DEFAULT.to_vec(),
        seed: 1,
        sampling: Sampling::SMOKE,
        l2: vec![L2::Warm],
        rates: Some(rates()),
        peers: true,
        progress: |_| {},
    };
    let device = Device::cpu();
    let (records, tally) = records_of(&device, &mut Sddmm::open(&device, options));
    assert_eq!(tally, Tally { cases: 3, ..Tally::default() });
    for record in &records {
        let (time, us) = (record.time.unwrap(), record.facts.roofline_us.unwrap());
        assert!(us > 0.0 && time.bounds.roofline_fraction == Some(us / time.timing.median_us), "{record:?}");
    }
}

#[test]
fn defaults_are_written_as_they_are() {
    let written = SampledPath::DEFAULT.map(|path| path.to_string()).join(",");
    let arguments: Arguments = parse_suite(&["a.mtx"]);
    let same: Arguments = parse_suite(&["a.mtx", "--inners", "32,64,128,256", "--paths", &written]);
    assert_eq!(format!("{arguments:?}"), format!("{same:?}"));
}
