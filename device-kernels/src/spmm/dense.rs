//! The dense side of every product: where `B` lies, and how a result reaches `C` or the workspace.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::output::{Output, Summed};
use crate::real::Real;
use crate::unroll::each;

/// The dense operands of one launch of `C = act(α·A·B + β·C + bias)`, columns `0..n` of both.
///
/// Kernels sum in the type of [`Element::Sum`](crate::Element::Sum), which the factors, the bias and the workspace
/// have.
///
/// # Obligations
/// - those of [`Output`], with `m` the rows of `A`; `n ≤ 2²⁰`: wider products are launched in blocks of columns.
/// - `b`: `k × n` row-major with `ldb ≥ n`; for kernels that read vectors, 16-byte aligned with
///   `ldb` a multiple of the elements in 16 bytes, and every row readable up to `n` rounded up to 16 bytes.
/// - `partial`: rows of `ld_partial ≥ n` numbers, `ld_partial` a multiple of 4, 16-byte aligned; as many
///   rows as the launch's slots name. With `accumulate` several partial sums may have one slot, and all
///   slots are zero before the launch; without, each has its own.
/// - The output is of the sums' type or f16, and has neither bias nor activation, but for
///   [`Combine`](crate::spmm::combine::Combine): other kernels have no registers left for them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Dense {
    /// `C`, and what becomes of sums on their way to it.
    pub out: Output,
    /// `B`, cast to words.
    pub b: GlobalPtr<u32>,
    /// Workspace for partial sums, cast to words; may be null when nothing is split.
    pub partial: GlobalPtr<u32>,
    /// Leading dimension of `B`, in elements.
    pub ldb: u32,
    /// Leading dimension of the workspace, in elements.
    pub ld_partial: u32,
    /// Whether partial sums are added to the workspace, in whatever order they come, instead of stored.
    pub accumulate: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl Dense {
    /// Columns of `B` and `C`.
    #[inline(always)]
    #[must_use]
    pub const fn n(&self) -> u32 {
        self.out.n
    }

    /// `C[row, column..column + W] ← α·sum + β·C`, masked at `n`; `adds` to what an earlier launch has written
    /// instead, whatever `β`. `column` is a multiple of `W`.
    ///
    /// # Safety
    /// The obligations of [`Dense`]; `row < m`; no other thread touches these elements.
    #[inline(always)]
    pub unsafe fn finish<S: Simt, T: Summed, const W: usize>(
        &self,
        s: &S,
        (row, adds): (u32, bool),
        column: u32,
        sum: [T; W],
    ) {
        let beta = if adds { T::ONE } else { self.out.beta.get::<T>() };
        // SAFETY: the row is one of `C`, and no other thread touches these elements, by the caller's promise.
        unsafe { self.out.store_linear(s, beta, (row, column), sum) }
    }

    /// Row `slot` of the workspace, columns `column..column + W` ← `sum`, or `+= sum` with `accumulate`; whole, since
    /// the workspace is padded.
    ///
    /// # Safety
    /// The obligations of [`Dense`]; without `accumulate`, `slot` is this thread group's own; with it, others may
    /// add to it, nothing else.
    #[inline(always)]
    pub unsafe fn keep<S: Simt, T: Real, const W: usize>(&self, s: &S, slot: u32, column: u32, sum: [T; W]) {
        if column < self.n() {
            let at = u64::from(slot) * u64::from(self.ld_partial) + u64::from(column);
            // SAFETY: column < n ≤ ld_partial, both multiples of W after rounding n up.
            unsafe {
                let to = self.partial.cast::<T>().at_wide(at);
                if self.accumulate == 0 {
                    T::store(s, to, sum, false);
                } else {
                    each::<W>(|i| T::reduce_add(s, to.at(i as u32), sum[i]));
                }
            }
        }
    }
}
