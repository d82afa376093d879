//! Sizes of N:M products: what `--shapes` takes, and the named lists of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `C[m × n] = A[m × k]·W[k × n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NmShape {
    /// Rows of `A` and `C`.
    pub(crate) m: usize,
    /// Columns of `W` and `C`.
    pub(crate) n: usize,
    /// Columns of `A`, rows of `W`.
    pub(crate) k: usize,
}

impl NmShape {
    /// Shapes A to F of NM-SpMM's Table II.
    pub(crate) const PAPER: [Self; 6] = [
        Self { m: 512, n: 512, k: 512 },
        Self { m: 512, n: 1024, k: 1024 },
        Self { m: 512, n: 2048, k: 2048 },
        Self { m: 1024, n: 2048, k: 2048 },
        Self { m: 2048, n: 4096, k: 4096 },
        Self { m: 4096, n: 4096, k: 4096 },
    ];

    /// The linear layers of Llama-7B, (n, k): attention and its output, the three of the feed-forward part, and the
    /// query, key and value projections as one; each with 256, 512, 1024, 2048 and 4096 rows of activations.
    pub(crate) fn llama() -> Vec<Self> {
        let layers = [(4096, 4096), (11008, 4096), (4096, 11008), (12288, 4096)];
        let rows = [256, 512, 1024, 2048, 4096];
        rows.into_iter().flat_map(|m| layers.map(|(n, k)| Self { m, n, k })).collect()
    }

    /// The shapes that a word names: `paper`, `llama`, or one as `MxNxK`.
    ///
    /// # Errors
    /// A message that says what is understood.
    pub(crate) fn named(text: &str) -> Result<Vec<Self>, String> {
        match text {
            "paper" => Ok(Self::PAPER.to_vec()),
            "llama" => Ok(Self::llama()),
            _ => text.parse().map(|shape| vec![shape]),
        }
    }
}

impl fmt::Display for NmShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}x{}", self.m, self.n, self.k))
    }
}

impl FromStr for NmShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Option<Vec<usize>> = text.split('x').map(|size| size.parse().ok()).collect();
        match sizes.as_deref() {
            Some(&[m, n, k]) => Ok(Self { m, n, k }),
            _ => Err(format!("{text:?} is no shape; write MxNxK, paper or llama")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_they_are_written() {
        for shape in NmShape::PAPER {
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        assert_eq!(NmShape::named("llama").unwrap().len(), 20);
        assert_eq!(NmShape::named("1x2x3").unwrap(), [NmShape { m: 1, n: 2, k: 3 }]);
        for wrong in ["", "1x2", "1x2x3x4", "axbxc", "1x2x-3"] {
            assert!(NmShape::named(wrong).is_err(), "{wrong:?}");
        }
    }
}
