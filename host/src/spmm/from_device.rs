//! Plans of matrices that are on the device, made there.

use std::borrow::Cow;
use std::cell::OnceCell;

use windrow_formats::{Canonicalised, OutOfMemory, Value};
use windrow_kernels::Dtype;
use windrow_preprocess::partition::PartitionRule;

use super::build::{Ready, Subject};
use super::builder::SpmmBuilder;
use super::decide::{Decision, Facts, Way, decide, may_take_tiles};
use super::layout::{Context, columns_decide};
use super::order::{self, RowOrder, Weighing};
use super::part::LaidOut;
use super::parts::{merge_path, row_split, segment_group, tile_stream};
use super::plan::SpmmPlan;
use crate::csr::{DeviceCsr, Received, Wanted};
use crate::device::{Machine, Stream};
use crate::error::SpmmError;
use crate::options::{Algorithm, Preprocessing};
use crate::plan::{Bits, GivenValues, On, StageClock, Unplaced, check_device};
use crate::profile::Profile;

/// Why the host makes plans of matricised rows.
const DEALT: &str = "rows are dealt out there";
/// Why it makes those with parts.
const DIVIDED: &str = "rows and entries are divided there";
/// Why it makes those in another order.
const REORDERED: &str = "rows are reordered there";

impl<V: Value> SpmmBuilder<'_, DeviceCsr<'_, V>> {
    /// Makes the plan of a matrix that is on a device, in the order of a stream: after what that was asked for so far.
    /// What that is asked for later comes after all reading of the matrix's arrays, which may then be written or freed.
    /// The plan may be run on any stream.
    ///
    /// Kernels check the matrix, count what decides, and lay it out: row-split; segment groups; merged paths, of which
    /// the host cuts the rows that are too long for one block; and tiles of all rows, whose windows the host deals out.
    /// Row-split and tiles also in an order that is [given](Self::order), and in that of
    /// [`Method::MinHash`](crate::reorder::Method::MinHash), which kernels find. What else is chosen or asked for
    /// (an order of another method, short rows, hybrids, matricised rows, the CPU) is made on the host, of a copy of
    /// the matrix;
    /// [`SpmmReport::preprocessing_reason`](crate::SpmmReport::preprocessing_reason) says so. What was
    /// [tuned](Self::tuned) is for matrices of the host.
    ///
    /// # Cost
    /// On a GPU two or three waits for a few numbers, and kernels that are linear in rows and entries.
    ///
    /// # Errors
    /// - those of [`build`](SpmmBuilder::build);
    /// - those of [`DeviceCsr::checked`] for a matrix that is not in canonical form;
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) for one that is captured into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceCsr, Spmm, Stream};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(3)?);
    /// let on_device = DeviceCsr::from_host(&device, &a)?;
    /// let plan = Spmm::builder(&on_device).width(1).build_on(&Stream::new(&device)?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0])?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<SpmmPlan, SpmmError> {
        let (a, device) = (self.a, self.a.device());
        check_device("the stream", on.device(), device)?;
        self.check_orders(a.rows(), a.nnz())?;
        let Some(machine) = device.machine() else { return self.build_of_copy(on, "the plan runs there") };
        if let Some(why) = self.only_on_host() {
            return self.build_of_copy(on, why);
        }
        let mut clock = StageClock::start();
        let profile = self.profile_of(device);
        let wanted = Wanted {
            precision: self.options.precision,
            columns: columns_decide(device, &self.options, a.cols()),
            exceptions: may_take_tiles(&self.options, &profile),
            pattern: false,
            unpadded: false,
        };
        let mut received = a.receive(&On::of(on, device, false)?, wanted)?;
        let unread = received.unread.take();
        clock.end("read");
        let facts = Facts {
            rows: a.rows(),
            nnz: a.nnz(),
            empty_rows: u64::from(received.record.empty_rows),
            longest: received.record.longest,
            exceptions: received.exceptions(),
            kernels: true,
            own_order: self.order.is_none() && self.options.reorder.is_none(),
            on_device: true,
        };
        let decision = decide(&facts, &self.options, &profile)?;
        clock.end("choose");
        if let Some(why) = self.way_of_host(&decision) {
            drop(received);
            return self.build_of_copy(on, why);
        }
        let known = Known { machine, profile: &profile, facts: &facts };
        match self.build_received(known, decision, received, clock)? {
            Some(plan) => Ok(SpmmPlan { unread, ..plan }),
            None => self.build_of_copy(on, "kernels cannot count as many steps"),
        }
    }

    /// Why a plan with these options is made on the host, if it is.
    fn only_on_host(&self) -> Option<&'static str> {
        let options = &self.options;
        if options.preprocessing == Preprocessing::Cpu {
            return Some("as asked");
        }
        let asked = options.reorder.as_ref().filter(|_| self.order.is_none());
        if asked.is_some_and(|reorder| !order::has_kernels(reorder)) {
            return Some(REORDERED);
        }
        match options.algorithm {
            Algorithm::MatricizedRows => Some(DEALT),
            Algorithm::ShortRows => Some(DIVIDED),
            Algorithm::Hybrid if options.partition != Some(PartitionRule::AllTile) => Some(DIVIDED),
            _ => self.a.cannot_be_received(options.precision),
        }
    }

    /// Why a plan of this kind is made on the host, if it is.
    fn way_of_host(&self, decision: &Decision) -> Option<&'static str> {
        match decision.way {
            Way::Tiles(_) if self.a.nnz() == 0 => Some("it has no entries"),
            Way::Rows | Way::Tiles(Some(PartitionRule::AllTile)) => None,
            Way::Groups(division) => segment_group::made_on_host(self.a, division),
            Way::Path if !merge_path::fits_kernels(self.a.rows()) => Some("it has no rows, or 2³⁰"),
            Way::Path => None,
            Way::Matricized => Some(DEALT),
            Way::Tiles(_) => Some(DIVIDED),
            Way::Cpu(_) => Some("the plan runs there"),
        }
    }

    /// The plan of a copy on the host.
    fn build_of_copy(&self, on: &Stream, why: &str) -> Result<SpmmPlan, SpmmError> {
        let mut clock = StageClock::start();
        let copy = self.a.to_host(on)?;
        clock.end("download");
        let mut plan = self.for_matrix(&copy).build(self.a.device())?;
        let report = &mut plan.report;
        report.stages.splice(0..0, clock.stages);
        report.preprocessing_reason = format!("a copy of the matrix, on the host: {why}");
        Ok(plan)
    }

    /// The order of the rows of what was received.
    fn order_received(
        &self,
        received: &Received,
        Known { profile, facts, .. }: Known<'_>,
        decision: &Decision,
        clock: &mut StageClock,
    ) -> Result<RowOrder<'_>, SpmmError> {
        let (device, options) = (self.a.device(), &self.options);
        match (self.order, &options.reorder) {
            (Some(given), _) => Ok(RowOrder::named(Cow::Borrowed(given), "given".to_owned())),
            (None, Some(asked)) => {
                let found = order::on_device(device, received, asked.method)?;
                clock.end("reorder on the GPU");
                Ok(found)
            }
            (None, None) => {
                let weighing = Weighing::of(facts, self.a.cols(), options, &profile.costs, decision.way);
                let Some(weighing) = weighing else { return Ok(RowOrder::own(String::new())) };
                let found = order::automatic(device, received, &weighing)?;
                clock.end("weigh orders");
                Ok(found)
            }
        }
    }

    /// The plan of what was received; none if it has more steps than a plan may have.
    fn build_received(
        &self,
        known: Known<'_>,
        decision: Decision,
        received: Received,
        mut clock: StageClock,
    ) -> Result<Option<SpmmPlan>, SpmmError> {
        let device = self.a.device();
        let dtype = received.dtype;
        let RowOrder { order, name } = match decision.way.is_ordered() {
            true => self.order_received(&received, known, &decision, &mut clock)?,
            false => RowOrder::own(String::new()),
        };
        let Known { machine, profile, facts } = known;
        let context = Context {
            a: &received,
            options: &self.options,
            device,
            machine,
            order: order.as_deref(),
            empty_rows: facts.empty_rows,
            profile,
            columns_in_use: OnceCell::new(),
        };
        let subject = Subject { facts, cols: self.a.cols(), canonicalised: Canonicalised::default(), device };
        let made = |mut laid: LaidOut<'_>, clock: &mut StageClock| {
            (laid.facts.on_gpu, laid.facts.place) = (true, Some("the matrix is there".to_owned()));
            let (order, model) = (name.clone(), &profile.costs.spmm);
            let ready = Ready { machine, decision: decision.clone(), laid, order, model };
            self.upload(subject, ready, &OnDevice(dtype), clock)
        };
        let made = match decision.way {
            Way::Groups(division) => {
                let laid = segment_group::lay_out_received(&self.options, division, device, received)?;
                clock.end("groups");
                made(laid, &mut clock)?
            }
            Way::Path => {
                let laid = merge_path::lay_out_received(&self.options, device, received)?;
                clock.end("path");
                made(laid, &mut clock)?
            }
            Way::Tiles(_) => {
                let Some(laid) = tile_stream::lay_out_received(&context, &mut clock)? else {
                    return Ok(None);
                };
                made(laid, &mut clock)?
            }
            _ => {
                let cut = row_split::Cut::new(&context)?;
                clock.end("segments");
                made(cut.into_laid_out(received), &mut clock)?
            }
        };
        self.finish(subject, made, clock).map(Some)
    }
}

/// What is known when a matrix was received.
#[derive(Clone, Copy)]
struct Known<'a> {
    machine: &'a dyn Machine,
    profile: &'a Profile,
    facts: &'a Facts,
}

/// Values that are on the device, rounded, where the layout of their matrix knows.
struct OnDevice(Dtype);

impl GivenValues for OnDevice {
    fn bits(&self) -> Result<&Bits, OutOfMemory> {
        const NONE: &Bits = &Bits::F32(Vec::new());
        Ok(NONE) // not reached: what was laid out on the device has its values there
    }

    fn unplaced(&self) -> Result<Unplaced<'_>, OutOfMemory> {
        Ok(Unplaced::on_device(self.0))
    }
}
