//! Files of weights with N:M sparsity, and dense tensors: what is written comes back, and nothing else is accepted.

use half::{bf16, f16};
use proptest::collection::vec;
use proptest::prelude::*;
use windrow_formats::io::{
    DenseTensor, Limits, NmIndices, ReadError, ReadOptions, WriteError, read_tensor, read_tensor_from,
    read_vector_nm, read_vector_nm_from, write_tensors, write_vector_nm, write_vector_nm_npz,
    write_vector_nm_safetensors,
};
use windrow_formats::{NmPattern, Value, VectorNm};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Safetensors,
    Npz,
}

const KINDS: [Kind; 2] = [Kind::Safetensors, Kind::Npz];
const INDICES: [NmIndices; 3] = [NmIndices::Auto, NmIndices::Bytes, NmIndices::Packed];

fn written<V: Value>(kind: Kind, weights: &VectorNm<V>, indices: NmIndices) -> Vec<u8> {
    let mut file = Vec::new();
    match kind {
        Kind::Safetensors => write_vector_nm_safetensors(&mut file, weights, indices),
        Kind::Npz => write_vector_nm_npz(&mut file, weights, indices),
    }
    .unwrap();
    file
}

fn read<V: Value>(file: &[u8]) -> Result<VectorNm<V>, ReadError> {
    read_vector_nm_from(file, &ReadOptions::default())
}

#[track_caller]
fn refused(file: &[u8], parts: &[&str]) {
    let message = match read::<f32>(file) {
        Ok(weights) => panic!("read {} × {}; wanted {parts:?}", weights.rows(), weights.cols()),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

/// 6 × 3 with 2:4 in vectors of 2: a ragged group and a ragged vector.
fn small() -> VectorNm<f32> {
    let mut dense = [0.0f32; 18];
    for (at, value) in [(0, 1.0), (3, 2.0), (5, -3.0), (8, 0.5), (12, 9.0), (17, 8.0)] {
        dense[at] = value;
    }
    VectorNm::from_dense(&dense, 6, 3, NmPattern::new(2, 4, 2).unwrap()).unwrap()
}

/// Weights of any small shape and pattern with any bits as values but NaN.
fn weights<V: Value>() -> impl Strategy<Value = VectorNm<V>> {
    let pattern = (1..=20usize, 1..=6usize).prop_flat_map(|(m, l)| (1..=m, Just(m), Just(l)));
    (pattern, 0..40usize, 0..12usize, vec(-1e6..1e6f64, 480)).prop_map(|((n, m, l), rows, cols, numbers)| {
        let dense: Vec<V> = numbers[..rows * cols].iter().map(|&x| V::from_f64(x)).collect();
        let pattern = NmPattern::new(n, m, l).unwrap();
        let (kept, vectors) = (pattern.kept_rows(rows), pattern.vectors(cols));
        // The last rows of each group, so that indices are large.
        let first = |u: usize| pattern.m().min(rows - u / n * m) - n.min(rows - u / n * m);
        let index = |u: usize| u8::try_from(first(u) + u % n).unwrap();
        let indices = (0..kept).flat_map(|u| std::iter::repeat_n(index(u), vectors)).collect();
        VectorNm::from_dense_at(&dense, (rows, cols), pattern, indices).unwrap()
    })
}

fn comes_back<V: Value>(weights: &VectorNm<V>) {
    for (kind, indices) in KINDS.into_iter().flat_map(|kind| INDICES.map(|indices| (kind, indices))) {
        let file = written(kind, weights, indices);
        let found = read::<V>(&file).unwrap_or_else(|error| panic!("{kind:?}, {indices:?}: {error}"));
        assert_eq!(&found, weights, "{kind:?}, {indices:?}");
        assert_eq!(written(kind, weights, indices), file, "{kind:?}: not the same bytes twice");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_type_comes_back(
        single in weights::<f32>(),
        double in weights::<f64>(),
        half in weights::<f16>(),
        brain in weights::<bf16>(),
    ) {
        comes_back(&single);
        comes_back(&double);
        comes_back(&half);
        comes_back(&brain);
    }

    #[test]
    fn damaged_files_never_panic(at in any::<proptest::sample::Index>(), bit in 0..8u32, cut in any::<bool>()) {
        for kind in KINDS {
            let mut file = written(kind, &small(), NmIndices::Packed);
            let at = at.index(file.len());
            if cut {
                file.truncate(at);
            } else {
                file[at] ^= 1 << bit;
            }
            // Whatever is read is valid: it can be taken apart and put together.
            if let Ok(weights) = read::<f32>(&file) {
                prop_assert!(VectorNm::try_from_parts(weights.into_parts()).is_ok());
            }
            let _ = read_tensor_from::<f32>(&file[..], Some("values"), &ReadOptions::default());
        }
    }

    #[test]
    fn noise_never_panics(noise in vec(any::<u8>(), 0..200)) {
        prop_assert!(read::<f32>(&noise).is_err());
        let mut file = 8u64.to_le_bytes().to_vec();
        file.push(b'{');
        file.extend(noise);
        prop_assert!(read::<f32>(&file).is_err());
    }
}

#[test]
fn indices_are_packed_where_that_pays() {
    let wide = VectorNm::from_dense(&[1.0f32; 64 * 64], 64, 64, NmPattern::new(8, 8, 64).unwrap()).unwrap();
    let narrow = VectorNm::from_dense(&[1.0f32; 64 * 64], 64, 64, NmPattern::new(8, 8, 1).unwrap()).unwrap();
    for (weights, packs) in [(wide, false), (narrow, true)] {
        let auto = written(Kind::Safetensors, &weights, NmIndices::Auto);
        let same =
            written(Kind::Safetensors, &weights, if packs { NmIndices::Packed } else { NmIndices::Bytes });
        assert_eq!(auto, same);
    }
}

#[test]
fn other_programs_find_what_they_expect() {
    let file = written(Kind::Safetensors, &small(), NmIndices::Bytes);
    let (_, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let entry = |key: &str| metadata[key].as_str();
    assert_eq!(["format", "version", "rows", "cols"].map(entry), ["vector-nm", "1", "6", "3"]);
    assert_eq!(["N", "M", "L", "indices"].map(entry), ["2", "4", "2", "bytes"]);
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let indices = tensors.tensor("indices").unwrap();
    assert_eq!((indices.shape(), indices.data()), (&[4, 2][..], small().indices()));
    assert_eq!(tensors.tensor("values").unwrap().shape(), [4, 3]);
    assert_eq!((file.len() - 4 * 12 - 8) % 8, 0, "values are aligned");
    // The tensor of values can be read on its own.
    let values = read_tensor_from::<f32>(&file[..], Some("values"), &ReadOptions::default()).unwrap();
    assert_eq!((values.rows(), values.cols(), values.values()), (4, 3, small().values()));
}

#[test]
fn values_are_rounded_to_the_type_that_is_asked_for() {
    let weights = small().with_values(vec![1.0 + 1e-9; 12]).unwrap();
    for kind in KINDS {
        let found = read::<f32>(&written::<f64>(kind, &weights, NmIndices::Bytes)).unwrap();
        assert_eq!(found.values(), [1.0f32; 12]);
        let found = read::<f16>(&written::<f64>(kind, &weights, NmIndices::Bytes)).unwrap();
        assert_eq!(found.values(), [f16::ONE; 12]);
    }
}

#[test]
fn files_by_name() {
    let folder = std::env::temp_dir().join(format!("windrow-io-vector-nm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["a.safetensors", "a.SafeTensors", "a.npz"] {
        let path = folder.join(name);
        write_vector_nm(&path, &small(), NmIndices::Auto).unwrap();
        assert_eq!(read_vector_nm::<f32>(&path, &ReadOptions::default()).unwrap(), small());
    }
    let error = write_vector_nm(folder.join("a.bin"), &small(), NmIndices::Auto).unwrap_err();
    assert!(matches!(error.cause(), WriteError::UnknownNmExtension));
    assert!(error.to_string().ends_with("end it in .safetensors or .npz"), "{error}");
    let error = read_vector_nm::<f32>(folder.join("none"), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error.cause(), ReadError::Io(_)) && error.to_string().contains("none: cannot read"));
    let error = read_tensor::<f32>(folder.join("a.npz"), None, &ReadOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("a.npz: content: expected a safetensors file, found a zip archive"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn limits_are_kept() {
    let check = |limits: Limits, field: &str| {
        for kind in KINDS {
            let file = written(kind, &small(), NmIndices::Bytes);
            let options = ReadOptions { limits, ..ReadOptions::default() };
            let error = read_vector_nm_from::<f32>(&file[..], &options).unwrap_err();
            assert!(matches!(error, ReadError::Limit { field: found, .. } if found == field), "{error}");
        }
    };
    check(Limits { max_rows: 5, ..Limits::default() }, "max_rows");
    check(Limits { max_cols: 2, ..Limits::default() }, "max_cols");
    check(Limits { max_nnz: 11, ..Limits::default() }, "max_nnz");
    check(Limits { max_bytes: 100, ..Limits::default() }, "max_bytes");
    let file = written(Kind::Safetensors, &small(), NmIndices::Bytes);
    let options =
        ReadOptions { limits: Limits { max_nnz: 11, ..Limits::default() }, ..ReadOptions::default() };
    let error = read_tensor_from::<f32>(&file[..], Some("values"), &options).unwrap_err();
    assert!(
        error.to_string().starts_with("tensor `values`: 12 entries are more than the limit of 11"),
        "{error}"
    );
}

/// A safetensors file with this header and as many bytes behind it.
fn with_header(header: &str, bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + bytes, 0);
    file
}

/// The header of 4 × 2 weights, 1:2 in vectors of 2, with something replaced.
fn header(from: &str, to: &str) -> String {
    let header = r#"{"__metadata__":{"format":"vector-nm","version":"1","rows":"4","cols":"2","N":"1","M":"2","L":"2","indices":"bytes"},"values":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"indices":{"dtype":"U8","shape":[2,1],"data_offsets":[16,18]}}"#;
    assert!(header.contains(from), "{from}");
    header.replace(from, to)
}

#[test]
fn hostile_safetensors_are_refused() {
    assert!(read::<f32>(&with_header(&header("F32", "F32"), 18)).is_ok());
    for (from, to, parts) in [
        (
            "vector-nm",
            "pt",
            &["safetensors metadata", "the format \"vector-nm\"", "`pt`, and `values`, `indices`"][..],
        ),
        ("\"version\":\"1\"", "\"version\":\"2\"", &["version 2 of vector-nm is not supported"]),
        ("\"version\":\"1\",", "", &["an entry \"version\", found none"]),
        ("\"rows\":\"4\"", "\"rows\":\"-4\"", &["a number as \"rows\", found `-4`"]),
        ("\"rows\":\"4\"", "\"rows\":\"4294967295\"", &["rows are more than the limit"]),
        ("\"rows\":\"4\"", "\"rows\":\"99999999999999999999\"", &["rows are more than the limit"]),
        ("\"rows\":\"4\"", "\"rows\":\"5\"", &["tensor `values`: expected shape [3, 2]"]),
        ("\"cols\":\"2\"", "\"cols\":\"4000000000\"", &["8000000000 entries are more than"]),
        ("\"N\":\"1\"", "\"N\":\"0\"", &["there is no pattern 0:2 in vectors of 2"]),
        ("\"N\":\"1\"", "\"N\":\"3\"", &["there is no pattern 3:2"]),
        ("\"M\":\"2\"", "\"M\":\"257\"", &["there is no pattern 1:257"]),
        ("\"L\":\"2\"", "\"L\":\"0\"", &["in vectors of 0; give 1 ≤ N ≤ M ≤ 256"]),
        ("\"L\":\"2\"", "\"L\":\"1\"", &["tensor `indices`: expected shape [2, 2]"]),
        ("bytes", "zip", &["\"bytes\" or \"packed\" as \"indices\", found `zip`"]),
        ("bytes", "packed", &["tensor `indices`: expected shape [1]"]),
        (
            "\"values\":{",
            "\"valves\":{",
            &["a tensor `values`, found none of that name, but `valves`, `indices`"],
        ),
        ("\"U8\"", "\"I8\"", &["tensor `indices`: expected elements of type U8, found I8"]),
        ("\"F32\"", "\"I32\"", &["tensor `values`: the type I32 is not supported", "tensor.float()"]),
        ("[0,16]", "[0,17]", &["safetensors header: expected a valid one"]),
        ("[16,18]", "[15,17]", &["safetensors header"]),
        ("[2,2]", "[4611686018427387904,4]", &["safetensors header"]),
    ] {
        refused(&with_header(&header(from, to), 18), parts);
    }
    refused(&with_header(&header("F32", "F32"), 17), &["safetensors header"]);
    let mut hostile = with_header(&header("F32", "F32"), 18);
    let last = hostile.len() - 1;
    hostile[last] = 2;
    refused(&hostile, &["kept row 1, vector 0: index 2 is not below the 2 rows of group 1"]);
    refused(b"PK", &["content: expected a safetensors file or an .npz archive, found 2 bytes"]);
    refused(b"", &["found 0 bytes"]);
    refused(
        &u64::MAX.to_le_bytes().iter().copied().chain(*b"{}").collect::<Vec<_>>(),
        &["one of 18446744073709551615 bytes, more than 100000000"],
    );
}

/// An archive of these arrays: name, NumPy's header, content.
fn archive(arrays: &[(&str, String, Vec<u8>)]) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, dictionary, content) in arrays {
        zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(b"\x93NUMPY\x01\x00").unwrap();
        zip.write_all(&u16::try_from(dictionary.len()).unwrap().to_le_bytes()).unwrap();
        zip.write_all(dictionary.as_bytes()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn array(name: &'static str, dtype: &str, shape: &str, content: &[u8]) -> (&'static str, String, Vec<u8>) {
    let dictionary = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n");
    (name, dictionary, content.to_vec())
}

fn ints(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The arrays of 4 × 2 weights, 1:2 in vectors of 2.
fn arrays() -> Vec<(&'static str, String, Vec<u8>)> {
    vec![
        array("format", "|S9", "()", b"vector-nm"),
        array("version", "<i8", "()", &ints(&[1])),
        array("shape", "<i8", "(2,)", &ints(&[4, 2])),
        array("pattern", "<i8", "(3,)", &ints(&[1, 2, 2])),
        array("values", "<f4", "(2, 2)", &[0; 16]),
        array("indices", "|u1", "(2, 1)", &[1, 0]),
    ]
}

#[test]
fn hostile_archives_are_refused() {
    assert_eq!(read::<f32>(&archive(&arrays())).unwrap().indices(), [1, 0]);
    for (replaced, parts) in [
        (array("format", "|S3", "()", b"csr"), &["format.npy: expected vector-nm, found `csr`"][..]),
        (array("version", "<i8", "()", &ints(&[7])), &["version.npy: version 7 of vector-nm"]),
        (
            array("shape", "<i8", "(3,)", &ints(&[4, 2, 1])),
            &["shape.npy: expected two numbers, rows and columns, found shape [3]"],
        ),
        (array("shape", "<i8", "(2,)", &ints(&[-1, 2])), &["shape.npy", "found -1 at position 0"]),
        (array("shape", "<i8", "(2,)", &ints(&[1 << 30, 2])), &["rows are more than the limit"]),
        (array("pattern", "<i8", "(3,)", &ints(&[3, 2, 2])), &["there is no pattern 3:2"]),
        (array("values", "<f4", "(4,)", &[0; 16]), &["values.npy: expected shape [2, 2]"]),
        (array("values", "<c8", "(2, 2)", &[0; 32]), &["values.npy: the complex type"]),
        (array("indices", "<i4", "(2, 1)", &[0; 8]), &["indices.npy: expected bytes of type |u1"]),
        (array("indices", "|u1", "(2, 1)", &[0, 2]), &["kept row 1, vector 0: index 2"]),
        (array("indices", "|u1", "(2,)", &[0, 1]), &["indices.npy: expected shape [2, 1]"]),
    ] {
        let mut arrays = arrays();
        let name = replaced.0;
        *arrays.iter_mut().find(|array| array.0 == name).unwrap() = replaced;
        refused(&archive(&arrays), parts);
    }
    // A million numbers, each of which is refused where it may be there at all.
    for (name, expected) in
        [("version", "one number"), ("shape", "two numbers, rows"), ("pattern", "three numbers, N, M and L")]
    {
        let mut arrays = arrays();
        *arrays.iter_mut().find(|array| array.0 == name).unwrap() =
            array(name, "|i1", "(1000000,)", &[0xFF; 1_000_000]);
        refused(&archive(&arrays), &[&format!("{name}.npy: expected {expected}"), "found shape [1000000]"]);
    }
    let without = |name: &str| {
        let mut arrays = arrays();
        arrays.retain(|array| array.0 != name);
        archive(&arrays)
    };
    refused(&without("pattern"), &["archive: expected an array pattern"]);
    refused(&without("indices"), &["archive: expected an array packed_indices"]);
    let mut fortran = arrays();
    fortran[4].1 = fortran[4].1.replace("False", "True");
    refused(&archive(&fortran), &["values.npy: expected elements in C order, found Fortran order"]);
}

fn tensor(name: &str, rows: usize, cols: usize) -> DenseTensor<f32> {
    let values = (0..rows * cols).map(|i| f32::from(u16::try_from(i).unwrap())).collect();
    DenseTensor::new(name, rows, cols, values).unwrap()
}

#[test]
fn dense_tensors_are_found_by_name() {
    let tensors = [tensor("up.weight", 3, 5), tensor("up.bias", 1, 5), tensor("wéird \"name\"\\\n", 2, 0)];
    let mut file = Vec::new();
    write_tensors(&mut file, &tensors).unwrap();
    let read = |name| read_tensor_from::<f32>(&file[..], name, &ReadOptions::default());
    for tensor in &tensors {
        assert_eq!(&read(Some(tensor.name())).unwrap(), tensor, "{}", tensor.name());
    }
    let error = read(Some("down.weight")).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "safetensors file: expected a tensor `down.weight`, found none of that name, but `up.weight`, `up.bias`"
        ),
        "{error}"
    );
    let error = read(None).unwrap_err().to_string();
    assert!(error.starts_with("safetensors file: expected one tensor, found 3: `up.weight`"), "{error}");
    let mut one = Vec::new();
    write_tensors(&mut one, &tensors[..1]).unwrap();
    assert_eq!(read_tensor_from::<f32>(&one[..], None, &ReadOptions::default()).unwrap(), tensors[0]);
    refused(&file, &["safetensors metadata", "dense tensors are read by name and pruned"]);
}

#[test]
fn names_that_would_make_unreadable_files_are_refused() {
    for (names, why) in [
        (["a", "a"], "cannot write: two tensors are called \"a\""),
        (
            ["a", "__metadata__"],
            "cannot write: no tensor can be called \"__metadata__\", where safetensors files keep metadata",
        ),
    ] {
        let mut file = Vec::new();
        let error = write_tensors(&mut file, &names.map(|name| tensor(name, 1, 2))).unwrap_err();
        assert_eq!((error.to_string().as_str(), file.len()), (why, 0));
    }
    // What would be written otherwise.
    let header = r#"{"__metadata__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    assert!(read_tensor_from::<f32>(&with_header(header, 4)[..], None, &ReadOptions::default()).is_err());
    // Names that only look like it.
    let tensors = ["__metadata__ ", "metadata", ""].map(|name| tensor(name, 1, 2));
    let mut file = Vec::new();
    write_tensors(&mut file, &tensors).unwrap();
    for tensor in &tensors {
        let found = read_tensor_from::<f32>(&file[..], Some(tensor.name()), &ReadOptions::default());
        assert_eq!(&found.unwrap(), tensor);
    }
}

#[test]
fn tensors_of_one_dimension_are_rows_and_more_than_two_are_refused() {
    let file = with_header(r#"{"bias":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}"#, 6);
    let bias = read_tensor_from::<f32>(&file[..], None, &ReadOptions::default()).unwrap();
    assert_eq!((bias.rows(), bias.cols()), (1, 3));
    let file = with_header(r#"{"kernel":{"dtype":"F16","shape":[3,1,1],"data_offsets":[0,6]}}"#, 6);
    let error = read_tensor_from::<f32>(&file[..], None, &ReadOptions::default()).unwrap_err().to_string();
    assert_eq!(error, "tensor `kernel`: expected one dimension or two, found shape [3, 1, 1]");
}

#[test]
fn transposing_twice_is_nothing() {
    for (rows, cols) in [(0, 0), (0, 5), (5, 0), (1, 7), (33, 70), (64, 32)] {
        let tensor = tensor("t", rows, cols);
        let transposed = tensor.transposed().unwrap();
        assert_eq!((transposed.rows(), transposed.cols()), (cols, rows));
        for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
            assert_eq!(transposed.values()[c * rows + r], tensor.values()[r * cols + c]);
        }
        assert_eq!(transposed.transposed().unwrap(), tensor);
    }
    assert!(DenseTensor::new("t", 2, 3, vec![0.0f32; 5]).is_err());
}

#[test]
fn other_files_of_weights_are_called_what_they_are() {
    for (content, what) in [
        (&b"GGUF\x03\0\0\0\x10\0\0\0"[..], "a GGUF file"),
        (b"PK\x03\x04\0\0\0\0\0\0archive/data.pkl", "a zip archive, as torch.save"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "a pickle"),
        (b"\x93NUMPY\x01\0v\0{'descr'", "one NumPy array"),
        (b"{\n  \"metadata\": {\"total_size\": 12}\n}\n", "JSON text; an index names the files of a model"),
        (b"weights of 2024", "15 bytes that begin with `weights of 2024`"),
        (b"", "0 bytes"),
    ] {
        let error = read_tensor_from::<f32>(content, None, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("content: expected a safetensors file, found {what}")), "{error}");
    }
}
