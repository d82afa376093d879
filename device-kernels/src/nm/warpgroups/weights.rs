//! What a stage holds of the weights, and the products that it takes.

use core::marker::PhantomData;

use windrow_simt::{HalfElement, OperandLayout, SharedOperand, Simt, Swizzle, WARP, WarpgroupSums};

use crate::element::Element;

/// Bytes of what a product reads of 64 columns of the weights: 16 elements of each.
pub(super) const PRODUCT_BYTES: u32 = 2048;
/// They lie in core matrices: 128 bytes to the next along the inner dimension, 256 to the next eight columns of `C`.
pub(super) const VALUES: OperandLayout =
    OperandLayout { inner_bytes: 128, rows_bytes: 256, swizzle: Swizzle::None };

/// Bytes of the values of a stage in a run of 64 columns, of which two of four rows are kept.
pub const SPARSE_VALUE_BYTES: u32 = 2 * PRODUCT_BYTES;
/// Bytes of their metadata.
pub const SPARSE_METADATA_BYTES: u32 = 512;
/// Metadata of a group that keeps its first two rows.
pub const SPARSE_NEUTRAL: u32 = 0b01_00;
/// Bytes of the values of a stage in a run of 64 columns, of which every row is kept.
pub const WHOLE_VALUE_BYTES: u32 = 4 * PRODUCT_BYTES;

/// Where element `inner < 16` of column `column < 64` of a product is among the values of a stage, in elements.
const fn value_index(column: u32, product: u32, inner: u32) -> u32 {
    product * (PRODUCT_BYTES / 2) + column / 8 * 128 + inner / 8 * 64 + column % 8 * 8 + inner % 8
}

/// Where the kept value `kept < 2` of group `group < 16` of column `column < 64` is among the values of a stage of
/// [`TwoOfFour`], in elements.
#[must_use]
pub const fn sparse_value_index(column: u32, group: u32, kept: u32) -> u32 {
    value_index(column, group / 8, group % 8 * 2 + kept)
}

/// Where the value of slot `slot < 64` of column `column < 64` is among the values of a stage of [`Whole`], in
/// elements.
#[must_use]
pub const fn whole_value_index(column: u32, slot: u32) -> u32 {
    value_index(column, slot / 16, slot % 16)
}

/// The word of the metadata of a stage, and the number of its first bit, of group `group < 16` of column `column < 64`.
/// Four bits there are the places of the two kept rows, `first | second << 2`.
#[must_use]
pub const fn sparse_metadata_at(column: u32, group: u32) -> (u32, u32) {
    let (step, in_step) = (group / 8, group % 8);
    let thread = column / 16 * WARP + column % 8 * 4 + 2 * step + in_step / 4;
    (thread, 4 * (column % 16 / 8 * 4 + in_step % 4))
}

/// What a stage holds of the weights of a run of 64 columns: values for so many products, 2048 bytes each, and then
/// metadata.
pub trait StageWeights {
    /// Type of the elements.
    type Element: Element;
    /// Products of a stage.
    const PRODUCTS: u32;
    /// Bytes of the values.
    const VALUE_BYTES: u32 = Self::PRODUCTS * PRODUCT_BYTES;
    /// Bytes of the metadata.
    const METADATA_BYTES: u32;

    /// The product with that number.
    ///
    /// # Safety
    /// That of [`Simt::warpgroup_mma_sparse`].
    unsafe fn multiply<S: Simt, const PRODUCT: u32, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        operands: [SharedOperand; 2],
        metadata: u32,
    );
}

/// Two of each four rows, and metadata of which: one register serves both products.
pub struct TwoOfFour<E>(PhantomData<E>);

impl<E: Element + HalfElement> StageWeights for TwoOfFour<E> {
    type Element = E;
    const PRODUCTS: u32 = 2;
    const METADATA_BYTES: u32 = SPARSE_METADATA_BYTES;

    #[inline(always)]
    unsafe fn multiply<S: Simt, const PRODUCT: u32, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        [a, b]: [SharedOperand; 2],
        metadata: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { s.warpgroup_mma_sparse::<E, PRODUCT, TRANSPOSED, R>(sums, a, b, metadata) }
    }
}

/// Every row of a stage, which all of its columns keep.
pub struct Whole<E>(PhantomData<E>);

impl<E: Element + HalfElement> StageWeights for Whole<E> {
    type Element = E;
    const PRODUCTS: u32 = 4;
    const METADATA_BYTES: u32 = 0;

    #[inline(always)]
    unsafe fn multiply<S: Simt, const PRODUCT: u32, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        [a, b]: [SharedOperand; 2],
        _: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { s.warpgroup_mma::<E, TRANSPOSED, R>(sums, a, b) }
    }
}
