//! Element types that warpgroups multiply.

use windrow_simt::{SharedOperand, Simt, WarpgroupSums};

use crate::element::{Bf16, Element, F16};

/// An element type that the instructions take.
pub trait WarpgroupElement: Element {
    /// The product of a warpgroup with a sparse operand.
    ///
    /// # Safety
    /// That of [`Simt::warpgroup_mma_sparse_f16`].
    unsafe fn multiply_sparse<S: Simt, const SELECTOR: u32, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        operands: [SharedOperand; 2],
        metadata: u32,
    );

    /// That with two whole operands.
    ///
    /// # Safety
    /// That of [`Simt::warpgroup_mma_f16`].
    unsafe fn multiply_whole<S: Simt, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        operands: [SharedOperand; 2],
    );

    /// That of a warp with a sparse operand, `acc + a·b`.
    ///
    /// # Safety
    /// That of [`Simt::mma_sparse_m16n8k32_f16`].
    unsafe fn multiply_sparse_in_warp<S: Simt, const SELECTOR: u32>(
        s: &S,
        operands: [[u32; 4]; 2],
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4];
}

impl WarpgroupElement for F16 {
    #[inline(always)]
    unsafe fn multiply_sparse<S: Simt, const SELECTOR: u32, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        [a, b]: [SharedOperand; 2],
        metadata: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { s.warpgroup_mma_sparse_f16::<SELECTOR, TRANSPOSED, R>(sums, a, b, metadata) }
    }
    #[inline(always)]
    unsafe fn multiply_whole<S: Simt, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        [a, b]: [SharedOperand; 2],
    ) {
        // SAFETY: the caller's promise.
        unsafe { s.warpgroup_mma_f16::<TRANSPOSED, R>(sums, a, b) }
    }
    #[inline(always)]
    unsafe fn multiply_sparse_in_warp<S: Simt, const SELECTOR: u32>(
        s: &S,
        [a, b]: [[u32; 4]; 2],
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { s.mma_sparse_m16n8k32_f16::<SELECTOR>(a, b, acc, metadata) }
    }
}

impl WarpgroupElement for Bf16 {
    #[inline(always)]
    unsafe fn multiply_sparse<S: Simt, const SELECTOR: u32, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        [a, b]: [SharedOperand; 2],
        metadata: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { s.warpgroup_mma_sparse_bf16::<SELECTOR, TRANSPOSED, R>(sums, a, b, metadata) }
    }
    #[inline(always)]
    unsafe fn multiply_whole<S: Simt, const TRANSPOSED: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        [a, b]: [SharedOperand; 2],
    ) {
        // SAFETY: the caller's promise.
        unsafe { s.warpgroup_mma_bf16::<TRANSPOSED, R>(sums, a, b) }
    }
    #[inline(always)]
    unsafe fn multiply_sparse_in_warp<S: Simt, const SELECTOR: u32>(
        s: &S,
        [a, b]: [[u32; 4]; 2],
        acc: [f32; 4],
        metadata: u32,
    ) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { s.mma_sparse_m16n8k32_bf16::<SELECTOR>(a, b, acc, metadata) }
    }
}
