//! Options of a plan.

use windrow_formats::{Csr, Permutation, Value};
use windrow_preprocess::partition::{CostModel, PartitionRule};
use windrow_preprocess::reorder;

use crate::options::{Algorithm, CpuTasks, Determinism, Precision, Preprocessing, RowDivision, TileValues};
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::schedule::{OccupancyRange, Schedule};
use crate::tuned::Tuned;

/// Width that a plan is made for, unless told otherwise.
const DEFAULT_WIDTH: usize = 128;
/// Options of a plan; made by [`Spmm::builder`](super::Spmm::builder).
#[derive(Debug, Clone)]
pub struct SpmmBuilder<'a, V> {
    pub(super) a: &'a Csr<V>,
    pub(super) width: usize,
    pub(super) precision: Precision,
    pub(super) algorithm: Algorithm,
    pub(super) memory_limit: Option<u64>,
    pub(super) preprocessing: Preprocessing,
    pub(super) determinism: Determinism,
    pub(super) tile_values: TileValues,
    pub(super) order: Order<'a>,
    pub(super) partition: Option<PartitionRule>,
    pub(super) cost_model: CostModel,
    pub(super) schedule: Schedule,
    pub(super) two_streams: Option<OccupancyRange>,
    pub(super) workers: Option<u32>,
    pub(super) window_each: bool,
    pub(super) value_order: Option<&'a Permutation>,
    pub(super) values_from_device: bool,
    pub(super) point: Option<AtomicParallelism>,
    pub(super) group_launch: Option<GroupLaunch>,
    pub(super) cpu_tasks: Option<CpuTasks>,
    pub(super) row_division: RowDivision,
    pub(super) tuned: Option<&'a Tuned>,
}

/// The order in which rows are worked on.
#[derive(Debug, Clone)]
pub(super) enum Order<'a> {
    AsGiven,
    Given(&'a Permutation),
    Found(reorder::Options),
}

impl<'a, V: Value> SpmmBuilder<'a, V> {
    pub(super) fn new(a: &'a Csr<V>) -> Self {
        Self {
            a,
            width: DEFAULT_WIDTH,
            precision: Precision::F32,
            algorithm: Algorithm::Auto,
            memory_limit: None,
            preprocessing: Preprocessing::Auto,
            determinism: Determinism::RunToRun,
            tile_values: TileValues::Auto,
            order: Order::AsGiven,
            partition: None,
            cost_model: CostModel::h200(),
            schedule: Schedule::Auto,
            two_streams: None,
            workers: None,
            window_each: false,
            value_order: None,
            values_from_device: false,
            point: None,
            group_launch: None,
            cpu_tasks: None,
            row_division: RowDivision::default(),
            tuned: None,
        }
    }

    /// The number of columns of `B` that most products will have, 128 unless told. A hint: it decides how work
    /// is dealt out and how wide the workspace is; products of any width can be run.
    #[must_use]
    pub fn width(mut self, n: usize) -> Self {
        self.width = n;
        self
    }

    /// The type that values and `B` are rounded to, [`Precision::F32`] unless told.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The algorithm, [`Algorithm::Auto`] unless told.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Device memory that the plan may take, in bytes, workspace included; `B` and `C` are the caller's. No
    /// limit unless told. The need is computed before anything is allocated.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Whether two runs must give the same bits: [`Determinism::RunToRun`] unless told.
    #[must_use]
    pub fn determinism(mut self, determinism: Determinism) -> Self {
        self.determinism = determinism;
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
        self.tile_values = form;
        self
    }

    /// Where the matrix is laid out in tiles: [`Preprocessing::Auto`] unless told. Other plans than those of tiles, and
    /// plans for the CPU, are made on the CPU; the report says where, why, and how long each stage took.
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
        self.preprocessing = place;
        self
    }

    /// Works on the rows in the order that [`reorder`](crate::reorder) finds, so that neighbours share columns. Where
    /// the similarity order gathers more than the matrix's own, its own is kept. `B` and `C` remain in the caller's
    /// order.
    ///
    /// Takes seconds for a matrix of millions of entries; an order that is kept can be given with
    /// [`order`](Self::order) instead. On the CPU rows are not reordered.
    #[must_use]
    pub fn reorder(mut self, options: reorder::Options) -> Self {
        self.order = Order::Found(options);
        self
    }

    /// Works on the rows in this order: row `order.to_old(0)` first. `B` and `C` remain in the caller's order.
    #[must_use]
    pub fn order(mut self, order: &'a Permutation) -> Self {
        self.order = Order::Given(order);
        self
    }

    /// Which rows, or which of their entries, [`Algorithm::Hybrid`] leaves to CUDA cores, instead of what the cost model
    /// prefers.
    ///
    /// With [`PartitionRule::ColumnVectors`] rows may have entries on both paths. Their sums are added up in f32; for an
    /// f16 `C` in memory of the plan's, which is the slower way. Such a plan allocates that memory, 272 bytes for each
    /// row of `C`, whatever type `C` will be of.
    #[must_use]
    pub fn partition(mut self, rule: PartitionRule) -> Self {
        self.partition = Some(rule);
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
        self.point = Some(point);
        self
    }

    /// The launch of [`Algorithm::SegmentGroup`], instead of what it prefers for the matrix and the width; with a given
    /// [point](Self::parallelism) [`GroupLaunch::default`] unless told.
    #[must_use]
    pub fn group_launch(mut self, launch: GroupLaunch) -> Self {
        self.group_launch = Some(launch);
        self
    }

    /// What the device was measured to do, for the choice of a partition and the predicted times; those of an
    /// H200 unless told.
    #[must_use]
    pub fn cost_model(mut self, model: CostModel) -> Self {
        self.cost_model = model;
        self
    }

    /// The number of warps that share a tile stream, instead of as many as the device holds: for tests of
    /// windows that are cut.
    #[doc(hidden)]
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = Some(workers);
        self
    }

    /// A warp for each window, whatever its length: for comparison with the tile stream.
    #[doc(hidden)]
    #[must_use]
    pub fn window_each(mut self) -> Self {
        self.window_each = true;
        self
    }
}
