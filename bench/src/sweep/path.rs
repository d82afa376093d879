//! The ways to a product that a sweep compares.

use std::fmt;
use std::str::FromStr;

use windrow::{Algorithm, Precision};

use crate::error::BenchError;

/// An algorithm in a precision; written `row-split-f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SweepPath {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The type of the values and of `B`.
    pub precision: Precision,
}

impl SweepPath {
    /// What is measured unless told otherwise.
    pub const DEFAULT: [Self; 5] = [
        Self { algorithm: Algorithm::RowSplit, precision: Precision::F32 },
        Self { algorithm: Algorithm::RowSplit, precision: Precision::F16 },
        Self { algorithm: Algorithm::TileStream, precision: Precision::F16 },
        Self { algorithm: Algorithm::Hybrid, precision: Precision::F16 },
        Self { algorithm: Algorithm::Auto, precision: Precision::F16 },
    ];

    /// Every path that has kernels.
    pub fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.into_iter().flat_map(|algorithm| {
            let precisions = [Precision::F32, Precision::F16].into_iter();
            precisions
                .filter(move |&precision| algorithm.supports(precision))
                .map(move |precision| Self { algorithm, precision })
        })
    }
}

impl fmt::Display for SweepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.algorithm, self.precision))
    }
}

impl FromStr for SweepPath {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        Self::all().find(|path| path.to_string() == text).ok_or_else(|| {
            let known = Self::all().map(|path| path.to_string()).collect::<Vec<_>>().join(", ");
            BenchError::UnknownPath { text: text.to_owned(), known }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let all: Vec<SweepPath> = SweepPath::all().collect();
        assert!(SweepPath::DEFAULT.iter().all(|path| all.contains(path)));
        for path in all {
            assert_eq!(path.to_string().parse::<SweepPath>().unwrap(), path);
        }
        for text in ["", "row-split", "tile-stream-f32", "hybrid-f32", "auto-bf16"] {
            let error = text.parse::<SweepPath>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} is no path")) && error.contains("auto-f16"),
                "{error}"
            );
        }
    }
}
