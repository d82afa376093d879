//! Attention on Tensor Cores: windows of 4 or 8 rows, 16 entries at a time.
//!
//! ```text
//! scores   (16 entries, 8)  =  K of the entries (16, WIDTH)  ·  Q of the window, transposed (WIDTH, 8)
//! sums     (WIDTH, 8)      +=  V of the entries, transposed (WIDTH, 16)  ·  weights (16, 8)
//!
//! K    global --16 bytes a lane-->  A operand    elements in another order, Q in the same
//! V    global --cp.async-->  shared (16, WIDTH) --ldmatrix, transposed-->  A operand
//! weights  C registers --shuffles-->  B operand
//! ```
//!
//! A weight is two numbers of 16 bits, the nearest and what that leaves, so that sums are as exact as f32 weights make
//! them in f16. Of a window of 8 rows each is a product of its own; of one of 4 the 8 columns are both, side by side.
//!
//! Pairs that are no entries have weight zero, which a row of `V` that is not finite would turn into a NaN. So where
//! sums are not finite the rows of the window are added up once more, each by the entries that it has.

mod repair;
mod scores;

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, HalfElement, Simt, WARP};

use super::block::Shares;
use super::place::{Place, WindowPieces};
use super::sums::{Softmax, over_entries};
use super::tiles::{Tile, TileSums, VECTOR, are_finite, entry_of_step};
use super::window::WindowForm;
use super::{ATTENTION_WARPS, AttentionParams, HeadMatrix};
use crate::element::Element;
use crate::kernel::Kernel;
use crate::unroll::{each, each4};
use crate::variant::Variant;

const THREADS: u32 = ATTENTION_WARPS * WARP;

/// One instance, for f16 or bf16: what entries are, and 32-column chunks of `Q`, `K` and `V`.
pub struct AttentionWindows<E, W, const CHUNKS: usize>(PhantomData<(E, W)>);

/// What a warp has of a window.
struct State<const CHUNKS: usize> {
    sums: TileSums<CHUNKS>,
    /// Of each of the lane's rows.
    rows: [Softmax; 2],
}

/// A step of a warp's walk, as a lane has it.
struct Step<'a> {
    p: &'a AttentionParams,
    place: &'a Place,
    /// Position of the first entry.
    at: u32,
    /// Entries `lane / 4` and `lane / 4 + 8`.
    pair: [u32; 2],
    /// Where the entries of each of the lane's rows are, if windows are by entries.
    extents: [[u32; 2]; 2],
}

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, W: WindowForm, const CHUNKS: usize>
    AttentionWindows<E, W, CHUNKS>
{
    /// Columns that there is room for.
    pub const WIDTH: u32 = 32 * CHUNKS as u32;
    /// Where warps leave what they have of a window, in the place of the last rows of `V`.
    const SHARES: Shares = Shares::new(W::ROWS, Self::WIDTH, 1, Tile::<E, CHUNKS>::BYTES);
    const VALID: () = {
        assert!(matches!(W::ROWS, 4 | 8), "columns of the MMA are rows of the window, or two for each");
        assert!(CHUNKS.is_power_of_two() && CHUNKS <= 8, "vectors of a row are a power of two");
    };
}

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, W: WindowForm, const CHUNKS: usize> Kernel
    for AttentionWindows<E, W, CHUNKS>
{
    type Params = AttentionParams;
    const FILE: &'static str = "attention/forward";
    const VARIANT: Variant =
        Variant::AttentionWindows { dtype: E::DTYPE, rows: W::ROWS, shared: W::SHARED, width: Self::WIDTH };
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = Self::SHARES.end() + Self::QUERY_BYTES;
    // As many as registers allow without spilling.
    const MIN_BLOCKS: u32 = match (CHUNKS, W::SHARED) {
        (1, true) => 7,
        (1, false) => 6,
        (2, true) => 5,
        (2, false) => 4,
        (4, _) => 3,
        _ => 2,
    };
    const MIN_BLOCKS_FROM_SM90: u32 = if CHUNKS == 4 && W::SHARED { 4 } else { Self::MIN_BLOCKS };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AttentionParams) {
        const { Self::VALID }
        let of = WindowPieces {
            pieces: p.pieces,
            piece_count: p.piece_count,
            window_count: p.window_count,
            longest: p.longest,
        };
        // SAFETY: the obligations of the params. A block is a piece's as a whole, or none of its threads meets the
        // barrier; windows are a warp's as a whole.
        unsafe {
            let extent = |window| Self::extent(s, p, window);
            let Some((place, slot)) = Place::of_warp(s, &of, s.block_idx_y(), extent) else { return };
            Self::work(s, p, &place);
            if !place.whole {
                s.sync_block(); // RAW: sums of warps written -> joined
                Self::SHARES.join(s, p, [place.head, place.window, slot]);
            }
        }
    }
}

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, W: WindowForm, const CHUNKS: usize>
    AttentionWindows<E, W, CHUNKS>
{
    /// First entry of a window, and its end.
    ///
    /// # Safety
    /// The obligations of the params; there is such a window.
    #[inline(always)]
    unsafe fn extent<S: Simt>(s: &S, p: &AttentionParams, window: u32) -> [u32; 2] {
        let per_window = if W::SHARED { 1 } else { W::ROWS };
        let last = if W::SHARED { p.window_count } else { p.rows };
        let first = window * per_window;
        // SAFETY: the caller's promise.
        unsafe {
            [
                s.load_readonly(p.offsets.at(first)),
                s.load_readonly(p.offsets.at((first + per_window).min(last))),
            ]
        }
    }

    /// Walks the warp's entries of a window and leaves what they add up to in shared memory; of a window that is the
    /// warp's as a whole, writes it to the result.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn work<S: Simt>(s: &S, p: &AttentionParams, place: &Place) {
        // SAFETY: the caller's promise; whether sums are finite is the same for all lanes.
        unsafe {
            let state = Self::walk(s, p, place);
            Self::share(s, &state, place.whole);
            s.sync_warp(); // RAW: sums of lanes written -> read by others
            if s.ballot(!are_finite(&state.sums)) != 0 {
                Self::repair(s, p, place);
                s.sync_warp(); // RAW: sums of lanes written -> read by others
            }
            if place.whole {
                Self::write(s, p, place);
            }
        }
    }

    /// What the warp's entries of a window add up to.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here.
    #[inline(always)]
    unsafe fn walk<S: Simt>(s: &S, p: &AttentionParams, place: &Place) -> State<CHUNKS> {
        let mut state = State { sums: [[[0.0; 4]; 2]; CHUNKS], rows: [Softmax::EMPTY; 2] };
        let (group, quad) = (s.lane() / 4, s.lane() % 4);
        // SAFETY: the caller's promise; rows and entries are in range.
        unsafe {
            // Column `group` of the second operand is a row of the window, or half of what that has.
            let asking = (place.window * W::ROWS + group / (8 / W::ROWS)).min(p.rows - 1);
            let query = Self::vectors(s, &p.q, Self::lane_start(&p.q, place.head, quad), asking, quad);
            let query = Self::keep_query(s, query);
            let keys_start = Self::lane_start(&p.k, place.head, quad);
            let values_at = s.warp() * Self::SHARES.warp_bytes;
            let values = Tile::<E, CHUNKS>::new(s, &p.v, place.head, values_at);
            let mut extents = [[0; 2]; 2];
            if !W::SHARED {
                each::<2>(|i| {
                    if i < W::LANE_ROWS {
                        extents[i] = Self::row_extent(s, p, place, Self::of_window(s, i));
                    }
                });
            }
            let mut at = place.begin + place.first;
            let mut next =
                if at < place.end { entry_of_step::<S, W>(s, p.entries, at, place.end) } else { 0 };
            while at < place.end {
                let entry = next;
                next = entry_of_step::<S, W>(s, p.entries, at + place.stride, place.end);
                values.bring(s, 0, W::column(entry));
                s.copy_async_commit();
                let pair = [s.shuffle(entry, group), s.shuffle(entry, group + 8)];
                let keys = pair.map(|entry| Self::vectors(s, &p.k, keys_start, W::column(entry), quad));
                let step = Step { p, place, at, pair, extents };
                let scores = Self::mask(s, &step, Self::scores(s, &query, &keys)); // (16, 8)
                let weights = Self::operands(s, Self::weigh(s, &step, &mut state, scores)); // (16, 8), twice
                s.copy_async_wait::<0>();
                s.sync_warp(); // RAW: rows of V arrived -> multiplied
                values.accumulate(s, 0, (&weights, W::LANE_ROWS == 2), &mut state.sums);
                s.sync_warp(); // WAR: rows of V multiplied -> replaced
                at += place.stride;
            }
            each::<2>(|i| {
                if i < W::LANE_ROWS {
                    state.rows[i].weight = over_entries(s, state.rows[i].weight, |a, b| a + b);
                }
            });
        }
        state
    }

    /// The entries of row `row` of the window that are the place's, as first and end; windows are by entries.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn row_extent<S: Simt>(s: &S, p: &AttentionParams, place: &Place, row: u32) -> [u32; 2] {
        let first = (place.window * W::ROWS + row).min(p.rows);
        // SAFETY: the caller's promise.
        let [begin, end] = unsafe {
            [s.load_readonly(p.offsets.at(first)), s.load_readonly(p.offsets.at((first + 1).min(p.rows)))]
        };
        [begin.max(place.begin), end.min(place.end)]
    }

    /// Where row 0 of a head begins for a lane, whose vector of chunk `i` is elements `32·i + 8·quad..` of a row.
    #[inline(always)]
    fn lane_start(of: &HeadMatrix, head: u32, quad: u32) -> GlobalPtr<u16> {
        of.first.cast().at_wide(of.at(head, 0, VECTOR * quad))
    }

    /// The lane's vectors of a row; zeros beyond the last column.
    ///
    /// # Safety
    /// The obligations of the params; there is such a row.
    #[inline(always)]
    unsafe fn vectors<S: Simt>(
        s: &S,
        of: &HeadMatrix,
        start: GlobalPtr<u16>,
        row: u32,
        quad: u32,
    ) -> [[u32; 4]; CHUNKS] {
        let row = start.at_wide(u64::from(row) * u64::from(of.ld));
        let mut vectors = [[0; 4]; CHUNKS];
        each::<CHUNKS>(|chunk| {
            let column = 32 * chunk as u32;
            if column + VECTOR * quad < of.columns {
                // SAFETY: the caller's promise; columns are a multiple of a vector.
                vectors[chunk] = unsafe { s.load_readonly(row.at(column).cast::<[u32; 4]>()) };
            }
        });
        vectors
    }

    /// Row `row` of the lane in its window.
    #[inline(always)]
    fn of_window<S: Simt>(s: &S, row: usize) -> u32 {
        W::LANE_ROWS as u32 * (s.lane() % 4) + row as u32
    }

    /// Stores the sums and states of the rows in shared memory; sums are divided by their weights if they are `whole`.
    ///
    /// # Safety
    /// Nobody reads the warp's place.
    #[inline(always)]
    unsafe fn share<S: Simt>(s: &S, state: &State<CHUNKS>, whole: bool) {
        each::<2>(|row| {
            if row < W::LANE_ROWS {
                let (of_window, softmax) = (Self::of_window(s, row), state.rows[row]);
                let factor = if whole { softmax.inverse() } else { 1.0 };
                let at = Self::SHARES.sum_at(s.warp(), of_window, s.lane() / 4);
                each::<CHUNKS>(|chunk| {
                    each4(|eight| {
                        let registers = state.sums[chunk][eight / 2];
                        let first = 2 * (eight % 2);
                        let sum = match W::LANE_ROWS {
                            1 => registers[first] + registers[first + 1],
                            _ => registers[first + row],
                        };
                        // SAFETY: the feature of the row is this lane's.
                        unsafe { s.store_shared(at + 32 * (4 * chunk + eight) as u32, sum * factor) };
                    });
                });
                if s.lane() / 4 == 0 {
                    // SAFETY: the row of the warp is this lane's.
                    unsafe { Self::SHARES.keep_state(s, [s.warp(), of_window, 0], softmax) };
                }
            }
        });
    }

    /// Writes the warp's rows from shared memory to the result, four elements a lane, and their states.
    ///
    /// # Safety
    /// The obligations of the params; the warp has left them there.
    #[inline(always)]
    unsafe fn write<S: Simt>(s: &S, p: &AttentionParams, place: &Place) {
        const QUAD: u32 = 4;
        let mut at = QUAD * s.lane();
        while at < W::ROWS * Self::WIDTH {
            let (of_window, column) = (at / Self::WIDTH, at % Self::WIDTH);
            let row = place.window * W::ROWS + of_window;
            if row < p.rows && column < p.out.columns {
                // SAFETY: the elements are this lane's.
                unsafe {
                    let quad = s.load_shared(Self::SHARES.sum_at(s.warp(), of_window, column));
                    p.store_quad(s, (place.head, row, column), quad);
                }
            }
            at += QUAD * WARP;
        }
        let row = place.window * W::ROWS + s.lane();
        if s.lane() < W::ROWS && row < p.rows {
            // SAFETY: the row is this lane's.
            unsafe { p.keep_state(s, place.head, row, Self::SHARES.state(s, [s.warp(), s.lane(), 0])) };
        }
    }
}
