//! The generator of pseudo-random numbers behind the synthetic matrices.

use rayon::prelude::*;

use crate::memory::try_zeroed;
use crate::{FormatError, Value};

/// Increment of the state: 2⁶⁴ divided by the golden ratio, odd.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The generator `SplitMix64` (Steele, Lea and Flood, 2014): every seed gives one fixed stream on every machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number in `[0, 1)`, a multiple of 2⁻⁵³.
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next number in `0 .. bound` (0 if `bound` is 0), from the upper half of the next 64 bits.
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as u32
    }
}

/// `len` values in `[−1, 1)`, multiples of 2⁻²³ rounded to `V`.
///
/// Value `e` comes from element `e` of the [`SplitMix64`] stream of `seed`, so it depends on nothing else.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
pub fn seeded_values<V: Value>(len: usize, seed: u64) -> Result<Vec<V>, FormatError> {
    let mut values = try_zeroed::<V>(len, "values")?;
    values.par_iter_mut().enumerate().with_min_len(1 << 14).for_each(|(e, value)| {
        let bits = SplitMix64::new(seed.wrapping_add(GAMMA.wrapping_mul(e as u64))).next_u64() >> 40;
        *value = V::from_f64(bits as f64 / f64::from(1 << 23) - 1.0);
    });
    Ok(values)
}
