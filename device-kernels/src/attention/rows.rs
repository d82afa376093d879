//! Attention on CUDA cores: a warp for each row, or for several where rows are short.
//!
//! [Groups of lanes](super::lanes) take entries side by side. Products of the lanes of a way are added by a butterfly,
//! and each way has a softmax of its own, over the entries that it takes; those of a row are joined in the end, in a
//! fixed tree. For elements of any type and alignment; in f32 nothing is rounded but sums.

use core::marker::PhantomData;

use windrow_simt::{Simt, WARP};

use super::block::Shares;
use super::lanes::{Elements, LaneHeads, Lanes};
use super::scores::{OtherRow, OwnRow, ScoreForm, ScoreKind, Scores};
use super::sums::{Softmax, rescale};
use super::{ATTENTION_WARPS, AttentionParams};
use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::unroll::each;
use crate::variant::Variant;
use crate::ways::{Groups, RowLists, RowWalk};

/// One instance: how scores are made and rows are read, lanes across the width, and what each has of it, times a vector
/// or an element.
pub struct AttentionRows<C, G, const LANES: u32, const PARTS: usize>(PhantomData<(C, G)>);

/// What a way has of a row.
struct State<const PARTS: usize> {
    softmax: Softmax,
    sums: Elements<PARTS>,
}

/// An entry whose rows of `K` and `V` are under way.
struct Fetched<G: Gather, const PARTS: usize> {
    /// Where it is among all, if it is there.
    position: Option<u32>,
    column: u32,
    key: OtherRow<G, PARTS>,
    values: [G::Raw; PARTS],
}

impl<C, G: Gather, const LANES: u32, const PARTS: usize> AttentionRows<C, G, LANES, PARTS> {
    /// Columns that there is room for.
    pub const WIDTH: u32 = Lanes::<G, LANES, PARTS>::WIDTH;
    const SHARES: Shares = Shares::new(1, Self::WIDTH, LANES, 0);
}

impl<C: ScoreForm, G: Gather<Element: Element<Sum = f32>>, const LANES: u32, const PARTS: usize> Kernel
    for AttentionRows<C, G, LANES, PARTS>
{
    type Params = AttentionParams;
    const FILE: &'static str = "attention/rows";
    const VARIANT: Variant = Variant::AttentionRows {
        scores: C::KIND,
        dtype: G::Element::DTYPE,
        vectors: G::VECTORS,
        width: Self::WIDTH,
    };
    const BLOCK_THREADS: u32 = ATTENTION_WARPS * WARP;
    const SHARED_BYTES: u32 = Self::SHARES.end();
    const UNITS_PER_BLOCK: u32 = ATTENTION_WARPS * (WARP / LANES);
    // Left to itself, `ptxas` spills a few registers to fit more blocks.
    const MIN_BLOCKS: u32 = match (C::KIND, Self::WIDTH, G::WIDTH) {
        (ScoreKind::Gatv2, 0..=128, 8) => 5,
        (ScoreKind::Gatv2, 0..=128, 4) => 7,
        (ScoreKind::Gatv2, _, 4 | 8) => 4,
        (_, 0..=128, _) => 8,
        (_, _, 1) => 3,
        _ => 5,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionParams) {
        const { Lanes::<G, LANES, PARTS>::VALID }
        let block = s.block_idx();
        let heads = Lanes::<G, LANES, PARTS>::heads(s, p.heads, s.block_idx_y());
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets a
        // barrier of the block; a warp stays together, whichever rows its lanes have.
        unsafe {
            if block < p.piece_count {
                let [row, first, end, slot] = s.load_readonly(p.pieces.at(block));
                let mut walk = RowWalk::of_block(s, Groups::pairs(LANES), [row, first, end], ATTENTION_WARPS);
                let state = Self::walk(s, p, heads, &mut walk);
                Self::each_sum(s, (&walk, &state), |column, sum| {
                    s.store_shared(Self::SHARES.sum_at(s.warp(), 0, column), sum);
                });
                if heads.leads && s.lane() < LANES {
                    Self::SHARES.keep_state(s, [s.warp(), 0, heads.number()], state.softmax);
                }
                s.sync_block(); // RAW: sums of warps written -> joined
                Self::SHARES.join(s, p, [heads.walk, row, slot]);
                return;
            }
            let warp = (block - p.piece_count) * ATTENTION_WARPS + s.warp();
            let Some(mut walk) = RowWalk::of_warp(s, Groups::pairs(LANES), p.lists(), warp) else { return };
            let state = Self::walk(s, p, heads, &mut walk);
            if walk.is_own {
                Self::write(s, p, heads.first, (&walk, &state));
                if heads.leads && walk.tells(s) {
                    p.keep_state(s, heads.own, walk.row, state.softmax);
                }
            }
        }
    }
}

impl<C: ScoreForm, G: Gather<Element: Element<Sum = f32>>, const LANES: u32, const PARTS: usize>
    AttentionRows<C, G, LANES, PARTS>
{
    /// What the entries of a row add up to, joined from its ways: the same in each of them.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(
        s: &S,
        p: &AttentionParams,
        heads: LaneHeads,
        walk: &mut RowWalk,
    ) -> State<PARTS> {
        let mut state = State { softmax: Softmax::EMPTY, sums: [[0.0; 8]; PARTS] };
        // SAFETY: the caller's promise; all lanes go on as long as one of them has entries, and have as many ways.
        unsafe {
            let query = Scores::<C, G, LANES, PARTS>::own(s, &p.q, p.vector, (heads, walk.row));
            while walk.goes_on() {
                let [one, other] = walk.positions(s);
                // Not in a loop: what is under way stays in registers.
                let first = Self::fetch(s, p, heads, one, walk.end);
                let second = Self::fetch(s, p, heads, other, walk.end);
                let scores = [&first, &second].map(|entry| Self::score(s, p, (heads, &query), entry));
                let largest = scores[0].max(scores[1]);
                if state.softmax.is_passed_by(largest) {
                    let factor = state.softmax.raise(s, largest);
                    Lanes::<G, LANES, PARTS>::each_element(|part, e| state.sums[part][e] *= factor);
                }
                Self::add(s, p, (heads.own, walk.row), (&first, scores[0]), &mut state);
                Self::add(s, p, (heads.own, walk.row), (&second, scores[1]), &mut state);
                walk.step();
            }
            Self::join_ways(s, walk.ways, &mut state);
        }
        state
    }

    /// The entry at a position, its rows under way; none behind the last.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn fetch<S: Simt>(
        s: &S,
        p: &AttentionParams,
        heads: LaneHeads,
        position: u32,
        end: u32,
    ) -> Fetched<G, PARTS> {
        let (key, values) = (Scores::<C, G, LANES, PARTS>::NONE, Lanes::<G, LANES, PARTS>::NONE);
        let mut entry = Fetched { position: None, column: 0, key, values };
        if position < end {
            entry.position = Some(position);
            // SAFETY: the caller's promise; an entry's column is a row of `K` and `V`.
            unsafe {
                entry.column = s.load_readonly(p.entries.at(position));
                entry.key = Scores::<C, G, LANES, PARTS>::fetch(s, &p.k, heads, entry.column);
                entry.values = Lanes::<G, LANES, PARTS>::fetch(s, &p.v, heads.first, entry.column);
            }
        }
        entry
    }

    /// The score of an entry; minus infinity where there is none.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn score<S: Simt>(
        s: &S,
        p: &AttentionParams,
        (heads, query): (LaneHeads, &OwnRow<PARTS>),
        entry: &Fetched<G, PARTS>,
    ) -> f32 {
        // SAFETY: the caller's promise.
        let made = unsafe { Scores::<C, G, LANES, PARTS>::made(s, (p.factors(), heads), query, &entry.key) };
        let Some(position) = entry.position else { return f32::NEG_INFINITY };
        // SAFETY: as above; there is such an entry.
        let bias = unsafe { p.bias.of(s, heads.own, position) };
        Scores::<C, G, LANES, PARTS>::score(p.factors(), made, bias)
    }

    /// Adds an entry to what its way has.
    #[inline(always)]
    fn add<S: Simt>(
        s: &S,
        p: &AttentionParams,
        (head, row): (u32, u32),
        (entry, score): (&Fetched<G, PARTS>, f32),
        state: &mut State<PARTS>,
    ) {
        let weight = state.softmax.weigh(s, score);
        state.softmax.weight += weight;
        let weight = p.dropped.kept(head, row, entry.column, weight);
        Lanes::<G, LANES, PARTS>::accumulate(s, weight, entry.values, &mut state.sums);
    }

    /// Joins what the `ways` of a row have.
    ///
    /// # Safety
    /// A collective of the full warp, all of whose rows have as many ways.
    #[inline(always)]
    unsafe fn join_ways<S: Simt>(s: &S, ways: u32, state: &mut State<PARTS>) {
        let mut mask = LANES;
        while mask < LANES * ways {
            // SAFETY: the caller's promise.
            unsafe {
                let other = |value: f32| f32::from_bits(s.shuffle_xor(value.to_bits(), mask));
                let max = state.softmax.max.max(other(state.softmax.max));
                let factor = rescale(s, state.softmax.max, max);
                let weight = state.softmax.weight * factor;
                state.softmax = Softmax { max, weight: weight + other(weight) };
                Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                    let sum = state.sums[part][e] * factor;
                    state.sums[part][e] = sum + other(sum);
                });
            }
            mask *= 2;
        }
    }

    /// Writes the result of a row.
    ///
    /// # Safety
    /// The obligations of the params; no other warp has the row.
    #[inline(always)]
    unsafe fn write<S: Simt>(
        s: &S,
        p: &AttentionParams,
        head: u32,
        (walk, state): (&RowWalk, &State<PARTS>),
    ) {
        let inverse = state.softmax.inverse();
        if !walk.tells(s) {
            return;
        }
        each::<PARTS>(|part| {
            let (column, sums) = (Lanes::<G, LANES, PARTS>::column(s, part), &state.sums[part]);
            // SAFETY: the caller's promise; elements are this lane's.
            unsafe {
                if G::VECTORS {
                    each::<2>(|half| {
                        if 4 * (half as u32) < G::WIDTH {
                            let quad = [0, 1, 2, 3].map(|i| sums[4 * half + i] * inverse);
                            p.store_quad(s, (head, walk.row, column + 4 * half as u32), quad);
                        }
                    });
                } else if column < p.out.columns {
                    p.out.store(s, p.out_type, p.out.at(head, walk.row, column), sums[0] * inverse);
                }
            }
        });
    }

    /// Calls `visit(column, sum)` for the sums of a row, each in one lane.
    #[inline(always)]
    fn each_sum<S: Simt>(s: &S, (walk, state): (&RowWalk, &State<PARTS>), mut visit: impl FnMut(u32, f32)) {
        if walk.tells(s) {
            Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                visit(Lanes::<G, LANES, PARTS>::column(s, part) + e as u32, state.sums[part][e]);
            });
        }
    }
}

impl AttentionParams {
    const fn lists(&self) -> RowLists {
        RowLists {
            offsets: self.offsets,
            rows: self.rows,
            longest: self.longest,
            warp_rows_log2: self.warp_rows_log2,
        }
    }
}
