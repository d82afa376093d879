//! How the weights of a step of a product of few rows say which activations they multiply.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, HalfElement, Simt, WARP};

use super::ELEMENT;
use crate::element::{Dtype, Element};
use crate::nm::operand::NmOperand;

/// What 16 kept rows of a strip multiply.
pub trait FewRowsForm: 'static {
    /// Type of activations and weights.
    const DTYPE: Dtype;
    /// Whether the MMA is that with a sparse operand.
    const SPARSE: bool;
    /// What a lane holds of a step beside its weights.
    type Names: Copy;
    /// That of no step.
    const NOTHING: Self::Names;
    /// The B operand: 8 rows of activations.
    type Operand: Copy;

    /// What names the activations of step `step` of all strips, counted through.
    ///
    /// # Safety
    /// There is such a step.
    unsafe fn names<S: Simt>(s: &S, names: GlobalPtr<u32>, step: u64) -> Self::Names;
    /// The lane's part of the operand, for the row of a window that begins at `row`, and step `step` of the window.
    ///
    /// # Safety
    /// The row has arrived, with zeros behind it.
    unsafe fn operand<S: Simt>(s: &S, row: u32, step: u32, names: Self::Names) -> Self::Operand;
    /// `acc +` the product with the weights of unit `unit < 2`: 16 columns of `C` × 8 rows.
    ///
    /// # Safety
    /// The whole warp is here.
    unsafe fn multiply<S: Simt>(
        s: &S,
        unit: usize,
        operands: ([u32; 4], Self::Operand),
        acc: [f32; 4],
        names: Self::Names,
    ) -> [f32; 4];
}

/// Any kept rows, the same in all columns of a strip: 16 offsets a step, two bytes each, of an element in its window,
/// in bytes from the window's first column, in the order of [`few_rows_pick_index`]; twice
/// [`WINDOW`](super::NmFewRows::WINDOW) where nothing is kept.
pub struct ByPicks<E>(PhantomData<E>);

/// Two of each four successive rows, any in each column: 32 words a step, one a lane, which say which, in the order of
/// [`few_rows_metadata_at`]. A step is 32 successive rows.
pub struct ByMetadata<E>(PhantomData<E>);

/// Where in a step's picks kept row `kept < 16` is: those of the B operand's registers of a lane side by side.
#[must_use]
pub const fn few_rows_pick_index(kept: u32) -> u32 {
    kept % 8 / 2 * 4 + kept / 8 * 2 + kept % 2
}

/// The word of a step's metadata, and the first bit in it, of the four that say which two of the rows of four
/// `four < 8` column `column < 32` keeps: `first | second << 2`, in ascending order.
#[must_use]
pub const fn few_rows_metadata_at(column: u32, four: u32) -> (u32, u32) {
    let (unit, of_unit) = (column / 16, column % 16);
    (of_unit % 8 * 4 + 2 * unit + four / 4, 4 * (of_unit / 8 * 4 + four % 4))
}

impl<E: NmOperand> FewRowsForm for ByPicks<E> {
    const DTYPE: Dtype = E::DTYPE;
    const SPARSE: bool = false;
    type Names = [u32; 2];
    const NOTHING: [u32; 2] = [0; 2];
    type Operand = [u32; 2];

    #[inline(always)]
    unsafe fn names<S: Simt>(s: &S, names: GlobalPtr<u32>, step: u64) -> [u32; 2] {
        let of_lane = names.cast::<[u32; 2]>().at_wide(4 * step + u64::from(s.lane() % 4));
        // SAFETY: the caller's promise.
        unsafe { s.load_readonly(of_lane) }
    }
    #[inline(always)]
    unsafe fn operand<S: Simt>(s: &S, row: u32, _: u32, picks: [u32; 2]) -> [u32; 2] {
        // SAFETY: picks are offsets in the row or of the zeros behind it.
        picks.map(|picks| unsafe {
            let low = u32::from(s.load_shared::<u16>(row + (picks & 0xffff)));
            let high = u32::from(s.load_shared::<u16>(row + (picks >> 16)));
            low | high << 16
        }) // (16, 8)
    }
    #[inline(always)]
    unsafe fn multiply<S: Simt>(
        s: &S,
        _: usize,
        (weights, rows): ([u32; 4], [u32; 2]),
        acc: [f32; 4],
        _: [u32; 2],
    ) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { E::mma(s, weights, rows, acc) } // (16, 8) += (16, 16)·(16, 8)
    }
}

impl<E: Element + HalfElement> FewRowsForm for ByMetadata<E> {
    const DTYPE: Dtype = E::DTYPE;
    const SPARSE: bool = true;
    type Names = u32;
    const NOTHING: u32 = 0;
    type Operand = [u32; 4];

    #[inline(always)]
    unsafe fn names<S: Simt>(s: &S, names: GlobalPtr<u32>, step: u64) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_readonly(names.at_wide(step * u64::from(WARP) + u64::from(s.lane()))) }
    }
    /// The rows of `fragment::b_16bit`, two successive ones a register.
    #[inline(always)]
    unsafe fn operand<S: Simt>(s: &S, row: u32, step: u32, _: u32) -> [u32; 4] {
        let first = row + (32 * step + s.lane() % 4 * 2) * ELEMENT;
        // SAFETY: the step is of the window.
        [0, 8, 16, 24].map(|inner| unsafe { s.load_shared(first + inner * ELEMENT) }) // (32, 8)
    }
    #[inline(always)]
    unsafe fn multiply<S: Simt>(
        s: &S,
        unit: usize,
        (weights, rows): ([u32; 4], [u32; 4]),
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4] {
        // SAFETY: the caller's promise. // (16, 8) += (16, 32)·(32, 8)
        unsafe {
            match unit {
                0 => s.mma_sparse_m16n8k32::<E, 0>(weights, rows, acc, metadata),
                _ => s.mma_sparse_m16n8k32::<E, 1>(weights, rows, acc, metadata),
            }
        }
    }
}
