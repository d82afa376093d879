//! What tiles would occupy, without building them.

use rayon::prelude::*;

use super::merge::merge_columns;
use super::{TILE_COLS, WINDOW_ROWS};
use crate::memory::{narrow, try_with_room};
use crate::{ByteSizes, Csr, FormatError, Structure};

/// Windows counted by one thread at a time.
const CHUNK_WINDOWS: usize = 256;

/// Does what [`RsTile::byte_sizes_in_tiles`](super::RsTile::byte_sizes_in_tiles) promises.
pub(super) fn in_tiles<V: Sync>(csr: &Csr<V>, structure: &Structure) -> Result<ByteSizes, FormatError> {
    let (windows, tiles) = match structure.empty_rows {
        0 => (structure.windows as u64, structure.tiles),
        _ => counted(csr)?,
    };
    if tiles > u64::from(u32::MAX) {
        return Err(FormatError::TooManyTiles { tiles });
    }
    let [index, offset, value] =
        [size_of::<u32>(), size_of::<u64>(), size_of::<V>()].map(|bytes| bytes as u64);
    let [rows, cols] = [WINDOW_ROWS, TILE_COLS].map(|count| count as u64);
    Ok(ByteSizes::new(vec![
        ("window_rows", index * rows * windows),
        ("window_tiles", index * (windows + 1)),
        ("tile_cols", index * cols * tiles),
        ("bitmaps", offset * tiles),
        ("tile_values", offset * (tiles + 1)),
        ("values", value * csr.nnz() as u64),
        ("residual_buckets", 0),
        ("residual_rows", 0),
        ("residual_col_indices", 0),
        ("residual_values", 0),
    ]))
}

/// Windows and tiles of the rows that have entries.
fn counted<V: Sync>(csr: &Csr<V>) -> Result<(u64, u64), FormatError> {
    let mut rows = try_with_room(csr.rows(), "window_rows")?;
    rows.extend((0..csr.rows()).filter(|&row| csr.row_len(row) > 0).map(narrow));
    let tiles = rows.par_chunks(WINDOW_ROWS).with_min_len(CHUNK_WINDOWS).map(|rows| {
        let mut vectors = 0u64;
        merge_columns(csr, rows, |_, _, _| vectors += 1);
        vectors.div_ceil(TILE_COLS as u64)
    });
    Ok((rows.len().div_ceil(WINDOW_ROWS) as u64, tiles.sum()))
}

#[cfg(test)]
mod tests {
    use crate::{Csr, RowAssignment, RsTile, Structure};

    #[test]
    fn sizes_are_those_of_the_arrays() {
        let with_gaps = |rows: usize| {
            let dense: Vec<f64> =
                (0..rows * 30).map(|at| if at / 30 % 3 == 1 { 0.0 } else { (at % 7) as f64 }).collect();
            Csr::from_dense(rows, 30, &dense).unwrap()
        };
        let matrices = [
            Csr::zeros(0, 5).unwrap(),
            Csr::zeros(9, 5).unwrap(),
            Csr::identity(21).unwrap(),
            with_gaps(1),
            with_gaps(40),
        ];
        for a in &matrices {
            let built = RsTile::from_csr(a, &RowAssignment::all_tile(a.rows()).unwrap()).unwrap();
            let counted = RsTile::byte_sizes_in_tiles(a, &Structure::of(a)).unwrap();
            assert!(counted.iter().eq(built.byte_sizes().iter()), "{counted:?} {:?}", built.byte_sizes());
        }
        assert!(Structure::of(&matrices[4]).empty_rows > 0 && Structure::of(&matrices[2]).empty_rows == 0);
    }
}
