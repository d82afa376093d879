//! Plans of tensors that are on the device, made there.

use windrow_formats::Value;
use windrow_kernels::csr::ReadCsr;
use windrow_kernels::preprocess::MOST_ITEMS;

use super::builder::MttkrpBuilder;
use super::coo::DeviceCoo3;
use super::csf::DeviceCsf3;
use super::part::MttkrpLayout;
use super::plan::MttkrpPlan;
use super::ttm::{TtmBuilder, TtmPlan};
use crate::device::Stream;
use crate::error::{SpmmError, TensorError};
use crate::num::index;
use crate::options::Preprocessing;
use crate::parallelism::AtomicParallelism;
use crate::plan::{On, StageClock, check_device};
use crate::spmm::{OnDevice, Spmm, described, made_on_host};

impl<V: Value> MttkrpBuilder<'_, DeviceCoo3<'_, V>> {
    /// Makes the plan of a list of coordinates that is on a device, for the first mode of its
    /// [order](Self::mode_order), in the order of a stream: after what that was asked for so far. What that is asked
    /// for later comes after all reading of the list's arrays, which may then be written or freed. The plan may be run
    /// on any stream. New values of the plan are one for each entry of [its fibers](DeviceCoo3::to_csf), in their
    /// order.
    ///
    /// # Cost
    /// That of [`DeviceCoo3::to_csf`], whose fibers are freed again, and of the plan of these.
    ///
    /// # Errors
    /// Those of [`DeviceCoo3::to_csf`], and of the plan of its fibers.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCoo3, Mttkrp, Stream};
    ///
    /// let (device, a) = (Device::best()?, Coo3::from_entries([2, 2, 1], [([0, 1, 0], 3.0f32)])?);
    /// let on_device = DeviceCoo3::from_host(&device, &a)?;
    /// let plan = Mttkrp::builder(&on_device).width(1).build_on(&Stream::new(&device)?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0], &[10.0])?, [60.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<MttkrpPlan, TensorError> {
        check_device("the stream", on.device(), self.a.device())?;
        self.point(self.a.nnz(), self.a.device())?;
        let mut clock = StageClock::start();
        let fibers = self.a.to_csf(self.mode_order, on)?;
        clock.end("fibers");
        let mut plan = self.for_tensor(&fibers).build_on(on)?;
        plan.report.stages.splice(0..0, clock.stages);
        Ok(plan)
    }
}

impl<V: Value> MttkrpBuilder<'_, DeviceCsf3<V>> {
    /// Makes the plan of fibers that are on a device, for the mode of their roots: after what the stream was asked for
    /// so far. The plan may be run on any stream.
    ///
    /// Kernels round the values, find where slices begin and the index of each entry's fiber, and divide the entries.
    /// Made on the host, of a copy of the fibers, are plans of the CPU, and of tensors without entries, with 2³¹ slices
    /// or 2³⁰ groups of entries; [`MttkrpReport::preprocessing_reason`](crate::MttkrpReport::preprocessing_reason) says
    /// so.
    ///
    /// # Cost
    /// On a GPU one wait for a few numbers, and kernels that are linear in slices and entries.
    ///
    /// # Errors
    /// - those of [`build`](MttkrpBuilder::build);
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) for one that is captured into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCsf3, Mttkrp};
    ///
    /// let (device, a) = (Device::best()?, Coo3::from_entries([2, 2, 1], [([0, 1, 0], 3.0f32)])?);
    /// let fibers = DeviceCsf3::from_host(&device, &a.to_csf([1, 0, 2])?)?;
    /// let plan = Mttkrp::builder(&fibers).width(1).build_on(&device.stream())?;
    /// assert_eq!(plan.run(&[1.0, 2.0], &[10.0])?, [0.0, 30.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<MttkrpPlan, TensorError> {
        let (a, device) = (self.a, self.a.device());
        check_device("the stream", on.device(), device)?;
        let facts = a.facts();
        let point = self.point(facts.nnz, device)?;
        let Some(machine) = device.machine() else { return self.build_of_copy(on, "the plan runs there") };
        if let Some(why) = self.only_on_host(point) {
            return self.build_of_copy(on, why);
        }
        let mut report = self.blank_report(device, facts);
        let mut clock = StageClock::start();
        let (precision, launch) = (self.options.precision, self.options.group_launch);
        let slices = a.slices(&On::of(on, device, false)?, precision)?;
        clock.end("slices");
        let laid = MttkrpLayout::of_received(device, slices, point, launch, self.options.determinism)?;
        clock.end("balance");
        report.parallelism = Some(described(point, launch));
        report.preprocessing = Preprocessing::Gpu;
        if let Some(why) = a.of_copy {
            report.preprocessing_reason =
                format!("the tensor is there, of which the host made the fibers: {why}");
        }
        self.finish((device, machine), laid, &OnDevice(precision.dtype()), (report, clock))
    }

    /// Why the plan is made on the host, if it is.
    fn only_on_host(&self, point: AtomicParallelism) -> Option<&'static str> {
        let slices = self.a.facts().dims[0];
        let most = index(u64::from(MOST_ITEMS - ReadCsr::PER_BLOCK));
        let too_many = (slices >= most).then_some("it has 2³¹ slices");
        let not_received = || self.a.rows.cannot_be_received();
        too_many.or_else(|| made_on_host(self.a.nnz(), point)).or_else(not_received)
    }

    /// The plan of a copy on the host.
    fn build_of_copy(&self, on: &Stream, why: &str) -> Result<MttkrpPlan, TensorError> {
        let mut clock = StageClock::start();
        let copy = self.a.to_host(on)?;
        clock.end("download");
        let mut plan = self.for_tensor(&copy).build(self.a.device())?;
        plan.report.stages.splice(0..0, clock.stages);
        plan.report.preprocessing_reason = format!("a copy of the tensor, on the host: {why}");
        Ok(plan)
    }
}

impl<V: Value> TtmBuilder<'_, DeviceCoo3<'_, V>> {
    /// Makes the plan of a list of coordinates that is on a device, for the last mode of its
    /// [order](Self::mode_order), in the order of a stream, as [`MttkrpBuilder::build_on`] does. Which fiber each row
    /// of `Y` is, [`DeviceCoo3::to_csf`] tells: for that, make the plan of the fibers.
    ///
    /// # Cost
    /// That of [`DeviceCoo3::to_csf`], whose fibers are freed again, and of the plan of these.
    ///
    /// # Errors
    /// Those of [`DeviceCoo3::to_csf`], and of the plan of its fibers.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCoo3, Stream, Ttm};
    ///
    /// let device = Device::best()?;
    /// let a = Coo3::from_entries([2, 3, 2], [([1, 2, 1], 2.0f32), ([0, 0, 1], 1.0), ([1, 2, 0], 4.0)])?;
    /// let on_device = DeviceCoo3::from_host(&device, &a)?;
    /// let plan = Ttm::builder(&on_device).width(1).build_on(&Stream::new(&device)?)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [10.0, 24.0]); // fibers (0, 0) and (1, 2)
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<TtmPlan, SpmmError> {
        check_device("the stream", on.device(), self.a.device())?;
        let mut clock = StageClock::start();
        let fibers = self.a.to_csf(self.mode_order, on)?;
        clock.end("fibers");
        let mut plan = self.for_tensor(&fibers).build_on(on)?;
        plan.product.add_stages_before(clock);
        Ok(plan)
    }
}

impl<V: Value> TtmBuilder<'_, DeviceCsf3<V>> {
    /// Makes the plan of fibers that are on a device, for the mode of their leaves, as that of a
    /// [`DeviceCsr`](crate::DeviceCsr) with a row for each fiber.
    ///
    /// # Cost
    /// That of [`SpmmBuilder::build_on`](crate::SpmmBuilder::build_on).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCsf3, Ttm};
    ///
    /// let (device, a) = (Device::best()?, Coo3::from_entries([2, 2, 1], [([0, 1, 0], 3.0f32)])?);
    /// let fibers = DeviceCsf3::from_host(&device, &a.to_csf([0, 2, 1])?)?;
    /// let plan = Ttm::builder(&fibers).width(1).build_on(&device.stream())?;
    /// assert_eq!(plan.run(&[1.0, 2.0])?, [6.0]); // fiber (0, 0) of modes 0 and 2
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<TtmPlan, SpmmError> {
        let (a, device) = (self.a, self.a.device());
        check_device("the stream", on.device(), device)?;
        let profile = self.profile_of(device);
        let options = self.options_for(a.nnz(), &profile)?;
        let product = Spmm::builder(&a.rows).options(options).profile(&profile).build_on(on)?;
        Ok(TtmPlan { product })
    }
}
