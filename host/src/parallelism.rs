//! Atomic parallelism: points of Sgap's space of SpMM kernels, and the rules that make a point legal.
//!
//! A point `{<x nnz, y col>, r}` or `{<x row, y col>, r}` says for `C[m×n] = A[m×k]·B[k×n]`:
//!
//! - `x`, the [`MinimalData`]: the nonzeros or rows of `A` that one thread takes;
//! - `y`: the columns of `B` that it takes, each in `{1/c, 1, c}` as `x` is in `{1/g, 1, g}` (see [`Share`]);
//! - `r`, the reduction parallelism: how many threads add up their sums together before one of them, for each row,
//!   adds to `C`. With `r = 1` each thread adds its own.
//!
//! Source: Sgap, sections 3.2 (minimal data) and 3.3 (legal points). What a point leaves open is a detail of the
//! kernel: block size, shared memory, the order of `B`.
//!
//! # Rules
//!
//! | point | illegal because | error |
//! | --- | --- | --- |
//! | `{<1/g nnz, y col>, r}` | a nonzero is multiplied by at least one element of `B` (rule 1) | [`NonzeroShared`] |
//! | `{<x nnz, 1/c col>, r}` | the same (rule 1) | [`ColumnSharedByNonzeros`] |
//! | `{<1/g row, 1/c col>, r}` | resource parallelism multiplies one of the pair only (rule 3) | [`RowAndColumnShared`] |
//! | any, `r` not 1, 2, 4, 8, 16 or 32 | these are the groups of a warp (section 3.1) | [`Reduction`] |
//! | `{<1/g row, y col>, r}`, `r > g` | a parallel reduction has one thread that writes (rule 2) | [`ReductionSpansRows`] |
//! | `{<x row, 1/c col>, r}`, `r > c` | the same, as `c` threads share the row | [`ReductionSpansRows`] |
//! | `{<x row, y col>, r}`, `r > 1` | the same, as no threads share a row | [`ReductionSpansRows`] |
//!
//! Rule 2 is printed with `r/g < 1` for the illegal points. Its reason, one thread that writes for a group, forbids
//! only a group that spans two rows, and the paper's Table 1 runs `g = 32` with `r = 4` and `r = 8`, where each group
//! of `r` threads adds its sum to the row atomically. So `r > g` is what is refused here.
//!
//! `{<g nnz, c col>, r}` is legal with every `r`: a segment reduction writes each of the rows that its `r·g` nonzeros
//! are in (section 4.2).
//!
//! This library has kernels for some of the paper's points only, and refuses the others with [`NoKernel`]: `1/g` with
//! `g` in 2, 4, 8, 16, 32; rows and nonzeros in 1, 2, 4, 8, 16, 32; columns in 1, 2, 4. That is 306 points.
//!
//! [`NonzeroShared`]: IllegalPoint::NonzeroShared
//! [`ColumnSharedByNonzeros`]: IllegalPoint::ColumnSharedByNonzeros
//! [`RowAndColumnShared`]: IllegalPoint::RowAndColumnShared
//! [`Reduction`]: IllegalPoint::Reduction
//! [`ReductionSpansRows`]: IllegalPoint::ReductionSpansRows
//! [`NoKernel`]: IllegalPoint::NoKernel

mod da_spmm;
mod illegal;
mod launch;
mod notation;
#[cfg(test)]
mod tests;

pub use da_spmm::DaSpmm;
pub use illegal::IllegalPoint;
pub use launch::GroupLaunch;

/// Group sizes of a warp: what `r`, and in this library `g`, may be.
const POWERS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Columns a thread may take in the kernels of this library.
const COLUMNS: [u32; 3] = [1, 2, 4];

/// Part or multiple of a datum that a thread takes: `1/g` or `g` (Sgap, section 3.2).
///
/// A value need not be legal: [`AtomicParallelism::new`] checks it. Parts are ordered before multiples, and small
/// numbers first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Share {
    /// `1/g`, `g ≥ 2`: `g` threads share one datum.
    Part(u32),
    /// `g ≥ 1` data for one thread.
    Whole(u32),
}

impl Share {
    /// Threads that share one datum: `g` for `1/g`, 1 for whole data.
    #[must_use]
    pub const fn threads(self) -> u32 {
        match self {
            Self::Part(threads) => threads,
            Self::Whole(_) => 1,
        }
    }

    /// Data that a thread works in: `g`, and 1 for `1/g`.
    #[must_use]
    pub const fn data(self) -> u32 {
        match self {
            Self::Part(_) => 1,
            Self::Whole(data) => data,
        }
    }

    /// Whether it is `1/g` with `g ≥ 2` or `g` with `g ≥ 1`.
    const fn is_share(self) -> bool {
        match self {
            Self::Part(threads) => threads >= 2,
            Self::Whole(data) => data >= 1,
        }
    }

    /// Every share of anything there may be a kernel for, in order.
    fn candidates() -> impl Iterator<Item = Self> + Clone {
        let parts = POWERS.into_iter().skip(1).map(Self::Part);
        parts.chain(POWERS.into_iter().map(Self::Whole))
    }
}

/// What a thread takes of the sparse matrix: the first element of the pair (Sgap, section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MinimalData {
    /// Nonzeros, in the order of CSR, wherever rows end: the load is even.
    Nnz(Share),
    /// Rows: a thread knows the row that it adds to.
    Row(Share),
}

impl MinimalData {
    /// How much of them.
    #[must_use]
    pub const fn share(self) -> Share {
        match self {
            Self::Nnz(share) | Self::Row(share) => share,
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Nnz(_) => "nnz",
            Self::Row(_) => "row",
        }
    }
}

/// A legal point `{<x nnz, y col>, r}` or `{<x row, y col>, r}` of Sgap's space of SpMM kernels (section 3.3).
///
/// The rules are in [`AtomicParallelism::new`]; a value that exists keeps them. `Display` and serde write
/// the paper's notation and `FromStr` reads it; spaces between its signs, numbers and words may be left out or added.
/// Points are ordered as [`AtomicParallelism::all`] lists them.
///
/// # Examples
/// ```
/// use windrow::{AtomicParallelism, Family, MinimalData, Share};
///
/// // Four threads share a row and two columns; their four sums are added together.
/// let point = AtomicParallelism::new(MinimalData::Row(Share::Part(4)), Share::Whole(2), 4)?;
/// assert_eq!(point.to_string(), "{<1/4 row, 2 col>, 4}");
/// assert_eq!(point.family(), Family::RowGroup);
/// assert_eq!("{<1/4row,2col>,4}".parse(), Ok(point));
///
/// // Eight threads would be those of two rows.
/// assert!("{<1/4 row, 2 col>, 8}".parse::<AtomicParallelism>().is_err());
/// # Ok::<(), windrow::IllegalPoint>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtomicParallelism {
    data: MinimalData,
    cols: Share,
    reduction: u32,
}

impl AtomicParallelism {
    /// The point `{<data, cols>, reduction}`, if it is legal and there is a kernel for it.
    ///
    /// Rules 1 to 3 are those of Sgap, section 3.3, rule 2 read as `r > g`, since `r < g` is what the paper's Table 1
    /// runs. They are checked in the order of the list below, so that [`NoKernel`](IllegalPoint::NoKernel) is about
    /// points that are legal in the paper.
    ///
    /// # Errors
    /// - [`IllegalPoint::NoShare`]: a share of zero, or `1/0` or `1/1`.
    /// - [`IllegalPoint::NonzeroShared`]: `1/g nnz` (rule 1).
    /// - [`IllegalPoint::ColumnSharedByNonzeros`]: `x nnz, 1/c col` (rule 1).
    /// - [`IllegalPoint::RowAndColumnShared`]: `1/g row, 1/c col` (rule 3).
    /// - [`IllegalPoint::Reduction`]: `reduction` is not 1, 2, 4, 8, 16 or 32 (section 3.1).
    /// - [`IllegalPoint::ReductionSpansRows`]: for rows, `reduction` is larger than
    ///   [`threads_per_row`](Self::threads_per_row) (rule 2).
    /// - [`IllegalPoint::NoKernel`]: a bound of this library and not of the paper.
    pub fn new(data: MinimalData, cols: Share, reduction: u32) -> Result<Self, IllegalPoint> {
        let point = Self { data, cols, reduction };
        point.broken_rule().map_or(Ok(point), Err)
    }

    /// A point of which the caller knows that it is legal.
    pub(crate) fn of_powers(data: MinimalData, cols: Share, reduction: u32) -> Self {
        let point = Self { data, cols, reduction };
        debug_assert_eq!(point.broken_rule(), None, "{point}");
        point
    }

    /// Every legal point within `bounds`, each once.
    ///
    /// In ascending order, which is: nonzeros, then rows that threads share, then whole rows; each by their number;
    /// then columns that threads share, then whole ones, each by their number; then the reduction.
    ///
    /// # Examples
    /// ```
    /// use windrow::{AtomicParallelism, Bounds};
    ///
    /// assert_eq!(AtomicParallelism::all(&Bounds::default()).count(), 306);
    /// let bounds = Bounds { most_nnz: 1, most_rows: 1, most_threads_per_row: 2, most_cols: 1, most_reduction: 2 };
    /// let points: Vec<String> = AtomicParallelism::all(&bounds).map(|point| point.to_string()).collect();
    /// assert_eq!(points, [
    ///     "{<1 nnz, 1 col>, 1}", "{<1 nnz, 1 col>, 2}", "{<1/2 row, 1 col>, 1}", "{<1/2 row, 1 col>, 2}",
    ///     "{<1 row, 1/2 col>, 1}", "{<1 row, 1/2 col>, 2}", "{<1 row, 1 col>, 1}",
    /// ]);
    /// ```
    pub fn all(bounds: &Bounds) -> impl Iterator<Item = Self> + use<> {
        let bounds = *bounds;
        let data = Share::candidates().map(MinimalData::Nnz).chain(Share::candidates().map(MinimalData::Row));
        let pairs = data.flat_map(|data| Share::candidates().map(move |cols| (data, cols)));
        let points = pairs.flat_map(|(data, cols)| POWERS.into_iter().map(move |r| Self::new(data, cols, r)));
        points.filter_map(Result::ok).filter(move |&point| bounds.contain(point))
    }

    /// What a thread takes of the sparse matrix.
    #[must_use]
    pub const fn data(self) -> MinimalData {
        self.data
    }

    /// What a thread takes of the columns of `B` and `C`.
    #[must_use]
    pub const fn cols(self) -> Share {
        self.cols
    }

    /// Reduction parallelism `r`: the threads whose sums are added together, 1 for serial reduction.
    #[must_use]
    pub const fn reduction(self) -> u32 {
        self.reduction
    }

    /// Whether threads take nonzeros, wherever rows end, and not rows.
    #[must_use]
    pub const fn is_nonzero_split(self) -> bool {
        matches!(self.data, MinimalData::Nnz(_))
    }

    /// Nonzeros that a thread takes; none if it takes rows.
    #[must_use]
    pub const fn nonzeros_per_thread(self) -> Option<u32> {
        match self.data {
            MinimalData::Nnz(share) => Some(share.data()),
            MinimalData::Row(_) => None,
        }
    }

    /// Rows that a thread works in, 1 where it takes a part of one; none if it takes nonzeros.
    #[must_use]
    pub const fn rows_per_thread(self) -> Option<u32> {
        match self.data {
            MinimalData::Nnz(_) => None,
            MinimalData::Row(share) => Some(share.data()),
        }
    }

    /// Threads that share a row: `g` for `1/g row`, `c` for `x row, 1/c col`, 1 for whole rows and columns; none if
    /// threads take nonzeros, as it then depends on the row.
    ///
    /// Where it exceeds the [`reduction`](Self::reduction), several sums are added to the row atomically.
    #[must_use]
    pub const fn threads_per_row(self) -> Option<u32> {
        match self.data {
            MinimalData::Nnz(_) => None,
            MinimalData::Row(Share::Part(threads)) => Some(threads),
            MinimalData::Row(Share::Whole(_)) => Some(self.cols.threads()),
        }
    }

    /// Columns of `C` that a thread works in, 1 where it takes a part of one.
    ///
    /// A part of a column of `B` is `1/c` of the elements that the row's nonzeros are multiplied by, so that the `c`
    /// threads have a sum each for the same element of `C`.
    #[must_use]
    pub const fn columns_per_thread(self) -> u32 {
        self.cols.data()
    }

    /// Which kind of kernel it is.
    #[must_use]
    pub const fn family(self) -> Family {
        match (self.data, self.cols) {
            (MinimalData::Nnz(_), _) if self.reduction == 1 => Family::NnzSerial,
            (MinimalData::Nnz(_), _) => Family::NnzGroup,
            (MinimalData::Row(Share::Whole(_)), Share::Whole(_)) => Family::RowSerial,
            (MinimalData::Row(_), _) => Family::RowGroup,
        }
    }

    /// The first rule that the point breaks, in the order of [`new`](Self::new).
    fn broken_rule(self) -> Option<IllegalPoint> {
        let Self { data, cols, reduction } = self;
        for (share, unit) in [(data.share(), data.unit()), (cols, "col")] {
            if !share.is_share() {
                return Some(IllegalPoint::NoShare { share, unit });
            }
        }
        match (data, cols) {
            (MinimalData::Nnz(Share::Part(threads)), _) => {
                return Some(IllegalPoint::NonzeroShared { threads });
            }
            (MinimalData::Nnz(Share::Whole(nonzeros)), Share::Part(threads)) => {
                return Some(IllegalPoint::ColumnSharedByNonzeros { nonzeros, threads });
            }
            (MinimalData::Row(Share::Part(row)), Share::Part(column)) => {
                return Some(IllegalPoint::RowAndColumnShared { row_threads: row, column_threads: column });
            }
            (_, Share::Whole(_)) | (MinimalData::Row(Share::Whole(_)), Share::Part(_)) => {}
        }
        if !POWERS.contains(&reduction) {
            return Some(IllegalPoint::Reduction { reduction });
        }
        if let Some(threads) = self.threads_per_row().filter(|&threads| reduction > threads) {
            return Some(IllegalPoint::ReductionSpansRows { reduction, threads });
        }
        let no_kernel = |share, unit| Some(IllegalPoint::NoKernel { share, unit });
        match (data.share(), cols) {
            (Share::Part(n) | Share::Whole(n), _) if !POWERS.contains(&n) => {
                no_kernel(data.share(), data.unit())
            }
            (_, Share::Part(threads)) if !POWERS.contains(&threads) => no_kernel(cols, "col"),
            (_, Share::Whole(columns)) if !COLUMNS.contains(&columns) => no_kernel(cols, "col"),
            _ => None,
        }
    }
}

/// Kinds of kernels that the points are divided into.
///
/// The first two are the algorithms that TACO has. The last two are those that Sgap adds to it (section 7.1), there
/// with `1/g row` and `1 nnz` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// `{<g nnz, c col>, 1}`: a thread takes nonzeros and adds to each of their rows by itself.
    NnzSerial,
    /// `{<x row, c col>, 1}`: a thread takes whole rows.
    RowSerial,
    /// `{<1/g row, c col>, r}` or `{<x row, 1/c col>, r}`: threads share a row, and groups of `r` of them, which may be
    /// 1, add up their sums.
    RowGroup,
    /// `{<g nnz, c col>, r}`, `r > 1`: threads take nonzeros and reduce by segments, a segment being a row's.
    NnzGroup,
}

impl Family {
    /// Every family, the two of TACO first.
    pub const ALL: [Self; 4] = [Self::NnzSerial, Self::RowSerial, Self::RowGroup, Self::NnzGroup];
}

/// The largest numbers of the points that [`AtomicParallelism::all`] lists, each inclusive.
///
/// The default is everything there are kernels for; larger numbers add nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Nonzeros of a thread, `g` of `g nnz`: 32 by default.
    pub most_nnz: u32,
    /// Whole rows of a thread, `x` of `x row`: 32 by default.
    pub most_rows: u32,
    /// Threads that share a row, `g` of `1/g row` and `c` of `1/c col`: 32 by default.
    pub most_threads_per_row: u32,
    /// Whole columns of a thread, `c` of `c col`: 4 by default.
    pub most_cols: u32,
    /// Reduction parallelism, `r`: 32 by default.
    pub most_reduction: u32,
}

impl Bounds {
    /// Whether `point` is within them.
    fn contain(&self, point: AtomicParallelism) -> bool {
        let within = |share, most| match share {
            Share::Part(threads) => threads <= self.most_threads_per_row,
            Share::Whole(data) => data <= most,
        };
        let data = match point.data {
            MinimalData::Nnz(share) => within(share, self.most_nnz),
            MinimalData::Row(share) => within(share, self.most_rows),
        };
        data && within(point.cols, self.most_cols) && point.reduction <= self.most_reduction
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self { most_nnz: 32, most_rows: 32, most_threads_per_row: 32, most_cols: 4, most_reduction: 32 }
    }
}
