//! How long each path of a product takes, as [`PathCosts`] say: a sum of a few terms for each path, which follow from
//! the sizes of the matrix, the lengths of its rows and the columns that its windows share. Pure functions.
//!
//! A term counts something that a kernel does: bytes that it gathers through the L2 cache, that this misses, that
//! memory moves once; entries, rows and threads that take instructions; the longest chain of loads of which each waits
//! for the one before; lanes that wait for a longer row of their warp; a second launch. Each has one number, which is
//! fitted to measured times; all else follows from how the kernels divide the work.

pub(crate) mod weigh;

use serde::Serialize;

use crate::costs::{
    DeviceCosts, GroupCosts, PanelCosts, PathCosts, RowCosts, SampledEntryCosts, SampledGroupCosts,
    SampledPanelCosts, SampledTileCosts, TileCosts,
};
use crate::num::{real, wide};
use crate::options::{Algorithm, Precision};
use crate::sddmm::{SddmmAlgorithm, SddmmGroup, slice_of};
use crate::spmm::cut_above;
use crate::spmm::points::RowLengths;

/// What predicted times follow from: counts of a matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixCounts {
    /// Rows, those without entries too.
    pub rows: u64,
    /// Columns, which are rows of `B`.
    pub cols: u64,
    /// Entries, zeros among them too.
    pub nnz: u64,
    /// Rows that have no entry.
    pub empty_rows: u64,
    /// Entries of the longest row.
    pub longest: u64,
    /// Batches of up to eight entries of a row, as sampled products deal them out; nothing else depends on them.
    pub batches: u64,
    /// Distinct columns of each window of 8 rows with entries, summed.
    pub vectors: u64,
    /// What panels of rows have; zeros where they are not weighed.
    pub panels: PanelCounts,
}

/// What panels of 64 rows have, for [`Algorithm::RowPanels`] and [`SddmmAlgorithm::RowPanels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PanelCounts {
    /// Distinct columns of each panel, summed.
    pub columns: u64,
    /// Distinct columns of each four rows, summed.
    pub vectors: u64,
}

impl PanelCounts {
    /// Those of all panels from `[columns, vectors]` of each.
    pub(crate) fn sum(each: &[[u32; 2]]) -> Self {
        let sum = |at: usize| each.iter().map(|counts| u64::from(counts[at])).sum();
        Self { columns: sum(0), vectors: sum(1) }
    }
}

/// A path whose time can be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// In sparse-dense products, [`Algorithm::RowSplit`].
    Rows,
    /// In sparse-dense products, [`Algorithm::SegmentGroup`].
    Groups,
    /// In sparse-dense products, [`Algorithm::TileStream`].
    Tiles,
    /// In sparse-dense products, [`Algorithm::RowPanels`].
    Panels,
    /// In sampled products, [`SddmmAlgorithm::Entries`].
    SampledEntries,
    /// In sampled products, [`SddmmAlgorithm::Groups`].
    SampledGroups,
    /// In sampled products, [`SddmmAlgorithm::Tiles`].
    SampledTiles,
    /// In sampled products, [`SddmmAlgorithm::RowPanels`].
    SampledPanels,
}

impl Kind {
    /// The algorithm of sparse-dense products.
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::Groups => Algorithm::SegmentGroup,
            Self::Tiles => Algorithm::TileStream,
            Self::Panels => Algorithm::RowPanels,
            _ => Algorithm::RowSplit,
        }
    }

    /// The algorithm of sampled products.
    pub(crate) fn sampled(self) -> SddmmAlgorithm {
        match self {
            Self::SampledGroups => SddmmAlgorithm::Groups,
            Self::SampledTiles => SddmmAlgorithm::Tiles,
            Self::SampledPanels => SddmmAlgorithm::RowPanels,
            _ => SddmmAlgorithm::Entries,
        }
    }
}

/// A path in a precision, for a product of so many columns, or of so long an inner dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Which path it is.
    pub kind: Kind,
    /// In which it multiplies: f32, f16 or bf16, tiles tf32, f16 or bf16. Of bf16 the times are those of f16.
    pub precision: Precision,
    /// Columns of `B`, or of `X` and `Y`.
    pub width: usize,
}

/// Bytes of a sector of the caches: no less is read.
const SECTOR_BYTES: f64 = 32.0;
/// Bytes of a load of a lane.
const LOAD_BYTES: f64 = 16.0;
/// Widest slice of tiles, in bytes of a row of `B`.
const SLICE_BYTES: f64 = 256.0;
/// Bytes of a step of tiles.
const STEP_BYTES: f64 = 368.0;
/// Column vectors of a step, and of a tile of a sampled product.
const STEP_VECTORS: f64 = 16.0;
/// Rows of a window.
const WINDOW_ROWS: f64 = 8.0;
/// Rows of a panel, and columns of a slice of a wide product.
const PANEL_ROWS: f64 = 64.0;
const PANEL_COLUMNS: f64 = 128.0;
/// Bytes of the slice of a row of `B` that row-split and segment groups work along at a time, at most.
const ROW_SLICE_BYTES: f64 = LANES * LOAD_BYTES;
/// Bytes of a sum.
const SUM_BYTES: f64 = 4.0;
/// Columns of a chunk of a panel, of a product and of a sampled one.
const CHUNK_COLUMNS: f64 = windrow_kernels::row_panels::SLOTS as f64;
const SAMPLED_CHUNK_COLUMNS: f64 = windrow_kernels::sddmm::panels::SLOTS as f64;
/// Pieces that panels are cut into for each multiprocessor, about, where there are fewer of them.
const PIECES: f64 = 6.0;
/// Pieces of sampled panels on a multiprocessor that keep it busy.
const PIECES_ENOUGH: f64 = 2.0;
/// Bytes of a vector of a panel: four values, and where they belong.
const VECTOR_BYTES: f64 = 20.0;
/// Steps that one warp has of the longest window at most, before a team shares it.
const LONGEST_STEPS: f64 = 200.0;
/// Bytes that a tile of a sampled product works along at a time.
const TILE_PIECE_BYTES: f64 = 64.0;
/// Entries in flight of a group of lanes.
const IN_FLIGHT: f64 = 4.0;
const LANES: f64 = 32.0;
const MILLION: f64 = 1e6;

/// What a path takes in microseconds, as these costs say.
#[must_use]
pub fn predicted_us(counts: &MatrixCounts, asked: Asked, costs: &DeviceCosts) -> f64 {
    let paths = &costs.paths;
    terms(counts, asked, costs).iter().zip(numbers(asked, paths)).map(|(term, cost)| term * cost).sum()
}

/// What a path has to do, in the order of its costs' names.
#[must_use]
pub fn terms(counts: &MatrixCounts, asked: Asked, costs: &DeviceCosts) -> Vec<f64> {
    let size = Size::of(counts, asked);
    match asked.kind {
        Kind::Rows => row_terms(&size, &costs.paths).numbers(),
        Kind::Groups => group_terms(&size, costs).numbers(),
        Kind::Tiles => tile_terms(&size, &costs.paths).numbers(),
        Kind::Panels => panel_terms(&size, &costs.paths).numbers(),
        Kind::SampledEntries => sampled_entry_terms(&size, &costs.paths).numbers(),
        Kind::SampledGroups => sampled_group_terms(&size, asked.precision, &costs.paths).numbers(),
        Kind::SampledTiles => sampled_tile_terms(&size, &costs.paths).numbers(),
        Kind::SampledPanels => sampled_panel_terms(&size, &costs.paths).numbers(),
    }
}

/// The costs of a path.
fn numbers(Asked { kind, precision, .. }: Asked, paths: &PathCosts) -> Vec<f64> {
    let half = precision.bytes() == 2;
    match kind {
        Kind::Rows => if half { paths.rows_f16 } else { paths.rows_f32 }.numbers(),
        Kind::Groups => if half { paths.groups_f16 } else { paths.groups_f32 }.numbers(),
        Kind::Tiles => if half { paths.tiles_f16 } else { paths.tiles_tf32 }.numbers(),
        Kind::Panels => paths.panels_f32.numbers(),
        Kind::SampledEntries => {
            if half { paths.sampled_entries_f16 } else { paths.sampled_entries_f32 }.numbers()
        }
        Kind::SampledGroups => {
            if half { paths.sampled_groups_f16 } else { paths.sampled_groups_f32 }.numbers()
        }
        Kind::SampledTiles => if half { paths.sampled_tiles_f16 } else { paths.sampled_tiles_tf32 }.numbers(),
        Kind::SampledPanels => paths.sampled_panels_f32.numbers(),
    }
}

/// The matrix and the product in numbers.
struct Size {
    counts: MatrixCounts,
    width: usize,
    rows: f64,
    cols: f64,
    nnz: f64,
    longest: f64,
    vectors: f64,
    /// Entries of a row that has any, in the mean.
    mean: f64,
    columns: f64,
    element_bytes: f64,
    /// Bytes of a row of `B`, and in whole sectors.
    row_bytes: f64,
    read_bytes: f64,
}

impl Size {
    fn of(counts: &MatrixCounts, Asked { precision, width, .. }: Asked) -> Self {
        let MatrixCounts { rows, cols, nnz, empty_rows, longest, vectors, .. } = *counts;
        let element_bytes = f64::from(precision.bytes());
        let columns = real(wide(width));
        let row_bytes = columns * element_bytes;
        Self {
            counts: *counts,
            width,
            rows: real(rows),
            cols: real(cols),
            nnz: real(nnz),
            longest: real(longest),
            vectors: real(vectors),
            mean: real(nnz) / real(rows.saturating_sub(empty_rows).max(1)),
            columns,
            element_bytes,
            row_bytes,
            read_bytes: (row_bytes / SECTOR_BYTES).ceil() * SECTOR_BYTES,
        }
    }

    /// Megabytes of gathered rows, and those of them that the cache does not hold.
    fn gathered(&self, gathers: f64, paths: &PathCosts) -> [f64; 2] {
        let bytes = gathers * self.read_bytes;
        let missed = (1.0 - paths.cache_bytes / self.b_bytes().max(1.0)).max(0.0);
        [bytes / MILLION, missed * bytes / MILLION]
    }

    fn b_bytes(&self) -> f64 {
        self.cols * self.row_bytes
    }

    /// Megabytes of gathered rows that the L1 cache does not hold, if so many bytes of each are worked along at a time:
    /// of each 64 rows of `A` the distinct ones, and of the others what does not fit there beside them.
    fn l1_missed(&self, slice_bytes: f64, paths: &PathCosts) -> f64 {
        let panels = (self.rows / PANEL_ROWS).max(1.0);
        let distinct = self.distinct(panels);
        let bytes = distinct / panels * self.row_bytes.min(slice_bytes);
        let crowded_out = (1.0 - paths.l1_bytes / bytes.max(1.0)).max(0.0);
        (distinct + (self.nnz - distinct).max(0.0) * crowded_out) * self.read_bytes / MILLION
    }

    /// Distinct columns of each panel of 64 rows, summed, if eight windows share as many of their columns as eight rows
    /// do: what was counted in 61 matrices is 0.3 to 2 times this, in the median 0.95 times.
    fn distinct(&self, panels: f64) -> f64 {
        (self.vectors * self.vectors / self.nnz.max(1.0)).min(self.cols * panels)
    }

    /// Megabytes of `C`, of `B` or what is gathered of it, and of `a_bytes`; and by how much they exceed the L2 cache,
    /// so that each product reads them from memory anew.
    fn streamed(&self, a_bytes: f64, gathers: f64, paths: &PathCosts) -> [f64; 2] {
        let b = self.b_bytes().min(gathers * self.read_bytes);
        let c = self.rows * (SUM_BYTES * self.columns).max(SECTOR_BYTES);
        let bytes = a_bytes + b + c;
        [bytes / MILLION, (bytes - paths.cache_bytes).max(0.0) / MILLION]
    }
}

fn row_terms(of: &Size, paths: &PathCosts) -> RowCosts {
    let lanes = power(of.row_bytes / LOAD_BYTES).clamp(4.0, LANES);
    let slices = (of.row_bytes / (lanes * LOAD_BYTES)).ceil();
    let groups = LANES / lanes;
    // Groups of lanes share a row that is long enough for all of them.
    let ways = if of.nnz / of.rows.max(1.0) < groups * IN_FLIGHT { 1.0 } else { groups };
    let side_by_side = groups / ways;
    let MatrixCounts { rows, nnz, longest, .. } = of.counts;
    let [cut, piece] = cut_above([rows, nnz, longest], paths.multiprocessors);
    let is_cut = of.longest > cut;
    let pieces = if is_cut { of.longest / piece } else { 0.0 };
    let longest = of.longest.min(cut);
    // In a warp of several rows all wait for the longest: so many times the mean, if one of them has what all have.
    let waited_for = (of.mean * side_by_side).min(longest);
    let uneven = of.rows / side_by_side * slices * (waited_for - of.mean).max(0.0);
    let [gathered, missed] = of.gathered(of.nnz, paths);
    let [streamed, spilled] = of.streamed(of.nnz * (4.0 + of.element_bytes), of.nnz, paths);
    RowCosts {
        launch: 1.0,
        gathered,
        l1_missed: of.l1_missed(ROW_SLICE_BYTES, paths),
        missed,
        streamed,
        spilled,
        entry: of.nnz * slices / MILLION,
        row: of.rows * slices * ways / MILLION,
        chain: longest / ways * slices / 1e3,
        cut: f64::from(u8::from(is_cut)),
        joined: pieces * SUM_BYTES * of.columns / MILLION,
        uneven: uneven / MILLION,
    }
}

fn group_terms(of: &Size, costs: &DeviceCosts) -> GroupCosts {
    let paths = &costs.paths;
    let lengths = RowLengths { rows: of.rows.max(1.0), nnz: of.nnz, longest: of.longest };
    let work = lengths.work(of.width, &costs.groups);
    let [_, missed] = of.gathered(of.nnz, paths);
    let [streamed, spilled] = of.streamed(of.nnz * (4.0 + of.element_bytes) * work.passes, of.nnz, paths);
    let threads = work.threads * work.passes / MILLION;
    GroupCosts {
        launch: 1.0,
        l1_missed: of.l1_missed(ROW_SLICE_BYTES, paths),
        missed,
        streamed,
        spilled,
        entry: of.nnz * work.lanes * work.passes / MILLION,
        thread: threads,
        chain: work.longest * work.passes / 1e3,
        cut: f64::from(u8::from(work.divides_entries)),
        divided: if work.divides_entries { threads } else { 0.0 },
    }
}

fn tile_terms(of: &Size, paths: &PathCosts) -> TileCosts {
    let slices = (of.row_bytes / SLICE_BYTES).ceil();
    let windows = of.rows / WINDOW_ROWS;
    let steps = of.vectors / STEP_VECTORS + windows / 2.0; // the last of a window is half full
    let [gathered, missed] = of.gathered(of.vectors, paths);
    let [streamed, spilled] = of.streamed(steps * STEP_BYTES, of.vectors, paths);
    TileCosts {
        launch: 1.0,
        gathered,
        missed,
        streamed,
        spilled,
        step: steps * slices / MILLION,
        window: windows * slices / MILLION,
        chain: (of.longest / STEP_VECTORS).min(LONGEST_STEPS) / 1e3,
    }
}

fn panel_terms(of: &Size, paths: &PathCosts) -> PanelCosts {
    let PanelCounts { columns, vectors } = of.counts.panels;
    let (columns, vectors) = (real(columns), real(vectors));
    let slice = [32.0, 64.0].into_iter().find(|&slice| of.columns <= slice).unwrap_or(PANEL_COLUMNS);
    let slices = (of.columns / slice).ceil();
    let panels = (of.rows / PANEL_ROWS).max(1.0);
    let chunks = columns / CHUNK_COLUMNS + panels / 2.0; // the last of a panel is half full
    // Panels are cut until there are pieces for all multiprocessors, or one for each chunk.
    let pieces = (PIECES * paths.multiprocessors / (panels * slices)).min(chunks / panels);
    let [streamed, spilled] = of.streamed(vectors * VECTOR_BYTES, columns, paths);
    PanelCosts {
        launch: 1.0,
        streamed,
        spilled,
        vector: vectors * slices * slice / PANEL_COLUMNS / MILLION,
        chunk: chunks * slices / MILLION,
        panel: panels * slices / MILLION,
        kept: if pieces > 1.5 { pieces * 4.0 * of.rows * of.columns / MILLION } else { 0.0 },
    }
}

/// Megabytes of the pattern, the result, `X` and what is gathered of `Y`; and by how much they exceed the L2 cache.
fn sampled_streamed(of: &Size, gathers: f64, entry_bytes: f64, paths: &PathCosts) -> [f64; 2] {
    let y = of.b_bytes().min(gathers * of.read_bytes);
    let bytes = of.rows * of.row_bytes + y + entry_bytes * of.nnz;
    [bytes / MILLION, (bytes - paths.cache_bytes).max(0.0) / MILLION]
}

fn sampled_entry_terms(of: &Size, paths: &PathCosts) -> SampledEntryCosts {
    let [_, missed] = of.gathered(of.nnz, paths);
    let [_, spilled] = sampled_streamed(of, of.nnz, 8.0, paths);
    let batches = real(of.counts.batches) / MILLION;
    SampledEntryCosts {
        launch: 1.0,
        missed,
        batch: batches,
        line: batches * (of.row_bytes / 128.0).ceil(),
        l1_missed: of.l1_missed(f64::INFINITY, paths),
        spilled,
    }
}

fn sampled_group_terms(of: &Size, precision: Precision, paths: &PathCosts) -> SampledGroupCosts {
    let [gathered, missed] = of.gathered(of.nnz, paths);
    let [streamed, spilled] = sampled_streamed(of, of.nnz, 8.0, paths);
    let threads = f64::from(SddmmGroup::of(of.width, precision).threads);
    SampledGroupCosts {
        launch: 1.0,
        gathered,
        missed,
        streamed,
        entry: of.nnz / MILLION,
        load: of.nnz * (of.row_bytes / LOAD_BYTES).ceil() / threads / MILLION,
        thread: of.nnz * threads / MILLION,
        spilled,
    }
}

fn sampled_tile_terms(of: &Size, paths: &PathCosts) -> SampledTileCosts {
    let windows = of.rows / WINDOW_ROWS;
    let tiles = (of.vectors / STEP_VECTORS + windows / 2.0) / MILLION;
    let [streamed, spilled] = sampled_streamed(of, of.vectors, 4.0, paths);
    SampledTileCosts {
        launch: 1.0,
        streamed,
        tile: tiles,
        piece: tiles * (of.row_bytes / TILE_PIECE_BYTES).ceil(),
        entry: of.nnz / MILLION,
        window: windows / MILLION,
        spilled,
    }
}

fn sampled_panel_terms(of: &Size, paths: &PathCosts) -> SampledPanelCosts {
    let PanelCounts { columns, vectors } = of.counts.panels;
    let (columns, vectors) = (real(columns), real(vectors));
    let slice = f64::from(slice_of(wide(of.width)));
    let slices = (of.columns / slice).ceil();
    let panels = (of.rows / PANEL_ROWS).max(1.0);
    let chunks = columns / SAMPLED_CHUNK_COLUMNS + panels / 2.0; // the last of a panel is half full
    let wanted = PIECES * paths.multiprocessors / panels;
    let pieces = wanted.clamp(1.0, (chunks / panels).max(1.0));
    // Of few pieces each takes as long as if there were enough of them.
    let alone = (PIECES_ENOUGH * paths.multiprocessors / (pieces * panels)).max(1.0);
    let vectors = vectors * slices * alone / MILLION;
    let [streamed, _] = sampled_streamed(of, columns, 4.0, paths);
    SampledPanelCosts {
        launch: 1.0,
        streamed,
        vector: vectors,
        dot: vectors * slice / PANEL_COLUMNS,
        chunk: chunks * slices * alone / MILLION,
        staged: chunks * SAMPLED_CHUNK_COLUMNS * slices * slice * SUM_BYTES / MILLION,
        fetched: pieces * of.rows * of.row_bytes / MILLION,
    }
}

/// The power of two, from 1 to 32, that is no less than `x`; 32 for more.
fn power(x: f64) -> f64 {
    [1.0, 2.0, 4.0, 8.0, 16.0].into_iter().find(|&power| x <= power).unwrap_or(LANES)
}
