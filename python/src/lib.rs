//! The Python module `windrow._windrow`.
#![expect(clippy::too_many_arguments, reason = "Python gives them by keyword")]

mod array;
mod csr;
mod device;
mod dlpack;
mod dtype;
mod error;
mod matrix;
mod numpy;
mod options;
mod outside;
mod raw;
mod report;
mod sampled;
mod spmm;
mod weights;

use pyo3::prelude::*;

#[pymodule]
mod _windrow {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::csr::PyCsr;
    #[pymodule_export]
    use crate::device::{PyDevice, default_device};
    #[pymodule_export]
    use crate::matrix::PyArray;
    #[pymodule_export]
    use crate::outside::after_fork_in_child;
    #[pymodule_export]
    use crate::spmm::PySpmm;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_submodule(&crate::raw::module(module.py())?)
    }
}
