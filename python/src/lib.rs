//! The Python module `windrow._windrow`.
#![expect(clippy::too_many_arguments, reason = "Python gives them by keyword")]

mod array;
mod csr;
mod device;
mod dtype;
mod error;
mod options;
mod outside;
mod raw;
mod sampled;
mod weights;

use pyo3::prelude::*;

#[pymodule]
mod _windrow {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::csr::PyCsr;
    #[pymodule_export]
    use crate::device::PyDevice;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_submodule(&crate::raw::module(module.py())?)
    }
}
