//! An order of the rows in which neighbours share columns: rows paired by min-wise hashing, level by level, to windows.
//!
//! What is computed, and why, is said at the host's
//! [order of the same name](https://docs.rs/windrow-preprocess/latest/windrow_preprocess/reorder/struct.MinHash.html):
//! the same integers here and there, so the same order. A cluster is a row, a pair, or a pair of pairs.
//!
//! ```text
//! row_offsets --RowLengths, scan, ListFilled-->    members    rows with entries; those without end the order
//! col_indices --CountColumns-->                  counts     of each column, or of several: whether others have it
//! members     --CountLists, scan, WriteLists-->  columns    of each cluster, a sample of a long row
//! then in each level, twice
//!   columns   --ClusterKeys, sort-->             sequence   by the column of least hash; seven times, each by another
//!   sequence  --CollectCandidates-->             candidates the four most similar of all that were near
//!   candidates --Propose, Match-->               partners   who are each other's best, six times
//!   partners  --scan, ListLeft-->                left       who have none yet; in the end PairLeft pairs them in order
//! and to the next level
//!   partners  --MarkPairs, scan, ListPairs-->    pairs, members
//!   pairs     --CountUnions, scan, WriteUnions--> columns   of each pair
//! in the end
//!   order     --CountVectors-->                  columns of all windows: what an order is judged by
//! ```
//!
//! | kernel | a thread is |
//! | --- | --- |
//! | [`CountColumns`], [`CountVectors`] | an entry |
//! | [`CountLists`], [`WriteLists`] | an entry of a row, a warp the row |
//! | [`CollectCandidates`] | two clusters, eight threads all that are near one |
//! | the others | a row, a cluster, or a pair |

mod candidates;
mod lists;
mod pairs;
mod rows;

pub use candidates::{
    CANDIDATES, ClusterKeys, ClusterKeysParams, CollectCandidates, CollectCandidatesParams, REACH,
};
pub use lists::{CountLists, CountUnions, LIST_COLUMNS, ListsParams, UnionsParams, WriteLists, WriteUnions};
pub use pairs::{
    ListLeft, ListLeftParams, ListPairs, ListPairsParams, MarkPairs, Match, PairLeft, Propose, ProposeParams,
};
pub use rows::{
    CountColumns, CountColumnsParams, CountVectors, CountVectorsParams, ListFilled, ListFilledParams,
    PlaceOrder,
};

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;
/// In place of a partner: none.
pub const NO_PARTNER: u32 = u32::MAX;

/// The columns of clusters.
///
/// # Obligations
/// `begins` ascends and has an element more than there are clusters; the list of cluster `i` is
/// `columns[begins[i] .. begins[i + 1]]`, ascending, at most [`LIST_COLUMNS`] long; `facts` has an element for each.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Lists {
    /// Where each list begins, and the end.
    pub begins: GlobalPtr<u32>,
    /// The columns of all lists.
    pub columns: GlobalPtr<u32>,
    /// `[shift, size]`: columns of the list have a hash that begins with so many zeros; distinct columns, or about.
    pub facts: GlobalPtr<[u32; 2]>,
}

/// The list of a cluster.
#[derive(Clone, Copy)]
struct List {
    begin: u32,
    end: u32,
    shift: u32,
    size: u32,
}

impl List {
    /// # Safety
    /// The obligations of [`Lists`], of which nothing is written in this launch; there is such a cluster.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, lists: &Lists, cluster: u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let [shift, size] = s.load_readonly(lists.facts.at(cluster));
            let begin = s.load_readonly(lists.begins.at(cluster));
            Self { begin, end: s.load_readonly(lists.begins.at(cluster + 1)), shift, size }
        }
    }

    #[inline(always)]
    fn len(self) -> u32 {
        self.end - self.begin
    }
}

/// The columns that two lists have in common.
///
/// # Safety
/// As for [`List::load`].
#[inline(always)]
unsafe fn common<S: Simt>(s: &S, columns: GlobalPtr<u32>, a: List, b: List) -> u32 {
    let (mut i, mut j, mut common) = (a.begin, b.begin, 0);
    if i == a.end || j == b.end {
        return 0;
    }
    // SAFETY: the caller's promise; `i` and `j` are below the ends.
    unsafe {
        let (mut x, mut y) = (s.load_readonly(columns.at(i)), s.load_readonly(columns.at(j)));
        loop {
            let (first, second) = (x <= y, y <= x);
            common += u32::from(first && second);
            i += u32::from(first);
            j += u32::from(second);
            if i == a.end || j == b.end {
                return common;
            }
            if first {
                x = s.load_readonly(columns.at(i));
            }
            if second {
                y = s.load_readonly(columns.at(j));
            }
        }
    }
}

/// A bijection of 32-bit numbers that looks random; the host's.
#[inline(always)]
const fn hash(x: u32) -> u32 {
    let x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    let x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

/// Whether a column is in samples of a shift.
#[inline(always)]
fn is_sampled(column: u32, shift: u32) -> bool {
    hash(column).leading_zeros() >= shift
}

/// The thread's number in the grid.
#[inline(always)]
fn item<S: Simt>(s: &S) -> u32 {
    s.block_idx() * THREADS + s.thread_idx()
}

/// Element `i` of a list, which is null for `0, 1, 2, …`.
///
/// # Safety
/// The list is null or has the element, which nothing writes in this launch.
#[inline(always)]
unsafe fn element<S: Simt>(s: &S, list: GlobalPtr<u32>, i: u32) -> u32 {
    if list == GlobalPtr::NULL {
        return i;
    }
    // SAFETY: the caller's promise.
    unsafe { s.load_readonly(list.at(i)) }
}
