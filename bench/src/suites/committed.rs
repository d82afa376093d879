//! The committed records: lines that older programs wrote are read by the summaries of today.
//!
//! A package of this crate has no records; there these tests say that they were skipped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::testing::parse_suite;
use super::{Suite, ablation, nm, plans, preprocess, sddmm, spmm, tensor, tuned};
use crate::measure::SweepPath;
use crate::program::{Command, Records};

/// A committed file, or a line on why a test is skipped.
fn committed(test: &str, name: &str) -> Option<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/results"));
    if folder.is_dir() {
        return Some(folder.join(name));
    }
    windrow_testkit::announce_skip(test, 1, &format!("there is no folder {}", folder.display()));
    None
}

/// The summary of a committed file, which must have so many records.
fn summary_of<C: Command>(test: &str, name: &str, count: usize) -> Option<String> {
    let path = committed(test, name)?;
    let records = Records::read(std::slice::from_ref(&path)).unwrap().of::<C::Suite>();
    let records = records.unwrap_or_else(|failure| panic!("{}: {}", C::Suite::NAME, failure.message));
    assert_eq!(records.len(), count, "{}", path.display());
    Some(parse_suite::<C>(&["--summarise"]).summarise(&records).unwrap())
}

/// The summary of a committed file is the committed one, but for the last digit: records are shortened to five digits.
fn check<C: Command>(test: &str, words: &[&str], files: &[&str], summary: &str) {
    let paths: Vec<_> = files.iter().filter_map(|name| committed(test, name)).collect();
    let Some(summary) = committed(test, summary) else { return };
    let records = Records::read(&paths).and_then(|records| records.of::<C::Suite>());
    let records = records.unwrap_or_else(|failure| panic!("{}: {}", C::Suite::NAME, failure.message));
    let text = parse_suite::<C>(words).summarise(&records).unwrap();
    let expected = std::fs::read_to_string(&summary).unwrap();
    assert_eq!(text.lines().count(), expected.lines().count(), "{}", summary.display());
    for (line, expected) in text.lines().zip(expected.lines()) {
        let (cells, known) = (line.split_whitespace(), expected.split_whitespace());
        assert!(cells.clone().count() == known.clone().count(), "{line}\n{expected}");
        assert!(cells.zip(known).all(|(a, b)| is_same(a, b)), "{line}\n{expected}");
    }
}

/// Equal, or numbers that differ by one in the last digit, or beyond the fifth.
fn is_same(a: &str, b: &str) -> bool {
    let number = |text: &str| text.trim_matches(['(', ')', ',', '.', '%']).parse::<f64>().ok();
    let last = |text: &str| {
        let decimals = text
            .trim_matches(['(', ')', ',', '.', '%'])
            .split_once('.')
            .map_or(0, |(_, digits)| digits.len());
        0.1f64.powi(i32::try_from(decimals).unwrap())
    };
    a == b
        || number(a).zip(number(b)).is_some_and(|(x, y)| (x - y).abs() < f64::max(1.01 * last(b), 5e-5 * y))
}

#[test]
fn digits_may_differ_and_nothing_else() {
    assert!(
        is_same("25.1", "25.0") && is_same("(1.23", "(1.24") && is_same("x", "x") && is_same("1230", "1231")
    );
    assert!(is_same("12695.0", "12694.8"));
    assert!(
        !is_same("25.2", "25.0") && !is_same("x", "y") && !is_same("25.1", "y") && !is_same("1.25", "1.23")
    );
}

#[test]
fn sparse_dense_products() {
    let test = "sparse_dense_products";
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/data/published-h200.csv");
    let words = ["--summarise", "--published", published];
    let folder = "2026-11-21-h200";
    check::<spmm::Arguments>(
        test,
        &words,
        &[&format!("{folder}/sweep.jsonl")],
        &format!("{folder}/sweep.md"),
    );
    for (name, count) in [
        ("2026-11-21-h200/vectors-sweep.jsonl", 174),
        ("2026-11-22-h200/groups.jsonl", 1450),
        ("2026-11-22-h200/matricized.jsonl", 580),
        ("2026-11-22-h200/narrow.jsonl", 1160),
    ] {
        let Some(text) = summary_of::<spmm::Arguments>(test, name, count) else { return };
        assert!(text.contains(&format!("{count} records, 0 with a wrong result, 0 failed")), "{name}");
    }
    let name = "2026-11-21-h200/schedules.jsonl";
    let Some(text) = summary_of::<spmm::Arguments>(test, name, 232) else { return };
    assert!(
        text.contains("The plans' rule, two streams never: right in 93 of 108 cases within 2 %"),
        "{text}"
    );
}

#[test]
fn sampled_products() {
    let (test, folder) = ("sampled_products", "2026-11-21-h200");
    check::<sddmm::Arguments>(test, &[], &[&format!("{folder}/sddmm.jsonl")], &format!("{folder}/sddmm.md"));
    for (name, count) in
        [("2026-11-21-h200/sddmm-thresholds.jsonl", 290), ("2026-11-22-h200/sddmm-groups.jsonl", 348)]
    {
        let Some(text) = summary_of::<sddmm::Arguments>(test, name, count) else { return };
        assert!(text.contains(&format!("{count} records, 0 without a right result")), "{name}");
    }
}

/// The shipped numbers of `costs.paths` are those that fit the committed records, and choose as well as was found.
#[test]
fn choices_by_predicted_times() {
    use super::tuned::paths::{PRODUCTS, PathRecords, fit};
    let mut records = PathRecords::default();
    let Some(path) = committed("choices_by_predicted_times", "2026-11-30-h200/paths.ndjson") else { return };
    Records::read(&[path]).unwrap().each(|line| records.add(line)).unwrap();
    let fit = fit(records);
    assert_eq!(fit.drift(), None, "numbers differ from the shipped ones:\n{fit}");
    // By the shipped numbers, and by those that are fitted to the other matrices: mean, 95th percentile, worst.
    let found = [
        [(1.010, 1.07, 1.41), (1.010, 1.08, 1.41)],
        [(1.010, 1.08, 1.47), (1.010, 1.08, 1.47)],
        [(1.009, 1.06, 1.40), (1.011, 1.07, 1.41)],
        [(1.013, 1.10, 1.62), (1.016, 1.12, 1.62)],
        [(1.009, 1.07, 1.47), (1.009, 1.07, 1.47)],
        [(1.013, 1.09, 1.61), (1.013, 1.09, 1.61)],
        [(1.019, 1.16, 1.52), (1.020, 1.17, 1.52)],
        [(1.024, 1.16, 1.61), (1.025, 1.17, 1.61)],
    ];
    assert_eq!(fit.losses.len(), found.len());
    for ((product, [library, _, held_out]), known) in PRODUCTS.iter().zip(&fit.losses).zip(found) {
        for (losses, (mean, most, worst)) in [library, held_out].into_iter().zip(known) {
            let (median, found_most, found_worst, _) = losses.figures();
            assert!(
                median < 1.0005
                    && losses.mean() < mean + 0.0015
                    && found_most < most + 0.006
                    && found_worst < worst + 0.006,
                "{}: {losses}",
                product.name
            );
        }
    }
}

#[test]
fn products_with_nm_weights() {
    let (test, folder) = ("products_with_nm_weights", "2026-11-22-h200");
    check::<nm::Arguments>(test, &[], &[&format!("{folder}/nm.jsonl")], &format!("{folder}/nm.md"));
    for (name, count) in [("nm-ablation", 40), ("nm-tuned", 12), ("nm-vectors", 56)] {
        let Some(text) = summary_of::<nm::Arguments>(test, &format!("{folder}/{name}.jsonl"), count) else {
            return;
        };
        assert!(text.contains(", packing "), "{name}: {text}");
    }
}

#[test]
fn products_of_tensors() {
    let name = "2026-11-22-h200/tensors.jsonl";
    let Some(text) = summary_of::<tensor::Arguments>("products_of_tensors", name, 320) else { return };
    let row = "| flickr-like:11300000 | 8 | 313.9 | {<16 nnz, 4 col>, 16} | 313.6 |";
    assert!(text.contains(row) && text.contains("## ttm, mode 0"), "{text}");
}

#[test]
fn ablations() {
    let (test, folder) = ("ablations", "2026-11-21-h200");
    let of = |name: &str| format!("{folder}/{name}.jsonl");
    let files = [of("ablation"), of("determinism")];
    let files = [files[0].as_str(), files[1].as_str()];
    check::<ablation::Arguments>(test, &[], &files, &format!("{folder}/ablation.md"));
    // What is a suite of its own today was a part then.
    check::<ablation::Arguments>(test, &[], &[&of("preprocess")], &format!("{folder}/preprocess.md"));
    let Some(text) = summary_of::<preprocess::Arguments>(test, &of("preprocess"), 87) else { return };
    assert!(
        text.contains("time on the CPU over that on the GPU: 3.778 over 87, 0 of them below 1"),
        "{text}"
    );
    let Some(text) = summary_of::<ablation::Arguments>(test, &of("vectors"), 232) else { return };
    assert!(text.contains("\nThreshold 3/8: median "), "{text}");
}

#[test]
fn plans_of_matrices_on_the_device() {
    let (test, folder) = ("plans_of_matrices_on_the_device", "2026-11-23-h200");
    check::<plans::Arguments>(test, &[], &[&format!("{folder}/plans.jsonl")], &format!("{folder}/plans.md"));
}

#[test]
fn tuned_products() {
    let (test, folder) = ("tuned_products", "2026-11-22-h200");
    check::<tuned::Arguments>(test, &[], &[&format!("{folder}/tuned.jsonl")], &format!("{folder}/tuned.md"));
    let name = format!("{folder}/tree.jsonl");
    let Some(text) = summary_of::<tuned::Arguments>(test, &name, 174) else { return };
    assert!(text.starts_with("174 cases, 0 without a default's time"), "{text}");
}

/// The names of paths in a record: of the product, of what was tried, of the default and the winner.
fn paths_in(record: &Value, found: &mut BTreeSet<String>) {
    match record {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(path) if matches!(field.as_str(), "path" | "default" | "winner") => {
                        found.insert(path.clone());
                    }
                    value => paths_in(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| paths_in(value, found)),
        _ => {}
    }
}

/// A path that was named once has that name today.
#[test]
fn names_of_paths() {
    let mut found = BTreeSet::new();
    for (folder, names) in [
        ("2026-11-21-h200", &["ablation", "determinism", "preprocess", "schedules", "sweep", "vectors"][..]),
        ("2026-11-21-h200", &["vectors-sweep"]),
        ("2026-11-22-h200", &["groups", "matricized", "narrow", "tree", "tuned"]),
        ("2026-11-23-h200", &["plans"]),
    ] {
        for name in names {
            let Some(path) = committed("names_of_paths", &format!("{folder}/{name}.jsonl")) else { return };
            for line in std::fs::read_to_string(path).unwrap().lines() {
                paths_in(&serde_json::from_str(line).unwrap(), &mut found);
            }
        }
    }
    assert!(found.len() > 1500, "{} names", found.len());
    for name in found {
        let path: SweepPath = name.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.to_string(), name);
    }
}
