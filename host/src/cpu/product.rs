//! One product, computed area by area.

use std::marker::PhantomData;
use std::ops::Range;

use windrow_formats::{Csr, Value};

use super::unit::Unit;
use super::vector::{Lanes, Load, Operand, Storage, Store, Summed, Vector};
use crate::dense::{DenseMut, DenseRef};
use crate::num::index;

/// Vectors whose sums are in registers at once: AVX2 has sixteen, and a factor and an operand need one each.
const STRIP_VECTORS: usize = 8;
/// Entries ahead of the one in work whose rows of `B` are fetched.
const PREFETCH_ENTRIES: usize = 24;
/// Mean entries of a row from which on nothing is fetched ahead. In long rows the processor itself runs
/// ahead far enough, and fetching costs up to a quarter of the time; at the end of each short one it
/// guesses wrong and starts anew, and fetching gains a tenth.
const LONG_ROW: usize = 24;
/// Bytes that one prefetch brings.
const LINE_BYTES: usize = 64;
/// Bytes of `C` from which on it is written past the caches. It would not stay in them until somebody reads
/// it, and each line is read from memory before it is written to a cache: a third of the traffic where rows
/// are short.
const STREAM_BYTES: usize = 32 << 20;
/// What a streaming store must be aligned to, in bytes.
const STREAM_ALIGNMENT: usize = 16;

/// A rectangle of `C`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// `C ← α·A·B + β·C`, checked and ready to be computed.
///
/// Invariants, from the types of the operands and the checks of [`Product::new`]: a column of `A` is a row
/// of `B`, a row of `A` a row of `C`; every row of either has `n` elements.
pub(super) struct Product<'a, B: Operand, C> {
    a: &'a Csr<B::In>,
    b: *const B,
    c: *mut C,
    n: usize,
    ldb: usize,
    ldc: usize,
    alpha: B::In,
    beta: B::In,
    prefetch: bool,
    /// Bytes of `C` from which on it is written past the caches.
    pub(super) stream_bytes: usize,
    borrows: PhantomData<(&'a [B], &'a mut [C])>,
}

// SAFETY: `b` is only read, and each call of `compute` writes an area of `c` that the callers keep disjoint.
unsafe impl<B: Operand, C: Send> Sync for Product<'_, B, C> {}

/// Neighbouring columns whose sums are in registers together.
struct Strip<V: Vector> {
    /// The first of them.
    column: usize,
    /// Which lanes of the last vector exist, if not all do.
    mask: V::Mask,
    /// Whether `C` is written past the caches.
    stream: bool,
}

impl<'a, B: Operand, C: Storage + Summed<In = B::In>> Product<'a, B, C> {
    /// The product of these operands, each with its factor.
    ///
    /// # Panics
    /// Unless `b` is k × n and `c` m × n.
    pub(super) fn new(
        a: &'a Csr<B::In>,
        (alpha, b): (B::In, DenseRef<'a, B>),
        (beta, c): (B::In, DenseMut<'a, C>),
    ) -> Self {
        assert_eq!((a.cols(), c.cols()), (b.rows(), b.cols()), "B is k x n");
        assert_eq!(a.rows(), c.rows(), "C is m x n");
        let (n, ldb, ldc) = (b.cols(), b.ld(), c.ld());
        let (b, c) = (b.data().as_ptr(), c.into_data().as_mut_ptr());
        let prefetch = a.nnz() / LONG_ROW < a.rows();
        Self { a, b, c, n, ldb, ldc, alpha, beta, prefetch, stream_bytes: STREAM_BYTES, borrows: PhantomData }
    }

    /// `m + 1` offsets of the rows of `A`.
    pub(super) fn row_offsets(&self) -> &[u64] {
        self.a.row_offsets()
    }

    /// Columns of `B` and `C`.
    pub(super) fn width(&self) -> usize {
        self.n
    }

    /// Computes one area.
    ///
    /// # Panics
    /// If this machine does not have the unit, or the area is not part of `C`.
    ///
    /// # Safety
    /// No other thread computes an area that overlaps this one at the same time.
    pub(super) unsafe fn compute(&self, unit: Unit, area: &Area) {
        assert!(unit.exists() && area.rows.end <= self.a.rows() && area.columns.end <= self.n);
        // SAFETY: the machine has the unit and the area is part of C, as just checked; the caller keeps
        // other threads away from it.
        unsafe {
            match unit {
                Unit::Portable => self.compute_area::<<B::In as Lanes>::Portable>(area),
                #[cfg(target_arch = "x86_64")]
                Unit::Avx2 => self.compute_avx2(area),
                #[cfg(target_arch = "x86_64")]
                Unit::Avx512 => self.compute_avx512(area),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn compute_avx2(&self, area: &Area) {
        // SAFETY: the caller checked area and unit, and keeps other threads away from the area.
        unsafe { self.compute_area::<<B::In as Lanes>::Avx2>(area) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
    unsafe fn compute_avx512(&self, area: &Area) {
        // SAFETY: the caller checked area and unit, and keeps other threads away from the area.
        unsafe { self.compute_area::<<B::In as Lanes>::Avx512>(area) }
    }

    /// Whether rows of `columns` elements, in strips of at most `strip`, are to be written past the caches.
    ///
    /// Only if each line is then written whole by one strip: a line in parts costs more than it saves.
    fn streams(&self, columns: usize, strip: usize) -> bool {
        let aligned_to = |bytes: usize| {
            self.c.addr().is_multiple_of(bytes) && (self.ldc * size_of::<C>()).is_multiple_of(bytes)
        };
        let bytes = self.a.rows().saturating_mul(self.ldc).saturating_mul(size_of::<C>());
        self.beta == B::In::ZERO
            && bytes >= self.stream_bytes
            && aligned_to(STREAM_ALIGNMENT)
            && (columns <= strip || aligned_to(LINE_BYTES))
    }

    /// Cuts the area into strips of whole vectors, the last of them perhaps part full.
    ///
    /// # Safety
    /// The machine has the unit; the area is part of `C` and no other thread touches it.
    #[inline(always)]
    unsafe fn compute_area<V: Vector<Scalar = B::In>>(&self, area: &Area)
    where
        B: Load<V>,
        C: Store<V>,
    {
        let width = area.columns.len();
        let stream = width.is_multiple_of(V::LANES) && self.streams(width, STRIP_VECTORS * V::LANES);
        let mut column = area.columns.start;
        while column < area.columns.end {
            let left = area.columns.end - column;
            let vectors = left.div_ceil(V::LANES).min(STRIP_VECTORS);
            let columns = left.min(vectors * V::LANES);
            let part = columns % V::LANES;
            // SAFETY: `vectors` vectors, the last one masked if it is part full, are `columns` columns.
            unsafe {
                let at = Strip { column, mask: V::mask(part), stream };
                match (vectors, part > 0) {
                    (1, false) => self.strip::<V, 1, false>(&area.rows, at),
                    (2, false) => self.strip::<V, 2, false>(&area.rows, at),
                    (3, false) => self.strip::<V, 3, false>(&area.rows, at),
                    (4, false) => self.strip::<V, 4, false>(&area.rows, at),
                    (5, false) => self.strip::<V, 5, false>(&area.rows, at),
                    (6, false) => self.strip::<V, 6, false>(&area.rows, at),
                    (7, false) => self.strip::<V, 7, false>(&area.rows, at),
                    (_, false) => self.strip::<V, 8, false>(&area.rows, at),
                    (1, true) => self.strip::<V, 1, true>(&area.rows, at),
                    (2, true) => self.strip::<V, 2, true>(&area.rows, at),
                    (3, true) => self.strip::<V, 3, true>(&area.rows, at),
                    (4, true) => self.strip::<V, 4, true>(&area.rows, at),
                    (5, true) => self.strip::<V, 5, true>(&area.rows, at),
                    (6, true) => self.strip::<V, 6, true>(&area.rows, at),
                    (7, true) => self.strip::<V, 7, true>(&area.rows, at),
                    (_, true) => self.strip::<V, 8, true>(&area.rows, at),
                }
            }
            column += columns;
        }
        if stream {
            // SAFETY: the machine has the unit.
            unsafe { V::finish_streams() }
        }
    }

    /// A strip of `N` vectors of every row in `rows`, the last one under the mask if `PART`.
    ///
    /// # Safety
    /// The machine has the unit; the strip is part of `C` and no other thread touches it.
    #[inline(always)]
    unsafe fn strip<V: Vector<Scalar = B::In>, const N: usize, const PART: bool>(
        &self,
        rows: &Range<usize>,
        strip: Strip<V>,
    ) where
        B: Load<V>,
        C: Store<V>,
    {
        let Strip { column, mask, stream } = strip;
        let masked = |i: usize| if PART && i == N - 1 { Some(mask) } else { None };
        let (offsets, cols, values) = (self.a.row_offsets(), self.a.col_indices(), self.a.values());
        let last = cols.len().saturating_sub(1);
        for row in rows.clone() {
            // SAFETY: a Csr has an offset for each row and one more, and offsets are at most the number of
            // entries, which fits usize; columns of entries are rows of B and the row is one of C, both of
            // `n` elements, of which the strip is part.
            unsafe {
                let (begin, end) =
                    (index(*offsets.get_unchecked(row)), index(*offsets.get_unchecked(row + 1)));
                let mut sum = [V::splat(B::In::ZERO); N];
                for entry in begin..end {
                    if self.prefetch {
                        let ahead = *cols.get_unchecked((entry + PREFETCH_ENTRIES).min(last)) as usize;
                        let ahead = self.b.wrapping_add(ahead.wrapping_mul(self.ldb).wrapping_add(column));
                        for line in (0..N * V::LANES).step_by(LINE_BYTES / size_of::<B>()) {
                            V::prefetch(ahead.wrapping_add(line));
                        }
                    }
                    let col = *cols.get_unchecked(entry) as usize;
                    let value = V::splat(*values.get_unchecked(entry));
                    let from = self.b.add(col * self.ldb + column);
                    for (i, sum) in sum.iter_mut().enumerate() {
                        let b = <B as Load<V>>::load(from.add(i * V::LANES), masked(i));
                        *sum = value.multiply_add(b, *sum);
                    }
                }
                let to = self.c.add(row * self.ldc + column);
                for (i, sum) in sum.into_iter().enumerate() {
                    let to = to.add(i * V::LANES);
                    let mut out = sum.multiply(V::splat(self.alpha));
                    if self.beta != B::In::ZERO {
                        let old = <C as Load<V>>::load(to, masked(i));
                        out = old.multiply_add(V::splat(self.beta), out);
                    }
                    if stream && !PART {
                        <C as Store<V>>::stream(out, to);
                    } else {
                        <C as Store<V>>::store(out, to, masked(i));
                    }
                }
            }
        }
    }
}
