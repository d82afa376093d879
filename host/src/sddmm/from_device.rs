//! Plans of patterns that are on the device, made there.

use windrow_formats::Value;

use super::builder::SddmmBuilder;
use super::choose::counts_of;
use super::options::{SddmmAlgorithm, SddmmForm};
use super::plan::SddmmPlan;
use super::received::{CountedBatches, lay_out};
use crate::csr::{DeviceCsr, Wanted};
use crate::device::Stream;
use crate::error::SddmmError;
use crate::num::wide;
use crate::options::{Precision, Preprocessing};
use crate::plan::{On, StageClock, check_device};
use crate::spmm::{MOST_PANEL_ITEMS, OfReceived};

impl<V: Value> SddmmBuilder<'_, DeviceCsr<'_, V>> {
    /// Makes the plan of a pattern that is on a device, in the order of a stream: after what that was asked for so far.
    /// What that is asked for later comes after all reading of the matrix's arrays, which may then be written or freed.
    /// The plan may be run on any stream.
    ///
    /// Kernels check the matrix and lay it out, for every algorithm: batches of entries, the row of each entry, tiles,
    /// the division of a hybrid, and panels of rows. Made on the host, of a copy of the matrix, are plans of the CPU,
    /// and those of matrices without entries or with 2³¹ rows or entries (panels: more than 2²⁹);
    /// [`SddmmReport::preprocessing_reason`](crate::SddmmReport::preprocessing_reason) says so.
    ///
    /// # Cost
    /// On a GPU one to three waits for a few numbers, the fewest for groups, one fewer for a matrix that was
    /// [checked](DeviceCsr::checked), of panels up to ten more, with what chooses them; and kernels that are linear in
    /// rows and entries.
    ///
    /// # Errors
    /// - those of [`build`](SddmmBuilder::build);
    /// - those of [`DeviceCsr::checked`] for a matrix that is not in canonical form;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) for one that is captured into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceCsr, Sddmm, Stream};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(2)?);
    /// let on_device = DeviceCsr::from_host(&device, &a)?;
    /// let plan = Sddmm::builder(&on_device).inner(2).build_on(&Stream::new(&device)?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0])?, [17.0, 53.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<SddmmPlan, SddmmError> {
        let (a, device) = (self.a, self.a.device());
        check_device("the stream", on.device(), device)?;
        self.check_options()?;
        let Some(machine) = device.machine() else { return self.build_of_copy(on, "the plan runs there") };
        if let Some(why) = self.only_on_host() {
            return self.build_of_copy(on, why);
        }
        let mut clock = StageClock::start();
        let mut report = self.blank_report(device, (a.rows(), a.cols(), a.nnz()));
        let (precision, pattern) = match self.values() {
            Some(precision) => (precision, false),
            None => (Precision::F16, true), // the least memory
        };
        let wanted =
            Wanted { precision, pattern, unpadded: true, columns: false, exceptions: false, known: None };
        let received = a.receive(&On::of(on, device, false)?, wanted)?;
        clock.end("read");
        let batches = match self.weighs(wide(a.nnz())) {
            true => Some(CountedBatches::of(device, &received)?),
            false => None,
        };
        let counted = batches.as_ref().map_or(0, CountedBatches::len);
        let counts = counts_of((a.rows(), a.cols(), a.nnz()), wide(counted));
        let sharing = &mut OfReceived { device, a: &received };
        let precision = self.decide(counts, &self.profile_of(device), &mut report, sharing)?;
        let build = |options| self.clone().options(options).build_on(on);
        if let Some(plan) = self.tried(device, &mut report, build)? {
            return Ok(plan);
        }
        if precision != self.options.precision {
            drop(received);
            return Ok(self.serving(self.served_by(&report, precision).build_on(on)?, report));
        }
        let threshold = (report.algorithm == SddmmAlgorithm::Hybrid).then(|| self.threshold(device));
        let made = lay_out(self, device, received, (threshold, batches), &mut report)?;
        let Some(made) = made else {
            return self.build_of_copy(on, "kernels cannot count as many words of records");
        };
        clock.end("layout");
        report.preprocessing = Preprocessing::Gpu;
        report.preprocessing_reason = "the matrix is there".to_owned();
        self.finish((device, machine), made, report, clock)
    }

    /// What values are rounded to, if the products are multiplied by them: the type of the sums.
    fn values(&self) -> Option<Precision> {
        match (self.options.form, self.options.precision) {
            (SddmmForm::Mask, _) => None,
            (SddmmForm::Scale, Precision::F64) => Some(Precision::F64),
            (SddmmForm::Scale, _) => Some(Precision::F32),
        }
    }

    /// Why the plan is made on the host, if it is.
    fn only_on_host(&self) -> Option<&'static str> {
        if self.a.nnz() == 0 {
            return Some("it has no entries");
        }
        let panels = self.options.algorithm == SddmmAlgorithm::RowPanels;
        if panels && self.a.rows().max(self.a.nnz()) > MOST_PANEL_ITEMS {
            return Some("it has more than 2²⁹ rows or entries");
        }
        match self.values() {
            Some(_) => self.a.cannot_be_received(),
            None => self.a.pattern_cannot_be_received(),
        }
    }

    /// The plan of a copy on the host.
    fn build_of_copy(&self, on: &Stream, why: &str) -> Result<SddmmPlan, SddmmError> {
        let mut clock = StageClock::start();
        let copy = self.a.to_host(on)?;
        clock.end("download");
        let mut plan = self.for_matrix(&copy).build(self.a.device())?;
        plan.report.stages.splice(0..0, clock.stages);
        plan.report.preprocessing_reason = format!("a copy of the matrix, on the host: {why}");
        Ok(plan)
    }
}
