//! SciPy's and TC-GNN's archives: fixtures that Python made (see `data/README.md`), and damaged ones.

use std::io::Write;
use std::path::PathBuf;

use crate::io_support::{check, gzip, read};
use windrow_formats::Csr;
use windrow_formats::io::{
    Format, Header, Limits, ReadError, ReadOptions, Storage, read_csr, read_csr_from, sniff, write_scipy_npz,
};

fn fixture(name: &str) -> Vec<u8> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/data").join(format!("{name}.npz"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The matrix of the SciPy fixtures; see `make_fixtures.py`.
const WANT: [(usize, u32, f64); 7] =
    [(0, 1, 1.5), (0, 4, -2.0), (2, 0, 3.0), (2, 2, 0.0), (3, 1, 0.25), (3, 3, 7.0), (3, 4, 1.0)];

fn header(storage: Storage, dtype: &str) -> Header {
    Header::ScipyNpz { storage, dtype: dtype.to_owned() }
}

#[test]
fn every_storage_compressed_and_not() {
    for (name, storage) in [("csr", Storage::Csr), ("csc", Storage::Csc), ("coo", Storage::Coo)] {
        for name in [name.to_owned(), format!("{name}_compressed")] {
            let content = fixture(&name);
            let report = check(&content, (4, 5), &WANT);
            assert_eq!(report.header, header(storage, "<f8"), "{name}");
            assert_eq!((report.entries_read, report.duplicates_summed, report.gzip), (7, 0, false));
            assert!(check(gzip(&content), (4, 5), &WANT).gzip);
            assert_eq!(sniff(&content).unwrap(), Format::ScipyNpz);
            assert_eq!(sniff(&gzip(&content)).unwrap(), Format::ScipyNpz);
        }
    }
}

#[test]
fn every_value_type() {
    let real = |value: f64| value;
    let cut = |value: f64| value.trunc();
    let size = |value: f64| value.abs().trunc();
    let truth = |value: f64| f64::from(u8::from(value != 0.0));
    for (name, dtype, convert) in [
        ("f4", "<f4", real as fn(f64) -> f64),
        ("f8", "<f8", real),
        ("be_f8", ">f8", real),
        ("be_i4", ">i4", cut),
        ("i1", "|i1", cut),
        ("i2", "<i2", cut),
        ("i4", "<i4", cut),
        ("i8", "<i8", cut),
        ("u1", "|u1", size),
        ("u2", "<u2", size),
        ("u4", "<u4", size),
        ("u8", "<u8", size),
        ("bool", "|b1", truth),
    ] {
        let want = WANT.map(|(row, col, value)| (row, col, convert(value)));
        let report = check(fixture(&format!("csr_{name}")), (4, 5), &want);
        assert_eq!(report.header, header(Storage::Csr, dtype));
    }
}

#[test]
fn whatever_else_scipy_reads_or_wrote() {
    for name in ["csr_array", "csr_i8_indices", "csr_unicode_format", "coo_coords", "csr_room_behind"] {
        let report = check(fixture(name), (4, 5), &WANT);
        assert_eq!(report.entries_read, 7, "{name}");
    }
    let report = check(fixture("csr_unsorted_duplicates"), (4, 5), &WANT);
    assert_eq!((report.entries_read, report.duplicates_summed), (8, 1));
    check(fixture("csr_empty"), (3, 0), &[]);
}

#[test]
fn tc_gnn_graphs() {
    // The edge 3 -> 0 is there twice; node 4 has no edge.
    let want = [(0, 1, 1.0), (0, 2, 1.0), (1, 0, 1.0), (3, 0, 2.0)];
    for name in ["tc_gnn", "tc_gnn_compressed"] {
        let content = fixture(name);
        let report = check(&content, (5, 5), &want);
        assert_eq!((report.header, report.format), (Header::TcGnnNpz, Format::TcGnnNpz));
        assert_eq!((report.entries_read, report.duplicates_summed, report.pattern_values), (5, 1, 5));
        assert_eq!(sniff(&content).unwrap(), Format::TcGnnNpz);
        let options = ReadOptions { format: Some(Format::TcGnnNpz), ..ReadOptions::default() };
        assert_eq!(read_csr_from::<f32>(&content[..], &options).unwrap().0.nnz(), 4);
        let options = ReadOptions { format: Some(Format::ScipyNpz), ..ReadOptions::default() };
        let error = read_csr_from::<f32>(&content[..], &options).unwrap_err().to_string();
        assert_eq!(error, "archive: expected an array format, found none of that name");
    }
}

#[test]
fn read_from_a_path() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/data/csr.npz");
    let csr: Csr<f32> = read_csr(path).unwrap();
    assert_eq!(csr.row(3), (&[1, 3, 4][..], &[0.25, 7.0, 1.0][..]));
}

#[track_caller]
fn refused(content: &[u8], parts: &[&str]) {
    let message = match read::<f32>(content) {
        Ok((_, report)) => panic!("read {report}; wanted an error with {parts:?}"),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn what_cannot_be_held_is_refused_with_a_remedy() {
    refused(&fixture("bsr"), &["format.npy: the storage bsr is not supported", "a.tocsr()"]);
    refused(&fixture("dia"), &["format.npy: the storage dia is not supported", "a.tocsr()"]);
    refused(&fixture("csr_complex"), &["data.npy: the complex type <c16", "a.real"]);
    refused(&fixture("objects"), &["src_li.npy", "Python objects, which are not unpickled"]);
    refused(
        &fixture("other_arrays"),
        &["zip archive of `weights.npy`, `bias.npy`", "without format.npy or src_li"],
    );
}

/// An array file: header with `dictionary`, then `data`.
fn npy(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&u16::try_from(dictionary.len()).unwrap().to_le_bytes());
    [&bytes, dictionary.as_bytes(), data].concat()
}

fn numbers<const N: usize>(dtype: &str, numbers: &[[u8; N]]) -> Vec<u8> {
    let shape = numbers.len();
    npy(
        &format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape},), }}\n"),
        numbers.as_flattened(),
    )
}

fn ints(ints: &[i64]) -> Vec<u8> {
    numbers("<i8", &ints.iter().map(|x| x.to_le_bytes()).collect::<Vec<_>>())
}

fn text(text: &str) -> Vec<u8> {
    let len = text.len();
    npy(&format!("{{'descr': '|S{len}', 'fortran_order': False, 'shape': (), }}\n"), text.as_bytes())
}

fn zip(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in members {
        let options =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The archive of a 2 x 3 CSR matrix with two entries, one array replaced.
fn csr_with(name: &str, array: Option<Vec<u8>>) -> Vec<u8> {
    let mut members = vec![
        ("format", text("csr")),
        ("shape", ints(&[2, 3])),
        ("indptr", ints(&[0, 1, 2])),
        ("indices", ints(&[0, 2])),
        ("data", numbers("<f4", &[1.5f32.to_le_bytes(), 2.5f32.to_le_bytes()])),
    ];
    members.retain(|(member, _)| *member != name);
    members.extend(array.map(|array| (name, array)));
    zip(&members)
}

/// Values that a way through f32, or through text, would change.
const HARD: [u64; 8] = [
    0x3fb9_9999_9999_999a, // 0.1
    0x3ff0_0000_0000_0001, // 1 and the next bit
    0x0000_0000_0000_0001, // the smallest
    0x7fef_ffff_ffff_ffff, // the largest
    0x8000_0000_0000_0000, // -0
    0xfff0_0000_0000_0000, // minus infinity
    0x7ff8_0000_dead_beef, // a NaN with a payload
    0x7ff0_0000_0000_0001, // one that signals
];

#[test]
fn f64_values_keep_every_bit_in_every_storage_and_byte_order() {
    let count = i64::try_from(HARD.len()).unwrap();
    let (ascending, zeros) = ((0..count).collect::<Vec<_>>(), vec![0; HARD.len()]);
    let (big, little) = (HARD.map(u64::to_be_bytes), HARD.map(u64::to_le_bytes));
    for data in [numbers(">f8", &big), numbers("<f8", &little)] {
        // One row, and as a compressed column its transpose.
        for (storage, shape) in [("csr", [1, count]), ("csc", [count, 1])] {
            let archive = zip(&[
                ("format", text(storage)),
                ("shape", ints(&shape)),
                ("indptr", ints(&[0, count])),
                ("indices", ints(&ascending)),
                ("data", data.clone()),
            ]);
            assert_eq!(bits(&archive), HARD, "{storage}");
        }
        let archive = zip(&[
            ("format", text("coo")),
            ("shape", ints(&[1, count])),
            ("row", ints(&zeros)),
            ("col", ints(&ascending)),
            ("data", data),
        ]);
        assert_eq!(bits(&archive), HARD, "coo");
    }
    let mut archive = Vec::new();
    let (csr, _) = read::<f64>(csr_with("data", Some(numbers("<f8", &[little[6], little[7]])))).unwrap();
    write_scipy_npz(&mut archive, &csr).unwrap();
    assert_eq!(bits(&archive), HARD[6..], "written and read");
}

fn bits(archive: &[u8]) -> Vec<u64> {
    read::<f64>(archive).unwrap().0.values().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn damaged_and_lying_scipy_archives() {
    check(csr_with("none", None), (2, 3), &[(0, 0, 1.5), (1, 2, 2.5)]);
    for name in ["shape", "indptr", "indices", "data"] {
        refused(&csr_with(name, None), &["archive: expected an array", name, "none of that name"]);
        refused(&csr_with(name, Some(Vec::new())), &[name, "expected a NumPy array"]);
        refused(&csr_with(name, Some(text("csr"))), &[name]);
    }
    let in_brackets = npy(
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), }\n",
        [2i64, 3].map(i64::to_le_bytes).as_flattened(),
    );
    refused(&csr_with("shape", Some(in_brackets)), &["shape.npy: expected two sizes", "found shape [1, 2]"]);
    for (name, array, parts) in [
        ("format", text("xyz"), &["format.npy: expected csr, csc or coo, found `xyz`"][..]),
        ("format", ints(&[1]), &["format.npy: expected a string, found type <i8"]),
        ("shape", ints(&[2]), &["shape.npy: expected two sizes, rows and columns, found shape [1]"]),
        ("shape", ints(&[2, 3, 4]), &["shape.npy: expected two sizes", "found shape [3]"]),
        (
            "shape",
            ints(&[-2, 3]),
            &["shape.npy: expected sizes from 0 to 4294967295, found -2 at position 0"],
        ),
        ("shape", ints(&[2, 1 << 32]), &["found 4294967296 at position 1"]),
        ("shape", ints(&[1 << 30, 3]), &["shape.npy: 1073741824 rows", "Limits::max_rows"]),
        (
            "shape",
            ints(&[2, 0]),
            &["indices.npy: expected no column indices, since the matrix has none, found 2"],
        ),
        (
            "shape",
            ints(&[3, 3]),
            &["indptr.npy: expected 4 elements, one more than there are rows", "shape [3]"],
        ),
        ("indptr", ints(&[1, 1, 2]), &["indptr.npy: expected 0 as the first offset, found 1"]),
        ("indptr", ints(&[0, 2, 1]), &["an offset of at least 2, where row 1 starts, found 1 at position 2"]),
        ("indptr", ints(&[0, 1, 3]), &["indptr.npy: expected offsets from 0 to 2, found 3 at position 2"]),
        ("indptr", ints(&[0, -1, 2]), &["found -1 at position 1"]),
        (
            "indices",
            ints(&[0, 3]),
            &["indices.npy: expected column indices from 0 to 2, found 3 at position 1"],
        ),
        ("indices", ints(&[-1, 2]), &["found -1 at position 0"]),
        ("indices", ints(&[i64::MIN, 2]), &["found -9223372036854775808 at position 0"]),
        (
            "indices",
            ints(&[0]),
            &["indices.npy: expected 2 elements, one for each of data.npy, found shape [1]"],
        ),
        ("indices", numbers("<f4", &[[0; 4], [0; 4]]), &["indices.npy: expected integers", "type <f4"]),
        ("data", numbers("<f4", &[[0; 4]]), &["indptr.npy: expected offsets from 0 to 1, found 2"]),
        (
            "data",
            numbers("<f16", &[[0; 16], [0; 16]]),
            &["data.npy: expected values of 1 to 8 bytes", "type <f16"],
        ),
    ] {
        refused(&csr_with(name, Some(array)), parts);
    }
}

#[test]
fn hostile_array_headers() {
    let two = [0u8; 16];
    let descr = |shape: &str| format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
    for (header, parts) in [
        (descr("(3,)"), &["data.npy: expected 24 bytes for shape [3] of <f8, found 16 bytes"][..]),
        (descr("(1,)"), &["expected 8 bytes for shape [1] of <f8, found 16 bytes"]),
        (descr("(2, 1)"), &["data.npy: expected 2 elements, in one dimension, found shape [2, 1]"]),
        (descr("(1000000000000,)"), &["expected 8000000000000 bytes", "found 16 bytes"]),
        (descr("(4611686018427387904, 8)"), &["a shape of more elements than any file holds"]),
        (descr("(99999999999999999999999999999,)"), &["a shape of more elements"]),
        (descr("(-2,)"), &["data.npy: expected a NumPy array, found the negative dimension `-2,)"]),
        (descr(&"(".repeat(2000)), &["instead of a dimension"]),
        (descr(&"-".repeat(3000)), &["data.npy: expected a NumPy array"]),
        (descr(&"1".repeat(5000)), &["a header of 5054 bytes, more than the 4096 that any needs"]),
        (
            "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (2,), }".into(),
            &["records"],
        ),
        ("{'descr': '<f8', 'shape': (2,), }".into(), &["found a header without 'fortran_order'"]),
        (
            "{'descr': 'nonsense', 'fortran_order': False, 'shape': (2,), }".into(),
            &["the element type `nonsense`"],
        ),
        ("\u{0}\u{1}".into(), &["data.npy: expected a NumPy array"]),
        (String::new(), &["data.npy: expected a NumPy array"]),
    ] {
        refused(&csr_with("data", Some(npy(&header, &two))), parts);
    }
    refused(
        &csr_with("data", Some(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec())),
        &["a header of 4294967295 bytes, more than the 4096"],
    );
    refused(&csr_with("data", Some(b"\x93NUMPY\x01\x00\xff\x0f{".to_vec())), &["a header that ends early"]);
    refused(
        &csr_with("data", Some(b"\x93NUMPY\x09\x00\x01\x00{".to_vec())),
        &["no header of a known version"],
    );
    refused(&csr_with("data", Some(b"NUMPY".to_vec())), &["data.npy"]);
}

#[test]
fn damaged_and_lying_graphs() {
    let graph = |nodes: Vec<u8>, sources: Vec<u8>, targets: Vec<u8>| {
        zip(&[("num_nodes", nodes), ("src_li", sources), ("dst_li", targets)])
    };
    check(graph(ints(&[3]), ints(&[0, 2]), ints(&[1, 2])), (3, 3), &[(0, 1, 1.0), (2, 2, 1.0)]);
    check(graph(ints(&[0]), ints(&[]), ints(&[])), (0, 0), &[]);
    for (content, part) in [
        (
            graph(ints(&[2]), ints(&[0, 2]), ints(&[1, 1])),
            "src_li.npy: expected nodes from 0 to 1, found 2 at position 1",
        ),
        (
            graph(ints(&[2]), ints(&[0, 1]), ints(&[-1, 1])),
            "dst_li.npy: expected nodes from 0 to 1, found -1 at position 0",
        ),
        (
            graph(ints(&[2]), ints(&[0, 1]), ints(&[1])),
            "dst_li.npy: expected 2 elements, one for each of src_li.npy",
        ),
        (graph(ints(&[2, 2]), ints(&[0]), ints(&[1])), "num_nodes.npy: expected one number, found shape [2]"),
        (graph(ints(&[-1]), ints(&[0]), ints(&[1])), "num_nodes.npy: expected number of nodes from 0"),
        (graph(ints(&[1 << 29]), ints(&[0]), ints(&[1])), "num_nodes.npy: 536870912 rows"),
        (graph(ints(&[0]), ints(&[0]), ints(&[0])), "src_li.npy: expected no nodes"),
        (zip(&[("num_nodes", ints(&[1])), ("src_li", ints(&[]))]), "archive: expected an array dst_li"),
    ] {
        refused(&content, &[part]);
    }
}

#[test]
fn lengths_are_looked_at_before_elements() {
    // A million elements, each of which is refused where it may be there at all.
    let many = |dtype: &str, element: &str| {
        let dictionary = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': (1000000,), }}\n");
        npy(&dictionary, &element.repeat(1_000_000).into_bytes())
    };
    let bytes =
        || npy("{'descr': '|i1', 'fortran_order': False, 'shape': (1000000,), }\n", &[0xFF; 1_000_000]);
    refused(
        &csr_with("shape", Some(bytes())),
        &["shape.npy: expected two sizes, rows and columns, found shape [1000000]"],
    );
    refused(
        &zip(&[("num_nodes", bytes()), ("src_li", ints(&[])), ("dst_li", ints(&[]))]),
        &["num_nodes.npy: expected one number, found shape [1000000]"],
    );
    for name in ["indptr", "indices"] {
        refused(&csr_with(name, Some(bytes())), &["elements, one", "found shape [1000000]"]);
    }
    refused(
        &csr_with("format", Some(many("|S3", "csr"))),
        &["format.npy: expected one string, found shape [1000000]"],
    );
    refused(
        &csr_with("format", Some(many("<U1", "\u{1}\0\0\0"))),
        &["format.npy: expected one string, found shape [1000000]"],
    );
    // Of one long string only the beginning is repeated.
    let error = read::<f32>(&csr_with("format", Some(text(&"x".repeat(100_000))))).unwrap_err().to_string();
    assert!(
        error.starts_with("format.npy: expected csr, csc or coo, found `xxx") && error.len() < 200,
        "{error}"
    );
}

/// Promise, memory: readers keep to their limits, whatever a file declares.
#[test]
fn limits_hold_whatever_the_archive_declares() {
    // 80 MB of zeros in 80 kB.
    let content = csr_with("data", Some(npy("{", &vec![0; 80 << 20])));
    assert!(content.len() < 200_000);
    let limits = Limits { max_bytes: 1 << 20, ..Limits::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let error = read_csr_from::<f32>(&content[..], &options).unwrap_err();
    assert!(matches!(error, ReadError::Limit { limit: 1_048_576, field: "max_bytes", .. }), "{error:?}");

    let options = |limits| ReadOptions { limits, ..ReadOptions::default() };
    let content = csr_with("none", None);
    let error =
        read_csr_from::<f32>(&content[..], &options(Limits { max_nnz: 1, ..Limits::default() })).unwrap_err();
    assert_eq!(
        error.to_string(),
        "data.npy: 2 entries are more than the limit of 1; if the file can be trusted, raise Limits::max_nnz"
    );
    let error = read_csr_from::<f32>(&content[..], &options(Limits { max_cols: 2, ..Limits::default() }))
        .unwrap_err();
    assert!(error.to_string().starts_with("shape.npy: 3 columns are more than the limit of 2"), "{error}");
    let error = read_csr_from::<f32>(&content[..], &options(Limits { max_bytes: 100, ..Limits::default() }))
        .unwrap_err();
    assert!(matches!(error, ReadError::Limit { field: "max_bytes", .. }), "{error:?}");

    // The sizes in the directory and before the members lie: 100 bytes less than there are.
    let honest = zip(&[("num_nodes", ints(&[3])), ("src_li", ints(&[0; 99])), ("dst_li", ints(&[1; 99]))]);
    check(&honest, (3, 3), &[(0, 1, 99.0)]);
    let size = u32::try_from(ints(&[0; 99]).len()).unwrap();
    for lie in [size - 100, size + 100, 0, u32::MAX - 1] {
        let mut lying = honest.clone();
        let mut at = 0;
        while let Some(found) = lying[at..].windows(4).position(|bytes| bytes == size.to_le_bytes()) {
            at += found;
            lying[at..at + 4].copy_from_slice(&lie.to_le_bytes());
        }
        // It may be read right or refused, but never more than there is.
        if let Ok((csr, _)) = read::<f64>(&lying) {
            assert_eq!(csr.values(), [99.0]);
        }
    }
}

#[test]
fn archives_that_are_cut_off_or_damaged() {
    let content = fixture("csr_compressed");
    for len in 0..content.len() {
        assert!(read::<f32>(&content[..len]).is_err(), "{len} of {} bytes were enough", content.len());
    }
    // A flipped bit in compressed data breaks the checksum.
    let data = content.windows(4).position(|bytes| bytes == b".npy").unwrap();
    let mut damaged = content.clone();
    damaged[data + 40] ^= 4;
    assert!(read::<f32>(&damaged).is_err());
}
