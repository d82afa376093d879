//! A plan of attention of a matrix that is on the device.

use windrow_formats::Value;

use super::builder::AttentionBuilder;
use super::plan::AttentionPlan;
use crate::csr::DeviceCsr;
use crate::device::Stream;
use crate::error::AttentionError;
#[cfg(doc)]
use crate::error::{DeviceError, PlanError};
use crate::plan::check_device;

impl<V: Value> AttentionBuilder<'_, DeviceCsr<'_, V>> {
    /// Makes the plan, on the device that the matrix is on, of its arrays as they are when `on` comes to it.
    ///
    /// Windows are laid out on the host, of a copy of the matrix: this waits for `on` and for the copy.
    ///
    /// # Cost
    /// That of [`build`](AttentionBuilder::build), and a copy of the matrix to the host.
    ///
    /// # Errors
    /// - those of [`build`](AttentionBuilder::build);
    /// - those of [`DeviceCsr::checked`] for a matrix that is not in canonical form;
    /// - [`PlanError::WrongDevice`] for a stream of another device, [`DeviceError::Captured`] for one that is captured
    ///   into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceCsr, GraphAttention, Stream};
    ///
    /// let (device, a) = (Device::best()?, Csr::from_dense(1, 2, &[1.0f32, 1.0])?);
    /// let on_device = DeviceCsr::from_host(&device, &a)?;
    /// let plan = GraphAttention::builder(&on_device).columns(1).build_on(&Stream::new(&device)?)?;
    /// assert_eq!(plan.run(1.0, &[0.5f32], &[7.0, 7.0], &[1.0, 3.0])?, [2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<AttentionPlan, AttentionError> {
        let device = self.a.device();
        check_device("the stream", on.device(), device)?;
        let a = self.a.to_host(on)?;
        AttentionBuilder::new(&a).options(self.options.clone()).build(device)
    }
}
