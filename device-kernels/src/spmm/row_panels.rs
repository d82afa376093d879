//! `C = α·A·B + β·C` on CUDA cores, in f32: the rows of a panel share what they need of `B` in shared memory.
//!
//! A *panel* is [`PANEL_ROWS`] rows. Its distinct columns, ascending, are cut into *chunks* of [`SLOTS`]: a chunk's
//! rows of `B` come to shared memory once, and every entry of the panel that is in one of these columns reads its row
//! there. What the rows of a panel have in common is therefore moved from the L2 cache once for all of them, where
//! gathering moves it once for each. (Dense tiles of adaptive sparse tiling, Hong et al. 2019, are staged likewise;
//! here all columns of a panel are.)
//!
//! Four rows are a *bundle*; a *vector* is what a bundle has in one column, one to four entries, so that a row of `B`
//! is read once from shared memory for all four:
//!
//! ```text
//! B rows    global --cp.async-->  shared, STAGES × (SLOTS, SLICE)
//! record    global --cp.async-->  shared: which vectors each warp has, their slots and masks, their values
//! B         shared --16 bytes a lane-->               (1, SLICE)
//! values    shared --16 bytes, a way's all the same-->  (4)
//! sums      registers, two bundles a warp              (8, SLICE)
//! ```
//!
//! `LANES` lanes lie across a slice of the width; where these are fewer than a warp, its other lanes take other pairs
//! of vectors of the same bundles, and the sums are added at the end. A row's entries are added in the order of their
//! columns, by way; so the result is the same in every run. A mask says which rows of a bundle have an entry: absent
//! ones are skipped and not multiplied by zero, so that an infinity of `B` reaches only the rows that refer to it.
//!
//! A block takes one *piece*: all chunks of a panel, or some of them, whose sums go to the workspace, where
//! [`combine`](crate::spmm::combine) adds them.

mod record;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::kernel::Kernel;
use crate::panels::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, WARP_BUNDLES};
use crate::real::Real;
use crate::spmm::dense::Dense;
use crate::unroll::{each, each4};
use crate::variant::Variant;
use crate::{NO_COLUMN, NO_ROW, NO_SLOT};

use record::{BOUND_BITS, NAME_BYTES, RECORD_BYTES, SLOT_AT};
pub use record::{
    HEAD_WORDS, MAX_PAIRS, NAME_WORDS, SLOTS, bounds_word, record_words, values_at, vector_word,
};

/// Chunks in shared memory.
const STAGES: u32 = 2;

/// Arguments of [`RowPanels`].
///
/// # Obligations
/// - `pieces[i] = [panel, begin, end, slot]`: the chunks `begin..end`, of one panel, none for a panel without entries.
///   `slot` is [`NO_SLOT`] if they are all of the panel's; else the piece's sums are the rows `slot..slot + PANEL_ROWS`
///   of the workspace, its own unless `dense.accumulate` is set.
/// - `rows`: the rows of `C` of each panel, bundle by bundle, below m, or [`NO_ROW`]; no row in two panels.
/// - `names`, [`NAME_WORDS`] of each chunk: `SLOTS` columns, below k, or [`NO_COLUMN`] in slots that no vector has;
///   where its record begins, and how long it is, in vectors of 16 bytes; two words of padding.
/// - a record: a [`bounds_word`] for each warp, the pairs of all warps in their order and no others; from
///   [`HEAD_WORDS`] on a [`vector_word`] for each vector, two of each pair; from [`values_at`] on four values of each
///   vector. A vector without bits is a pad, whose slot is 0: the second of a pair, or both of a bundle that has no
///   entry in the chunk.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct RowPanelsParams {
    /// `B`, `C` and the workspace.
    pub dense: Dense,
    /// `[panel, begin, end, slot]` of each piece, a block each.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// Rows of each panel, four of a bundle.
    pub rows: GlobalPtr<[u32; 4]>,
    /// Columns of each chunk, and where its record is.
    pub names: GlobalPtr<u32>,
    /// The records of all chunks.
    pub records: GlobalPtr<[u32; 4]>,
}

/// What a warp adds up of four columns of each lane: the rows of its bundles.
type Sums = [[[f32; 4]; BUNDLE_ROWS as usize]; WARP_BUNDLES as usize];

/// One instance: lanes across a slice of the width, how often four columns each of them has, and whether rows of `B`
/// are aligned to 16 bytes.
pub struct RowPanels<const LANES: u32, const QUADS: usize, const VECTORS: bool>;

impl<const LANES: u32, const QUADS: usize, const VECTORS: bool> RowPanels<LANES, QUADS, VECTORS> {
    const VALID: () = assert!(
        (QUADS == 1 && (LANES == 8 || LANES == 16)) || (QUADS <= 2 && LANES == WARP),
        "a slice of one cache line, two, four or eight"
    );
    /// Columns that the lanes have of one quad each.
    const QUAD_COLUMNS: u32 = 4 * LANES;
    /// Columns of a slice of the width.
    pub const SLICE: u32 = QUADS as u32 * Self::QUAD_COLUMNS;
    /// Pairs of vectors that a warp takes side by side.
    const WAYS: u32 = WARP / LANES;
    const ROW_BYTES: u32 = 4 * Self::SLICE;
    const ROWS_BYTES: u32 = SLOTS * Self::ROW_BYTES;
    /// Behind the rows of `B` of all stages: what else each brings.
    const BROUGHT_BYTES: u32 = NAME_BYTES + RECORD_BYTES;
    /// Rows of `B` that a lane helps to bring.
    const COPIES: usize = (SLOTS / PANEL_WARPS / Self::WAYS) as usize;
}

impl<const LANES: u32, const QUADS: usize, const VECTORS: bool> Kernel for RowPanels<LANES, QUADS, VECTORS> {
    type Params = RowPanelsParams;
    const FILE: &'static str = "spmm/row_panels";
    const VARIANT: Variant = Variant::RowPanels { slice: Self::SLICE, vectors: VECTORS };
    const BLOCK_THREADS: u32 = PANEL_WARPS * WARP;
    const SHARED_BYTES: u32 = STAGES * (Self::ROWS_BYTES + Self::BROUGHT_BYTES);
    // As many as registers allow without spilling.
    const MIN_BLOCKS: u32 = if QUADS == 1 { 3 } else { 2 };
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RowPanelsParams) {
        const { Self::VALID }
        // 1. Locate.
        let block = Block::<S, LANES, QUADS, VECTORS>::locate(s, p);
        // SAFETY: the grid has a block for each piece; chunks, columns, rows and records are in range by the
        // obligations of the params. All threads of a block have the same piece, so that they meet at its barriers.
        unsafe {
            let [_, begin, end, _] = s.load_readonly(p.pieces.at(s.block_idx()));
            let mut sums: [Sums; QUADS] = [[[[0.0; 4]; 4]; 2]; QUADS]; // (8, SLICE)
            if begin < end {
                let mut stage = Stage { number: 0 };
                block.stage(stage, (begin, end), block.names(begin));
                let mut chunk = begin;
                while chunk < end {
                    // 2. Global -> shared: into the stage that all warps have left.
                    s.copy_async_wait::<0>();
                    s.sync_block(); // RAW: staged -> read; WAR: reads of the chunk before -> next stage
                    if chunk + 1 < end {
                        block.stage(stage.other(), (chunk + 1, end), block.staged_names(stage));
                    }
                    // 3. and 4. Shared -> registers, multiply-accumulate.
                    block.multiply(stage, &mut sums);
                    stage = stage.other();
                    chunk += 1;
                }
            }
            // 5. Registers -> global.
            block.finish(sums);
        }
    }
}

/// What must be known of a chunk before it is brought.
#[derive(Clone, Copy)]
struct Names {
    /// Columns whose rows of `B` the lane helps to bring.
    columns: [u32; 4],
    /// First vector of the record, and how many there are.
    record: [u32; 2],
}

/// One of the [`STAGES`].
#[derive(Clone, Copy)]
struct Stage {
    number: u32,
}

impl Stage {
    #[inline(always)]
    fn other(self) -> Self {
        Self { number: self.number ^ 1 }
    }
}

/// Where a lane is.
struct Block<'a, S, const LANES: u32, const QUADS: usize, const VECTORS: bool> {
    s: &'a S,
    p: &'a RowPanelsParams,
    warp: u32,
    /// Which of the pairs that the warp takes side by side.
    way: u32,
    /// First of the lane's columns of `B` and `C`.
    column: u32,
    /// Bytes in front of the lane's columns in a staged row.
    across: u32,
}

impl<'a, S: Simt, const LANES: u32, const QUADS: usize, const VECTORS: bool>
    Block<'a, S, LANES, QUADS, VECTORS>
{
    const WAYS: u32 = RowPanels::<LANES, QUADS, VECTORS>::WAYS;
    const ROW_BYTES: u32 = RowPanels::<LANES, QUADS, VECTORS>::ROW_BYTES;
    const ROWS_BYTES: u32 = RowPanels::<LANES, QUADS, VECTORS>::ROWS_BYTES;
    const QUAD_BYTES: u32 = 4 * RowPanels::<LANES, QUADS, VECTORS>::QUAD_COLUMNS;
    const COPIES: usize = RowPanels::<LANES, QUADS, VECTORS>::COPIES;

    #[inline(always)]
    fn locate(s: &'a S, p: &'a RowPanelsParams) -> Self {
        let lane = s.lane();
        let across = lane % LANES * 4;
        Self {
            s,
            p,
            warp: s.warp(),
            way: lane / LANES,
            column: s.block_idx_y() * RowPanels::<LANES, QUADS, VECTORS>::SLICE + across,
            across: across * 4,
        }
    }

    /// First column of a quad of the lane.
    #[inline(always)]
    fn column_of(&self, quad: usize) -> u32 {
        self.column + quad as u32 * RowPanels::<LANES, QUADS, VECTORS>::QUAD_COLUMNS
    }

    /// The rows of `B` of a stage, a multiple of what they are together.
    #[inline(always)]
    fn rows_of(stage: Stage) -> u32 {
        stage.number * Self::ROWS_BYTES
    }

    /// The names of the chunk behind the one of a stage.
    #[inline(always)]
    fn names_of(stage: Stage) -> u32 {
        STAGES * Self::ROWS_BYTES + stage.number * RowPanels::<LANES, QUADS, VECTORS>::BROUGHT_BYTES
    }

    /// The record of a stage.
    #[inline(always)]
    fn record_of(stage: Stage) -> u32 {
        Self::names_of(stage) + NAME_BYTES
    }

    /// The slot of the row of `B` that the lane brings with its copy number `copy`.
    #[inline(always)]
    fn slot(&self, copy: usize) -> u32 {
        self.warp * (SLOTS / PANEL_WARPS) + copy as u32 * Self::WAYS + self.way
    }

    /// The names of a chunk, from global memory.
    ///
    /// # Safety
    /// A chunk of the params.
    #[inline(always)]
    unsafe fn names(&self, chunk: u32) -> Names {
        let names = self.p.names.at_wide(u64::from(chunk) * u64::from(NAME_WORDS));
        // SAFETY: every chunk has names.
        self.read_names(|word| unsafe { self.s.load_readonly(names.at(word)) })
    }

    /// The names of the chunk behind the one in a stage, which brought them: nothing waits for a load into a register.
    ///
    /// # Safety
    /// The stage has arrived, and there is such a chunk.
    #[inline(always)]
    unsafe fn staged_names(&self, stage: Stage) -> Names {
        // SAFETY: inside the stage.
        self.read_names(|word| unsafe { self.s.load_shared(Self::names_of(stage) + 4 * word) })
    }

    #[inline(always)]
    fn read_names(&self, word: impl Fn(u32) -> u32) -> Names {
        let mut columns = [NO_COLUMN; 4];
        each4(|copy| {
            if copy < Self::COPIES {
                columns[copy] = word(self.slot(copy));
            }
        });
        Names { columns, record: [word(SLOTS), word(SLOTS + 1)] }
    }

    /// Starts bringing a chunk, and the names of the one behind it if that is below `end`, to a stage.
    ///
    /// # Safety
    /// Collective: the whole block. Nobody reads the stage any more; the names are those of the chunk.
    #[inline(always)]
    unsafe fn stage(&self, stage: Stage, (chunk, end): (u32, u32), names: Names) {
        let thread = self.s.thread_idx();
        // SAFETY: columns are below k or NO_COLUMN, of which nothing is read; the record fits in its place.
        unsafe {
            each4(|copy| {
                if copy < Self::COPIES {
                    let to = Self::rows_of(stage) + self.slot(copy) * Self::ROW_BYTES + self.across;
                    each::<QUADS>(|quad| {
                        let to = to + quad as u32 * Self::QUAD_BYTES;
                        self.stage_row(to, names.columns[copy], self.column_of(quad));
                    });
                }
            });
            if thread < NAME_WORDS / 4 && chunk + 1 < end {
                let from = u64::from(chunk + 1) * u64::from(NAME_WORDS) + u64::from(4 * thread);
                let to = Self::names_of(stage) + 16 * thread;
                self.s.copy_async_16(to, self.p.names.at_wide(from), true);
            }
            let [first, count] = names.record;
            each4(|round| {
                let at = thread + round as u32 * (PANEL_WARPS * WARP);
                if round as u32 * (PANEL_WARPS * WARP) * 16 < RECORD_BYTES && at < count {
                    let from = self.p.records.at(first + at).cast();
                    self.s.copy_async_16(Self::record_of(stage) + 16 * at, from, true);
                }
            });
            self.s.copy_async_commit();
        }
    }

    /// Four elements of a row of `B`, from a column on; zeros without a read beyond the width and for no column.
    ///
    /// # Safety
    /// The column is below k or [`NO_COLUMN`]; 16 bytes at `to` are of the stage.
    #[inline(always)]
    unsafe fn stage_row(&self, to: u32, col: u32, column: u32) {
        let dense = &self.p.dense;
        let inside = if col == NO_COLUMN { 0 } else { dense.n().saturating_sub(column) };
        let from = dense.b.at(column).at_wide(u64::from(col).wrapping_mul(u64::from(dense.ldb)));
        // SAFETY: with vectors, a row is readable up to n rounded up to 16 bytes; without, `inside` elements are.
        unsafe {
            if VECTORS {
                self.s.copy_async_16(to, from, inside > 0);
            } else {
                let mut elements = [0u32; 4];
                each4(|i| {
                    if (i as u32) < inside {
                        elements[i] = self.s.load_readonly(from.at(i as u32));
                    }
                });
                self.s.store_shared(to, elements);
            }
        }
    }

    /// Adds the warp's part of a chunk.
    ///
    /// # Safety
    /// The stage has arrived, and nobody writes it.
    #[inline(always)]
    unsafe fn multiply(&self, stage: Stage, sums: &mut [Sums; QUADS]) {
        let record = Self::record_of(stage);
        let bounds = |warp: u32| {
            // SAFETY: the head of the record.
            let word: u32 = unsafe { self.s.load_shared(record + 4 * warp) };
            let bound = |i: u32| word >> (i * BOUND_BITS) & ((1 << BOUND_BITS) - 1);
            [bound(0), bound(1), bound(2)]
        };
        let [begin, middle, end] = bounds(self.warp);
        let [_, _, pairs] = bounds(PANEL_WARPS - 1);
        let values = record + 4 * values_at(pairs);
        // SAFETY: the pairs of the warp's bundles.
        unsafe {
            self.add::<0>(stage, values, begin..middle, sums);
            self.add::<1>(stage, values, middle..end, sums);
        }
    }

    /// Adds pairs of vectors to the sums of their bundle.
    ///
    /// # Safety
    /// The pairs are those of one bundle, in a stage that has arrived and whose values begin at `values`.
    #[inline(always)]
    unsafe fn add<const BUNDLE: usize>(
        &self,
        stage: Stage,
        values: u32,
        pairs: core::ops::Range<u32>,
        sums: &mut [Sums; QUADS],
    ) {
        let s = self.s;
        // Rows lie at multiples of their bytes, so that no bit of their places is one of what is in front of them.
        let rows = Self::rows_of(stage) | self.across;
        let row = |word: u32| {
            rows | (word >> (SLOT_AT - Self::ROW_BYTES.ilog2())) & (Self::ROWS_BYTES - Self::ROW_BYTES)
        };
        let mut first = pairs.start;
        // A bundle has a pair at least: with a loop that may be left at once the compiler keeps each sum twice.
        loop {
            // Lanes for which none is left read the first of these, and add nothing.
            let pair = first + self.way;
            let is_left = Self::WAYS == 1 || pair < pairs.end;
            let pair = if is_left { pair } else { first };
            // SAFETY: a pair of the record; its slots are below `SLOTS`.
            unsafe {
                let words: [u32; 2] = s.load_shared(Self::record_of(stage) + 4 * (HEAD_WORDS + 2 * pair));
                let value = values + 8 * BUNDLE_ROWS * pair;
                each::<2>(|i| {
                    let v = f32::load_shared(s, value + 4 * BUNDLE_ROWS * i as u32);
                    let mask = if is_left { words[i] } else { 0 };
                    each::<QUADS>(|quad| {
                        let b = f32::load_shared(s, row(words[i]) + quad as u32 * Self::QUAD_BYTES);
                        self.add_vector(mask, b, v, &mut sums[quad][BUNDLE]);
                    });
                });
            }
            first += Self::WAYS;
            if first >= pairs.end {
                break;
            }
        }
    }

    /// Adds a vector times a row of `B` to the sums of the rows that its mask has.
    #[inline(always)]
    fn add_vector(&self, mask: u32, b: [f32; 4], v: [f32; 4], sums: &mut [[f32; 4]; 4]) {
        each4(|row| {
            sums[row] = self.s.fma_where(mask & 1 << row, v[row], b, sums[row]);
        });
    }

    /// Adds the ways up, and stores the rows of the warp, one after the other: through shared memory, for a loop cannot
    /// choose among registers, and eight rows side by side would need more of them than there are.
    ///
    /// # Safety
    /// Collective: the whole block, for which nothing is under way.
    #[inline(always)]
    unsafe fn finish(&self, sums: [Sums; QUADS]) {
        const ROWS: u32 = WARP_BUNDLES * BUNDLE_ROWS;
        let (s, dense) = (self.s, &self.p.dense);
        let first = self.warp * ROWS;
        let at = first * Self::ROW_BYTES + self.across;
        // SAFETY: the warp's rows of shared memory, which are free behind the barrier; rows of the panel, which no
        // other piece stores; the slot's rows are the piece's.
        unsafe {
            s.sync_block(); // WAR: reads of the last chunk -> sums
            each::<QUADS>(|quad| {
                let at = at + quad as u32 * Self::QUAD_BYTES;
                self.put(at, sums[quad][0]);
                self.put(at + BUNDLE_ROWS * Self::ROW_BYTES, sums[quad][1]);
            });
            s.sync_warp();
            // Read again: kept, it would take registers from the loop.
            let [panel, _, _, slot] = s.load(self.p.pieces.at(s.block_idx()));
            let mut row = self.way;
            while row < ROWS {
                let named = s.load_readonly(self.p.rows.cast::<u32>().at(panel * PANEL_ROWS + first + row));
                let mut quad = 0;
                while quad < QUADS && named != NO_ROW {
                    let sum =
                        f32::load_shared(s, at + row * Self::ROW_BYTES + quad as u32 * Self::QUAD_BYTES);
                    if slot == NO_SLOT {
                        dense.finish(s, (named, false), self.column_of(quad), sum);
                    } else {
                        dense.keep(s, slot + first + row, self.column_of(quad), sum);
                    }
                    quad += 1;
                }
                row += Self::WAYS;
            }
        }
    }

    /// Adds the ways up, and puts the sums of a bundle into shared memory, from the lane's columns of its first row on.
    ///
    /// # Safety
    /// Collective: the whole warp, which alone has these rows.
    #[inline(always)]
    unsafe fn put(&self, at: u32, mut sums: [[f32; 4]; BUNDLE_ROWS as usize]) {
        each4(|row| {
            // SAFETY: the caller's promise; lanes of other ways hold the same sums.
            unsafe {
                each4(|column| {
                    let sum = &mut sums[row][column];
                    // Else `ptxas` takes the registers of the store for the loop, and moves sums to and fro in it.
                    *sum = f32::from_bits(self.s.in_register(u64::from(sum.to_bits())) as u32);
                    if LANES < 16 {
                        *sum = *sum + f32::shuffle_xor(self.s, *sum, 8);
                    }
                    if LANES < 32 {
                        *sum = *sum + f32::shuffle_xor(self.s, *sum, 16);
                    }
                });
                if self.way == 0 {
                    f32::store_shared(self.s, at + row as u32 * Self::ROW_BYTES, sums[row]);
                }
            }
        });
    }
}
