//! What a plan will be, from the structure of the matrix, the options and what was measured: no device is asked,
//! nothing is laid out.

use rayon::prelude::*;
use windrow_formats::Pattern;
use windrow_preprocess::partition::{Estimate, PartitionRule, Prediction};

use super::options::SpmmOptions;
use super::parts::row_split::SHORTEST_PIECE;
use super::points::{Division, NARROW, RowLengths};
use super::preprocess::by_kernels;
use crate::costs::{DeviceCosts, GroupThresholds, TileThresholds};
use crate::error::{PlanError, SpmmError};
use crate::num::{index, real, wide};
use crate::options::{Algorithm, CpuTasks, Precision};
use crate::panels::may_share;
use crate::parallelism::GroupLaunch;
use crate::plan::{Exceptions, MAX_INDEX};
use crate::predict::weigh::{Candidate, Sharing, leave_out_panels, reason, weigh};
use crate::predict::{Asked, Kind, MatrixCounts, PanelCounts};
use crate::profile::Profile;

/// What decides: of the matrix, its values and the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) nnz: usize,
    pub(super) empty_rows: u64,
    /// Entries of the longest row.
    pub(super) longest: u64,
    /// What becomes of the values in the precision.
    pub(super) exceptions: Exceptions,
    /// Whether the device runs kernels; it is the CPU otherwise.
    pub(super) kernels: bool,
    /// Whether rows are worked on in the matrix's own order.
    pub(super) own_order: bool,
    /// Whether the matrix is on the device, so that what the host lays out takes a copy of it.
    pub(super) on_device: bool,
}

impl Facts {
    /// Those of a matrix.
    ///
    /// # Cost
    /// Linear in rows.
    pub(super) fn of(a: &Pattern, exceptions: Exceptions, kernels: bool, own_order: bool) -> Self {
        let length = |ends: &[u64]| ends[1] - ends[0];
        let (empty_rows, longest) = a
            .row_offsets()
            .par_windows(2)
            .map(|ends| (u64::from(length(ends) == 0), length(ends)))
            .reduce(|| (0, 0), |(empty, longest), (other, length)| (empty + other, longest.max(length)));
        let (rows, cols, nnz) = (a.rows(), a.cols(), a.nnz());
        Self { rows, cols, nnz, empty_rows, longest, exceptions, kernels, own_order, on_device: false }
    }

    /// Whether rows have 16 entries and more, and the longest at most twice the mean: with one column, groups of
    /// threads then have nothing to wait for, and took 0.81 to 0.98 of the time of merged paths, and 1.26 of it in the
    /// mean of the others that they would serve (22 matrices on an H200).
    fn rows_are_long_and_even(&self) -> bool {
        let (rows, nnz) = (wide(self.rows), wide(self.nnz));
        nnz >= rows.saturating_mul(16) && self.longest.saturating_mul(rows) <= nnz.saturating_mul(2)
    }

    /// Those of a matrix on the host with so much of everything, whose values are finite.
    pub(super) fn of_counts(counts: &MatrixCounts) -> Self {
        Self {
            rows: index(counts.rows),
            cols: index(counts.cols),
            nnz: index(counts.nnz),
            empty_rows: counts.empty_rows,
            longest: counts.longest,
            exceptions: Exceptions::default(),
            kernels: true,
            own_order: true,
            on_device: false,
        }
    }

    /// What predicted times follow from, with a column vector for each entry.
    fn counts(&self) -> MatrixCounts {
        MatrixCounts {
            rows: wide(self.rows),
            cols: wide(self.cols),
            nnz: wide(self.nnz),
            empty_rows: self.empty_rows,
            longest: self.longest,
            batches: 0,
            vectors: wide(self.nnz),
            panels: PanelCounts::default(),
        }
    }

    fn lengths(&self) -> RowLengths {
        RowLengths {
            rows: real(wide(self.rows).max(1)),
            nnz: real(wide(self.nnz)),
            longest: real(self.longest),
        }
    }
}

/// What a plan will be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decision {
    /// As the report has it.
    pub(super) algorithm: Algorithm,
    /// In which it multiplies: f32 may serve where tf32 is asked for.
    pub(super) precision: Precision,
    pub(super) why: String,
    pub(super) way: Way,
    /// Paths whose predicted times were weighed, the quickest first; none where something else decides.
    pub(super) weighed: Vec<Candidate>,
    /// Half a sentence that follows the reason where a trial was asked for and not made; else empty.
    pub(super) untimed: String,
}

/// The parts that a plan will have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// Rows on the CPU, dealt out so.
    Cpu(CpuTasks),
    /// Segments of rows, in the order given or asked for: [`Algorithm::RowSplit`].
    Rows,
    /// Entries or rows in groups of threads.
    Groups(Division),
    /// Entries and ends of rows, merged.
    Path,
    /// Rows dealt out to warps.
    Matricized,
    /// Panels of rows, through shared memory.
    Panels,
    /// Tiles, rows by their lengths, or both, as a rule says; as a cost model says if none is given.
    Tiles(Option<PartitionRule>),
}

impl Way {
    /// Whether rows are worked on in another order, if one is given or asked for.
    pub(super) fn is_ordered(self) -> bool {
        matches!(self, Self::Rows | Self::Tiles(_))
    }

    /// Columns of a workspace, at least. Groups may cut more rows than others, of a narrower product.
    pub(super) fn least_capacity(self) -> usize {
        if matches!(self, Self::Groups(_) | Self::Path) { 8 } else { 64 }
    }
}

/// Decides.
///
/// # Errors
/// - [`SpmmError::Unsupported`] for an algorithm without kernels for the precision;
/// - [`PlanError::TooLarge`] for a matrix beyond the indices of the kernels;
/// - those of the count of column vectors.
pub(super) fn decide(
    facts: &Facts,
    options: &SpmmOptions,
    profile: &Profile,
    sharing: &mut dyn Sharing<SpmmError>,
) -> Result<Decision, SpmmError> {
    let SpmmOptions { algorithm, precision, .. } = *options;
    check_support(algorithm, precision)?;
    let (weighed, untimed) = (Vec::new(), String::new());
    if !facts.kernels {
        let why = "the CPU has one algorithm, rows in parallel".to_owned();
        let way = Way::Cpu(options.cpu_tasks.unwrap_or_default());
        return Ok(Decision { algorithm: Algorithm::RowSplit, precision, why, way, weighed, untimed });
    }
    check_size(facts)?;
    let groups = &profile.costs.groups;
    let (algorithm, why, way) = match algorithm {
        Algorithm::Auto => match by_times(facts, options, &profile.costs, sharing)? {
            Some(decision) => return Ok(decision),
            None => automatic(facts, options, &profile.costs),
        },
        asked => {
            let way = match asked {
                Algorithm::SegmentGroup => Way::Groups(division(facts, options, groups)),
                Algorithm::MergePath => Way::Path,
                Algorithm::MatricizedRows => Way::Matricized,
                Algorithm::RowPanels => Way::Panels,
                Algorithm::ShortRows => Way::Tiles(Some(PartitionRule::AllResidual)),
                Algorithm::TileStream => Way::Tiles(Some(PartitionRule::AllTile)),
                Algorithm::Hybrid => Way::Tiles(options.partition),
                Algorithm::RowSplit | Algorithm::Auto => Way::Rows,
            };
            (asked, "as asked".to_owned(), way)
        }
    };
    Ok(Decision { algorithm, precision, why, way, weighed, untimed })
}

/// The candidates whose predicted times decide, tiles last; none where they do not: where few products are expected,
/// rows have an order, one column is merged, and in what was not measured.
fn candidates(facts: &Facts, options: &SpmmOptions, costs: &DeviceCosts) -> Vec<Asked> {
    let SpmmOptions { precision, width, .. } = *options;
    let few = few_runs(options, &costs.tiles).is_some();
    let is_open = facts.own_order && facts.nnz > 0 && width > 1;
    let served_by = match precision {
        // For few products tiles are left out, and what takes long to lay out on a device.
        Precision::F32 if is_open && !(few && facts.on_device) => Precision::F32,
        Precision::Tf32 if is_open && !few && tiles_or_rows(facts).0 => Precision::F32,
        Precision::F16 | Precision::Bf16 if is_open && !few && tiles_or_rows(facts).0 => precision,
        _ => return Vec::new(),
    };
    let asked = |kind, precision| Asked { kind, precision, width };
    let mut candidates = vec![asked(Kind::Rows, served_by)];
    if served_by != Precision::Bf16 && !tree(facts, width, served_by, &costs.groups).row_split {
        candidates.push(asked(Kind::Groups, served_by));
    }
    if precision.has_tile_kernels() {
        candidates.push(asked(Kind::Tiles, precision));
    }
    candidates
}

/// Whether panels are weighed beside the other candidates: they serve f32, take long to make, and pay where rows have
/// columns in common, which is not looked for in short ones.
pub(super) fn may_have_panels(facts: &Facts, options: &SpmmOptions, costs: &DeviceCosts) -> bool {
    let is_strict = matches!(options.precision, Precision::F32 | Precision::Tf32);
    let many = few_runs(options, &costs.tiles).is_none();
    options.algorithm == Algorithm::Auto
        && is_strict
        && many
        && facts.own_order
        && options.width >= LEAST_PANEL_WIDTH
        && may_share(wide(facts.rows), wide(facts.nnz))
}

/// Narrowest `B` for which panels are weighed.
const LEAST_PANEL_WIDTH: usize = 16;

/// What is predicted to be quickest, where predicted times decide.
fn by_times(
    facts: &Facts,
    options: &SpmmOptions,
    costs: &DeviceCosts,
    sharing: &mut dyn Sharing<SpmmError>,
) -> Result<Option<Decision>, SpmmError> {
    let mut asked = candidates(facts, options, costs);
    let mut counts = facts.counts();
    if may_have_panels(facts, options, costs)
        && !asked.is_empty()
        && let Some(panels) = sharing.panels()?
    {
        counts.panels = panels;
        asked.insert(0, Asked { kind: Kind::Panels, precision: Precision::F32, width: options.width });
    }
    if asked.len() < 2 {
        return Ok(None);
    }
    let mut weighed = weigh(&counts, &asked, costs, &mut || sharing.vectors())?;
    let there = facts.on_device || by_kernels(options, facts.nnz, &costs.tiles).0;
    let layout_us = costs.paths.panel_layout_us(real(wide(facts.nnz)), there);
    leave_out_panels(&mut weighed, options.expected_runs, layout_us);
    let Candidate { kind, precision, .. } = weighed[0];
    let algorithm = kind.algorithm();
    let way = match kind {
        Kind::Groups => Way::Groups(tree(facts, options.width, precision, &costs.groups)),
        Kind::Tiles => Way::Tiles(Some(PartitionRule::AllTile)),
        Kind::Panels => Way::Panels,
        _ => Way::Rows,
    };
    Ok(Some(Decision { algorithm, precision, why: reason(&weighed), way, weighed, untimed: String::new() }))
}

/// The algorithm that suits the matrix, the width and the precision, where predicted times do not decide.
fn automatic(
    facts: &Facts,
    options: &SpmmOptions,
    DeviceCosts { groups, tiles, .. }: &DeviceCosts,
) -> (Algorithm, String, Way) {
    let SpmmOptions { precision, width, .. } = *options;
    let few = few_runs(options, tiles);
    // A path and groups of entries take several kernels and waits to lay out: no way to a few products of a matrix
    // that is on the device.
    let pays = few.is_none() || !facts.on_device;
    let path = pays && facts.own_order && width == 1 && facts.nnz > 0;
    if path && Algorithm::MergePath.supports(precision) {
        let divided = Algorithm::SegmentGroup.supports(precision);
        if !(divided && facts.rows_are_long_and_even()) {
            let why = format!("one column, and rows of up to {} entries: balance decides", facts.longest);
            return (Algorithm::MergePath, why, Way::Path);
        }
    }
    let narrow = width <= NARROW || !precision.has_tile_kernels();
    if facts.own_order && narrow && Algorithm::SegmentGroup.supports(precision) {
        let division = tree(facts, width, precision, groups);
        let by_rows = division.point.nonzeros_per_thread().is_none();
        if !division.row_split && (by_rows || pays) {
            let why = format!("{width} columns are few: balance decides, not bytes");
            return (Algorithm::SegmentGroup, why, Way::Groups(division));
        }
    }
    if !precision.has_tile_kernels() {
        return (Algorithm::RowSplit, format!("{precision} is multiplied on CUDA cores"), Way::Rows);
    }
    match (tiles_or_rows(facts), few) {
        ((true, _), Some(runs)) => {
            let least = tiles.least_runs;
            let why = format!("{runs} products are expected, fewer than the {least} that tiles pay for");
            (Algorithm::RowSplit, why, Way::Rows)
        }
        ((true, why), None) => (Algorithm::TileStream, why, Way::Tiles(Some(PartitionRule::AllTile))),
        ((false, why), _) => (Algorithm::RowSplit, why, Way::Rows),
    }
}

/// The point of Sgap's space that the tree takes for a width: of f32, as which it was fitted, so that a column of f64
/// counts as two.
fn tree(facts: &Facts, width: usize, precision: Precision, groups: &GroupThresholds) -> Division {
    let columns = width.saturating_mul(precision.dtype().sum_bytes() as usize / 4);
    facts.lengths().division(columns, groups)
}

/// The point that divides the work of segment groups, and its launch: as asked for, or as the tree says.
fn division(facts: &Facts, options: &SpmmOptions, groups: &GroupThresholds) -> Division {
    let division = match options.parallelism {
        Some(point) => Division { point, launch: GroupLaunch::default(), row_split: false },
        None => tree(facts, options.width, options.precision, groups),
    };
    Division { launch: options.group_launch.unwrap_or(division.launch), ..division }
}

/// Whether tiles are right for a matrix in a precision that Tensor Cores multiply, and why.
///
/// On an H200 the tile stream is ahead of row-split, or within a few per cent, on every matrix tried: a gathered row
/// of `B` is used once for each row of the window that wants it, 8 short rows are worked on at a time, and long ones
/// are balanced by construction. Row-split is left with what has no tiles or would not survive them.
fn tiles_or_rows(facts: &Facts) -> (bool, String) {
    let non_finite = facts.exceptions.non_finite;
    if facts.nnz == 0 {
        return (false, "the matrix has no entries".to_owned());
    }
    if non_finite > 0 {
        let why = format!(
            "{non_finite} values are not finite in the precision: tiles would compute every window that holds one again"
        );
        return (false, why);
    }
    // How many rows share a gathered one, the report says where it counts the gathers.
    (true, "a gathered row of B serves all rows of a window, and windows are dealt out evenly".to_owned())
}

impl Decision {
    /// Whether a division of rows is left to the cost model, and the matrix may have tiles at all.
    pub(super) fn wants_estimate(&self, facts: &Facts) -> bool {
        self.way == Way::Tiles(None) && tiles_or_rows(facts).0
    }

    /// Settles a division of rows that was left to the cost model: the one that it prefers; where it prefers one path
    /// for all rows, the path that the matrix's structure does.
    pub(super) fn settle(&mut self, facts: &Facts, estimate: Option<&Estimate>) {
        if self.way != Way::Tiles(None) {
            return;
        }
        let (_, why) = tiles_or_rows(facts);
        let Some(found) = estimate else {
            (self.why, self.way) = (format!("all rows on CUDA cores: {why}"), Way::Rows);
            return;
        };
        // Measured, the tile stream is not behind row-split where the model says so; see `tiles_or_rows`.
        let least =
            |best: Prediction, next: &Prediction| if next.seconds < best.seconds { *next } else { best };
        let with_tiles = |p: &&Prediction| p.rule != PartitionRule::AllResidual;
        let best = found.predictions.iter().filter(with_tiles).fold(found.predictions[0], least);
        self.why = match best.rule {
            PartitionRule::Overlap { thresholds } => format!(
                "rows of at most {} entries that share few columns on CUDA cores",
                thresholds.max_entries
            ),
            _ => format!("all rows in tiles: no hybrid is predicted to be faster; {why}"),
        };
        self.way = Way::Tiles(Some(best.rule));
    }
}

/// The products that are expected of a plan, if they are fewer than tiles pay for.
pub(super) fn few_runs(options: &SpmmOptions, tiles: &TileThresholds) -> Option<u64> {
    options.expected_runs.filter(|&runs| runs < tiles.least_runs)
}

/// Whether a plan with these options may have tiles by a choice that looks at the values.
pub(super) fn may_take_tiles(options: &SpmmOptions, profile: &Profile) -> bool {
    let few = || few_runs(options, &profile.costs.tiles).is_some();
    match options.algorithm {
        Algorithm::Auto => options.precision.has_tile_kernels() && !few(),
        Algorithm::Hybrid => options.partition.is_none(),
        _ => false,
    }
}

/// Whether an algorithm has kernels for a precision.
fn check_support(algorithm: Algorithm, precision: Precision) -> Result<(), SpmmError> {
    if algorithm.supports(precision) {
        return Ok(());
    }
    let remedy = match algorithm {
        Algorithm::SegmentGroup => "use precision f32, f64 or f16, or algorithm row-split",
        Algorithm::MergePath => "use another precision, or algorithm segment-group",
        Algorithm::MatricizedRows => "use precision f16, or algorithm row-split",
        Algorithm::RowPanels => "use precision f32, or algorithm row-split",
        _ => "use precision tf32, bf16 or f16, or algorithm row-split",
    };
    Err(SpmmError::Unsupported { algorithm, precision, remedy })
}

/// Whether kernels can index the entries, and the rows and pieces of rows.
fn check_size(facts: &Facts) -> Result<(), SpmmError> {
    let segments = wide(facts.rows) + wide(facts.nnz) / u64::from(SHORTEST_PIECE);
    for (what, found) in [("entries", wide(facts.nnz)), ("rows and pieces of rows", segments)] {
        if found > MAX_INDEX {
            return Err(too_large(what, found, MAX_INDEX));
        }
    }
    Ok(())
}

/// A matrix with too much of something.
pub(super) fn too_large(what: &'static str, found: u64, limit: u64) -> SpmmError {
    let remedy = "split the matrix by rows and multiply the pieces, or use the CPU";
    PlanError::TooLarge { what, found, limit, remedy }.into()
}

#[cfg(test)]
mod tests;
