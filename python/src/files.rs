//! Reading and writing of files.

use std::path::PathBuf;

use pyo3::prelude::*;
use windrow::io::{Format, Limits, ReadOptions, WriteOptions, read_csr_with_report, write_csr};

use crate::csr::{AnyCsr, PyCsr, with_csr};
use crate::dtype::{Dtype, with_dtype};
use crate::error::{Class, Fault, Outcome};
use crate::outside::outside;
use crate::spmm::as_csr;

fn format_of(name: Option<&str>) -> Outcome<Option<Format>> {
    name.map(str::parse).transpose().map_err(|error: String| Fault::new(Class::Option, error))
}

/// Reads a sparse matrix: Matrix Market, an edge list, DLMC's `.smtx`, scipy's or TC-GNN's `.npz`, or a dense tensor
/// with zeros in safetensors, each also behind gzip.
///
/// The content tells the format, unless `format` does: "matrix-market", "edge-list", "smtx", "scipy-npz", "tc-gnn-npz"
/// or "safetensors". `dtype` is the type that values are read as; `tensor` names one of a file of safetensors.
///
/// A file with more rows, columns, entries or bytes than `max_rows`, `max_cols`, `max_nnz` and `max_bytes` is refused
/// before memory is taken for them; left out, they follow from the memory of the machine.
#[pyfunction]
#[pyo3(signature = (path, dtype = Dtype::F32, *, format = None, tensor = None, max_rows = None, max_cols = None,
                    max_nnz = None, max_bytes = None))]
pub(crate) fn read(
    py: Python<'_>,
    path: PathBuf,
    dtype: Dtype,
    format: Option<&str>,
    tensor: Option<&str>,
    max_rows: Option<u64>,
    max_cols: Option<u64>,
    max_nnz: Option<u64>,
    max_bytes: Option<u64>,
) -> PyResult<PyCsr> {
    let machine = Limits::of_machine();
    let limits = Limits {
        max_rows: max_rows.unwrap_or(machine.max_rows),
        max_cols: max_cols.unwrap_or(machine.max_cols),
        max_nnz: max_nnz.unwrap_or(machine.max_nnz),
        max_bytes: max_bytes.unwrap_or(machine.max_bytes),
    };
    let options = ReadOptions { limits, progress: None, format: format_of(format)?, tensor };
    with_dtype!(dtype, V => outside(py, || {
        Ok::<AnyCsr, Fault>(read_csr_with_report::<V>(&path, &options)?.0.into())
    }))
    .map(PyCsr::from)
}

/// Writes a sparse matrix. The name tells the format, `.mtx`, `.smtx`, `.npz` (scipy's), `.txt`, `.el` or `.edges`, and
/// whether it is compressed, `.gz` behind it, unless `format` does. A file that was there is replaced when the new one
/// is whole.
#[pyfunction]
#[pyo3(signature = (path, a, *, format = None))]
pub(crate) fn write(
    py: Python<'_>,
    path: PathBuf,
    a: &Bound<'_, PyAny>,
    format: Option<&str>,
) -> PyResult<()> {
    let options = WriteOptions { format: format_of(format)?, ..WriteOptions::default() };
    let matrix = as_csr(a)?.get().on_host(py)?;
    outside(py, || with_csr!(&matrix, a => Ok::<_, Fault>(write_csr(&path, a, &options).map(drop)?)))
}
