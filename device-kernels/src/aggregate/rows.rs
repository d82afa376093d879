//! A pass over the entries of each row, which is the reduction of the rows of `X` that they name, or of each column,
//! which is the gradient of `X`.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt, WARP};

use super::pass::{AggregatePass, Picked};
use super::{AGGREGATE_ENTRIES_LOG2, AGGREGATE_WARPS, AggregateParams, NO_WINNER};
use crate::NO_SLOT;
use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::unroll::{each, each4};
use crate::variant::Variant;
use crate::ways::{Groups, RowWalk};

/// The entries that a group of lanes takes in a step.
///
/// Behind the last entry of a row there is the last once more: no lane reads under a condition, which would make it
/// wait there. A row without entries has those of another one, and throws away what they make.
#[derive(Clone, Copy)]
struct Names {
    /// Where each is in the matrix.
    positions: [u32; 4],
    /// The rows of `x` that they name.
    rows: [u32; 4],
    /// Their values, if they matter.
    values: [f32; 4],
    /// Of a gradient, what is divided by for means, as a factor.
    means: [f32; 4],
}

impl Names {
    const NONE: Self = Self { positions: [0; 4], rows: [0; 4], values: [0.0; 4], means: [1.0; 4] };
}

/// What an entry has under way.
struct Fetched<G: Gather> {
    row: G::Raw,
    /// Of a gradient, which entries the lane's elements of the result came from.
    winners: [u32; 8],
}

/// One instance: the pass, and how rows are read.
pub struct Aggregate<P, G>(PhantomData<(P, G)>);

impl<P: AggregatePass, G: Gather> Aggregate<P, G> {
    /// Numbers from one warp's to the next in shared memory, and from the numbers to their winners.
    const PITCH: u32 = WARP * G::WIDTH + 8;

    /// Byte of what a warp leaves.
    #[inline(always)]
    const fn left_at(warp: u32, column: u32) -> u32 {
        (warp * Self::PITCH + column) * 4
    }
}

impl<P: AggregatePass, G: Gather<Element: Element<Sum = f32>>> Kernel for Aggregate<P, G> {
    type Params = AggregateParams;
    const FILE: &'static str = "aggregate/rows";
    const VARIANT: Variant = Variant::Aggregate {
        picks: P::PICKS,
        backward: P::BACKWARD,
        dtype: G::Element::DTYPE,
        vectors: G::VECTORS,
    };
    const BLOCK_THREADS: u32 = AGGREGATE_WARPS * WARP;
    const SHARED_BYTES: u32 = Self::left_at(if P::PICKS { 2 } else { 1 } * AGGREGATE_WARPS, 0);
    // Left to itself, `ptxas` spills a few registers to fit more blocks; numbers and winners of eight columns are many.
    const MIN_BLOCKS: u32 = match (G::WIDTH, P::BACKWARD) {
        (8, true) => 5,
        (8, false) => 6,
        _ => 8,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AggregateParams) {
        let block = s.block_idx();
        let groups = Groups { lanes_log2: p.lanes_log2, entries_log2: AGGREGATE_ENTRIES_LOG2 };
        let own = (s.lane() & ((1 << p.lanes_log2) - 1)) * G::WIDTH;
        let share = s.block_idx_y() * (G::WIDTH << p.lanes_log2);
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets a
        // barrier of the block; a warp stays together, whichever rows its lanes have.
        unsafe {
            if block < p.piece_count {
                let [row, begin, end, slot] = s.load_readonly(p.pieces.at(block));
                let walk = RowWalk::of_block(s, groups, [row, begin, end], AGGREGATE_WARPS);
                let found = Self::walk(s, p, walk, share + own);
                if walk.tells(s) {
                    each::<8>(|e| {
                        if (e as u32) < G::WIDTH {
                            let column = own + e as u32;
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
            let Some(walk) = RowWalk::of_warp(s, groups, p.lists(), warp) else { return };
            let found = Self::walk(s, p, walk, share + own);
            if walk.is_own && walk.tells(s) {
                Self::finish(s, p, [walk.row, share + own], &found);
            }
        }
    }
}

impl<P: AggregatePass, G: Gather<Element: Element<Sum = f32>>> Aggregate<P, G> {
    /// What the entries of a row make in the lane's columns from `first` on, the same in each of its ways.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(s: &S, p: &AggregateParams, walk: RowWalk, first: u32) -> [Picked; 8] {
        let mut found = [P::NOTHING; 8];
        let has_entries = walk.begin < walk.end;
        // Lanes beyond the columns read what the first has.
        let column = if first < p.columns { first } else { 0 };
        if P::PICKS {
            // Whatever the first message is, minus infinity, too.
            let winner = walk.position(s, 0).min(walk.end.saturating_sub(1));
            found = [Picked { winner, ..P::NOTHING }; 8];
        }
        let mut rest = walk;
        // SAFETY: the caller's promise; all lanes go on as long as one of them has entries, and have as many ways.
        unsafe {
            let mut next = Names::NONE;
            if rest.goes_on() {
                next = Self::names(s, p, &rest);
            }
            while rest.goes_on() {
                let names = next;
                // Each by its name and none behind a condition: what is under way stays there together.
                let row_a = Self::fetch(s, p, names.rows[0], column);
                let row_b = Self::fetch(s, p, names.rows[1], column);
                let now = rest;
                if P::BACKWARD {
                    // With winners four rows are more than there are registers for.
                    Self::add(s, p, (&now, &names, 0), &row_a, &mut found);
                    Self::add(s, p, (&now, &names, 1), &row_b, &mut found);
                }
                let row_c = Self::fetch(s, p, names.rows[2], column);
                let row_d = Self::fetch(s, p, names.rows[3], column);
                rest.step();
                if !P::BACKWARD {
                    if rest.goes_on() {
                        // While rows are on their way.
                        next = Self::names(s, p, &rest);
                    }
                    Self::add(s, p, (&now, &names, 0), &row_a, &mut found);
                    Self::add(s, p, (&now, &names, 1), &row_b, &mut found);
                }
                Self::add(s, p, (&now, &names, 2), &row_c, &mut found);
                Self::add(s, p, (&now, &names, 3), &row_d, &mut found);
                if P::BACKWARD && rest.goes_on() {
                    next = Self::names(s, p, &rest);
                }
            }
            if P::PICKS && has_entries {
                Self::find_what_is_no_number(s, p, (walk, column), &mut found);
            }
            if !has_entries {
                found = [P::NOTHING; 8];
            }
            let mut mask = 1 << p.lanes_log2;
            while mask < walk.ways << p.lanes_log2 {
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

    /// The entries of a step.
    ///
    /// # Safety
    /// The obligations of the params; some row has entries, or none of the warp has and nothing is read of them.
    #[inline(always)]
    unsafe fn names<S: Simt>(s: &S, p: &AggregateParams, walk: &RowWalk) -> Names {
        let last = walk.end.saturating_sub(1);
        let mut names = Names::NONE;
        // SAFETY: the caller's promise; positions are below the number of entries.
        unsafe {
            each4(|i| {
                let at = walk.position(s, i as u32).min(last);
                names.rows[i] = s.load_readonly(p.entries.at(at));
                names.positions[i] = if P::BACKWARD { s.load_readonly(p.positions.at(at)) } else { at };
            });
            if p.values != GlobalPtr::NULL {
                each4(|i| names.values[i] = s.load_readonly(p.values.at(names.positions[i])));
            }
            if P::BACKWARD && p.lengths != GlobalPtr::NULL {
                each4(|i| names.means[i] = p.mean_of(s, names.rows[i]));
            }
        }
        names
    }

    /// The lane's part of the row that an entry names, from `column` on.
    ///
    /// # Safety
    /// The obligations of the params; there is such a column.
    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, p: &AggregateParams, from: u32, column: u32) -> Fetched<G> {
        let mut winners = [NO_WINNER; 8];
        // SAFETY: the caller's promise; columns are a multiple of what a lane reads.
        unsafe {
            let row = G::fetch(s, p.x, u64::from(from) * u64::from(p.ldx) + u64::from(column));
            if P::BACKWARD && p.winners != GlobalPtr::NULL {
                let at = p.winners.at_wide(u64::from(from) * u64::from(p.columns) + u64::from(column));
                if G::VECTORS {
                    each::<2>(|half| {
                        if 4 * (half as u32) < G::WIDTH {
                            let four: [u32; 4] = s.load_readonly(at.at(4 * half as u32).cast());
                            each4(|e| winners[4 * half + e] = four[e]);
                        }
                    });
                } else {
                    winners[0] = s.load_readonly(at);
                }
            }
            Fetched { row, winners }
        }
    }

    /// Takes the message of entry `i` of a step, if there is one. A maximum may take the last of a row again.
    ///
    /// A maximum is not a number from the first message on that is none; which that was is found later.
    #[inline(always)]
    fn add<S: Simt>(
        s: &S,
        p: &AggregateParams,
        (walk, names, i): (&RowWalk, &Names, usize),
        fetched: &Fetched<G>,
        found: &mut [Picked; 8],
    ) {
        let at = walk.position(s, i as u32);
        let is_there = at < walk.end;
        // Made anew, where it can be: four of them take registers.
        let position = if P::BACKWARD { names.positions[i] } else { at.min(walk.end.saturating_sub(1)) };
        let [factor, summand] = p.message_of(names.values[i]);
        let factor = if P::BACKWARD { factor * names.means[i] } else { factor };
        let elements = G::elements(s, fetched.row);
        let all_count = p.winners == GlobalPtr::NULL;
        each::<8>(|e| {
            if e as u32 >= G::WIDTH {
                return;
            }
            let into = &mut found[e];
            if P::BACKWARD {
                if is_there && (all_count || fetched.winners[e] == position) {
                    into.number = s.fma(factor, elements[e], into.number);
                }
                return;
            }
            let number = s.fma(factor, elements[e], summand);
            if P::PICKS {
                // Entries come in ascending order: what is there already is before all that equal it.
                if number > into.number {
                    into.winner = position;
                }
                into.number = s.maximum(number, into.number);
            } else if is_there {
                into.number += number;
            }
        });
    }

    /// Walks the lane's entries once more where a maximum is not a number: the winner is the first message that is
    /// none.
    ///
    /// # Safety
    /// The obligations of the params; there is such a column, and the row has entries.
    #[inline(always)]
    unsafe fn find_what_is_no_number<S: Simt>(
        s: &S,
        p: &AggregateParams,
        (mut walk, column): (RowWalk, u32),
        found: &mut [Picked; 8],
    ) {
        let mut sought = 0u32;
        each::<8>(|e| sought |= u32::from(found[e].number.is_nan()) << e);
        while sought != 0 && walk.goes_on() {
            // SAFETY: the caller's promise.
            let names = unsafe { Self::names(s, p, &walk) };
            each4(|i| {
                // SAFETY: the caller's promise.
                let fetched = unsafe { Self::fetch(s, p, names.rows[i], column) };
                let elements = G::elements(s, fetched.row);
                let [factor, summand] = p.message_of(names.values[i]);
                each::<8>(|e| {
                    let is_none = s.fma(factor, elements[e], summand).is_nan();
                    if (e as u32) < G::WIDTH && is_none && sought >> e & 1 == 1 {
                        found[e].winner = names.positions[i];
                        sought &= !(1 << e);
                    }
                });
            });
            walk.step();
        }
    }

    /// Writes what all messages of a row make in the lane's columns, if it has any.
    ///
    /// # Safety
    /// The obligations of the params; no other thread has the elements.
    #[inline(always)]
    unsafe fn finish<S: Simt>(s: &S, p: &AggregateParams, [row, first]: [u32; 2], found: &[Picked; 8]) {
        if first >= p.columns {
            return;
        }
        // SAFETY: the caller's promise; columns are a multiple of what a lane has.
        unsafe {
            if !G::VECTORS {
                return p.finish::<S, P>(s, row, first, found[0]);
            }
            each::<2>(|half| {
                if 4 * (half as u32) < G::WIDTH {
                    let mut quad = [P::NOTHING; 4];
                    each4(|e| quad[e] = found[4 * half + e]);
                    p.finish_quad::<S, P>(s, row, first + 4 * half as u32, quad);
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
        let width = G::WIDTH << p.lanes_log2;
        let mut at = s.thread_idx();
        while at < width {
            let column = s.block_idx_y() * width + at;
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
                if column < p.columns && slot == NO_SLOT {
                    p.finish::<S, P>(s, row, column, found);
                } else if column < p.columns {
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
}
