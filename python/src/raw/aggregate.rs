//! Reductions over patterns at addresses.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{
    Aggregate, AggregateBackward, AggregateGradients, AggregateOperands, AggregateOptions, AggregatePlan,
    Device, DeviceSlice, DeviceSliceMut, Element,
};

use super::arrays::AnyDeviceCsr;
use super::attention::of_operands;
use super::csr::RawCsr;
use super::operand::Operand;
use crate::any::each;
use crate::device::on_stream;
use crate::dtype::Dtype;
use crate::error::{Outcome, dtype};
use crate::options::read_options;
use crate::outside::Kept;

/// Reductions over the rows of a sparse matrix at addresses, divided on the host of a copy. Keywords are the options of
/// `windrow::AggregateOptions`.
#[pyclass(frozen, name = "Aggregate", module = "windrow._windrow.raw")]
pub(super) struct RawAggregate {
    plan: Kept<AggregatePlan>,
    device: &'static Device,
}

#[pymethods]
impl RawAggregate {
    #[new]
    #[pyo3(signature = (a, stream = None, **options))]
    fn new(
        py: Python<'_>,
        a: &RawCsr,
        stream: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = match options {
            Some(given) => read_options::<AggregateOptions>(given)?,
            None => AggregateOptions::default(),
        };
        // SAFETY: the promise of who gives the stream.
        let plan = unsafe {
            on_stream(py, a.device, stream, |on| {
                Ok(
                    each!(AnyDeviceCsr, &*a.matrix, a => Aggregate::builder(&**a).options(options).build_on(on)?),
                )
            })?
        };
        Ok(Self { plan: Kept::new(plan), device: a.device })
    }

    /// Queues the reduction of `x` to `out`, both `(address, shape, strides, dtype)`; `values` and `winners` are
    /// `(address, length)`.
    fn forward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        x: Operand,
        values: Option<(u64, usize)>,
        out: Operand,
        winners: Option<(u64, usize)>,
    ) -> PyResult<()> {
        // SAFETY: the promise of who gives addresses and the stream; what the driver knows of them is checked.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                of_operands!(x.3, T => {
                    let mut operands = AggregateOperands::new(x.view::<T>("X", self.device)?);
                    if let Some((address, len)) = values {
                        operands = operands.values(DeviceSlice::<f32>::from_raw(self.device, address, len)?);
                    }
                    if let Some((address, len)) = winners {
                        operands = operands.winners(DeviceSliceMut::<u32>::from_raw(self.device, address, len)?);
                    }
                    Ok(self.plan.forward_on(on, operands, out.view_mut::<T>("the result", self.device)?)?)
                })
            })
        }
    }

    /// Queues the gradients of X and of the values at `(address, length)`. `read` is X and the gradient of the result,
    /// `given` values and winners.
    fn backward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        read: [Operand; 2],
        given: [Option<(u64, usize)>; 2],
        of_x: Operand,
        of_values: Option<(u64, usize)>,
    ) -> PyResult<()> {
        // SAFETY: as above.
        unsafe {
            on_stream(
                py,
                self.device,
                stream,
                |on| of_operands!(read[0].3, T => self.backward_as::<T>(on, (read, given), (of_x, of_values))),
            )
        }
    }

    /// Makes what runs and gradients on `stream` need, so that they can be captured into a graph.
    fn prepare(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        unsafe { on_stream(py, self.device, stream, |on| Ok(self.plan.prepare_on(on)?)) }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", *self.plan)
    }
}

impl RawAggregate {
    /// # Safety
    /// That of [`Operand::view`] and [`Operand::view_mut`], of all.
    unsafe fn backward_as<T: Element<Sum = f32>>(
        &self,
        on: &windrow::Stream,
        ([x, gradient], [values, winners]): ([Operand; 2], [Option<(u64, usize)>; 2]),
        (of_x, of_values): (Operand, Option<(u64, usize)>),
    ) -> Outcome<()> {
        let device = self.device;
        // SAFETY: the caller's promise.
        unsafe {
            let mut operands = AggregateOperands::new(x.view::<T>("X", device)?);
            if let Some((address, len)) = values {
                operands = operands.values(DeviceSlice::<f32>::from_raw(device, address, len)?);
            }
            let mut read = AggregateBackward::new(operands, gradient.view::<T>("the gradient", device)?);
            if let Some((address, len)) = winners {
                read = read.winners(DeviceSlice::<u32>::from_raw(device, address, len)?);
            }
            let mut found = AggregateGradients::new(of_x.view_mut::<T>("the gradient of X", device)?);
            if let Some((address, len)) = of_values {
                found = found.values(DeviceSliceMut::<f32>::from_raw(device, address, len)?);
            }
            Ok(self.plan.backward_on(on, read, found)?)
        }
    }
}
