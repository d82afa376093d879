//! The fuzzer's target of plans, on what is committed of its corpus and on changes to it, the same every time.
#![expect(clippy::cast_possible_truncation, reason = "numbers from the fuzzer are cut to what fits")]

#[path = "../fuzz/bytes.rs"]
mod bytes;
#[path = "../fuzz/mutate.rs"]
mod mutate;
#[path = "../fuzz/plans.rs"]
mod plans;

use windrow_testkit::SplitMix64;

/// Promise, results: whatever a plan is told, it is refused with an error, or its product is right.
#[test]
fn plans_of_any_options_are_right_or_refused() {
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/plans");
    let mut inputs: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .map(|files| files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect())
        .unwrap_or_default();
    inputs.sort();
    inputs.iter().for_each(|input| _ = plans::check(input));
    let told = std::env::var("WINDROW_FUZZ_TRIES").ok().and_then(|text| text.parse().ok());
    let tries: u64 = told.unwrap_or(1500);
    let (mut rng, mut built) = (SplitMix64::new(0x5eed), 0);
    for turn in 0..tries {
        let mut input = match inputs.is_empty() || turn % 2 == 0 {
            true => (0..600).map(|_| rng.next_u64().to_le_bytes()[0]).collect(),
            false => inputs[rng.below(inputs.len())].clone(),
        };
        if turn % 2 == 1 {
            mutate::mutate(&mut input, &mut rng);
        }
        built += u64::from(plans::check(&input));
    }
    eprintln!("{tries} plans, {built} built and compared");
    assert!(built > tries / 8, "{built} of {tries} plans were built");
}
