//! Plans of matrices on the emulator and on the CPU.

use windrow::EmulatorSchedule;

use super::*;
use crate::suites::ablation::tests::source;
use crate::suites::testing::records_of;

fn options() -> Options {
    Options {
        sources: vec![MatrixSource::File("no-such-folder/none.mtx".into()), source()],
        widths: vec![8],
        paths: vec!["auto-f16+runs:1".parse().unwrap(), "tile-stream-f16".parse().unwrap()],
        peers: true,
        values: Values::Random,
        seed: 1,
        sampling: Sampling::SMOKE,
        progress: |_| {},
    }
}

#[test]
fn plans_are_made_where_the_matrix_is_and_verified() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let (records, tally) = records_of(&device, &mut Plans::open(&device, options()));
    assert_eq!(tally, Tally { cases: 3, unreadable: 1, ..Tally::default() }, "{records:#?}");
    for (record, stage) in records[1..].iter().zip(["read", "condense"]) {
        let plan = record.facts.plan.as_ref().unwrap();
        assert!(plan.place.starts_with("gpu: the matrix is there"), "{plan:?}");
        assert!(plan.stages.iter().any(|(name, _)| name == stage), "{plan:?}");
        assert!(plan.plan_us > 0.0 && plan.product_us > 0.0 && plan.first_us > 0.0 && plan.queue_us > 0.0);
        assert!(record.facts.cusparse.is_none() && record.check.is_some());
        let without = plan.without.as_ref().unwrap();
        assert!(without.first_us > 0.0 && without.product_us > 0.0, "{without:?}");
    }
    let text = summarise(&records);
    assert!(text.contains("- auto-f16+runs:1: a plan takes ") && text.contains("- none at 0, : "), "{text}");
}

#[test]
fn the_cpu_makes_them_of_a_copy() {
    let device = Device::cpu();
    let (records, tally) = records_of(&device, &mut Plans::open(&device, options()));
    assert_eq!((tally.cases, tally.unreadable), (3, 1));
    let plan = records[1].facts.plan.as_ref().unwrap();
    assert!(plan.place.ends_with("the plan runs there"), "{plan:?}");
}

#[test]
fn orders_are_compared_with_the_matrixs_own() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let paths = ["tile-stream-f16", "tile-stream-f16+minhash", "tile-stream-f16+reorder"];
    let paths = paths.map(|path| path.parse().unwrap()).to_vec();
    let options = Options { sources: vec![source()], paths, ..options() };
    let (records, tally) = records_of(&device, &mut Plans::open(&device, options));
    assert_eq!(tally, Tally { cases: 3, ..Tally::default() }, "{records:#?}");
    let plans: Vec<&FoundPlan> = records.iter().map(|record| record.facts.plan.as_ref().unwrap()).collect();
    assert_eq!(plans[0].order, "its own");
    let by_kernels = |plan: &FoundPlan| plan.stages.iter().any(|(name, _)| name == "reorder on the GPU");
    assert!(by_kernels(plans[1]) && !by_kernels(plans[2]), "{plans:#?}");
    assert!(plans.iter().all(|plan| plan.column_vectors <= plans[0].column_vectors), "{plans:#?}");
    let text = summarise(&records);
    let lines = |path: &str| text.lines().filter(|line| line.contains(path)).count();
    assert!(text.contains("## Orders of rows"), "{text}");
    // In the table of plans, in those of orders and of products without a plan, and in the figures of each path.
    assert_eq!((lines("+minhash"), lines("+reorder")), (4, 4), "{text}");
}
