//! What a plan will be, from the structure of the matrix and the options alone: no device is asked, nothing is laid
//! out.

use rayon::prelude::*;
use windrow_formats::Pattern;
use windrow_preprocess::partition::{Estimate, PartitionRule, Prediction};

use super::options::SpmmOptions;
use super::parts::row_split::SHORTEST_PIECE;
use super::points::{Division, NARROW, RowLengths, Thresholds};
use crate::error::{PlanError, SpmmError};
use crate::num::{real, wide};
use crate::options::{Algorithm, CpuTasks, Precision};
use crate::parallelism::GroupLaunch;
use crate::plan::{Exceptions, MAX_INDEX};

/// What decides: of the matrix, its values and the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) rows: usize,
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
        let (rows, nnz) = (a.rows(), a.nnz());
        Self { rows, nnz, empty_rows, longest, exceptions, kernels, own_order }
    }

    /// Whether rows have 16 entries and more, and the longest at most twice the mean: with one column, groups of
    /// threads then have nothing to wait for, and took 0.81 to 0.98 of the time of merged paths, and 1.26 of it in the
    /// mean of the others that they would serve (22 matrices on an H200).
    fn rows_are_long_and_even(&self) -> bool {
        let (rows, nnz) = (wide(self.rows), wide(self.nnz));
        nnz >= rows.saturating_mul(16) && self.longest.saturating_mul(rows) <= nnz.saturating_mul(2)
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
    pub(super) why: String,
    pub(super) way: Way,
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
/// - [`PlanError::TooLarge`] for a matrix beyond the indices of the kernels.
pub(super) fn decide(facts: &Facts, options: &SpmmOptions) -> Result<Decision, SpmmError> {
    let SpmmOptions { algorithm, precision, .. } = *options;
    check_support(algorithm, precision)?;
    if !facts.kernels {
        let why = "the CPU has one algorithm, rows in parallel".to_owned();
        let way = Way::Cpu(options.cpu_tasks.unwrap_or_default());
        return Ok(Decision { algorithm: Algorithm::RowSplit, why, way });
    }
    check_size(facts)?;
    let (algorithm, why, way) = match algorithm {
        Algorithm::Auto => automatic(facts, options),
        asked => {
            let way = match asked {
                Algorithm::SegmentGroup => Way::Groups(division(facts, options)),
                Algorithm::MergePath => Way::Path,
                Algorithm::MatricizedRows => Way::Matricized,
                Algorithm::ShortRows => Way::Tiles(Some(PartitionRule::AllResidual)),
                Algorithm::TileStream => Way::Tiles(Some(PartitionRule::AllTile)),
                Algorithm::Hybrid => Way::Tiles(options.partition),
                Algorithm::RowSplit | Algorithm::Auto => Way::Rows,
            };
            (asked, "as asked".to_owned(), way)
        }
    };
    Ok(Decision { algorithm, why, way })
}

/// The algorithm that suits the matrix, the width and the precision.
fn automatic(facts: &Facts, options: &SpmmOptions) -> (Algorithm, String, Way) {
    let SpmmOptions { precision, width, .. } = *options;
    let path = facts.own_order && width == 1 && facts.nnz > 0;
    if path && Algorithm::MergePath.supports(precision) {
        let groups = Algorithm::SegmentGroup.supports(precision);
        if !(groups && facts.rows_are_long_and_even()) {
            let why = format!("one column, and rows of up to {} entries: balance decides", facts.longest);
            return (Algorithm::MergePath, why, Way::Path);
        }
    }
    let narrow = width <= NARROW || !precision.has_tile_kernels();
    if facts.own_order && narrow && Algorithm::SegmentGroup.supports(precision) {
        let division = tree(facts, width, precision);
        if !division.row_split {
            let why = format!("{width} columns are few: balance decides, not bytes");
            return (Algorithm::SegmentGroup, why, Way::Groups(division));
        }
    }
    if !precision.has_tile_kernels() {
        return (Algorithm::RowSplit, format!("{precision} is multiplied on CUDA cores"), Way::Rows);
    }
    match tiles_or_rows(facts) {
        (true, why) => (Algorithm::TileStream, why, Way::Tiles(Some(PartitionRule::AllTile))),
        (false, why) => (Algorithm::RowSplit, why, Way::Rows),
    }
}

/// The point of Sgap's space that the tree takes for a width: of f32, as which it was fitted, so that a column of f64
/// counts as two.
fn tree(facts: &Facts, width: usize, precision: Precision) -> Division {
    let columns = width.saturating_mul(precision.dtype().sum_bytes() as usize / 4);
    facts.lengths().division(columns, &Thresholds::FITTED)
}

/// The point that divides the work of segment groups, and its launch: as asked for, or as the tree says.
fn division(facts: &Facts, options: &SpmmOptions) -> Division {
    let division = match options.parallelism {
        Some(point) => Division { point, launch: GroupLaunch::default(), row_split: false },
        None => tree(facts, options.width, options.precision),
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

/// Whether an algorithm has kernels for a precision.
fn check_support(algorithm: Algorithm, precision: Precision) -> Result<(), SpmmError> {
    if algorithm.supports(precision) {
        return Ok(());
    }
    let remedy = match algorithm {
        Algorithm::SegmentGroup => "use precision f32, f64 or f16, or algorithm row-split",
        Algorithm::MergePath => "use another precision, or algorithm segment-group",
        Algorithm::MatricizedRows => "use precision f16, or algorithm row-split",
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
mod tests {
    use super::*;

    /// Short rows that are alike, enough of them.
    const FACTS: Facts = Facts {
        rows: 1 << 20,
        nnz: 1 << 22,
        empty_rows: 0,
        longest: 6,
        exceptions: Exceptions { overflowed: 0, non_finite: 0, not_numbers: 0 },
        kernels: true,
        own_order: true,
    };

    fn options(algorithm: Algorithm, precision: Precision, width: usize) -> SpmmOptions {
        SpmmOptions { algorithm, precision, width, ..SpmmOptions::default() }
    }

    fn decided(facts: Facts, options: &SpmmOptions) -> (Algorithm, Way) {
        let Decision { algorithm, way, .. } = decide(&facts, options).unwrap();
        (algorithm, way)
    }

    /// f64 has kernels on CUDA cores alone, and none of merged paths.
    #[test]
    fn f64_is_divided_as_f32_is() {
        for width in [1, 4, 8] {
            let wide = options(Algorithm::Auto, Precision::F64, width);
            assert!(matches!(decided(FACTS, &wide).1, Way::Groups(_)), "{width}");
        }
        let wide = options(Algorithm::Auto, Precision::F64, 128);
        assert_eq!(decided(FACTS, &wide), (Algorithm::RowSplit, Way::Rows));
    }

    #[test]
    fn auto_takes_tiles_where_they_are_right() {
        let auto = options(Algorithm::Auto, Precision::F16, 128);
        let tiles = Way::Tiles(Some(PartitionRule::AllTile));
        assert_eq!(decided(FACTS, &auto), (Algorithm::TileStream, tiles));
        let exceptions = Exceptions { non_finite: 1, ..FACTS.exceptions };
        assert_eq!(decided(Facts { exceptions, ..FACTS }, &auto), (Algorithm::RowSplit, Way::Rows));
        assert_eq!(decided(Facts { nnz: 0, ..FACTS }, &auto), (Algorithm::RowSplit, Way::Rows));
        let strict = options(Algorithm::Auto, Precision::F32, 128);
        assert_eq!(decided(FACTS, &strict), (Algorithm::RowSplit, Way::Rows));
    }

    #[test]
    fn few_columns_are_divided_by_groups_unless_rows_have_an_order() {
        let narrow = |precision| options(Algorithm::Auto, precision, 4);
        for precision in [Precision::F32, Precision::F16] {
            assert!(matches!(decided(FACTS, &narrow(precision)).1, Way::Groups(_)), "{precision}");
            let ordered = Facts { own_order: false, ..FACTS };
            assert!(!matches!(decided(ordered, &narrow(precision)).1, Way::Groups(_)), "{precision}");
        }
        let tiles = Way::Tiles(Some(PartitionRule::AllTile));
        assert_eq!(decided(FACTS, &narrow(Precision::Bf16)).1, tiles, "there are no groups for bf16");
        assert_eq!(decided(FACTS, &options(Algorithm::Auto, Precision::F16, NARROW + 1)).1, tiles);
    }

    #[test]
    fn one_column_is_merged_unless_rows_are_long_and_even() {
        let one = |precision| options(Algorithm::Auto, precision, 1);
        let even = Facts { rows: 1 << 18, longest: 32, ..FACTS };
        let path = (Algorithm::MergePath, Way::Path);
        for precision in [Precision::F32, Precision::F16] {
            assert!(matches!(decided(even, &one(precision)).1, Way::Groups(_)), "{precision}");
            let wider = options(Algorithm::Auto, precision, 2);
            for uneven in [FACTS, Facts { longest: 33, ..even }, Facts { longest: 10_000, ..FACTS }] {
                assert_eq!(decided(uneven, &one(precision)), path, "{precision}");
                assert!(matches!(decided(uneven, &wider).1, Way::Groups(_)), "{precision}");
            }
        }
        for precision in [Precision::Tf32, Precision::Bf16] {
            assert_eq!(decided(even, &one(precision)), path, "{precision}");
        }
        assert_ne!(decided(FACTS, &one(Precision::F64)), path, "there are no such kernels");
        let ordered = Facts { own_order: false, ..FACTS };
        assert_eq!(decided(ordered, &one(Precision::F32)), (Algorithm::RowSplit, Way::Rows));
        let empty = Facts { nnz: 0, longest: 0, ..FACTS };
        assert_ne!(decided(empty, &one(Precision::F32)), path);
    }

    #[test]
    fn what_is_asked_for_is_taken_or_refused() {
        let point = "{<1 row, 1 col>, 1}".parse().unwrap();
        let asked =
            SpmmOptions { parallelism: Some(point), ..options(Algorithm::SegmentGroup, Precision::F32, 64) };
        let launch = GroupLaunch::default();
        let given = Way::Groups(Division { point, launch, row_split: false });
        assert_eq!(decided(FACTS, &asked), (Algorithm::SegmentGroup, given));
        for (algorithm, precision) in [
            (Algorithm::TileStream, Precision::F32),
            (Algorithm::SegmentGroup, Precision::Bf16),
            (Algorithm::MatricizedRows, Precision::F32),
        ] {
            let error = decide(&FACTS, &options(algorithm, precision, 1)).unwrap_err();
            assert!(matches!(error, SpmmError::Unsupported { .. }), "{error}");
            let on_cpu = Facts { kernels: false, ..FACTS };
            assert_eq!(decide(&on_cpu, &options(algorithm, precision, 1)).unwrap_err(), error);
        }
        let cpu = decided(Facts { kernels: false, ..FACTS }, &options(Algorithm::Hybrid, Precision::F16, 1));
        assert_eq!(cpu, (Algorithm::RowSplit, Way::Cpu(CpuTasks::default())));
    }

    #[test]
    fn matrices_beyond_the_indices_are_refused() {
        let auto = options(Algorithm::Auto, Precision::F16, 128);
        let limit = usize::try_from(MAX_INDEX).unwrap();
        for facts in [Facts { nnz: limit + 1, ..FACTS }, Facts { rows: limit, nnz: 32, ..FACTS }] {
            let error = decide(&facts, &auto).unwrap_err();
            assert!(
                matches!(error, SpmmError::Plan(PlanError::TooLarge { found, .. }) if found > MAX_INDEX),
                "{error}"
            );
            assert!(decide(&Facts { kernels: false, ..facts }, &auto).is_ok());
        }
    }

    #[test]
    fn an_estimate_is_asked_for_only_where_it_decides() {
        let hybrid = options(Algorithm::Hybrid, Precision::F16, 128);
        let mut open = decide(&FACTS, &hybrid).unwrap();
        assert!(open.wants_estimate(&FACTS));
        let empty = Facts { nnz: 0, ..FACTS };
        assert!(!open.wants_estimate(&empty));
        open.settle(&empty, None);
        assert_eq!((open.algorithm, open.way), (Algorithm::Hybrid, Way::Rows));
        assert_eq!(open.why, "all rows on CUDA cores: the matrix has no entries");
        let given = SpmmOptions { partition: Some(PartitionRule::AllTile), ..hybrid };
        assert!(!decide(&FACTS, &given).unwrap().wants_estimate(&FACTS));
    }
}
