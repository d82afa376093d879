//! What a window adds up to: numbers of any size, in products of 16 bits.

use windrow_simt::{HalfElement, Simt};

use crate::attention::sums::over_entries;
use crate::attention::tiles::{Tile, TileSums, weight_operands};
use crate::element::Element;
use crate::unroll::each;

/// Largest of the numbers that are rounded to 16 bits.
const MOST: f32 = 16384.0;
/// The largest power of two, which the first number but zero lowers.
const UNSEEN: f32 = f32::from_bits(254 << 23);

/// What a gradient of the window adds up to so far.
pub(super) struct Sums<const CHUNKS: usize> {
    pub(super) sums: TileSums<CHUNKS>,
    /// What numbers of each of the lane's rows were multiplied by: powers of two.
    pub(super) scales: [f32; 2],
}

impl<const CHUNKS: usize> Sums<CHUNKS> {
    pub(super) const EMPTY: Self = Self { sums: [[[0.0; 4]; 2]; CHUNKS], scales: [UNSEEN; 2] };

    /// Adds the step's rows times numbers of the lane's entries and rows.
    ///
    /// # Safety
    /// A collective of the full warp; the rows have arrived.
    #[inline(always)]
    pub(super) unsafe fn add<S: Simt, E>(
        &mut self,
        s: &S,
        (tile, stage): (&Tile<E, CHUNKS>, u32),
        mut numbers: [[f32; 2]; 2],
    ) where
        E: Element<Sum = f32, Bits = u16> + HalfElement,
    {
        let largest = |row: usize| numbers[0][row].abs().max(numbers[1][row].abs());
        let passed = largest(0) * self.scales[0] > MOST || largest(1) * self.scales[1] > MOST;
        // SAFETY: the caller's promise; whether scales are lowered is the same for all lanes.
        if unsafe { s.ballot(passed) } != 0 {
            each::<2>(|row| {
                // SAFETY: as above.
                let largest = unsafe { over_entries(s, largest(row), f32::max) };
                let scale = scale_for(largest).min(self.scales[row]);
                let factor = scale / self.scales[row];
                self.scales[row] = scale;
                each::<CHUNKS>(|chunk| {
                    each::<2>(|half| {
                        each::<2>(|i| self.sums[chunk][half][2 * i + row] *= factor);
                    });
                });
            });
        }
        each::<2>(|entry| each::<2>(|row| numbers[entry][row] *= self.scales[row]));
        // SAFETY: the caller's promise.
        unsafe {
            let numbers = weight_operands::<S, E>(s, numbers); // (16, 8), twice
            tile.accumulate(s, stage, (&numbers, true), &mut self.sums);
        }
    }
}

/// The power of two that makes a number 2⁸ and more, and less than 2⁹, as far as there is one.
#[inline(always)]
fn scale_for(largest: f32) -> f32 {
    const EIGHT_ABOVE: u32 = 2 * 127 + 8;
    let exponent = largest.to_bits() >> 23;
    f32::from_bits((EIGHT_ABOVE - exponent).clamp(1, 254) << 23)
}
