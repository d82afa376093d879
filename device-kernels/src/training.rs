//! The dense operations that training a graph neural network needs beside its products, on CUDA cores.
//!
//! | kernel | computes |
//! | --- | --- |
//! | [`Pointwise`] | bias, ReLU and its gradient, rounding to a type of 16 bits: any of them in one pass |
//! | [`CrossEntropy`] | softmax cross-entropy over the rows of a matrix, its gradient, and what is predicted right |
//! | [`NormalizeRows`], [`NormalizeRowsGrad`] | rows of length 1, and the gradient |
//! | [`ColumnSums`] | sums of columns, of products of two matrices too, in two passes |
//! | [`Adam`] | one step of the optimiser |
//!
//! All are bound by memory. Lanes take four neighbouring columns each, as one vector where rows are aligned. What is
//! added up is added in a fixed order: two runs give the same bits.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

mod adam;
mod cross_entropy;
mod normalize;
mod pointwise;
mod sums;

pub use adam::{Adam, AdamParams};
pub use cross_entropy::{CrossEntropy, CrossEntropyParams, OUTCOMES};
pub use normalize::{NormalizeRows, NormalizeRowsGrad, NormalizeRowsGradParams, NormalizeRowsParams};
pub use pointwise::{Pointwise, PointwiseParams};
pub use sums::{ColumnSums, ColumnSumsParams};

/// Columns that a lane takes at a time.
pub const QUAD: u32 = 4;

/// A row-major matrix in global memory.
///
/// # Obligations
/// Element `(r, c)` is `data[r·ld + c]`, and exists for every row and column that a kernel is told of. Where `vectors`
/// is not 0, `data` is aligned to four elements and `ld` a multiple of four.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Matrix {
    /// Element (0, 0); null for a matrix that is not there.
    pub data: GlobalPtr<f32>,
    /// Leading dimension, in elements.
    pub ld: u32,
    /// Whether four columns may be moved as one vector.
    pub vectors: u32,
}

impl Matrix {
    /// A matrix that is not there.
    pub const NONE: Self = Self { data: GlobalPtr::NULL, ld: 0, vectors: 0 };

    #[inline(always)]
    const fn is_there(&self) -> bool {
        self.data.address() != 0
    }

    #[inline(always)]
    fn offset(&self, quad: Quad) -> u64 {
        u64::from(quad.row) * u64::from(self.ld) + u64::from(quad.column)
    }

    /// The elements of a quad; zeros beyond the last column.
    ///
    /// # Safety
    /// `quad` is one of the matrix.
    #[inline(always)]
    unsafe fn load<S: Simt>(&self, s: &S, quad: Quad) -> [f32; 4] {
        let from = self.data.at_wide(self.offset(quad));
        // SAFETY: the caller's promise. Not read-only: the result of a kernel may take the place of an operand.
        unsafe {
            if self.vectors != 0 && quad.present == QUAD {
                return s.load(from.cast::<[f32; 4]>());
            }
            let mut elements = [0.0; 4];
            let mut i = 0;
            while i < QUAD {
                if i < quad.present {
                    elements[i as usize] = s.load(from.at(i));
                }
                i += 1;
            }
            elements
        }
    }

    /// Stores the elements of a quad that exist.
    ///
    /// # Safety
    /// `quad` is one of the matrix, and this thread's alone.
    #[inline(always)]
    unsafe fn store<S: Simt>(&self, s: &S, quad: Quad, elements: [f32; 4]) {
        let to = self.data.at_wide(self.offset(quad));
        // SAFETY: the quad is one of the matrix, and this thread's alone, by the caller's promise.
        unsafe {
            if self.vectors != 0 && quad.present == QUAD {
                return s.store(to.cast::<[f32; 4]>(), elements);
            }
            let mut i = 0;
            while i < QUAD {
                if i < quad.present {
                    s.store(to.at(i), elements[i as usize]);
                }
                i += 1;
            }
        }
    }
}

/// Four neighbouring elements of a row.
#[derive(Clone, Copy)]
struct Quad {
    row: u32,
    column: u32,
    /// How many of them are columns of the matrix: 1 to 4.
    present: u32,
}

impl Quad {
    /// The quad at `column` of a row of `cols` columns, if there is one.
    #[inline(always)]
    const fn at(row: u32, column: u32, cols: u32) -> Option<Self> {
        if column >= cols {
            return None;
        }
        let left = cols - column;
        Some(Self { row, column, present: if left < QUAD { left } else { QUAD } })
    }
}

/// How the elements of a matrix are dealt out to threads: a power of two of lanes to a row, quads in turn.
///
/// # Obligations
/// `lane_bits ≤ 16`, and 5 at most where `cols > 2³¹`; `cols ≤ 2³² − 1024`; the grid has a thread for each row and
/// lane.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct Extent {
    /// Rows of the matrix, each of `2^lane_bits` lanes.
    pub rows: u32,
    /// Columns of the matrix, without padding.
    pub cols: u32,
    /// Binary logarithm of the lanes that share a row.
    pub lane_bits: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl Extent {
    /// Threads of a block of the kernels that take one.
    pub const BLOCK_THREADS: u32 = 256;

    /// Threads that fill a large GPU: few rows get more lanes than a warp.
    const FILL: u32 = 1 << 18;
    /// Most lanes of a row.
    const MOST_LANES: u32 = 1 << 16;

    /// Deals out a matrix: as many lanes to a row as have a quad of it, at most a warp, or as fill a GPU with few rows.
    #[must_use]
    pub const fn of(rows: u32, cols: u32) -> Self {
        let quads = cols.div_ceil(QUAD).next_power_of_two();
        let mut most = WARP;
        while most < Self::MOST_LANES && cols <= 1 << 31 && rows <= Self::FILL / most / 2 {
            most *= 2;
        }
        let lanes = if quads >= most { most } else { quads };
        Self { rows, cols, lane_bits: lanes.trailing_zeros(), reserved: 0 }
    }

    /// Threads that the matrix is dealt out to.
    #[must_use]
    pub const fn threads(self) -> u64 {
        if self.cols == 0 { 0 } else { (self.rows as u64) << self.lane_bits }
    }

    /// Calls `work` with each quad of this thread.
    #[inline(always)]
    fn each_quad<S: Simt>(&self, s: &S, mut work: impl FnMut(Quad)) {
        let thread = u64::from(s.block_idx()) * u64::from(Self::BLOCK_THREADS) + u64::from(s.thread_idx());
        let row = thread >> self.lane_bits;
        if row >= u64::from(self.rows) {
            return;
        }
        let lanes = 1 << self.lane_bits;
        let mut column = QUAD * (thread as u32 & (lanes - 1));
        while let Some(quad) = Quad::at(row as u32, column, self.cols) {
            work(quad);
            column += QUAD * lanes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_as_many_lanes_as_they_have_quads() {
        let many = 100_000;
        for (rows, cols, lanes) in [
            (7, 1, 1u32),
            (7, 4, 1),
            (7, 5, 2),
            (7, 9, 4),
            (7, 16, 4),
            (7, 17, 8),
            (7, 100, 32),
            (many, 128, 32),
            (many, 4000, 32),
            (2048, 11_008, 128),
            (7, 4000, 1024),
            (1, 11_008, 4096),
            (1, 1 << 31, 1 << 16),
            (1, u32::MAX - 1023, 32),
        ] {
            let extent = Extent::of(rows, cols);
            let threads = u64::from(rows) * u64::from(lanes);
            assert_eq!((1 << extent.lane_bits, extent.threads()), (lanes, threads), "{rows} × {cols}");
        }
        assert_eq!((Extent::of(7, 0).threads(), Extent::of(0, 7).threads()), (0, 0));
        assert_eq!(Extent::of(u32::MAX, 128).threads(), 32 * u64::from(u32::MAX));
    }
}
