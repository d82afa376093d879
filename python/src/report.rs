//! Reports of plans for Python.

use std::fmt::Display;

use pyo3::prelude::*;
use serde::Serialize;

use crate::error::Outcome;
use crate::options::shown;

/// What a report says, as text and as JSON: made before Python is called, which may let other threads wait for the
/// plan that this one reads.
pub(crate) struct Said(String, String);

impl Said {
    pub(crate) fn by(found: &(impl Display + Serialize)) -> Outcome<Self> {
        Ok(Self(found.to_string(), shown(found)?.to_string()))
    }
}

/// A report as an object of Python's.
pub(crate) fn report<'py>(py: Python<'py>, plan: &str, said: Said) -> PyResult<Bound<'py, PyAny>> {
    py.import("windrow._report")?.call_method1("Report", (plan, said.0, said.1))
}
