//! The pieces of a stream, as windows were dealt out, and the steps of each worker.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{THREADS, item};
use crate::NO_SLOT;
use crate::kernel::Kernel;
use crate::spmm::tile_stream::{STEP_COLUMNS, piece_word};
use crate::variant::Variant;

/// Arguments of [`ListStreamPieces`].
///
/// # Obligations
/// - `order` has `count` elements: windows, below 2³¹, or places in `divided`, with the highest bit set;
/// - `window_vectors` has an element more than there are windows, and ascends;
/// - `pieces` and `lengths` have `count` elements.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListStreamPiecesParams {
    /// Whole windows and pieces of others, in the order of the stream.
    pub order: GlobalPtr<u32>,
    /// `[window, first step of it, piece word, the step behind its last]` of each piece that is not a whole window.
    pub divided: GlobalPtr<[u32; 4]>,
    /// Columns of the windows before each.
    pub window_vectors: GlobalPtr<u32>,
    /// `[window, first step of it, piece word, 0]` of each piece.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// How many steps each piece has.
    pub lengths: GlobalPtr<u32>,
    /// Number of pieces, whole windows among them.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The pieces as [`TileSteps`](super::TileSteps) takes them, a thread for each.
pub struct ListStreamPieces;

/// The bit of an element of the order that is not a window.
const DIVIDED: u32 = 1 << 31;

impl Kernel for ListStreamPieces {
    type Params = ListStreamPiecesParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::ListStreamPieces;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListStreamPiecesParams) {
        let i = item(s);
        if i >= p.count {
            return;
        }
        // SAFETY: the obligations of the params; each piece is one thread's.
        unsafe {
            let of = s.load_readonly(p.order.at(i));
            let [window, begin, word, end] = if of & DIVIDED == 0 {
                let first = s.load_readonly(p.window_vectors.at(of));
                let steps = (s.load_readonly(p.window_vectors.at(of + 1)) - first).div_ceil(STEP_COLUMNS);
                [of, 0, piece_word(NO_SLOT, false), if steps == 0 { 1 } else { steps }]
            } else {
                s.load_readonly(p.divided.at(of & !DIVIDED))
            };
            s.store(p.pieces.at(i), [window, begin, word, 0]);
            s.store(p.lengths.at(i), end - begin);
        }
    }
}

/// Arguments of [`ListWorkers`].
///
/// # Obligations
/// `worker_pieces` has `count + 1` elements, each a place in `piece_steps`; `workers` has `count`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListWorkersParams {
    /// First piece of each worker, and the number of pieces.
    pub worker_pieces: GlobalPtr<u32>,
    /// First step of each piece, and the number of steps.
    pub piece_steps: GlobalPtr<u32>,
    /// `[begin, end]` of each worker's steps.
    pub workers: GlobalPtr<[u32; 2]>,
    /// Number of workers, one warp each.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The steps of each worker, a thread for each.
pub struct ListWorkers;

impl Kernel for ListWorkers {
    type Params = ListWorkersParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::ListWorkers;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListWorkersParams) {
        let worker = item(s);
        if worker >= p.count {
            return;
        }
        // SAFETY: the obligations of the params; each worker is one thread's.
        unsafe {
            let step =
                |worker| s.load_readonly(p.piece_steps.at(s.load_readonly(p.worker_pieces.at(worker))));
            s.store(p.workers.at(worker), [step(worker), step(worker + 1)]);
        }
    }
}
