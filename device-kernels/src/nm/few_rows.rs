//! N:M products of few rows of activations, as in decoding: what takes time is to read the weights once.
//!
//! The operands of the MMA change places. Its 16 rows are columns of `C`, so that weights, the A operand, go from
//! memory straight to registers, 16 bytes a lane, several steps ahead; its 8 columns are rows of `C`.
//!
//! ```text
//! W     global --16 bytes a lane-->  A operand: 16 columns × 16 kept rows, in register order in memory
//! A     global --cp.async-->  shared (ROWS, WINDOW)   the activations of successive groups, as they lie
//! A     shared --as the form says-->  B operand: the columns of A that the step's rows are × 8 rows
//! sums  registers --shared, one warp after the other-->  C
//! ```
//!
//! A block has a strip of columns, and its warps share the steps, one after the other in turns; in the end they add up
//! what they have. So a strip is a block's as a whole, there are many blocks, and no second launch where these are
//! enough. Each block reads all activations, which is why there are to be few.
//!
//! Which activations the weights of a step multiply is a matter of the [`FewRowsForm`]: rows that a strip keeps are
//! picked from shared memory; of weights that keep two of each four rows, the sparse MMA picks them itself.

mod form;
mod work;

use core::marker::PhantomData;
use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

pub use self::form::{ByMetadata, ByPicks, FewRowsForm, few_rows_metadata_at, few_rows_pick_index};
use self::work::{Place, Rows, Work};
use crate::kernel::Kernel;
use crate::output::Output;
use crate::unroll::each;
use crate::variant::{NmTile, Variant};

/// Columns of weights that an MMA takes.
pub const FEW_ROWS_UNIT: u32 = 16;
/// Kept rows that it takes.
pub const FEW_ROWS_DEPTH: u32 = 16;
/// Warps of a block.
pub const FEW_ROWS_WARPS: u32 = 8;
/// Steps that a warp holds weights of: it may take so many of a window.
pub const FEW_ROWS_TURNS: u32 = RING;

const RING: u32 = 4;
/// Rows that the kept ones of a step are of, where these are two of each four.
const MOST_INNER: u32 = 2 * FEW_ROWS_DEPTH;
/// Windows that are in shared memory at a time.
const BUFFERS: u32 = 3;
const THREADS: u32 = FEW_ROWS_WARPS * WARP;
/// Columns of `A` behind a window: one of zeros, which is picked where nothing is kept, and as many as bring rows to
/// different banks.
const PAD: u32 = 8;
/// Bytes of an element, and elements of a vector of 16 bytes.
const ELEMENT: u32 = 2;
const VECTOR: u32 = 16 / ELEMENT;

/// Arguments of [`NmFewRows`].
///
/// # Obligations
/// - `a`: row-major, rows 16-byte aligned; of each of the output's rows, `k` elements are readable.
/// - a *step* is 16 kept rows, in their order, the last padded; a *window* is [`FEW_ROWS_WARPS`]` · turns` steps, and
///   holds the activations of the groups that these are of: from [`first_column`](Self::first_column) of it to its
///   [`end_column`](Self::end_column) it is [`NmFewRows::WINDOW`] columns long at most. `turns` divides
///   [`FEW_ROWS_TURNS`].
/// - `weights`, per strip, step and unit: [`few_rows_weight_index`] tells which is where; zero where nothing is kept.
/// - `names`, per strip and step, what the [form](FewRowsForm) says.
/// - `kept` and `group` are N and M of the pattern, not 0; they are 2 and 4 where the form is [`ByMetadata`].
/// - part `i` takes windows `i · windows_per_part..`, up to as many; it writes the output `i · part_elements` elements
///   further on; with more than one, that is an f32.
/// - the grid has a block for each strip, tile of rows and part, strips running fastest, then tiles.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmFewRowsParams {
    /// The result, or the partial sums of part 0.
    pub output: Output,
    /// Elements of the output from one part to the next.
    pub part_elements: u64,
    /// The activations, row after row.
    pub a: GlobalPtr<u32>,
    /// What is kept of the weights.
    pub weights: GlobalPtr<[u32; 4]>,
    /// Which activations they multiply.
    pub names: GlobalPtr<u32>,
    /// Elements from one row of `a` to the next.
    pub lda: u32,
    /// Columns of `a`, rows of the weights.
    pub k: u32,
    /// Rows that a group keeps.
    pub kept: u32,
    /// Rows of a group, of which it keeps those.
    pub group: u32,
    /// Steps of the product.
    pub steps: u32,
    /// Steps that a warp takes of a window.
    pub turns: u32,
    /// Windows of a part.
    pub windows_per_part: u32,
    /// Tiles of rows, at least one.
    pub m_tiles: u32,
    /// Strips of columns, at least one.
    pub strips: u32,
    /// Fills up the record: zero.
    pub padding: u32,
}

impl NmFewRowsParams {
    /// The first column of `A` that a window holds, a multiple of 8.
    #[inline(always)]
    #[must_use]
    pub fn first_column(&self, window: u32) -> u32 {
        let kept = NonZeroU32::new(self.kept).unwrap_or(NonZeroU32::MIN); // it is not 0
        window * self.window_rows() / kept * self.group / 8 * 8
    }

    /// The column behind the last that a window holds: columns from `k` on are zeros, up to the end of a step.
    #[inline(always)]
    #[must_use]
    pub fn end_column(&self, window: u32) -> u32 {
        let kept = NonZeroU32::new(self.kept).unwrap_or(NonZeroU32::MIN); // it is not 0
        let last = (window + 1) * self.window_rows() - 1;
        ((last / kept + 1) * self.group).min(self.k.next_multiple_of(MOST_INNER))
    }

    /// Kept rows of a window.
    #[inline(always)]
    #[must_use]
    pub const fn window_rows(&self) -> u32 {
        FEW_ROWS_WARPS * FEW_ROWS_DEPTH * self.turns
    }

    /// Windows of all parts.
    #[inline(always)]
    #[must_use]
    pub fn windows(&self) -> u32 {
        let turns = NonZeroU32::new(FEW_ROWS_WARPS * self.turns).unwrap_or(NonZeroU32::MIN); // it is not 0
        self.steps.div_ceil(turns.get())
    }
}

/// Where the weight of kept row `kept < 16` of a step and column `column < 16` of a unit is, in elements from the first
/// of these: in the order of the A operand's registers, those of lane `l` in vector `l` of 16 bytes.
#[must_use]
pub const fn few_rows_weight_index(kept: u32, column: u32) -> u32 {
    let (lane, register) = (column % 8 * 4 + kept % 8 / 2, column / 8 + kept / 8 * 2);
    (lane * 4 + register) * 2 + kept % 2
}

/// Weights of a step that a lane holds, and which activations they multiply.
type Held<F, const UNITS: usize> = ([[u32; 4]; UNITS], <F as FewRowsForm>::Names);
/// Sums of a lane: (8 rows of `C`, unit, register).
type Sums<const TILES: usize, const UNITS: usize> = [[[f32; 4]; UNITS]; TILES];

/// One instance, for f16 or bf16: `TILES` times 8 rows of `C` and `UNITS` times 16 columns a block.
pub struct NmFewRows<F, const TILES: usize, const UNITS: usize>(PhantomData<F>);

impl<F: FewRowsForm, const TILES: usize, const UNITS: usize> NmFewRows<F, TILES, UNITS> {
    /// Rows of `C` of a block.
    pub const ROWS: u32 = 8 * TILES as u32;
    /// Columns of `C` of a block.
    pub const STRIP: u32 = FEW_ROWS_UNIT * UNITS as u32;
    /// Columns of `A` that a window holds at most.
    pub const WINDOW: u32 = Self::TILE.few_rows_window();
    const TILE: NmTile =
        NmTile { rows: Self::ROWS, columns: Self::STRIP, strip: if F::SPARSE { 1 } else { Self::STRIP } };
    /// Bytes from one row of a window to the next.
    const PITCH: u32 = (Self::WINDOW + PAD) * ELEMENT;
    const WINDOW_BYTES: u32 = Self::ROWS * Self::PITCH;
    const WINDOW_VECTORS: u32 = Self::WINDOW * ELEMENT / 16;
    /// Registers of a lane's sums.
    const REGISTERS: u32 = (TILES * UNITS * 4) as u32;
    const VALID: () = {
        assert!(F::DTYPE.bytes() == ELEMENT, "elements of 16 bits");
        assert!(UNITS <= 2, "as many as metadata has selectors");
        assert!(BUFFERS * Self::ROWS <= THREADS, "a thread clears the pad of a row");
        assert!(Self::PITCH % 128 == 16, "the rows that lanes read lie in different banks");
        assert!(Self::WINDOW * ELEMENT < 1 << 16, "picks have 16 bits");
        assert!(
            FEW_ROWS_WARPS * Self::REGISTERS * WARP * 4 <= BUFFERS * Self::WINDOW_BYTES,
            "sums of all warps have room"
        );
    };
}

impl NmTile {
    /// Columns of `A` that are in shared memory at once for [`NmFewRows`] of this tile.
    #[must_use]
    pub const fn few_rows_window(self) -> u32 {
        if self.rows <= 16 { 1024 } else { 512 }
    }
}

impl<F: FewRowsForm, const TILES: usize, const UNITS: usize> Kernel for NmFewRows<F, TILES, UNITS> {
    type Params = NmFewRowsParams;
    const FILE: &'static str = "nm/few_rows";
    const VARIANT: Variant = Variant::NmFewRows { dtype: F::DTYPE, tile: Self::TILE, sparse: F::SPARSE };
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = BUFFERS * Self::WINDOW_BYTES;
    // Eleven thousand columns are then one round of blocks; more tiles have no registers for it.
    const MIN_BLOCKS: u32 = if TILES == 1 { 3 } else { 2 };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmFewRowsParams) {
        const { Self::VALID }
        let at = Place::new(s, p);
        let rows = Rows::new(p, at.tile * Self::ROWS, Self::ROWS);
        let mut work = Work::new(s, p, &at);
        // SAFETY: the obligations of the params. The window of a turn and the number of turns are the same for all
        // threads of the block, so that they meet in every barrier; a window is read after the wait and the barrier
        // that follow its copies, and overwritten after the barrier that follows its last read.
        unsafe {
            let mut held = [0, 1, 2, 3].map(|ahead| Self::hold(s, p, &work, ahead));
            Self::clear_pads(s);
            while work.brought < BUFFERS - 1 {
                Self::bring(s, p, &rows, &mut work);
            }
            let mut acc: Sums<TILES, UNITS> = [[[0.0; 4]; UNITS]; TILES];
            while work.has_windows() {
                Self::turn::<S, 0>(s, p, (&rows, &mut work), &mut held[0], &mut acc);
                Self::turn::<S, 1>(s, p, (&rows, &mut work), &mut held[1], &mut acc);
                Self::turn::<S, 2>(s, p, (&rows, &mut work), &mut held[2], &mut acc);
                Self::turn::<S, 3>(s, p, (&rows, &mut work), &mut held[3], &mut acc);
            }
            s.copy_async_wait::<0>();
            s.sync_block(); // WAR: windows read -> sums take their place
            Self::share(s, &acc);
            s.sync_block(); // RAW: sums of all warps -> added up
            Self::finish(s, p, &at, rows.count);
        }
    }
}

impl<F: FewRowsForm, const TILES: usize, const UNITS: usize> NmFewRows<F, TILES, UNITS> {
    /// Reads the weights of the step so many turns ahead, and which activations they multiply, if it is of the part.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn hold<S: Simt>(s: &S, p: &NmFewRowsParams, work: &Work, ahead: u32) -> Held<F, UNITS> {
        let mut held = ([[0; 4]; UNITS], F::NOTHING);
        let step = work.step + ahead * FEW_ROWS_WARPS;
        if step < work.end_step {
            let at = u64::from(work.strip) * u64::from(p.steps) + u64::from(step);
            let weights = p.weights.at_wide(at * (UNITS as u64 * u64::from(WARP)) + u64::from(s.lane()));
            // SAFETY: the caller's promise; there is such a step.
            unsafe {
                each::<UNITS>(|unit| held.0[unit] = s.load_readonly_once(weights.at(unit as u32 * WARP)));
                held.1 = F::names(s, p.names, at);
            }
        }
        held
    }

    /// One step of the warp, whose weights are held, and are replaced by those of a step to come. Turn `TURN` of all
    /// may be the first of a window.
    ///
    /// # Safety
    /// As for [`Kernel::run`]; all threads of the block are here.
    #[inline(always)]
    unsafe fn turn<S: Simt, const TURN: u32>(
        s: &S,
        p: &NmFewRowsParams,
        (rows, work): (&Rows, &mut Work),
        held: &mut Held<F, UNITS>,
        acc: &mut Sums<TILES, UNITS>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if TURN & (p.turns - 1) == 0 {
                s.copy_async_wait::<{ BUFFERS - 2 }>();
                s.sync_block(); // RAW: window arrived -> read; WAR: window before read -> next copies
                Self::bring(s, p, rows, work);
                work.arrived += 1;
                work.at = Work::next(work.at);
            }
            if work.step < work.end_step {
                let of_window = work.step & (FEW_ROWS_WARPS * p.turns - 1);
                Self::multiply(s, (work.at * Self::WINDOW_BYTES, of_window), rows.count, held, acc);
            }
            *held = Self::hold(s, p, work, RING);
            work.step += FEW_ROWS_WARPS;
        }
    }

    /// Zeros behind the windows.
    ///
    /// # Safety
    /// A barrier comes before anybody reads them, and no sums are there yet.
    #[inline(always)]
    unsafe fn clear_pads<S: Simt>(s: &S) {
        let row = s.thread_idx();
        if row < BUFFERS * Self::ROWS {
            // SAFETY: the 16 bytes behind a row, which no copy reaches.
            unsafe { s.store_shared(row * Self::PITCH + Self::WINDOW * ELEMENT, [0u32; 4]) };
        }
    }

    /// Asks for the activations of the next window, if there is one, and makes them a group of copies.
    ///
    /// # Safety
    /// The obligations of the params; nobody reads its buffer any more.
    #[inline(always)]
    unsafe fn bring<S: Simt>(s: &S, p: &NmFewRowsParams, rows: &Rows, work: &mut Work) {
        let window = work.first + work.brought;
        // SAFETY: rows that there are, and columns that a row is readable to.
        unsafe {
            if window < work.end {
                let first = p.first_column(window);
                let vectors = (p.end_column(window) - first).div_ceil(VECTOR);
                let mut at = s.thread_idx();
                while at < rows.count * Self::WINDOW_VECTORS {
                    let (row, vector) = (at / Self::WINDOW_VECTORS, at % Self::WINDOW_VECTORS);
                    if vector < vectors {
                        let column = first + VECTOR * vector;
                        let of_row = u64::from(row) * u64::from(p.lda) * u64::from(ELEMENT);
                        let from = rows.first.byte_add(of_row + u64::from(column * ELEMENT));
                        let to = work.to * Self::WINDOW_BYTES + row * Self::PITCH + 16 * vector;
                        if column + VECTOR <= p.k {
                            s.copy_async_16(to, from, true);
                        } else {
                            Self::bring_last(s, from, to, p.k.saturating_sub(column));
                        }
                    }
                    at += THREADS;
                }
            }
            s.copy_async_commit();
        }
        work.brought += 1;
        work.to = Work::next(work.to);
    }

    /// The `count < 8` elements that are left of a row, and zeros.
    ///
    /// # Safety
    /// They are there, and nobody reads the 16 bytes of shared memory any more.
    #[inline(always)]
    unsafe fn bring_last<S: Simt>(s: &S, from: GlobalPtr<u32>, to: u32, count: u32) {
        let from = from.cast::<u16>();
        let mut words = [0u32; 4];
        each::<{ VECTOR as usize }>(|i| {
            if (i as u32) < count {
                // SAFETY: the caller's promise.
                let element = u32::from(unsafe { s.load_readonly(from.at(i as u32)) });
                words[i / 2] |= element << (16 * (i % 2));
            }
        });
        // SAFETY: the caller's promise.
        unsafe { s.store_shared(to, words) };
    }

    /// `acc +=` the products of a step with rows of the window that begins at `window`, of which it is step `step`.
    ///
    /// # Safety
    /// The whole warp is here; the window has arrived.
    #[inline(always)]
    unsafe fn multiply<S: Simt>(
        s: &S,
        (window, step): (u32, u32),
        rows: u32,
        (weights, names): &Held<F, UNITS>,
        acc: &mut Sums<TILES, UNITS>,
    ) {
        each::<TILES>(|tile| {
            // Beyond the last row there is none: what that gives is not stored.
            let row = (8 * tile as u32 + s.lane() / 4).min(rows - 1);
            // SAFETY: the whole warp is here; the row has what the step multiplies.
            unsafe {
                let b = F::operand(s, window + row * Self::PITCH, step, *names);
                each::<UNITS>(|unit| {
                    let sums = &mut acc[tile][unit];
                    *sums = F::multiply(s, unit, (weights[unit], b), *sums, *names);
                });
            }
        });
    }

    /// Stores the warp's sums in shared memory: (warp, register, lane).
    ///
    /// # Safety
    /// All reads of windows are done.
    #[inline(always)]
    unsafe fn share<S: Simt>(s: &S, acc: &Sums<TILES, UNITS>) {
        let first = (s.warp() * Self::REGISTERS * WARP + s.lane()) * 4;
        each::<TILES>(|tile| {
            each::<UNITS>(|unit| {
                each::<4>(|i| {
                    let register = ((tile * UNITS + unit) * 4 + i) as u32;
                    // SAFETY: there is room for all warps.
                    unsafe { s.store_shared(first + register * WARP * 4, acc[tile][unit][i]) };
                });
            });
        });
    }

    /// Adds up the sums of all warps, in their order, and writes them.
    ///
    /// # Safety
    /// They are all there; the obligations of the params.
    #[inline(always)]
    unsafe fn finish<S: Simt>(s: &S, p: &NmFewRowsParams, place: &Place, rows: u32) {
        let mut output = p.output;
        // More than one part only for f32.
        output.c = output.c.at_wide(u64::from(place.part) * p.part_elements);
        let mut at = s.thread_idx();
        // Where a tile has most rows, no register is left to keep their number; what is beyond is not stored.
        let rows = if TILES == 4 { Self::ROWS } else { rows };
        while at < rows * Self::STRIP {
            let (row, column) = (at / Self::STRIP, at % Self::STRIP);
            // The register and lane of `fragment::c_f32`, whose rows are columns here.
            let (unit, of_unit) = (column / FEW_ROWS_UNIT, column % FEW_ROWS_UNIT);
            let lane = of_unit % 8 * 4 + row % 8 / 2;
            let register = (row / 8 * UNITS as u32 + unit) * 4 + of_unit / 8 * 2 + row % 2;
            let mut sum = 0.0f32;
            let mut warp = 0;
            while warp < FEW_ROWS_WARPS {
                let of_warp = (warp * Self::REGISTERS + register) * WARP + lane;
                // SAFETY: sums of a warp.
                sum += unsafe { s.load_shared::<f32>(of_warp * 4) };
                warp += 1;
            }
            let (row, column) = (place.tile * Self::ROWS + row, place.strip * Self::STRIP + column);
            // SAFETY: this element is this thread's, and of this part.
            unsafe { output.store(s, row, column, [sum]) };
            at += THREADS;
        }
    }
}

#[cfg(test)]
mod tests;
