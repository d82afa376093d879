//! What a caller chooses: precision, algorithm, and the rates for an estimate.

use std::fmt;
use std::str::FromStr;

use windrow_kernels::Dtype;

use crate::error::SpmmError;

/// Type in which the values of `A` and `B` are stored and multiplied; sums are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Precision {
    /// IEEE binary16: half the bytes to move, and Tensor Cores. Values are rounded to nearest, to 11
    /// significant bits; magnitudes above 65504 become infinite.
    F16,
    /// IEEE binary32, on CUDA cores.
    F32,
}

impl Precision {
    pub(crate) const fn dtype(self) -> Dtype {
        match self {
            Self::F16 => Dtype::F16,
            Self::F32 => Dtype::F32,
        }
    }

    /// Size of one value in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.dtype().bytes()
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

impl FromStr for Precision {
    type Err = SpmmError;

    fn from_str(text: &str) -> Result<Self, SpmmError> {
        [Self::F16, Self::F32].into_iter().find(|p| p.to_string() == text).ok_or_else(|| {
            SpmmError::UnknownName { what: "precision", text: text.to_owned(), known: "f16 and f32" }
        })
    }
}

/// How the product is computed on a GPU. The CPU has one algorithm, whatever is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Algorithm {
    /// Chosen from the matrix and the precision; the report says why.
    Auto,
    /// CUDA cores over CSR, long rows cut into segments. Any precision.
    RowSplit,
    /// CUDA cores over rows grouped by length, without a row pointer: the residual part of RS-Tile, holding
    /// every row. For matrices of short rows; long rows are not cut. Any precision.
    ShortRows,
    /// Tensor Cores over 8 × 8 tiles. Precision f16.
    TileStream,
    /// Tiles for most rows, [`ShortRows`](Self::ShortRows) for the shortest (RSH-SpMM). Precision f16.
    Hybrid,
}

impl Algorithm {
    /// Every algorithm, `Auto` first.
    pub const ALL: [Self; 5] = [Self::Auto, Self::RowSplit, Self::ShortRows, Self::TileStream, Self::Hybrid];

    /// Whether there are kernels for `precision`.
    #[must_use]
    pub const fn supports(self, precision: Precision) -> bool {
        match self {
            Self::Auto | Self::RowSplit | Self::ShortRows => true,
            Self::TileStream | Self::Hybrid => matches!(precision, Precision::F16),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::RowSplit => "row-split",
            Self::ShortRows => "short-rows",
            Self::TileStream => "tile-stream",
            Self::Hybrid => "hybrid",
        })
    }
}

impl FromStr for Algorithm {
    type Err = SpmmError;

    fn from_str(text: &str) -> Result<Self, SpmmError> {
        Self::ALL.into_iter().find(|a| a.to_string() == text).ok_or_else(|| SpmmError::UnknownName {
            what: "algorithm",
            text: text.to_owned(),
            known: "auto, row-split, short-rows, tile-stream and hybrid",
        })
    }
}

/// Memory rates of a device, for [`SpmmReport::roofline_us`](crate::SpmmReport::roofline_us).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Rates {
    /// Bytes per second of a streaming copy, read and written bytes together.
    pub copy: f64,
    /// Bytes per second at which rows of `B` are gathered, for a working set of `B`'s size.
    pub gather: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse::<Algorithm>().unwrap(), algorithm);
        }
        for precision in [Precision::F16, Precision::F32] {
            assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
        }
        let error = "csr".parse::<Algorithm>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"csr\" is no algorithm; there are auto, row-split, short-rows, tile-stream and hybrid"
        );
        assert!("bf16".parse::<Precision>().is_err());
    }
}
