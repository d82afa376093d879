//! What a caller chooses for sampled products.

use std::fmt;
use std::str::FromStr;

use crate::error::SpmmError;
use crate::options::Precision;

/// What the values of the pattern are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SddmmForm {
    /// Nothing: the result is the product alone.
    #[default]
    Mask,
    /// The product is multiplied by the stored value, in f32.
    Scale,
}

impl SddmmForm {
    /// Every form.
    pub const ALL: [Self; 2] = [Self::Mask, Self::Scale];
}

impl fmt::Display for SddmmForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mask => "mask",
            Self::Scale => "scale",
        })
    }
}

impl FromStr for SddmmForm {
    type Err = SpmmError;

    fn from_str(text: &str) -> Result<Self, SpmmError> {
        Self::ALL.into_iter().find(|form| form.to_string() == text).ok_or_else(|| SpmmError::UnknownName {
            what: "form of a sampled product",
            text: text.to_owned(),
            known: "mask and scale",
        })
    }
}

/// How a sampled product is computed on a GPU. The CPU has one algorithm, whichever is asked of those that there are for
/// the precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SddmmAlgorithm {
    /// Tiles where there are Tensor Cores for the precision, else entries.
    #[default]
    Auto,
    /// Tensor Cores over tiles of 8 rows × 16 condensed columns. Any precision but f32.
    Tiles,
    /// CUDA cores, entry by entry. Any precision.
    Entries,
    /// Libra's distribution (section 4): the columns of a window in descending order of their entries, tiles that have
    /// at least [`tile_threshold`](super::SddmmBuilder::tile_threshold) entries on Tensor Cores, the rest on
    /// CUDA cores. Any precision but f32.
    Hybrid,
}

impl SddmmAlgorithm {
    /// Every algorithm, `Auto` first.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Tiles, Self::Entries, Self::Hybrid];

    /// Whether there are kernels for `precision`.
    #[must_use]
    pub const fn supports(self, precision: Precision) -> bool {
        match self {
            Self::Auto | Self::Entries => true,
            Self::Tiles | Self::Hybrid => precision.has_tile_kernels(),
        }
    }
}

impl fmt::Display for SddmmAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Tiles => "tiles",
            Self::Entries => "entries",
            Self::Hybrid => "hybrid",
        })
    }
}

impl FromStr for SddmmAlgorithm {
    type Err = SpmmError;

    fn from_str(text: &str) -> Result<Self, SpmmError> {
        Self::ALL.into_iter().find(|a| a.to_string() == text).ok_or_else(|| SpmmError::UnknownName {
            what: "algorithm of sampled products",
            text: text.to_owned(),
            known: "auto, tiles, entries and hybrid",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for algorithm in SddmmAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse::<SddmmAlgorithm>().unwrap(), algorithm);
        }
        for form in SddmmForm::ALL {
            assert_eq!(form.to_string().parse::<SddmmForm>().unwrap(), form);
        }
        let error = "sum".parse::<SddmmForm>().unwrap_err();
        assert_eq!(error.to_string(), "\"sum\" is no form of a sampled product; there are mask and scale");
        let error = "csr".parse::<SddmmAlgorithm>().unwrap_err();
        let expected =
            "\"csr\" is no algorithm of sampled products; there are auto, tiles, entries and hybrid";
        assert_eq!(error.to_string(), expected);
    }
}
