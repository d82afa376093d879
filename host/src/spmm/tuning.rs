//! What was tuned, in place of the choice that a plan makes.

use windrow_formats::{Csr, Value};

use super::builder::SpmmBuilder;
use super::options::SpmmOptions;
use crate::device::Device;
use crate::tuned::{ProductKey, Tuned, TunedProduct};

impl<'a, A> SpmmBuilder<'a, A> {
    /// Takes, with [`Algorithm::Auto`](crate::Algorithm::Auto), what was tuned for products of this structure, width,
    /// precision and determinism on the device, if anything was; the report says so. A plan that is told a point, a
    /// launch, a division of rows, an order, a partition, tasks or a form of tile values disregards it. A choice of
    /// which no plan can be made, for want of memory or because it came from a file that was changed by hand, is left
    /// out; [`SpmmReport::tuned_refused`](crate::SpmmReport::tuned_refused) then says why.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm, Tuned};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(4)?);
    /// // A broken file of the cache need not stop a product.
    /// let tuned = Tuned::load(&device).ok().flatten().unwrap_or_else(|| Tuned::of(&device));
    /// let plan = Spmm::builder(&a).width(1).tuned(&tuned).build(&device)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0])?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tuned(mut self, tuned: &'a Tuned) -> Self {
        self.tuned = Some(tuned);
        self
    }
}

impl<'a, V: Value> SpmmBuilder<'a, Csr<V>> {
    /// What was tuned for this plan on `device`, if the caller leaves the choice.
    pub(super) fn remembered(&self, device: &Device) -> Option<&'a TunedProduct> {
        let tuned = self.tuned.filter(|tuned| tuned.device() == device.name())?;
        let left = self.order.is_none() && self.options.leave_the_way_open();
        let key = || ProductKey::new(self.a, &self.options);
        left.then(key).and_then(|key| tuned.get(&key))
    }

    /// By the way of `options`, which were timed when they were tuned; all else as it is.
    pub(super) fn taking(&self, options: &SpmmOptions) -> Self {
        self.clone().options(SpmmOptions { autotune: false, ..self.options.with_way_of(options) })
    }
}
