//! Ablations end to end: on the CPU, where times are skipped, and through the GPU's code on the emulator.

use windrow::{Csr, EmulatorSchedule};

use super::summary::summarise;
use super::*;
use crate::suites::ablation::facts::Measurement;
use crate::suites::testing::records_of;

/// Rows of eight entries in blocks of eight columns; every fifth has up to three that no neighbour holds.
pub(crate) fn source() -> MatrixSource {
    let (rows, cols) = (60, 200);
    let mut dense = vec![0.0f32; rows * cols];
    for (r, row) in dense.chunks_exact_mut(cols).enumerate() {
        let (first, len) = if r % 5 == 0 { (64 + 2 * r, 1 + r % 3) } else { (r / 8 * 8, 8) };
        row[first..first + len].fill(1.0);
    }
    MatrixSource::InMemory { name: "mixed".to_owned(), csr: Csr::from_dense(rows, cols, &dense).unwrap() }
}

pub(crate) const ALL: [Part; 8] = Part::ALL;

/// As little as there is to measure of these parts.
pub(crate) fn options(parts: &[Part]) -> Options {
    Options {
        sources: vec![MatrixSource::File("no-such-folder/none.mtx".into()), source()],
        parts: parts.to_vec(),
        widths: vec![8],
        values: Values::Random,
        seed: 1,
        sampling: Sampling::SMOKE,
        l2: vec![L2::Warm],
        runs: 3,
        progress: |_| {},
    }
}

fn run(device: &Device, options: Options) -> (Vec<AblationRecord>, Tally) {
    let (mut records, tally) = records_of(device, &mut Ablation::open(device, options));
    assert!(records[0].error.is_some() && records[0].facts.facts.is_none() && tally.unreadable == 1);
    (records.split_off(1), tally)
}

#[test]
fn names_round_trip() {
    for part in Part::ALL {
        assert_eq!(part.to_string().parse::<Part>().unwrap(), part);
    }
    let error = "speed".parse::<Part>().unwrap_err().to_string();
    assert!(error.starts_with("\"speed\" is no part; there are thresholds"), "{error}");
    assert!(summarise(&[]).starts_with("# Ablation\n\n0 lines"));
}

#[test]
fn on_the_cpu_structure_is_found_and_times_are_counted_as_skipped() {
    let (records, summary) = run(&Device::cpu(), options(&Part::ALL));
    assert_eq!((summary.wrong, summary.errors), (0, 0), "{records:#?}");
    let (mut thresholds, mut orders, mut formats) = (Vec::new(), Vec::new(), 0);
    let mut vectors = Vec::new();
    for record in &records {
        assert_eq!(record.error, None);
        match record.facts.facts.clone().unwrap() {
            AblationFacts::Threshold(facts) => thresholds.push(facts),
            AblationFacts::Vectors(facts) => vectors.push(facts),
            AblationFacts::Reorder(facts) => orders.push(facts),
            AblationFacts::Bytes { formats: found, .. } => formats += found.len(),
            AblationFacts::Determinism(facts) => {
                assert_eq!((facts.runs, facts.differing, facts.run_to_run), (3, 0, None));
            }
            AblationFacts::Stream { tile_stream, .. } => assert_eq!(tile_stream, None),
            AblationFacts::Printed(facts) => {
                assert_eq!(facts.built, None);
                let paths: Vec<&str> = facts.others.iter().map(|other| other.path.as_str()).collect();
                let options = ["packed", "bitmap", "dense+two-stages", "dense+registers"];
                let options = options.into_iter().chain(["window-each+bitmap+registers"]);
                assert_eq!(paths, options.map(|o| format!("tile-stream-f16+{o}")).collect::<Vec<_>>());
            }
            AblationFacts::Hybrid(facts) => assert_eq!((facts.hybrid, facts.loss_percent), (None, None)),
            AblationFacts::Preprocess(facts) => panic!("without a GPU: {facts:?}"),
        }
    }
    assert_eq!((thresholds.len(), orders.len(), formats), (18, 8, 14));
    let overlap: Vec<_> = thresholds.iter().filter(|facts| facts.rule == "overlap").collect();
    assert_eq!((overlap[0].residual_rows, overlap[0].residual_share), (0, 0.0));
    assert!(overlap[8].residual_rows > 0 && overlap[8].mean_nnz_per_tile > overlap[0].mean_nnz_per_tile);
    assert!(overlap[4..].iter().any(|facts| facts.same_as.is_some()), "{overlap:#?}");
    let names: Vec<&str> = vectors.iter().map(|facts| facts.threshold.as_str()).collect();
    assert_eq!(names, ["1/8", "2/8", "3/8", "4/8", "5/8", "6/8", "7/8", "8/8"]);
    assert_eq!((vectors[0].tile_share, vectors[0].rows_in_both), (1.0, 0));
    assert!(vectors.is_sorted_by(|a, b| a.tile_share >= b.tile_share && a.steps >= b.steps), "{vectors:#?}");
    assert_eq!((orders[0].order.as_str(), orders[0].product.clone()), ("identity", None));
    assert!(orders[4].entries_per_vector_after >= orders[4].entries_per_vector_before);
    assert!(summary.skipped >= 2 + 4 + 4 + 3, "{summary:?}");
    let text = summarise(&records);
    for part in [
        "Thresholds",
        "Column vectors",
        "Tile stream",
        "As printed",
        "Orders",
        "Bytes",
        "Hybrid",
        "Determinism",
    ] {
        assert!(text.contains(&format!("## {part}\n")), "{text}");
    }
}

#[test]
fn on_the_emulator_every_part_has_times() {
    let parts = [Part::Thresholds, Part::Vectors, Part::Stream, Part::Printed, Part::Reorder, Part::Hybrid];
    let (records, summary) = run(&Device::emulator(EmulatorSchedule::InOrder), options(&parts));
    assert_eq!((summary.wrong, summary.errors, summary.skipped), (0, 0, 0), "{records:#?}");
    for record in &records {
        let timed =
            |measurement: &Option<Measurement>| measurement.as_ref().is_some_and(|m| m.us().is_some());
        match record.facts.facts.as_ref().unwrap() {
            AblationFacts::Threshold(facts) => assert!(timed(&facts.hybrid)),
            AblationFacts::Vectors(facts) => assert!(timed(&facts.hybrid)),
            AblationFacts::Stream { tile_stream, window_each, speed_up } => {
                assert!(timed(tile_stream) && timed(window_each) && speed_up.is_some());
                assert_eq!(window_each.as_ref().unwrap().path, "tile-stream-f16+window-each");
            }
            AblationFacts::Printed(facts) => {
                assert!(timed(&facts.built));
                assert!(facts.others.iter().all(|other| timed(&other.product) && other.slow_down.is_some()));
                let plan = facts.others[1].product.as_ref().unwrap().plan.as_ref().unwrap();
                assert!(plan.tile_values.starts_with("bitmap"), "{plan:?}");
                let entry = |i: usize| {
                    facts.others[i].product.as_ref().unwrap().plan.as_ref().unwrap().entries[0].clone()
                };
                assert!(entry(2).ends_with("_two_stages") && entry(4).ends_with("_bitmap_registers"));
            }
            AblationFacts::Reorder(facts) => {
                assert!(timed(&facts.product) && facts.speed_up.is_some());
                assert!(facts.order != "identity" || facts.speed_up == Some(1.0));
            }
            AblationFacts::Hybrid(facts) => {
                assert!(timed(&facts.hybrid) && timed(&facts.row_split) && facts.loss_percent.is_some());
            }
            other => panic!("not asked for: {other:?}"),
        }
    }
    let text = summarise(&records);
    assert!(text.contains("Geometric mean, tile stream over a warp for each window"), "{text}");
    assert!(text.contains("\nThreshold 3/8: median "), "{text}");
    assert!(text.contains("Geometric mean, time of tile-stream-f16+bitmap over that as built"), "{text}");
}

#[test]
fn runs_on_the_emulator_are_the_same_beside_other_work() {
    let (records, summary) =
        run(&Device::emulator(EmulatorSchedule::Seeded(3)), options(&[Part::Determinism]));
    assert_eq!((summary.wrong, summary.errors, summary.skipped), (0, 0, 0), "{records:#?}");
    assert_eq!(records.len(), 2);
    for record in &records {
        let Some(AblationFacts::Determinism(facts)) = &record.facts.facts else { panic!("{record:?}") };
        assert_eq!((facts.runs, facts.differing), (3, 0));
        assert!(
            facts.any_order.as_ref().is_some_and(|product| product.path.ends_with("+fast"))
                && facts.cost.is_some()
        );
    }
}
