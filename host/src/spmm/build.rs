//! From a matrix and options to a plan: decide, lay out, account, upload, report.

use std::borrow::Cow;
use std::cell::OnceCell;

use windrow_formats::memory::try_copy;
use windrow_formats::{Canonicalised, Csr, FormatError, Permutation, Value};
use windrow_preprocess::partition::{CostModel, Density, PartitionRule, ProductShape, estimate};
use windrow_preprocess::reorder::{Stopped, reorder};

use super::builder::SpmmBuilder;
use super::decide::{Decision, Facts, Way, decide, too_large};
use super::gpu::{GpuPlan, PlanShape};
use super::layout::{Context, demand};
use super::options::SpmmOptions;
use super::order::{self, OrderName, RowOrder, Weighing};
use super::part::{LaidOut, LayoutFacts, Operation};
use super::parts::{matricized_rows, merge_path, row_panels, row_split, segment_group, tile_stream};
use super::plan::{Body, MEMORY_REMEDY, SpmmPlan};
use super::report::{Described, PlanMemory, SpmmReport};
use super::tiles::WINDOW_ROWS;
use crate::cpu::CpuCsr;
use crate::device::{ArrayMemory, Device, Machine};
use crate::element::{BySum, Element, Real};
use crate::error::SpmmError;
use crate::num::{narrow, wide};
use crate::options::Precision;
use crate::plan::{ArraySize, GivenValues, StageClock, Values, check_memory, push};
use crate::predict::weigh::OfHost;
use crate::profile::Profile;
use crate::tuned::TunedProduct;
use crate::with_element;

/// Columns of a workspace, at most; wider products run in blocks of columns.
const MOST_CAPACITY: usize = 4096;

impl<V: Value> SpmmBuilder<'_, Csr<V>> {
    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`SpmmError::Unsupported`] for an algorithm without kernels for the precision;
    /// - [`PlanError::TooLarge`] for a GPU plan with 2³² entries or about as many segments;
    /// - [`PlanError::MemoryLimit`] if the plan needs more than the limit;
    /// - [`PlanError::Device`] if the device refuses, [`PlanError::Format`] if tiles cannot be built.
    ///
    /// [`PlanError::TooLarge`]: crate::PlanError::TooLarge
    /// [`PlanError::MemoryLimit`]: crate::PlanError::MemoryLimit
    /// [`PlanError::Device`]: crate::PlanError::Device
    /// [`PlanError::Format`]: crate::PlanError::Format
    pub fn build(&self, device: &Device) -> Result<SpmmPlan, SpmmError> {
        let Some(TunedProduct { options, us, default_us, .. }) = self.remembered(device) else {
            return self.build_chosen(device);
        };
        let mut plan = match self.taking(options).build_chosen(device) {
            Ok(plan) => plan,
            // What was quickest may be larger than the default, or come from a file that was changed by hand.
            Err(error) => {
                let mut plan = self.build_chosen(device)?;
                plan.report.tuned_refused = Some(error.to_string());
                return Ok(plan);
            }
        };
        plan.report.requested = self.options.algorithm;
        plan.report.tuned = true;
        let again = if self.options.autotune { "; not timed again" } else { "" };
        plan.report.reason = format!("tuned: {us:.1} µs where the default took {default_us:.1}{again}");
        Ok(plan)
    }

    /// [`build`](Self::build) without what was tuned.
    fn build_chosen(&self, device: &Device) -> Result<SpmmPlan, SpmmError> {
        self.check_orders(self.a.rows(), self.a.nnz())?;
        let mut clock = StageClock::start();
        let values = Values::new(self.options.precision, self.a.values());
        clock.end("values");
        let own_order = self.order.is_none() && self.options.reorder.is_none();
        let facts = Facts::of(self.a.pattern(), values.exceptions, device.machine().is_some(), own_order);
        let profile = self.profile_of(device);
        let mut decision = decide(&facts, &self.options, &profile, &mut OfHost(self.a))?;
        let build = |options| self.clone().options(options).build_chosen(device);
        if let Some(plan) = self.tried(device, &mut decision, build)? {
            return Ok(plan);
        }
        if decision.precision != self.options.precision {
            let plan = self.clone().options(self.served_by(&decision)).build_chosen(device)?;
            return Ok(self.serving(plan, decision));
        }
        let made = match device.machine() {
            None => self.build_cpu(&values, decision, &mut clock)?,
            Some(machine) => {
                let gpu = Gpu { device, machine, profile: &profile, facts: &facts };
                self.build_gpu(gpu, decision, &values, &mut clock)?
            }
        };
        let subject =
            Subject { facts: &facts, cols: self.a.cols(), canonicalised: self.a.canonicalised(), device };
        self.finish(subject, made, clock)
    }

    fn build_cpu(
        &self,
        values: &Values<'_, V>,
        decision: Decision,
        clock: &mut StageClock,
    ) -> Result<Made, SpmmError> {
        let arrays = cpu_arrays(self.a.rows(), self.a.nnz(), self.options.precision);
        let memory = self.account(arrays, 0)?;
        let body =
            with_element!(self.options.precision, B => self.on_cpu::<<B as Element>::Sum>(values, &memory)?);
        clock.end("copy");
        let layout = LayoutFacts { segments: wide(self.a.rows()), ..LayoutFacts::default() };
        Ok(Made {
            body: Body::Cpu(body),
            decision,
            layout,
            order: RowOrder::own(String::new()).name,
            predicted_us: [0.0; 2],
            entries: Vec::new(),
            memory,
        })
    }

    /// The matrix as the CPU multiplies it, with values of type `S`.
    fn on_cpu<S: Real>(&self, values: &Values<'_, V>, memory: &PlanMemory) -> Result<BySum, SpmmError> {
        let matrix = self.a.with_values(values.bits()?.numbers::<S>()?)?;
        debug_assert_eq!(matrix.byte_sizes().total(), memory.device_bytes, "what was accounted for");
        let tasks = self.options.cpu_tasks.unwrap_or_default();
        Ok(BySum::new(CpuCsr::new(matrix, self.options.precision).with_tasks(tasks)))
    }

    fn build_gpu(
        &self,
        gpu: Gpu<'_>,
        decision: Decision,
        values: &Values<'_, V>,
        clock: &mut StageClock,
    ) -> Result<Made, SpmmError> {
        let Gpu { device, facts, .. } = gpu;
        let subject = Subject { facts, cols: self.a.cols(), canonicalised: self.a.canonicalised(), device };
        self.laid_out(gpu, decision, clock, |ready, clock| self.upload(subject, ready, values, clock))
    }

    /// Lays out the parts that were decided on, on the host or by kernels, and has `finish` make something of them.
    pub(super) fn laid_out<R>(
        &self,
        gpu: Gpu<'_>,
        mut decision: Decision,
        clock: &mut StageClock,
        finish: impl FnOnce(Ready<'_>, &mut StageClock) -> Result<R, SpmmError>,
    ) -> Result<R, SpmmError> {
        let Gpu { device, machine, profile, facts } = gpu;
        let RowOrder { order, name } = match decision.way.is_ordered() {
            true => self.find_order(gpu, &decision, clock)?,
            false => RowOrder::own(String::new()),
        };
        let order = order.as_deref();
        let model = &profile.costs.spmm;
        let estimate = match decision.wants_estimate(facts) {
            true => {
                let (width, bytes) = (self.options.width, self.options.precision.bytes() as usize);
                Some(estimate(self.a, order, width, bytes, model)?)
            }
            false => None,
        };
        decision.settle(facts, estimate.as_ref());
        clock.end("choose");
        let context = Context {
            a: self.a,
            options: &self.options,
            device,
            machine,
            order,
            empty_rows: facts.empty_rows,
            profile,
            columns_in_use: OnceCell::new(),
        };
        let laid = lay_out(&context, decision.way, clock)?;
        finish(Ready { machine, decision, laid, order: name, model }, clock)
    }

    /// The order of the rows.
    fn find_order(
        &self,
        Gpu { device, profile, facts, .. }: Gpu<'_>,
        decision: &Decision,
        clock: &mut StageClock,
    ) -> Result<RowOrder<'_>, SpmmError> {
        if self.order.is_none()
            && let Some(found) = order::of_host_matrix(device, self.a, &self.options, profile)?
        {
            clock.end("reorder on the GPU");
            return Ok(found);
        }
        let found = match (self.order, &self.options.reorder) {
            (Some(given), _) => RowOrder::named(Cow::Borrowed(given), "given".to_owned()),
            (None, Some(options)) => match reorder(self.a, options, &()) {
                Ok(found) => {
                    let name = order::name_of(options.method, found.kept_original);
                    RowOrder::named(Cow::Owned(found.permutation), name)
                }
                Err(Stopped::OutOfMemory(error)) => return Err(error.into()),
                // Nobody watches, so nobody cancels.
                Err(Stopped::Cancelled) => return Ok(RowOrder::own(String::new())),
            },
            (None, None) => {
                let (options, costs) = (&self.options, &profile.costs);
                let Some(weighing) = Weighing::of(facts, self.a.cols(), options, costs, decision.way) else {
                    return Ok(RowOrder::own(String::new()));
                };
                let found = order::automatic_of_host(device, self.a, &weighing, options, profile)?;
                clock.end("weigh orders");
                return Ok(found);
            }
        };
        clock.end("reorder");
        Ok(found)
    }
}

impl<A> SpmmBuilder<'_, A> {
    /// The options of the plan that serves in another precision.
    pub(super) fn served_by(&self, decision: &Decision) -> SpmmOptions {
        let Decision { algorithm, precision, .. } = *decision;
        SpmmOptions { algorithm, precision, ..self.options }
    }

    /// A plan that serves in another precision, as what was asked for.
    pub(super) fn serving(&self, mut plan: SpmmPlan, decision: Decision) -> SpmmPlan {
        plan.report.requested = self.options.algorithm;
        plan.report.requested_precision = self.options.precision;
        plan.report.reason = decision.why + &decision.untimed;
        plan.report.weighed = decision.weighed;
        plan
    }

    /// Whether orders that are given are of this matrix.
    pub(super) fn check_orders(&self, rows: usize, nnz: usize) -> Result<(), SpmmError> {
        let of_rows = ("the order of rows", self.order, rows, "one for each row");
        let of_values = ("the order of values", self.value_order, nnz, "one for each entry");
        for (array, order, expected, why) in [of_rows, of_values] {
            if let Some(found) = order.map(Permutation::len).filter(|&found| found != expected) {
                return Err(FormatError::LengthMismatch { array, found, expected, why }.into());
            }
        }
        Ok(())
    }

    /// A plan of parts that are laid out.
    pub(super) fn upload(
        &self,
        Subject { facts, cols, device, .. }: Subject<'_>,
        Ready { machine, decision, laid, order, model }: Ready<'_>,
        values: &dyn GivenValues,
        clock: &mut StageClock,
    ) -> Result<Made, SpmmError> {
        let SpmmOptions { precision, width, .. } = self.options;
        let element_bytes = precision.bytes() as usize;
        let product = ProductShape { rows: facts.rows, cols, width, element_bytes };
        let predicted_us = predict(model, &laid.facts, facts.empty_rows, product);
        let shape = plan_shape(&self.options, decision.way, facts.rows);
        let mut memory = self.account_gpu(&laid, shape, facts.nnz)?;
        memory.host_bytes = laid.host_bytes() + self.value_order.map_or(0, |order| 4 * wide(order.len()));

        let (mut plan, layout) = GpuPlan::upload(ArrayMemory::Own(device), values, laid, shape)?;
        if self.options.values_from_device {
            plan.make_places(facts.nnz, self.value_order.map(Permutation::new_to_old))?;
        }
        let n = demand(&self.options).n;
        let entries = plan.load(machine, Operation { n, vectors: true, column_major: false })?;
        clock.end("upload");
        let body = Body::Gpu(Box::new(plan));
        Ok(Made { body, decision, layout, order, predicted_us, entries, memory })
    }

    /// The plan with its report.
    pub(super) fn finish(
        &self,
        Subject { facts, cols, canonicalised, device }: Subject<'_>,
        made: Made,
        clock: StageClock,
    ) -> Result<SpmmPlan, SpmmError> {
        let report = SpmmReport::of(Described {
            facts,
            cols,
            canonicalised,
            options: &self.options,
            device,
            decision: made.decision,
            layout: made.layout,
            order: made.order,
            predicted_us: made.predicted_us,
            entries: made.entries,
            memory: made.memory,
            stages: clock.stages,
        });
        Ok(SpmmPlan {
            rows: facts.rows,
            cols,
            nnz: facts.nnz,
            width: self.options.width,
            precision: self.options.precision,
            device: device.clone(),
            body: made.body,
            value_order: match self.value_order {
                Some(order) => Some(try_copy(order.new_to_old(), "the order of values")?),
                None => None,
            },
            memory_limit: self.options.memory_limit,
            overflow_on_device: false,
            unread: None,
            report,
        })
    }

    /// What a plan on a GPU will allocate, unless that is beyond the limit.
    fn account_gpu(&self, laid: &LaidOut<'_>, shape: PlanShape, nnz: usize) -> Result<PlanMemory, SpmmError> {
        let (mut sizes, workspace) = GpuPlan::sizes(laid, shape);
        if self.options.values_from_device {
            let (value_bytes, reordered) = (self.options.precision.bytes(), self.value_order.is_some());
            let ArraySize { name, bytes } = laid.places_size(nnz, value_bytes, reordered);
            push(&mut sizes, name, bytes);
        }
        self.account(sizes, workspace)
    }

    /// The memory of arrays, unless they are beyond the limit.
    fn account(&self, arrays: Vec<ArraySize>, workspace_bytes: u64) -> Result<PlanMemory, SpmmError> {
        let device_bytes = check_memory(&arrays, self.options.memory_limit, MEMORY_REMEDY)?;
        Ok(PlanMemory { arrays, device_bytes, workspace_bytes, host_bytes: 0 })
    }
}

/// What a plan of so many rows is, beside its parts.
pub(super) fn plan_shape(options: &SpmmOptions, way: Way, rows: usize) -> PlanShape {
    let SpmmOptions { precision, determinism, width, .. } = *options;
    let capacity = narrow(width.clamp(way.least_capacity(), MOST_CAPACITY).next_multiple_of(8));
    PlanShape { precision, determinism, rows, capacity }
}

/// The time that a model predicts for each path, in microseconds.
fn predict(model: &CostModel, layout: &LayoutFacts, empty_rows: u64, product: ProductShape) -> [f64; 2] {
    // The model adds the windows of empty rows itself.
    let empty_windows = empty_rows.div_ceil(wide(WINDOW_ROWS));
    let mut parts = Density::default();
    parts.columns = layout.column_vectors;
    parts.steps = layout.steps.saturating_sub(empty_windows);
    parts.windows = layout.windows.saturating_sub(empty_windows);
    parts.residual_rows = layout.scalar_rows;
    parts.rows_in_both = layout.rows_in_both;
    parts.residual_entries = layout.scalar_entries;
    model.path_seconds(&parts, product).map(|seconds| seconds * 1e6)
}

/// The layout of the parts that were decided on.
fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    way: Way,
    clock: &mut StageClock,
) -> Result<LaidOut<'a>, SpmmError> {
    let laid = match way {
        Way::Tiles(rule) => tile_stream::lay_out(context, rule.unwrap_or(PartitionRule::AllTile), clock)?,
        Way::Groups(division) => segment_group::lay_out(context, division)?,
        Way::Path => merge_path::lay_out(context)?,
        Way::Matricized => matricized_rows::lay_out(context)?,
        Way::Panels => row_panels::lay_out(context, clock)?,
        Way::Rows | Way::Cpu(_) => row_split::lay_out(context)?,
    };
    clock.end("balance");
    match laid.facts.steps {
        steps if steps > tile_stream::MAX_STEPS => {
            Err(too_large("steps of two tiles", steps, tile_stream::MAX_STEPS))
        }
        _ => Ok(laid),
    }
}

/// What a plan is made of, and for which device.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) facts: &'a Facts,
    pub(super) cols: usize,
    pub(super) canonicalised: Canonicalised,
    pub(super) device: &'a Device,
}

/// A plan before its arrays are on the device.
pub(super) struct Ready<'a> {
    pub(super) machine: &'a dyn Machine,
    pub(super) decision: Decision,
    pub(super) laid: LaidOut<'a>,
    /// The order of the rows.
    pub(super) order: OrderName,
    /// What its parts cost.
    pub(super) model: &'a CostModel,
}

/// Where a plan is made that runs kernels, and what is known of the matrix and the device.
#[derive(Clone, Copy)]
pub(super) struct Gpu<'a> {
    pub(super) device: &'a Device,
    pub(super) machine: &'a dyn Machine,
    pub(super) profile: &'a Profile,
    pub(super) facts: &'a Facts,
}

/// The arrays of a plan on the CPU.
pub(crate) fn cpu_arrays(rows: usize, nnz: usize, precision: Precision) -> Vec<ArraySize> {
    let mut sizes = Vec::new();
    push(&mut sizes, "row_offsets", 8 * (wide(rows) + 1));
    push(&mut sizes, "col_indices", 4 * wide(nnz));
    push(&mut sizes, "values", u64::from(precision.dtype().sum_bytes()) * wide(nnz));
    sizes
}

/// A plan that was made, and what its report says.
pub(super) struct Made {
    body: Body,
    decision: Decision,
    layout: LayoutFacts,
    order: OrderName,
    predicted_us: [f64; 2],
    entries: Vec<&'static str>,
    memory: PlanMemory,
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use windrow_formats::Csr;

    use crate::{Algorithm, Device, EmulatorSchedule, Precision, Spmm};

    #[test]
    fn no_width_is_too_large_for_a_plan_to_think_about() {
        let (gpu, cpu) = (Device::emulator(EmulatorSchedule::InOrder), Device::cpu());
        let a = Csr::<f32>::identity(3).unwrap();
        for width in [usize::MAX, 1 << 63, 1 << 62, 1 << 32] {
            for precision in Precision::ALL {
                assert!(Spmm::builder(&a).width(width).precision(precision).build(&cpu).is_ok());
                for algorithm in Algorithm::ALL {
                    let builder = Spmm::builder(&a).width(width).precision(precision).algorithm(algorithm);
                    // What is not supported is an error; nothing overflows.
                    let built = builder.build(&gpu);
                    assert!(
                        built.is_ok() || algorithm != Algorithm::Auto,
                        "{width} in {precision}: {built:?}"
                    );
                }
            }
        }
    }
}
