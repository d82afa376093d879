//! Which part of a matrix a vector-wise N:M pattern keeps.

use std::fmt;

use crate::FormatError;

/// A vector-wise N:M pattern: of every `M` consecutive rows, in every `L` consecutive columns, `N` are kept.
///
/// Invariant: `1 ≤ N ≤ M ≤ 256`, `1 ≤ L < 2³²`. `N = M` keeps everything.
///
/// # Examples
/// ```
/// use windrow_formats::NmPattern;
///
/// let pattern = NmPattern::new(2, 8, 32)?;
/// assert_eq!((pattern.n(), pattern.m(), pattern.l()), (2, 8, 32));
/// assert_eq!(pattern.sparsity(), 0.75);
/// assert_eq!(pattern.index_bits(), 3); // a position among 8
/// assert_eq!(pattern.to_string(), "2:8 in vectors of 32");
/// assert!(NmPattern::new(9, 8, 32).is_err());
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NmPattern {
    n: u16,
    m: u16,
    l: u32,
}

impl NmPattern {
    /// Most rows of a group: a position in it is stored in a byte.
    pub const MAX_GROUP: usize = 256;

    /// The pattern that keeps `n` of every `m` vectors of `l` elements.
    ///
    /// # Errors
    /// [`FormatError::NmPattern`] unless `1 ≤ n ≤ m ≤ 256` and `1 ≤ l < 2³²`.
    pub fn new(n: usize, m: usize, l: usize) -> Result<Self, FormatError> {
        let error = FormatError::NmPattern { n, m, l };
        if n == 0 || n > m || m > Self::MAX_GROUP || l == 0 {
            return Err(error);
        }
        match (u16::try_from(n), u16::try_from(m), u32::try_from(l)) {
            (Ok(n), Ok(m), Ok(l)) => Ok(Self { n, m, l }),
            _ => Err(error),
        }
    }

    /// `N`: vectors kept of each group.
    pub const fn n(self) -> usize {
        self.n as usize
    }

    /// `M`: rows of a group.
    pub const fn m(self) -> usize {
        self.m as usize
    }

    /// `L`: columns of a vector.
    pub const fn l(self) -> usize {
        self.l as usize
    }

    /// Share of the elements that is dropped where groups are whole: `1 − N/M`.
    pub fn sparsity(self) -> f64 {
        1.0 - f64::from(self.n) / f64::from(self.m)
    }

    /// Bits that a position in a group needs: `⌈log₂ M⌉`, 0 to 8.
    pub const fn index_bits(self) -> usize {
        (self.m as usize).next_power_of_two().trailing_zeros() as usize
    }

    /// Groups of `k` rows, the last perhaps ragged: `⌈k / M⌉`.
    pub const fn groups(self, k: usize) -> usize {
        k.div_ceil(self.m())
    }

    /// Vectors of a row of `n` columns, the last perhaps ragged: `q = ⌈n / L⌉`.
    pub const fn vectors(self, n: usize) -> usize {
        n.div_ceil(self.l())
    }

    /// Rows that are left of `k`: `w = ⌊k / M⌋·N + min(N, k mod M)`.
    pub fn kept_rows(self, k: usize) -> usize {
        k / self.m() * self.n() + self.n().min(k % self.m())
    }
}

impl fmt::Display for NmPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} in vectors of {}", self.n, self.m, self.l)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_within_the_bounds_exist() {
        for (n, m, l) in [(1, 1, 1), (1, 256, 1), (256, 256, 7), (2, 4, u32::MAX as usize)] {
            assert!(NmPattern::new(n, m, l).is_ok(), "{n}:{m}, {l}");
        }
        for (n, m, l) in [(0, 4, 1), (5, 4, 1), (0, 0, 1), (1, 257, 1), (257, 256, 1), (2, 4, 0)] {
            assert_eq!(NmPattern::new(n, m, l), Err(FormatError::NmPattern { n, m, l }));
        }
        assert!(NmPattern::new(2, 4, usize::MAX).is_err());
        let message = NmPattern::new(3, 2, 8).unwrap_err().to_string();
        assert_eq!(message, "there is no pattern 3:2 in vectors of 8; give 1 ≤ N ≤ M ≤ 256 and 1 ≤ L < 2³²");
    }

    #[test]
    fn a_position_needs_the_logarithm_in_bits() {
        for (m, bits) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (128, 7), (129, 8), (256, 8)] {
            assert_eq!(NmPattern::new(1, m, 1).unwrap().index_bits(), bits, "{m}");
        }
    }

    #[test]
    fn ragged_ends_count() {
        let pattern = NmPattern::new(2, 8, 32).unwrap();
        let kept = [0, 1, 2, 7, 8, 9, 10, 11, 16].map(|k| pattern.kept_rows(k));
        assert_eq!(kept, [0, 1, 2, 2, 2, 3, 4, 4, 4]);
        assert_eq!([0, 1, 32, 33].map(|n| pattern.vectors(n)), [0, 1, 1, 2]);
        assert_eq!([0, 1, 8, 9].map(|k| pattern.groups(k)), [0, 1, 1, 2]);
    }
}
