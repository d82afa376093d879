//! Attention on CUDA cores: a warp for each row.
//!
//! ```text
//!           lane 0         lane 1      ...  lane LANES-1
//! way 0   K[col 0][0..4)     [4..8)              ...          entries 0, WAYS, 2·WAYS, ...
//! way 1   K[col 1][0..4)     [4..8)              ...          entries 1, WAYS+1, ...
//! ```
//!
//! A lane has the same elements of `Q`, `K`, `V` and the result. Products of the lanes of a way are added by a
//! butterfly, and each way has a softmax of its own, over the entries that it takes; they are joined in the end, in a
//! fixed tree. For elements of any type and alignment; in f32 nothing is rounded but sums.

use core::marker::PhantomData;

use windrow_simt::{Simt, WARP};

use super::block::Shares;
use super::sums::{Softmax, rescale};
use super::{ATTENTION_WARPS, AttentionParams, HeadMatrix};
use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::row_softmax::butterfly;
use crate::unroll::each;
use crate::variant::Variant;

/// Entries of a way whose rows are under way together.
const IN_FLIGHT: u32 = 2;

/// One instance: how rows are read, lanes across the width, and what each has of it, times a vector or an element.
pub struct AttentionRows<G, const LANES: u32, const PARTS: usize>(PhantomData<G>);

/// What a way has of a row.
struct State<const PARTS: usize> {
    softmax: Softmax,
    sums: [[f32; 8]; PARTS],
}

/// An entry whose row of `V` is under way.
struct Gathered<G: Gather, const PARTS: usize> {
    column: u32,
    score: f32,
    values: [G::Raw; PARTS],
}

/// The entries of one row that a warp walks.
struct Walk {
    head: u32,
    row: u32,
    begin: u32,
    end: u32,
    /// Entries from one step of the warp to the next.
    stride: u32,
}

impl<G: Gather, const LANES: u32, const PARTS: usize> AttentionRows<G, LANES, PARTS> {
    /// Columns that there is room for.
    pub const WIDTH: u32 = LANES * G::WIDTH * PARTS as u32;
    const WAYS: u32 = WARP / LANES;
    /// Entries of a warp's step.
    const STEP: u32 = Self::WAYS * IN_FLIGHT;
    const SHARES: Shares = Shares { at: 0, rows: 1, width: Self::WIDTH };
    const VALID: () =
        assert!(LANES.is_power_of_two() && LANES <= WARP, "a row of K is read inside of a warp");
}

impl<G: Gather<Element: Element<Sum = f32>>, const LANES: u32, const PARTS: usize> Kernel
    for AttentionRows<G, LANES, PARTS>
{
    type Params = AttentionParams;
    const FILE: &'static str = "attention/rows";
    const VARIANT: Variant =
        Variant::AttentionRows { dtype: G::Element::DTYPE, vectors: G::VECTORS, width: Self::WIDTH };
    const BLOCK_THREADS: u32 = ATTENTION_WARPS * WARP;
    const SHARED_BYTES: u32 = Self::SHARES.end();
    // Left to itself, `ptxas` spills a few registers to fit more blocks.
    const MIN_BLOCKS: u32 = match (Self::WIDTH, G::VECTORS) {
        (0..=128, _) => 8,
        (_, true) => 5,
        (_, false) => 3,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionParams) {
        const { Self::VALID }
        let (block, head) = (s.block_idx(), s.block_idx_y());
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets a
        // barrier of the block; rows are a warp's as a whole.
        unsafe {
            if block < p.piece_count {
                let [row, begin, end, slot] = s.load_readonly(p.pieces.at(block));
                let begin = (begin + s.warp() * Self::STEP).min(end);
                let walk = Walk { head, row, begin, end, stride: Self::STEP * ATTENTION_WARPS };
                let state = Self::walk(s, p, &walk);
                Self::each_sum(s, &state, |column, sum| {
                    s.store_shared(Self::SHARES.sum_at(s.warp(), 0, column), sum);
                });
                if s.lane() == 0 {
                    Self::SHARES.keep_state(s, s.warp(), 0, state.softmax);
                }
                s.sync_block(); // RAW: sums of warps written -> joined
                Self::SHARES.join(s, p, [head, row, slot]);
                return;
            }
            let row = (block - p.piece_count) * ATTENTION_WARPS + s.warp();
            if row >= p.rows {
                return;
            }
            let [begin, end] = [s.load_readonly(p.offsets.at(row)), s.load_readonly(p.offsets.at(row + 1))];
            if end - begin > p.longest {
                return;
            }
            let state = Self::walk(s, p, &Walk { head, row, begin, end, stride: Self::STEP });
            Self::each_sum(s, &state, |column, sum| {
                if column < p.out.columns {
                    let at = p.out.at(head, row, column);
                    p.out.store(s, p.out_type, at, sum * state.softmax.inverse());
                }
            });
            if s.lane() == 0 {
                p.keep_state(s, head, row, state.softmax);
            }
        }
    }
}

impl<G: Gather<Element: Element<Sum = f32>>, const LANES: u32, const PARTS: usize>
    AttentionRows<G, LANES, PARTS>
{
    /// The lane's first column of a part.
    #[inline(always)]
    fn column<S: Simt>(s: &S, part: usize) -> u32 {
        (part as u32 * LANES + s.lane() % LANES) * G::WIDTH
    }

    /// The lane's part of a row; zeros beyond the last column.
    ///
    /// # Safety
    /// The obligations of the params; there is such a row.
    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, of: &HeadMatrix, head: u32, row: u32, part: usize) -> G::Raw {
        let column = Self::column(s, part);
        // SAFETY: the caller's promise; columns are a multiple of what a lane reads.
        if column < of.columns { unsafe { G::fetch(s, of.first, of.at(head, row, column)) } } else { G::ZERO }
    }

    /// What the warp's entries add up to, joined from its ways: the same in each of them.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(s: &S, p: &AttentionParams, walk: &Walk) -> State<PARTS> {
        let way = s.lane() / LANES;
        let mut state = State { softmax: Softmax::EMPTY, sums: [[0.0; 8]; PARTS] };
        // SAFETY: the caller's promise; the bounds of the loop are the same for all lanes.
        unsafe {
            let mut query = [[0.0; 8]; PARTS];
            each::<PARTS>(|part| {
                query[part] = G::elements(s, Self::fetch(s, &p.q, walk.head, walk.row, part));
            });
            let mut at = walk.begin;
            while at < walk.end {
                // Not in a loop: what is under way stays in registers.
                let first = Self::gather(s, p, walk, &query, at + way);
                let second = Self::gather(s, p, walk, &query, at + way + Self::WAYS);
                let largest = first.score.max(second.score);
                if state.softmax.is_passed_by(largest) {
                    let factor = state.softmax.raise(s, largest);
                    each::<PARTS>(|part| each::<8>(|e| state.sums[part][e] *= factor));
                }
                Self::add(s, p, walk, &first, &mut state);
                Self::add(s, p, walk, &second, &mut state);
                at += walk.stride;
            }
            Self::join_ways(s, &mut state);
        }
        state
    }

    /// The entry at a position: its score, and its row of `V` under way; none behind the last.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn gather<S: Simt>(
        s: &S,
        p: &AttentionParams,
        walk: &Walk,
        query: &[[f32; 8]; PARTS],
        position: u32,
    ) -> Gathered<G, PARTS> {
        let mut found = Gathered { column: 0, score: f32::NEG_INFINITY, values: [G::ZERO; PARTS] };
        // SAFETY: the caller's promise; an entry's column is a row of `K` and `V`.
        unsafe {
            let mut keys = [G::ZERO; PARTS];
            if position < walk.end {
                found.column = s.load_readonly(p.entries.at(position));
                each::<PARTS>(|part| {
                    keys[part] = Self::fetch(s, &p.k, walk.head, found.column, part);
                    found.values[part] = Self::fetch(s, &p.v, walk.head, found.column, part);
                });
            }
            let mut product = 0.0;
            each::<PARTS>(|part| {
                let key = G::elements(s, keys[part]);
                each::<8>(|e| {
                    if (e as u32) < G::WIDTH {
                        product = s.fma(query[part][e], key[e], product);
                    }
                });
            });
            product = butterfly::<S, LANES>(s, product, |a, b| a + b);
            if position < walk.end {
                // Two roundings, as where products, bias and softmax are steps of their own.
                found.score = product * p.scale + p.bias.of(s, walk.head, position);
            }
        }
        found
    }

    /// Adds an entry to what its way has.
    #[inline(always)]
    fn add<S: Simt>(
        s: &S,
        p: &AttentionParams,
        walk: &Walk,
        entry: &Gathered<G, PARTS>,
        state: &mut State<PARTS>,
    ) {
        let weight = state.softmax.weigh(s, entry.score);
        state.softmax.weight += weight;
        let weight = p.dropped.kept(walk.head, walk.row, entry.column, weight);
        each::<PARTS>(|part| G::accumulate(s, weight, entry.values[part], &mut state.sums[part]));
    }

    /// Joins what the ways have.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    unsafe fn join_ways<S: Simt>(s: &S, state: &mut State<PARTS>) {
        let mut mask = LANES;
        while mask < WARP {
            // SAFETY: the caller's promise; the bounds are constants.
            unsafe {
                let other = |value: f32| f32::from_bits(s.shuffle_xor(value.to_bits(), mask));
                let max = state.softmax.max.max(other(state.softmax.max));
                let factor = rescale(s, state.softmax.max, max);
                let weight = state.softmax.weight * factor;
                state.softmax = Softmax { max, weight: weight + other(weight) };
                each::<PARTS>(|part| {
                    each::<8>(|e| {
                        if (e as u32) < G::WIDTH {
                            let sum = state.sums[part][e] * factor;
                            state.sums[part][e] = sum + other(sum);
                        }
                    });
                });
            }
            mask *= 2;
        }
    }

    /// Calls `visit(column, sum)` for the sums of the row, each in one lane.
    #[inline(always)]
    fn each_sum<S: Simt>(s: &S, state: &State<PARTS>, mut visit: impl FnMut(u32, f32)) {
        if s.lane() < LANES {
            each::<PARTS>(|part| {
                each::<8>(|e| {
                    if (e as u32) < G::WIDTH {
                        visit(Self::column(s, part) + e as u32, state.sums[part][e]);
                    }
                });
            });
        }
    }
}
