//! Why a matrix, a tensor, a permutation or a format could not be built.

use thiserror::Error;

/// Why a matrix, a tensor, a permutation or a format could not be built.
///
/// Every message names the place (row, entry, position, window, tile), the number found there and the bound
/// it breaks. Rows, columns, modes, entries and positions are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A matrix with more than 2³² − 1 rows or columns.
    #[error(
        "{found} {what} are more than the {limit} that 32-bit indices can name; split the matrix",
        limit = u32::MAX
    )]
    DimensionTooLarge {
        /// Which of the two it is: `"rows"` or `"columns"`.
        what: &'static str,
        /// The number asked for.
        found: usize,
    },
    /// An array whose length does not follow from the others.
    #[error("{array} has {found} elements but {expected} are needed, {why}")]
    LengthMismatch {
        /// Name of the array.
        array: &'static str,
        /// The length it has.
        found: usize,
        /// The length it must have.
        expected: usize,
        /// Where the expectation comes from, for example `"one for each column index"`.
        why: &'static str,
    },
    /// Row offsets that do not start at 0.
    #[error("row_offsets starts at {found}; the first offset must be 0")]
    FirstOffset {
        /// What `row_offsets[0]` is instead of 0.
        found: u64,
    },
    /// A row that ends before it starts.
    #[error("row {row}: row_offsets decreases from {start} to {end}")]
    OffsetsDecrease {
        /// The row between the two offsets.
        row: usize,
        /// Where the row begins: `row_offsets[row]`.
        start: u64,
        /// Where it ends: `row_offsets[row + 1]`.
        end: u64,
    },
    /// Row offsets that do not end at the number of entries.
    #[error("row_offsets ends at {found} but there are {entries} column indices")]
    LastOffset {
        /// Where the last row ends: `row_offsets[rows]`.
        found: u64,
        /// The number of column indices.
        entries: usize,
    },
    /// A column index beyond the matrix, in compressed rows.
    #[error("row {row}, entry {entry}: column {column} is not below {cols} columns")]
    ColumnOutOfRange {
        /// The row that holds the entry.
        row: usize,
        /// Position in the array of column indices.
        entry: usize,
        /// The column index found; a negative one of 64 bits as 2⁶⁴ less so much.
        column: u64,
        /// The number of columns of the matrix.
        cols: usize,
    },
    /// A column index that is not above the one before it in its row, where there are no values to sort and sum along.
    #[error(
        "row {row}, entry {entry}: column {column} follows column {before}; a pattern needs ascending columns, \
         Csr::try_from_parts sorts them with their values"
    )]
    ColumnsNotAscending {
        /// The row that holds the entry.
        row: usize,
        /// Position in the array of column indices.
        entry: usize,
        /// The column index found.
        column: u32,
        /// The one before it.
        before: u32,
    },
    /// A coordinate beyond the matrix, in a list of coordinates.
    #[error(
        "entry {entry} (row {row}, column {column}, value {value}) lies outside of {rows} rows × {cols} columns"
    )]
    EntryOutOfRange {
        /// Position in the list.
        entry: usize,
        /// The row index of the entry.
        row: usize,
        /// The column index of the entry.
        column: usize,
        /// The value of the entry, printed.
        value: String,
        /// The number of rows of the matrix.
        rows: usize,
        /// The number of columns of the matrix.
        cols: usize,
    },
    /// A matrix that another crate does not take.
    #[error("{library} does not take the matrix: {detail}")]
    Refused {
        /// Name of the crate.
        library: &'static str,
        /// What that crate says about it.
        detail: String,
    },
    /// An element of a permutation that is not an index into it.
    #[error("position {position} of the permutation: {found} is not below its length {len}")]
    PermutationRange {
        /// Position in the permutation.
        position: usize,
        /// The index that is too large.
        found: u32,
        /// How many indices the permutation has.
        len: usize,
    },
    /// An element that a permutation holds twice.
    #[error("position {position} of the permutation: {found} was already at position {first}")]
    PermutationDuplicate {
        /// Where the element is found again.
        position: usize,
        /// The element found twice.
        found: u32,
        /// Where it was found first.
        first: usize,
    },
    /// More tiles than a 32-bit offset can count.
    #[error(
        "{tiles} tiles are more than the {limit} that 32-bit tile offsets can count; \
         assign sparse rows to the residual or split the matrix",
        limit = u32::MAX
    )]
    TooManyTiles {
        /// The number of tiles the assignment asks for.
        tiles: u64,
    },
    /// An array of an RS-Tile matrix that breaks one of the invariants listed at
    /// [`RsTile`](crate::RsTile).
    #[error("RS-Tile invariant {invariant} does not hold: {detail}")]
    RsTile {
        /// The invariant's label, for example `"T2"`.
        invariant: &'static str,
        /// The place and the numbers.
        detail: String,
    },
    /// An RS-Tile matrix used with a CSR matrix that has another pattern.
    #[error("the RS-Tile matrix was built from another pattern: {detail}")]
    PatternMismatch {
        /// The place and the numbers.
        detail: String,
    },
    /// Numbers that make no N:M pattern.
    #[error("there is no pattern {n}:{m} in vectors of {l}; give 1 ≤ N ≤ M ≤ 256 and 1 ≤ L < 2³²")]
    NmPattern {
        /// Vectors to keep of a group.
        n: usize,
        /// Rows of a group.
        m: usize,
        /// Columns of a vector.
        l: usize,
    },
    /// A dense matrix that has not the N:M pattern.
    #[error(
        "group {group} (rows {}..{}) has {found} rows with entries in columns {}..{} (vector {vector}), the pattern \
         keeps {limit} of a group; prune the matrix first, for example with `prune_magnitude`",
        rows.0, rows.1, columns.0, columns.1
    )]
    NmGroup {
        /// Number of the group, from 0.
        group: usize,
        /// Number of the vector, from 0.
        vector: usize,
        /// First row of the group, and the first behind it.
        rows: (usize, usize),
        /// First column of the vector, and the first behind it.
        columns: (usize, usize),
        /// Rows of the group that have entries in these columns.
        found: usize,
        /// How many the pattern keeps.
        limit: usize,
    },
    /// A position beyond its group, in a matrix with an N:M pattern.
    #[error(
        "kept row {kept_row}, vector {vector}: index {found} is not below the {rows} rows of group {group}; an \
         index counts rows from the start of its group"
    )]
    NmIndexRange {
        /// Number of the kept row, from 0.
        kept_row: usize,
        /// Number of the vector, from 0.
        vector: usize,
        /// The group of the kept row.
        group: usize,
        /// The index that is too large.
        found: u8,
        /// Rows of the group.
        rows: usize,
    },
    /// Positions that do not ascend, in a matrix with an N:M pattern.
    #[error(
        "kept row {kept_row}, vector {vector}: index {found} follows {before}; the indices of a vector must ascend \
         in group {group}: sort them together with their values, and merge those that are equal"
    )]
    NmIndexOrder {
        /// Number of the kept row, from 0.
        kept_row: usize,
        /// Number of the vector, from 0.
        vector: usize,
        /// The group of the kept row.
        group: usize,
        /// The index that does not ascend.
        found: u8,
        /// The index of the kept row before.
        before: u8,
    },
    /// Packed indices of an N:M pattern that say more than they should.
    #[error(
        "the last byte of the packed indices is {last:#04x}, but only its lowest {used} bits hold indices; the \
         others must be 0"
    )]
    NmSpareBits {
        /// The last byte of the packed indices.
        last: u8,
        /// Its bits that hold indices.
        used: usize,
    },
    /// A name that stands for no synthetic matrix.
    #[error("no synthetic matrix is called {found:?}; there are {known}")]
    UnknownSynthetic {
        /// The name that was given.
        found: String,
        /// The names that exist.
        known: String,
    },
    /// A tensor with a mode of more than 2³² − 1 indices.
    #[error(
        "mode {mode} has {found} indices, more than the {limit} that 32 bits can name; split the tensor",
        limit = u32::MAX
    )]
    ModeTooLarge {
        /// The mode, from 0.
        mode: usize,
        /// The dimension asked for.
        found: usize,
    },
    /// Numbers that put the modes of a tensor in no order.
    #[error("{found:?} is no order of three modes; give 0, 1 and 2, each once")]
    ModeOrder {
        /// The modes in the order that was given.
        found: [usize; 3],
    },
    /// An entry beyond the tensor, in a list of coordinates.
    #[error(
        "entry {entry} (index {index:?}, value {value}) lies outside of {} × {} × {}",
        dims[0], dims[1], dims[2]
    )]
    TensorEntryOutOfRange {
        /// Position in the list.
        entry: usize,
        /// Its index in each mode.
        index: [u32; 3],
        /// The value of the entry, printed.
        value: String,
        /// The dimensions of the tensor.
        dims: [usize; 3],
    },
    /// A coordinate beyond the tensor, in arrays of coordinates that were not made by this library.
    #[error("entry {entry}: coordinate {coordinate} of mode {mode} is not below {dim}")]
    CoordinateOutOfRange {
        /// Position in the list.
        entry: usize,
        /// The first mode whose coordinate is wrong.
        mode: usize,
        /// The coordinate found; a negative one as 2³² or 2⁶⁴ less so much, by the bits that coordinates have.
        coordinate: u64,
        /// The dimension of the mode.
        dim: usize,
    },
    /// An array of a tensor in compressed sparse fibers that breaks one of the invariants listed at
    /// [`Csf3`](crate::Csf3).
    #[error("CSF invariant {invariant} does not hold: {detail}")]
    Csf3 {
        /// The invariant's label, for example `"F2"`.
        invariant: &'static str,
        /// The place and the numbers.
        detail: String,
    },
    /// A power law that no index can be drawn from.
    #[error("mode {mode}: there is no power law with exponent {exponent}; give a finite number of 0 or more")]
    PowerLaw {
        /// The mode, from 0.
        mode: usize,
        /// The exponent that was given, printed.
        exponent: String,
    },
    /// The machine refused an allocation.
    #[error("{bytes} bytes for {what} could not be allocated; free memory, or compute in smaller parts")]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// How much was asked for.
        bytes: u64,
    },
}
