//! The Python module `windrow._windrow`.
#![expect(clippy::too_many_arguments, reason = "Python gives them by keyword")]

mod any;
mod array;
mod csr;
mod device;
mod dlpack;
mod dtype;
mod error;
mod files;
mod matrix;
mod nm;
mod nm_weights;
mod numpy;
mod options;
mod out_of_core;
mod outside;
mod product;
mod raw;
mod remake;
mod reorder;
mod report;
mod result;
mod sddmm;
mod softmax;
mod spmm;
mod tensor;
mod tensor_plans;

use pyo3::prelude::*;

#[pymodule]
mod _windrow {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::csr::PyCsr;
    #[pymodule_export]
    use crate::device::{PyDevice, default_device};
    #[pymodule_export]
    use crate::files::{read, write};
    #[pymodule_export]
    use crate::matrix::PyArray;
    #[pymodule_export]
    use crate::nm::PyNmSpmm;
    #[pymodule_export]
    use crate::nm_weights::PyNmWeights;
    #[pymodule_export]
    use crate::out_of_core::PyOutOfCoreSpmm;
    #[pymodule_export]
    use crate::outside::{after_fork_in_child, panic_on_purpose};
    #[pymodule_export]
    use crate::reorder::reorder;
    #[pymodule_export]
    use crate::sddmm::PySddmm;
    #[pymodule_export]
    use crate::softmax::PyRowSoftmax;
    #[pymodule_export]
    use crate::spmm::PySpmm;
    #[pymodule_export]
    use crate::tensor::PyTensor;
    #[pymodule_export]
    use crate::tensor_plans::{PyMttkrp, PyTtm};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_submodule(&crate::raw::module(module.py())?)
    }
}
