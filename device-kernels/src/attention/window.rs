//! What the entries of a window are.

/// What the entries of a window are, and which of its rows have them.
pub trait WindowForm: 'static {
    /// Rows of a window, 4 or 8.
    const ROWS: u32;
    /// Whether an entry may be of several rows.
    const SHARED: bool;
    /// Bits of an entry that are its column; the others say of which rows it is, the lowest of the first.
    const COLUMN_BITS: u32 = if Self::SHARED { 32 - Self::ROWS } else { 32 };
    /// Rows that a lane has scores of.
    const LANE_ROWS: usize = Self::ROWS as usize / 4;

    /// The column of an entry.
    #[inline(always)]
    #[must_use]
    fn column(entry: u32) -> u32 {
        if Self::SHARED { entry & ((1 << (Self::COLUMN_BITS % 32)) - 1) } else { entry }
    }

    /// The rows of an entry that is shared, one bit each.
    #[inline(always)]
    #[must_use]
    fn rows_of(entry: u32) -> u32 {
        if Self::SHARED { entry >> (Self::COLUMN_BITS % 32) } else { 0 }
    }
}

/// A matrix in CSR as it is: `offsets` says where each row begins and the last ends, entries are columns. What follows
/// one row is the next, so that rows of any length fill the steps of their window.
pub struct ByEntries<const ROWS: u32>;

/// The distinct columns of each window, in ascending order, each with the rows that have it: a row of `K` and `V` is
/// gathered once for all of them. `offsets` says where each window begins and the last ends.
pub struct ByColumns<const ROWS: u32>;

impl<const ROWS: u32> WindowForm for ByEntries<ROWS> {
    const ROWS: u32 = ROWS;
    const SHARED: bool = false;
}

impl<const ROWS: u32> WindowForm for ByColumns<ROWS> {
    const ROWS: u32 = ROWS;
    const SHARED: bool = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_a_column_and_its_rows() {
        assert_eq!((ByEntries::<8>::COLUMN_BITS, ByEntries::<4>::column(u32::MAX)), (32, u32::MAX));
        type Four = ByColumns<4>;
        type Eight = ByColumns<8>;
        assert_eq!((Four::COLUMN_BITS, Eight::COLUMN_BITS), (28, 24));
        let entry = 5 | 0b1010 << 28;
        assert_eq!((Four::column(entry), Four::rows_of(entry)), (5, 0b1010));
        let entry = 0xff_ffff | 0x81 << 24;
        assert_eq!((Eight::column(entry), Eight::rows_of(entry)), (0xff_ffff, 0x81));
    }
}
