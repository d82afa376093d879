//! What a caller chooses: precision, algorithm, and the rates for an estimate.

use std::fmt;

use windrow_formats::names;
use windrow_kernels::Dtype;

/// Type in which the values of `A` and `B` are stored and multiplied; sums are f32, for f64 they are f64.
///
/// A `match` may name every one: code that forgets a new one shall not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE binary16: half the bytes to move, and Tensor Cores. Values are rounded to nearest, to 11
    /// significant bits; magnitudes above 65504 become infinite.
    F16,
    /// The upper half of an f32 (`bfloat16`): the bytes of f16 with the range of f32, so that what is finite stays
    /// finite, but for the last 0.2 % below f32's largest. Values are rounded to nearest, to 8 significant bits.
    Bf16,
    /// IEEE binary32, on CUDA cores.
    F32,
    /// f32 in memory, multiplied as TF32: values and `B` are rounded to nearest, ties away from zero, to 11
    /// significant bits with the range of f32. `B` is an f32 matrix and is rounded when it is used. Where the algorithm
    /// is left to the plan, f32 may serve, which rounds nothing, if it is predicted to be quicker.
    Tf32,
    /// IEEE binary64, on CUDA cores, summed in f64: for scientific computing. Products with N:M weights do not have it.
    F64,
}

impl Precision {
    /// Every precision, f64 last: products with N:M weights do not have that.
    pub const ALL: [Self; 5] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16, Self::F64];

    pub(crate) const fn dtype(self) -> Dtype {
        match self {
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
            Self::F32 => Dtype::F32,
            Self::Tf32 => Dtype::Tf32,
            Self::F64 => Dtype::F64,
        }
    }

    /// Name of the type that `B` is stored in.
    #[must_use]
    pub const fn element(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 | Self::Tf32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Whether there are Tensor Core kernels for it.
    pub(crate) const fn has_tile_kernels(self) -> bool {
        !matches!(self, Self::F32 | Self::F64)
    }

    /// Size of one value in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.dtype().bytes()
    }
}

names!(Precision, "precision";
    F32 => "f32", Tf32 => "tf32", F16 => "f16", Bf16 => "bf16", F64 => "f64");

/// How the product is computed on a GPU. The CPU has one algorithm, whatever is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Algorithm {
    /// Chosen from the matrix, the width and the precision, by predicted times where paths were measured; the report
    /// says why. A plan of tf32 may then be one of f32: [`SpmmPlan::precision`](crate::SpmmPlan::precision).
    Auto,
    /// CUDA cores over CSR, long rows cut into segments. Any precision.
    RowSplit,
    /// CUDA cores over rows grouped by length, without a row pointer: the residual part of RS-Tile, holding
    /// every row. For matrices of short rows; long rows are not cut. Any precision.
    ShortRows,
    /// CUDA cores over CSR, divided as a point of Sgap's space says ([`AtomicParallelism`](crate::AtomicParallelism)):
    /// for narrow `B`, where balance decides. f32, f64 and f16. Works on rows in their own order.
    SegmentGroup,
    /// CUDA cores over CSR, a column of `B` at a time: entries and ends of rows merged into a path, of which every
    /// thread takes as many steps (merge-based sparse matrix times vector). For one column and rows that differ in
    /// length. A thread reads 4, 8 or 16 entries at once: as many as a point of
    /// [`AtomicParallelism`](crate::AtomicParallelism) gives it, or as suits the size of the matrix. Any precision but
    /// f64. Works on rows in their own order.
    MergePath,
    /// CUDA cores over panels of 64 rows: what rows of a panel need of `B` is brought to shared memory once, 32 rows of
    /// `B` at a time. For rows that share columns with their neighbours. f32. Works on rows in their own order.
    RowPanels,
    /// Tensor Cores over CSR: dot products as MMAs over matricised rows (TCA-SpMM). f16. Works on rows in their own
    /// order, and takes a column-major `B` too
    /// ([`SpmmPlan::run_column_major_into`](crate::SpmmPlan::run_column_major_into)).
    MatricizedRows,
    /// Tensor Cores over 8 × 8 tiles. f16, bf16 and tf32.
    TileStream,
    /// RSH-SpMM: tiles, and [`ShortRows`](Self::ShortRows) for short rows that share few columns with their window.
    /// Which rows is estimated with a cost model, unless a partition is given; where no division pays, all rows
    /// go to tiles (to [`RowSplit`](Self::RowSplit) if values are not finite). A partition by column vectors divides
    /// rows too, as Libra does, and has [`RowSplit`](Self::RowSplit) beside the tiles. f16, bf16 and tf32.
    Hybrid,
}

impl Algorithm {
    /// Every algorithm, `Auto` first.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::RowSplit,
        Self::ShortRows,
        Self::SegmentGroup,
        Self::MergePath,
        Self::RowPanels,
        Self::MatricizedRows,
        Self::TileStream,
        Self::Hybrid,
    ];

    /// Whether there are kernels for `precision`.
    #[must_use]
    pub const fn supports(self, precision: Precision) -> bool {
        match self {
            Self::Auto | Self::RowSplit | Self::ShortRows => true,
            Self::SegmentGroup => matches!(precision, Precision::F32 | Precision::F64 | Precision::F16),
            Self::MergePath => !matches!(precision, Precision::F64),
            Self::RowPanels => matches!(precision, Precision::F32),
            Self::MatricizedRows => matches!(precision, Precision::F16),
            Self::TileStream | Self::Hybrid => precision.has_tile_kernels(),
        }
    }
}

names!(Algorithm, "algorithm";
    Auto => "auto", RowSplit => "row-split", ShortRows => "short-rows", SegmentGroup => "segment-group",
    MergePath => "merge-path", RowPanels => "row-panels", MatricizedRows => "matricized-rows", TileStream => "tile-stream", Hybrid => "hybrid");

/// Whether two runs of a plan give the same bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Determinism {
    /// They do: the parts of a row or window that was cut are added in a fixed order.
    #[default]
    RunToRun,
    /// They may differ in the last bits: the parts are added atomically, in whatever order they are finished. Less
    /// workspace, and less to add up where rows are very long. Rows that are not cut do not change. A part or a sum of
    /// parts that is subnormal (below 1.2e-38) is taken for zero: the GPU's `red.add.f32` flushes it.
    Fast,
}

impl Determinism {
    /// Both choices, the default first.
    pub const ALL: [Self; 2] = [Self::RunToRun, Self::Fast];
}

names!(Determinism, "determinism";
    RunToRun => "run-to-run", Fast => "fast");

/// How device memory holds the values of a tile stream's steps: of two 8 × 8 tiles each, with room for 128 entries.
///
/// The same numbers are multiplied and added either way. What differs is memory and time, for a step with `e`
/// entries of `s` bytes each (2 in f16 and bf16, 4 in tf32):
///
/// | form | bytes of a step in device memory, columns included | in the multiply |
/// | --- | --- | --- |
/// | dense | `128·s + 128` | nothing to decode |
/// | packed | `16·⌈e·s / 16⌉ + 132` | values found by counting the bits of a mask: once for four places |
/// | bitmap | as packed | values found by counting the bits of the tiles' 64-bit bitmaps: once for each place |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TileValues {
    /// Packed where the steps of the matrix have few entries on average, dense otherwise; the report says which and
    /// why.
    #[default]
    Auto,
    /// All places of a tile, zeros included, in the order of the MMA's registers.
    Dense,
    /// The values of entries only, behind a 128-bit mask in the order of the MMA's registers: fewer bytes where tiles
    /// are sparse.
    Packed,
    /// The values of entries only, behind RS-Tile's own 64-bit bitmaps, as RSH-SpMM prints it: for comparison with the
    /// others, and never taken by [`Auto`](Self::Auto). Laid out on the CPU.
    Bitmap,
}

impl TileValues {
    /// Every choice, `Auto` first.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Dense, Self::Packed, Self::Bitmap];
}

names!(TileValues, "form of tile values";
    Auto => "auto", Dense => "dense", Packed => "packed", Bitmap => "bitmap");

/// How rows of `B` get from device memory to the Tensor Cores of a tile stream, and how many steps are under way at a
/// time. The same numbers are multiplied and added every way.
///
/// All but the first are what RSH-SpMM prints in its place: for comparison, in f16 only, and only for a `B` whose rows
/// are aligned to 16 bytes, while others are read as ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TilePipeline {
    /// Through shared memory, three steps at a time.
    #[default]
    ThreeStages,
    /// Through shared memory, two steps at a time.
    TwoStages,
    /// From device memory to the registers in which they are multiplied, two steps at a time; what says where values
    /// go still comes through shared memory.
    Registers,
}

impl TilePipeline {
    /// Every choice, the default first.
    pub const ALL: [Self; 3] = [Self::ThreeStages, Self::TwoStages, Self::Registers];
}

names!(TilePipeline, "pipeline of tiles";
    ThreeStages => "three-stages", TwoStages => "two-stages", Registers => "registers");

/// Where a matrix is laid out in tiles or in panels of rows: its preprocessing.
///
/// The arrays are the same, byte for byte. What differs is the time that making a plan takes, and where the plan keeps
/// what it needs for new values: on the GPU these are 4 bytes for each entry and, with packed values, 20 for each
/// step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Preprocessing {
    /// On the GPU for a large matrix, if no memory limit is given; the report says which and why.
    #[default]
    Auto,
    /// By the CPU's threads; the arrays are then uploaded.
    Cpu,
    /// On the GPU, where the plan is one that it lays out: all rows in tiles, or a division by column vectors. While
    /// the plan is made this takes up to 25 bytes of device memory for each entry (57 where entries are divided) and
    /// 50 for each row, beside the plan's own and its memory limit.
    Gpu,
}

impl Preprocessing {
    /// Every choice, `Auto` first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Cpu, Self::Gpu];
}

names!(Preprocessing, "place of preprocessing";
    Auto => "auto", Cpu => "cpu", Gpu => "gpu");

/// How [`Algorithm::RowSplit`] divides the work on a GPU: what is given instead of what it prefers for the matrix. Of
/// it [`Algorithm::MergePath`] takes the entries of a piece, and [`Algorithm::RowPanels`] these, of a panel, and the
/// columns of a slice.
///
/// Where rows are cut decides the order of their sums, so results may differ in the last bits from those of another
/// division; each gives the same in every run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowDivision {
    /// Entries of a piece of a row that is cut, at least 32; rows of up to half as many more are left whole, and with
    /// `u32::MAX` all are.
    pub piece_entries: Option<u32>,
    /// Columns of `B` that are worked on at a time, at most; kernels have slices of 128 bytes, two, four and eight.
    pub slice_columns: Option<u32>,
    /// Whether several groups of threads share a row, where kernels have that for the slice.
    pub several_ways: Option<bool>,
}

/// `64, 32, 1`: entries of a piece, columns of a slice, whether there are several ways; `-` for what is not given.
impl fmt::Display for RowDivision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |given: Option<u32>| given.map_or("-".to_owned(), |given| given.to_string());
        let piece = match self.piece_entries {
            Some(u32::MAX) => "whole".to_owned(),
            piece => shown(piece),
        };
        write!(f, "{piece}, {}, {}", shown(self.slice_columns), shown(self.several_ways.map(u32::from)))
    }
}

/// How the CPU deals a product out to its threads. Results are the same with all of them, bit for bit.
///
/// Zeros count as ones. Products too small for threads are not dealt out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTasks {
    /// Ranges of rows for each thread, of equal work: many make up for one that takes longer than its share, few cost
    /// less to deal out. No more than 65,536 of all threads are made.
    pub ranges_per_thread: u32,
    /// Columns of `B` that all rows are multiplied by before the next: few keep more rows of `B` in the caches, and `A`
    /// is read once for each tile. Rounded up to a multiple of 16. All, unless given or unless a few rows hold much
    /// of the work.
    pub tile_columns: Option<usize>,
}

impl CpuTasks {
    /// Ranges of rows of all threads, at most.
    pub(crate) const MOST_RANGES: usize = 1 << 16;
}

impl Default for CpuTasks {
    fn default() -> Self {
        Self { ranges_per_thread: 8, tile_columns: None }
    }
}

/// `8, 64`; `-` for a tile that is not given.
impl fmt::Display for CpuTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tile_columns {
            Some(columns) => write!(f, "{}, {columns}", self.ranges_per_thread),
            None => write!(f, "{}, -", self.ranges_per_thread),
        }
    }
}

/// Memory rates of a device, for [`SpmmReport::roofline_us`](crate::SpmmReport::roofline_us).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Rates {
    /// Bytes per second of a streaming copy, read and written bytes together.
    pub copy: f64,
    /// Bytes per second at which rows of `B` are gathered, for a working set of `B`'s size.
    pub gather: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse::<Algorithm>().unwrap(), algorithm);
        }
        for determinism in Determinism::ALL {
            assert_eq!(determinism.to_string().parse::<Determinism>().unwrap(), determinism);
        }
        for form in TileValues::ALL {
            assert_eq!(form.to_string().parse::<TileValues>().unwrap(), form);
        }
        for place in Preprocessing::ALL {
            assert_eq!(place.to_string().parse::<Preprocessing>().unwrap(), place);
        }
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
        }
        let error = "csr".parse::<Algorithm>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"csr\" is no algorithm; there are auto, row-split, short-rows, segment-group, merge-path, row-panels, matricized-rows, \
             tile-stream and hybrid"
        );
        let error = "f8".parse::<Precision>().unwrap_err();
        assert_eq!(error.to_string(), "\"f8\" is no precision; there are f32, tf32, f16, bf16 and f64");
    }
}
