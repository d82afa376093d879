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
//! `B` and `C` may be stored as [`half::f16`] or [`half::bf16`]; sums are taken in f32 and rounded once by the store.
//! [`Tf32`] rounds an f32 `B` when it is read. With a `B` of f64 all is f64.

mod ahead;
mod doubles;
mod gathered;
mod product;
mod rows;
mod tasks;
mod unit;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;
use windrow_formats::memory::try_zeroed;
use windrow_formats::{Csr, FormatError, OutOfMemory, Value};
use windrow_preprocess::balance::row_ranges;

use crate::activation::Epilogue;
use crate::dense::{DenseMut, DenseRef, MatRef};
use crate::element::Element;
use crate::num::index;
use crate::options::{CpuTasks, Precision};
pub(crate) use ahead::expect;
pub(crate) use gathered::{GatheredWeights, Panels};
use product::{Area, Product};
pub(crate) use rows::each_row;
pub(crate) use tasks::{each_chunk, each_range, each_task};
use unit::Unit;
use vector::Tf32;
pub(crate) use vector::{Lanes, Operand, Storage, Summed};

/// Multiply-adds below which threads cost more than they bring.
const SERIAL_LIMIT: u64 = 1 << 18;
/// Elements that are worth a task of their own when they are only converted.
const CONVERSION_ELEMENTS: usize = 1 << 16;
/// Rows that are made of columns together: a cache line of f32 from each column.
const STRIDED_ROWS: usize = 16;
/// Ranges per thread, for products that [`CpuTasks`] is not about.
const RANGES_PER_THREAD: usize = 8;
/// What a row costs beside its entries, in entries: the store of its elements.
const ROW_COST: u64 = 2;
/// Columns of a tile are a multiple of this: a vector of 64 bytes.
const TILE_UNIT: usize = 16;
/// Columns that are not cut further when the width is dealt out to threads.
const COLUMNS_PER_TASK: usize = 64;

/// A sparse matrix as the CPU multiplies it: compressed rows with values of type `S`, in which products are summed, on
/// the pattern of the caller's matrix.
#[derive(Debug, Clone)]
pub(crate) struct CpuCsr<S> {
    matrix: Csr<S>,
    precision: Precision,
    tasks: CpuTasks,
}

impl<S: Value> CpuCsr<S> {
    /// Takes the matrix as it is; a precision that rounds values has rounded them before.
    pub(crate) fn new(matrix: Csr<S>, precision: Precision) -> Self {
        Self { matrix, precision, tasks: CpuTasks::default() }
    }

    /// Dealt out in another way.
    pub(crate) fn with_tasks(self, tasks: CpuTasks) -> Self {
        Self { tasks, ..self }
    }

    #[cfg(test)]
    pub(crate) fn matrix(&self) -> &Csr<S> {
        &self.matrix
    }

    /// Puts other values in the same places. The pattern stays where it is, shared with whoever else holds it.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are as many values as entries.
    pub(crate) fn replace_values(&mut self, values: Vec<S>) -> Result<(), FormatError> {
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
pub(crate) fn spmm<B: Multiplied, C: Storage + Summed<In = B::In>>(
    a: &CpuCsr<B::In>,
    alpha: B::In,
    b: DenseRef<'_, B>,
    beta: B::In,
    c: DenseMut<'_, C>,
) {
    B::multiply(a, (alpha, b), (beta, c));
}

/// `C ← act(α·A·B + β·C + bias) [⊙ C]`, by way of sums for all of `C` where there is a bias, an activation or a gate.
///
/// # Panics
/// As [`spmm`].
pub(crate) fn spmm_fused<B: Element, C: Element<Sum = B::Sum>>(
    a: &CpuCsr<B::Sum>,
    run: &Epilogue<'_, B::Sum, [B::Sum]>,
    b: DenseRef<'_, B>,
    c: DenseMut<'_, C>,
) -> Result<(), OutOfMemory> {
    if run.is_linear() {
        spmm(a, run.alpha, b, run.beta, c);
        return Ok(());
    }
    let (rows, cols) = (c.rows(), c.cols());
    let mut sums: Vec<B::Sum> = match run.beta == B::Sum::ZERO {
        true => try_zeroed(rows * cols, "sums of C")?,
        false => rounded(c.as_ref())?,
    };
    if let Ok(sums) = DenseMut::packed(&mut sums, rows, cols) {
        spmm(a, run.alpha, b, run.beta, sums);
    }
    finish(run, &mut sums, c);
    Ok(())
}

/// `C ← act(sums + bias) [⊙ C]`.
fn finish<C: Element>(run: &Epilogue<'_, C::Sum, [C::Sum]>, sums: &mut [C::Sum], mut c: DenseMut<'_, C>) {
    let bias = run.bias;
    let (cols, ld) = (c.cols(), c.ld().max(1));
    c.data_mut().par_chunks_mut(ld).zip(sums.par_chunks_mut(cols.max(1))).for_each(|(c, sums)| {
        if let Some(bias) = bias {
            sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum = *sum + *bias);
        }
        run.activation.apply_to(sums);
        let c = &mut c[..sums.len()];
        if run.gated {
            sums.iter_mut().zip(&*c).for_each(|(sum, old)| *sum = *sum * C::Sum::from_f64(old.to_f64()));
        }
        C::round_row(sums, c);
    });
}

/// An element type of `B` in a plan.
pub(crate) trait Multiplied: Operand + Value {
    /// The product, with `B` read as the plan's precision says.
    fn multiply<C: Storage + Summed<In = Self::In>>(
        a: &CpuCsr<Self::In>,
        b: (Self::In, DenseRef<'_, Self>),
        c: (Self::In, DenseMut<'_, C>),
    ) {
        run(Unit::best(), &Product::new(&a.matrix, b, c), a.tasks);
    }

    /// A row of elements rounded to this type.
    fn round_row<T: Value>(from: &[T], to: &mut [Self]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Self::from_f64(from.to_f64()));
    }
}

impl Multiplied for f32 {
    fn multiply<C: Storage + Summed<In = f32>>(
        a: &CpuCsr<f32>,
        (alpha, b): (f32, DenseRef<'_, f32>),
        c: (f32, DenseMut<'_, C>),
    ) {
        match a.precision {
            Precision::Tf32 => {
                let b = b.map_data(bytemuck::cast_slice::<_, Tf32>);
                run(Unit::best(), &Product::new(&a.matrix, (alpha, b), c), a.tasks);
            }
            _ => run(Unit::best(), &Product::new(&a.matrix, (alpha, b), c), a.tasks),
        }
    }
}

macro_rules! multiplied_halves {
    ($($half:ty),+) => {$(
        impl Multiplied for $half {
            fn round_row<T: Value>(from: &[T], to: &mut [Self]) {
                match as_f32(from) {
                    // The machine's own conversion.
                    Some(from) => to.convert_from_f32_slice(from),
                    None => to.iter_mut().zip(from).for_each(|(to, from)| *to = Value::from_f64(from.to_f64())),
                }
            }
        }
    )+};
}
multiplied_halves!(f16, bf16);

impl Multiplied for f64 {}

/// The elements, if they are f32.
fn as_f32<T: Value>(elements: &[T]) -> Option<&[f32]> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| bytemuck::cast_slice(elements))
}

/// A matrix rounded to another type, row after row without padding: what a product with such operands reads.
pub(crate) fn rounded<T: Value, E: Multiplied>(b: DenseRef<'_, T>) -> Result<Vec<E>, OutOfMemory> {
    let cols = b.cols();
    let mut packed = try_zeroed::<E>(b.rows() * cols, "a rounded operand")?;
    if cols > 0 {
        let together = CONVERSION_ELEMENTS.div_ceil(cols);
        each_chunk(&mut packed, together * cols, &|at, rows| {
            for (r, row) in (at * together..).zip(rows.chunks_exact_mut(cols)) {
                E::round_row(b.row(r), row);
            }
        });
    }
    Ok(packed)
}

/// As [`rounded`], of a matrix whose rows are not consecutive elements.
pub(crate) fn rounded_strided<T: Value, E: Multiplied>(b: MatRef<'_, T>) -> Result<Vec<E>, OutOfMemory> {
    let cols = b.cols();
    let mut packed = try_zeroed::<E>(b.rows() * cols, "an operand in rows")?;
    if cols > 0 {
        let together = CONVERSION_ELEMENTS.div_ceil(cols).next_multiple_of(STRIDED_ROWS);
        each_chunk(&mut packed, together * cols, &|at, rows| {
            b.copy_rows(at * together, cols, rows, |x| E::from_f64(x.to_f64()));
        });
    }
    Ok(packed)
}

/// Computes the whole product on `unit`.
fn run<B: Operand, C: Storage + Summed<In = B::In>>(
    unit: Unit,
    product: &Product<'_, B, C>,
    tasks: CpuTasks,
) {
    let areas = deal_out(product.row_offsets(), product.width(), rayon::current_num_threads(), tasks);
    // SAFETY: the areas are disjoint, each is one task's, and the product borrows C for itself.
    let compute = |area: usize| unsafe { product.compute(unit, &areas.get(area)) };
    each_task(areas.len(), &compute);
}

/// Disjoint areas of a `C` that cover it: ranges of rows, by as many columns at a time.
struct Areas {
    rows: Vec<Range<usize>>,
    n: usize,
    columns: usize,
}

impl Areas {
    fn len(&self) -> usize {
        self.rows.len() * self.n.div_ceil(self.columns)
    }

    /// Ranges of rows first.
    fn get(&self, at: usize) -> Area {
        let first = at / self.rows.len() * self.columns;
        Area {
            rows: self.rows[at % self.rows.len()].clone(),
            columns: first..self.n.min(first + self.columns),
        }
    }
}

/// Cuts `C` into disjoint areas that cover it, of about equal work, for `threads` threads.
///
/// Areas are ranges of rows, of all columns unless a few rows hold so much of the work that rows alone
/// would keep a thread waiting, or `tasks` says so.
fn deal_out(row_offsets: &[u64], n: usize, threads: usize, tasks: CpuTasks) -> Areas {
    let rows = row_offsets.len() - 1;
    if rows == 0 || n == 0 {
        return Areas { rows: Vec::new(), n, columns: 1 };
    }
    let cost = |from: usize, to: usize| row_offsets[to] - row_offsets[from] + (to - from) as u64 * ROW_COST;
    let total = cost(0, rows);
    let serial = total.saturating_mul(n as u64) < SERIAL_LIMIT;
    if serial || threads == 1 && tasks.tile_columns.is_none() {
        return Areas { rows: std::iter::once(0..rows).collect(), n, columns: n };
    }
    let each = index(u64::from(tasks.ranges_per_thread.max(1)));
    let ranges = row_ranges(row_offsets, threads.saturating_mul(each).min(CpuTasks::MOST_RANGES), ROW_COST);
    let dearest = ranges.iter().map(|range| cost(range.start, range.end)).max().unwrap_or(0);
    // A range of more than half a thread's share holds a row that cannot be dealt out otherwise.
    let strips = if dearest > total / (2 * threads as u64) { n.div_ceil(COLUMNS_PER_TASK) } else { 1 };
    let columns = match tasks.tile_columns {
        // Stores past the caches need aligned starts.
        Some(columns) => columns.clamp(1, n).next_multiple_of(TILE_UNIT),
        None => n.div_ceil(strips).next_multiple_of(COLUMNS_PER_TASK),
    };
    Areas { rows: ranges, n, columns }
}
