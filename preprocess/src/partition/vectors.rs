//! Entries divided between tiles and CUDA cores by column vectors, after Libra.

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;
use windrow_formats::memory::{make_room, try_par_collect, try_par_flat_map, try_with_room, try_zeroed};
use windrow_formats::{
    Csr, FormatError, NO_ROW, OutOfMemory, Permutation, Value, WINDOW_ROWS, merge_columns,
};

use super::density::Sums;
use super::{Density, rows_with_entries};

/// Columns of a step of a tile stream: the last of a window is filled up to it.
const STEP_COLUMNS: usize = 16;

/// The least share of the 8 places of a column vector that must be entries for it to go to the tiles: `η` of Libra.
///
/// A vector has a whole number of entries, so only `⌈8·η⌉`, from 1 to 8, matters; thresholds with the same are
/// equal.
///
/// # Examples
/// ```
/// use windrow_preprocess::partition::VectorThreshold;
///
/// let eta: VectorThreshold = "0.3".parse()?;
/// assert_eq!((eta, eta.entries(), eta.to_string().as_str()), (VectorThreshold::LIBRA, 3, "3/8"));
/// assert!(VectorThreshold::try_new(0.0).is_err());
/// # Ok::<(), windrow_preprocess::partition::InvalidThreshold>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct VectorThreshold {
    /// Entries that a column vector must have: `⌈8·η⌉`, 1 to 8.
    entries: u8,
}

impl VectorThreshold {
    /// 3/8, which Libra found best on an H100 and an RTX 4090 (section 5.3.3).
    pub const LIBRA: Self = Self { entries: 3 };
    /// 1/8, …, 8/8. The first leaves no vector to the CUDA cores.
    pub const ALL: [Self; WINDOW_ROWS] = {
        let mut all = [Self { entries: 1 }; WINDOW_ROWS];
        let mut i = 1;
        while i < WINDOW_ROWS {
            all[i] = Self { entries: all[i - 1].entries + 1 };
            i += 1;
        }
        all
    };

    /// The threshold `eta`.
    ///
    /// # Errors
    /// [`InvalidThreshold`] unless `0 < eta ≤ 1`.
    pub fn try_new(eta: f64) -> Result<Self, InvalidThreshold> {
        let least = Self::ALL.into_iter().find(|least| eta <= least.eta());
        least.filter(|_| eta > 0.0).ok_or_else(|| InvalidThreshold { given: eta.to_string() })
    }

    /// Entries that a vector in tiles has at least, `⌈8·η⌉`.
    #[must_use]
    pub const fn entries(self) -> u32 {
        self.entries as u32
    }

    /// The largest share that means the same: [`entries`](Self::entries)` / 8`.
    #[must_use]
    pub fn eta(self) -> f64 {
        f64::from(self.entries) / 8.0
    }
}

impl From<VectorThreshold> for f64 {
    fn from(threshold: VectorThreshold) -> Self {
        threshold.eta()
    }
}

impl TryFrom<f64> for VectorThreshold {
    type Error = InvalidThreshold;

    fn try_from(eta: f64) -> Result<Self, InvalidThreshold> {
        Self::try_new(eta)
    }
}

impl Default for VectorThreshold {
    fn default() -> Self {
        Self::LIBRA
    }
}

impl fmt::Display for VectorThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/8", self.entries))
    }
}

impl FromStr for VectorThreshold {
    type Err = InvalidThreshold;

    /// A number, `0.375`, or eighths, `3/8`.
    fn from_str(text: &str) -> Result<Self, InvalidThreshold> {
        let eta = match text.strip_suffix("/8") {
            Some(eighths) => eighths.parse().map(|eighths: f64| eighths / 8.0),
            None => text.parse(),
        };
        eta.ok()
            .and_then(|eta| Self::try_new(eta).ok())
            .ok_or_else(|| InvalidThreshold { given: text.to_owned() })
    }
}

/// A threshold that is no share of a column vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidThreshold {
    given: String,
}

impl fmt::Display for InvalidThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is no share of a column vector: give a number above 0 and at most 1, or eighths, 3/8",
            self.given
        )
    }
}

impl std::error::Error for InvalidThreshold {}

/// Entries of a matrix that are multiplied on one path.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VectorPart<V> {
    /// The entries, in a matrix of the size of the whole.
    pub matrix: Csr<V>,
    /// For each of them, its position in the whole matrix; ascending.
    pub sources: Vec<u64>,
}

/// A matrix divided by column vectors; made by [`split_vectors`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VectorSplit<V> {
    /// What goes to the tiles.
    pub tiles: VectorPart<V>,
    /// What is left to CUDA cores, entry by entry.
    pub residual: VectorPart<V>,
    /// The rows of each window that have entries in its vectors, 8 slots to a window, [`NO_ROW`] behind the last:
    /// what [`RsTile::from_windows`](windrow_formats::RsTile::from_windows) takes. Windows without vectors are left
    /// out, so that no others become neighbours of a row than those that it was judged with.
    pub window_rows: Vec<u32>,
    /// What the tiles hold.
    pub density: Density,
}

impl<V> VectorSplit<V> {
    /// Number of rows with entries on both paths.
    pub fn rows_in_both(&self) -> usize {
        let (tiles, residual) = (&self.tiles.matrix, &self.residual.matrix);
        (0..tiles.rows()).filter(|&row| tiles.row_len(row) > 0 && residual.row_len(row) > 0).count()
    }
}

/// Divides `csr` by column vectors: Libra's 2D-aware distribution for sparse-dense products (section 4.2). Rows are
/// visited in `order` or, without one, as they come.
///
/// A *window* is the next 8 rows with entries. Each of its columns is a *vector* of up to 8 entries: one row of `B`
/// is gathered for it in tiles, one for each entry on CUDA cores, while in tiles its absent entries are multiplied
/// too. A vector of at least `⌈8·η⌉` entries goes to the tiles. If a window has any, places in its last tiles that
/// padding would take are filled with its fullest other vectors, of equals with those of the least columns.
///
/// The paper fills the last tile of 8 columns. Here it is the last step of 16: a tile stream multiplies two tiles at a
/// time, so this takes no step more, and gathers for a vector no more rows of `B` than CUDA cores would.
///
/// # Cost
/// Linear in rows and entries, parallel over windows. Needs a byte for each entry besides the result.
///
/// # Errors
/// - [`FormatError::LengthMismatch`] unless `order` is as long as there are rows;
/// - [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, NO_ROW};
/// use windrow_preprocess::partition::{VectorThreshold, split_vectors};
///
/// // Column 0 is in all three rows; rows 0 and 1 have 16 columns more that no other row has.
/// let columns = [vec![0], (1..17).collect(), vec![0], (17..33).collect(), vec![0]].concat();
/// let a = Csr::try_from_parts(3, 40, vec![0, 17, 34, 35], columns, vec![1.0f32; 35])?;
/// let split = split_vectors(&a, None, VectorThreshold::LIBRA)?;
/// // With it, 15 vectors of one entry fill a step; 17 are left.
/// assert_eq!((split.density.columns, split.tiles.matrix.nnz(), split.residual.matrix.nnz()), (16, 18, 17));
/// assert_eq!(split.window_rows, [0, 1, 2, NO_ROW, NO_ROW, NO_ROW, NO_ROW, NO_ROW]);
/// assert_eq!(split.residual.sources[..2], [16, 18]); // column 16 of row 0, column 17 of row 1
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn split_vectors<V: Value>(
    csr: &Csr<V>,
    order: Option<&Permutation>,
    threshold: VectorThreshold,
) -> Result<VectorSplit<V>, FormatError> {
    let rows = rows_with_entries(csr, order)?;
    let division = Division::of(csr, &rows, threshold)?;
    Ok(VectorSplit {
        tiles: division.part(csr, true)?,
        residual: division.part(csr, false)?,
        window_rows: division.window_rows(csr, &rows)?,
        density: division.density(csr, &rows),
    })
}

/// Which entries go to the tiles.
pub(super) struct Division {
    /// Whether each does, row after row in the order in which they are visited.
    in_tiles: Vec<bool>,
    /// Where each row's begin; 0 for rows without entries.
    first: Vec<usize>,
    sums: Sums,
    windows: u64,
}

impl Division {
    /// Decides for the windows of `rows`, none of them empty.
    pub(super) fn of<V: Sync>(
        csr: &Csr<V>,
        rows: &[u32],
        threshold: VectorThreshold,
    ) -> Result<Self, OutOfMemory> {
        let what = "entries in tiles";
        let mut first = try_zeroed(csr.rows(), what)?;
        let mut in_tiles = try_zeroed(csr.nnz(), what)?;
        let mut windows = try_with_room(rows.len().div_ceil(WINDOW_ROWS), what)?;
        let (mut rest, mut end) = (in_tiles.as_mut_slice(), 0);
        for window in rows.chunks(WINDOW_ROWS) {
            let begin = end;
            for &row in window {
                first[row as usize] = end;
                end += csr.row_len(row as usize);
            }
            let (own, tail) = rest.split_at_mut(end - begin);
            windows.push((window, own));
            rest = tail;
        }
        let decided =
            windows.into_par_iter().with_min_len(64).map_init(Vec::new, |vectors, (rows, in_tiles)| {
                let columns = decide(csr, rows, threshold, vectors, in_tiles)?;
                let entries = in_tiles.iter().filter(|&&taken| taken).count();
                Ok((Sums::of_window(columns as u64, entries as u64), u64::from(columns > 0)))
            });
        let none = || (Sums::default(), 0);
        let (sums, windows) = decided.try_reduce(none, |a, b| Ok((a.0.plus(b.0), a.1 + b.1)))?;
        Ok(Self { in_tiles, first, sums, windows })
    }

    /// For each entry of a row, whether it goes to the tiles.
    fn of_row<V>(&self, csr: &Csr<V>, row: usize) -> &[bool] {
        &self.in_tiles[self.first[row]..][..csr.row_len(row)]
    }

    /// Whether a row has entries in tiles.
    pub(super) fn is_in_tiles<V>(&self, csr: &Csr<V>, row: u32) -> bool {
        self.of_row(csr, row as usize).contains(&true)
    }

    /// The entries of one path.
    fn part<V: Value>(&self, csr: &Csr<V>, tiles: bool) -> Result<VectorPart<V>, FormatError> {
        let own = |row: usize| {
            let taken = self.of_row(csr, row).iter().map(move |&taken| taken == tiles);
            csr.row_range(row).zip(taken).filter(|&(_, own)| own).map(|(entry, _)| entry as u64)
        };
        let lengths = (0..csr.rows()).into_par_iter().map(|row| own(row).count());
        let lengths = try_par_collect(lengths, "lengths of rows")?;
        let mut row_offsets = try_with_room(csr.rows() + 1, "row_offsets")?;
        row_offsets.push(0);
        row_offsets.extend(lengths.iter().scan(0u64, |end, &len| {
            *end += len as u64;
            Some(*end)
        }));
        let sources = try_par_flat_map(csr.rows(), 0, own, "sources of entries")?;
        let at = |&entry: &u64| usize::try_from(entry).unwrap_or(usize::MAX); // it was a usize
        let col_indices = sources.par_iter().map(|entry| csr.col_indices()[at(entry)]);
        let col_indices = try_par_collect(col_indices, "col_indices")?;
        let values = try_par_collect(sources.par_iter().map(|entry| csr.values()[at(entry)]), "values")?;
        let matrix = Csr::try_from_parts(csr.rows(), csr.cols(), row_offsets, col_indices, values)?;
        Ok(VectorPart { matrix, sources })
    }

    /// The rows of each window that are in tiles, as [`VectorSplit::window_rows`].
    fn window_rows<V: Sync>(&self, csr: &Csr<V>, rows: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
        let of_window = |window: usize| {
            let rows = &rows[WINDOW_ROWS * window..rows.len().min(WINDOW_ROWS * (window + 1))];
            let mut slots = [NO_ROW; WINDOW_ROWS];
            let in_tiles = rows.iter().filter(|&&row| self.is_in_tiles(csr, row));
            let used = slots.iter_mut().zip(in_tiles).map(|(slot, &row)| *slot = row).count();
            slots.into_iter().take(if used > 0 { WINDOW_ROWS } else { 0 })
        };
        try_par_flat_map(rows.len().div_ceil(WINDOW_ROWS), NO_ROW, of_window, "rows of windows")
    }

    /// What the tiles hold, and what is left of `rows`.
    pub(super) fn density<V: Sync>(&self, csr: &Csr<V>, rows: &[u32]) -> Density {
        let having = |in_tiles: bool| move |row: &&u32| self.of_row(csr, **row as usize).contains(&in_tiles);
        let residual_rows = rows.par_iter().filter(having(false)).count();
        let rows_in_both = rows.par_iter().filter(having(false)).filter(having(true)).count() as u64;
        let density = self.sums.density(self.windows, residual_rows as u64, csr.nnz() as u64);
        Density { rows_in_both, ..density }
    }
}

/// Decides for the entries of one window, `in_tiles[i]` for entry `i` of its rows laid end to end. Returns the number
/// of columns in tiles. `vectors` is room for the entries of each vector, as bits of the rows.
fn decide<V>(
    csr: &Csr<V>,
    rows: &[u32],
    threshold: VectorThreshold,
    vectors: &mut Vec<u8>,
    in_tiles: &mut [bool],
) -> Result<usize, OutOfMemory> {
    vectors.clear();
    // No more vectors than entries.
    make_room(vectors, in_tiles.len(), "column vectors of a window")?;
    merge_columns(csr, rows, |_, bits, _| vectors.push(bits));
    let mut of_count = [0; WINDOW_ROWS + 1];
    for bits in &*vectors {
        of_count[bits.count_ones() as usize] += 1;
    }
    // In tiles are the vectors of at least `least` entries, and the first `more` of those with one fewer.
    let (mut least, mut more) = (threshold.entries() as usize, 0);
    let full: usize = of_count[least..].iter().sum();
    let mut room = full.next_multiple_of(STEP_COLUMNS) - full;
    while room > 0 && least > 1 {
        let next = of_count[least - 1];
        if next > room {
            more = room;
            break;
        }
        room -= next;
        least -= 1;
    }
    let mut next = [0; WINDOW_ROWS];
    let mut end = 0;
    for (next, &row) in next.iter_mut().zip(rows) {
        *next = end;
        end += csr.row_len(row as usize);
    }
    let mut columns = 0;
    for &bits in &*vectors {
        let count = bits.count_ones() as usize;
        let fills = count + 1 == least && more > 0;
        more -= usize::from(fills);
        let taken = fills || count >= least;
        columns += usize::from(taken);
        let mut left = bits;
        while left != 0 {
            let at = &mut next[left.trailing_zeros() as usize];
            in_tiles[*at] = taken;
            *at += 1;
            left &= left - 1;
        }
    }
    Ok(columns)
}
