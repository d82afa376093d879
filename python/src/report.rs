//! Reports of plans for Python.

use pyo3::prelude::*;

/// A report as an object of Python's.
pub(crate) fn report<'py>(
    py: Python<'py>,
    plan: &str,
    text: &str,
    fields: &serde_json::Value,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("windrow._report")?.call_method1("Report", (plan, text, fields.to_string()))
}
