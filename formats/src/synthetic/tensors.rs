//! Tensors of three modes.

use rayon::prelude::*;

use super::patterns::truncate;
use super::{SplitMix64, seeded_values};
use crate::coo3::mode_dimensions;
use crate::memory::{try_with_room, try_zeroed};
use crate::{Coo3, FormatError, Value};

/// A tensor with entries at `draws` places, every place as likely as any other. A place that is drawn again is one
/// entry, so there are `draws` entries at most; none if a dimension is 0.
///
/// Entries ascend by the first mode, then the second, then the third. The values are [`seeded_values`] of `seed`. The
/// places come from the stream of `!seed`, so that they do not depend on the values.
///
/// # Cost
/// Three numbers for each place, one after the other, and a parallel sort of the places.
///
/// # Errors
/// [`FormatError::ModeTooLarge`], [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::synthetic::seeded_tensor;
///
/// let tensor = seeded_tensor::<f32>([300, 200, 100], 1000, 1)?;
/// assert_eq!((tensor.dims(), tensor.nnz()), ([300, 200, 100], 1000));
/// assert_eq!(tensor, seeded_tensor([300, 200, 100], 1000, 1)?);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn seeded_tensor<V: Value>(dims: [usize; 3], draws: usize, seed: u64) -> Result<Coo3<V>, FormatError> {
    let bounds = mode_dimensions(dims)?;
    let mut random = SplitMix64::new(!seed);
    from_places(dims, draws, seed, || {
        let i = random.below(bounds[0]);
        let j = random.below(bounds[1]);
        let k = random.below(bounds[2]);
        [i, j, k]
    })
}

/// A tensor like [`seeded_tensor`], but the indices of mode `m` follow a power law: the index of rank `x`, from 1, is
/// drawn with a density of `x^−exponents[m]`, cut to an integer. Which index has which rank depends on the seed.
///
/// So few slices and few fibers hold most of the entries, as in tensors of ratings or of words: exponents from 0.6 to
/// 1.2 are usual, and 0 is uniform. The larger the exponents, the more places are drawn again.
///
/// Ranks are made with the platform's `exp` and `ln`: where these differ in their last bit, a rank may, though rarely.
///
/// # Cost
/// That of [`seeded_tensor`], and a logarithm and an exponential for each index.
///
/// # Errors
/// - [`FormatError::PowerLaw`] for the first exponent that is negative or not finite;
/// - [`FormatError::ModeTooLarge`], [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::synthetic::seeded_power_law_tensor;
///
/// let tensor = seeded_power_law_tensor::<f32>([3000, 2000, 100], 10_000, [1.0, 0.8, 0.0], 1)?;
/// let fibers = tensor.to_csf([0, 1, 2])?;
/// let longest = (0..fibers.roots()).map(|root| fibers.root_range(root).len()).max();
/// assert!(longest > Some(500), "a slice of 3000 has a twentieth of the fibers");
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn seeded_power_law_tensor<V: Value>(
    dims: [usize; 3],
    draws: usize,
    exponents: [f64; 3],
    seed: u64,
) -> Result<Coo3<V>, FormatError> {
    let bounds = mode_dimensions(dims)?;
    if let Some(mode) = exponents.iter().position(|&exponent| !(exponent.is_finite() && exponent >= 0.0)) {
        return Err(FormatError::PowerLaw { mode, exponent: exponents[mode].to_string() });
    }
    let mut random = SplitMix64::new(!seed);
    let modes = [0, 1, 2].map(|mode| PowerLaw::new(bounds[mode], exponents[mode], &mut random));
    from_places(dims, draws, seed, || {
        let i = modes[0].draw(&mut random);
        let j = modes[1].draw(&mut random);
        let k = modes[2].draw(&mut random);
        [i, j, k]
    })
}

/// The tensor with entries at `draws` places that `place` returns.
fn from_places<V: Value>(
    dims: [usize; 3],
    draws: usize,
    seed: u64,
    mut place: impl FnMut() -> [u32; 3],
) -> Result<Coo3<V>, FormatError> {
    let draws = if dims.contains(&0) { 0 } else { draws };
    let mut places = try_with_room(draws, "places of entries")?;
    places.extend((0..draws).map(|_| place()));
    places.par_sort_unstable();
    places.dedup();
    let mut indices = [const { Vec::new() }; 3];
    for (mode, of_mode) in indices.iter_mut().enumerate() {
        *of_mode = try_zeroed(places.len(), "indices")?;
        of_mode.iter_mut().zip(&places).for_each(|(index, place)| *index = place[mode]);
    }
    let values = seeded_values(places.len(), seed)?;
    Coo3::try_new(dims, indices, values)
}

/// A mode whose indices are drawn after a power law.
struct PowerLaw {
    dim: u32,
    exponent: f64,
    /// Index of rank 0, and by how much indices of successive ranks differ, modulo `dim`.
    first: u32,
    step: u32,
}

impl PowerLaw {
    fn new(dim: u32, exponent: f64, random: &mut SplitMix64) -> Self {
        let first = random.below(dim);
        // Without a divisor in common with the dimension, the step visits every index once.
        let mut step = random.below(dim).max(1);
        while greatest_common_divisor(step, dim) > 1 {
            step -= 1;
        }
        Self { dim, exponent, first, step }
    }

    fn draw(&self, random: &mut SplitMix64) -> u32 {
        // The inverse of the distribution function of x^-a over [1, n + 1): with b = 1 - a, the rank is
        // (1 + u ((n + 1)^b - 1))^(1/b), in a form that keeps its digits where b is near 0.
        let u = random.next_f64();
        let (log_end, b) = ((f64::from(self.dim) + 1.0).ln(), 1.0 - self.exponent);
        let log_rank = if b.abs() < 1e-12 { u * log_end } else { (u * (b * log_end).exp_m1()).ln_1p() / b };
        // Rounding may reach the end of the range.
        let rank = (truncate(log_rank.exp()).max(1) - 1).min(self.dim.saturating_sub(1));
        let index = u64::from(self.first) + u64::from(rank) * u64::from(self.step);
        u32::try_from(index % u64::from(self.dim)).unwrap_or(0)
    }
}

/// 0 is divided by everything.
fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
