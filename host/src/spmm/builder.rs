//! The setters of a plan's options.

use windrow_formats::Permutation;
use windrow_preprocess::partition::{CostModel, PartitionRule};
use windrow_preprocess::reorder;

use super::options::SpmmOptions;
use crate::device::Device;
use crate::options::{
    Algorithm, CpuTasks, Determinism, Precision, Preprocessing, RowDivision, TilePipeline, TileValues,
};
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::plan::Schedule;
use crate::profile::Profile;
use crate::tuned::Tuned;

/// Options of a plan for a [`Csr`](windrow_formats::Csr) or a [`DeviceCsr`](crate::DeviceCsr); made by
/// [`Spmm::builder`](super::Spmm::builder).
#[derive(Debug)]
pub struct SpmmBuilder<'a, A> {
    pub(super) a: &'a A,
    pub(super) options: SpmmOptions,
    /// The order of the rows, if one is given.
    pub(super) order: Option<&'a Permutation>,
    /// The order in which new values come, if it is not that of the entries.
    pub(super) value_order: Option<&'a Permutation>,
    /// What was measured on the device, if it is given.
    profile: Option<Profile>,
    /// What products cost, if that is not what the profile says.
    cost_model: Option<CostModel>,
    pub(super) tuned: Option<&'a Tuned>,
}

impl<A> Clone for SpmmBuilder<'_, A> {
    fn clone(&self) -> Self {
        self.for_matrix(self.a)
    }
}

impl<'a, A> SpmmBuilder<'a, A> {
    pub(super) fn new(a: &'a A) -> Self {
        Self {
            a,
            options: SpmmOptions::default(),
            order: None,
            value_order: None,
            profile: None,
            cost_model: None,
            tuned: None,
        }
    }

    /// The same options for another matrix.
    pub(super) fn for_matrix<'b, B>(&self, a: &'b B) -> SpmmBuilder<'b, B>
    where
        'a: 'b,
    {
        let Self { options, order, value_order, ref profile, cost_model, tuned, .. } = *self;
        SpmmBuilder { a, options, order, value_order, profile: profile.clone(), cost_model, tuned }
    }

    /// All options at once, instead of those set before. Orders that were given stay.
    #[must_use]
    pub fn options(mut self, options: SpmmOptions) -> Self {
        self.options = options;
        self
    }

    /// The options as they are set.
    #[must_use]
    pub fn current_options(&self) -> &SpmmOptions {
        &self.options
    }

    /// What was measured on `device`, as far as it is known.
    pub(super) fn profile_of(&self, device: &Device) -> Profile {
        let mut profile = Profile::given_or_built_in(self.profile.as_ref(), device);
        profile.costs.spmm = self.cost_model.unwrap_or(profile.costs.spmm);
        profile
    }

    /// The number of columns of `B` that most products will have, 128 unless told. A hint: it decides how work
    /// is dealt out and how wide the workspace is; products of any width can be run.
    #[must_use]
    pub fn width(mut self, n: usize) -> Self {
        self.options.width = n;
        self
    }

    /// The type that values and `B` are rounded to, [`Precision::F32`] unless told.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// The algorithm, [`Algorithm::Auto`] unless told.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// Device memory that the plan may take, in bytes, workspace included; `B` and `C` are the caller's. No
    /// limit unless told. The need is computed before anything is allocated. Where `A`, `B` and `C` together are more
    /// than there is, products are made [out of core](Self::build_out_of_core).
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// About how many products the plan will make, many unless told: for few, [`Algorithm::Auto`] takes what is soon
    /// made instead of what is quickest. CSR as it is for one product, of a matrix that is on the device a layout that
    /// kernels make; tiles for many, and panels of rows where as many products save more than it takes to make them.
    /// The report says what was weighed.
    ///
    /// For very many, tiles may have their rows in another order, found by kernels as for
    /// [`Method::MinHash`](reorder::Method::MinHash). One is made only if as many products could save more than it
    /// costs ([`OrderCosts`](crate::costs::OrderCosts)), windows of full column vectors taken for what it might gain;
    /// then the column vectors are counted, and it is left again unless the cost model predicts a quicker product.
    /// [`SpmmReport::order_reason`](super::SpmmReport::order_reason) has the numbers. With
    /// [`reorder`](Self::reorder) by [`Method::Identity`](reorder::Method::Identity) rows stay as they are; so they do
    /// under a [memory limit](Self::memory_limit), and where [preprocessing](Self::preprocessing) is the CPU's.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Algorithm, Csr, Device, Precision, Spmm};
    ///
    /// let a = Csr::<f32>::identity(4)?; // of a batch of which nothing is needed twice
    /// let plan = Spmm::builder(&a).precision(Precision::F16).expected_runs(1).build(&Device::best()?)?;
    /// assert_eq!(plan.report().algorithm, Algorithm::RowSplit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn expected_runs(mut self, runs: u64) -> Self {
        self.options.expected_runs = Some(runs);
        self
    }

    /// Whether, where predicted times decide for [`Algorithm::Auto`], plans of the two quickest are made and timed on
    /// the device, on operands of [`width`](Self::width) columns, and the quicker is kept; no unless told. It costs the
    /// second plan and some hundred products, of which none takes more than about 2 ms a batch, and waits for them;
    /// [`SpmmReport::reason`](super::SpmmReport::reason) has the times. Two builds may choose differently, and the
    /// paths differ in the last bits. One that is predicted to take twice as long is not tried, nor is any under a
    /// [memory limit](Self::memory_limit), with [expected runs](Self::expected_runs), or where there is no room for a
    /// second plan or the operands, nor what was [tuned](Self::tuned); the reason says so. The CPU has nothing to
    /// choose. Any other error of the two plans or of their products is one of the build.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Precision, Spmm};
    ///
    /// let a = Csr::<f32>::identity(1000)?;
    /// let builder = Spmm::builder(&a).precision(Precision::Tf32).width(16);
    /// let plan = builder.autotune(true).build(&Device::best()?)?;
    /// println!("{}", plan.report().reason);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn autotune(mut self, autotune: bool) -> Self {
        self.options.autotune = autotune;
        self
    }

    /// Whether two runs must give the same bits: [`Determinism::RunToRun`] unless told.
    #[must_use]
    pub fn determinism(mut self, determinism: Determinism) -> Self {
        self.options.determinism = determinism;
        self
    }

    /// How device memory holds the values of tiles: [`TileValues::Auto`] unless told. Plans without tiles
    /// disregard it; the report says which form was taken, and why.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Precision, Spmm, TileValues};
    ///
    /// let a = Csr::<f32>::identity(4)?;
    /// let builder = Spmm::builder(&a).precision(Precision::F16).width(1);
    /// let plan = builder.tile_values(TileValues::Packed).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0])?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tile_values(mut self, form: TileValues) -> Self {
        self.options.tile_values = form;
        self
    }

    /// How rows of `B` get to the Tensor Cores: [`TilePipeline::ThreeStages`] unless told, which is never left for
    /// another by itself. Plans without tiles disregard it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Precision, Spmm, TilePipeline};
    ///
    /// let a = Csr::<f32>::identity(4)?;
    /// let builder = Spmm::builder(&a).precision(Precision::F16).width(1);
    /// let plan = builder.tile_pipeline(TilePipeline::Registers).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0])?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tile_pipeline(mut self, pipeline: TilePipeline) -> Self {
        self.options.tile_pipeline = pipeline;
        self
    }

    /// Where the matrix is laid out in tiles or in panels of rows: [`Preprocessing::Auto`] unless told. Other plans,
    /// and plans for the CPU, are made on the CPU; the report says where, why, and how long each stage took.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceKind, Precision, Preprocessing, Spmm};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(4)?);
    /// let plan = Spmm::builder(&a).precision(Precision::F16).preprocessing(Preprocessing::Gpu).build(&device)?;
    /// let on_gpu = plan.report().preprocessing == Preprocessing::Gpu;
    /// assert_eq!(on_gpu, device.kind() == DeviceKind::Cuda);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn preprocessing(mut self, place: Preprocessing) -> Self {
        self.options.preprocessing = place;
        self
    }

    /// Works on the rows in the order that [`reorder`](crate::reorder) finds, so that neighbours share columns. Where
    /// the similarity order, or the one of min-wise hashing, gathers more than the matrix's own, its own is kept. `B`
    /// and `C` remain in the caller's order.
    ///
    /// Takes seconds for a matrix of millions of entries; an order that is kept can be given with
    /// [`order`](Self::order) instead. On a GPU kernels find the order of
    /// [`Method::MinHash`](reorder::Method::MinHash), where [`preprocessing`](Self::preprocessing) is done there. On
    /// the CPU rows are not reordered.
    #[must_use]
    pub fn reorder(mut self, options: reorder::Options) -> Self {
        self.options.reorder = Some(options);
        self.order = None;
        self
    }

    /// Works on the rows in this order: row `order.to_old(0)` first. `B` and `C` remain in the caller's order.
    #[must_use]
    pub fn order(mut self, order: &'a Permutation) -> Self {
        self.order = Some(order);
        self
    }

    /// Which rows, or which of their entries, [`Algorithm::Hybrid`] leaves to CUDA cores, instead of what the cost
    /// model prefers.
    ///
    /// With [`PartitionRule::ColumnVectors`] rows may have entries on both paths. Their sums are added up in f32; for
    /// an f16 `C` in memory of the plan's, which is the slower way. Such a plan allocates that memory, 272 bytes for
    /// each row of `C`, whatever type `C` will be of.
    #[must_use]
    pub fn partition(mut self, rule: PartitionRule) -> Self {
        self.options.partition = Some(rule);
        self
    }

    /// How [`Algorithm::SegmentGroup`] divides the work, instead of what it prefers for the matrix and the width. The
    /// CPU, which has one algorithm, disregards it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Algorithm, Csr, Device, Spmm};
    ///
    /// let a = Csr::<f32>::identity(4)?;
    /// let builder = Spmm::builder(&a).width(1).algorithm(Algorithm::SegmentGroup);
    /// let plan = builder.parallelism("{<1/8 row, 1 col>, 8}".parse()?).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0])?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn parallelism(mut self, point: AtomicParallelism) -> Self {
        self.options.parallelism = Some(point);
        self
    }

    /// The launch of [`Algorithm::SegmentGroup`], instead of what it prefers for the matrix and the width; with a given
    /// [point](Self::parallelism) [`GroupLaunch::default`] unless told.
    #[must_use]
    pub fn group_launch(mut self, launch: GroupLaunch) -> Self {
        self.options.group_launch = Some(launch);
        self
    }

    /// What the device was measured to do, for the choice of a partition and the predicted times; what the
    /// [profile](Self::profile) has unless told.
    #[must_use]
    pub fn cost_model(mut self, model: CostModel) -> Self {
        self.cost_model = Some(model);
        self
    }

    /// Whether the two parts of a hybrid run one after the other or beside each other: [`Schedule::Auto`] unless
    /// told. The report says what is done, and the occupancy ratios that decide.
    ///
    /// # Examples
    /// ```
    /// use windrow::partition::{PartitionRule, VectorThreshold};
    /// use windrow::{Algorithm, Csr, Device, Precision, Schedule, Spmm};
    ///
    /// let a = Csr::from_dense(2, 2, &[1.0f32, 2.0, 3.0, 0.0])?;
    /// let plan = Spmm::builder(&a)
    ///     .precision(Precision::F16)
    ///     .algorithm(Algorithm::Hybrid)
    ///     .partition(PartitionRule::ColumnVectors { threshold: VectorThreshold::try_new(0.25)? })
    ///     .schedule(Schedule::MultiStream)
    ///     .width(1)
    ///     .build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [21.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.options.schedule = schedule;
        self
    }

    /// What was measured on the device, for [`Schedule::Auto`] and all that is left to the plan; [`Profile::built_in`]
    /// unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }

    /// The order in which new values come: entry `e` of the matrix takes value `order.to_old(e)` of those given to
    /// [`replace_values`](super::SpmmPlan::replace_values) and
    /// [`replace_values_from`](super::SpmmPlan::replace_values_from). In the order of the entries unless told. The
    /// values that the matrix itself has are in their places.
    ///
    /// With the [`transpose_order`](windrow_formats::Csr::transpose_order) of `A` a plan for `Aᵀ` takes values in the
    /// order of `A`'s entries, as backward passes have them.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Spmm};
    ///
    /// let a = Csr::from_dense(2, 2, &[1.0f32, 2.0, 3.0, 0.0])?;
    /// let (transposed, order) = (a.transpose()?, a.transpose_order()?);
    /// let mut plan = Spmm::builder(&transposed).value_order(&order).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [31.0, 2.0]);
    /// plan.replace_values(&[5.0f32, 6.0, 7.0])?; // A = [5 6; 7 .]
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [75.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value_order(mut self, order: &'a Permutation) -> Self {
        self.value_order = Some(order);
        self
    }

    /// Makes what [`replace_values_from`](super::SpmmPlan::replace_values_from) needs with the plan, so that the memory
    /// limit counts it and the first replacement takes no longer than others: up to 4 bytes of device memory for each
    /// entry, or 8 where there are tiles and other entries.
    #[must_use]
    pub fn values_from_device(mut self) -> Self {
        self.options.values_from_device = true;
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
        self.options.cpu_tasks = Some(tasks);
        self
    }

    /// How [`Algorithm::RowSplit`] divides the work, instead of what it prefers for the matrix. The CPU disregards
    /// it, and so do plans without row segments.
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
        self.options.row_division = division;
        self
    }

    /// The number of warps that share a tile stream, instead of as many as the device holds: for tests of
    /// windows that are cut.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.options.workers = Some(workers);
        self
    }

    /// A warp for each window, whatever its length: for comparison with the tile stream.
    #[must_use]
    pub fn window_each(mut self) -> Self {
        self.options.window_each = true;
        self
    }
}
