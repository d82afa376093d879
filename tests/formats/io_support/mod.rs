//! Helpers that the reader tests share.
#![allow(dead_code, reason = "each test file uses some of them")]

use windrow_formats::io::{ReadError, ReadOptions, ReadReport, read_csr_from};
use windrow_formats::{Csr, Value};

/// Reads `content` with default options.
pub(crate) fn read<V: Value>(content: impl AsRef<[u8]>) -> Result<(Csr<V>, ReadReport), ReadError> {
    read_csr_from(content.as_ref(), &ReadOptions::default())
}

/// Every entry as row, column and value.
pub(crate) fn entries<V: Value>(csr: &Csr<V>) -> Vec<(usize, u32, f64)> {
    let rows = csr.rows_iter().enumerate();
    rows.flat_map(|(row, (cols, values))| {
        cols.iter().zip(values).map(move |(&col, &value)| (row, col, value.to_f64()))
    })
    .collect()
}

/// Checks that `content` reads as a matrix of this size with these entries; returns what was reported.
#[track_caller]
pub(crate) fn check(
    content: impl AsRef<[u8]>,
    size: (usize, usize),
    want: &[(usize, u32, f64)],
) -> ReadReport {
    let content = content.as_ref();
    let (csr, report) = match read::<f64>(content) {
        Ok(loaded) => loaded,
        Err(error) => panic!("{error}\nin\n{}", String::from_utf8_lossy(content)),
    };
    assert_eq!((csr.rows(), csr.cols()), size);
    let got = entries(&csr);
    let same = got.len() == want.len()
        && got.iter().zip(want).all(|(a, b)| (a.0, a.1) == (b.0, b.1) && a.2.to_bits() == b.2.to_bits());
    assert!(same, "{got:?}\nis not\n{want:?}");
    report
}

/// `content` compressed by gzip, in memory.
pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
