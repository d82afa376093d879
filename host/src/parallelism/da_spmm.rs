//! DA-SpMM's eight algorithms as points.

use std::fmt;

use super::{AtomicParallelism, IllegalPoint, MinimalData, Share};

/// The eight algorithms of DA-SpMM, three choices of two each, which Sgap places in its space (section 3.3).
///
/// - `EB` or `RB`: threads take the same number of elements (nonzeros), or rows.
/// - `PR` or `SR`: parallel reduction by the 32 threads of a warp, or serial reduction by each thread.
/// - `RM` or `CM`: `B` is row-major or column-major.
///
/// The last is a detail of the kernel that [a point](AtomicParallelism) does not hold: the two algorithms that differ
/// in it alone are the same point, and the eight are four points for each number of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DaSpmm {
    /// Elements, parallel reduction, row-major: `{<1 nnz, c col>, 32}`.
    EbPrRm,
    /// Elements, parallel reduction, column-major: `{<1 nnz, c col>, 32}`.
    EbPrCm,
    /// Elements, serial reduction, row-major: `{<32 nnz, c col>, 1}`.
    EbSrRm,
    /// Elements, serial reduction, column-major: `{<32 nnz, c col>, 1}`.
    EbSrCm,
    /// Rows, parallel reduction, row-major: `{<1/32 row, c col>, 32}`.
    RbPrRm,
    /// Rows, parallel reduction, column-major: `{<1/32 row, c col>, 32}`.
    RbPrCm,
    /// Rows, serial reduction, row-major: `{<1 row, c col>, 1}`.
    RbSrRm,
    /// Rows, serial reduction, column-major: `{<1 row, c col>, 1}`.
    RbSrCm,
}

impl DaSpmm {
    /// Every algorithm: elements before rows, parallel before serial, row-major before column-major.
    pub const ALL: [Self; 8] = [
        Self::EbPrRm,
        Self::EbPrCm,
        Self::EbSrRm,
        Self::EbSrCm,
        Self::RbPrRm,
        Self::RbPrCm,
        Self::RbSrRm,
        Self::RbSrCm,
    ];

    /// Its point where a thread takes `columns` columns, the paper's coarsening factor `c`; whether `B` is row-major
    /// is not in it.
    ///
    /// # Errors
    /// - [`IllegalPoint::NoShare`]: `columns` is 0.
    /// - [`IllegalPoint::NoKernel`]: `columns` is not 1, 2 or 4.
    ///
    /// # Examples
    /// ```
    /// use windrow::DaSpmm;
    ///
    /// assert_eq!(DaSpmm::EbPrRm.point(4)?.to_string(), "{<1 nnz, 4 col>, 32}");
    /// assert_eq!(DaSpmm::EbPrRm.point(4)?, DaSpmm::EbPrCm.point(4)?);
    /// # Ok::<(), windrow::IllegalPoint>(())
    /// ```
    pub fn point(self, columns: u32) -> Result<AtomicParallelism, IllegalPoint> {
        let (data, reduction) = match self {
            Self::EbPrRm | Self::EbPrCm => (MinimalData::Nnz(Share::Whole(1)), 32),
            Self::EbSrRm | Self::EbSrCm => (MinimalData::Nnz(Share::Whole(32)), 1),
            Self::RbPrRm | Self::RbPrCm => (MinimalData::Row(Share::Part(32)), 32),
            Self::RbSrRm | Self::RbSrCm => (MinimalData::Row(Share::Whole(1)), 1),
        };
        AtomicParallelism::new(data, Share::Whole(columns), reduction)
    }
}

impl fmt::Display for DaSpmm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EbPrRm => "EB+PR+RM",
            Self::EbPrCm => "EB+PR+CM",
            Self::EbSrRm => "EB+SR+RM",
            Self::EbSrCm => "EB+SR+CM",
            Self::RbPrRm => "RB+PR+RM",
            Self::RbPrCm => "RB+PR+CM",
            Self::RbSrRm => "RB+SR+RM",
            Self::RbSrCm => "RB+SR+CM",
        })
    }
}
