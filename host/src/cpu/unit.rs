//! Which vector unit a product runs on.

use super::vector::{Portable, Vector};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};

/// A vector unit that products are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// What every machine of the target has.
    Portable,
    /// Eight lanes with fused multiply-add and f16 conversion.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Sixteen lanes with masks.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Unit {
    /// Lanes of the widest.
    pub(super) const MOST_LANES: usize = 16;

    /// f32 lanes of a vector.
    pub(super) fn lanes(self) -> usize {
        match self {
            Self::Portable => Portable::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::LANES,
        }
    }

    /// Whether this machine has it.
    pub(super) fn exists(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && Self::Avx2.exists()
            }
        }
    }

    /// The widest that this machine has. The answer is cached by the standard library.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn best() -> Self {
        if Self::Avx512.exists() {
            Self::Avx512
        } else if Self::Avx2.exists() {
            Self::Avx2
        } else {
            Self::Portable
        }
    }

    /// The one that there is.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn best() -> Self {
        Self::Portable
    }
}
