//! What a matrix is like, as far as kernels care.

use rayon::prelude::*;

use crate::memory::{index, narrow};
use crate::rs_tile::merge_columns;
use crate::{Csr, NO_ROW, SAMPLED_COLS, TILE_COLS, WINDOW_ROWS};

/// Windows counted by one thread at a time.
const CHUNK_WINDOWS: usize = 256;
/// Rows whose lengths are looked at by one thread, at least.
const CHUNK_ROWS: usize = 1 << 14;

/// Statistics of a matrix's rows and of its windows of 8 *consecutive* rows, empty ones included.
///
/// A *column vector* is the 8 × 1 slice of one column in one window, with at least one entry. A *tile* is 8
/// column vectors of one window side by side; the last tile of a window may hold fewer. Entries count
/// whatever their value.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, Structure};
///
/// let structure = Structure::of(&Csr::<f32>::identity(20)?);
/// assert_eq!((structure.windows, structure.column_vectors, structure.tiles), (3, 20, 3));
/// assert_eq!(structure.nnz_per_vector(), 1.0);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Structure {
    /// Number of rows, empty ones counted.
    pub rows: usize,
    /// Number of columns, empty ones counted.
    pub cols: usize,
    /// Number of entries, stored zeros counted.
    pub nnz: usize,
    /// How many rows have no entry.
    pub empty_rows: usize,
    /// Entries of each row.
    pub row_lengths: RowLengths,
    /// Windows of 8 consecutive rows; the last may have fewer.
    pub windows: usize,
    /// Column vectors of all windows.
    pub column_vectors: u64,
    /// Column vectors with exactly one entry.
    pub single_vectors: u64,
    /// Tiles of all windows.
    pub tiles: u64,
    /// Tiles of 8 × 16 of all windows, which sampled products take: 16 column vectors side by side.
    pub sampled_tiles: u64,
}

/// How many entries the rows of a matrix have; all zero if there are no rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct RowLengths {
    /// Entries of the shortest row.
    pub min: usize,
    /// The length that half of the rows do not exceed (rank ⌈rows / 2⌉).
    pub median: usize,
    /// The length that 99 % of the rows do not exceed (rank ⌈0.99 · rows⌉).
    pub p99: usize,
    /// Entries of the longest row.
    pub max: usize,
    /// `nnz / rows`; 0 without rows.
    pub mean: f64,
    /// Standard deviation, over all rows, divided by the mean; 0 without entries.
    pub variation: f64,
    /// How many rows have more than twice the mean.
    pub above_twice_mean: usize,
    /// How many rows have more than four times the mean.
    pub above_four_means: usize,
}

impl Structure {
    /// The statistics of `csr`.
    ///
    /// # Cost
    /// Linear in entries, and in rows times the logarithm of the longest; parallel, without memory of its own.
    pub fn of<V: Sync>(csr: &Csr<V>) -> Self {
        let counts = (0..csr.rows().div_ceil(WINDOW_ROWS))
            .into_par_iter()
            .with_min_len(CHUNK_WINDOWS)
            .map(|window| WindowCounts::of(csr, window))
            .reduce(WindowCounts::default, WindowCounts::plus);
        let lengths = csr.row_offsets().par_windows(2).map(|ends| index(ends[1] - ends[0]));
        let lengths = lengths.with_min_len(CHUNK_ROWS);
        Self {
            rows: csr.rows(),
            cols: csr.cols(),
            nnz: csr.nnz(),
            empty_rows: lengths.clone().filter(|&len| len == 0).count(),
            row_lengths: RowLengths::of(&lengths),
            windows: csr.rows().div_ceil(WINDOW_ROWS),
            column_vectors: counts.vectors,
            single_vectors: counts.singles,
            tiles: counts.tiles,
            sampled_tiles: counts.sampled_tiles,
        }
    }

    /// Mean entries of a column vector: how often a gathered row of `B` is used in its window.
    pub fn nnz_per_vector(&self) -> f64 {
        ratio(self.nnz as u64, self.column_vectors)
    }

    /// Mean entries of a tile, at most 64.
    pub fn nnz_per_tile(&self) -> f64 {
        ratio(self.nnz as u64, self.tiles)
    }

    /// `R_spmm = nnz / (8 · tiles)`, the mean over all 8 × 8 tiles: how many times as many rows of `B` CUDA cores fetch
    /// as Tensor Cores do, which fetch a row once for each column of a tile (Libra, equations 2 and 3). At least 1
    /// where no tile ends in columns that are not there.
    pub fn spmm_access_ratio(&self) -> f64 {
        ratio(self.nnz as u64, TILE_COLS as u64 * self.tiles)
    }

    /// `R_sddmm = 2·nnz / ((8 + 16) · sampled_tiles)`, the mean over all 8 × 16 tiles: how many times as many rows of
    /// `X` and `Y` CUDA cores fetch as Tensor Cores do, which fetch a row once for each row and column of a tile
    /// (Libra, equation 4). At least 32 / 24 where all tiles have all their columns (equation 5).
    pub fn sddmm_access_ratio(&self) -> f64 {
        ratio(2 * self.nnz as u64, (WINDOW_ROWS + SAMPLED_COLS) as u64 * self.sampled_tiles)
    }

    /// Share of the column vectors that hold exactly one entry.
    pub fn single_vector_share(&self) -> f64 {
        ratio(self.single_vectors, self.column_vectors)
    }

    /// Share of the rows that hold no entry.
    pub fn empty_row_share(&self) -> f64 {
        ratio(self.empty_rows as u64, self.rows as u64)
    }
}

impl RowLengths {
    fn of(lengths: &(impl IndexedParallelIterator<Item = usize> + Clone)) -> Self {
        let rows = lengths.len();
        if rows == 0 {
            return Self::default();
        }
        let (min, max) = (lengths.clone().min().unwrap_or(0), lengths.clone().max().unwrap_or(0));
        // In whole numbers, so that the order in which threads add them does not matter.
        let sum: u128 = lengths.clone().map(|len| len as u128).sum();
        let squares: u128 = lengths.clone().map(|len| (len as u128).pow(2)).sum();
        let spread = (rows as u128 * squares).saturating_sub(sum * sum);
        // The least length that as many rows do not exceed: found by halving, which needs no sorted copy.
        let of_rank = |rank: usize| {
            let (mut low, mut high) = (min, max);
            while low < high {
                let middle = low.midpoint(high);
                let reached = lengths.clone().filter(|&len| len <= middle).count() >= rank;
                (low, high) = if reached { (low, middle) } else { (middle + 1, high) };
            }
            low
        };
        let above =
            |means: u128| lengths.clone().filter(|&len| len as u128 * rows as u128 > means * sum).count();
        Self {
            min,
            median: of_rank(rows.div_ceil(2)),
            p99: of_rank(rows - rows / 100),
            max,
            mean: sum as f64 / rows as f64,
            variation: if sum == 0 { 0.0 } else { (spread as f64).sqrt() / sum as f64 },
            above_twice_mean: above(2),
            above_four_means: above(4),
        }
    }
}

/// `part / whole`, or 0 where there is nothing to divide.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[derive(Debug, Clone, Copy, Default)]
struct WindowCounts {
    vectors: u64,
    singles: u64,
    tiles: u64,
    sampled_tiles: u64,
}

impl WindowCounts {
    fn of<V>(csr: &Csr<V>, window: usize) -> Self {
        let first = WINDOW_ROWS * window;
        let mut rows = [NO_ROW; WINDOW_ROWS];
        for (slot, row) in rows.iter_mut().zip(first..csr.rows()) {
            *slot = narrow(row);
        }
        let mut counts = Self::default();
        merge_columns(csr, &rows, |_, bits, _| {
            counts.vectors += 1;
            counts.singles += u64::from(bits.is_power_of_two());
        });
        counts.tiles = counts.vectors.div_ceil(TILE_COLS as u64);
        counts.sampled_tiles = counts.vectors.div_ceil(SAMPLED_COLS as u64);
        counts
    }

    fn plus(self, other: Self) -> Self {
        Self {
            vectors: self.vectors + other.vectors,
            singles: self.singles + other.singles,
            tiles: self.tiles + other.tiles,
            sampled_tiles: self.sampled_tiles + other.sampled_tiles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_vectors_and_tiles_of_consecutive_windows() {
        // Window 0: rows 0 to 7, columns 0 (rows 0 and 7) and 9 (row 3); window 1: row 8 with 9 columns.
        let mut offsets = vec![0, 1, 1, 1, 2, 2, 2, 2, 3, 12];
        let mut cols = vec![0, 9, 0];
        cols.extend(1..10);
        offsets.push(12);
        let csr = Csr::try_from_parts(10, 10, offsets, cols, vec![0.0f32; 12]).unwrap();
        let structure = Structure::of(&csr);
        assert_eq!((structure.windows, structure.column_vectors, structure.tiles), (2, 11, 3));
        assert_eq!((structure.single_vectors, structure.empty_rows), (10, 6));
        assert_eq!(structure.nnz_per_tile(), 4.0);
        // Of 8 × 16 each window has one tile: 24 rows of X and Y are fetched where entries fetch 12 of each.
        assert_eq!((structure.sampled_tiles, structure.sddmm_access_ratio()), (2, 24.0 / 48.0));
        assert_eq!(structure.spmm_access_ratio(), 12.0 / 24.0);
        let lengths = structure.row_lengths;
        assert_eq!((lengths.min, lengths.median, lengths.p99, lengths.max), (0, 0, 9, 9));
        assert_eq!(lengths.mean, 1.2);
        assert_eq!((lengths.above_twice_mean, lengths.above_four_means), (1, 1));
    }

    #[test]
    fn nothing_divides_by_zero() {
        for (rows, cols) in [(0, 5), (5, 0), (0, 0), (3, 3)] {
            let structure = Structure::of(&Csr::<f32>::zeros(rows, cols).unwrap());
            assert_eq!((structure.empty_rows, structure.tiles), (rows, 0));
            let ratios =
                [structure.nnz_per_tile(), structure.nnz_per_vector(), structure.single_vector_share()];
            assert_eq!(ratios, [0.0; 3]);
            assert_eq!((structure.spmm_access_ratio(), structure.sddmm_access_ratio()), (0.0, 0.0));
            let lengths = structure.row_lengths;
            assert_eq!((lengths.above_twice_mean, lengths.above_four_means), (0, 0));
            assert_eq!((structure.row_lengths.mean, structure.row_lengths.variation), (0.0, 0.0));
        }
    }

    #[test]
    fn full_tiles_are_fetched_once() {
        // Each of 8 rows has the same 16 columns: an entry's row of B would be fetched 8 times by itself.
        let csr = Csr::from_dense(8, 16, &[1.0f32; 128]).unwrap();
        let structure = Structure::of(&csr);
        assert_eq!((structure.tiles, structure.sampled_tiles), (2, 1));
        assert_eq!(structure.spmm_access_ratio(), 8.0);
        assert_eq!(structure.sddmm_access_ratio(), 256.0 / 24.0);
    }

    #[test]
    fn rows_above_the_mean_are_counted_exactly() {
        // The mean is 2: four entries are not more than twice that, five are; eight are not more than four times.
        let lengths = RowLengths::of(&[0usize, 0, 0, 0, 1, 1, 4, 5, 1, 8].par_iter().copied());
        assert_eq!((lengths.mean, lengths.above_twice_mean, lengths.above_four_means), (2.0, 2, 0));
    }

    #[test]
    fn ranks_are_nearest_ranks() {
        let lengths = RowLengths::of(&(1..201usize).into_par_iter().rev());
        assert_eq!((lengths.min, lengths.median, lengths.p99, lengths.max), (1, 100, 198, 200));
        assert_eq!(lengths.mean, 100.5);
        approx::assert_relative_eq!(
            lengths.variation,
            (39_999.0f64 / 12.0).sqrt() / 100.5,
            max_relative = 1e-12
        );
        assert_eq!(RowLengths::of(&[7].par_iter().copied()).median, 7);
    }
}
