//! Paths, records and their summary.

use windrow::Csr;

use super::summary::summarise;
use super::*;
use crate::suites::Tally;
use crate::suites::testing::records_of;

#[test]
fn paths_round_trip() {
    for path in AttendedPath::standard() {
        assert_eq!(path.to_string().parse::<AttendedPath>().unwrap(), path);
    }
    assert_eq!(AttendedPath::standard().len(), 16);
    for text in ["auto-f16", "columns-bf16+heads:3", "rows-f32+heads:8+additive+gradients"] {
        assert_eq!(text.parse::<AttendedPath>().unwrap().to_string(), text);
    }
    for (text, why) in [
        ("rows", "no precision"),
        ("rows-f8", "\"f8\" is no precision"),
        ("tiles-f16", "\"tiles\" is no algorithm"),
        ("auto-f16+heads:x", "\"heads:x\""),
        ("auto-f16+fast", "\"fast\""),
    ] {
        let error = text.parse::<AttendedPath>().unwrap_err();
        assert!(error.starts_with(&format!("{text:?} is no path ({why}")), "{error}");
    }
}

#[test]
fn a_run_becomes_records_and_a_summary() {
    let matrix = |name: &str, rows| MatrixSource::InMemory {
        name: name.to_owned(),
        csr: Csr::identity(rows).unwrap(),
    };
    let mut paths = AttendedPath::standard();
    paths.push("rows-tf32".parse().unwrap());
    let options = Options {
        sources: vec![matrix("a", 5), MatrixSource::File("no-such-file.mtx".into())],
        columns: vec![3],
        paths,
        seed: 1,
        sampling: Sampling::SMOKE,
        l2: vec![L2::Warm],
        progress: |_| {},
    };
    let device = Device::cpu();
    let (records, tally) = records_of(&device, &mut Attention::open(&device, options));
    assert_eq!(tally, Tally { cases: 18, errors: 1, unreadable: 1, ..Tally::default() });
    let right: Vec<_> = records.iter().filter(|record| record.time.is_some()).collect();
    assert_eq!(right.len(), 16);
    assert!(right.iter().all(|record| record.check.as_ref().is_some_and(|check| check.failures == 0)));
    let text = summarise(&records);
    assert!(text.contains("18 records, 2 without a right result"), "{text}");
    assert!(text.contains("| a | 3 | auto-f32+heads:8+additive+gradients | "), "{text}");
    assert!(text.contains("| a | 3 | rows-tf32 | – | – |"), "{text}");
}
