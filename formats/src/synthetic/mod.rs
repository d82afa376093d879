//! Made-up matrices and tensors of known structure: the same seed gives the same matrix everywhere.
//!
//! Eight kinds of structure that real matrices have, each a fixed pattern. Values are made from a seed of
//! their own, so that one pattern serves any number of tests. Weights with a vector-wise N:M pattern and tensors come
//! wholly from a seed.

mod patterns;
mod random;
mod tensors;
mod weights;

#[cfg(test)]
mod tests;

pub use random::{SplitMix64, seeded_values};
pub use tensors::{seeded_power_law_tensor, seeded_tensor};
pub use weights::seeded_weights;

use crate::{Csr, FormatError, Value, names};

/// A synthetic matrix, by name.
///
/// # Examples
/// ```
/// use windrow_formats::synthetic::Synthetic;
///
/// let kind: Synthetic = "fem100k".parse()?;
/// let a = kind.generate::<f32>(1)?;
/// assert_eq!((a.rows(), a.cols()), (100_002, 100_002));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Synthetic {
    /// R-MAT graph with 2¹⁷ vertices, 16 drawn edges each, probabilities 0.57, 0.19, 0.19, 0.05.
    Rmat17,
    /// 200 000 rows of 16 entries, columns uniform: no locality at all.
    Uniform200k,
    /// Finite elements: 33 334 nodes in a band, 3 unknowns a node, so 3 × 3 blocks.
    Fem100k,
    /// A batch of molecules: diagonal blocks of 20 to 40 atoms, trees with a few rings, 300 000 rows.
    Molbatch300k,
    /// Row lengths after a power law over 100 000 rows, the longest drawn 60 000 times.
    Powerlaw100k,
    /// 4096 × 4096 weights with 90 % pruned without structure.
    Pruned4096,
    /// A road network: 500 000 rows with a few neighbours within 600 rows.
    Roadlike500k,
    /// 60 000 vertices in communities of 300, three quarters of the edges inside.
    Community60k,
}

impl Synthetic {
    /// Every synthetic matrix, in the order of the variants.
    pub const ALL: [Self; 8] = [
        Self::Rmat17,
        Self::Uniform200k,
        Self::Fem100k,
        Self::Molbatch300k,
        Self::Powerlaw100k,
        Self::Pruned4096,
        Self::Roadlike500k,
        Self::Community60k,
    ];

    /// The matrix, with values made from `value_seed` by [`seeded_values`].
    ///
    /// # Cost
    /// At most a second or so; up to a few hundred MiB while it runs.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn generate<V: Value>(self, value_seed: u64) -> Result<Csr<V>, FormatError> {
        let (pattern, _) = patterns::pattern(self)?.into_pattern_values();
        let values = seeded_values(pattern.nnz(), value_seed)?;
        Csr::from_pattern(pattern, values)
    }
}

names!(pub name; Synthetic, FormatError, unknown;
    Rmat17 => "rmat17", Uniform200k => "uniform200k", Fem100k => "fem100k", Molbatch300k => "molbatch300k",
    Powerlaw100k => "powerlaw100k", Pruned4096 => "pruned4096_90", Roadlike500k => "roadlike500k", Community60k => "community60k");

fn unknown(found: &str, _: &str) -> FormatError {
    FormatError::UnknownSynthetic {
        found: found.to_owned(),
        known: Synthetic::ALL.map(Synthetic::name).join(", "),
    }
}
