//! The scores of a step and their weights.

use windrow_simt::{HalfElement, Simt, WARP};

use super::{AttentionWindows, State, Step};
use crate::attention::sums::over_entries;
use crate::attention::tiles::{added, mma, nearest, pair_of, transposed, weight_operands};
use crate::attention::{ATTENTION_WARPS, WindowForm};
use crate::element::Element;
use crate::unroll::each;

/// The lane's vectors of the rows that ask, as the second operand of products.
pub(super) struct Query<const CHUNKS: usize> {
    /// Not used where they are in shared memory.
    vectors: [[u32; 4]; CHUNKS],
    /// Byte at which shared memory has the first, if it has them; 512 from one to the next.
    at: u32,
}

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, W: WindowForm, const CHUNKS: usize>
    AttentionWindows<E, W, CHUNKS>
{
    /// Whether vectors of the rows that ask are in shared memory: without, registers would let fewer blocks work.
    const QUERY_SHARED: bool = W::SHARED && W::ROWS == 8 && CHUNKS == 4;
    /// Bytes of them, of all warps.
    pub(super) const QUERY_BYTES: u32 =
        if Self::QUERY_SHARED { ATTENTION_WARPS * WARP * 16 * CHUNKS as u32 } else { 0 };

    /// Keeps a lane's vectors.
    ///
    /// # Safety
    /// A place of shared memory behind `SHARES` is this kernel's.
    #[inline(always)]
    pub(super) unsafe fn keep_query<S: Simt>(s: &S, vectors: [[u32; 4]; CHUNKS]) -> Query<CHUNKS> {
        let at = Self::SHARES.end() + s.warp() * (WARP * 16 * CHUNKS as u32) + s.lane() * 16;
        if Self::QUERY_SHARED {
            // SAFETY: the caller's promise; the place is this lane's, which alone reads it.
            each::<CHUNKS>(|chunk| unsafe { s.store_shared(at + 16 * WARP * chunk as u32, vectors[chunk]) });
        }
        Query { vectors, at }
    }

    /// Those of a chunk.
    ///
    /// # Safety
    /// The lane has kept them.
    #[inline(always)]
    unsafe fn query_chunk<S: Simt>(s: &S, query: &Query<CHUNKS>, chunk: usize) -> [u32; 4] {
        if Self::QUERY_SHARED {
            // SAFETY: the caller's promise.
            unsafe { s.load_shared(query.at + 16 * WARP * chunk as u32) }
        } else {
            query.vectors[chunk]
        }
    }

    /// `K·Qᵀ` of a step.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    pub(super) unsafe fn scores<S: Simt>(
        s: &S,
        query: &Query<CHUNKS>,
        [low, high]: &[[[u32; 4]; CHUNKS]; 2],
    ) -> [f32; 4] {
        // Two sums, so that a product waits for the last but one.
        let mut sums = [[0.0; 4]; 2];
        each::<CHUNKS>(|chunk| {
            let (low, high) = (low[chunk], high[chunk]);
            // SAFETY: the caller's promise.
            let query = unsafe { Self::query_chunk(s, query, chunk) };
            each::<2>(|i| {
                let a = [low[2 * i], high[2 * i], low[2 * i + 1], high[2 * i + 1]];
                // SAFETY: the caller's promise.
                sums[i] = unsafe { mma::<S, E>(s, a, [query[2 * i], query[2 * i + 1]], sums[i]) };
            });
        });
        added(sums)
    }

    /// Number in the registers of the score of a lane's entry and row.
    #[inline(always)]
    const fn register(entry: usize, row: usize) -> usize {
        2 * entry + row
    }

    /// Scales products and adds the bias; minus infinity for pairs that are no entries.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    pub(super) unsafe fn mask<S: Simt>(s: &S, step: &Step<'_>, mut scores: [f32; 4]) -> [f32; 4] {
        let Step { p, place, .. } = *step;
        let group = s.lane() / 4;
        each::<2>(|entry| {
            let own = step.at + group + 8 * entry as u32;
            let biased = !W::SHARED && own < place.end;
            // SAFETY: the caller's promise; the position is that of an entry.
            let bias = if biased { unsafe { p.bias.of(s, place.head, own) } } else { 0.0 };
            each::<2>(|row| {
                if row < W::LANE_ROWS {
                    let present = if W::SHARED {
                        W::rows_of(step.pair[entry]) >> Self::of_window(s, row) & 1 == 1
                    } else {
                        let [begin, end] = step.extents[row];
                        own >= begin && own < end
                    };
                    let score = &mut scores[Self::register(entry, row)];
                    // Two roundings, as where products, bias and softmax are steps of their own.
                    *score = if present { *score * p.scale + bias } else { f32::NEG_INFINITY };
                }
            });
        });
        scores
    }

    /// The weights of a step after dropout, by entry and row of the lane. Raises maxima that scores have passed, which
    /// is rare after the first steps.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    pub(super) unsafe fn weigh<S: Simt>(
        s: &S,
        step: &Step<'_>,
        state: &mut State<CHUNKS>,
        scores: [f32; 4],
    ) -> [[f32; 2]; 2] {
        let largest = |row| scores[Self::register(0, row)].max(scores[Self::register(1, row)]);
        let mut passed = state.rows[0].is_passed_by(largest(0));
        if W::LANE_ROWS == 2 {
            passed |= state.rows[1].is_passed_by(largest(1));
        }
        // SAFETY: the caller's promise; whether maxima are raised is the same for all lanes.
        if unsafe { s.ballot(passed) } != 0 {
            each::<2>(|row| {
                if row < W::LANE_ROWS {
                    // SAFETY: as above.
                    let score = unsafe { over_entries(s, largest(row), f32::max) };
                    let factor = state.rows[row].raise(s, score);
                    each::<CHUNKS>(|chunk| {
                        each::<2>(|half| {
                            each::<4>(|i| {
                                if W::LANE_ROWS == 1 || i % 2 == row {
                                    state.sums[chunk][half][i] *= factor;
                                }
                            });
                        });
                    });
                }
            });
        }
        let mut weights = [[0.0; 2]; 2];
        each::<2>(|entry| {
            each::<2>(|row| {
                if row < W::LANE_ROWS {
                    let weight = state.rows[row].weigh(s, scores[Self::register(entry, row)]);
                    state.rows[row].weight += weight;
                    let (head, of_window) = (step.place.head, Self::of_window(s, row));
                    let of_matrix = step.place.window * W::ROWS + of_window;
                    weights[entry][row] =
                        step.p.dropped.kept(head, of_matrix, W::column(step.pair[entry]), weight);
                }
            });
        });
        weights
    }

    /// Weights as the second operand, (16, 8) twice: nearest numbers and what these leave, the second of windows of 8
    /// rows alone.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    pub(super) unsafe fn operands<S: Simt>(s: &S, weights: [[f32; 2]; 2]) -> [[u32; 2]; 2] {
        if W::LANE_ROWS == 2 {
            // SAFETY: the caller's promise.
            return unsafe { weight_operands::<S, E>(s, weights) };
        }
        let mut operands = [[0; 2]; 2];
        each::<2>(|entry| {
            let [weight, _] = weights[entry];
            let [near, _] = pair_of::<S, E>(s, nearest::<S, E>(s, [weight, 0.0]));
            // SAFETY: the caller's promise.
            operands[0][entry] = unsafe { transposed(s, nearest::<S, E>(s, [weight, weight - near])) };
        });
        operands
    }
}
