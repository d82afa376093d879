//! Every reader: whatever the content is, the outcome is a valid value or an error of a bounded length.

use windrow_formats::io::{
    Format, Limits, ReadError, ReadOptions, read_csr_from, read_permutation_from, read_tensor_from,
    read_tns_from, read_vector_nm_from, sniff, write_matrix_market, write_scipy_npz,
};
use windrow_formats::{Csf3, Csr, Value, VectorNm};

use super::bytes::Bytes;

/// Small limits, so that a lie costs no time.
fn options(format: Option<Format>) -> ReadOptions<'static> {
    let limits = Limits { max_rows: 1 << 16, max_cols: 1 << 32, max_nnz: 1 << 16, max_bytes: 1 << 20 };
    ReadOptions { limits, format, ..ReadOptions::default() }
}

/// What the first byte chooses between: a matrix in a format that is found out or told, and the other readers.
const READERS: usize = 1 + Format::ALL.len() + 4;

/// The first byte for each reader: of matrices in the format that is found out, tensors, weights, dense tensors and
/// orders.
pub(crate) const MATRIX: u8 = 0;
pub(crate) const TNS: u8 = 1 + Format::ALL.len() as u8;
pub(crate) const WEIGHTS: u8 = TNS + 1;
pub(crate) const DENSE: u8 = TNS + 2;
pub(crate) const ORDER: u8 = TNS + 3;

/// Reads what is behind the first byte as that says. Returns whether it was accepted.
pub(crate) fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let reader = bytes.below(READERS);
    let content = bytes.0;
    let _ = sniff(content);
    let outcome = match (reader as u8).checked_sub(TNS) {
        None => {
            let format = reader.checked_sub(1).map(|at| Format::ALL[at]);
            matrix::<f32>(content, format).and_then(|()| matrix::<f64>(content, format))
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

fn matrix<V: Value>(content: &[u8], format: Option<Format>) -> Result<(), ReadError> {
    let (csr, report) = read_csr_from::<V>(content, &options(format))?;
    assert!(csr.nnz() as u64 <= report.entries_read + report.mirrored);
    let again = rebuilt(&csr);
    assert!(again.bitwise_eq(&csr) && again.canonicalised().sorted_rows == 0);
    // What is written is read as the same again.
    let (mut archive, mut text) = (Vec::new(), Vec::new());
    write_scipy_npz(&mut archive, &csr).unwrap();
    write_matrix_market(&mut text, &csr).unwrap();
    let from_archive = read_csr_from::<V>(&archive[..], &unlimited()).unwrap().0;
    assert!(from_archive.bitwise_eq(&csr));
    let from_text = read_csr_from::<V>(&text[..], &unlimited()).unwrap().0;
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
