//! Paths, records and their summary.

use super::*;

#[test]
fn paths_round_trip() {
    for text in [
        "auto-f16",
        "hybrid-f16:24",
        "tiles-tf32+scale",
        "tiles-f16+scan",
        "entries-f32+scale",
        "groups-f32+scale+group:8x4",
    ] {
        assert_eq!(text.parse::<SampledPath>().unwrap().to_string(), text);
    }
    for (text, why) in [
        ("tiles", "no precision"),
        ("tiles-f64", "\"f64\" is no precision"),
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
fn a_sweep_becomes_records_and_a_summary() {
    let matrix = |name: &str, rows| MatrixSource::InMemory {
        name: name.to_owned(),
        csr: Csr::identity(rows).unwrap(),
    };
    let missing = MatrixSource::File("no-such-file.mtx".into());
    let options = SampledOptions {
        inners: vec![3, 16],
        paths: vec![
            "auto-f32".parse().unwrap(),
            "entries-bf16+scale".parse().unwrap(),
            "tiles-f32".parse().unwrap(),
        ],
        sampling: Sampling::SMOKE,
        ..SampledOptions::default()
    };
    let mut records = Vec::new();
    let sources = [matrix("a", 5), matrix("b", 9), missing];
    let summary = sampled_sweep(&Device::cpu(), &sources, &options, &mut |record| {
        records.push(serde_json::from_str::<SampledRecord>(&record.to_json_line()).unwrap());
        Ok(())
    })
    .unwrap();
    assert_eq!(summary, SweepSummary { cases: 13, wrong: 0, errors: 4, unreadable: 1 });
    let right: Vec<_> = records.iter().filter(|record| record.time.is_some()).collect();
    assert_eq!(right.len(), 8);
    assert!(right.iter().all(|record| record.check.as_ref().is_some_and(|check| check.failures == 0)));
    assert!(records[2].error.as_ref().is_some_and(|error| error.contains("do not support precision f32")));
    // As if cuSPARSE had been there and had taken twice as long.
    for record in &mut records {
        let facts = PeerFacts::best_of("f32".to_owned(), "12", Vec::new());
        let median_us = record.time.map(|time| 2.0 * time.median_us);
        record.cusparse = vec![PeerFacts { median_us, ..facts }];
    }
    let text = summarise_sampled(&records);
    assert!(text.contains("13 records, 5 without a right result"), "{text}");
    assert!(text.contains("| auto-f32 | all | 4 | 2.00 (0 of 4 lose) | – | – |"), "{text}");
    assert!(text.contains("## Slower than cuSPARSE f32\n\nnone"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("| b |")).count(), 2, "{text}");
}
