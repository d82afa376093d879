//! Plans of matrices that are on the device, made there.

use std::borrow::Cow;
use std::cell::OnceCell;

use windrow_formats::{Canonicalised, OutOfMemory, Value};
use windrow_kernels::Dtype;
use windrow_kernels::csr::CsrRecord;
use windrow_preprocess::partition::PartitionRule;

use super::build::{Ready, Subject};
use super::builder::SpmmBuilder;
use super::decide::{Decision, Facts, Way, decide, few_runs, may_have_panels, may_take_tiles};
use super::layout::{Context, columns_decide};
use super::order::{self, RowOrder, Weighing};
use super::part::LaidOut;
use super::parts::tile_stream::ReceivedTiles;
use super::parts::{merge_path, row_panels, row_split, segment_group, tile_stream};
use super::plan::SpmmPlan;
use super::preprocess::{Condensed, MOST_PANEL_ITEMS, received_panel_counts};
use crate::csr::{CutAt, DeviceCsr, Known, Received, Wanted};
use crate::device::{Device, Machine, Stream};
use crate::error::{DeviceError, SpmmError};
use crate::num::wide;
use crate::options::{Algorithm, Precision, Preprocessing};
use crate::plan::{Bits, Exceptions, GivenValues, On, StageClock, Unplaced, check_device};
use crate::predict::PanelCounts;
use crate::predict::weigh::Sharing;
use crate::profile::Profile;

/// Why the host makes plans of matricised rows.
const DEALT: &str = "rows are dealt out there";
/// Why it makes those whose division is left to a cost model.
const ESTIMATED: &str = "it is estimated there how rows are best divided";
/// Why it makes those of short rows in f64.
const GATHERED: &str = "f64 values are gathered there";
/// Why it makes those in another order.
const REORDERED: &str = "rows are reordered there";

impl<V: Value> SpmmBuilder<'_, DeviceCsr<'_, V>> {
    /// Makes the plan of a matrix that is on a device, in the order of a stream: after what that was asked for so far.
    /// What that is asked for later comes after all reading of the matrix's arrays, which may then be written or freed.
    /// The plan may be run on any stream.
    ///
    /// Kernels check the matrix, count what decides, and lay it out: row-split; segment groups; merged paths, of which
    /// the host cuts the rows that are too long for one block; short rows; tiles of all rows; and hybrids by a
    /// [partition](Self::partition) that is given. Windows of tiles are dealt out there if all stay whole, and else by
    /// the host. Row-split and tiles of all rows also in an order that is [given](Self::order), and in that of
    /// [`Method::MinHash`](crate::reorder::Method::MinHash), which kernels find. What else is chosen or asked for
    /// (an order of another method, one for short rows or hybrids, a hybrid whose partition is left to the cost model,
    /// short rows in f64, matricised rows, tiles whose values are behind bitmaps, the CPU) is made on the host, of a
    /// copy of the matrix; [`SpmmReport::preprocessing_reason`](crate::SpmmReport::preprocessing_reason) says so. What
    /// was [tuned](Self::tuned) is for matrices of the host.
    ///
    /// # Cost
    /// On a GPU two or three waits for a few numbers, of a hybrid up to five, where panels are weighed four more, where
    /// they are taken another six; and kernels that are linear in rows and entries.
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
    ///
    /// // Rows of one entry on CUDA cores, the others in tiles.
    /// use windrow::partition::PartitionRule;
    /// use windrow::{Algorithm, Precision};
    ///
    /// let builder = Spmm::builder(&on_device).algorithm(Algorithm::Hybrid).precision(Precision::F16);
    /// let plan = builder.partition(PartitionRule::ShortRows { max_entries: 1 }).build_on(&device.stream())?;
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
        let mut wanted = Wanted {
            precision: self.options.precision,
            columns: columns_decide(device, &self.options, a.cols()),
            exceptions: may_take_tiles(&self.options, &profile),
            pattern: false,
            unpadded: false,
            known: None,
        };
        let on = On::of(on, device, false)?;
        let few = few_runs(&self.options, &profile.costs.tiles).is_some();
        if few && a.known().is_none() {
            wanted.known = Some(a.find_out(&on)?);
            clock.end("check");
        }
        if !self.options.autotune
            && let Some(spread) = self.spread(&wanted, &profile, few)?
        {
            return self.build_spread(&on, &profile, spread, clock);
        }
        let mut received = a.receive(&on, wanted)?;
        let unread = received.unread.take();
        clock.end("read");
        let facts = self.facts(&received.record, received.exceptions());
        let sharing = &mut OfReceived { device, a: &received };
        let mut decision = decide(&facts, &self.options, &profile, sharing)?;
        clock.end("choose");
        let build = |options| self.clone().options(options).build_on(on.stream);
        if let Some(plan) = self.tried(device, &mut decision, build)? {
            return Ok(plan);
        }
        if decision.precision != self.options.precision {
            drop((received, unread));
            let plan = self.clone().options(self.served_by(&decision)).build_on(on.stream)?;
            return Ok(self.serving(plan, decision));
        }
        if let Some(why) = self.way_of_host(&decision) {
            drop(received);
            return self.build_of_copy(on.stream, why);
        }
        let decided = Decided { machine, profile: &profile, facts: &facts };
        match self.build_received(decided, decision, received, clock)? {
            Some(plan) => Ok(SpmmPlan { unread, ..plan }),
            None => self.build_of_copy(on.stream, "kernels cannot count as many steps"),
        }
    }

    /// What decides, of a matrix with this record.
    fn facts(&self, record: &CsrRecord, exceptions: Exceptions) -> Facts {
        Facts {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            empty_rows: u64::from(record.empty_rows),
            longest: record.longest,
            exceptions,
            kernels: true,
            own_order: self.order.is_none() && self.options.reorder.is_none(),
            on_device: true,
        }
    }

    /// What is decided of a matrix that is known, if it is row-split whose rows one kernel cuts while it reads the
    /// matrix: no rows, or for a few products those that have places without being counted.
    fn spread(&self, wanted: &Wanted, profile: &Profile, few: bool) -> Result<Option<Spread>, SpmmError> {
        let (a, options) = (self.a, &self.options);
        let known = wanted.known.or(a.known()).filter(|known| !wanted.columns || known.columns_counted);
        let Some(Known { record, .. }) = known else { return Ok(None) };
        let ordered = self.order.is_some() || options.reorder.is_some();
        let facts = self.facts(&record, Exceptions::default());
        let may_be_rows = !wanted.exceptions && !may_have_panels(&facts, options, &profile.costs);
        if !may_be_rows || ordered || !a.can_be_spread() {
            return Ok(None);
        }
        // Tiles are not among what is weighed here: they would want to know the exceptions of the values.
        let decision = decide(&facts, options, profile, &mut || Ok(wide(a.nnz())))?;
        let at = row_split::cut_at(options, a.device(), (a.rows(), a.nnz()), &record);
        let can_be_cut = at.is_never() || few && at.can_be_spread();
        let is_spread = decision.way == Way::Rows && can_be_cut;
        Ok(is_spread.then_some(Spread { facts, decision, record, at }))
    }

    /// The plan of a matrix that one kernel reads and cuts. Nobody waits.
    fn build_spread(
        &self,
        on: &On<'_>,
        profile: &Profile,
        spread: Spread,
        mut clock: StageClock,
    ) -> Result<SpmmPlan, SpmmError> {
        let Spread { facts, decision, record, at } = spread;
        let device = self.a.device();
        clock.end("choose");
        let (mut received, segments) = self.a.spread(on, self.options.precision, record, at)?;
        let (unread, dtype) = (received.unread.take(), received.dtype);
        let context = Context {
            a: &received,
            options: &self.options,
            device,
            machine: on.machine,
            order: None,
            empty_rows: facts.empty_rows,
            profile,
            columns_in_use: OnceCell::new(),
        };
        let cut = row_split::Cut::spread(&context, segments)?;
        clock.end("segments");
        let subject =
            Subject { facts: &facts, cols: self.a.cols(), canonicalised: Canonicalised::default(), device };
        let laid = made_there(cut.into_laid_out(received));
        let ready = Ready {
            machine: on.machine,
            decision,
            laid,
            order: RowOrder::own(String::new()).name,
            model: &profile.costs.spmm,
        };
        let made = self.upload(subject, ready, &OnDevice(dtype), &mut clock)?;
        let plan = self.finish(subject, made, clock)?;
        Ok(SpmmPlan { unread, ..plan })
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
            Algorithm::Hybrid if options.partition.is_none() => Some(ESTIMATED),
            Algorithm::ShortRows if options.precision == Precision::F64 => Some(GATHERED),
            _ => self.a.cannot_be_received(),
        }
    }

    /// Why a plan of this kind is made on the host, if it is.
    fn way_of_host(&self, decision: &Decision) -> Option<&'static str> {
        let form_of_host = tile_stream::only_on_host(&self.options);
        match decision.way {
            Way::Tiles(_) if self.a.nnz() == 0 => Some("it has no entries"),
            Way::Tiles(_) if form_of_host.is_some() => form_of_host,
            Way::Rows | Way::Tiles(Some(PartitionRule::AllTile)) => None,
            Way::Tiles(Some(_)) if self.order.is_some() || self.options.reorder.is_some() => Some(REORDERED),
            Way::Tiles(Some(rule)) if tile_stream::kernels_divide(rule) => None,
            Way::Groups(division) => segment_group::made_on_host(self.a.nnz(), division.point),
            Way::Path if !merge_path::fits_kernels(self.a.rows()) => Some("it has no rows, or 2³⁰"),
            Way::Path => None,
            Way::Panels => row_panels::made_on_host(self.a.rows(), self.a.nnz()),
            Way::Matricized => Some(DEALT),
            Way::Tiles(_) => Some(ESTIMATED),
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
        Decided { profile, facts, .. }: Decided<'_>,
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
        decided: Decided<'_>,
        decision: Decision,
        received: Received,
        mut clock: StageClock,
    ) -> Result<Option<SpmmPlan>, SpmmError> {
        let device = self.a.device();
        let dtype = received.dtype;
        let RowOrder { order, name } = match decision.way.is_ordered() {
            true => self.order_received(&received, decided, &decision, &mut clock)?,
            false => RowOrder::own(String::new()),
        };
        let Decided { machine, profile, facts } = decided;
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
        let made = |laid: LaidOut<'_>, clock: &mut StageClock| {
            let laid = made_there(laid);
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
            Way::Tiles(rule) => {
                let rule = rule.unwrap_or(PartitionRule::AllTile);
                match tile_stream::lay_out_received(&context, rule, &mut clock)? {
                    ReceivedTiles::LaidOut(laid) => made(*laid, &mut clock)?,
                    ReceivedTiles::WithoutTiles(why) => {
                        let cut = row_split::Cut::new(&context)?;
                        clock.end("segments");
                        let mut laid = cut.into_laid_out(received);
                        laid.facts.instead = Some(format!("all entries on CUDA cores: {why}"));
                        made(laid, &mut clock)?
                    }
                    ReceivedTiles::TooLarge => return Ok(None),
                }
            }
            Way::Panels => match row_panels::lay_out_by_kernels(&context, &mut clock)? {
                Some(laid) => made(laid, &mut clock)?,
                None => return Ok(None),
            },
            _ => {
                let cut = row_split::Cut::new(&context)?;
                clock.end("segments");
                made(cut.into_laid_out(received), &mut clock)?
            }
        };
        self.finish(subject, made, clock).map(Some)
    }
}

/// A matrix on the device, whose rows are counted there as tiles and as panels would have them. Waits for the counts.
pub(crate) struct OfReceived<'a> {
    pub(crate) device: &'a Device,
    pub(crate) a: &'a Received,
}

impl<E: From<DeviceError>> Sharing<E> for OfReceived<'_> {
    fn vectors(&mut self) -> Result<u64, E> {
        let condensed = Condensed::of_received(self.device, self.a, 0)?.read()?;
        Ok(wide(condensed.vector_count()))
    }

    fn panels(&mut self) -> Result<Option<PanelCounts>, E> {
        match self.a.rows.max(self.a.nnz) > MOST_PANEL_ITEMS {
            true => Ok(None),
            false => Ok(received_panel_counts(self.device, self.a)?),
        }
    }

    fn is_on_device(&self) -> bool {
        true
    }
}

/// What is known when a matrix was received.
#[derive(Clone, Copy)]
struct Decided<'a> {
    machine: &'a dyn Machine,
    profile: &'a Profile,
    facts: &'a Facts,
}

/// Row-split of a matrix whose rows are cut by the kernel that reads it.
struct Spread {
    facts: Facts,
    decision: Decision,
    record: CsrRecord,
    at: CutAt,
}

/// What kernels laid out of a matrix that is on the device.
fn made_there(mut laid: LaidOut<'_>) -> LaidOut<'_> {
    (laid.facts.on_gpu, laid.facts.place) = (true, Some("the matrix is there".to_owned()));
    laid
}

/// Values that are on the device, rounded, where the layout of their matrix knows.
pub(crate) struct OnDevice(pub(crate) Dtype);

impl GivenValues for OnDevice {
    fn bits(&self) -> Result<&Bits, OutOfMemory> {
        const NONE: &Bits = &Bits::F32(Vec::new());
        Ok(NONE) // not reached: what was laid out on the device has its values there
    }

    fn unplaced(&self) -> Result<Unplaced<'_>, OutOfMemory> {
        Ok(Unplaced::on_device(self.0))
    }
}
