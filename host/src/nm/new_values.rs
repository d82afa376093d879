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
        self.replace(on, DeviceView::of_rows(values, self.cols))
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
        self.replace(on, values)
    }

    /// With a row for each that is kept, on the plan's device.
    fn replace<V: Value>(&mut self, on: &Stream, values: DeviceView<'_, V>) -> Result<(), NmError> {
        let Some(places) = &self.places else { return Err(NmError::NoPlaces) };
        match &mut self.body {
            Body::Cpu(weights) => {
                let given = values.to_host().map_err(PlanError::from)?;
                let numbers = Bits::of(self.precision, &given)?.numbers::<f32>()?;
                *weights = HostNm::new(places, &numbers, self.precision, self.layout)?;
                self.report.overflowed_values = Exceptions::of(self.precision, &given).overflowed;
                Ok(())
            }
            Body::Gpu(plan) => {
                let ld = check_ld(values.ld())?;
                let given = DeviceValues::new::<V>(values.address(), (self.cols, ld), self.precision);
                let Some(given) = given else {
                    let (operand, found) = ("the array of new values", V::NAME);
                    return Err(PlanError::ElementType { operand, found, expected: Precision::F32 }.into());
                };
                let on = On::of(on, &self.device, values.is_owned())?;
                // SAFETY: shape and device were checked; a buffer frees its memory after the work that was queued
                // before, and of other memory the view was promised that it lives.
                match unsafe { plan.replace(&on, given)? } {
                    true => Ok(()),
                    false => Err(NmError::NoPlaces),
                }
            }
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
