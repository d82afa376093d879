//! `out = α·(X·Yᵀ) ⊙ pattern`: products of rows of `X` and `Y`, where a sparse pattern has entries (SDDMM).
//!
//! | kernel | runs on | for |
//! | --- | --- | --- |
//! | [`SddmmTiles`] | Tensor Cores | tiles of 8 rows × 16 condensed columns; f16, bf16, tf32 |
//! | [`SddmmEntries`] | CUDA cores | entries one by one, eight of a row at a time; any element type |
//!
//! After Libra (section 4). Every entry of the result is written by one lane, once, and its sum is taken in one
//! order: two runs give the same bits.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

mod entries;
mod tiles;

pub use entries::{BATCH, SddmmEntries, SddmmEntriesParams};
pub use tiles::{
    DotElement, PopCount, Rank, Scan, SddmmTiles, SddmmTilesParams, TILE_RECORD_WORDS, record_masks_at,
    record_starts_at, record_window_at,
};

/// The operands of one launch of `out = α·(X·Yᵀ) ⊙ pattern`.
///
/// # Obligations
/// - `x`: m × `inner` row-major with `ldx ≥ inner`; `y`: n × `inner` row-major with `ldy ≥ inner`. For kernels that
///   read vectors both are 16-byte aligned, with leading dimensions that are multiples of the elements in 16 bytes,
///   and every row is readable up to `inner` rounded up to 16 bytes.
/// - `places` is null, or leads from the positions of the launch to those of the result, no two to the same.
/// - `out`, and `scale` unless it is null, have an element for each position of the result.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Sampled {
    /// `X`, cast to words.
    pub x: GlobalPtr<u32>,
    /// `Y`, cast to words.
    pub y: GlobalPtr<u32>,
    /// The result, one element for each entry of the pattern.
    pub out: GlobalPtr<f32>,
    /// What each element is multiplied by; null for a pattern without values.
    pub scale: GlobalPtr<f32>,
    /// Position in the result of each position of the launch; null if these are the same.
    pub places: GlobalPtr<u32>,
    /// Columns of `X` and of `Y`.
    pub inner: u32,
    /// Leading dimension of `X`, in elements.
    pub ldx: u32,
    /// Leading dimension of `Y`, in elements.
    pub ldy: u32,
    /// Factor of every element.
    pub alpha: f32,
}

impl Sampled {
    /// Writes the product for `position`.
    ///
    /// # Safety
    /// The obligations of [`Sampled`]; `position` is one of the launch, of no other thread.
    #[inline(always)]
    unsafe fn finish<S: Simt>(&self, s: &S, position: u32, sum: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            let place = match self.places == GlobalPtr::NULL {
                true => position,
                false => s.load_readonly_once(self.places.at(position)),
            };
            let mut out = self.alpha * sum;
            if self.scale != GlobalPtr::NULL {
                out *= s.load_readonly_once(self.scale.at(place));
            }
            s.store(self.out.at(place), out);
        }
    }

    /// Whether the elements `first..first + count` end behind `inner`, inside a vector of `width` elements.
    #[inline(always)]
    const fn is_ragged(&self, first: u32, count: u32, width: u32) -> bool {
        !self.inner.is_multiple_of(width) && first + count > self.inner
    }
}
