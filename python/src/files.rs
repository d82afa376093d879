//! Reading and writing of files.

use std::path::PathBuf;

use pyo3::prelude::*;
use windrow::io::{Format, Limits, ReadOptions, WriteOptions, read_csr_with_report, write_csr};

use crate::any::each;
use crate::csr::{AnyCsr, PyCsr, as_csr};
use crate::dtype::{Dtype, with_dtype};
use crate::error::{Class, Fault, Outcome};
use crate::options::Size;
use crate::outside::outside;

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
    max_rows: Option<Size>,
    max_cols: Option<Size>,
    max_nnz: Option<Size>,
    max_bytes: Option<Size>,
) -> PyResult<PyCsr> {
    let machine = Limits::of_machine();
    let limit = |given: Option<Size>, else_: u64| given.map_or(else_, |given| given.0 as u64);
    let limits = Limits {
        max_rows: limit(max_rows, machine.max_rows),
        max_cols: limit(max_cols, machine.max_cols),
        max_nnz: limit(max_nnz, machine.max_nnz),
        max_bytes: limit(max_bytes, machine.max_bytes),
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
    outside(py, || each!(AnyCsr, &matrix, a => Ok::<_, Fault>(write_csr(&path, a, &options).map(drop)?)))
}
