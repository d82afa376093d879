//! Options of a plan that come from tuning.

use windrow_formats::Value;
use windrow_preprocess::reorder;

use super::builder::{Order, SpmmBuilder};
use crate::device::Device;
use crate::options::{Algorithm, CpuTasks, RowDivision, TileValues};
use crate::tuned::{Choice, ProductKey, Tuned, TunedProduct};

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// Takes, with [`Algorithm::Auto`], what was tuned for products of this structure, width, precision and determinism
    /// on the device, if anything was; the report says so. A plan that is told a point, a launch, a division of rows, an
    /// order, a partition, tasks or a form of tile values disregards it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm, Tuned};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(4)?);
    /// let tuned = Tuned::load(&device)?.unwrap_or_else(|| Tuned::of(&device));
    /// let plan = Spmm::builder(&a).width(1).tuned(&tuned).build(&device)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0])?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tuned(mut self, tuned: &'a Tuned) -> Self {
        self.tuned = Some(tuned);
        self
    }

    /// How the CPU deals the product out to its threads; [`CpuTasks::default`] unless told. GPUs disregard it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{CpuTasks, Csr, Device, Spmm};
    ///
    /// let tasks = CpuTasks { ranges_per_thread: 2, tile_columns: Some(32) };
    /// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).cpu_tasks(tasks).build(&Device::cpu())?;
    /// assert_eq!(plan.run(&[1.0, 2.0])?, [1.0, 2.0]);
    /// assert_eq!(plan.report().cpu_tasks, Some(tasks));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cpu_tasks(mut self, tasks: CpuTasks) -> Self {
        self.cpu_tasks = Some(tasks);
        self
    }

    /// How [`Algorithm::RowSplit`] divides the work, instead of what it prefers for the matrix. The CPU disregards it, and
    /// so do plans without row segments.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Algorithm, Csr, Device, RowDivision, Spmm};
    ///
    /// let a = Csr::<f32>::identity(4)?;
    /// let whole = RowDivision { piece_entries: Some(u32::MAX), ..RowDivision::default() };
    /// let builder = Spmm::builder(&a).algorithm(Algorithm::RowSplit).row_division(whole);
    /// assert_eq!(builder.build(&Device::best()?)?.run(&[1.0, 2.0, 3.0, 4.0])?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn row_division(mut self, division: RowDivision) -> Self {
        self.row_division = division;
        self
    }

    /// What was tuned for this plan on `device`, if the caller leaves the choice.
    pub(super) fn remembered(&self, device: &Device) -> Option<&'a TunedProduct> {
        let tuned = self.tuned.filter(|tuned| tuned.device() == device.name())?;
        let left = self.algorithm == Algorithm::Auto
            && self.point.is_none()
            && self.group_launch.is_none()
            && self.partition.is_none()
            && self.cpu_tasks.is_none()
            && self.row_division == RowDivision::default()
            && self.tile_values == TileValues::Auto
            && matches!(self.order, Order::AsGiven);
        let key = || ProductKey::new(self.a, self.width, self.precision, self.determinism);
        left.then(key).and_then(|key| tuned.get(&key))
    }

    /// With the options of a choice.
    pub(super) fn taking(&self, choice: &Choice) -> Self {
        let mut taking = self.clone();
        taking.algorithm = choice.algorithm;
        (taking.point, taking.group_launch) = (choice.parallelism, choice.group_launch);
        (taking.tile_values, taking.cpu_tasks) = (choice.tile_values, choice.cpu_tasks);
        taking.row_division = choice.row_division;
        if let Some(method) = choice.order {
            taking.order = Order::Found(reorder::Options { method, ..reorder::Options::default() });
        }
        taking
    }
}
