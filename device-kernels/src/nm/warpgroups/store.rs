//! Sums of a warpgroup on their way to `C`, through shared memory, a chunk of rows after the other.
//!
//! A thread has neighbouring rows of a column of `C`, so that they must be transposed. Two ways:
//!
//! - Elements of 16 bits of which nothing is to be computed but `α·sum`: each warp rounds its sums and transposes them
//!   as matrices of 8 × 8; then the warpgroup stores rows of 128 bytes. Half as many bytes go through shared memory as
//!   in f32, and a row is stored at once, not in four parts by four warps. There is room for two chunks, so that there
//!   is one barrier for each.
//! - All else: each warp transposes its 16 columns as f32, and computes four columns of a row a lane.

use windrow_simt::{Simt, WARP, WARPGROUP};

use super::{Activations, RUN_COLUMNS, StageWeights, WarpgroupWork, Warpgroups};
use crate::element::{Dtype, Element};
use crate::output::{Output, OutputType};
use crate::unroll::{each, each4};

/// Warps of a warpgroup, and columns of `C` that each has of a run.
pub(super) const WARPS: u32 = WARPGROUP / WARP;
const WARP_COLUMNS: u32 = RUN_COLUMNS / WARPS;
/// Words from one row of `C` to the next where a warp's sums are transposed: lanes that write find 32 different banks.
const PITCH: u32 = WARP_COLUMNS + 4;
/// Bytes of a row of a run in 16 bits, and threads that store it, 16 bytes each.
const ROW_BYTES: u32 = 2 * RUN_COLUMNS;
const ROW_THREADS: u32 = ROW_BYTES / 16;
/// Rows that a warpgroup stores at once, which are those of two matrices of 8 × 8.
const ROWS_AT_ONCE: u32 = WARPGROUP / ROW_THREADS;
/// Runs of eight rows of a chunk, and chunks of a tile, at most.
const MAX_EIGHTS: usize = 4;
const MAX_CHUNKS: usize = 11;

/// Bytes in which a warp transposes a chunk of so many rows.
pub(super) const fn warp_bytes(rows: u32) -> u32 {
    rows * PITCH * 4
}

/// That loops over chunks of so many rows are unrolled as far as they go, and that two fit.
pub(super) const fn check_chunks(rows: usize, chunks: usize) {
    assert!(chunks <= MAX_CHUNKS && rows <= 8 * MAX_EIGHTS, "loops are unrolled so far");
    let rows = rows as u32;
    assert!(rows.is_multiple_of(ROWS_AT_ONCE), "all threads store");
    assert!(2 * rows * ROW_BYTES <= WARPS * warp_bytes(rows), "two chunks of 16 bits where one is in f32");
}

impl<A: Activations, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32>
    Warpgroups<A, W, BLOCKS, R, SLOTS>
{
    /// The type of elements of 16 bits that are stored in whole rows: that of the operands.
    const HALVES: OutputType = match W::Element::DTYPE {
        Dtype::Bf16 => OutputType::Bf16,
        _ => OutputType::F16,
    };

    /// Brings an item's sums to `C`.
    ///
    /// # Safety
    /// The obligations of the params; every thread of the warpgroup is here.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simt>(s: &S, work: &WarpgroupWork, item: u32, sums: &[[f32; R]; 2]) {
        let (n_tile, m_tile) = work.place(item >> work.parts_log2);
        let group = s.thread_idx() / WARPGROUP;
        let run = n_tile * Self::BN + group * BLOCKS * RUN_COLUMNS;
        let row = m_tile * Self::BM;
        // SAFETY: the caller's promise; elements of `C` are this warpgroup's.
        unsafe {
            if Self::TILE.stores_whole_rows()
                && work.output.is_plain_as(Self::HALVES)
                && run + BLOCKS * RUN_COLUMNS <= work.output.n
            {
                Self::store_halves(s, &work.output, [row, run], sums);
            } else {
                let mut output = work.output;
                // More than one part only for f32.
                output.c = output.c.at_wide(u64::from(work.part(item)) * work.part_elements);
                Self::store_by_warps(s, &output, [row, run], sums);
            }
        }
    }

    /// Rounds sums and stores whole rows of each run.
    #[inline(always)]
    unsafe fn store_halves<S: Simt>(s: &S, output: &Output, [row, run]: [u32; 2], sums: &[[f32; R]; 2]) {
        let (group, thread, lane) = (s.thread_idx() / WARPGROUP, s.thread_idx() % WARPGROUP, s.lane());
        let buffers = Self::SUMS_AT + group * WARPS * Self::SUMS_BYTES;
        // Pieces of 16 bytes, eight columns, are mixed within a row, so that eight rows are in different banks: those
        // of a matrix that a warp stores, and the row that is read.
        let place = |row: u32, piece: u32| row * ROW_BYTES + (piece ^ (row % 8)) * 16;
        // A lane's row of one of four matrices: of two runs of eight rows, each with both runs of eight columns.
        let matrix = lane / 8;
        let write_to = buffers + place(matrix / 2 * 8 + lane % 8, s.warp() % WARPS * 2 + matrix % 2);
        let (of_chunk, piece) = (thread / ROW_THREADS, thread % ROW_THREADS);
        let read_from = buffers + place(of_chunk, piece);
        let (mut of_c, mut column) = (row + of_chunk, run + piece * 8);
        // Few variables: sums leave hardly any registers. Chunks are numbered through the runs.
        let mut number = 0;
        while number < BLOCKS * Self::CHUNKS as u32 {
            let buffer = number % 2 * Self::CHUNK as u32 * ROW_BYTES;
            // Register numbers must be known, so each candidate is compared.
            each::<{ MAX_CHUNKS }>(|chunk| {
                // SAFETY: inside of this warpgroup's buffers. What was there before the last chunk has been read before
                // the barrier of that, and of another item before those of this item's stages.
                unsafe {
                    if chunk < Self::CHUNKS && chunk as u32 == number {
                        Self::round(s, output, write_to + buffer, &sums[0], chunk);
                    }
                    if BLOCKS == 2 && chunk < Self::CHUNKS && (Self::CHUNKS + chunk) as u32 == number {
                        Self::round(s, output, write_to + buffer, &sums[1], chunk);
                    }
                }
            });
            // SAFETY: all threads are here; elements of `C` are this thread's.
            unsafe {
                s.sync_warpgroup(); // RAW: chunk written -> read; WAR: chunk before read -> the next is written
                each::<{ MAX_EIGHTS / 2 }>(|at_once| {
                    if at_once < Self::CHUNK / 16 {
                        let rows = at_once as u32 * ROWS_AT_ONCE;
                        let eight: [u32; 4] = s.load_shared(read_from + buffer + rows * ROW_BYTES);
                        output.store_eight(s, of_c + rows, column, eight);
                    }
                });
            }
            of_c += Self::CHUNK as u32;
            number += 1;
            if BLOCKS == 2 && number == Self::CHUNKS as u32 {
                of_c -= Self::BM;
                column += RUN_COLUMNS;
            }
        }
    }

    /// Writes this thread's sums of a chunk of rows to shared memory, rounded and transposed.
    #[inline(always)]
    unsafe fn round<S: Simt>(s: &S, output: &Output, to: u32, sums: &[f32; R], chunk: usize) {
        each::<{ MAX_EIGHTS / 2 }>(|at_once| {
            if at_once < Self::CHUNK / 16 {
                let pair = |matrix: usize| {
                    let eight = chunk * Self::CHUNK / 8 + at_once * 2 + matrix / 2;
                    // Chunks are whole, so the remainder changes nothing; it is for the compiler.
                    let at = (eight * 4 + matrix % 2 * 2) % R;
                    output.plain_pair(s, Self::HALVES, [sums[at], sums[(at + 1) % R]])
                };
                let to = to + at_once as u32 * ROWS_AT_ONCE * ROW_BYTES;
                // SAFETY: the caller's promise.
                unsafe { s.store_matrix_x4_trans(to, [pair(0), pair(1), pair(2), pair(3)]) };
            }
        });
    }

    /// Stores a chunk of rows of the 16 columns that a warp has of a run at a time.
    #[inline(always)]
    unsafe fn store_by_warps<S: Simt>(s: &S, output: &Output, [row, run]: [u32; 2], sums: &[[f32; R]; 2]) {
        let lane = s.lane();
        let buffer = Self::SUMS_AT + s.warp() * Self::SUMS_BYTES;
        // The first of this thread's sums is of a column of C and a row; it stores four columns of another.
        let write_to = buffer + 4 * (lane % 4 * 2 * PITCH + lane / 4);
        let read_from = buffer + 4 * (lane / 4 * PITCH + lane % 4 * 4);
        let plain = output.is_plain();
        let mut block = 0;
        while block < BLOCKS {
            let first_column = run + block * RUN_COLUMNS + s.warp() % WARPS * WARP_COLUMNS;
            let column = first_column + lane % 4 * 4;
            let whole = plain && first_column + WARP_COLUMNS <= output.n;
            let mut chunk = 0;
            while chunk < Self::CHUNKS as u32 {
                // Register numbers must be known, so each candidate is compared.
                each::<{ MAX_CHUNKS }>(|candidate| {
                    if candidate < Self::CHUNKS && candidate as u32 == chunk {
                        // SAFETY: inside of this warp's buffer, places of this thread.
                        unsafe {
                            if BLOCKS == 2 && block == 1 {
                                Self::transpose(s, write_to, &sums[1], candidate);
                            } else {
                                Self::transpose(s, write_to, &sums[0], candidate);
                            }
                        }
                    }
                });
                let first_row = row + chunk * Self::CHUNK as u32;
                // SAFETY: all lanes are here; elements of `C` are this thread's.
                unsafe {
                    s.sync_warp(); // RAW: sums written -> read
                    let mut row = 0;
                    while row < Self::CHUNK as u32 {
                        let four: [f32; 4] = s.load_shared(read_from + 4 * row * PITCH);
                        let of_c = first_row + row + lane / 4;
                        if whole {
                            output.store_plain(s, of_c, column, four);
                        } else {
                            output.store(s, of_c, column, four);
                        }
                        row += WARP / 4;
                    }
                    s.sync_warp(); // WAR: sums read -> the next are written
                }
                chunk += 1;
            }
            block += 1;
        }
    }

    /// Writes this thread's sums of a chunk of rows to shared memory, a row of `C` after the other.
    #[inline(always)]
    unsafe fn transpose<S: Simt>(s: &S, to: u32, sums: &[f32; R], chunk: usize) {
        each::<{ MAX_EIGHTS }>(|eight| {
            if eight < Self::CHUNK / 8 {
                each4(|i| {
                    let place = (eight as u32 * 8 + i as u32 % 2) * PITCH + i as u32 / 2 * 8;
                    // Chunks are whole, so the remainder changes nothing; it is for the compiler.
                    let sum = sums[((chunk * Self::CHUNK / 8 + eight) * 4 + i) % R];
                    // SAFETY: the caller's promise.
                    unsafe { s.store_shared(to + 4 * place, sum) }
                });
            }
        });
    }
}
