//! Every reader: whatever the content is, the outcome is a valid value or an error of a bounded length.

use std::io::{Cursor, Write};

use windrow_formats::io::{
    Format, Limits, ModelIndex, ReadError, ReadOptions, read_csr_from, read_dense_from,
    read_permutation_from, read_tensor_from, read_tns_from, read_vector_nm_from, sniff, write_matrix_market,
    write_scipy_npz,
};
use windrow_formats::{Csf3, Csr, Value, VectorNm};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::bytes::Bytes;

/// Small limits, so that a lie costs no time.
fn options(format: Option<Format>) -> ReadOptions<'static> {
    let limits = Limits { max_rows: 1 << 16, max_cols: 1 << 32, max_nnz: 1 << 16, max_bytes: 1 << 20 };
    ReadOptions { limits, format, ..ReadOptions::default() }
}

/// What the first byte chooses between: a matrix in a format that is found out or told, and the other readers.
const READERS: usize = 1 + TOLD + 10;
/// Formats that are told by the bytes after the first. Those that came later are found out, and have a reader at the
/// end: the numbers of readers are those of the committed inputs.
const TOLD: usize = 5;

/// The first byte for each reader: of matrices in the format that is found out, tensors, weights, dense tensors and
/// orders; of matrices and of weights in an archive made of members; of an index of a model, and of weights with a name
/// among its tensors.
pub(crate) const MATRIX: u8 = 0;
pub(crate) const TNS: u8 = 1 + TOLD as u8;
pub(crate) const WEIGHTS: u8 = TNS + 1;
pub(crate) const DENSE: u8 = TNS + 2;
pub(crate) const ORDER: u8 = TNS + 3;
pub(crate) const MATRIX_MEMBERS: u8 = TNS + 4;
pub(crate) const WEIGHTS_MEMBERS: u8 = TNS + 5;
pub(crate) const INDEX: u8 = TNS + 8;
pub(crate) const NAMED_WEIGHTS: u8 = TNS + 9;

/// The name of weights that are read by a name.
pub(crate) const NAME: &str = "w";

/// What is between the members of an archive, each of which is a line with its name and the content.
pub(crate) const BETWEEN: &[u8] = b"--next--\n";

/// Reads what is behind the first byte as that says. Returns whether it was accepted.
pub(crate) fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let reader = bytes.below(READERS);
    let content = bytes.0;
    let _ = sniff(content);
    let outcome = match (reader as u8).checked_sub(TNS) {
        None => {
            let format = reader.checked_sub(1).map(|at| Format::ALL[at]);
            either_matrix(content, format)
        }
        Some(0) => read_tns_from::<f32>(content, None, &options(None)).map(|tensor| {
            for order in [[0, 1, 2], [2, 0, 1]] {
                let fibers = Csf3::try_from_coo(&tensor, order).unwrap();
                Csf3::try_from_parts(fibers.into_parts()).unwrap();
            }
        }),
        Some(1) => read_vector_nm_from::<f32>(content, &options(None)).map(weights),
        Some(2) => read_tensor_from::<f32>(content, None, &options(None)).map(|tensor| {
            assert_eq!(tensor.values().len(), tensor.rows() * tensor.cols());
        }),
        Some(4) => either_matrix(&archive(content), None),
        Some(6) => either_matrix(content, Some(Format::Safetensors)),
        Some(7) => read_dense_from::<f32>(content, &options(None)).map(|dense| {
            assert_eq!(dense.values().len(), dense.rows() * dense.cols());
        }),
        Some(8) => ModelIndex::read_from(content).map(|index| {
            for (tensor, file) in index.iter() {
                let path = std::path::Path::new(file);
                assert!(path.file_name() == Some(path.as_os_str()), "{tensor} in {file:?}");
                assert_eq!(index.file_of(tensor), Some(file));
            }
        }),
        Some(9) => {
            let options = ReadOptions { tensor: Some(NAME), ..options(None) };
            read_vector_nm_from::<f32>(content, &options).map(weights)
        }
        Some(5) => read_vector_nm_from::<f32>(&archive(content)[..], &options(None)).map(weights),
        _ => read_permutation_from(content, &options(None)).map(|order| {
            assert_eq!(order.inverse().inverse(), order);
        }),
    };
    if let Err(error) = &outcome {
        let message = error.to_string();
        assert!(!message.is_empty() && message.len() < 4000, "{} bytes of error", message.len());
    }
    outcome.is_ok()
}

/// An archive with the right checksums: changes to one that is packed would get no further than these.
fn archive(content: &[u8]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let (mut rest, mut more) = (content, true);
    while more {
        let end = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN);
        let member = &rest[..end.unwrap_or(rest.len())];
        (rest, more) = (&rest[end.map_or(rest.len(), |end| end + BETWEEN.len())..], end.is_some());
        let line = member.iter().position(|&byte| byte == b'\n').unwrap_or(member.len());
        let (name, data) = member.split_at(line);
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        // No two members have one name.
        if archive.start_file(String::from_utf8_lossy(name), options).is_ok() {
            archive.write_all(data.get(1..).unwrap_or_default()).unwrap();
        }
    }
    archive.finish().unwrap().into_inner()
}

/// One type and one way back for each input: what changes its length comes by all of them.
fn either_matrix(content: &[u8], format: Option<Format>) -> Result<(), ReadError> {
    match content.len() % 2 {
        0 => matrix::<f32>(content, format),
        _ => matrix::<f64>(content, format),
    }
}

fn matrix<V: Value>(content: &[u8], format: Option<Format>) -> Result<(), ReadError> {
    let (csr, report) = read_csr_from::<V>(content, &options(format))?;
    assert!(csr.nnz() as u64 <= report.entries_read + report.mirrored);
    let again = rebuilt(&csr);
    assert!(again.bitwise_eq(&csr) && again.canonicalised().sorted_rows == 0);
    // What is written is read as the same again.
    let mut file = Vec::new();
    if (content.len() / 2).is_multiple_of(2) {
        write_scipy_npz(&mut file, &csr).unwrap();
        let from_archive = read_csr_from::<V>(&file[..], &unlimited()).unwrap().0;
        assert!(from_archive.bitwise_eq(&csr));
        return Ok(());
    }
    write_matrix_market(&mut file, &csr).unwrap();
    let from_text = read_csr_from::<V>(&file[..], &unlimited()).unwrap().0;
    assert_eq!(from_text.row_offsets(), csr.row_offsets());
    assert_eq!(from_text.col_indices(), csr.col_indices());
    for (a, b) in from_text.values().iter().zip(csr.values()) {
        let (a, b) = (a.to_f64(), b.to_f64());
        assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{a} was {b}");
    }
    Ok(())
}

/// For what was written by the project itself, which may be larger than what it was read from.
fn unlimited() -> ReadOptions<'static> {
    ReadOptions::default()
}

fn rebuilt<V: Value>(csr: &Csr<V>) -> Csr<V> {
    let (rows, cols) = (csr.rows(), csr.cols());
    let (offsets, col_indices, values) = csr.clone().into_parts();
    Csr::try_from_parts(rows, cols, offsets, col_indices, values).unwrap()
}

fn weights(weights: VectorNm<f32>) {
    let dense = weights.to_dense().unwrap();
    assert_eq!(dense.len(), weights.rows() * weights.cols());
}
