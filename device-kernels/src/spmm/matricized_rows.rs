//! `C = α·A·B + β·C` straight from CSR on Tensor Cores: dot products as MMAs over matricised rows (Lee and others,
//! TCA-SpMM, section 4).
//!
//! A row of `A` with up to `8·w` entries is *matricised*: cut into `w` chunks of eight, the columns of the MMA's 8 × 8
//! operand, chunk `i` in every column `n` with `n % w = i`. The other operand has in each of its sixteen rows eight
//! elements of a column of `B`, those in the rows that a chunk names: the column *compressed* by the row's pattern. So
//! `w` rows are a column of `B`, and one MMA works on `16/w` of them. Of the product only the elements where both
//! chunks are the same are wanted, the diagonals `D[m][m % 8]`; a column's are summed:
//!
//! ```text
//! w = 2           chunk 0  1  0  1  0  1  0  1   of the row of A
//! column j, 0          x  .  .  .  .  .  .  .
//! column j, 1          .  x  .  .  .  .  .  .    C[row][j]     = the first two x
//! column j+1, 0        .  .  x  .  .  .  .  .    C[row][j + 1] = the next two
//!    ⋮                            ⋱
//! ```
//!
//! | entries | warps `w` | columns of `B` for an MMA |
//! | --- | --- | --- |
//! | up to 8 | 1 | 16 |
//! | up to 16 | 2 | 8 |
//! | up to 32 | 4 | 4 |
//! | more | 8, a block | 2, sums stay in registers from one 64 entries to the next |
//!
//! ```text
//! step    8 warps: rows of w warps each, side by side; a slice of 64 columns, 8·w entries of a row
//! warp i of a row   brings chunk i of all columns, multiplies columns i·64/w.. of all chunks
//! shared  two steps; per row compressed[column][entry], words of two f16; word x lies at x ^ 4·(column/8 % 8)
//! ```
//!
//! Compressed columns go through shared memory, the paper's *compressed RHS buffer*, because they come row by row of
//! `B`, or element by element of a column-major `B`, and go chunk by chunk of a column. The exclusive or makes warps
//! write and read it without bank conflicts, whatever `w`.
//!
//! Blocks stay and take one step after the other. A step depends on three loads, each on the one before: what to do,
//! which rows of `B`, their elements. So these are under way for three steps at a time:
//!
//! ```text
//! step i       its elements -> shared, sync, multiply, write
//! step i + 1   elements of B asked for
//! step i + 2   column indices and values asked for
//! the next     its record asked for
//! ```
//!
//! Where this differs from the paper: a row of more than 64 entries that needs several blocks is divided among them by
//! its entries, not by columns of `C`, so that no block is left with a row of any length; pieces go to slots of the
//! workspace that [`combine`](crate::spmm::combine) adds in order. Sums need no buffer in shared memory on their way to
//! `C`: four MMAs' diagonals are brought together in a register, whose stores fill whole sectors.

mod layout;

pub use layout::{ColumnMajor, Layout, RowMajor, RowMajorElements};

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::spmm::dense::Dense;
use crate::unroll::each;
use crate::variant::Variant;

/// Warps of a block, and chunks of eight entries that it multiplies at a time.
pub const ROW_WARPS: u32 = 8;
/// Columns of a slice: a line of a row of `B`, of which each lane brings two rows' eight elements.
pub const SLICE: u32 = 64;
/// Entries of a row that a step takes at most.
const STEP: u32 = 8 * ROW_WARPS;
/// Bytes of shared memory for each warp and step: eight entries of all columns.
const WARP_BYTES: u32 = 8 * SLICE * 2;
/// In the last word of a warp's record, beside which of the row's warps it is: where the logarithm of their number is.
pub const WARPS_LOG2_AT: u32 = 4;
/// Sums are a piece's and go to a slot.
pub const KEEPS: u32 = 1 << 31;
/// No row of the block has more than one warp.
pub const APART: u32 = 1 << 30;

/// Arguments of [`MatricizedRows`].
///
/// # Obligations
/// - `warps[8·i + warp]`, for `i < count`: row of `C`, or slot; first entry; entries; and
///   `warp of the row | log₂ w << WARPS_LOG2_AT` with flags. The warps of a row follow each other among these eight and
///   have the same record but for their number; `w` is 1, 2, 4 or 8, with at most `8·w` entries if it is not 8. A warp
///   without work has one warp, no entries and [`NO_ROW`]. Either all eight records have [`APART`], and
///   `w = 1`, or none has; those that have come last.
/// - Entries lie below 2³² − 64; columns of entries are below k; `count` and the blocks of the grid, added up, below
///   2³².
/// - For layouts of vectors `b` and its rows are aligned to 16 bytes, and rows are readable up to `ldb`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct MatricizedRowsParams {
    /// The dense operands; `ldb` goes from column to column of a column-major `B`.
    pub dense: Dense,
    /// What each warp does.
    pub warps: GlobalPtr<[u32; 4]>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, f16 in pairs.
    pub values: GlobalPtr<u32>,
    /// Records of blocks; a block takes those from its own number on, in steps of the grid.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// One instance: how `B` is laid out and read.
pub struct MatricizedRows<L>(PhantomData<L>);

impl<L: Layout> Kernel for MatricizedRows<L> {
    type Params = MatricizedRowsParams;
    const FILE: &'static str = "spmm/matricized_rows";
    const VARIANT: Variant = Variant::MatricizedRows { column_major: L::COLUMN_MAJOR, vectors: L::VECTORS };
    const BLOCK_THREADS: u32 = ROW_WARPS * WARP;
    const SHARED_BYTES: u32 = 2 * ROW_WARPS * WARP_BYTES;
    const COLUMNS_PER_BLOCK: u32 = SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MatricizedRowsParams) {
        // SAFETY: the obligations of the params. All warps of a block go through the same steps: rows of several are
        // all of it, and others take one.
        unsafe {
            // 1. Locate.
            let slice = s.block_idx_y() * SLICE;
            let mut cursor = Cursor::begin(s, p);
            let mut step = cursor.step();
            let mut entries = Entries::read(s, p, &step);
            cursor.advance(s, p);
            let mut next = cursor.step();
            let mut next_entries = Entries::read(s, p, &next);
            let mut raw = L::fetch(s, &p.dense, entries.rows, slice + 8 * (s.lane() / 4));
            let mut sums = [[0.0; 4]; 4];
            let (mut buffer, mut was_apart) = (0, true);
            while step.row.block < p.count {
                // 2. Global -> shared: chunk `warp` of all columns.
                let shared = buffer + (s.warp() - step.row.warp) * WARP_BYTES;
                Self::store(s, &step.row, shared, &raw);
                // What the next steps need is asked for.
                raw = L::fetch(s, &p.dense, next_entries.rows, slice + 8 * (s.lane() / 4));
                cursor.advance(s, p);
                let after = cursor.step();
                let after_entries = Entries::read(s, p, &after);
                // RAW: warps read what those of their row have stored. WAR: two steps on, warps store where others read
                // now, which all have done when they come to the barrier between.
                if step.row.apart && was_apart {
                    s.sync_warp();
                } else {
                    s.sync_block();
                }
                // 3. and 4. Shared -> registers; multiply-accumulate.
                sums = multiply(s, p.dense.n(), &step.row, (slice, shared, entries.values), sums);
                // 5. Registers -> global.
                if step.is_last() {
                    finish(s, p, &step.row, slice, sums);
                    sums = [[0.0; 4]; 4];
                }
                was_apart = step.row.apart;
                (step, entries) = (next, next_entries);
                (next, next_entries) = (after, after_entries);
                buffer ^= ROW_WARPS * WARP_BYTES;
            }
        }
    }
}

/// What a warp has of a row.
#[derive(Clone, Copy)]
struct MatricizedRow {
    /// Which records of the block it is of.
    block: u32,
    /// Row of `C`, or slot.
    target: u32,
    keeps: bool,
    first: u32,
    entries: u32,
    /// Which of the row's warps this is, and the logarithm of their number.
    warp: u32,
    warps_log2: u32,
    /// Whether the block's warps need not wait for each other.
    apart: bool,
}

/// Up to 64 entries of a row.
#[derive(Clone, Copy)]
struct Step {
    row: MatricizedRow,
    /// Entries of the row in earlier steps.
    done: u32,
}

impl Step {
    /// Whether the row ends with it.
    #[inline(always)]
    const fn is_last(&self) -> bool {
        self.row.entries <= self.done + STEP
    }
}

/// The steps of a warp, one after the other.
struct Cursor {
    block: u32,
    record: [u32; 4],
    done: u32,
    /// The record that the warp takes next, read ahead.
    upcoming: [u32; 4],
}

impl Cursor {
    /// A warp that has nothing to do.
    const NOTHING: [u32; 4] = [NO_ROW, 0, 0, APART];

    #[inline(always)]
    unsafe fn begin<S: Simt>(s: &S, p: &MatricizedRowsParams) -> Self {
        let block = s.block_idx();
        // SAFETY: the obligations of the params.
        unsafe {
            let record = Self::read(s, p, block);
            Self { block, record, done: 0, upcoming: Self::read(s, p, block + s.grid_dim()) }
        }
    }

    /// Records beyond the last are those of nothing.
    #[inline(always)]
    unsafe fn read<S: Simt>(s: &S, p: &MatricizedRowsParams, block: u32) -> [u32; 4] {
        match block < p.count {
            // SAFETY: there is one for each warp of these blocks.
            true => unsafe { s.load_readonly(p.warps.at(block * ROW_WARPS + s.warp())) },
            false => Self::NOTHING,
        }
    }

    #[inline(always)]
    const fn step(&self) -> Step {
        let [target, first, entries, place] = self.record;
        let row = MatricizedRow {
            block: self.block,
            target,
            keeps: place & KEEPS != 0,
            first,
            entries,
            warp: place % ROW_WARPS,
            warps_log2: place >> WARPS_LOG2_AT & 3,
            apart: place & APART != 0,
        };
        Step { row, done: self.done }
    }

    #[inline(always)]
    unsafe fn advance<S: Simt>(&mut self, s: &S, p: &MatricizedRowsParams) {
        self.done += STEP;
        if self.done >= self.record[2] {
            // The blocks of a grid, and those that there are records for, do not wrap; behind the last there is none.
            self.block = if self.block < p.count { self.block + s.grid_dim() } else { self.block };
            (self.record, self.done) = (self.upcoming, 0);
            // SAFETY: the obligations of the params.
            self.upcoming = unsafe { Self::read(s, p, self.block.saturating_add(s.grid_dim())) };
        }
    }
}

/// What a lane needs of a step's entries.
#[derive(Clone, Copy)]
struct Entries {
    /// Its part of the 8 × 8 operand: two values of the chunk that its column, lane / 4, has.
    values: u32,
    /// The rows of `B` that it brings: of entries 2q and 2q + 1, `q = lane % 4`, of the warp's chunk.
    rows: [Option<u32>; 2],
}

impl Entries {
    #[inline(always)]
    unsafe fn read<S: Simt>(s: &S, p: &MatricizedRowsParams, Step { row, done }: &Step) -> Self {
        let values = p.values.cast::<u16>();
        let value = |at: u32| match at < row.entries {
            // SAFETY: an entry of the row.
            true => unsafe { s.load_readonly(values.at(row.first + at)) },
            false => 0,
        };
        let col = |at: u32| match at < row.entries {
            // SAFETY: an entry of the row.
            true => Some(unsafe { s.load_readonly(p.col_indices.at(row.first + at)) }),
            false => None,
        };
        // Column n of the operand has chunk n % w.
        let of_operand = done + 2 * (s.lane() & ((4 << row.warps_log2) - 1));
        let brought = done + 8 * row.warp + 2 * (s.lane() % 4);
        Self {
            values: u32::from(value(of_operand)) | u32::from(value(of_operand + 1)) << 16,
            rows: [col(brought), col(brought + 1)],
        }
    }
}

impl<L: Layout> MatricizedRows<L> {
    /// Stores the warp's chunk of eight columns from `8·(lane / 4)` on.
    #[inline(always)]
    unsafe fn store<S: Simt>(s: &S, row: &MatricizedRow, shared: u32, raw: &L::Raw) {
        let (octet, q) = (s.lane() / 4, s.lane() % 4);
        let words_log2 = 2 + row.warps_log2; // of a column
        each::<8>(|i| {
            let column = 8 * octet + i as u32;
            let at = ((column << words_log2) + 4 * row.warp + q) ^ (4 * octet);
            // SAFETY: the place is the row's.
            unsafe { s.store_shared(shared + 4 * at, L::word(s, raw, i)) };
        });
    }
}

/// Adds the products of a step's chunks and the warp's columns.
#[inline(always)]
unsafe fn multiply<S: Simt>(
    s: &S,
    n: u32,
    row: &MatricizedRow,
    operands: (u32, u32, u32),
    sums: [[f32; 4]; 4],
) -> [[f32; 4]; 4] {
    // SAFETY: the caller promises that the full warp is here, and that the row's chunks and columns were written.
    unsafe {
        [
            multiply_one(s, n, row, operands, (0, sums[0])),
            multiply_one(s, n, row, operands, (1, sums[1])),
            multiply_one(s, n, row, operands, (2, sums[2])),
            multiply_one(s, n, row, operands, (3, sums[3])),
        ]
    }
}

/// The MMA of this number.
#[inline(always)]
unsafe fn multiply_one<S: Simt>(
    s: &S,
    n: u32,
    row: &MatricizedRow,
    (slice, shared, values): (u32, u32, u32),
    (mma, sum): (u32, [f32; 4]),
) -> [f32; 4] {
    // The same for all lanes.
    if slice + ((row.warp * SLICE + 16 * mma) >> row.warps_log2) >= n {
        return sum;
    }
    // Sixteen rows of the operand are two runs of 32 words.
    let run = |run: u32| {
        let swizzle = 4 * (run >> row.warps_log2 & 7);
        // SAFETY: stored by the warps of the row.
        unsafe { s.load_shared(shared + 4 * (32 * run + (s.lane() ^ swizzle))) }
    };
    let at = row.warp * (SLICE / 8) + 2 * mma;
    // SAFETY: all lanes are here.
    unsafe { s.mma_m16n8k8_f16([run(at), run(at + 1)], values, sum) }
}

/// Sums the diagonals and writes them.
#[inline(always)]
unsafe fn finish<S: Simt>(
    s: &S,
    p: &MatricizedRowsParams,
    row: &MatricizedRow,
    slice: u32,
    sums: [[f32; 4]; 4],
) {
    let (m, mma) = (s.lane() / 4, s.lane() % 4); // whose diagonals the lane gets
    // SAFETY: all lanes are here; columns and rows that are written are the warp's own.
    unsafe {
        let [upper, lower] = diagonals(s, row.warps_log2, sums);
        let write = |column: u32, sum: f32| {
            if row.keeps {
                p.dense.keep(s, row.target, column, [sum]);
            } else if row.target != NO_ROW {
                p.dense.finish(s, (row.target, false), column, [sum]);
            }
        };
        let column = slice + ((row.warp * SLICE + 16 * mma + m) >> row.warps_log2);
        let beneath = column + (8 >> row.warps_log2);
        // Which of the rows of a column the lane has: the first two write what is above and beneath.
        let which = m & ((1 << row.warps_log2) - 1);
        if which < 2 {
            let (column, sum) = if which == 0 { (column, upper) } else { (beneath, lower) };
            write(column, sum);
        }
        if row.warps_log2 == 0 {
            write(beneath, lower);
        }
    }
}

/// For the MMA whose number is the lane's in its quad: the sum of the column that row `m = lane / 4` of the operand
/// belongs to, and that of row `m + 8`.
#[inline(always)]
unsafe fn diagonals<S: Simt>(s: &S, warps_log2: u32, sums: [[f32; 4]; 4]) -> [f32; 2] {
    let mut out = [0.0; 2];
    // SAFETY: all lanes are here, with the same number of warps.
    unsafe {
        // Written out: loops with collectives are not unrolled.
        diagonal(s, 0, sums[0], &mut out);
        diagonal(s, 1, sums[1], &mut out);
        diagonal(s, 2, sums[2], &mut out);
        diagonal(s, 3, sums[3], &mut out);
        let mut mask = 4;
        while mask < 4 << warps_log2 {
            out[0] += f32::from_bits(s.shuffle_xor(out[0].to_bits(), mask));
            out[1] += f32::from_bits(s.shuffle_xor(out[1].to_bits(), mask));
            mask *= 2;
        }
    }
    out
}

/// `D[m][m]` and `D[m + 8][m]` of this MMA, to the lane of the quad that has its number.
#[inline(always)]
unsafe fn diagonal<S: Simt>(s: &S, mma: u32, [a, b, c, d]: [f32; 4], out: &mut [f32; 2]) {
    let m = s.lane() / 4;
    let holder = 4 * m + m / 2;
    let (upper, lower) = if m.is_multiple_of(2) { (a, c) } else { (b, d) };
    // SAFETY: all lanes are here.
    let [upper, lower] = unsafe { [upper, lower].map(|x| f32::from_bits(s.shuffle(x.to_bits(), holder))) };
    if s.lane() % 4 == mma {
        *out = [upper, lower];
    }
}
