//! One pass over windows of 8 rows, or of 8 columns, on Tensor Cores, 16 entries at a time.
//!
//! ```text
//! scores    (16 entries, 8)  =  gathered[0] (16, WIDTH)  ·  own[0] of the window, transposed (WIDTH, 8)
//! responses (16 entries, 8)  =  gathered[1] (16, WIDTH)  ·  own[1] of the window, transposed (WIDTH, 8)
//! slopes    (16, 8)          =  weights ⊙ (responses − D)
//! dQ or dK  (WIDTH, 8)      +=  gathered[0], transposed  ·  slopes
//! dV        (WIDTH, 8)      +=  gathered[1], transposed  ·  weights             over columns
//!
//! gathered  global --cp.async-->  shared (16, WIDTH) --ldmatrix, as it is and transposed-->  A operand
//! own       global -->  registers, B operand
//! slopes    C registers --shuffles-->  B operand
//! ```
//!
//! Slopes may be of any size, so each row's are multiplied by a power of two before they are rounded to 16 bits, which
//! makes the largest so far 2⁸ to 2¹⁴; it is lowered, and what was added up with it, only when one is beyond that. As
//! in the forward pass each is two numbers of 16 bits, and where sums are not finite the rows of the window are added
//! up once more, each by the entries that it has.

mod repair;
mod sums;
mod terms;

use core::f32::consts::LOG2_E;
use core::marker::PhantomData;

use windrow_simt::{HalfElement, Simt, WARP};

use self::sums::Sums;
use super::{
    AttentionGradientParams, GradientPass, RowTerms, SumsTo, gradient_partial_floats, gradient_results,
};
use crate::NO_SLOT;
use crate::attention::place::{Place, WindowPieces};
use crate::attention::tiles::{STEP, Tile, are_finite, entry_of_step};
use crate::attention::{ATTENTION_WARPS, ByColumns, HeadMatrix, ScoreKind, WindowForm};
use crate::element::Element;
use crate::kernel::Kernel;
use crate::unroll::{each, each4};
use crate::variant::Variant;

type Windows = ByColumns<8>;
const ROWS: u32 = Windows::ROWS;
/// One instance, for f16 or bf16: the pass, and 32-column chunks of all operands.
pub struct AttentionGradientWindows<E, P, const CHUNKS: usize>(PhantomData<(E, P)>);

/// What is gathered for the entries of a step.
struct Gathered<E, const CHUNKS: usize> {
    /// What products with a window's rows are scores of.
    scored: Tile<E, CHUNKS>,
    /// What those are responses of.
    responding: Tile<E, CHUNKS>,
}

/// The second operand of products with a window's rows: of each 16 features.
type Own<const CHUNKS: usize> = [[[u32; 2]; 2]; CHUNKS];

/// A pair of a window's row and what is gathered, as its slope and its weight are made.
#[derive(Clone, Copy)]
struct Pair {
    score: f32,
    response: f32,
    terms: RowTerms,
    /// The row and the column of the matrix.
    entry: [u32; 2],
}

impl<E, P: GradientPass, const CHUNKS: usize> AttentionGradientWindows<E, P, CHUNKS> {
    /// Columns that there is room for.
    pub const WIDTH: u32 = 32 * CHUNKS as u32;
    /// Gradients that the pass adds up.
    const RESULTS: u32 = gradient_results(P::OVER_COLUMNS, ScoreKind::DotProduct);
    /// Numbers from one row's sums to the next: they begin in different banks.
    const PITCH: u32 = Self::WIDTH + 8;
    /// Bytes of the rows of a step that an operand has.
    const TILE_BYTES: u32 = STEP * Self::WIDTH * 2;
    /// Byte of the terms of what is gathered, behind the rows of a step.
    const STEP_TERMS: u32 = 2 * Self::TILE_BYTES;
    /// Bytes of a step.
    const STAGE_BYTES: u32 =
        Self::STEP_TERMS + if P::OVER_COLUMNS { STEP * size_of::<RowTerms>() as u32 } else { 0 };
    /// Bytes of a warp's place: two steps, one of which arrives while the other is multiplied, and then its sums.
    const WARP_BYTES: u32 = {
        let (sums, steps) = (Self::RESULTS * ROWS * Self::PITCH * 4, 2 * Self::STAGE_BYTES);
        let most = if sums > steps { sums } else { steps };
        most.next_multiple_of(2 * Self::WIDTH)
    };

    /// Byte of a warp's sum in shared memory.
    #[inline(always)]
    const fn sum_at(warp: u32, result: u32, row: u32, column: u32) -> u32 {
        warp * Self::WARP_BYTES + ((result * ROWS + row) * Self::PITCH + column) * 4
    }

    /// Byte of the terms of a warp's row.
    #[inline(always)]
    const fn terms_at(warp: u32, row: u32) -> u32 {
        ATTENTION_WARPS * Self::WARP_BYTES + (warp * ROWS + row) * size_of::<RowTerms>() as u32
    }
}

impl<E, P, const CHUNKS: usize> Kernel for AttentionGradientWindows<E, P, CHUNKS>
where
    E: Element<Sum = f32, Bits = u16> + HalfElement,
    P: GradientPass,
{
    type Params = AttentionGradientParams;
    const FILE: &'static str = "attention/gradient/windows";
    const VARIANT: Variant = Variant::AttentionGradientWindows {
        over_columns: P::OVER_COLUMNS,
        dtype: E::DTYPE,
        width: Self::WIDTH,
    };
    const BLOCK_THREADS: u32 = ATTENTION_WARPS * WARP;
    const SHARED_BYTES: u32 =
        if P::OVER_COLUMNS { Self::terms_at(0, 0) } else { Self::terms_at(ATTENTION_WARPS, 0) };
    // As many as registers allow without spilling.
    const MIN_BLOCKS: u32 = match (CHUNKS, P::OVER_COLUMNS) {
        (1, false) => 5,
        (1, true) | (2, false) => 4,
        (2, true) => 3,
        _ => 2,
    };
    const MIN_BLOCKS_FROM_SM90: u32 = match (CHUNKS, P::OVER_COLUMNS) {
        (1, true) => 5,
        (4, false) => 3,
        _ => Self::MIN_BLOCKS,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionGradientParams) {
        let of = WindowPieces {
            pieces: p.pieces,
            piece_count: p.piece_count,
            window_count: p.rows.div_ceil(ROWS),
            longest: p.longest,
        };
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets the
        // barrier; windows are a warp's as a whole.
        unsafe {
            let extent =
                |window| [s.load_readonly(p.offsets.at(window)), s.load_readonly(p.offsets.at(window + 1))];
            let head = p.first_walk + s.block_idx_y();
            let Some((place, slot)) = Place::of_warp(s, &of, head, extent) else { return };
            Self::work(s, p, &place);
            if !place.whole {
                s.sync_block(); // RAW: sums of warps written -> added up
                Self::add_warps(s, p, [head, place.window, slot]);
            }
        }
    }
}

impl<E, P, const CHUNKS: usize> AttentionGradientWindows<E, P, CHUNKS>
where
    E: Element<Sum = f32, Bits = u16> + HalfElement,
    P: GradientPass,
{
    /// Walks the warp's entries of a window and leaves what they add up to in shared memory; of a window that is the
    /// warp's as a whole, writes it to the gradients.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn work<S: Simt>(s: &S, p: &AttentionGradientParams, place: &Place) {
        // SAFETY: the caller's promise; whether sums are finite is the same for all lanes.
        unsafe {
            let (first, second) = Self::walk(s, p, place);
            let mut finite = are_finite(&first.sums);
            Self::share(s, 0, &first);
            if P::OVER_COLUMNS {
                finite &= are_finite(&second.sums);
                Self::share(s, 1, &second);
            }
            s.sync_warp(); // RAW: sums of lanes written -> read by others
            if s.ballot(!finite) != 0 {
                Self::repair(s, p, place);
                s.sync_warp(); // RAW: sums of lanes written -> read by others
            }
            if place.whole {
                Self::write(s, p, place);
            }
        }
    }

    /// Writes the sums of the warp's rows from shared memory to the gradients, four elements a lane.
    ///
    /// # Safety
    /// The obligations of the params; the warp has left them there.
    #[inline(always)]
    unsafe fn write<S: Simt>(s: &S, p: &AttentionGradientParams, place: &Place) {
        const QUAD: u32 = 4;
        let mut at = QUAD * s.lane();
        while at < Self::RESULTS * ROWS * Self::WIDTH {
            let (of_result, column) = (at / Self::WIDTH, at % Self::WIDTH);
            let (result, of_window) = (of_result / ROWS, of_result % ROWS);
            let row = place.window * ROWS + of_window;
            let SumsTo { matrix: to, scale, code } = if result == 0 { &p.sums[0] } else { &p.sums[1] };
            // Columns are a multiple of eight.
            if row < p.rows && column < to.columns {
                // SAFETY: the caller's promise; the elements are this lane's.
                unsafe {
                    let mut quad: [f32; 4] = s.load_shared(Self::sum_at(s.warp(), result, of_window, column));
                    each4(|i| quad[i] *= scale);
                    to.store_quad(s, *code, to.at(place.head, row, column), quad);
                }
            }
            at += QUAD * WARP;
        }
    }

    /// What the warp's entries of a window add up to, of the two gradients; the second over columns alone.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(
        s: &S,
        p: &AttentionGradientParams,
        place: &Place,
    ) -> (Sums<CHUNKS>, Sums<CHUNKS>) {
        let (mut first, mut second) = (Sums::EMPTY, Sums::EMPTY);
        let (group, quad) = (s.lane() / 4, s.lane() % 4);
        // SAFETY: the caller's promise; rows and entries are in range.
        unsafe {
            let own_row = (place.window * ROWS + group).min(p.rows - 1);
            // One after the other, and not in an array's map: what registers hold would be copied.
            let of_scores = Self::own(s, &p.own[0], [place.head, own_row, quad]);
            let of_responses = Self::own(s, &p.own[1], [place.head, own_row, quad]);
            let mut of_rows = [[0.0; 4]; 2];
            if !P::OVER_COLUMNS {
                Self::keep_terms(s, p, place);
                s.sync_warp(); // RAW: terms of rows written -> read by others
                each::<2>(|row| {
                    of_rows[row] = s.load_shared(Self::terms_at(s.warp(), 2 * quad + row as u32))
                });
            }
            let of_warp = s.warp() * Self::WARP_BYTES;
            let gathered = Gathered {
                scored: Tile::<E, CHUNKS>::new(s, &p.gathered[0], place.head, of_warp),
                responding: Tile::<E, CHUNKS>::new(s, &p.gathered[1], place.head, of_warp + Self::TILE_BYTES),
            };
            let entry_at = |at| entry_of_step::<S, Windows>(s, p.entries, at, place.end);
            let (mut at, mut stage) = (place.begin + place.first, 0);
            let (mut entry, mut next) = (0, 0);
            if at < place.end {
                (entry, next) = (entry_at(at), entry_at(at + place.stride));
                Self::bring(s, p, place.head, (&gathered, stage, entry));
            }
            s.copy_async_commit();
            while at < place.end {
                let after = entry_at(at + 2 * place.stride);
                if at + place.stride < place.end {
                    Self::bring(s, p, place.head, (&gathered, Self::STAGE_BYTES - stage, next));
                }
                s.copy_async_commit();
                s.copy_async_wait::<1>();
                s.sync_warp(); // RAW: gathered rows arrived -> multiplied
                let entries = [s.shuffle(entry, group), s.shuffle(entry, group + 8)];
                let mut of_entries = [[0.0; 4]; 2];
                if P::OVER_COLUMNS {
                    let terms = of_warp + Self::STEP_TERMS + stage + 16 * group;
                    of_entries = [s.load_shared(terms), s.load_shared(terms + 16 * 8)];
                }
                let scores = gathered.scored.products(s, stage, &of_scores); // (16, 8)
                let responses = gathered.responding.products(s, stage, &of_responses); // (16, 8)
                let (mut slopes, mut weights) = ([[0.0; 2]; 2], [[0.0; 2]; 2]);
                each::<2>(|entry| {
                    each::<2>(|row| {
                        let (of_window, register) = (2 * quad + row as u32, 2 * entry + row);
                        let (own, other) = (place.window * ROWS + of_window, Windows::column(entries[entry]));
                        let pair = Pair {
                            score: scores[register],
                            response: responses[register],
                            terms: if P::OVER_COLUMNS { of_entries[entry] } else { of_rows[row] },
                            entry: if P::OVER_COLUMNS { [other, own] } else { [own, other] },
                        };
                        let [slope, weight] = Self::slope(s, p, place.head, pair);
                        if Windows::rows_of(entries[entry]) >> of_window & 1 == 1 {
                            (slopes[entry][row], weights[entry][row]) = (slope, weight);
                        }
                    });
                });
                first.add(s, (&gathered.scored, stage), slopes);
                if P::OVER_COLUMNS {
                    second.add(s, (&gathered.responding, stage), weights);
                }
                s.sync_warp(); // WAR: gathered rows multiplied -> replaced
                (at, stage) = (at + place.stride, Self::STAGE_BYTES - stage);
                (entry, next) = (next, after);
            }
        }
        (first, second)
    }

    /// Starts copying what the entries of a step name to a stage.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here, and nobody reads the stage.
    #[inline(always)]
    unsafe fn bring<S: Simt>(
        s: &S,
        p: &AttentionGradientParams,
        head: u32,
        (gathered, stage, entry): (&Gathered<E, CHUNKS>, u32, u32),
    ) {
        let other = Windows::column(entry);
        // SAFETY: the caller's promise; columns are a multiple of a vector, and an entry names a row of both operands.
        unsafe {
            gathered.scored.bring(s, stage, other);
            gathered.responding.bring(s, stage, other);
            if P::OVER_COLUMNS && s.lane() < STEP {
                let terms = s.warp() * Self::WARP_BYTES + Self::STEP_TERMS + stage;
                let from = p.terms.at_wide(p.row_at(head, other));
                s.copy_async_16(terms + 16 * s.lane(), from.cast(), true);
            }
        }
    }

    /// The slope of a pair's score, and its weight after dropout.
    #[inline(always)]
    fn slope<S: Simt>(s: &S, p: &AttentionGradientParams, head: u32, pair: Pair) -> [f32; 2] {
        let [base, inverse, term, _] = pair.terms;
        let [row, column] = pair.entry;
        let weight = s.exp2((pair.score * p.scale - base) * LOG2_E) * inverse;
        let kept = p.dropped.kept(head, row, column, 1.0);
        [weight * (kept * pair.response - term), kept * weight]
    }

    /// The lane's part of the window's rows as the second operand; zeros beyond the last column.
    ///
    /// # Safety
    /// The obligations of the params; there is such a row.
    #[inline(always)]
    unsafe fn own<S: Simt>(s: &S, of: &HeadMatrix, [head, row, quad]: [u32; 3]) -> Own<CHUNKS> {
        let mut own = [[[0; 2]; 2]; CHUNKS];
        each::<CHUNKS>(|chunk| {
            each::<2>(|half| {
                each::<2>(|eight| {
                    let column = (32 * chunk + 16 * half + 8 * eight) as u32 + 2 * quad;
                    if column < of.columns {
                        // SAFETY: the caller's promise; columns are a multiple of eight.
                        own[chunk][half][eight] = unsafe { Self::pair(s, of, [head, row, column]) };
                    }
                });
            });
        });
        own
    }

    /// Stores a gradient's sums in shared memory.
    ///
    /// # Safety
    /// Nobody reads the warp's place.
    #[inline(always)]
    unsafe fn share<S: Simt>(s: &S, result: u32, sums: &Sums<CHUNKS>) {
        each::<2>(|row| {
            let factor = 1.0 / sums.scales[row];
            let at = Self::sum_at(s.warp(), result, 2 * (s.lane() % 4) + row as u32, s.lane() / 4);
            each::<CHUNKS>(|chunk| {
                each4(|eight| {
                    let sum = sums.sums[chunk][eight / 2][2 * (eight % 2) + row];
                    // SAFETY: the feature of the row is this lane's.
                    unsafe { s.store_shared(at + 32 * (4 * chunk + eight) as u32, sum * factor) };
                });
            });
        });
    }

    /// Adds up what the warps have left of a piece, in their order: to the gradients, or to the piece's slot.
    ///
    /// # Safety
    /// The obligations of the params; all threads of the block are here, behind a barrier after all has been left.
    #[inline(always)]
    unsafe fn add_warps<S: Simt>(s: &S, p: &AttentionGradientParams, [head, window, slot]: [u32; 3]) {
        let of_row = gradient_partial_floats(Self::RESULTS, Self::WIDTH);
        let of_slot = u64::from(head) * u64::from(p.slot_count) + u64::from(slot);
        let partial = p.partial.at_wide(of_slot * u64::from(ROWS * of_row));
        let mut at = s.thread_idx();
        while at < ROWS * of_row {
            let (of_window, in_row) = (at / of_row, at % of_row);
            let (result, column) = (in_row / Self::WIDTH, in_row % Self::WIDTH);
            let row = window * ROWS + of_window;
            // SAFETY: the caller's promise; the element is this thread's.
            unsafe {
                let mut sum = 0.0;
                each::<{ ATTENTION_WARPS as usize }>(|warp| {
                    let of_warp: f32 = s.load_shared(Self::sum_at(warp as u32, result, of_window, column));
                    sum += of_warp;
                });
                if slot != NO_SLOT {
                    s.store(partial.at(at), sum);
                } else if row < p.rows {
                    p.finish(s, [head, row, result, column], sum);
                }
            }
            at += s.block_dim();
        }
    }
}
