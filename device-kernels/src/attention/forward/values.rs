//! The rows of `V` of a step, in shared memory.

use windrow_simt::{GlobalPtr, HalfElement, Simt};

use super::scores::mma;
use super::{AttentionWindows, VECTOR};
use crate::attention::{AttentionParams, WindowForm};
use crate::element::Element;
use crate::unroll::each;

/// How a lane brings and reads the rows of `V` of a step, which lie mixed in shared memory: vector `v` of row `r` is
/// where `v ^ r % 8` would be (`v ^ r / 2 % 4` of 64 bytes a row), so that rows that are read together are in different
/// banks.
pub(super) struct Values {
    /// The lane's vector of row 0 of the head.
    start: GlobalPtr<u16>,
    /// Its number among the rows that are copied at once.
    row: u32,
    /// Whether there are such columns.
    present: bool,
    /// Where the vector of that row goes.
    write_at: u32,
    /// Where the lane's row of the first two 8 × 8 matrices of features is.
    pub(super) read_at: u32,
}

impl Values {
    /// Rows from byte `at` on, a multiple of a row's.
    #[inline(always)]
    pub(super) fn new<S: Simt, const CHUNKS: usize>(s: &S, p: &AttentionParams, head: u32, at: u32) -> Self {
        let vectors = 4 * CHUNKS as u32;
        let (row, vector) = (s.lane() / vectors, s.lane() % vectors);
        let place = |row: u32, vector: u32| {
            let mixed = vector ^ if CHUNKS == 1 { row / 2 % 4 } else { row % 8 };
            at + 16 * (row * vectors + mixed)
        };
        Self {
            start: p.v.first.cast().at_wide(p.v.at(head, 0, VECTOR * vector)),
            row,
            present: VECTOR * vector < p.v.columns,
            write_at: place(row, vector),
            // Matrices 0 and 1 are features 0..8 and 8..16 of entries 0..8, matrices 2 and 3 those of entries 8..16.
            read_at: place(s.lane() % 8 + s.lane() / 16 * 8, s.lane() / 8 % 2),
        }
    }
}

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, W: WindowForm, const CHUNKS: usize>
    AttentionWindows<E, W, CHUNKS>
{
    /// Starts copying the step's rows of `V`; zeros beyond the last column.
    ///
    /// # Safety
    /// The obligations of the params; the whole warp is here, and nobody reads the warp's rows of `V`.
    #[inline(always)]
    pub(super) unsafe fn bring_values<S: Simt>(s: &S, p: &AttentionParams, values: &Values, entry: u32) {
        each::<16>(|i| {
            if i < 2 * CHUNKS {
                let first_row = i as u32 * Self::ROWS_AT_ONCE;
                // SAFETY: the caller's promise; columns are a multiple of a vector.
                unsafe {
                    let entry = s.shuffle(entry, first_row + values.row);
                    let from = values.start.at_wide(u64::from(W::column(entry)) * u64::from(p.v.ld));
                    let mixed = if CHUNKS == 1 { 0 } else { first_row % 8 };
                    let to = (values.write_at ^ (16 * mixed)) + first_row * Self::WIDTH * 2;
                    s.copy_async_16(to, from.cast(), values.present);
                }
            }
        });
        // SAFETY: part of the protocol.
        unsafe { s.copy_async_commit() };
    }

    /// `sums += Vᵀ · weights`.
    ///
    /// # Safety
    /// A collective of the full warp; the step's rows of `V` have arrived.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simt>(
        s: &S,
        values: u32,
        weights: &[[u32; 2]; 2],
        sums: &mut [[[f32; 4]; 2]; CHUNKS],
    ) {
        each::<CHUNKS>(|chunk| {
            each::<2>(|half| {
                let at = values ^ (32 * (2 * chunk + half) as u32);
                // SAFETY: the caller's promise.
                unsafe {
                    let a = s.load_matrix_x4_trans(at); // (16 features, 16)
                    let sum = &mut sums[chunk][half];
                    *sum = mma::<S, E>(s, a, weights[0], *sum);
                    if W::LANE_ROWS == 2 {
                        *sum = mma::<S, E>(s, a, weights[1], *sum);
                    }
                }
            });
        });
    }
}
