//! Which rows and entries a block has.

use windrow_simt::{Simt, WARP};

use super::{MergeBasedParams, min};

/// What a block works on: rows and entries of the matrix, and how many of each.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) first_row: u32,
    pub(super) rows: u32,
    pub(super) first_entry: u32,
    pub(super) entries: u32,
    /// Whether the first row began before.
    pub(super) continued: bool,
}

/// Rows that have ended before item `diagonal`. Group: full warp.
///
/// # Safety
/// The obligations of the params; collective: all 32 lanes.
#[inline(always)]
unsafe fn rows_before<S: Simt>(s: &S, p: &MergeBasedParams, diagonal: u32) -> u32 {
    let (mut low, mut high) = (0, p.read.rows);
    while low < high {
        // Each lane asks whether the last row of a thirty-second of the range has ended.
        let step = (high - low - 1) / WARP + 1;
        let last = low + (s.lane() + 1) * step - 1;
        // SAFETY: offsets are read up to that behind the last row; all lanes have the same range.
        let ended = unsafe {
            let end = if last < high { p.offset(s, last + 1) } else { u64::MAX };
            let has_ended = end <= u64::from(p.read.entries) && end + u64::from(last) < u64::from(diagonal);
            s.ballot(has_ended)
        };
        low += s.population(u64::from(ended)) * step;
        high = min(high, low + step - 1);
    }
    low
}

/// The rows and entries of this block; none if the offsets are wrong.
///
/// # Safety
/// The obligations of the params; all threads of the block.
#[inline(always)]
pub(super) unsafe fn find<S: Simt>(s: &S, p: &MergeBasedParams) -> Option<Block> {
    let first = s.block_idx() * p.span;
    let after = min(first + p.span, p.items());
    // SAFETY: the first two warps search, each as a whole; offsets are read up to that behind the last row.
    unsafe {
        if s.warp() < 2 {
            let row = rows_before(s, p, if s.warp() == 0 { first } else { after });
            if s.lane() == 0 {
                s.store_shared(4 * s.warp(), row);
            }
        }
        s.sync_block(); // RAW: both rows written -> read
        let (first_row, end_row) = (s.load_shared::<u32>(0), s.load_shared::<u32>(4));
        let entry = |diagonal: u32, row: u32| min(diagonal.saturating_sub(row), p.read.entries);
        let (first_entry, end_entry) = (entry(first, first_row), entry(after, end_row));
        let ascend = first_row <= end_row && first_entry <= end_entry;
        let is_last = after == p.items();
        if !ascend || is_last && (end_row < p.read.rows || end_entry < p.read.entries) {
            return None;
        }
        let (rows, entries) = (end_row - first_row, end_entry - first_entry);
        if rows + entries > p.span {
            return None;
        }
        let continued = p.offset(s, first_row) < u64::from(first_entry);
        Some(Block { first_row, rows, first_entry, entries, continued })
    }
}

/// Counts a block that found something wrong.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
pub(super) unsafe fn tell_fault<S: Simt>(s: &S, p: &MergeBasedParams) {
    if s.thread_idx() == 0 {
        // SAFETY: it is only added to.
        unsafe { s.atomic_add_u32(p.faults, 1) };
    }
}

/// Whether a warp has found something wrong.
///
/// # Safety
/// All warps have written their words, before a barrier.
#[inline(always)]
pub(super) unsafe fn faults<S: Simt>(s: &S, at: u32) -> bool {
    // SAFETY: the caller's promise.
    let [[a, b, c, d], [e, f, g, h]] =
        unsafe { [s.load_shared::<[u32; 4]>(at), s.load_shared::<[u32; 4]>(at + 16)] };
    (a | b | c | d | e | f | g | h) != 0
}
