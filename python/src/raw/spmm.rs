//! Products with sparse matrices at addresses.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{
    Device, DeviceSlice, DeviceView, DeviceViewMut, Element, Precision, Spmm, SpmmOptions, SpmmPlan, Stream,
};

use super::arrays::AnyDeviceCsr;
use super::csr::RawCsr;
use super::operand::{Lies, Operand};
use crate::any::each;
use crate::device::{PyDevice, on_stream};
use crate::dtype::{Dtype, factor, with_pair};
use crate::error::{Outcome, dtype};
use crate::options::spmm_options;
use crate::outside::Shared;

/// A plan of a product with a sparse matrix at addresses, made in the order of `stream` (the handle of a CUDA stream;
/// the device's own if there is none, which is in no order with PyTorch's).
///
/// Keywords are the options of `windrow.Spmm`. The arrays of the matrix may be freed when the work of the stream is
/// done.
#[pyclass(frozen, name = "Spmm", module = "windrow._windrow.raw")]
pub(super) struct RawSpmm {
    plan: Shared<SpmmPlan>,
    device: &'static Device,
    precision: Precision,
}

#[pymethods]
impl RawSpmm {
    #[new]
    #[pyo3(signature = (a, stream = None, **options))]
    fn new(
        py: Python<'_>,
        a: &RawCsr,
        stream: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (options, device) = (spmm_options(options)?, a.device);
        // SAFETY: the promise of who gives the stream.
        let plan = unsafe {
            on_stream(py, device, stream, |on| {
                Ok(each!(AnyDeviceCsr, &*a.matrix, a => Spmm::builder(&**a).options(options).build_on(on)?))
            })?
        };
        Ok(Self { precision: plan.precision(), plan: Shared::new(plan), device })
    }

    /// `C ← alpha·A·B + beta·C`, queued in `stream`: nothing is copied, and nobody waits.
    ///
    /// `b` and `c` are `(address, shape, strides, dtype)`, strides in elements. `B` has the plan's element type; `C`
    /// any of f32, f16 and bf16, or f64 for a plan of precision f64. Rows are consecutive, at any distance; a `B` with
    /// consecutive columns is taken by plans that have a kernel for it, matricized-rows in f16.
    #[pyo3(signature = (stream, b, c, alpha = 1.0, beta = 0.0))]
    fn run(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        b: Operand,
        c: Operand,
        alpha: f64,
        beta: f64,
    ) -> PyResult<()> {
        let wanted = Dtype::of(self.precision);
        if b.3 != wanted {
            let (found, precision, wanted) = (b.3.name(), self.precision, wanted.name());
            dtype(format!(
                "B holds {found} but a plan of precision {precision} takes {wanted}; convert it or make another plan"
            ))?;
        }
        // SAFETY: the promise of who gives addresses and the stream.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                with_pair!((b.3, c.3), "C", B, C => {
                    let (alpha, beta) = (factor::<B>(alpha), factor::<B>(beta));
                    run_as::<B, C>(&self.plan.read(), self.device, on, (alpha, b), (beta, c))
                })
            })
        }
    }

    /// Puts new values in the places of the old, in the order of `stream`: `nnz` elements of f32, or of f64 for a plan
    /// of precision f64, at an address.
    #[pyo3(signature = (stream, values, nnz))]
    fn replace_values(&self, py: Python<'_>, stream: Option<usize>, values: u64, nnz: usize) -> PyResult<()> {
        // SAFETY: the promise of who gives the address and the stream.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                let mut plan = self.plan.write();
                if self.precision == Precision::F64 {
                    plan.replace_values_on(on, DeviceSlice::<f64>::from_raw(self.device, values, nnz)?)
                } else {
                    plan.replace_values_on(on, DeviceSlice::<f32>::from_raw(self.device, values, nnz)?)
                }?;
                Ok(())
            })
        }
    }

    /// Makes what runs of this width on `stream` need, so that they can be captured into a graph.
    #[pyo3(signature = (stream, width, staged = false))]
    fn prepare(&self, py: Python<'_>, stream: Option<usize>, width: usize, staged: bool) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        unsafe {
            on_stream(py, self.device, stream, |on| Ok(self.plan.read().prepare_on(on, width, staged)?))
        }
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.plan.read().shape()
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.plan.read().nnz()
    }

    #[getter]
    fn precision(&self) -> String {
        self.precision.to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    /// Bytes of device memory that the plan holds.
    #[getter]
    fn device_bytes(&self) -> u64 {
        self.plan.read().device_bytes()
    }

    /// What the plan is, what it holds and what it cost to make, as text.
    fn report(&self) -> String {
        self.plan.read().report().to_string()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", **self.plan.read())
    }
}

/// `C ← A·B` of a matrix at addresses, without a plan.
///
/// # Safety
/// Those of [`Operand::view`] and [`Operand::view_mut`], for the stream.
pub(super) unsafe fn run_once(
    a: &AnyDeviceCsr,
    device: &'static Device,
    on: &Stream,
    b: Operand,
    c: Operand,
) -> Outcome<()> {
    let options = SpmmOptions { precision: b.3.precision(), ..SpmmOptions::DEFAULT };
    // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
    unsafe {
        with_pair!((b.3, c.3), "C", B, C => {
            let (b, c) = (b.view::<B>("B", device)?, c.view_mut::<C>("C", device)?);
            once_as(a, on, options, b, c)
        })
    }
}

/// [`run_once`] for views of known types.
fn once_as<B: Element, C: Element<Sum = B::Sum>>(
    a: &AnyDeviceCsr,
    on: &Stream,
    options: SpmmOptions,
    b: DeviceView<B>,
    c: DeviceViewMut<C>,
) -> Outcome<()> {
    let (one, zero) = (factor::<B>(1.0), factor::<B>(0.0));
    each!(AnyDeviceCsr, a, a => Spmm::builder(&**a).options(options).run_once_on(on, one, b, zero, c)?);
    Ok(())
}

/// # Safety
/// Those of [`Operand::view`] and [`Operand::view_mut`], for the stream.
unsafe fn run_as<B: Element, C: Element<Sum = B::Sum>>(
    plan: &SpmmPlan,
    device: &'static Device,
    on: &Stream,
    (alpha, b): (B::Sum, Operand),
    (beta, c): (B::Sum, Operand),
) -> Outcome<()> {
    // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
    unsafe {
        let c = c.view_mut::<C>("C", device)?;
        if let Lies::Columns(ld) = b.lies("B")? {
            let Operand(address, (rows, cols), ..) = b;
            let columns = DeviceView::<B>::from_raw(device, address, cols, rows, ld)?;
            plan.run_column_major_into_on(on, alpha, columns, beta, c)?;
        } else {
            plan.run_into_on(on, alpha, b.view::<B>("B", device)?, beta, c)?;
        }
    }
    Ok(())
}
