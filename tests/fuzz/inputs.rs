//! The committed inputs of the fuzzer's targets, and changes to them: the same in every run of the tests.

use std::path::PathBuf;

use windrow_testkit::SplitMix64;

use super::mutate;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// The committed inputs of a target, in the order of their names.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The fuzzer starts from every seed. `WINDROW_BLESS=1` writes those that are missing.
pub(crate) fn assert_committed(target: &str, seeds: &[Vec<u8>]) {
    let folder = folder(target);
    for (number, seed) in seeds.iter().enumerate() {
        let path = folder.join(format!("seed-{number:02}"));
        if std::env::var_os("WINDROW_BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, seed).unwrap();
        }
        let same = std::fs::read(&path).is_ok_and(|found| found == *seed);
        assert!(same, "{} is not the seed: WINDROW_BLESS=1 writes it", path.display());
    }
}

/// Inputs of random bytes, for targets that make their choices by them.
pub(crate) fn random(count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(1);
    (0..count).map(|_| (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect()).collect()
}

/// How often inputs are changed: `all` times with `WINDROW_ALL_CASES=1`, else a third of it; `WINDROW_FUZZ_TRIES` says
/// another number.
pub(crate) fn tries(all: u64) -> u64 {
    let told = std::env::var("WINDROW_FUZZ_TRIES").ok().and_then(|text| text.parse().ok());
    let every = std::env::var_os("WINDROW_ALL_CASES").is_some_and(|value| value == "1");
    told.unwrap_or(if every { all } else { all / 3 })
}

/// Checks changed inputs; some are accepted, and some are not.
pub(crate) fn changed(target: &str, tries: u64, inputs: &[Vec<u8>], check: fn(&[u8]) -> bool) {
    let mut rng = SplitMix64::new(0x5eed);
    let mut accepted = 0;
    for _ in 0..tries {
        let mut input = inputs[rng.below(inputs.len())].clone();
        mutate::mutate(&mut input, &mut rng);
        accepted += u64::from(check(&input));
    }
    eprintln!("{target}: {tries} changed inputs, {accepted} accepted");
    assert!(accepted > 0 && accepted < tries, "{target}: changes are all accepted, or none");
}
