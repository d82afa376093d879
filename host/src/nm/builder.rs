//! From weights and options to a plan.

use windrow_formats::{Value, VectorNm};

use super::gpu::{GpuNm, Wanted};
use super::host::HostNm;
use super::options::{ActivationLayout, NmAlgorithm, NmOptions, NmPacking};
use super::plan::{Body, NmSpmmPlan};
use super::report::NmReport;
use crate::device::Device;
use crate::error::NmError;
use crate::options::Precision;
use crate::plan::{StageClock, Values, check_memory};
use crate::profile::Profile;

/// Options of a plan; made by [`NmSpmm::builder`](super::NmSpmm::builder).
#[derive(Debug, Clone)]
pub struct NmSpmmBuilder<'a, V> {
    pub(super) weights: &'a VectorNm<V>,
    pub(super) options: NmOptions,
    /// What was measured on the device, if it is given.
    profile: Option<Profile>,
}

impl<'a, V: Value> NmSpmmBuilder<'a, V> {
    pub(super) fn new(weights: &'a VectorNm<V>) -> Self {
        Self { weights, options: NmOptions::default(), profile: None }
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: NmOptions) -> Self {
        self.options = options;
        self
    }

    /// The rows of `A` that most products will have, 1024 unless told. A hint: products of any number can be
    /// run.
    #[must_use]
    pub fn rows(mut self, m: usize) -> Self {
        self.options.rows = m;
        self
    }

    /// The type that `A` and the weights are rounded to, [`Precision::F32`] unless told.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// How `A` is stored, [`ActivationLayout::RowMajor`] unless told.
    #[must_use]
    pub fn layout(mut self, layout: ActivationLayout) -> Self {
        self.options.layout = layout;
        self
    }

    /// A factor of every product, 1 unless told. `M/N` makes up for what was dropped, as equation 1 of the
    /// paper does: the product then estimates that with weights that were not pruned, if what was dropped is
    /// like what was kept.
    #[must_use]
    pub fn scale(mut self, scale: f32) -> Self {
        self.options.scale = scale;
        self
    }

    /// The algorithm, [`NmAlgorithm::Auto`] unless told.
    #[must_use]
    pub fn algorithm(mut self, algorithm: NmAlgorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// Whether columns of `A` are packed on their way to shared memory, [`NmPacking::Auto`] unless told. The
    /// CPU disregards it.
    #[must_use]
    pub fn packing(mut self, packing: NmPacking) -> Self {
        self.options.packing = packing;
        self
    }

    /// Whether the choice of the kernel is checked by running a few on the device, with as many
    /// [`rows`](Self::rows); no unless told. The CPU has nothing to choose.
    #[must_use]
    pub fn autotune(mut self, autotune: bool) -> Self {
        self.options.autotune = autotune;
        self
    }

    /// What was measured on the device, for the choice of the kernel; [`Profile::built_in`] unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }

    /// One entry point of the kernels by its name, such as `nm_f32_64x128`; the model chooses unless told.
    /// For measurements; the CPU disregards it.
    ///
    /// The steps of NM-SpMM's ablation are `nm_f32_64x128_single`, its blocking alone with
    /// [`NmPacking::Plain`], with packing [`NmPacking::Packed`]; and `nm_f32_64x128`, which also brings a
    /// stage while another is multiplied.
    #[must_use]
    pub fn kernel(mut self, entry: &str) -> Self {
        self.options.kernel = Some(entry.to_owned());
        self
    }

    /// Device memory that the plan may take, in bytes; `A`, `C` and the bias are the caller's. No limit
    /// unless told. The need is computed before anything is allocated, for [`rows`](Self::rows) rows, with
    /// the copy that kernels read of an `A` that is row-major, tf32, or 16-bit on CUDA cores. Any other `A`
    /// is taken to have rows aligned to 16 bytes. What runs of more rows, or of an `A` that is not aligned,
    /// need beyond that is taken then. The kept rows are divided along `k` only where the limit leaves memory for
    /// sums of the parts.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in the weights that are kept; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`NmError::Unsupported`] for an algorithm without kernels for the precision;
    /// - [`NmError::NoTensorCores`] if Tensor Cores were asked for, and have no kernel for the weights;
    /// - [`NmError::NoKernel`] for a [`kernel`](Self::kernel) that there is not, or not for these
    ///   weights;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge) for weights that the kernels cannot index;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if the plan needs more than the limit;
    /// - [`PlanError::Device`](crate::PlanError::Device) if the device refuses.
    pub fn build(&self, device: &Device) -> Result<NmSpmmPlan, NmError> {
        if !self.options.algorithm.supports(self.options.precision) {
            let (algorithm, precision) = (self.options.algorithm, self.options.precision);
            return Err(NmError::Unsupported { algorithm, precision });
        }
        let mut clock = StageClock::start();
        let values = Values::new(self.options.precision, self.weights.values());
        let mut report = self.blank_report(device);
        report.overflowed_values = values.exceptions.overflowed;
        let body = match device.runner() {
            None => {
                report.algorithm = NmAlgorithm::Auto;
                report.packing = NmPacking::Auto;
                report.reason = "the CPU has one algorithm, rows of A in the lanes of vectors".to_owned();
                report.arrays = HostNm::sizes(self.weights);
                report.device_bytes = check_memory(
                    &report.arrays,
                    self.options.memory_limit,
                    "raise the limit, or prune more",
                )?;
                let host = HostNm::new(
                    self.weights,
                    &values.bits()?.numbers::<f32>()?,
                    self.options.precision,
                    self.options.layout,
                )?;
                clock.end("layout");
                Body::Cpu(host)
            }
            Some(runner) => {
                let profile = Profile::given_or_built_in(self.profile.as_ref(), device);
                let wanted = Wanted { weights: self.weights, options: &self.options, costs: &profile.costs };
                Body::Gpu(Box::new(GpuNm::build(wanted, runner, &mut report, &mut clock)?))
            }
        };
        report.stages = clock.stages;
        Ok(NmSpmmPlan {
            inner: self.weights.rows(),
            cols: self.weights.cols(),
            pattern: self.weights.pattern(),
            precision: self.options.precision,
            layout: self.options.layout,
            scale: self.options.scale,
            device: device.clone(),
            body,
            memory_limit: self.options.memory_limit,
            report,
        })
    }

    fn blank_report(&self, device: &Device) -> NmReport {
        let pattern = self.weights.pattern();
        NmReport {
            rows: self.options.rows,
            inner: self.weights.rows(),
            cols: self.weights.cols(),
            pattern_n: pattern.n(),
            pattern_m: pattern.m(),
            pattern_l: pattern.l(),
            kept_rows: self.weights.kept_rows(),
            overflowed_values: 0,
            precision: self.options.precision,
            layout: self.options.layout,
            scale: self.options.scale,
            device: device.to_string(),
            device_kind: device.kind(),
            requested: self.options.algorithm,
            algorithm: self.options.algorithm,
            reason: "as asked".to_owned(),
            packing: self.options.packing,
            packing_reason: "as asked".to_owned(),
            tile: None,
            tuned: Vec::new(),
            entries: Vec::new(),
            arrays: Vec::new(),
            device_bytes: 0,
            stages: Vec::new(),
        }
    }
}
