//! New values in the places of the old, of plans whose weights were on their device.

use windrow_formats::Value;

use super::host::HostNm;
use super::placing::DeviceValues;
use super::plan::{Body, NmSpmmPlan};
use crate::device::Stream;
use crate::error::{NmError, PlanError};
#[cfg(doc)]
use crate::matrix::DeviceMatrix;
use crate::options::Precision;
use crate::plan::{Bits, Exceptions, On, check_count, check_device, check_ld, check_shape};
use crate::view::{DeviceSlice, DeviceView};

impl NmSpmmPlan {
    /// Puts new values in the places of the old, those of a plan that was made of a [`DeviceVectorNm`], without a way
    /// through the host: one for each kept row and column, f32, f16 or bf16, rounded to the plan's precision. The
    /// pattern and the indices stay. On a GPU this queues a kernel and returns; runs that were asked for before, on
    /// whatever stream, still use the old values, later ones the new.
    ///
    /// # Graphs
    /// A replacement may be [captured](Stream#graphs), with lent values, on a stream that has had a run or was
    /// [prepared](Self::prepare_on), once the plan's values have been replaced.
    ///
    /// # Errors
    /// - [`NmError::NoPlaces`] for a plan that was made otherwise, or of f64 values;
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there are `w·n` values,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) for f64 on a GPU,
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for values or a stream of another device;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a graph; the plan's values
    ///   are otherwise undefined until a replacement succeeds.
    ///
    /// [`DeviceVectorNm`]: super::DeviceVectorNm
    pub fn replace_values_on<'a, V: Value>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceSlice<'a, V>>,
    ) -> Result<(), NmError> {
        let values = values.into();
        check_device("the stream", on.device(), &self.device)?;
        check_device("the array of new values", values.device(), &self.device)?;
        let Some(places) = &self.places else { return Err(NmError::NoPlaces) };
        check_count("the new values", values.len(), places.kept())?;
        match &self.body {
            // They are in host memory: they are on the CPU, as was just checked.
            Body::Cpu(_) => self.replace_on_host(values.host().unwrap_or_default()),
            Body::Gpu(_) => {
                let given = DeviceValues::packed(&values, self.cols, self.precision);
                // SAFETY: length and device were checked; a buffer frees its memory after the work that was queued
                // before, and of other memory the slice was promised that it lives.
                unsafe { self.replace_on_machine::<V>(on, given, values.is_owned()) }
            }
        }
    }

    /// [`replace_values_on`](Self::replace_values_on) with a matrix of `w` kept rows and `n` columns, which may have
    /// gaps between its rows, as a [`DeviceMatrix`] has: a parameter that an optimiser has changed.
    ///
    /// # Errors
    /// Those of [`replace_values_on`](Self::replace_values_on), but
    /// [`PlanError::OperandShape`](crate::PlanError::OperandShape) for a matrix of another shape.
    pub fn replace_rows_on<'a, V: Value>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceView<'a, V>>,
    ) -> Result<(), NmError> {
        let values = values.into();
        check_device("the stream", on.device(), &self.device)?;
        check_device("the matrix of new values", values.device(), &self.device)?;
        let Some(places) = &self.places else { return Err(NmError::NoPlaces) };
        let (found, expected) = ((values.rows(), values.cols()), (places.kept_rows(), self.cols));
        check_shape("the matrix of new values", found, expected)?;
        match &self.body {
            Body::Cpu(_) => self.replace_on_host(&values.to_host().map_err(PlanError::from)?),
            Body::Gpu(_) => {
                let ld = check_ld(values.ld())?;
                let given = DeviceValues::new::<V>(values.address(), (self.cols, ld), self.precision);
                // SAFETY: as above.
                unsafe { self.replace_on_machine::<V>(on, given, values.is_owned()) }
            }
        }
    }

    /// As many values as are kept, in host memory, of a plan for the CPU.
    fn replace_on_host<V: Value>(&mut self, given: &[V]) -> Result<(), NmError> {
        let Some(places) = &self.places else { return Err(NmError::NoPlaces) };
        let numbers = Bits::of(self.precision, given)?.numbers::<f32>()?;
        self.body = Body::Cpu(HostNm::new(places, &numbers, self.precision, self.layout)?);
        self.report.overflowed_values = Exceptions::of(self.precision, given).overflowed;
        Ok(())
    }

    /// Values of a type that kernels read, unless there are none.
    ///
    /// # Safety
    /// They are as many as are kept, on the plan's device, and live until the work is done.
    unsafe fn replace_on_machine<V: Value>(
        &mut self,
        on: &Stream,
        given: Option<DeviceValues>,
        shares: bool,
    ) -> Result<(), NmError> {
        let Some(given) = given else {
            let (operand, found) = ("the array of new values", V::NAME);
            return Err(PlanError::ElementType { operand, found, expected: Precision::F32 }.into());
        };
        let Body::Gpu(plan) = &mut self.body else { return Err(NmError::NoPlaces) };
        let on = On::of(on, &self.device, shares)?;
        // SAFETY: the caller's promise.
        match unsafe { plan.replace(&on, given)? } {
            true => Ok(()),
            false => Err(NmError::NoPlaces),
        }
    }

    /// How many of the values given last were finite and are infinite in the plan's precision. Waits for their
    /// replacement, if they came from the device.
    ///
    /// # Errors
    /// [`PlanError::Device`](crate::PlanError::Device).
    pub fn overflowed_values(&self) -> Result<u64, NmError> {
        match &self.body {
            Body::Gpu(plan) => Ok(plan.overflowed()?.unwrap_or(self.report.overflowed_values)),
            Body::Cpu(_) => Ok(self.report.overflowed_values),
        }
    }
}
