//! From weights and options to a plan.

use windrow_formats::{Value, VectorNm};

use super::gpu::{GpuNm, Wanted};
use super::host::HostNm;
use super::options::{ActivationLayout, NmAlgorithm, NmOptions, NmPacking};
use super::placing::{DeviceValues, GivenBits};
use super::plan::{Body, NmSpmmPlan};
use super::report::NmReport;
use super::weights::DeviceVectorNm;
use crate::device::{Device, Runner, Stream};
use crate::error::NmError;
use crate::options::Precision;
use crate::plan::{On, StageClock, Values, check_device, check_memory};
use crate::profile::Profile;

/// Why there is no dense product on the CPU.
const NO_LIBRARY_ON_CPU: &str = "it multiplies on CUDA devices, and the plan is for the CPU";

/// Options of a plan; made by [`NmSpmm::builder`](super::NmSpmm::builder).
#[derive(Debug)]
pub struct NmSpmmBuilder<'a, W> {
    pub(super) weights: &'a W,
    pub(super) options: NmOptions,
    /// What was measured on the device, if it is given.
    profile: Option<Profile>,
}

impl<W> Clone for NmSpmmBuilder<'_, W> {
    fn clone(&self) -> Self {
        Self { weights: self.weights, options: self.options.clone(), profile: self.profile.clone() }
    }
}

impl<'a, W> NmSpmmBuilder<'a, W> {
    pub(super) fn new(weights: &'a W) -> Self {
        Self { weights, options: NmOptions::default(), profile: None }
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: NmOptions) -> Self {
        self.options = options;
        self
    }

    /// The rows of `A` that most products will have, 1024 unless told. A hint: products of any number can be
    /// run. But weights are laid out for one kernel. Those for up to 16 rows or so read the weights up to twice as fast
    /// as the others, and take several times as long for many rows: for decoding and for prompts make a plan each.
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

    /// The algorithm, [`NmAlgorithm::Auto`] unless told: the quickest of those that there are for the precision and the
    /// weights by a model, [sparse Tensor Cores](NmAlgorithm::SparseTensorCores) for 2:4 and 1:2 among them.
    #[must_use]
    pub fn algorithm(mut self, algorithm: NmAlgorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// Promises that activations are finite: no infinity and no NaN in `A`, rounded to the precision. Then
    /// [`NmAlgorithm::Auto`] may take kernels that multiply what was dropped by zero, which is as exact: sparse Tensor
    /// Cores for patterns that keep less than half of the rows, such as 12:32, 8:32, 1:4 and 2:8. Where the promise is
    /// broken, more elements of a row of `C` may be NaN than the weights tie to what is not finite. Not promised unless
    /// told; the CPU disregards it.
    #[must_use]
    pub fn finite_activations(mut self, finite: bool) -> Self {
        self.options.finite_activations = finite;
        self
    }

    /// Whether a dense product by cuBLAS may take the place of a sparse one on a GPU, whatever the algorithm: if it is
    /// quicker by a model with as many [`rows`](Self::rows), or with [`autotune`](Self::autotune) as tried; no unless
    /// told. Few weights are pruned so little, or products so small, that their zeros are worth multiplying, but the
    /// [report](NmReport::dense) of each plan says what a dense product would take.
    ///
    /// The weights are laid out densely then, zeros where nothing is kept: `k·n` elements of the precision, rows padded
    /// to a multiple of 64. The plan has 32 MiB for cuBLAS beside that (8 MiB below compute capability 9.0) and
    /// `4·m·n` bytes for sums, which another launch finishes where there is a bias, an activation, a gate or a type of
    /// `C` that cuBLAS does not write. New values on the device ([`replace_values_on`]) take 4 bytes for each row and
    /// vector, or part of it that a multiple of its length has in common with 64 columns.
    ///
    /// What is not finite in `A` then makes its whole row of `C` not a number, as in a dense product: also where its
    /// row of the weights was dropped, for 0·∞ is none. Who asks for this accepts that, and need not promise
    /// [finite activations](Self::finite_activations).
    ///
    /// cuBLAS, of CUDA 12 or later, is loaded when the first such plan is made. Where it is not, on the emulator and on
    /// the CPU the product is sparse, and [`NmReport::dense_refused`] says why. Where a [`kernel`](Self::kernel) is
    /// asked for, it runs.
    ///
    /// [`replace_values_on`]: super::NmSpmmPlan::replace_values_on
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, NmAlgorithm, NmPattern, NmSpmm, Precision, VectorNm};
    ///
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 4, 1, NmPattern::new(1, 2, 1)?)?;
    /// let builder = NmSpmm::builder(&weights).precision(Precision::F16).dense_fallback(true);
    /// let plan = builder.build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0])?, [14.0]);
    /// let report = plan.report();
    /// assert!(report.algorithm == NmAlgorithm::Dense || report.dense_refused.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dense_fallback(mut self, allowed: bool) -> Self {
        self.options.dense_fallback = allowed;
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
    /// the copy that kernels read of an `A` that is row-major, tf32, or 16-bit on CUDA cores; on sparse Tensor Cores
    /// of one that is k-major, or whose rows are no multiple of 16 bytes. Any other `A`
    /// is taken to have rows aligned to 16 bytes. What runs of more rows, or of an `A` that is not aligned,
    /// need beyond that is taken then. The kept rows are divided along `k` only where the limit leaves memory for
    /// sums of the parts.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    fn check_support(&self) -> Result<(), NmError> {
        let (algorithm, precision) = (self.options.algorithm, self.options.precision);
        match algorithm.supports(precision) {
            true => Ok(()),
            false => Err(NmError::Unsupported { algorithm, precision }),
        }
    }

    /// The plan's side on the CPU, of weights with these values.
    fn on_cpu<T: Sync>(
        &self,
        weights: &VectorNm<T>,
        values: &Values<'_, impl Value>,
        report: &mut NmReport,
    ) -> Result<Body, NmError> {
        if self.options.algorithm == NmAlgorithm::Dense {
            return Err(NmError::NoLibrary { reason: NO_LIBRARY_ON_CPU.to_owned() });
        }
        if self.options.dense_fallback {
            report.dense_refused = Some(NO_LIBRARY_ON_CPU.to_owned());
        }
        report.algorithm = NmAlgorithm::Auto;
        report.packing = NmPacking::Auto;
        report.reason = "the CPU has one algorithm, rows of A in the lanes of vectors".to_owned();
        report.arrays = HostNm::sizes(weights);
        report.device_bytes =
            check_memory(&report.arrays, self.options.memory_limit, "raise the limit, or prune more")?;
        let numbers = values.bits()?.numbers::<f32>()?;
        let (precision, layout) = (self.options.precision, self.options.layout);
        Ok(Body::Cpu(HostNm::new(weights, &numbers, precision, layout)?))
    }

    /// The plan's side on a machine that runs kernels.
    fn on_gpu<T: Sync>(
        &self,
        weights: &VectorNm<T>,
        values: GivenBits<'_>,
        runner: Runner<'_>,
        (report, clock): (&mut NmReport, &mut StageClock),
    ) -> Result<Body, NmError> {
        let profile = Profile::given_or_built_in(self.profile.as_ref(), runner.device);
        let wanted = Wanted { weights, values, options: &self.options, costs: &profile.costs };
        Ok(Body::Gpu(Box::new(GpuNm::build(wanted, runner, report, clock)?)))
    }

    fn finish<T>(&self, weights: &VectorNm<T>, device: &Device, body: Body, report: NmReport) -> NmSpmmPlan {
        NmSpmmPlan {
            inner: weights.rows(),
            cols: weights.cols(),
            pattern: weights.pattern(),
            precision: self.options.precision,
            layout: self.options.layout,
            scale: self.options.scale,
            device: device.clone(),
            body,
            places: None,
            memory_limit: self.options.memory_limit,
            report,
        }
    }

    fn blank_report<T>(&self, weights: &VectorNm<T>, device: &Device) -> NmReport {
        let pattern = weights.pattern();
        NmReport {
            rows: self.options.rows,
            inner: weights.rows(),
            cols: weights.cols(),
            pattern_n: pattern.n(),
            pattern_m: pattern.m(),
            pattern_l: pattern.l(),
            kept_rows: weights.kept_rows(),
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
            copied: "nothing".to_owned(),
            block: None,
            dense: None,
            dense_refused: None,
            tuned: Vec::new(),
            entries: Vec::new(),
            arrays: Vec::new(),
            device_bytes: 0,
            stages: Vec::new(),
        }
    }
}

impl<V: Value> NmSpmmBuilder<'_, VectorNm<V>> {
    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in the weights that are kept; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`NmError::Unsupported`] for an algorithm without kernels for the precision;
    /// - [`NmError::NoTensorCores`] if Tensor Cores were asked for, and have no kernel for the weights;
    /// - [`NmError::NoLibrary`] if a [dense product](NmAlgorithm::Dense) was asked for, and cuBLAS is not there;
    /// - [`NmError::NoKernel`] for a [`kernel`](Self::kernel) that there is not, or not for these
    ///   weights;
    /// - [`PlanError::TooLarge`](crate::PlanError::TooLarge) for weights that the kernels cannot index;
    /// - [`PlanError::MemoryLimit`](crate::PlanError::MemoryLimit) if the plan needs more than the limit;
    /// - [`PlanError::Device`](crate::PlanError::Device) if the device refuses.
    pub fn build(&self, device: &Device) -> Result<NmSpmmPlan, NmError> {
        self.check_support()?;
        let mut clock = StageClock::start();
        let values = Values::new(self.options.precision, self.weights.values());
        let mut report = self.blank_report(self.weights, device);
        report.overflowed_values = values.exceptions.overflowed;
        let body = match device.runner() {
            None => {
                let body = self.on_cpu(self.weights, &values, &mut report)?;
                clock.end("layout");
                body
            }
            Some(runner) => {
                let given = GivenBits::OnHost(values.bits()?);
                self.on_gpu(self.weights, given, runner, (&mut report, &mut clock))?
            }
        };
        report.stages = clock.stages;
        Ok(self.finish(self.weights, device, body, report))
    }
}

impl<V: Value> NmSpmmBuilder<'_, DeviceVectorNm<'_, V>> {
    /// Makes the plan of weights that are on a device, in the order of a stream: after what that was asked for so far.
    /// What that is asked for later comes after all reading of the weights' arrays, which may then be written or freed.
    /// The plan may be run on any stream.
    ///
    /// The indices, a byte for each vector that is kept, are copied to the host, which checks them and finds out where
    /// each value belongs; the values stay where they are, and a kernel rounds them and puts them there: the arrays are
    /// those of a plan of the same weights on the host, bit for bit. f64 values are copied to the host, too.
    /// [`NmReport::copied`] says what was.
    ///
    /// # Cost
    /// That of [`build`](NmSpmmBuilder::build) for the indices. Such a plan holds beside its weights what
    /// [`replace_values_on`](NmSpmmPlan::replace_values_on) needs: 4 bytes for each kept row and strip of 8 to 64
    /// columns of the kernel, which is at most an eighth of f32 weights.
    ///
    /// # Errors
    /// - those of [`build`](NmSpmmBuilder::build) and of [`DeviceVectorNm::checked`];
    /// - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device,
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) for one that is captured into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceBuffer, DeviceVectorNm, NmPattern, NmSpmm};
    ///
    /// let device = Device::best()?;
    /// let values = DeviceBuffer::from_slice(&device, &[2.0f32, 3.0])?;
    /// let indices = DeviceBuffer::from_slice(&device, &[0u8, 1])?;
    /// let weights = DeviceVectorNm::new(4, 1, NmPattern::new(1, 2, 1)?, &values, &indices)?;
    /// let mut plan = NmSpmm::builder(&weights).build_on(&device.stream())?;
    /// assert_eq!(plan.run(&[1.0, 0.0, 0.0, 10.0])?, [32.0]);
    ///
    /// let new = DeviceBuffer::from_slice(&device, &[5.0f32, 7.0])?;
    /// plan.replace_values_on(&device.stream(), &new)?;
    /// assert_eq!(plan.run(&[1.0, 0.0, 0.0, 10.0])?, [75.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_on(&self, on: &Stream) -> Result<NmSpmmPlan, NmError> {
        self.check_support()?;
        let device = self.weights.device();
        check_device("the stream", on.device(), device)?;
        let mut clock = StageClock::start();
        let places = self.weights.places(on)?;
        clock.end("indices");
        let mut report = self.blank_report(&places, device);
        let precision = self.options.precision;
        let given = self.weights.values();
        let body = match device.runner() {
            None => {
                report.copied = "all: the plan runs on the CPU".to_owned();
                let given = given.host().unwrap_or_default();
                let values = Values::new(precision, given);
                report.overflowed_values = values.exceptions.overflowed;
                let body = self.on_cpu(&places, &values, &mut report)?;
                clock.end("layout");
                body
            }
            Some(runner) => match DeviceValues::packed(&given, places.cols(), precision) {
                None => {
                    report.copied = "all: kernels do not read values of this type".to_owned();
                    let copy = given.to_host()?;
                    let values = Values::new(precision, &copy);
                    report.overflowed_values = values.exceptions.overflowed;
                    let bits = GivenBits::OnHost(values.bits()?);
                    self.on_gpu(&places, bits, runner, (&mut report, &mut clock))?
                }
                Some(values) => {
                    report.copied = format!("the indices, {} bytes", places.indices().len());
                    let on = On::of(on, device, false)?;
                    on.before_own()?;
                    let bits = GivenBits::OnDevice(values, precision.dtype());
                    let body = self.on_gpu(&places, bits, runner, (&mut report, &mut clock))?;
                    if let Body::Gpu(plan) = &body {
                        report.overflowed_values = plan.overflowed()?.unwrap_or(0);
                    }
                    on.after_own()?;
                    body
                }
            },
        };
        report.stages = clock.stages;
        let plan = self.finish(&places, device, body, report);
        Ok(NmSpmmPlan { places: Some(places), ..plan })
    }
}
