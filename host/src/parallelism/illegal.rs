//! Why a point is not in the space.

use thiserror::Error;

use super::{AtomicParallelism, Share};

/// Why a pair of shares and a reduction are no point of [`AtomicParallelism`](super::AtomicParallelism).
///
/// Rules are those of Sgap, section 3.3.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IllegalPoint {
    /// A share that is none, as `0 row`, `1/0 row` or `1/1 row`.
    #[error(
        "{share} {unit} is no share: a thread takes g, for g of 1 or more, or 1/g, for g of 2 or more; \
         write 1 {unit} for a single one"
    )]
    NoShare {
        /// What was asked for.
        share: Share,
        /// What it is of: `nnz`, `row` or `col`.
        unit: &'static str,
    },
    /// `1/g nnz`: rule 1.
    #[error(
        "1/{threads} nnz: threads cannot share a nonzero, which is multiplied by at least one element of B; \
         take 1 nnz or more, or share a row"
    )]
    NonzeroShared {
        /// The `g` of `1/g nnz`.
        threads: u32,
    },
    /// `x nnz, 1/c col`: rule 1.
    #[error(
        "{nonzeros} nnz, 1/{threads} col: threads cannot share the column of a nonzero, which is multiplied by at \
         least one element of B; take 1 col or more, or rows instead of nonzeros"
    )]
    ColumnSharedByNonzeros {
        /// The `x` of `x nnz`.
        nonzeros: u32,
        /// The `c` of `1/c col`.
        threads: u32,
    },
    /// `1/g row, 1/c col`: rule 3.
    #[error(
        "1/{row_threads} row, 1/{column_threads} col: resource parallelism multiplies one element of the pair only; \
         share the row or the column and take the other whole"
    )]
    RowAndColumnShared {
        /// The `g` of `1/g row`.
        row_threads: u32,
        /// The `c` of `1/c col`.
        column_threads: u32,
    },
    /// A reduction parallelism that no group of threads has: section 3.1.
    #[error(
        "a reduction of {reduction} threads: threads are synchronized in groups of 2, 4, 8, 16 or 32, or not at all; \
         take one of these, or 1"
    )]
    Reduction {
        /// The `r` asked for.
        reduction: u32,
    },
    /// Threads that take parts of different rows, or whole rows, reduced together: rule 2.
    #[error(
        "a reduction of {reduction} threads spans rows: it has one thread that writes, to one row, but {}; \
         reduce at most {threads}, or let {reduction} threads or more share a row", sharing(*threads)
    )]
    ReductionSpansRows {
        /// The `r` asked for.
        reduction: u32,
        /// Threads that share a row.
        threads: u32,
    },
    /// A point that the paper has but no kernel of this library.
    #[error(
        "there is no kernel for {share} {unit}: it is legal in the paper, but this library has {} only; \
         take one of these",
        kernels(unit)
    )]
    NoKernel {
        /// What was asked for.
        share: Share,
        /// What it is of: `nnz`, `row` or `col`.
        unit: &'static str,
    },
    /// A point that divides rows, where only nonzeros are divided.
    #[error(
        "{point} divides rows: MTTKRP has kernels that divide the nonzeros of a tensor only; take g nnz and a reduction, \
         as in {{<8 nnz, 4 col>, 2}}"
    )]
    RowsOfTensor {
        /// The point asked for.
        point: AtomicParallelism,
    },
    /// A launch that no point has.
    #[error("{found} {what}: launches have {expected}")]
    Launch {
        /// The parameter that was refused, as in "threads of a block".
        what: &'static str,
        /// What was asked for.
        found: i64,
        /// The values that launches have.
        expected: &'static str,
    },
    /// A text that is no point, legal or not.
    #[error(
        "{text:?} is no point; write {{<x nnz, y col>, r}} or {{<x row, y col>, r}} with x and y as 1/g or g and \
         numbers below 2^32, as in {{<1/4 row, 2 col>, 4}}"
    )]
    Syntax {
        /// The text that was to be read as a point.
        text: String,
    },
}

fn sharing(threads: u32) -> String {
    match threads {
        1 => "each thread has rows of its own".to_owned(),
        _ => format!("only {threads} threads share a row"),
    }
}

fn kernels(unit: &str) -> &'static str {
    match unit {
        "nnz" => "1, 2, 4, 8, 16 and 32 nnz",
        "row" => "1/32, 1/16, 1/8, 1/4, 1/2, 1, 2, 4, 8, 16 and 32 row",
        _ => "1/32, 1/16, 1/8, 1/4, 1/2, 1, 2 and 4 col",
    }
}
