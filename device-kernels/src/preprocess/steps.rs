//! The steps of a tile stream: columns, bitmaps, and the entries of each.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{THREADS, part_of};
use crate::NO_COLUMN;
use crate::kernel::Kernel;
use crate::spmm::tile_stream::{CHUNK_BYTES, PACKED_HEAD_WORDS, STEP_COLUMNS};
use crate::variant::Variant;

/// Arguments of [`TileSteps`].
///
/// # Obligations
/// - `steps ≤` 2²⁸; `piece_steps` has `pieces + 1` elements and ascends strictly from 0 to `steps`; piece `i` has the
///   steps from `pieces[i][1]` on of window `pieces[i][0]`;
/// - `window_vectors`, `vectors` and `masks`: those of [`ListVectors`](super::ListVectors) and
///   [`MergeColumns`](super::MergeColumns), where a step is sixteen columns of a window, or what is left of them;
/// - `step_cols` and `bitmaps` have 16 and 4 words for each step, `step_entries` an element, and `step_chunks` too
///   unless it is null.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TileStepsParams {
    /// `[window, first step of it, piece word, 0]` of each piece.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// First step of each piece in the stream, and the number of steps.
    pub piece_steps: GlobalPtr<u32>,
    /// Columns of the windows before each.
    pub window_vectors: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each window.
    pub vectors: GlobalPtr<[u32; 2]>,
    /// At the first position of a column: the slots that have it.
    pub masks: GlobalPtr<u32>,
    /// Columns of each step, as [`TileStreamParams`](crate::spmm::tile_stream::TileStreamParams) has them.
    pub step_cols: GlobalPtr<u32>,
    /// Two bitmaps of each step, as words.
    pub bitmaps: GlobalPtr<u32>,
    /// First position of each step.
    pub step_entries: GlobalPtr<u32>,
    /// Chunks of each step's packed record; null where records are dense.
    pub step_chunks: GlobalPtr<u32>,
    /// Number of steps of all pieces.
    pub steps: u32,
    /// Number of pieces, in the order of their steps.
    pub piece_count: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Columns and bitmaps of each step of the stream: a thread for each condensed column, sixteen to a step.
pub struct TileSteps;

impl TileSteps {
    /// Steps of a block.
    pub const STEPS: u32 = THREADS / STEP_COLUMNS;
}

impl Kernel for TileSteps {
    type Params = TileStepsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::TileSteps;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = Self::STEPS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TileStepsParams) {
        // 1. Locate. A step beyond the last does the work of step 0 and keeps it to itself, so that the collectives
        // below see all lanes.
        let step = s.block_idx() * Self::STEPS + s.thread_idx() / STEP_COLUMNS;
        let q = s.thread_idx() % STEP_COLUMNS;
        let exists = step < p.steps;
        let located = if exists { step } else { 0 };
        // SAFETY: the obligations of the params; every word is written by one thread.
        unsafe {
            let piece = part_of(s, p.piece_steps, p.piece_count, located);
            let [window, begin, ..] = s.load_readonly(p.pieces.at(piece));
            let of_window = begin + (located - s.load_readonly(p.piece_steps.at(piece)));
            let end = s.load_readonly(p.window_vectors.at(window + 1));
            let first = s.load_readonly(p.window_vectors.at(window)) + of_window * STEP_COLUMNS;
            // 2. Global -> registers.
            let vector = first + q;
            let [column, position] =
                if vector < end { s.load_readonly(p.vectors.at(vector)) } else { [NO_COLUMN, 0] };
            let mask = if vector < end { s.load_readonly(p.masks.at(position)) } else { 0 };
            // 3. The masks of four columns make a word of a bitmap.
            let mut bits = mask << (8 * (q % 4));
            bits |= s.shuffle_xor(bits, 1);
            bits |= s.shuffle_xor(bits, 2);
            // 5. Registers -> global.
            if exists {
                // Word r of the step's four holds columns r, r + 4, r + 8, r + 12.
                let at = u64::from(step) * u64::from(STEP_COLUMNS) + u64::from(q % 4 * 4 + q / 4);
                s.store(p.step_cols.at_wide(at), column);
                if q.is_multiple_of(4) {
                    s.store(p.bitmaps.at(step * 4 + q / 4), bits);
                }
                if q == 0 {
                    let next = first + STEP_COLUMNS;
                    let [_, entry] = s.load_readonly(p.vectors.at(first));
                    let [_, entry_end] = s.load_readonly(p.vectors.at(if next < end { next } else { end }));
                    s.store(p.step_entries.at(step), entry);
                    if p.step_chunks != GlobalPtr::NULL {
                        let head = 4 * PACKED_HEAD_WORDS as u32 / CHUNK_BYTES;
                        let bytes = (entry_end - entry) * p.value_bytes;
                        s.store(p.step_chunks.at(step), head + bytes.div_ceil(CHUNK_BYTES));
                    }
                }
            }
        }
    }
}
