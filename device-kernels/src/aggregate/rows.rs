//! A pass over the entries of each row, which is the reduction of the rows of `X` that they name, or of each column,
//! which is the gradient of `X`.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{AGGREGATE_WARPS, AggregateParams, NO_WINNER};
use crate::NO_SLOT;
use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::unroll::{each, each4};
use crate::variant::Variant;
use crate::ways::RowWalk;

/// What a pass adds up or picks.
pub trait AggregatePass: 'static {
    /// Whether the result is one of the messages, and which is kept.
    const PICKS: bool;
    /// Whether it is the gradient of `X`, over the columns of the matrix.
    const BACKWARD: bool;
    /// What no message gives.
    const NOTHING: Picked =
        Picked { number: if Self::PICKS { f32::NEG_INFINITY } else { 0.0 }, winner: NO_WINNER };

    /// Adds a message, or a number that is joined of several.
    #[inline(always)]
    fn take(into: &mut Picked, other: Picked) {
        if Self::PICKS {
            if other.wins_over(*into) {
                *into = other;
            }
        } else {
            into.number += other.number;
        }
    }
}

/// The sum of messages, of which a mean is made.
pub struct Sums;
/// The largest message; with a negative sign the least.
pub struct Extremes;
/// The sum of the gradients of messages, of those that won if winners are kept.
pub struct Gradients;

impl AggregatePass for Sums {
    const PICKS: bool = false;
    const BACKWARD: bool = false;
}

impl AggregatePass for Extremes {
    const PICKS: bool = true;
    const BACKWARD: bool = false;
}

impl AggregatePass for Gradients {
    const PICKS: bool = false;
    const BACKWARD: bool = true;
}

/// A number, and where the entry is that it came from.
#[derive(Clone, Copy)]
pub struct Picked {
    pub(super) number: f32,
    pub(super) winner: u32,
}

impl Picked {
    /// The first of what is no number before all, then the largest, then the first.
    #[inline(always)]
    fn wins_over(self, other: Self) -> bool {
        match (self.number.is_nan(), other.number.is_nan()) {
            (true, false) => true,
            (false, true) => false,
            (false, false) if self.number != other.number => self.number > other.number,
            _ => self.winner < other.winner,
        }
    }
}

/// What an entry has under way.
struct Fetched<G: Gather> {
    position: u32,
    row: G::Raw,
    /// Of a gradient, which entries the lane's elements of the result came from.
    winners: [u32; 8],
    /// The row that was gathered.
    from: u32,
}

/// One instance: the pass, how rows are read, lanes across a share of the columns.
pub struct Aggregate<P, G, const LANES: u32>(PhantomData<(P, G)>);

impl<P: AggregatePass, G: Gather, const LANES: u32> Aggregate<P, G, LANES> {
    /// Columns of one value of the grid's slow axis.
    const WIDTH: u32 = LANES * G::WIDTH;
    const VALID: () = assert!(LANES.is_power_of_two() && LANES <= WARP, "a row is read inside of a warp");
    /// Numbers from one warp's to the next in shared memory, and from the numbers to their winners.
    const PITCH: u32 = Self::WIDTH + 8;

    /// Byte of what a warp leaves.
    #[inline(always)]
    const fn left_at(warp: u32, column: u32) -> u32 {
        (warp * Self::PITCH + column) * 4
    }
}

impl<P: AggregatePass, G: Gather<Element: Element<Sum = f32>>, const LANES: u32> Kernel
    for Aggregate<P, G, LANES>
{
    type Params = AggregateParams;
    const FILE: &'static str = "aggregate/rows";
    const VARIANT: Variant = Variant::Aggregate {
        picks: P::PICKS,
        backward: P::BACKWARD,
        dtype: G::Element::DTYPE,
        vectors: G::VECTORS,
        width: Self::WIDTH,
    };
    const BLOCK_THREADS: u32 = AGGREGATE_WARPS * WARP;
    const SHARED_BYTES: u32 = Self::left_at(if P::PICKS { 2 } else { 1 } * AGGREGATE_WARPS, 0);
    const UNITS_PER_BLOCK: u32 = AGGREGATE_WARPS * (WARP / LANES);
    const COLUMNS_PER_BLOCK: u32 = Self::WIDTH;
    // Left to itself, `ptxas` spills a few registers to fit more blocks; numbers and their winners are twice as many.
    const MIN_BLOCKS: u32 = if G::WIDTH <= 4 { 8 } else { 6 };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AggregateParams) {
        const { Self::VALID }
        let block = s.block_idx();
        let first = s.block_idx_y() * Self::WIDTH + s.lane() % LANES * G::WIDTH;
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets a
        // barrier of the block; a warp stays together, whichever rows its lanes have.
        unsafe {
            if block < p.piece_count {
                let [row, begin, end, slot] = s.load_readonly(p.pieces.at(block));
                let walk = RowWalk::of_block::<S, LANES>(s, [row, begin, end], AGGREGATE_WARPS);
                let found = Self::walk(s, p, walk, first);
                if walk.tells::<S, LANES>(s) {
                    each::<8>(|e| {
                        if (e as u32) < G::WIDTH {
                            let column = s.lane() % LANES * G::WIDTH + e as u32;
                            s.store_shared(Self::left_at(s.warp(), column), found[e].number);
                            if P::PICKS {
                                s.store_shared(
                                    Self::left_at(AGGREGATE_WARPS + s.warp(), column),
                                    found[e].winner,
                                );
                            }
                        }
                    });
                }
                s.sync_block(); // RAW: what warps leave -> joined
                Self::join_warps(s, p, [row, slot]);
                return;
            }
            let warp = (block - p.piece_count) * AGGREGATE_WARPS + s.warp();
            let Some(walk) = RowWalk::of_warp::<S, LANES>(s, p.lists(), warp) else { return };
            let found = Self::walk(s, p, walk, first);
            if walk.is_own && walk.tells::<S, LANES>(s) {
                each::<8>(|e| {
                    if (e as u32) < G::WIDTH {
                        p.finish::<S, P>(s, walk.row, first + e as u32, found[e]);
                    }
                });
            }
        }
    }
}

impl<P: AggregatePass, G: Gather<Element: Element<Sum = f32>>, const LANES: u32> Aggregate<P, G, LANES> {
    /// What the entries of a row make in the lane's columns from `first` on, the same in each of its ways.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(s: &S, p: &AggregateParams, mut walk: RowWalk, first: u32) -> [Picked; 8] {
        let mut found = [P::NOTHING; 8];
        let [one, _] = walk.positions::<S, LANES>(s);
        if P::PICKS && one < walk.end {
            // Whatever the first message is, minus infinity, too.
            found = [Picked { winner: one, ..P::NOTHING }; 8];
        }
        // SAFETY: the caller's promise; all lanes go on as long as one of them has entries, and have as many ways.
        unsafe {
            while walk.goes_on() {
                let [one, other] = walk.positions::<S, LANES>(s);
                // Not in a loop: what is under way stays in registers.
                let first_entry = Self::fetch(s, p, &walk, one, first);
                let second_entry = Self::fetch(s, p, &walk, other, first);
                Self::add(s, p, &walk, &first_entry, &mut found);
                Self::add(s, p, &walk, &second_entry, &mut found);
                walk.step();
            }
            let mut mask = LANES;
            while mask < LANES * walk.ways {
                each::<8>(|e| {
                    if (e as u32) < G::WIDTH {
                        let number = f32::from_bits(s.shuffle_xor(found[e].number.to_bits(), mask));
                        let winner = if P::PICKS { s.shuffle_xor(found[e].winner, mask) } else { NO_WINNER };
                        P::take(&mut found[e], Picked { number, winner });
                    }
                });
                mask *= 2;
            }
        }
        found
    }

    /// The lane's part of the row that an entry names, if there is such an entry.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn fetch<S: Simt>(
        s: &S,
        p: &AggregateParams,
        walk: &RowWalk,
        position: u32,
        first: u32,
    ) -> Fetched<G> {
        let mut entry = Fetched { position, row: G::ZERO, winners: [NO_WINNER; 8], from: 0 };
        if position >= walk.end || first >= p.columns {
            return entry;
        }
        // SAFETY: the caller's promise; columns are a multiple of what a lane reads.
        unsafe {
            entry.from = s.load_readonly(p.entries.at(position));
            entry.row = G::fetch(s, p.x, u64::from(entry.from) * u64::from(p.ldx) + u64::from(first));
            if P::BACKWARD && p.winners != GlobalPtr::NULL {
                let at = p.winners.at_wide(u64::from(entry.from) * u64::from(p.columns) + u64::from(first));
                if G::VECTORS {
                    each::<2>(|half| {
                        if 4 * (half as u32) < G::WIDTH {
                            let four: [u32; 4] = s.load_readonly(at.at(4 * half as u32).cast());
                            each4(|e| entry.winners[4 * half + e] = four[e]);
                        }
                    });
                } else {
                    entry.winners[0] = s.load_readonly(at);
                }
            }
        }
        entry
    }

    /// Takes the message of an entry, if there is one.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn add<S: Simt>(
        s: &S,
        p: &AggregateParams,
        walk: &RowWalk,
        entry: &Fetched<G>,
        found: &mut [Picked; 8],
    ) {
        if entry.position >= walk.end {
            return;
        }
        let elements = G::elements(s, entry.row);
        // SAFETY: the caller's promise.
        unsafe {
            if P::BACKWARD {
                let position = s.load_readonly(p.positions.at(entry.position));
                let [factor, _] = p.message_of(s, position);
                let factor = factor * p.mean_of(s, entry.from);
                let all_count = p.winners == GlobalPtr::NULL;
                each::<8>(|e| {
                    if (e as u32) < G::WIDTH && (all_count || entry.winners[e] == position) {
                        found[e].number = s.fma(factor, elements[e], found[e].number);
                    }
                });
                return;
            }
            let [factor, summand] = p.message_of(s, entry.position);
            each::<8>(|e| {
                if (e as u32) < G::WIDTH {
                    let number = s.fma(factor, elements[e], summand);
                    if !P::PICKS {
                        found[e].number += number;
                    } else if !(number <= found[e].number || found[e].number.is_nan()) {
                        // Entries come in ascending order: what is there already is before all that equal it.
                        found[e] = Picked { number, winner: entry.position };
                    }
                }
            });
        }
    }

    /// Joins what the warps have left of a piece, in their order: to the result, or to the piece's slot.
    ///
    /// # Safety
    /// The obligations of the params; all threads of the block are here, behind a barrier after all has been left.
    #[inline(always)]
    unsafe fn join_warps<S: Simt>(s: &S, p: &AggregateParams, [row, slot]: [u32; 2]) {
        let mut at = s.thread_idx();
        while at < Self::WIDTH {
            let column = s.block_idx_y() * Self::WIDTH + at;
            // SAFETY: the caller's promise; the element is this thread's.
            unsafe {
                let mut found = P::NOTHING;
                each::<{ AGGREGATE_WARPS as usize }>(|warp| {
                    let number = s.load_shared(Self::left_at(warp as u32, at));
                    let winner = match P::PICKS {
                        true => s.load_shared(Self::left_at(AGGREGATE_WARPS + warp as u32, at)),
                        false => NO_WINNER,
                    };
                    P::take(&mut found, Picked { number, winner });
                });
                if slot == NO_SLOT {
                    p.finish::<S, P>(s, row, column, found);
                } else {
                    s.store(p.slot_number(slot, column), found.number);
                    if P::PICKS {
                        s.store(p.slot_winner(slot, column), found.winner);
                    }
                }
            }
            at += s.block_dim();
        }
    }
}

impl AggregateParams {
    #[inline(always)]
    pub(super) const fn lists(&self) -> crate::ways::RowLists {
        crate::ways::RowLists {
            offsets: self.offsets,
            rows: self.rows,
            longest: self.longest,
            warp_rows_log2: self.warp_rows_log2,
        }
    }

    /// Where a slot has the number of a column.
    #[inline(always)]
    pub(super) fn slot_number(&self, slot: u32, column: u32) -> GlobalPtr<f32> {
        self.partial.at_wide(u64::from(slot) * u64::from(self.slot_columns) + u64::from(column))
    }

    /// Where a slot has the winner of a column.
    #[inline(always)]
    pub(super) fn slot_winner(&self, slot: u32, column: u32) -> GlobalPtr<u32> {
        let numbers = u64::from(self.slot_count) * u64::from(self.slot_columns);
        self.partial
            .at_wide(numbers + u64::from(slot) * u64::from(self.slot_columns) + u64::from(column))
            .cast()
    }

    /// Writes an element of the result whose messages have all been taken, and its winner, if there is such a column.
    ///
    /// # Safety
    /// The obligations of the params; no other thread has the element.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simt, P: AggregatePass>(
        &self,
        s: &S,
        row: u32,
        column: u32,
        found: Picked,
    ) {
        if column >= self.columns {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let number = match (P::PICKS, P::BACKWARD) {
                (true, _) if found.winner == NO_WINNER => 0.0,
                (true, _) => found.number * self.sign,
                (false, false) => found.number * self.mean_of(s, row),
                (false, true) => found.number,
            };
            self.store(s, row, column, number);
            if P::PICKS && self.winners != GlobalPtr::NULL {
                let at = u64::from(row) * u64::from(self.columns) + u64::from(column);
                s.store(self.winners.at_wide(at), found.winner);
            }
        }
    }
}
