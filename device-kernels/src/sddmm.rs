//! `out = α·(X·Yᵀ) ⊙ pattern`: products of rows of `X` and `Y`, where a sparse pattern has entries (SDDMM).
//!
//! | kernel | runs on | for |
//! | --- | --- | --- |
//! | [`SddmmTiles`] | Tensor Cores | tiles of 8 rows × 16 condensed columns; f16, bf16, tf32 |
//! | [`SddmmEntries`] | CUDA cores | entries one by one, eight of a row at a time; any element type |
//! | [`SddmmGroups`] | CUDA cores | entries one by one, by groups of 1 to 32 threads; f32, f16, f64 |
//! | [`SddmmPanels`] | CUDA cores | panels of rows that share `Y` in shared memory; f32 |
//!
//! After Libra (section 4), the last after Sgap. Every entry of the result is written by one lane, once, and its sum is
//! taken in one order: two runs give the same bits.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::real::{Factor, Real};

mod entries;
mod groups;
pub mod panels;
mod tiles;

pub use entries::{BATCH, SddmmEntries, SddmmEntriesParams};
pub use groups::{SddmmGroups, SddmmGroupsParams};
pub use panels::{SddmmPanels, SddmmPanelsParams};
pub use tiles::{
    DotElement, PopCount, Rank, Scan, SddmmTiles, SddmmTilesParams, TILE_RECORD_WORDS, record_masks_at,
    record_starts_at, record_window_at,
};

/// The operands of one launch of `out = α·(X·Yᵀ) ⊙ pattern`.
///
/// # Obligations
/// - `inner ≤ 2³² − 1024`.
/// - `x`: m × `inner` row-major with `ldx ≥ inner`; `y`: n × `inner` row-major with `ldy ≥ inner`. For kernels that
///   read vectors both are 16-byte aligned, with leading dimensions that are multiples of the elements in 16 bytes,
///   and every row is readable up to `inner` rounded up to 16 bytes.
/// - `places` is null, or leads from the positions of the launch to those of the result, no two to the same.
/// - `out`, and `scale` unless it is null, have an element for each position of the result; at most 2³² − 1024.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Sampled {
    /// `X`, cast to words.
    pub x: GlobalPtr<u32>,
    /// `Y`, cast to words.
    pub y: GlobalPtr<u32>,
    /// The result, one number of the sums' type for each entry of the pattern, cast to words.
    pub out: GlobalPtr<u32>,
    /// What each element is multiplied by, in the type of the sums, cast to words; null for a pattern without values.
    pub scale: GlobalPtr<u32>,
    /// Position in the result of each position of the launch; null if these are the same.
    pub places: GlobalPtr<u32>,
    /// Columns of `X` and of `Y`.
    pub inner: u32,
    /// Leading dimension of `X`, in elements.
    pub ldx: u32,
    /// Leading dimension of `Y`, in elements.
    pub ldy: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
    /// Factor of every element.
    pub alpha: Factor,
}

/// Where a product goes.
#[derive(Clone, Copy)]
struct Target<T> {
    /// Position in the result.
    place: u32,
    /// What the product is multiplied by, beside α.
    factor: T,
}

impl<T: Real> Target<T> {
    /// No position has this number.
    const NONE: Self = Self { place: u32::MAX, factor: T::ONE };
}

impl Sampled {
    /// Position in the result of `position` of the launch.
    ///
    /// # Safety
    /// The obligations of [`Sampled`]; `position` is one of the launch.
    #[inline(always)]
    unsafe fn place<S: Simt>(&self, s: &S, position: u32) -> u32 {
        match self.places == GlobalPtr::NULL {
            true => position,
            // SAFETY: the position is one of the launch, and `places` has an element for each.
            false => unsafe { s.load_readonly_once(self.places.at(position)) },
        }
    }

    /// Where the product for `position` goes, and its factor.
    ///
    /// # Safety
    /// As for [`place`](Self::place).
    #[inline(always)]
    unsafe fn target<S: Simt, T: Real>(&self, s: &S, position: u32) -> Target<T> {
        // SAFETY: the position is one of the launch.
        unsafe { self.target_at(s, self.place(s, position)) }
    }

    /// The target at a place of the result, and its factor.
    ///
    /// # Safety
    /// The obligations of [`Sampled`]; a position of the result.
    #[inline(always)]
    unsafe fn target_at<S: Simt, T: Real>(&self, s: &S, place: u32) -> Target<T> {
        let factor = match self.scale == GlobalPtr::NULL {
            true => T::ONE,
            // SAFETY: `scale` has an element for each position of the result.
            false => unsafe { s.load_readonly_once(self.scale.cast::<T>().at(place)) },
        };
        Target { place, factor }
    }

    /// Writes a product, if it has a target.
    ///
    /// # Safety
    /// `target` comes from [`target`](Self::target), for a position of no other thread, or is none.
    #[inline(always)]
    unsafe fn store<S: Simt, T: Real>(&self, s: &S, target: Target<T>, sum: T) {
        if target.place != Target::<T>::NONE.place {
            let product = self.alpha.get::<T>() * sum * target.factor;
            // SAFETY: the place is one of `out`, which no other thread has, by the caller's promise about the target.
            unsafe { s.store(self.out.cast::<T>().at(target.place), product) };
        }
    }

    /// Whether the elements `first..first + count` end behind `inner`, inside a vector of `width` elements.
    #[inline(always)]
    const fn is_ragged(&self, first: u32, count: u32, width: u32) -> bool {
        !self.inner.is_multiple_of(width) && first + count > self.inner
    }
}
