//! `{<g nnz, c col>, r}`: threads own successive entries, whatever row they are in.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::columns::{Columns, add_product, read_elements};
use super::{MOST_THREADS, Place};
use crate::element::{Dtype, Element};
use crate::kernel::Kernel;
use crate::output::Summed;
use crate::real::Real;
use crate::reduce::segment_carry;
use crate::spmm::dense::Dense;
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`NonzeroGroups`].
///
/// A *group* is `reduction` threads' entries, `each · reduction` of them; the last may have fewer. A row that is not
/// empty *starts* at its first entry.
///
/// # Obligations
/// - `col_indices` and `values`: entries in the order of rows, `nnz < 2³² − 1024`, readable up to a multiple of 32;
///   16-byte aligned. Columns of entries are below k.
/// - `starts[i]`: bit `j` tells whether a row starts at entry `32·i + j`; and the number of starts before entry `32·i`.
///   There is one more than entries need, with none set.
/// - `rows`: the rows that are not empty, in order; null, if that is all rows.
/// - `slots`: for each group the slot of its first piece of a row that is cut. A group has at most two: of the row that
///   continues from the group before, and of that which continues in the next, whose slot is one more. Null if no row
///   is cut.
/// - `empty_rows`: those without entries.
/// - `each` is a multiple of what the instance reads at once; `lanes · reduction ≤ 32`, of which the params have
///   logarithms; `groups` are those of all entries; blocks have a multiple of 32 threads, and all of the grid fewer
///   than 2³².
/// - `vectors` is not 0 only if `b` is aligned to the thread's columns, and `ldb` is a multiple of them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NonzeroGroupsParams {
    /// `B`, `C` and the workspace.
    pub dense: Dense,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, in the element type's bits.
    pub values: GlobalPtr<u32>,
    /// Starts of rows, and how many there are before.
    pub starts: GlobalPtr<[u32; 2]>,
    /// Rows that are not empty.
    pub rows: GlobalPtr<u32>,
    /// First slot of each group.
    pub slots: GlobalPtr<u32>,
    /// Rows that are empty: they become `β·C`.
    pub empty_rows: GlobalPtr<u32>,
    /// Number of entries of `A`.
    pub nnz: u32,
    /// Rows without entries, listed in `empty_rows`.
    pub empty_count: u32,
    /// Entries of a thread.
    pub each: u32,
    /// Groups of threads, `⌈nnz / (each · reduction)⌉`.
    pub groups: u32,
    /// Logarithm of the threads of a group.
    pub reduction_log2: u32,
    /// Logarithm of the lanes side by side along the width.
    pub lanes_log2: u32,
    /// Whether a thread reads its columns of `B` at once.
    pub vectors: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// One instance: the element type, the entries that a thread reads at once, and its columns.
pub struct NonzeroGroups<E, const N: usize, const C: usize>(PhantomData<E>);

impl<E: Element, const N: usize, const C: usize> Kernel for NonzeroGroups<E, N, C> {
    type Params = NonzeroGroupsParams;
    const FILE: &'static str = "spmm/segment_group";
    const VARIANT: Variant = Variant::NonzeroGroups { dtype: E::DTYPE, at_once: N as u32, columns: C as u32 };
    const BLOCK_THREADS: u32 = MOST_THREADS;
    // 64 registers a thread, with which every type does without spills but f64 with four columns, or two of four
    // entries. Left to itself, `ptxas` takes up to 80, and a multiprocessor holds six blocks of 128 threads instead of
    // eight.
    const MIN_BLOCKS: u32 = if matches!(E::DTYPE, Dtype::F64) && (C == 4 || C * N == 8) { 1 } else { 2 };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NonzeroGroupsParams) {
        // SAFETY: the obligations of the params are what the reduction demands.
        unsafe { reduce_segments::<S, E, Rows, N, C>(s, p, Rows) }
    }
}

/// What entries are multiplied by.
pub(super) trait Factors: Copy {
    /// The products of the factors of `N` entries in the thread's columns: the number of the first comes with the
    /// columns of all. The first `present` are read; else zeros.
    ///
    /// # Safety
    /// Columns of entries are rows of `B`; the number is a multiple of `N`, and the entries exist, or are in the
    /// padding.
    unsafe fn fetch<S: Simt, E: Element, const N: usize, const C: usize>(
        self,
        s: &S,
        columns: &Columns<'_, C>,
        entries: (u32, &[u32; N]),
        present: u32,
    ) -> [[E::Sum; C]; N];
}

/// A row of `B`.
#[derive(Clone, Copy)]
struct Rows;

impl Factors for Rows {
    #[inline(always)]
    unsafe fn fetch<S: Simt, E: Element, const N: usize, const C: usize>(
        self,
        s: &S,
        columns: &Columns<'_, C>,
        (_, cols): (u32, &[u32; N]),
        present: u32,
    ) -> [[E::Sum; C]; N] {
        // SAFETY: columns of entries are rows of `B`, by the caller's promise.
        unsafe { columns.fetch::<S, E, N>(s, cols, present) }
    }
}

/// The sums of all rows, whatever their entries are multiplied by.
///
/// # Safety
/// As for [`NonzeroGroupsParams`] and the factors.
#[inline(always)]
pub(super) unsafe fn reduce_segments<S: Simt, E: Element, F: Factors, const N: usize, const C: usize>(
    s: &S,
    p: &NonzeroGroupsParams,
    factors: F,
) {
    const { assert!(matches!(N, 1 | 2 | 4), "a vector of entries at most") }
    // 1. Locate.
    let place = Place::locate(s, p.lanes_log2, C as u32);
    let columns = Columns::<C>::new::<E>(&p.dense, place.column, p.vectors);
    let shape = place.group(p.reduction_log2);
    let entries_of_group = p.each << p.reduction_log2;
    let mut first = place.warp_worker >> p.reduction_log2; // group of the warp's first lane
    // SAFETY: entries are below nnz where they are read, or in the padding; all lanes of a warp run the loop equally
    // often, so that they reach the shuffles together.
    unsafe {
        while first < p.groups {
            let group = first + (place.worker >> p.reduction_log2);
            // The products do not wrap: a group that is not there begins beyond 2³² at most where `min` cuts it.
            let begin = u64::from(group) * u64::from(entries_of_group);
            let mine = begin + u64::from(shape.place(s.lane()) * p.each);
            let (begin, mine) = (begin as u32, mine.min(u64::from(p.nnz)) as u32);
            let end = mine + p.each.min(p.nnz - mine);
            let chunk = if columns.any() {
                // 2. to 4. Gather and accumulate; rows that begin and end here are written.
                Chunk::<E::Sum, C>::sum::<S, E, F, N>(s, p, (&columns, factors), mine..end)
            } else {
                Chunk::NONE
            };
            let carry = segment_carry(s, shape, chunk.tail, chunk.starts);
            // 5. Registers -> global: the row that ends here and began before, and the last.
            let head = add(chunk.head, carry.sum);
            let tail = if chunk.starts { chunk.tail } else { add(chunk.tail, carry.sum) };
            let started = chunk.starts || carry.started;
            let last = shape.place(s.lane()) + 1 == 1 << p.reduction_log2;
            let ends = end == p.nnz || starts_at(s, p, end);
            if columns.any() && mine < end {
                if chunk.has_head {
                    if carry.started {
                        columns.finish(s, row_of(s, p, chunk.first), head);
                    } else {
                        columns.keep(s, s.load_readonly(p.slots.at(group)), head);
                    }
                }
                if ends && started {
                    columns.finish(s, row_of(s, p, chunk.last), tail);
                } else if ends || last {
                    let second = started && !starts_at(s, p, begin);
                    let slot = s.load_readonly(p.slots.at(group)) + u32::from(second);
                    columns.keep(s, slot, tail);
                }
            }
            first += place.workers >> p.reduction_log2;
        }
        let mut at = place.warp_worker + place.worker;
        while at < p.empty_count {
            if columns.any() {
                columns.finish(s, s.load_readonly(p.empty_rows.at(at)), [E::Sum::ZERO; C]);
            }
            at += place.workers;
        }
    }
}

/// What a thread has of its entries when it has walked them.
#[derive(Clone, Copy)]
struct Chunk<T, const C: usize> {
    /// The row that began before, if it ends here.
    has_head: bool,
    head: [T; C],
    /// The last row, and whether any row starts here.
    tail: [T; C],
    starts: bool,
    /// Numbers, among rows that are not empty, of the first and the last row.
    first: u32,
    last: u32,
}

impl<T: Summed, const C: usize> Chunk<T, C> {
    const NONE: Self =
        Self { has_head: false, head: [T::ZERO; C], tail: [T::ZERO; C], starts: false, first: 0, last: 0 };

    /// # Safety
    /// The entries exist, and begin at a multiple of those that a thread has.
    #[inline(always)]
    unsafe fn sum<S: Simt, E: Element<Sum = T>, F: Factors, const N: usize>(
        s: &S,
        p: &NonzeroGroupsParams,
        (columns, factors): (&Columns<'_, C>, F),
        entries: core::ops::Range<u32>,
    ) -> Self {
        let mut chunk = Self::NONE;
        let mut at = entries.start;
        if at >= entries.end {
            return chunk;
        }
        // SAFETY: entries are below nnz, or in the padding, which is read and not used.
        unsafe {
            let [bits, before] = s.load_readonly(p.starts.at(at / 32));
            // Not below zero: entry 0 starts a row.
            chunk.first = before + s.population(u64::from(bits & (2u32 << (at % 32)).wrapping_sub(1))) - 1;
            chunk.last = chunk.first;
            while at < entries.end {
                let [bits, _] = s.load_readonly(p.starts.at(at / 32));
                let bits = bits >> (at % 32);
                let (cols, weights) = read_entries::<S, E, N>(s, p, at);
                let present = entries.end - at;
                let elements = factors.fetch::<S, E, N, C>(s, columns, (at, &cols), present);
                each::<N>(|u| {
                    if (u as u32) < present {
                        if bits >> u & 1 != 0 {
                            if at + u as u32 > entries.start {
                                chunk.end_row(s, p, columns);
                            }
                            chunk.starts = true;
                        }
                        add_product(s, weights[u], elements[u], &mut chunk.tail);
                    }
                });
                at += N as u32;
            }
        }
        chunk
    }

    /// A row starts, the one before has ended.
    #[inline(always)]
    unsafe fn end_row<S: Simt>(&mut self, s: &S, p: &NonzeroGroupsParams, columns: &Columns<'_, C>) {
        if self.starts {
            // SAFETY: the row began here, too: nobody else has entries of it.
            unsafe { columns.finish(s, row_of(s, p, self.last), self.tail) };
        } else {
            (self.head, self.has_head) = (self.tail, true);
        }
        self.tail = [T::ZERO; C];
        self.last += 1;
    }
}

/// `N` entries from a multiple of `N` on.
#[inline(always)]
unsafe fn read_entries<S: Simt, E: Element, const N: usize>(
    s: &S,
    p: &NonzeroGroupsParams,
    at: u32,
) -> ([u32; N], [E::Sum; N]) {
    let (mut cols, mut weights) = ([0; N], [E::Sum::ZERO; N]);
    let values = p.values.cast::<E::Bits>().at(at);
    let from = p.col_indices.at(at);
    // SAFETY: `N` entries exist from `at` on, or padding that can be read, by the obligations of the params.
    unsafe {
        if N == 4 {
            let four = s.load_readonly(from.cast::<[u32; 4]>());
            let wide = read_elements::<S, E, N>(s, values);
            each::<N>(|u| (cols[u], weights[u]) = (four[u], wide[u]));
        } else {
            let mut u = 0;
            while u < N {
                cols[u] = s.load_readonly(from.at(u as u32));
                weights[u] = E::widen(s, s.load_readonly(values.at(u as u32)));
                u += 1;
            }
        }
    }
    (cols, weights)
}

/// Whether a row starts at an entry that exists.
#[inline(always)]
unsafe fn starts_at<S: Simt>(s: &S, p: &NonzeroGroupsParams, entry: u32) -> bool {
    // SAFETY: the entry exists, and `starts` has a pair for each 32 entries.
    let [bits, _] = unsafe { s.load_readonly(p.starts.at(entry / 32)) };
    bits >> (entry % 32) & 1 != 0
}

/// The row whose number among those that are not empty is this.
#[inline(always)]
unsafe fn row_of<S: Simt>(s: &S, p: &NonzeroGroupsParams, number: u32) -> u32 {
    if p.rows == GlobalPtr::NULL {
        number
    } else {
        // SAFETY: `rows` names every row that is not empty, of which the caller's is one.
        unsafe { s.load_readonly(p.rows.at(number)) }
    }
}

#[inline(always)]
fn add<T: Real, const C: usize>(mut a: [T; C], b: [T; C]) -> [T; C] {
    let mut i = 0;
    while i < C {
        a[i] = a[i] + b[i];
        i += 1;
    }
    a
}
