//! Sparse matrices.

use std::sync::Arc;

use pyo3::prelude::*;
use windrow::{Csr, DenseMut, Device, Element, MatRef, Spmm, Value};

use crate::array::{HostArray, Item, empty};
use crate::dtype::with_dtype;
use crate::error::Outcome;
use crate::outside::outside;

/// A matrix in host memory, of any type of values.
#[derive(Clone)]
pub(crate) enum AnyCsr {
    F32(Arc<Csr<f32>>),
    F64(Arc<Csr<f64>>),
    F16(Arc<Csr<windrow::f16>>),
    Bf16(Arc<Csr<windrow::bf16>>),
}

/// An expression for a matrix of whatever type: `with_csr!(matrix, a => expression)`.
macro_rules! with_csr {
    ($matrix:expr, $a:ident => $run:expr) => {
        match $matrix {
            $crate::csr::AnyCsr::F32($a) => $run,
            $crate::csr::AnyCsr::F64($a) => $run,
            $crate::csr::AnyCsr::F16($a) => $run,
            $crate::csr::AnyCsr::Bf16($a) => $run,
        }
    };
}

macro_rules! any_csr {
    ($($kind:ident($value:ty);)+) => { $(
        impl From<Csr<$value>> for AnyCsr {
            fn from(matrix: Csr<$value>) -> Self {
                Self::$kind(Arc::new(matrix))
            }
        }
    )+ };
}
any_csr! { F32(f32); F64(f64); F16(windrow::f16); Bf16(windrow::bf16); }

/// A sparse matrix in compressed rows.
#[pyclass(frozen, name = "Csr", module = "windrow")]
pub(crate) struct PyCsr(pub(crate) AnyCsr);

#[pymethods]
impl PyCsr {
    /// The matrix of three arrays: where the rows begin and the last one ends, columns, and values.
    #[staticmethod]
    #[pyo3(signature = (indptr, indices, data, shape))]
    fn from_arrays(
        py: Python<'_>,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        shape: (usize, usize),
    ) -> PyResult<Self> {
        let offsets = HostArray::of("indptr", indptr)?.whole_numbers::<u64>()?;
        let columns = HostArray::of("indices", indices)?.whole_numbers::<u32>()?;
        let data = HostArray::of("data", data)?;
        let Item::Value(of) = data.item else {
            return Err(data.not_values().into());
        };
        with_dtype!(of, V => {
            let values = data.to_vec::<V>()?;
            outside(py, || Csr::try_from_parts(shape.0, shape.1, offsets, columns, values))
                .map(|matrix| Self(matrix.into()))
        })
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        with_csr!(&self.0, a => (a.rows(), a.cols()))
    }

    #[getter]
    fn nnz(&self) -> usize {
        with_csr!(&self.0, a => a.nnz())
    }

    fn __matmul__<'py>(&self, py: Python<'py>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let b = HostArray::of("B", b)?;
        let Item::Value(of) = b.item else { return Err(b.not_values().into()) };
        let (shape, strides) = b.matrix()?;
        let (c, mut to) = empty(py, (self.shape().0, shape.1), of)?;
        with_dtype!(of, B => {
            // SAFETY: numpy says that the elements are there, and its owner is kept by `b`.
            let (b, c) = unsafe { (b.elements::<B>(), to.elements_mut::<B>()) };
            with_csr!(&self.0, a => outside(py, move || product(a, MatRef::try_new(b, shape, strides)?, c)))?;
        });
        Ok(c)
    }
}

fn product<V: Value, B: Element>(a: &Csr<V>, b: MatRef<'_, B>, c: &mut [B]) -> Outcome<()> {
    let plan = Spmm::builder(a).width(b.cols()).precision(B::PRECISION).build(&Device::cpu())?;
    let c = DenseMut::packed(c, a.rows(), b.cols())?;
    Ok(plan.run_host(<B::Sum as Value>::ONE, b, <B::Sum as Value>::ZERO, c)?)
}
