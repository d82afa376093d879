//! What the suites share: the matrices.

#![allow(dead_code, reason = "each suite is a crate of its own and uses a part of this")]

use std::path::PathBuf;

use windrow::synthetic::Synthetic;
use windrow::{Csr, io};

/// The folder of the committed matrices: `WINDROW_DATA`, or `data/` of the repository.
pub(crate) fn data_folder() -> PathBuf {
    std::env::var_os("WINDROW_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../data")), PathBuf::from)
}

/// A committed matrix.
///
/// # Panics
/// If the file is not there: a suite without its matrices measures nothing.
pub(crate) fn committed(file: &str) -> Csr<f32> {
    let path = data_folder().join(file);
    io::read_csr(&path).unwrap_or_else(|error| panic!("{error}; name the folder in WINDROW_DATA"))
}

/// The committed matrices and some made-up ones, with their names.
pub(crate) fn matrices(synthetic: &[Synthetic]) -> Vec<(&'static str, Csr<f32>)> {
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
