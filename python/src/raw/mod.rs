//! Memory of other libraries by addresses, in the order of their streams: what `windrow.torch` is made of.
//!
//! Nothing is copied here and nobody waits for a device unless a docstring says so. Who calls answers for addresses and
//! streams, as with the library's own `from_raw`.

mod aggregate;
mod arrays;
mod attention;
mod csr;
mod operand;
mod sampled;
mod softmax;
mod spmm;
mod weights;

use pyo3::prelude::*;

pub(crate) use arrays::{AnyDeviceCsr, Arrays};
pub(crate) use csr::{Made, RawCsr};

/// The module `windrow._windrow.raw` and what it holds.
pub(crate) fn module<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    let module = PyModule::new(py, "raw")?;
    module.add_class::<RawCsr>()?;
    module.add_class::<spmm::RawSpmm>()?;
    module.add_class::<sampled::RawSddmm>()?;
    module.add_class::<softmax::RawSoftmax>()?;
    module.add_class::<aggregate::RawAggregate>()?;
    module.add_class::<attention::RawAttention>()?;
    module.add_class::<weights::RawNmWeights>()?;
    module.add_class::<weights::RawNmSpmm>()?;
    Ok(module)
}
