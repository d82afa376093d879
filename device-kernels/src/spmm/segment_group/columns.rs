//! The columns of one thread: how elements of `B` come, and sums go.

use windrow_simt::{GlobalPtr, Simt};

use crate::element::Element;
use crate::output::Summed;
use crate::real::Real;
use crate::spmm::dense::Dense;

/// Entries whose elements of `B` are read before the first is used.
pub(super) const AT_ONCE: usize = 4;

/// `C` columns of `E` of one thread.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a, const C: usize> {
    pub(super) dense: &'a Dense,
    pub(super) column: u32,
    /// Whether all `C` are read at once: they are there, and aligned.
    whole: bool,
    /// The first of the columns in row 0 of the factor.
    first: u64,
    /// Bytes from a row of the factor to the next.
    row_bytes: u64,
}

impl<'a, const C: usize> Columns<'a, C> {
    #[inline(always)]
    pub(super) const fn new<E: Element>(dense: &'a Dense, column: u32, vectors: u32) -> Self {
        let whole = vectors != 0 && column + C as u32 <= dense.n();
        Self { dense, column, whole, first: 0, row_bytes: 0 }.of::<E>(dense.b, dense.ldb)
    }

    /// The same columns of another factor, as wide.
    #[inline(always)]
    pub(super) const fn of<E: Element>(self, factor: GlobalPtr<u32>, ld: u32) -> Self {
        let first = factor.cast::<E::Bits>().at(self.column).address();
        Self { first, row_bytes: ld as u64 * E::DTYPE.bytes() as u64, ..self }
    }

    /// The same with where the factor lies in registers. Left to itself, `ptxas` reads that from the params again
    /// before each row of the factor, and a thread waits for it between one row and the next.
    #[inline(always)]
    pub(super) fn in_registers<S: Simt>(self, s: &S) -> Self {
        Self { first: s.in_register(self.first), row_bytes: s.in_register(self.row_bytes), ..self }
    }

    /// Whether any is inside.
    #[inline(always)]
    pub(super) const fn any(&self) -> bool {
        self.column < self.dense.n()
    }

    /// The elements of `B` in the thread's columns and the rows `cols`, of which the first `present` are read; else
    /// zeros.
    ///
    /// # Safety
    /// Columns of entries are rows of `B`.
    #[inline(always)]
    pub(super) unsafe fn fetch<S: Simt, E: Element, const N: usize>(
        &self,
        s: &S,
        cols: &[u32; N],
        present: u32,
    ) -> [[E::Sum; C]; N] {
        let mut out = [[E::Sum::ZERO; C]; N];
        // SAFETY: the caller's promise; masked at the width.
        unsafe {
            if self.whole {
                let mut u = 0;
                while u < N {
                    if (u as u32) < present {
                        let from = self.row::<E>(cols[u]);
                        out[u] = read_elements::<S, E, C>(s, from);
                    }
                    u += 1;
                }
            } else {
                let mut u = 0;
                while u < N {
                    let mut i = 0;
                    while i < C {
                        if (u as u32) < present && self.column + (i as u32) < self.dense.n() {
                            let from = self.row::<E>(cols[u]).at(i as u32);
                            out[u][i] = E::widen(s, s.load_readonly(from));
                        }
                        i += 1;
                    }
                    u += 1;
                }
            }
        }
        out
    }

    /// The first of the columns in a row of the factor.
    #[inline(always)]
    const fn row<E: Element>(&self, row: u32) -> GlobalPtr<E::Bits> {
        GlobalPtr::from_address(self.first.wrapping_add((row as u64).wrapping_mul(self.row_bytes)))
    }

    /// Row `row` of `C`.
    ///
    /// # Safety
    /// As for [`Dense::finish`].
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simt, T: Summed>(&self, s: &S, row: u32, sum: [T; C]) {
        // SAFETY: the caller's promise; columns are multiples of `C`.
        unsafe { self.dense.finish(s, (row, false), self.column, sum) }
    }

    /// The piece of a row that is cut.
    ///
    /// # Safety
    /// As for [`Dense::keep`].
    #[inline(always)]
    pub(super) unsafe fn keep<S: Simt, T: Real>(&self, s: &S, slot: u32, sum: [T; C]) {
        // SAFETY: the caller's promise; columns are multiples of `C`, and so is the workspace's leading dimension.
        unsafe { self.dense.keep(s, slot, self.column, sum) }
    }
}

/// `sum += weight · elements`.
#[inline(always)]
pub(super) fn add_product<S: Simt, T: Real, const C: usize>(
    s: &S,
    weight: T,
    elements: [T; C],
    sum: &mut [T; C],
) {
    let mut i = 0;
    while i < C {
        sum[i] = T::fma(s, weight, elements[i], sum[i]);
        i += 1;
    }
}

/// `C` elements from an address that is aligned to all of them, or to 16 bytes.
///
/// # Safety
/// As for [`Simt::load_readonly`].
#[inline(always)]
pub(super) unsafe fn read_elements<S: Simt, E: Element, const C: usize>(
    s: &S,
    from: GlobalPtr<E::Bits>,
) -> [E::Sum; C] {
    let mut out = [E::Sum::ZERO; C];
    // SAFETY: the caller has `C` elements at `from`, in one vector unless `C` is 1, which nothing writes meanwhile.
    unsafe {
        if C == 1 {
            out[0] = E::widen(s, s.load_readonly(from));
            return out;
        }
        let words = match C * E::DTYPE.bytes() as usize {
            4 => [s.load_readonly(from.cast::<u32>()), 0, 0, 0],
            8 => {
                let [x, y] = s.load_readonly(from.cast::<[u32; 2]>());
                [x, y, 0, 0]
            }
            _ => s.load_readonly(from.cast::<[u32; 4]>()),
        };
        let elements = E::widen_vector(s, words);
        let mut i = 0;
        while i < C && i < E::PER_VECTOR {
            out[i] = elements[i];
            i += 1;
        }
        if C > E::PER_VECTOR {
            // Two vectors at most: four numbers of eight bytes.
            let at = from.at(E::PER_VECTOR as u32);
            let elements = E::widen_vector(s, s.load_readonly(at.cast::<[u32; 4]>()));
            while i < C {
                out[i] = elements[i - E::PER_VECTOR];
                i += 1;
            }
        }
    }
    out
}
