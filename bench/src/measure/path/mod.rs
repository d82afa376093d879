//! The ways to a product that are compared. [`SweepPath::builder`] is the one place where a path becomes a plan's builder.

mod text;

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::reorder::{self, Method};
use windrow::{
    Algorithm, AtomicParallelism, Choice, CpuTasks, Csr, Determinism, GroupLaunch, Permutation, Precision,
    RowDivision, Schedule, Spmm, SpmmBuilder, TileValues,
};

/// An algorithm in a precision, and how a plan for it is made; written `row-split-f32`, with options behind it:
/// `hybrid-f16+rcm+fast`.
///
/// | option | meaning |
/// | --- | --- |
/// | `+reorder` | rows in the similarity order |
/// | `+rcm`, `+community`, `+degree` | rows in the order of that [`Method`] |
/// | `+fast` | [`Determinism::Fast`] |
/// | `+window-each` | a warp for each window instead of windows dealt out evenly |
/// | `+dense`, `+packed` | the values of tiles in that form ([`TileValues`]) instead of the plan's choice |
/// | `+sequential`, `+multi-stream` | the parts of a hybrid in that [`Schedule`] instead of the plan's choice |
/// | `+vectors`, `+vectors:2/8` | a hybrid divided by column vectors as Libra's are, with its threshold or that one |
/// | `+point:1/8row:4col:8` | segment groups divided as the point `{<1/8 row, 4 col>, 8}` says |
/// | `+launch:256:8:1/2` | their launch: threads of a block, columns of a tile or `-`, share of the workers |
/// | `+column-major` | a column-major `B` |
/// | `+rows:64:32:1` | how row-split divides the work: entries of a piece or `whole`, columns of a slice, whether several ways; `-` for what it prefers |
/// | `+tasks:8:64` | how the CPU deals the product out: ranges of rows a thread, columns of a tile or `-` |
///
/// # Examples
/// ```
/// use windrow_bench::measure::SweepPath;
///
/// let path: SweepPath = "auto-f16+fast+reorder".parse()?;
/// assert_eq!(path.to_string(), "auto-f16+reorder+fast");
/// # Ok::<(), windrow_bench::measure::BenchError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SweepPath {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The type of the values and of `B`.
    pub precision: Precision,
    /// The order of the rows, if not the matrix's own.
    pub order: Option<Method>,
    /// Whether two runs give the same bits.
    pub determinism: Determinism,
    /// Whether each window has a warp of its own.
    pub window_each: bool,
    /// How the values of tiles are held.
    pub tile_values: TileValues,
    /// The threshold of a hybrid that is divided by column vectors.
    pub vectors: Option<VectorThreshold>,
    /// How the parts of a hybrid follow each other.
    pub schedule: Schedule,
    /// How segment groups divide the work, and their launch.
    pub point: Option<AtomicParallelism>,
    /// See [`point`](Self::point).
    pub launch: Option<GroupLaunch>,
    /// How row-split divides the work.
    pub rows: RowDivision,
    /// How the CPU deals the product out.
    pub tasks: Option<CpuTasks>,
    /// Whether `B` is column-major.
    pub column_major: bool,
}

/// The schedules that a path may name.
pub(crate) const SCHEDULES: [Schedule; 2] = [Schedule::Sequential, Schedule::MultiStream];

impl SweepPath {
    /// What is measured unless told otherwise.
    pub const DEFAULT: [Self; 5] = [
        Self::new(Algorithm::RowSplit, Precision::F32),
        Self::new(Algorithm::RowSplit, Precision::F16),
        Self::new(Algorithm::TileStream, Precision::F16),
        Self::new(Algorithm::Hybrid, Precision::F16),
        Self::new(Algorithm::Auto, Precision::F16),
    ];

    /// An algorithm without options.
    #[must_use]
    pub const fn new(algorithm: Algorithm, precision: Precision) -> Self {
        Self {
            algorithm,
            precision,
            order: None,
            determinism: Determinism::RunToRun,
            window_each: false,
            tile_values: TileValues::Auto,
            vectors: None,
            schedule: Schedule::Auto,
            point: None,
            launch: None,
            column_major: false,
            rows: RowDivision { piece_entries: None, slice_columns: None, several_ways: None },
            tasks: None,
        }
    }

    /// Every path that has kernels, without options.
    pub fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.into_iter().flat_map(|algorithm| {
            Precision::ALL
                .into_iter()
                .filter(move |&precision| algorithm.supports(precision))
                .map(move |precision| Self::new(algorithm, precision))
        })
    }

    /// What [`reorder()`](reorder::reorder) is asked for, if the rows are reordered.
    #[must_use]
    pub fn reordering(&self) -> Option<reorder::Options> {
        self.order.map(|method| reorder::Options { method, ..reorder::Options::default() })
    }

    /// The builder of a plan for it; `order` is the one that [`order`](Self::order) names.
    #[must_use]
    pub fn builder<'a>(
        &self,
        csr: &'a Csr<f32>,
        width: usize,
        order: Option<&'a Permutation>,
    ) -> SpmmBuilder<'a, f32> {
        let builder = Spmm::builder(csr).width(width).precision(self.precision).algorithm(self.algorithm);
        let builder =
            builder.determinism(self.determinism).tile_values(self.tile_values).schedule(self.schedule);
        let builder = builder.row_division(self.rows);
        let builder = match self.tasks {
            Some(tasks) => builder.cpu_tasks(tasks),
            None => builder,
        };
        let builder = match self.launch {
            Some(launch) => builder.group_launch(launch),
            None => builder,
        };
        let builder = match self.point {
            Some(point) => builder.parallelism(point),
            None => builder,
        };
        let builder = if self.window_each { builder.window_each() } else { builder };
        let builder = match self.vectors {
            Some(threshold) => builder.partition(PartitionRule::ColumnVectors { threshold }),
            None => builder,
        };
        match order {
            Some(order) => builder.order(order),
            None => builder,
        }
    }

    /// The way of this path that plans can remember.
    #[must_use]
    pub fn choice(&self) -> Choice {
        Choice {
            order: self.order,
            parallelism: self.point,
            group_launch: self.launch,
            row_division: self.rows,
            tile_values: self.tile_values,
            cpu_tasks: self.tasks,
            ..Choice::of(self.algorithm)
        }
    }

    /// The path of a way that was remembered.
    #[must_use]
    pub fn of_choice(choice: &Choice, precision: Precision, determinism: Determinism) -> Self {
        Self {
            determinism,
            order: choice.order,
            point: choice.parallelism,
            launch: choice.group_launch,
            rows: choice.row_division,
            tile_values: choice.tile_values,
            tasks: choice.cpu_tasks,
            ..Self::new(choice.algorithm, precision)
        }
    }
}

#[cfg(test)]
mod tests;
