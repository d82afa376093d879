//! From a tensor in host memory and options to a plan of MTTKRP, and what plans of all tensors have in common.

use windrow_formats::{Csf3, Value};

use super::builder::MttkrpBuilder;
use super::host::HostMttkrp;
use super::part::MttkrpLayout;
use super::plan::{Body, MttkrpPlan};
use super::point::default_point;
use super::report::MttkrpReport;
use super::slices::{Slices, TensorFacts};
use crate::device::{ArrayMemory, Device, Machine};
use crate::element::{BySum, Element};
use crate::error::{PlanError, TensorError};
use crate::num::{index, narrow, wide};
use crate::options::{Algorithm, Preprocessing};
use crate::parallelism::{AtomicParallelism, IllegalPoint};
use crate::plan::{ArraySize, GivenValues, MAX_INDEX, StageClock, Values, check_memory, push};
use crate::spmm::{CutRows, GpuPlan, LaidOut, LayoutFacts, Operation, PlanShape, described};
use crate::with_element;

/// Columns of a workspace, at least and at most; wider products run in blocks of columns.
const CAPACITY: (usize, usize) = (8, 4096);
/// What to do about a plan that needs more memory than it may take.
pub(super) const MEMORY_REMEDY: &str = "raise the limit, lower the width, or let a thread have more nonzeros";

impl<V: Value> MttkrpBuilder<'_, Csf3<V>> {
    /// Makes the plan: checks, divides and uploads.
    ///
    /// # Cost
    /// Linear in entries and slices; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`TensorError::Unsupported`] for a precision without kernels;
    /// - [`TensorError::IllegalPoint`] for a point that divides rows, or a launch that there is not;
    /// - [`PlanError::TooLarge`] for a GPU plan with about 2³² entries or slices;
    /// - [`PlanError::MemoryLimit`] if the plan needs more than the limit;
    /// - [`PlanError::Device`] if the device refuses.
    pub fn build(&self, device: &Device) -> Result<MttkrpPlan, TensorError> {
        let (facts, precision) = (TensorFacts::of(self.a), self.options.precision);
        let point = self.point(facts.nnz, device)?;
        let mut report = self.blank_report(device, facts);
        let mut clock = StageClock::start();
        let values = Values::new(precision, self.a.values());
        let Some(machine) = device.machine() else {
            report.preprocessing_reason = "the plan runs there".to_owned();
            let mut sizes = Slices::sizes(self.a);
            let value_bytes = u64::from(precision.dtype().sum_bytes());
            push(&mut sizes, "values", value_bytes * wide(facts.nnz));
            self.account(&mut report, sizes, 0)?;
            let slices = Slices::new(self.a)?;
            clock.end("slices");
            let body = with_element!(precision, E => {
                let host = HostMttkrp::new(slices, values.bits()?.numbers::<<E as Element>::Sum>()?);
                debug_assert_eq!(host.bytes(), report.device_bytes, "what was accounted for");
                BySum::new(host)
            });
            clock.end("copy");
            return Ok(self.plan(device, Body::Cpu(body), report, clock));
        };
        let slices = Slices::new(self.a)?;
        clock.end("slices");
        let remedy = "split the tensor by slices, or use the CPU";
        for (what, found) in [("entries", wide(facts.nnz)), ("slices", wide(facts.dims[0]))] {
            if found > MAX_INDEX {
                return Err(PlanError::TooLarge { what, found, limit: MAX_INDEX, remedy }.into());
            }
        }
        let (launch, determinism) = (self.options.group_launch, self.options.determinism);
        let laid = MttkrpLayout::new(&slices, point, launch, determinism, precision.dtype())?;
        clock.end("balance");
        report.parallelism = Some(described(point, launch));
        self.finish((device, machine), laid, &values, (report, clock))
    }
}

impl<A> MttkrpBuilder<'_, A> {
    /// The point that divides as many entries, if these are options for which there is a plan.
    pub(super) fn point(&self, nnz: usize, device: &Device) -> Result<AtomicParallelism, TensorError> {
        let precision = self.options.precision;
        if !Algorithm::SegmentGroup.supports(precision) {
            return Err(TensorError::Unsupported { precision });
        }
        let threads = self.profile_of(device).costs.tensor_threads;
        let default = || default_point(nnz, self.options.width, threads);
        let point = self.options.parallelism.map_or_else(default, Ok)?;
        if !point.is_nonzero_split() {
            return Err(IllegalPoint::RowsOfTensor { point }.into());
        }
        self.options.group_launch.check(point)?;
        Ok(point)
    }

    /// Accounts for what was laid out, and uploads what is not there yet.
    pub(super) fn finish(
        &self,
        (device, machine): (&Device, &dyn Machine),
        (layout, cut): (MttkrpLayout, CutRows),
        values: &dyn GivenValues,
        (mut report, mut clock): (MttkrpReport, StageClock),
    ) -> Result<MttkrpPlan, TensorError> {
        let (precision, determinism) = (self.options.precision, self.options.determinism);
        let (low, high) = CAPACITY;
        let capacity = narrow(self.options.width.clamp(low, high).next_multiple_of(8));
        report.split_slices = cut.row_count();
        let laid = LaidOut::one(layout, cut, LayoutFacts::default());
        let shape = PlanShape { precision, determinism, rows: report.dims[0], capacity };
        let (sizes, workspace) = GpuPlan::sizes(&laid, shape);
        self.account(&mut report, sizes, workspace)?;
        let (plan, _) = GpuPlan::upload(ArrayMemory::Own(device), values, laid, shape)?;
        clock.end("upload");
        let n = narrow(self.options.width.min(index(MAX_INDEX)));
        report.entries = plan.load(machine, Operation { n, vectors: true, column_major: false })?;
        Ok(self.plan(device, Body::Gpu(Box::new(plan)), report, clock))
    }

    fn plan(&self, device: &Device, body: Body, report: MttkrpReport, clock: StageClock) -> MttkrpPlan {
        MttkrpPlan {
            dims: report.dims,
            nnz: report.nnz,
            width: self.options.width,
            precision: self.options.precision,
            device: device.clone(),
            body,
            memory_limit: self.options.memory_limit,
            report: MttkrpReport { stages: clock.stages, ..report },
        }
    }

    /// Notes what the plan will allocate, and refuses to go beyond the limit.
    fn account(
        &self,
        report: &mut MttkrpReport,
        sizes: Vec<ArraySize>,
        workspace: u64,
    ) -> Result<(), TensorError> {
        report.device_bytes = check_memory(&sizes, self.options.memory_limit, MEMORY_REMEDY)?;
        report.workspace_bytes = workspace;
        report.arrays = sizes;
        Ok(())
    }

    pub(super) fn blank_report(&self, device: &Device, facts: TensorFacts) -> MttkrpReport {
        let TensorFacts { dims, mode_order, nnz, fibers, empty_slices } = facts;
        MttkrpReport {
            dims,
            mode_order,
            nnz,
            fibers,
            empty_slices,
            width: self.options.width,
            precision: self.options.precision,
            device: device.to_string(),
            device_kind: device.kind(),
            determinism: self.options.determinism,
            parallelism: None,
            entries: Vec::new(),
            preprocessing: Preprocessing::Cpu,
            preprocessing_reason: "the tensor is there".to_owned(),
            split_slices: 0,
            arrays: Vec::new(),
            device_bytes: 0,
            workspace_bytes: 0,
            stages: Vec::new(),
        }
    }
}
