//! The fuzzer's targets on what is committed of its corpus, and on changes to it, the same every time.
#![expect(clippy::cast_possible_truncation, reason = "numbers from the fuzzer are cut to what fits")]

#[path = "../fuzz/bytes.rs"]
mod bytes;
#[path = "../fuzz/inputs.rs"]
mod inputs;
#[path = "../fuzz/mutate.rs"]
mod mutate;
#[path = "../fuzz/parts.rs"]
mod parts;
#[path = "../fuzz/readers.rs"]
mod readers;

use std::io::{Cursor, Read};

use crate::io_support::gzip;
use windrow_formats::io::{
    DenseTensor, NmIndices, write_edge_list, write_scipy_npz, write_smtx, write_tensors, write_vector_nm_npz,
    write_vector_nm_safetensors,
};
use windrow_formats::{Csr, NmPattern, VectorNm};
use zip::ZipArchive;
use zip::result::ZipResult;

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../formats/tests/data/{name}.npz", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

/// The members of an archive, as the target takes them.
fn members(archive: &[u8]) -> ZipResult<Vec<u8>> {
    let mut archive = ZipArchive::new(Cursor::new(archive))?;
    let mut content = Vec::new();
    for number in 0..archive.len() {
        let mut member = archive.by_index(number)?;
        content.extend_from_slice(if number > 0 { readers::BETWEEN } else { b"" });
        content.extend_from_slice(member.name().as_bytes());
        content.push(b'\n');
        member.read_to_end(&mut content)?;
    }
    Ok(content)
}

/// What is known and not read, each for a reason of its own, behind the byte that names the reader.
fn refused() -> Vec<Vec<u8>> {
    let texts = [
        "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 2\n",
        "%%MatrixMarket matrix coordinate real hermitian\n1 1 1\n1 1 1\n",
        "%%MatrixMarket vector coordinate real general\n1 1\n1 1\n",
        "%%MatrixMarket matrix array pattern general\n1 1\n1\n",
        "%%MatrixMarket matrix coordinate pattern skew-symmetric\n2 2 1\n2 1\n",
        "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n1 2 1\n",
        "5 5 11 2\n1 2 2 9\n2 2 1 9 3 8\n3 2 2 8 4 7\n4 2 3 7 5 6\n5 2 4 6\n",
        "3 3\n2 3\n1 3\n1 2\n",
    ];
    let orders = ["# windrow-permutation 2 1\n0\n", "# windrow-permutation 1 3\n2\n0\n2\n"];
    let texts = texts.map(|text| (readers::MATRIX, text.as_bytes().to_vec()));
    let orders = orders.map(|text| (readers::ORDER, text.as_bytes().to_vec()));
    let archives = ["bsr", "dia", "csr_complex", "objects", "other_arrays"]
        .map(|name| (readers::MATRIX_MEMBERS, members(&fixture(name)).unwrap()));
    let tensors = [
        (readers::DENSE, safetensors(&["F32", "I32"], "[2]", 8)),
        (readers::DENSE, safetensors(&["F32"], "[1,2,2]", 16)),
        (readers::DENSE, safetensors(&["I64"], "[2]", 16)),
        (readers::WEIGHTS, safetensors(&["F32"], "[2]", 8)),
    ];
    let all = texts.into_iter().chain(orders).chain(archives).chain(tensors);
    all.map(|(reader, file)| [vec![reader], file].concat()).collect()
}

/// A file of tensors of one shape, of a type each, and of as many bytes each.
fn safetensors(dtypes: &[&str], shape: &str, bytes: usize) -> Vec<u8> {
    let mut at = 0;
    let tensors = dtypes.iter().enumerate().map(|(number, dtype)| {
        let from = at;
        at += bytes;
        format!(r#""w{number}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{at}]}}"#)
    });
    let header = format!("{{{}}}", tensors.collect::<Vec<_>>().join(","));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0x3c; at]].concat()
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
        // Numbers by every way to read one: few digits, many, and more than are looked at; the ends of the range.
        "%%MatrixMarket matrix coordinate real general\n1 9 9\n1 1 0.30000000000000004\n1 2 5e-324\n\
         1 3 1.7976931348623157e308\n1 4 123456789012345678901234567890\n1 5 -1.2345678901234567e-30\n\
         1 6 9007199254740993\n1 7 0e400\n1 8 1e-400\n1 9 +.5E+01\n",
        "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 1\n1 3 2.5\n",
        "%%MatrixMarket matrix array integer skew-symmetric\n3 3\n1\n-2\n3\n",
    ]
    .map(|text| (readers::MATRIX, text.as_bytes().to_vec()))
    .to_vec();
    let [mut smtx, mut edges, mut archive] = [const { Vec::new() }; 3];
    write_smtx(&mut smtx, &csr).unwrap();
    write_edge_list(&mut edges, &csr).unwrap();
    write_scipy_npz(&mut archive, &csr).unwrap();
    seeds.extend([smtx, edges, archive].map(|file| (readers::MATRIX, file)));
    for name in ["csc", "coo_compressed", "csr_bool", "csr_unicode_format", "coo_coords", "tc_gnn"] {
        seeds.push((readers::MATRIX, fixture(name)));
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
    let members = |archive: &[u8]| members(archive).unwrap();
    seeds.push((readers::WEIGHTS_MEMBERS, members(&archive)));
    let mut packed = Vec::new();
    write_vector_nm_npz(&mut packed, &weights, NmIndices::Packed).unwrap();
    seeds.push((readers::WEIGHTS_MEMBERS, members(&packed)));
    for name in [
        "csr_f4",
        "csr_be_f8",
        "csr_be_i4",
        "csr_i1",
        "csr_i2",
        "csr_i8",
        "csr_i8_indices",
        "csr_u1",
        "csr_u2",
        "csr_u4",
        "csr_u8",
        "coo",
        "tc_gnn",
    ] {
        seeds.push((readers::MATRIX_MEMBERS, members(&fixture(name))));
    }
    for (dtype, bytes) in [("F16", 2), ("BF16", 2), ("F64", 8)] {
        seeds.push((readers::DENSE, safetensors(&[dtype], "[2,3]", 6 * bytes)));
    }
    seeds.extend([(readers::WEIGHTS, tensors), (readers::WEIGHTS, archive), (readers::DENSE, plain)]);
    // Weights and dense tensors are not read from gzip.
    let packed = [readers::MATRIX, readers::TNS, readers::ORDER];
    let unpacked = seeds.iter().filter(|(reader, _)| packed.contains(reader));
    let packed: Vec<_> = unpacked.map(|(reader, file)| (*reader, gzip(file))).collect();
    seeds.extend(packed);
    seeds.into_iter().map(|(reader, file)| [vec![reader], file].concat()).collect()
}

/// An index of a model, and weights with a name in one of its files, behind the byte that names the reader.
fn models() -> Vec<Vec<u8>> {
    let index = r#"{"metadata":{"total_size":8},"weight_map":{"a":"x-1.safetensors","b":"x-2.safetensors"}}"#;
    let about = r#"{\"version\":1,\"rows\":8,\"cols\":2,\"N\":2,\"M\":4,\"L\":1,\"indices\":\"FORM\",\"transposed\":true}"#;
    let weights = |form: &str, shape: &str, indices: &[u8]| {
        let end = 16 + indices.len();
        let header = format!(
            r#"{{"__metadata__":{{"vector-nm.w":"{}"}},"w.values":{{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]}},"w.indices":{{"dtype":"U8","shape":{shape},"data_offsets":[16,{end}]}}}}"#,
            about.replace("FORM", form)
        );
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0x3f; 16], indices].concat()
    };
    let inputs = [
        (readers::INDEX, index.as_bytes().to_vec()),
        (readers::NAMED_WEIGHTS, weights("bytes", "[4,2]", &[0, 1, 2, 3, 0, 0, 1, 1])),
        (readers::NAMED_WEIGHTS, weights("packed", "[2]", &[0b1110_0100, 0b0101_0000])),
    ];
    inputs.map(|(reader, file)| [vec![reader], file].concat()).to_vec()
}

/// Promise, files: whatever a file holds, a reader returns a valid value or an error of bounded length.
#[test]
fn changed_files_are_read_or_refused() {
    let mut inputs = seeds();
    for seed in &inputs {
        assert!(readers::check(seed), "{}", String::from_utf8_lossy(seed));
        for len in (0..seed.len()).step_by(if seed.len() > 300 { 7 } else { 1 }) {
            readers::check(&seed[..len]);
        }
    }
    for input in refused() {
        assert!(!readers::check(&input), "{}", String::from_utf8_lossy(&input));
        inputs.push(input);
    }
    for input in models() {
        assert!(readers::check(&input), "{}", String::from_utf8_lossy(&input));
        (0..input.len()).for_each(|len| _ = readers::check(&input[..len]));
        inputs.push(input);
    }
    inputs::assert_committed("readers", &inputs);
    inputs.extend(inputs::corpus("readers"));
    inputs.iter().for_each(|input| _ = readers::check(input));
    inputs::changed("readers", inputs::tries(300_000), &inputs, readers::check);
}

/// Promise, faults: parts that break an invariant of a format are refused, and what is accepted keeps them all.
#[test]
fn changed_parts_are_valid_or_refused() {
    inputs::assert_committed("parts", &inputs::random(32, 200));
    let inputs = inputs::corpus("parts");
    inputs.iter().for_each(|input| _ = parts::check(input));
    inputs::changed("parts", inputs::tries(150_000), &inputs, parts::check);
}
