//! Products of a sparse tensor by coordinates, added up atomically: what segment reductions are compared with.
//!
//! ```text
//! out[row[e], j] += value[e] · Π_f factor_f[index_f[e], j]
//! ```
//!
//! A thread has one entry `e` and one column `j`; neighbouring lanes have neighbouring columns. With one factor this is
//! SpMM and TTM, with two MTTKRP. The kernel knows nothing of rows: each product is one atomic addition to `out`, which
//! begins at zero, in an order that differs from run to run. For benches; products of this library are not computed by
//! it.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::kernel::Kernel;
use crate::unroll::each;
use crate::variant::Variant;

/// A dense matrix that entries are multiplied by, and the row for each.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Factor {
    /// The matrix, row-major, of `n` columns.
    pub matrix: GlobalPtr<f32>,
    /// Its row for each entry.
    pub indices: GlobalPtr<u32>,
    /// Its leading dimension, in elements.
    pub ld: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Arguments of [`AtomicEntries`].
///
/// # Obligations
/// - `rows`, `values` and the indices of the factors have `nnz` elements, fewer than 2³² divided by the lanes; rows are
///   those of `out`, indices those of the factors, all of which have `n` columns.
/// - An instance with one factor does not read the second.
/// - The grid has at least `nnz · lanes` threads along its fast axis, fewer than 2³², and a value of the slow axis for
///   each `lanes` columns.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct AtomicEntriesParams {
    /// What entries are multiplied by.
    pub factors: [Factor; 2],
    /// Row of the result of each entry.
    pub rows: GlobalPtr<u32>,
    /// Value of each entry.
    pub values: GlobalPtr<f32>,
    /// The result, row-major, zero before the launch.
    pub out: GlobalPtr<f32>,
    /// Number of entries of the tensor or matrix.
    pub nnz: u32,
    /// Columns of the factors and of the result.
    pub n: u32,
    /// Leading dimension of the result, in elements.
    pub ld_out: u32,
    /// Logarithm of the lanes side by side along the width, at most 5.
    pub lanes_log2: u32,
}

/// One instance: the number of factors.
pub struct AtomicEntries<const FACTORS: usize>;

impl<const FACTORS: usize> Kernel for AtomicEntries<FACTORS> {
    type Params = AtomicEntriesParams;
    const FILE: &'static str = "atomic_entries";
    const VARIANT: Variant = Variant::AtomicEntries { factors: FACTORS as u32 };
    const BLOCK_THREADS: u32 = 256;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AtomicEntriesParams) {
        const { assert!(FACTORS == 1 || FACTORS == 2, "as many as there are in the params") }
        let thread = s.block_idx() * Self::BLOCK_THREADS + s.thread_idx();
        let entry = thread >> p.lanes_log2;
        let column = (s.block_idx_y() << p.lanes_log2) + (thread & ((1 << p.lanes_log2) - 1));
        if entry >= p.nnz || column >= p.n {
            return; // no collectives below
        }
        let at = |row: u32, ld: u32| u64::from(row) * u64::from(ld) + u64::from(column);
        // SAFETY: the entry and the column exist; rows and indices are those of the matrices.
        unsafe {
            let mut product = s.load_readonly(p.values.at(entry));
            each::<FACTORS>(|f| {
                let Factor { matrix, indices, ld, .. } = p.factors[f];
                let row = s.load_readonly(indices.at(entry));
                product *= s.load_readonly(matrix.at_wide(at(row, ld)));
            });
            let row = s.load_readonly(p.rows.at(entry));
            s.reduce_add_f32(p.out.at_wide(at(row, p.ld_out)), product);
        }
    }
}
