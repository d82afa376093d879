//! From a tensor and options to a plan of MTTKRP.

use windrow_formats::{Csf3, Value};

use super::host::HostMttkrp;
use super::options::MttkrpOptions;
use super::part::MttkrpLayout;
use super::plan::{Body, MttkrpPlan};
use super::point::default_point;
use super::report::MttkrpReport;
use super::slices::{Slices, level_dims};
use crate::device::Device;
use crate::element::{BySum, Element};
use crate::error::{PlanError, TensorError};
use crate::num::{index, narrow, wide};
use crate::options::{Algorithm, Determinism, Precision};
use crate::parallelism::{AtomicParallelism, GroupLaunch, IllegalPoint};
use crate::plan::{ArraySize, MAX_INDEX, StageClock, Values, check_memory, push};
use crate::profile::Profile;
use crate::spmm::{GpuPlan, LaidOut, LayoutFacts, Operation, PlanShape, described};
use crate::with_element;

/// Columns of a workspace, at least and at most; wider products run in blocks of columns.
const CAPACITY: (usize, usize) = (8, 4096);
/// What to do about a plan that needs more memory than it may take.
pub(super) const MEMORY_REMEDY: &str = "raise the limit, lower the width, or let a thread have more nonzeros";

/// Options of a plan; made by [`Mttkrp::builder`](super::Mttkrp::builder).
#[derive(Debug, Clone)]
pub struct MttkrpBuilder<'a, V> {
    a: &'a Csf3<V>,
    options: MttkrpOptions,
    /// What was measured on the device, if it is given.
    profile: Option<Profile>,
}

/// What a plan on a GPU is made of.
struct Given<'a, V> {
    device: &'a Device,
    point: AtomicParallelism,
    slices: &'a Slices,
    values: &'a Values<'a, V>,
}

impl<'a, V: Value> MttkrpBuilder<'a, V> {
    pub(super) fn new(a: &'a Csf3<V>) -> Self {
        Self { a, options: MttkrpOptions::default(), profile: None }
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: MttkrpOptions) -> Self {
        self.options = options;
        self
    }

    /// The number of columns that most products will have, 32 unless told. A hint: it decides how work is divided and
    /// how wide the workspace is; products of any width can be run.
    #[must_use]
    pub fn width(mut self, n: usize) -> Self {
        self.options.width = n;
        self
    }

    /// The type that values and factors are rounded to, [`Precision::F32`] unless told, or [`Precision::F16`].
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// Whether two runs must give the same bits: [`Determinism::RunToRun`] unless told.
    #[must_use]
    pub fn determinism(mut self, determinism: Determinism) -> Self {
        self.options.determinism = determinism;
        self
    }

    /// Device memory that the plan may take, in bytes, workspace included; factors and result are the caller's. No
    /// limit unless told. The need is computed before anything is allocated.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// How nonzeros are divided, instead of what suits their number and the width: a point `{<g nnz, c col>, r}`. The
    /// CPU, which has one algorithm, disregards it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, Mttkrp};
    ///
    /// let tensor = Coo3::from_entries([1, 1, 2], [([0, 0, 0], 2.0f32), ([0, 0, 1], 3.0)])?.to_csf([0, 1, 2])?;
    /// let builder = Mttkrp::builder(&tensor).width(1).parallelism("{<1 nnz, 1 col>, 2}".parse()?);
    /// assert_eq!(builder.build(&Device::best()?)?.run(&[10.0], &[1.0, 1.0])?, [50.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn parallelism(mut self, point: AtomicParallelism) -> Self {
        self.options.parallelism = Some(point);
        self
    }

    /// What the point leaves open; [`GroupLaunch::default`] unless told.
    #[must_use]
    pub fn group_launch(mut self, launch: GroupLaunch) -> Self {
        self.options.group_launch = launch;
        self
    }

    /// What was measured on the device, for the division of the nonzeros; [`Profile::built_in`] unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }

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
        let precision = self.options.precision;
        if !Algorithm::SegmentGroup.supports(precision) {
            return Err(TensorError::Unsupported { precision });
        }
        let threads = Profile::given_or_built_in(self.profile.as_ref(), device).costs.tensor_threads;
        let default = || default_point(self.a.nnz(), self.options.width, threads);
        let point = self.options.parallelism.map_or_else(default, Ok)?;
        if !point.is_nonzero_split() {
            return Err(IllegalPoint::RowsOfTensor { point }.into());
        }
        self.options.group_launch.check(point)?;
        let mut report = self.blank_report(device);
        let mut clock = StageClock::start();
        let values = Values::new(precision, self.a.values());
        let body = match device.machine() {
            None => {
                let mut sizes = Slices::sizes(self.a);
                let value_bytes = u64::from(precision.dtype().sum_bytes());
                push(&mut sizes, "values", value_bytes * wide(self.a.nnz()));
                self.account(&mut report, sizes, 0)?;
                let slices = Slices::new(self.a)?;
                clock.end("slices");
                let body = with_element!(precision, E => {
                    let host = HostMttkrp::new(slices, values.bits()?.numbers::<<E as Element>::Sum>()?);
                    debug_assert_eq!(host.bytes(), report.device_bytes, "what was accounted for");
                    BySum::new(host)
                });
                clock.end("copy");
                Body::Cpu(body)
            }
            Some(machine) => {
                let slices = Slices::new(self.a)?;
                clock.end("slices");
                let given = Given { device, point, slices: &slices, values: &values };
                let plan = self.build_gpu(given, &mut report, &mut clock)?;
                let n = narrow(self.options.width.min(index(MAX_INDEX)));
                let operation = Operation { n, vectors: true, column_major: false };
                report.entries = plan.load(machine, operation)?;
                Body::Gpu(Box::new(plan))
            }
        };
        report.stages = clock.stages;
        Ok(MttkrpPlan {
            dims: report.dims,
            nnz: self.a.nnz(),
            width: self.options.width,
            precision,
            device: device.clone(),
            body,
            memory_limit: self.options.memory_limit,
            report,
        })
    }

    fn build_gpu(
        &self,
        Given { device, point, slices, values }: Given<'_, V>,
        report: &mut MttkrpReport,
        clock: &mut StageClock,
    ) -> Result<GpuPlan, TensorError> {
        let remedy = "split the tensor by slices, or use the CPU";
        for (what, found) in [("entries", wide(self.a.nnz())), ("slices", wide(report.dims[0]))] {
            if found > MAX_INDEX {
                return Err(PlanError::TooLarge { what, found, limit: MAX_INDEX, remedy }.into());
            }
        }
        let (precision, determinism) = (self.options.precision, self.options.determinism);
        let launch = self.options.group_launch;
        let (layout, cut) = MttkrpLayout::new(slices, point, launch, determinism, precision.dtype())?;
        clock.end("balance");

        let (low, high) = CAPACITY;
        let capacity = narrow(self.options.width.clamp(low, high).next_multiple_of(8));
        report.parallelism = Some(described(point, self.options.group_launch));
        report.split_slices = wide(cut.rows.len());
        let laid = LaidOut::one(layout, cut, LayoutFacts::default());
        let shape = PlanShape { precision, determinism, rows: report.dims[0], capacity };
        let (sizes, workspace) = GpuPlan::sizes(&laid, shape);
        self.account(report, sizes, workspace)?;
        let (plan, _) = GpuPlan::upload(device, values, laid, shape)?;
        clock.end("upload");
        Ok(plan)
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

    fn blank_report(&self, device: &Device) -> MttkrpReport {
        let dims = level_dims(self.a);
        MttkrpReport {
            dims,
            mode_order: self.a.mode_order(),
            nnz: self.a.nnz(),
            fibers: self.a.fibers(),
            empty_slices: wide(dims[0] - self.a.roots()),
            width: self.options.width,
            precision: self.options.precision,
            device: device.to_string(),
            device_kind: device.kind(),
            determinism: self.options.determinism,
            parallelism: None,
            entries: Vec::new(),
            split_slices: 0,
            arrays: Vec::new(),
            device_bytes: 0,
            workspace_bytes: 0,
            stages: Vec::new(),
        }
    }
}
