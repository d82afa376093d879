//! The fuzzer's targets on what is committed of its corpus, and on changes to it, the same every time.
#![expect(clippy::cast_possible_truncation, reason = "numbers from the fuzzer are cut to what fits")]

#[path = "../fuzz/bytes.rs"]
mod bytes;
#[path = "../fuzz/mutate.rs"]
mod mutate;
#[path = "../fuzz/parts.rs"]
mod parts;
#[path = "../fuzz/readers.rs"]
mod readers;

use std::path::PathBuf;

use crate::io_support::gzip;
use windrow_formats::io::{
    DenseTensor, NmIndices, write_edge_list, write_scipy_npz, write_smtx, write_tensors, write_vector_nm_npz,
    write_vector_nm_safetensors,
};
use windrow_formats::{Csr, NmPattern, VectorNm};
use windrow_testkit::SplitMix64;

/// The committed inputs of a target, in the order of their names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Valid files of every kind, behind the byte that names the reader.
fn seeds() -> Vec<Vec<u8>> {
    let values = vec![1.5f64, -2.0, 1e-3, 0.1, 7.0, 0.0];
    let csr = Csr::try_from_parts(4, 4, vec![0, 2, 2, 4, 6], vec![1, 3, 0, 2, 1, 3], values).unwrap();
    let mut seeds: Vec<(u8, Vec<u8>)> = [
        "%%MatrixMarket matrix coordinate real general\n% c\n3 4 3\n1 1 1.5\n2 3 -2e-5\n3 4 inf\n",
        "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n",
        "%%MatrixMarket matrix coordinate integer skew-symmetric\r\n3 3 2\r\n2 1 7\r\n3 1 -8\r\n",
        "%%MatrixMarket matrix array real general\n2 2\n1\n0\n3.25\n4\n",
        "%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n3\n",
        "# graph\n0\t1\n1\t2\n2\t0\n",
        "0 1 0.5\n1 2 1e3\n",
    ]
    .map(|text| (readers::MATRIX, text.as_bytes().to_vec()))
    .to_vec();
    let [mut smtx, mut edges, mut archive] = [const { Vec::new() }; 3];
    write_smtx(&mut smtx, &csr).unwrap();
    write_edge_list(&mut edges, &csr).unwrap();
    write_scipy_npz(&mut archive, &csr).unwrap();
    seeds.extend([smtx, edges, archive].map(|file| (readers::MATRIX, file)));
    for name in ["csc", "coo_compressed", "csr_bool", "csr_unicode_format", "coo_coords", "tc_gnn"] {
        let path = format!("{}/../formats/tests/data/{name}.npz", env!("CARGO_MANIFEST_DIR"));
        seeds.push((readers::MATRIX, std::fs::read(path).unwrap()));
    }
    seeds.push((readers::TNS, b"# tensor\n1 1 1 1.5\n1 2 3 -2\n2 1 1 0.25\n".to_vec()));
    seeds.push((readers::ORDER, b"# windrow-permutation 1 3\n2\n0\n1\n".to_vec()));
    let dense: Vec<f32> = (0..32u8).map(f32::from).collect();
    let dense: Vec<f32> = dense.iter().map(|&x| if x % 4.0 < 2.0 { x + 1.0 } else { 0.0 }).collect();
    let weights = VectorNm::from_dense(&dense, 32, 1, NmPattern::new(2, 4, 1).unwrap()).unwrap();
    let [mut tensors, mut archive, mut plain] = [const { Vec::new() }; 3];
    write_vector_nm_safetensors(&mut tensors, &weights, NmIndices::Packed).unwrap();
    write_vector_nm_npz(&mut archive, &weights, NmIndices::Bytes).unwrap();
    write_tensors(&mut plain, &[DenseTensor::new("w", 4, 8, dense).unwrap()]).unwrap();
    seeds.extend([(readers::WEIGHTS, tensors), (readers::WEIGHTS, archive), (readers::DENSE, plain)]);
    // Weights and dense tensors are not read from gzip.
    let unpacked = seeds.iter().filter(|(reader, _)| ![readers::WEIGHTS, readers::DENSE].contains(reader));
    let packed: Vec<_> = unpacked.map(|(reader, file)| (*reader, gzip(file))).collect();
    seeds.extend(packed);
    seeds.into_iter().map(|(reader, file)| [vec![reader], file].concat()).collect()
}

/// Changes inputs so often; `WINDROW_FUZZ_TRIES` says another number.
fn mutated((target, tries): (&str, u64), inputs: &[Vec<u8>], check: fn(&[u8]) -> bool) {
    let told = std::env::var("WINDROW_FUZZ_TRIES").ok().and_then(|text| text.parse().ok());
    let tries: u64 = told.unwrap_or(tries);
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

/// Promise, files: whatever a file holds, a reader returns a valid value or an error of bounded length.
#[test]
fn changed_files_are_read_or_refused() {
    let mut inputs = seeds();
    for seed in &inputs {
        assert!(readers::check(seed), "{seed:?}");
        for len in (0..seed.len()).step_by(if seed.len() > 300 { 7 } else { 1 }) {
            readers::check(&seed[..len]);
        }
    }
    inputs.extend(corpus("readers"));
    inputs.iter().for_each(|input| _ = readers::check(input));
    mutated(("readers", 300_000), &inputs, readers::check);
}

/// Promise, faults: parts that break an invariant of a format are refused, and what is accepted keeps them all.
#[test]
fn changed_parts_are_valid_or_refused() {
    let inputs = corpus("parts");
    inputs.iter().for_each(|input| _ = parts::check(input));
    mutated(("parts", 150_000), &inputs, parts::check);
}

/// The fuzzer starts from every seed. `WINDROW_BLESS=1` writes those that are missing.
#[test]
fn the_corpus_has_the_seeds() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut rng = SplitMix64::new(1);
    let random = (0..32).map(|_| (0..200).map(|_| rng.next_u64().to_le_bytes()[0]).collect());
    for (target, inputs) in [("readers", seeds()), ("parts", random.collect())] {
        for (number, input) in inputs.iter().enumerate() {
            let path = folder.join(target).join(format!("seed-{number:02}"));
            if std::env::var_os("WINDROW_BLESS").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, input).unwrap();
            }
            assert!(std::fs::read(&path).is_ok_and(|found| found == *input), "{}", path.display());
        }
    }
}
