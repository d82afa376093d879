//! The product on the CPU: `C = α·A·B + β·C`, row-major, any width and leading dimensions.
//!
//! Each row of `C` is accumulated in registers: the width is cut into strips of up to eight vectors, and a
//! strip's sums stay in registers while the entries of the row are walked, one fused multiply-add per
//! vector and entry. The code is written once over a [`Vector`](vector::Vector) and instantiated for the
//! vector units that the machine is found to have at run time.
//!
//! Rows are dealt out to threads in ranges of equal work. An element is always summed in the order of its
//! row's entries, whatever the strips, ranges or number of threads, so results are the same bit for bit in
//! every run, and the same on every vector unit that has fused multiply-add.
//!
//! `B` may be stored as [`half::f16`] or [`half::bf16`] and `C` as [`half::f16`]; sums are taken in f32 and rounded
//! once by the store. [`Tf32`] rounds an f32 `B` when it is read.

mod gathered;
mod product;
mod rows;
mod unit;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;
use windrow_formats::{Csr, FormatError, Value};
use windrow_preprocess::balance::row_ranges;

use crate::dense::{DenseMut, DenseRef};
use crate::num::index;
use crate::options::{CpuTasks, Precision};
pub(crate) use gathered::{GatheredWeights, Panels};
use product::{Area, Product};
pub(crate) use rows::each_row;
use unit::Unit;
use vector::Tf32;
pub(crate) use vector::{Operand, Storage};

/// Multiply-adds below which threads cost more than they bring.
const SERIAL_LIMIT: u64 = 1 << 18;
/// Elements that are worth a task of their own when they are only converted.
const CONVERSION_ELEMENTS: usize = 1 << 16;
/// Ranges per thread, for products that [`CpuTasks`] is not about.
const RANGES_PER_THREAD: usize = 8;
/// What a row costs beside its entries, in entries: the store of its elements.
const ROW_COST: u64 = 2;
/// Columns of a tile are a multiple of this: a vector of 64 bytes.
const TILE_UNIT: usize = 16;
/// Columns that are not cut further when the width is dealt out to threads.
const COLUMNS_PER_TASK: usize = 64;

/// A sparse matrix as the CPU multiplies it: compressed rows with f32 values, on the pattern of the caller's matrix.
#[derive(Debug, Clone)]
pub(crate) struct CpuCsr {
    matrix: Csr<f32>,
    precision: Precision,
    tasks: CpuTasks,
}

impl CpuCsr {
    /// Takes the matrix as it is; a precision that rounds values has rounded them before.
    pub(crate) fn new(matrix: Csr<f32>, precision: Precision) -> Self {
        Self { matrix, precision, tasks: CpuTasks::default() }
    }

    /// Dealt out in another way.
    pub(crate) fn with_tasks(self, tasks: CpuTasks) -> Self {
        Self { tasks, ..self }
    }

    /// The matrix.
    pub(crate) fn matrix(&self) -> &Csr<f32> {
        &self.matrix
    }

    /// Puts other values in the same places. The pattern stays where it is, shared with whoever else holds it.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are as many values as entries.
    pub(crate) fn replace_values(&mut self, values: Vec<f32>) -> Result<(), FormatError> {
        self.matrix = self.matrix.with_values(values)?;
        Ok(())
    }
}

/// `C[m×n] ← α·A[m×k]·B[k×n] + β·C`, on the threads of the current rayon pool.
///
/// An f32 `B` is rounded as it is read if the precision is tf32. `C` is not read if β = 0. Elements between `n` and
/// the leading dimensions are neither read nor written.
///
/// # Panics
/// If the sizes do not fit together: `b` is k × n and `c` m × n. The plan has checked them.
pub(crate) fn spmm<B: Operand + Value, C: Storage>(
    a: &CpuCsr,
    alpha: f32,
    b: DenseRef<'_, B>,
    beta: f32,
    c: DenseMut<'_, C>,
) {
    match as_tf32(b).filter(|_| a.precision == Precision::Tf32) {
        Some(b) => run(Unit::best(), &Product::new(&a.matrix, (alpha, b), (beta, c)), a.tasks),
        None => run(Unit::best(), &Product::new(&a.matrix, (alpha, b), (beta, c)), a.tasks),
    }
}

/// `B` rounded to a 16-bit type, row after row without padding: what a product with such operands reads.
pub(crate) fn to_half<T: Value>(b: DenseRef<'_, f32>) -> Vec<T>
where
    [T]: HalfFloatSliceExt,
{
    let cols = b.cols();
    let mut packed = vec![T::ZERO; b.rows() * cols];
    if cols > 0 {
        let rows =
            packed.par_chunks_exact_mut(cols).enumerate().with_min_len(CONVERSION_ELEMENTS.div_ceil(cols));
        rows.for_each(|(r, row)| row.convert_from_f32_slice(b.row(r)));
    }
    packed
}

/// An f32 `B` as a product with tf32 operands reads it, where it is; `None` for other elements.
fn as_tf32<T: Value>(b: DenseRef<'_, T>) -> Option<DenseRef<'_, Tf32>> {
    let data = (T::NAME == f32::NAME).then(|| bytemuck::try_cast_slice(b.data()).ok())??;
    DenseRef::try_new(data, b.rows(), b.cols(), b.ld()).ok()
}

/// Computes the whole product on `unit`.
fn run<B: Operand, C: Storage>(unit: Unit, product: &Product<'_, B, C>, tasks: CpuTasks) {
    let areas = deal_out(product.row_offsets(), product.width(), rayon::current_num_threads(), tasks);
    // SAFETY: the areas are disjoint, and the product borrows C for itself.
    let compute = |area: &Area| unsafe { product.compute(unit, area) };
    match &areas[..] {
        [] => {}
        [area] => compute(area),
        _ => areas.par_iter().with_max_len(1).for_each(compute),
    }
}

/// Cuts `C` into disjoint areas that cover it, of about equal work, for `threads` threads.
///
/// Areas are ranges of rows, of all columns unless a few rows hold so much of the work that rows alone
/// would keep a thread waiting, or `tasks` says so.
fn deal_out(row_offsets: &[u64], n: usize, threads: usize, tasks: CpuTasks) -> Vec<Area> {
    let rows = row_offsets.len() - 1;
    if rows == 0 || n == 0 {
        return Vec::new();
    }
    let cost = |from: usize, to: usize| row_offsets[to] - row_offsets[from] + (to - from) as u64 * ROW_COST;
    let total = cost(0, rows);
    let serial = total.saturating_mul(n as u64) < SERIAL_LIMIT;
    if serial || threads == 1 && tasks.tile_columns.is_none() {
        return vec![Area { rows: 0..rows, columns: 0..n }];
    }
    let each = index(u64::from(tasks.ranges_per_thread.max(1)));
    let ranges = row_ranges(row_offsets, threads.saturating_mul(each), ROW_COST);
    let dearest = ranges.iter().map(|range| cost(range.start, range.end)).max().unwrap_or(0);
    // A range of more than half a thread's share holds a row that cannot be dealt out otherwise.
    let strips = if dearest > total / (2 * threads as u64) { n.div_ceil(COLUMNS_PER_TASK) } else { 1 };
    let columns = match tasks.tile_columns {
        // Stores past the caches need aligned starts.
        Some(columns) => columns.clamp(1, n).next_multiple_of(TILE_UNIT),
        None => n.div_ceil(strips).next_multiple_of(COLUMNS_PER_TASK),
    };
    let strips = (0..n).step_by(columns).map(|start| start..n.min(start + columns));
    strips
        .flat_map(|columns| {
            ranges.iter().map(move |rows| Area { rows: rows.clone(), columns: columns.clone() })
        })
        .collect()
}
