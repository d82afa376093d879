//! The columns of rows, and of pairs.

use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::rows::CountColumnsParams;
use super::{List, Lists, THREADS, common, is_sampled, item};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Columns of a list at most.
pub const LIST_COLUMNS: u32 = 128;

/// Arguments of [`CountLists`] and [`WriteLists`].
///
/// # Obligations
/// - `row_offsets` are those of a valid CSR with the entries that `columns` counts; `members` are `clusters` of its
///   rows;
/// - `columns`: what [`CountColumns`](super::CountColumns) made;
/// - for [`CountLists`], `lengths` and `lists.facts` have an element for each of them;
/// - for [`WriteLists`], `lists.begins` are the exclusive sums of these lengths, and `lists.columns` has as many
///   elements as the last says.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListsParams {
    /// Offsets of all rows.
    pub row_offsets: GlobalPtr<u32>,
    /// The rows that have entries.
    pub members: GlobalPtr<u32>,
    /// Columns of each list.
    pub lengths: GlobalPtr<u32>,
    /// The lists that are made.
    pub lists: Lists,
    /// The matrix's columns, and how many entries each has.
    pub columns: CountColumnsParams,
    /// The rows that have entries.
    pub clusters: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// How many columns the list of each row has, and of what it is a sample. A warp for each row.
pub struct CountLists;

/// The lists. A warp for each row.
pub struct WriteLists;

/// Whether an entry's column is in its row's list, if that is a sample of this shift; and the column.
///
/// # Safety
/// The obligations of the params; `entry` is below the number of entries.
#[inline(always)]
unsafe fn is_listed<S: Simt>(s: &S, p: &ListsParams, entry: u32, shift: u32) -> (bool, u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let column = s.load_readonly(p.columns.col_indices.at(entry));
        (is_sampled(column, shift) && s.load_readonly(p.columns.counter(column)) > 1, column)
    }
}

/// Columns in a sample of a row's entries. Group: warp.
///
/// # Safety
/// The obligations of the params; all lanes are here, with the same row and shift.
#[inline(always)]
unsafe fn listed<S: Simt>(s: &S, p: &ListsParams, (begin, end): (u32, u32), shift: u32) -> u32 {
    let mut sum = 0;
    let mut entry = begin + s.lane();
    // SAFETY: entries below the row's end; all lanes are here.
    unsafe {
        while entry < end {
            sum += u32::from(is_listed(s, p, entry, shift).0);
            entry += WARP;
        }
        let mut mask = WARP / 2;
        while mask >= 1 {
            sum += s.shuffle_xor(sum, mask);
            mask /= 2;
        }
    }
    sum
}

/// The warp's cluster, and the entries of its row.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn row_of<S: Simt>(s: &S, p: &ListsParams, cluster: u32) -> (u32, u32) {
    // SAFETY: the caller has such a cluster.
    unsafe {
        let row = s.load_readonly(p.members.at(cluster));
        (s.load_readonly(p.row_offsets.at(row)), s.load_readonly(p.row_offsets.at(row + 1)))
    }
}

impl Kernel for CountLists {
    type Params = ListsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::CountLists;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS / WARP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListsParams) {
        let cluster = s.block_idx() * (THREADS / WARP) + s.warp();
        if cluster >= p.clusters {
            return; // the whole warp
        }
        // SAFETY: the obligations of the params; what is looped over is the warp's.
        unsafe {
            let (begin, end) = row_of(s, p, cluster);
            let mut length = listed(s, p, (begin, end), 0);
            let mut shift = 0;
            if length > LIST_COLUMNS {
                shift = 31 - (length / LIST_COLUMNS).leading_zeros();
                if shift > 0 {
                    length = listed(s, p, (begin, end), shift);
                }
                while length > LIST_COLUMNS {
                    shift += 1;
                    length = listed(s, p, (begin, end), shift);
                }
            }
            if s.lane() == 0 {
                s.store(p.lengths.at(cluster), length);
                s.store(p.lists.facts.at(cluster), [shift, end - begin]);
            }
        }
    }
}

impl Kernel for WriteLists {
    type Params = ListsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::WriteLists;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS / WARP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListsParams) {
        let cluster = s.block_idx() * (THREADS / WARP) + s.warp();
        if cluster >= p.clusters {
            return; // the whole warp
        }
        // SAFETY: the obligations of the params; the loop has the warp's bounds, and every column a place of its own.
        unsafe {
            let (begin, end) = row_of(s, p, cluster);
            let [shift, _] = s.load_readonly(p.lists.facts.at(cluster));
            let mut to = s.load_readonly(p.lists.begins.at(cluster));
            let mut first = begin;
            while first < end {
                let entry = first + s.lane();
                let (is_listed, column) =
                    if entry < end { is_listed(s, p, entry, shift) } else { (false, 0) };
                let votes = s.ballot(is_listed);
                if is_listed {
                    let before = (votes & ((1 << s.lane()) - 1)).count_ones();
                    s.store(p.lists.columns.at(to + before), column);
                }
                to += votes.count_ones();
                first += WARP;
            }
        }
    }
}

/// Arguments of [`CountUnions`] and [`WriteUnions`].
///
/// # Obligations
/// - `lists` are those of the clusters that `pairs` names;
/// - for [`CountUnions`], `lengths` and `united.facts` have `count` elements; for [`WriteUnions`], `united.begins` are
///   the exclusive sums of these lengths, and `united.columns` has as many elements as the last says; what is written
///   overlaps nothing that is read.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct UnionsParams {
    /// Columns of the clusters.
    pub lists: Lists,
    /// The two clusters of each.
    pub pairs: GlobalPtr<[u32; 2]>,
    /// Columns of each pair's list.
    pub lengths: GlobalPtr<u32>,
    /// Columns of the pairs.
    pub united: Lists,
    /// How many pairs there are.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// How many columns the list of each pair has, and of what it is a sample. A thread for each pair.
pub struct CountUnions;

/// The lists of pairs. A thread for each pair.
pub struct WriteUnions;

/// The columns of two lists that are in samples of a shift, ascending, each once: counted, and stored unless `to` is
/// null.
///
/// # Safety
/// As for [`List::load`]; there is room for all at `to`.
#[inline(always)]
unsafe fn unite<S: Simt>(
    s: &S,
    columns: GlobalPtr<u32>,
    (a, b): (List, List),
    shift: u32,
    to: GlobalPtr<u32>,
) -> u32 {
    let (mut i, mut j, mut count) = (a.begin, b.begin, 0);
    // SAFETY: the caller's promise; `i` and `j` are below the ends where they are read.
    unsafe {
        while i < a.end || j < b.end {
            // No column has the greatest number.
            let x = if i < a.end { s.load_readonly(columns.at(i)) } else { u32::MAX };
            let y = if j < b.end { s.load_readonly(columns.at(j)) } else { u32::MAX };
            let column = if x < y { x } else { y };
            if is_sampled(column, shift) {
                if to != GlobalPtr::NULL {
                    s.store(to.at(count), column);
                }
                count += 1;
            }
            i += u32::from(x <= y);
            j += u32::from(y <= x);
        }
    }
    count
}

impl Kernel for CountUnions {
    type Params = UnionsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::CountUnions;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &UnionsParams) {
        let pair = item(s);
        if pair >= p.count {
            return;
        }
        // SAFETY: the obligations of the params.
        unsafe {
            let [a, b] = s.load_readonly(p.pairs.at(pair));
            let (a, b) = (List::load(s, &p.lists, a), List::load(s, &p.lists, b));
            let mut shift = if a.shift > b.shift { a.shift } else { b.shift };
            let shared = u64::from(common(s, p.lists.columns, a, b)) << shift;
            let least = if a.size < b.size { a.size } else { b.size };
            let shared = if shared < u64::from(least) { shared as u32 } else { least };
            let size = (a.size - shared).saturating_add(b.size);
            let mut length = unite(s, p.lists.columns, (a, b), shift, GlobalPtr::NULL);
            while length > LIST_COLUMNS {
                shift += 1;
                length = unite(s, p.lists.columns, (a, b), shift, GlobalPtr::NULL);
            }
            s.store(p.lengths.at(pair), length);
            s.store(p.united.facts.at(pair), [shift, size]);
        }
    }
}

impl Kernel for WriteUnions {
    type Params = UnionsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::WriteUnions;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &UnionsParams) {
        let pair = item(s);
        if pair >= p.count {
            return;
        }
        // SAFETY: the obligations of the params: the sums have room for what was counted.
        unsafe {
            let [a, b] = s.load_readonly(p.pairs.at(pair));
            let (a, b) = (List::load(s, &p.lists, a), List::load(s, &p.lists, b));
            let [shift, _] = s.load_readonly(p.united.facts.at(pair));
            let to = p.united.columns.at(s.load_readonly(p.united.begins.at(pair)));
            unite(s, p.lists.columns, (a, b), shift, to);
        }
    }
}

/// The Jaccard similarity of two clusters that have so many columns of their lists in common, in 2⁻¹⁶.
#[inline(always)]
pub(super) fn similarity(a: List, b: List, common: u32) -> u32 {
    let shift = if a.shift > b.shift { a.shift } else { b.shift };
    let all = (a.size >> shift).saturating_add(b.size >> shift);
    let union = all.saturating_sub(common);
    let union = if union > common { union } else { common };
    (common << 16) / NonZeroU32::new(union).unwrap_or(NonZeroU32::MIN)
}
