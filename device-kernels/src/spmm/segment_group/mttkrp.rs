//! MTTKRP (matricized tensor times Khatri–Rao product): `Y[i,j] = α·Σ A[i,k,l]·B[k,j]·C[l,j] + β·Y[i,j]`, Sgap's
//! equation 2.
//!
//! [`NonzeroGroups`](super::NonzeroGroups) with two factors for each entry of the tensor: its rows are the slices `i`,
//! and an entry `(i, k, l)` is multiplied by row `k` of one matrix and row `l` of the other, element by element. All
//! else, which thread has what, segments, slots and who adds what is cut, is the same.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::MOST_THREADS;
use super::columns::Columns;
use super::nonzeros::{Factors, NonzeroGroupsParams, reduce_segments};
use crate::element::Element;
use crate::kernel::Kernel;
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`Mttkrp`].
///
/// # Obligations
/// Those of [`NonzeroGroupsParams`], of which rows are the slices of the tensor, and:
/// - `second_indices`: as many as `col_indices`, and as aligned; rows of `second`.
/// - `second`: of as many columns as `b`. With `vectors` it is aligned to the thread's columns, and `ld_second` a
///   multiple of them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct MttkrpParams {
    /// Slices, entries and the first factor; `col_indices` are the rows of `b`.
    pub groups: NonzeroGroupsParams,
    /// Row of the second factor of each entry.
    pub second_indices: GlobalPtr<u32>,
    /// The second factor, cast to words.
    pub second: GlobalPtr<u32>,
    /// Leading dimension of the second factor, in elements.
    pub ld_second: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// One instance: the element type, the entries that a thread reads at once, and its columns.
pub struct Mttkrp<E, const N: usize, const C: usize>(PhantomData<E>);

impl<E: Element, const N: usize, const C: usize> Kernel for Mttkrp<E, N, C> {
    type Params = MttkrpParams;
    const FILE: &'static str = "spmm/segment_group";
    const VARIANT: Variant = Variant::Mttkrp { dtype: E::DTYPE, at_once: N as u32, columns: C as u32 };
    const BLOCK_THREADS: u32 = MOST_THREADS;
    // As for the products with a matrix.
    const MIN_BLOCKS: u32 = 1;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MttkrpParams) {
        // SAFETY: the obligations of the params are those of the nonzero groups, and of the second factor.
        unsafe { reduce_segments::<S, E, TwoRows<'_>, N, C>(s, &p.groups, TwoRows(p)) }
    }
}

/// A row of each factor, multiplied element by element.
#[derive(Clone, Copy)]
struct TwoRows<'a>(&'a MttkrpParams);

impl Factors for TwoRows<'_> {
    #[inline(always)]
    unsafe fn fetch<S: Simt, E: Element, const N: usize, const C: usize>(
        self,
        s: &S,
        columns: &Columns<'_, C>,
        (at, cols): (u32, &[u32; N]),
        present: u32,
    ) -> [[E::Sum; C]; N] {
        let p = self.0;
        let from = p.second_indices.at(at);
        let mut rows = [0; N];
        // SAFETY: the caller's promise, and the obligations of the params: the second factor has these rows.
        unsafe {
            if N == 4 {
                let four = s.load_readonly(from.cast::<[u32; 4]>());
                each::<N>(|u| rows[u] = four[u]);
            } else {
                each::<N>(|u| rows[u] = s.load_readonly(from.at(u as u32)));
            }
            let mut product = columns.fetch::<S, E, N>(s, cols, present);
            let second = columns.of::<E>(p.second, p.ld_second).fetch::<S, E, N>(s, &rows, present);
            each::<N>(|u| each::<C>(|i| product[u][i] = product[u][i] * second[u][i]));
            product
        }
    }
}
