//! How plans are pickled and copied.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::Device;

use crate::device::PyDevice;

/// How a plan is made anew of what it was made of.
pub(crate) fn remade<'py>(
    py: Python<'py>,
    class: &str,
    of: Py<PyAny>,
    device: &'static Device,
    given: &Py<PyDict>,
) -> PyResult<Bound<'py, PyTuple>> {
    let remake = py.import("windrow._convert")?.getattr("remake_plan")?;
    (remake, (class, of, PyDevice(device), given.bind(py))).into_pyobject(py)
}
