//! Matrices with far more columns than entries.

use rayon::prelude::*;
use windrow_formats::memory::{try_copy, try_par_collect, try_zeroed};
use windrow_formats::{Csr, OutOfMemory, Value};

use super::pattern::narrow;

/// Fewer columns than this are no burden.
const FEW_COLUMNS: usize = 1 << 20;
/// Columns for each entry above which most are certainly unused.
const COLUMNS_PER_ENTRY: usize = 4;

/// The pattern of a matrix with the columns that it uses and no others, if it has far more.
///
/// What the stages know of a column is kept in arrays as long as there are columns: 2³² of them with a few
/// entries would take more memory than the machine has. Rows are related in the same way as before; a matrix
/// that was not square does not become so.
pub(super) fn without_unused_columns<V: Value>(csr: &Csr<V>) -> Result<Option<Csr<f32>>, OutOfMemory> {
    let few = csr.rows().max(FEW_COLUMNS).max(csr.nnz().saturating_mul(COLUMNS_PER_ENTRY));
    if csr.cols() <= few {
        return Ok(None);
    }
    let mut used = try_copy(csr.col_indices(), "columns in use")?;
    used.par_sort_unstable();
    used.dedup();
    // Every entry's column is among those used.
    let number = |column: &u32| narrow(used.partition_point(|other| other < column));
    let columns = try_par_collect(csr.col_indices().par_iter().map(number), "col_indices")?;
    let cols = used.len() + usize::from(used.len() == csr.rows());
    let zeros = try_zeroed(csr.nnz(), "values")?;
    let offsets = try_copy(csr.row_offsets(), "row_offsets")?;
    Ok(Csr::try_from_parts(csr.rows(), cols, offsets, columns, zeros).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_columns_vanish_and_the_rest_keep_their_order() {
        let cols = u32::MAX as usize;
        let columns = vec![5, 4_000_000_000, 7, u32::MAX - 1, 5];
        let a = Csr::try_from_parts(3, cols, vec![0, 2, 4, 5], columns, vec![1f32; 5]).unwrap();
        let compact = without_unused_columns(&a).unwrap().unwrap();
        assert_eq!((compact.rows(), compact.cols()), (3, 4));
        assert_eq!(compact.col_indices(), [0, 2, 1, 3, 0]);
        assert!(without_unused_columns(&compact).unwrap().is_none());
        let three = Csr::try_from_parts(3, cols, vec![0, 1, 2, 3], vec![9, 8, 7], vec![1f32; 3]).unwrap();
        assert_eq!(without_unused_columns(&three).unwrap().unwrap().cols(), 4, "not square");
    }
}
