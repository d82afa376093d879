//! Products of sparse tensors, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A product of a tensor with dense matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorOperation {
    /// `Y[i,:] = Σ A[i,k,l]·(B[k,:] ⊙ C[l,:])`.
    Mttkrp,
    /// `Y[i,j,:] = Σ A[i,j,l]·B[l,:]`.
    Ttm,
}

impl TensorOperation {
    /// Both operations, MTTKRP first.
    pub const ALL: [Self; 2] = [Self::Mttkrp, Self::Ttm];

    /// Operations for each entry and column.
    #[must_use]
    pub const fn flop(self) -> f64 {
        match self {
            Self::Mttkrp => 3.0,
            Self::Ttm => 2.0,
        }
    }

    /// The modes at the levels of the fibers that a product for `mode` takes: that mode at the roots, or at the leaves.
    #[must_use]
    pub const fn order(self, mode: usize) -> [usize; 3] {
        let others = match mode {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        };
        match self {
            Self::Mttkrp => [mode, others[0], others[1]],
            Self::Ttm => [others[0], others[1], mode],
        }
    }
}

impl fmt::Display for TensorOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mttkrp => "mttkrp",
            Self::Ttm => "ttm",
        })
    }
}

impl FromStr for TensorOperation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|operation| operation.to_string() == text);
        known.ok_or_else(|| format!("{text:?} is no product of tensors; there are mttkrp and ttm"))
    }
}
