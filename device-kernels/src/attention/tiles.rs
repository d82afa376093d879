//! The rows that the entries of a step name, in shared memory, and products of them on Tensor Cores.
//!
//! ```text
//! products (16 entries, 8)  =  rows (16, WIDTH)  ·  eight rows of the window, transposed (WIDTH, 8)
//! sums     (WIDTH, 8)      +=  rows, transposed (WIDTH, 16)  ·  weights (16, 8)
//! ```
//!
//! A weight is two numbers of 16 bits, the nearest and what that leaves, so that sums are as exact as f32 weights make
//! them in f16.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, HalfElement, Simt, WARP};

use super::{HeadMatrix, WindowForm};
use crate::element::Element;
use crate::unroll::{each, each4};

/// Entries of a step.
pub(super) const STEP: u32 = 16;
/// Elements of a vector of 16 bytes.
pub(super) const VECTOR: u32 = 8;

/// Registers of a lane's part of sums, of each chunk of 32 features: of two MMAs with 16 features each.
pub(super) type TileSums<const CHUNKS: usize> = [[[f32; 4]; 2]; CHUNKS];

/// How a lane brings and reads the rows of a step, which lie mixed in shared memory: vector `v` of row `r` is where
/// `v ^ r % 8` would be (`v ^ r / 2 % 4` of 64 bytes a row), so that rows that are read together are in different
/// banks.
pub(super) struct Tile<E, const CHUNKS: usize> {
    /// The lane's vector of row 0 of the head.
    start: GlobalPtr<u16>,
    /// Elements from one row to the next.
    ld: u32,
    /// Its number among the rows that are copied at once.
    row: u32,
    /// Whether there are such columns.
    present: bool,
    /// Where the vector of that row goes.
    write_at: u32,
    /// Where the lane's row of the first two 8 × 8 matrices of features is, of the rows transposed.
    columns_at: u32,
    /// Where its row of the first 16 × 16 matrix is, of the rows as they are.
    rows_at: u32,
    element: PhantomData<E>,
}

impl<E: Element<Sum = f32, Bits = u16> + HalfElement, const CHUNKS: usize> Tile<E, CHUNKS> {
    /// Bytes of the rows.
    pub(super) const BYTES: u32 = STEP * Self::ROW_BYTES;
    const ROW_BYTES: u32 = 64 * CHUNKS as u32;
    /// Rows that a warp copies at once, a vector of 16 bytes a lane.
    const ROWS_AT_ONCE: u32 = WARP / (4 * CHUNKS as u32);

    /// Rows of a head, from byte `at` on, a multiple of a row's.
    #[inline(always)]
    pub(super) fn new<S: Simt>(s: &S, of: &HeadMatrix, head: u32, at: u32) -> Self {
        let vectors = 4 * CHUNKS as u32;
        let (row, vector) = (s.lane() / vectors, s.lane() % vectors);
        let place = |row: u32, vector: u32| {
            let mixed = vector ^ if CHUNKS == 1 { row / 2 % 4 } else { row % 8 };
            at + 16 * (row * vectors + mixed)
        };
        Self {
            start: of.first.cast().at_wide(of.at(head, 0, VECTOR * vector)),
            ld: of.ld,
            row,
            present: VECTOR * vector < of.columns,
            write_at: place(row, vector),
            // Matrices 0 and 1 are features 0..8 and 8..16 of entries 0..8, matrices 2 and 3 those of entries 8..16.
            columns_at: place(s.lane() % 8 + s.lane() / 16 * 8, s.lane() / 8 % 2),
            // Matrices 0 and 1 are entries 0..8 and 8..16 of features 0..8, matrices 2 and 3 those of features 8..16.
            rows_at: place(s.lane() % 16, s.lane() / 16),
            element: PhantomData,
        }
    }

    /// Starts copying the rows of a step, of which lane `i % 16` has the number of row `i`, to byte `stage` of the
    /// tile's place; zeros beyond the last column. A commit of the copies comes after it.
    ///
    /// # Safety
    /// There are such rows, whose columns are a multiple of a vector; the whole warp is here, and nobody reads what was
    /// in their place.
    #[inline(always)]
    pub(super) unsafe fn bring<S: Simt>(&self, s: &S, stage: u32, number: u32) {
        each::<16>(|i| {
            if i < 2 * CHUNKS {
                let first_row = i as u32 * Self::ROWS_AT_ONCE;
                // SAFETY: the caller's promise.
                unsafe {
                    let number = s.shuffle(number, first_row + self.row);
                    let from = self.start.at_wide(u64::from(number) * u64::from(self.ld));
                    let mixed = if CHUNKS == 1 { 0 } else { first_row % 8 };
                    let to = (self.write_at ^ (16 * mixed)) + first_row * Self::ROW_BYTES + stage;
                    s.copy_async_16(to, from.cast(), self.present);
                }
            }
        });
    }

    /// `sums += rowsᵀ · weights`; without `rest` by the first operand of the weights alone.
    ///
    /// # Safety
    /// A collective of the full warp; the rows have arrived.
    #[inline(always)]
    pub(super) unsafe fn accumulate<S: Simt>(
        &self,
        s: &S,
        stage: u32,
        (weights, rest): (&[[u32; 2]; 2], bool),
        sums: &mut TileSums<CHUNKS>,
    ) {
        each::<CHUNKS>(|chunk| {
            each::<2>(|half| {
                let at = (self.columns_at ^ (32 * (2 * chunk + half) as u32)) + stage;
                // SAFETY: the caller's promise.
                unsafe {
                    let a = s.load_matrix_x4_trans(at); // (16 features, 16)
                    let sum = &mut sums[chunk][half];
                    *sum = mma::<S, E>(s, a, weights[0], *sum);
                    if rest {
                        *sum = mma::<S, E>(s, a, weights[1], *sum);
                    }
                }
            });
        });
    }

    /// Products of the rows and eight others, given as the second operand of each 16 features.
    ///
    /// # Safety
    /// A collective of the full warp; the rows have arrived.
    #[inline(always)]
    pub(super) unsafe fn products<S: Simt>(
        &self,
        s: &S,
        stage: u32,
        others: &[[[u32; 2]; 2]; CHUNKS],
    ) -> [f32; 4] {
        // Two sums, so that a product waits for the last but one.
        let mut sums = [[0.0; 4]; 2];
        each::<CHUNKS>(|chunk| {
            each::<2>(|half| {
                let at = (self.rows_at ^ (32 * (2 * chunk + half) as u32)) + stage;
                // SAFETY: the caller's promise.
                unsafe {
                    let a = s.load_matrix_x4(at); // (16, 16 features)
                    sums[half] = mma::<S, E>(s, a, others[chunk][half], sums[half]);
                }
            });
        });
        added(sums)
    }
}

/// The lane's entry of the step that begins at `at`: behind the last the last again, but of no row.
///
/// # Safety
/// As for [`Simt::load_readonly`]; `entries` has those before `end`, and there is one.
#[inline(always)]
pub(super) unsafe fn entry_of_step<S: Simt, W: WindowForm>(
    s: &S,
    entries: GlobalPtr<u32>,
    at: u32,
    end: u32,
) -> u32 {
    let own = at + s.lane() % STEP;
    // SAFETY: the caller's promise.
    let entry = unsafe { s.load_readonly(entries.at(own.min(end - 1))) };
    if own < end { entry } else { W::column(entry) }
}

/// An element of an operand: of a head, a row and a column.
///
/// # Safety
/// As for [`Simt::load_readonly`]; there is such an element.
#[inline(always)]
pub(super) unsafe fn element<S: Simt, E>(s: &S, of: &HeadMatrix, [head, row, column]: [u32; 3]) -> f32
where
    E: Element<Sum = f32, Bits = u16>,
{
    // SAFETY: the caller's promise.
    E::widen(s, unsafe { s.load_readonly(of.first.cast().at_wide(of.at(head, row, column))) })
}

/// Whether no sum of the lane is infinite or a NaN.
#[inline(always)]
pub(super) fn are_finite<const CHUNKS: usize>(sums: &TileSums<CHUNKS>) -> bool {
    let mut finite = true;
    each::<CHUNKS>(|chunk| each::<2>(|half| each4(|i| finite &= sums[chunk][half][i].is_finite())));
    finite
}

/// The sum of two registers' worth of products.
#[inline(always)]
pub(super) fn added([a, b]: [[f32; 4]; 2]) -> [f32; 4] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
}

/// Weights of a window of 8 rows as the second operand, (16, 8) twice: nearest numbers and what these leave. A lane has
/// those of entries `lane / 4` and `lane / 4 + 8`, for rows `2 · (lane % 4)` and the next.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
pub(super) unsafe fn weight_operands<S: Simt, E>(s: &S, weights: [[f32; 2]; 2]) -> [[u32; 2]; 2]
where
    E: Element<Sum = f32, Bits = u16> + HalfElement,
{
    let mut operands = [[0; 2]; 2];
    each::<2>(|entry| {
        let [first, second] = weights[entry];
        let both = nearest::<S, E>(s, [first, second]);
        let near = pair_of::<S, E>(s, both);
        let rest = nearest::<S, E>(s, [first - near[0], second - near[1]]);
        // SAFETY: the caller's promise.
        unsafe {
            operands[0][entry] = transposed(s, both);
            operands[1][entry] = transposed(s, rest);
        }
    });
    operands
}

/// `acc + a·b` of 16-bit elements.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
pub(super) unsafe fn mma<S: Simt, E: HalfElement>(
    s: &S,
    a: [u32; 4],
    b: [u32; 2],
    acc: [f32; 4],
) -> [f32; 4] {
    // SAFETY: the caller's promise.
    unsafe { if E::BF16 { s.mma_m16n8k16_bf16(a, b, acc) } else { s.mma_m16n8k16_f16(a, b, acc) } }
}

/// Two numbers rounded to nearest, the first in the low half.
#[inline(always)]
pub(super) fn nearest<S: Simt, E: HalfElement>(s: &S, pair: [f32; 2]) -> u32 {
    if E::BF16 { s.f32x2_to_bf16x2(pair) } else { s.f32x2_to_f16x2(pair) }
}

/// The two numbers in the halves of a word.
#[inline(always)]
pub(super) fn pair_of<S: Simt, E: Element<Sum = f32, Bits = u16>>(s: &S, word: u32) -> [f32; 2] {
    let [low, high, ..] = E::widen_vector(s, [word, 0, 0, 0]);
    [low, high]
}

/// Of an 8 × 8 matrix of which lane `4·row + column/2` has a pair of elements: that of its transpose.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
pub(super) unsafe fn transposed<S: Simt>(s: &S, pair: u32) -> u32 {
    let (group, quad) = (s.lane() / 4, s.lane() % 4);
    // SAFETY: the caller's promise.
    let (low, high) =
        unsafe { (s.shuffle(pair, 8 * quad + group / 2), s.shuffle(pair, 8 * quad + 4 + group / 2)) };
    s.permute_bytes(low, high, if group % 2 == 0 { 0x5410 } else { 0x7632 })
}
