//! New values for a plan, from the host and from the device.

use windrow_formats::Value;
use windrow_simt::GlobalPtr;

use super::plan::{Body, MEMORY_REMEDY, SpmmPlan};
use super::report::SpmmReport;
use crate::cpu::CpuCsr;
use crate::device::{DeviceBuffer, Stream};
use crate::element::{BySum, Element, Real};
use crate::error::SpmmError;
use crate::plan::{Account, Bits, Exceptions, NewValues, On, check_count, check_new_values};
use crate::view::DeviceSlice;
use crate::with_element;

impl SpmmPlan {
    /// Puts new values in the places of the old, one for each entry in CSR order, or in the order that the plan was
    /// [made for](super::SpmmBuilder::value_order); the pattern stays. Costs a fraction of a new plan.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there is one value for each entry;
    /// - [`PlanError::Device`](crate::PlanError::Device); the plan's values are then undefined until a replacement
    ///   succeeds.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm};
    ///
    /// let mut plan = Spmm::builder(&Csr::<f32>::identity(2)?).build(&Device::cpu())?;
    /// plan.replace_values(&[2.0f32, 3.0])?;
    /// assert_eq!(plan.run(&[1.0, 1.0])?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values<V: Value>(&mut self, values: &[V]) -> Result<(), SpmmError> {
        check_count("the new values", values.len(), self.nnz)?;
        let mut bits = Bits::of(self.precision, values)?;
        self.report.overflowed_values = Exceptions::of(self.precision, values).overflowed;
        (self.overflow_on_device, self.unread) = (false, None);
        if let Some(order) = &self.value_order {
            bits = bits.gather(order)?;
        }
        match &mut self.body {
            Body::Cpu(a) => {
                with_element!(self.precision, B => replace_on_cpu::<<B as Element>::Sum>(a, &bits))
            }
            Body::Gpu(plan) => Ok(plan.replace_values(&bits)?),
        }
    }

    /// [`replace_values`](Self::replace_values) with values that are on the plan's device, without a way through the
    /// host: the same values in the same places, bit for bit.
    ///
    /// On a GPU this queues kernels and returns. The first call makes an array that says where each value belongs, up
    /// to 4 bytes of device memory for each entry, or 8 where there are tiles and other entries, or where a plan that
    /// was laid out on the GPU takes values in another order, unless the plan was made
    /// [with it](super::SpmmBuilder::values_from_device); later calls allocate nothing.
    /// [`SpmmReport::overflowed_values`](crate::SpmmReport::overflowed_values) stays that of the last values from the
    /// host; see
    /// [`overflowed_values`](Self::overflowed_values).
    ///
    /// # Cost
    /// Reads 8 bytes for each entry, and writes the value.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there is one value for each entry,
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if they are elsewhere,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) unless they are f32, for a plan of that precision
    ///   f64;
    /// - on the first call [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit), and
    ///   [`PlanError::TooLarge`](crate::PlanError::TooLarge) for tiles that would hold 2³² values, zeros counted;
    /// - [`PlanError::Device`](crate::PlanError::Device); the plan's values are then undefined until a replacement
    ///   succeeds.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, Spmm};
    ///
    /// let device = Device::best()?;
    /// let mut plan = Spmm::builder(&Csr::<f32>::identity(2)?).values_from_device().build(&device)?;
    /// let values = DeviceBuffer::from_slice(&device, &[2.0f32, 3.0])?;
    /// plan.replace_values_from(&values)?;
    /// assert_eq!(plan.run(&[1.0, 1.0])?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values_from<S: Real>(&mut self, values: &DeviceBuffer<S>) -> Result<(), SpmmError> {
        self.replace_by(&self.device.stream(), values.view())
    }

    /// [`replace_values_from`](Self::replace_values_from) on a [`Stream`], with values in memory of any origin. Runs
    /// that were asked for before, on whatever stream, still use the old values, later ones the new: they wait for each
    /// other on the GPU.
    ///
    /// # Graphs
    /// A replacement may be [captured](Stream#graphs), with lent values, on a stream that has had a run or was
    /// [prepared](Self::prepare_on): each launch then puts the values that are there at that moment in their places.
    /// What it needs is made before, [with the plan](super::SpmmBuilder::values_from_device) or by a replacement. Runs
    /// of the plan that are not of the graph are the caller's to order with its launches.
    ///
    /// # Errors
    /// Those of [`replace_values_from`](Self::replace_values_from);
    /// [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    /// [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, Spmm, Stream};
    ///
    /// let device = Device::best()?;
    /// let mut plan = Spmm::builder(&Csr::<f32>::identity(2)?).values_from_device().build(&device)?;
    /// let values = DeviceBuffer::from_slice(&device, &[2.0f32, 3.0])?;
    /// plan.replace_values_on(&Stream::new(&device)?, &values)?;
    /// assert_eq!(plan.run(&[1.0, 1.0])?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_values_on<'a, S: Real>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceSlice<'a, S>>,
    ) -> Result<(), SpmmError> {
        self.replace_by(on, values.into())
    }

    fn replace_by<S: Real>(&mut self, on: &Stream, values: DeviceSlice<'_, S>) -> Result<(), SpmmError> {
        check_new_values(on, &values, &self.device, (self.precision, self.nnz))?;
        let order = self.value_order.as_deref();
        match &mut self.body {
            // They are in host memory: they are on the CPU, as was just checked.
            Body::Cpu(_) => self.replace_values(values.host().unwrap_or_default()),
            Body::Gpu(plan) => {
                let on = On::of(on, &self.device, values.is_owned())?;
                let new = NewValues { first: GlobalPtr::from_address(values.address()), count: self.nnz };
                let SpmmReport { arrays, device_bytes, .. } = &mut self.report;
                let account =
                    Account { arrays, device_bytes, limit: self.memory_limit, remedy: MEMORY_REMEDY };
                // SAFETY: length and device were checked; a buffer frees its memory after the work that was queued
                // before, and of other memory the slice was promised that it lives.
                unsafe { plan.replace_by(&on, new, order, account)? };
                (self.overflow_on_device, self.unread) = (true, None);
                Ok(())
            }
        }
    }

    /// How many of the values given last were finite and are infinite in the plan's precision. Waits for their
    /// replacement, if they came from the device.
    ///
    /// # Errors
    /// [`PlanError::Device`](crate::PlanError::Device).
    pub fn overflowed_values(&self) -> Result<u64, SpmmError> {
        if let Some(unread) = &self.unread {
            return Ok(unread.to_vec()?.first().map_or(0, |record| u64::from(record.overflowed)));
        }
        match &self.body {
            Body::Gpu(plan) if self.overflow_on_device => Ok(plan.overflowed()?),
            _ => Ok(self.report.overflowed_values),
        }
    }
}

/// Puts new values into a matrix on the CPU.
fn replace_on_cpu<S: Real>(a: &mut BySum, bits: &Bits) -> Result<(), SpmmError> {
    match a.get_mut::<CpuCsr<S>>() {
        Some(a) => Ok(a.replace_values(bits.numbers()?)?),
        None => Ok(()), // not reached: the matrix is of the precision's sums
    }
}
