//! Sparse matrices of any type of values, wherever they are.

use std::sync::Arc;

use pyo3::prelude::*;
use windrow::Csr;

use crate::any::{any_type, each};
use crate::dtype::{Dtype, with_dtype};
use crate::raw::RawCsr;

type Held<V> = Arc<Csr<V>>;

any_type! {
    /// A matrix in host memory, of any type of values.
    #[derive(Clone)]
    AnyCsr(Held) from Csr by Arc::new;
}

impl AnyCsr {
    pub(crate) fn cast(self, to: Dtype) -> Self {
        if self.dtype() == to {
            return self;
        }
        each!(AnyCsr, &self, a => with_dtype!(to, T => a.cast::<T>().into()))
    }
}

/// Where a matrix is.
pub(crate) enum Matrix {
    Host(AnyCsr),
    Device(Py<RawCsr>),
}

/// A plan of a matrix on a device, made on the host or, of what is on the device, by kernels on its stream:
/// `planned!(py, matrix, device, a, on => { of a matrix in host memory, of one on the device })`.
macro_rules! planned {
    ($py:expr, $matrix:expr, $device:expr, $a:ident, $on:ident => { $host:expr, $there:expr }) => {
        match &$matrix.matrix {
            $crate::csr::Matrix::Host(matrix) => $crate::outside::outside($py, || {
                use $crate::csr::AnyCsr;
                $crate::device::live($device)?;
                $crate::any::each!(AnyCsr, matrix, $a => Ok::<_, $crate::error::Fault>($host?))
            }),
            $crate::csr::Matrix::Device(raw) => $crate::outside::outside($py, || {
                use $crate::raw::AnyDeviceCsr;
                $crate::device::live($device)?;
                let $on = &$device.stream();
                $crate::any::each!(AnyDeviceCsr, &*raw.get().matrix, $a => Ok::<_, $crate::error::Fault>($there?))
            }),
        }
    };
}
pub(crate) use planned;
