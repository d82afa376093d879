//! What the element type decides: the shape of the MMA, and which lane holds what.

use windrow_simt::{GlobalPtr, Simt, Word};

use super::{SLICE_BYTES, WINDOW_ROWS};
use crate::element::{Bf16, Element, F16, Tf32};

/// An element type that Tensor Cores multiply.
pub trait TileElement: Element<Sum = f32> {
    /// Elements of a 16-byte chunk.
    const CHUNK: u32;
    /// Features of a 128-byte slice.
    const SLICE_FEATURES: u32 = 8 * Self::CHUNK;
    /// Words of a step's values that each lane holds.
    const LANE_WORDS: u32;
    /// The accumulators of one slice that a lane holds.
    type Sums: Copy;
    /// Accumulators of zero, with which a piece begins.
    const ZERO_SUMS: Self::Sums;
    /// A lane's values of a step.
    type Fragment: Word;

    /// What is added, by exclusive or, to the chunk numbers of staged row `row < 16`, so that the lanes that
    /// read together read from different banks.
    fn swizzle(row: u32) -> u32;

    /// In a staged slice: where the lane's part of the first operand begins.
    fn named(lane: u32) -> u32;

    /// The lane's values, from their place in shared memory.
    ///
    /// # Safety
    /// As for [`Simt::load_shared`].
    unsafe fn fragment<S: Simt>(s: &S, at: u32) -> Self::Fragment;

    /// The lane's values, given its four elements in the order of [`value_index`](Self::value_index): element `i` if
    /// bit `i` of `present` is set, zero otherwise. Higher bits mean nothing.
    fn of_elements(elements: [Self::Bits; 4], present: u32) -> Self::Fragment;

    /// `sums += staged (SLICE_FEATURES, 16) · fragment (16, 8)`.
    ///
    /// # Safety
    /// A collective of the full warp; `at` is the slice's place plus [`named`](Self::named).
    unsafe fn multiply<S: Simt>(s: &S, at: u32, fragment: Self::Fragment, sums: &mut Self::Sums);

    /// Calls `visit(row, feature, sum)` for each sum that the lane holds of the 8 × `SLICE_FEATURES` result.
    fn each_sum(lane: u32, sums: &Self::Sums, visit: impl FnMut(u32, u32, f32));

    /// Which of a step's 128 elements is the value of `row` and column `k < 8` of tile `tile`: lane `i / 4` holds
    /// element `i`. Those of a row are 16 in succession, from `16·row`.
    fn value_index(tile: u32, row: u32, k: u32) -> u32;

    /// Tile and column of element `4·lane + i`, whose row is `lane / 4`: the inverse of
    /// [`value_index`](Self::value_index).
    fn element_column(lane: u32, i: u32) -> (u32, u32);

    /// A chunk of which the first `present` elements exist, the rest zero.
    ///
    /// # Safety
    /// These elements can be read.
    unsafe fn read_chunk<S: Simt>(s: &S, from: GlobalPtr<Self::Bits>, present: u32) -> [u32; 4];
}

/// What f16 and bf16 share, given their `mma.m16n8k16`.
macro_rules! sixteen_bits {
    ($element:ty, $mma:ident) => {
        impl TileElement for $element {
            const CHUNK: u32 = 8;
            const LANE_WORDS: u32 = 2;
            /// `sums[j][i]` is register `i` of the MMA over features `16j..16j+16`.
            type Sums = [[f32; 4]; 4];
            const ZERO_SUMS: Self::Sums = [[0.0; 4]; 4];
            type Fragment = [u32; 2];

            #[inline(always)]
            fn swizzle(row: u32) -> u32 {
                row % 8
            }

            /// `ldmatrix`: lane l gives row l % 8 of matrix l / 8. Matrices 0 and 1 are condensed columns
            /// 0..8 of features 0..8 and 8..16, matrices 2 and 3 condensed columns 8..16.
            #[inline(always)]
            fn named(lane: u32) -> u32 {
                let (matrix, row) = (lane / 8, lane % 8);
                (row + matrix / 2 * 8) * SLICE_BYTES + ((matrix % 2) ^ row) * 16
            }

            #[inline(always)]
            unsafe fn fragment<S: Simt>(s: &S, at: u32) -> [u32; 2] {
                // SAFETY: the caller's `at` is the lane's place in a record that has arrived.
                unsafe { s.load_shared(at) }
            }

            #[inline(always)]
            fn of_elements(elements: [u16; 4], present: u32) -> [u32; 2] {
                let [a, b, c, d] = elements.map(u32::from);
                let halves = |present: u32| (present & 1) * 0xffff | (present >> 1 & 1) * 0xffff_0000;
                [(a | b << 16) & halves(present), (c | d << 16) & halves(present >> 2)]
            }

            #[inline(always)]
            unsafe fn multiply<S: Simt>(s: &S, at: u32, fragment: [u32; 2], sums: &mut Self::Sums) {
                let mut j = 0;
                while j < 4 {
                    // SAFETY: the full warp is here, and the slice at `at` has arrived, by the caller's promise.
                    unsafe {
                        let operand = s.load_matrix_x4_trans(at ^ (j as u32 * 32)); // (16 features, 16)
                        sums[j] = s.$mma(operand, fragment, sums[j]);
                    }
                    j += 1;
                }
            }

            /// `fragment::c_f32`: register `i` of MMA `j` is feature `16j + g + 8·(i/2)` of window row `2q + i%2`.
            #[inline(always)]
            fn each_sum(lane: u32, sums: &Self::Sums, mut visit: impl FnMut(u32, u32, f32)) {
                let (g, q) = (lane / 4, lane % 4);
                let mut j = 0;
                while j < 4 {
                    let mut i = 0;
                    while i < 4 {
                        visit(2 * q + i as u32 % 2, 16 * j as u32 + g + 8 * (i as u32 / 2), sums[j][i]);
                        i += 1;
                    }
                    j += 1;
                }
            }

            /// `fragment::b_16bit`: lane (g = row, q = k / 2), register `tile`, half k % 2.
            #[inline(always)]
            fn value_index(tile: u32, row: u32, k: u32) -> u32 {
                ((row * 4 + k / 2) * 2 + tile) * 2 + k % 2
            }

            #[inline(always)]
            fn element_column(lane: u32, i: u32) -> (u32, u32) {
                (i / 2, lane % 4 * 2 + i % 2)
            }

            #[inline(always)]
            unsafe fn read_chunk<S: Simt>(s: &S, from: GlobalPtr<u16>, present: u32) -> [u32; 4] {
                let one = |i: u32| {
                    // SAFETY: element i exists.
                    if i < present { u32::from(unsafe { s.load_readonly(from.at(i)) }) } else { 0 }
                };
                let pair = |i: u32| one(i) | one(i + 1) << 16;
                [pair(0), pair(2), pair(4), pair(6)]
            }
        }
    };
}

sixteen_bits!(F16, mma_m16n8k16_f16);
sixteen_bits!(Bf16, mma_m16n8k16_bf16);

/// `ldmatrix` transposes 16-bit elements only. But which feature is which row of the MMA is ours to choose: lane
/// (g, q) reads the chunk of features `4g..4g + 4` of condensed column `q` in one load, and MMA `j` takes
/// features `4g + 2j` and `4g + 2j + 1` as its rows `g` and `g + 8`.
impl TileElement for Tf32 {
    const CHUNK: u32 = 4;
    const LANE_WORDS: u32 = 4;
    /// `sums[j]`: rows `2q, 2q + 1` of feature `4g + 2j`, then of feature `4g + 2j + 1`.
    type Sums = [[f32; 4]; 2];
    const ZERO_SUMS: Self::Sums = [[0.0; 4]; 2];
    /// Two registers for each tile.
    type Fragment = [u32; 4];

    #[inline(always)]
    fn swizzle(row: u32) -> u32 {
        2 * (row % 4)
    }

    #[inline(always)]
    fn named(lane: u32) -> u32 {
        let (g, q) = (lane / 4, lane % 4);
        q * SLICE_BYTES + (g ^ Self::swizzle(q)) * 16
    }

    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, at: u32) -> [u32; 4] {
        // SAFETY: the caller's `at` is the lane's place in a record that has arrived.
        unsafe { s.load_shared(at) }
    }

    #[inline(always)]
    fn of_elements(elements: [u32; 4], present: u32) -> [u32; 4] {
        let [a, b, c, d] = elements;
        let word = |i: u32, bits: u32| if present >> i & 1 == 1 { bits } else { 0 };
        [word(0, a), word(1, b), word(2, c), word(3, d)]
    }

    #[inline(always)]
    unsafe fn multiply<S: Simt>(s: &S, at: u32, fragment: [u32; 4], sums: &mut Self::Sums) {
        let mut tile = 0;
        while tile < 2 {
            let first = at + tile as u32 * WINDOW_ROWS * SLICE_BYTES;
            // SAFETY: the caller's promise: 16 staged rows.
            let [low, high] = unsafe {
                [s.load_shared::<[u32; 4]>(first), s.load_shared::<[u32; 4]>(first + 4 * SLICE_BYTES)]
            }
            .map(|chunk| chunk.map(|bits| s.f32_to_tf32(f32::from_bits(bits))));
            let values = [fragment[2 * tile], fragment[2 * tile + 1]];
            let mut j = 0;
            while j < 2 {
                let operand = [low[2 * j], low[2 * j + 1], high[2 * j], high[2 * j + 1]]; // (16 features, 8)
                // SAFETY: the caller promises that the full warp is here.
                sums[j] = unsafe { s.mma_m16n8k8_tf32(operand, values, sums[j]) };
                j += 1;
            }
            tile += 1;
        }
    }

    #[inline(always)]
    fn each_sum(lane: u32, sums: &Self::Sums, mut visit: impl FnMut(u32, u32, f32)) {
        let (g, q) = (lane / 4, lane % 4);
        let mut j = 0;
        while j < 2 {
            let mut i = 0;
            while i < 4 {
                visit(2 * q + i as u32 % 2, 4 * g + 2 * j as u32 + i as u32 / 2, sums[j][i]);
                i += 1;
            }
            j += 1;
        }
    }

    /// `fragment::b_tf32`: lane (g = row, q = k % 4), register k / 4 of the tile's two.
    #[inline(always)]
    fn value_index(tile: u32, row: u32, k: u32) -> u32 {
        (row * 4 + k % 4) * 4 + tile * 2 + k / 4
    }

    #[inline(always)]
    fn element_column(lane: u32, i: u32) -> (u32, u32) {
        (i / 2, lane % 4 + i % 2 * 4)
    }

    #[inline(always)]
    unsafe fn read_chunk<S: Simt>(s: &S, from: GlobalPtr<u32>, present: u32) -> [u32; 4] {
        [0, 1, 2, 3].map(|i| {
            // SAFETY: element i exists.
            if i < present { unsafe { s.load_readonly(from.at(i)) } } else { 0 }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns_are_those_of_their_elements<E: TileElement>() {
        for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
            let (tile, k) = E::element_column(lane, i);
            assert_eq!(E::value_index(tile, lane / 4, k), 4 * lane + i);
        }
    }

    #[test]
    fn elements_have_one_column() {
        columns_are_those_of_their_elements::<F16>();
        columns_are_those_of_their_elements::<Bf16>();
        columns_are_those_of_their_elements::<Tf32>();
    }
}
