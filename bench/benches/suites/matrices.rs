//! The matrices of the suites.

use std::path::PathBuf;

use windrow::synthetic::Synthetic;
use windrow::{Csr, io};

use crate::cases::Bench;

/// The folder of the committed matrices: `WINDROW_DATA`, or `data/` of the repository.
pub(crate) fn data_folder() -> PathBuf {
    std::env::var_os("WINDROW_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../data")), PathBuf::from)
}

/// A committed matrix.
///
/// # Panics
/// If the file is not there: a suite without its matrices measures nothing.
fn committed(file: &str) -> Csr<f32> {
    let path = data_folder().join(file);
    io::read_csr(&path).unwrap_or_else(|error| panic!("{error}; name the folder in WINDROW_DATA"))
}

/// Rows of 0 to 9 entries, one that is full, and a block that fills tiles: for runs that only show that all works.
fn little() -> Csr<f32> {
    let (rows, cols) = (96, 80);
    let mut dense = vec![0.0f32; rows * cols];
    for (r, row) in dense.chunks_exact_mut(cols).enumerate() {
        for (k, x) in row.iter_mut().enumerate() {
            let is_entry = r == 7 || (r < 32 && k < 16) || (r % 5 != 0 && (r * 7 + k * 3) % 11 == 0);
            if is_entry {
                *x = (r as f32 - 2.0 * k as f32) / 64.0 + 0.01;
            }
        }
    }
    Csr::from_dense(rows, cols, &dense).expect("80 columns a row")
}

/// The committed matrices and some made-up ones, with their names; one little matrix in a quick run.
pub(crate) fn matrices(bench: &Bench, synthetic: &[Synthetic]) -> Vec<(&'static str, Csr<f32>)> {
    if bench.is_quick {
        return vec![("little", little())];
    }
    let files = [
        ("ct2010", "ct2010.mtx.gz"),
        ("mbeacxc", "mbeacxc.mtx.gz"),
        ("lyra_conv_to_gates", "lyra_conv_to_gates.smtx.gz"),
    ];
    let committed = files.map(|(name, file)| (name, committed(file)));
    let made_up =
        synthetic.iter().map(|kind| (kind.name(), kind.generate(1).expect("memory for a test matrix")));
    committed.into_iter().chain(made_up).collect()
}
