//! Sums of columns and of products.

use rayon::prelude::*;
use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Value};
use windrow_kernels::training::{ColumnSumsParams, Matrix};
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use super::operands::{Operands, counts, entry, is_empty, matrix};
use crate::dense::DenseRef;
use crate::device::{Device, Queue, Stream};
use crate::error::{DeviceError, TrainingError};
use crate::matrix::DeviceMatrix;
use crate::num::{narrow, wide};
use crate::plan::{Turn, start};
use crate::view::{DeviceView, DeviceViewMut};

/// Chunks of rows that are added up side by side, at most.
const MOST_CHUNKS: usize = 1024;
/// Rows of a chunk, at least.
const LEAST_ROWS: usize = 64;

/// Sums over the rows of matrices, in a fixed order, and the memory for parts of them.
///
/// # Precision
/// With `a = ⌈c/8⌉ + 142` for chunks of `c = max(64, ⌈m/1024⌉)` of `m` rows, a sum of a column is off by at most
/// `a·2⁻²⁴·1.01` times the sum of the absolute values of its terms; for [`dot`](Self::dot) `a` is `⌈n/8⌉ + 8` more.
/// On the CPU sums are taken in f64 and rounded.
#[derive(Debug)]
pub struct ColumnSums {
    parts: Parts,
    turn: Turn,
}

/// Memory for parts of sums.
#[derive(Debug)]
pub(super) struct Parts {
    /// A row for each chunk.
    partial: DeviceMatrix<f32>,
    /// The sums of columns of products.
    columns: DeviceMatrix<f32>,
}

/// What is added up on a machine that runs kernels.
#[derive(Clone, Copy)]
pub(crate) struct ColumnTerms {
    pub(crate) x: Matrix,
    /// What is multiplied first, or none.
    pub(crate) y: Matrix,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
}

impl ColumnSums {
    /// For matrices of up to `most_cols` columns on `device`. Takes 4 KiB for each column.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    pub fn new(device: &Device, most_cols: usize) -> Result<Self, TrainingError> {
        Ok(Self { parts: Parts::new(device, most_cols)?, turn: Turn::default() })
    }

    /// `out[c] ← Σ x[r, c]` over all rows `r`: the gradient of a bias from that of what it was added to.
    ///
    /// # Shapes
    /// - `x`: m × n, with `n` no more than these sums are for;
    /// - `out`: 1 × n.
    ///
    /// # Errors
    /// See [`training`](crate::training#errors).
    pub fn sum(&mut self, x: &DeviceMatrix<f32>, out: &mut DeviceMatrix<f32>) -> Result<(), TrainingError> {
        self.sum_on(&x.device().stream(), x, out)
    }

    /// [`sum`](Self::sum) on a [`Stream`], for matrices in memory of any origin.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum), and what is said of [streams](crate::training#streams).
    pub fn sum_on<'a>(
        &mut self,
        on: &Stream,
        x: impl Into<DeviceView<'a, f32>>,
        out: impl Into<DeviceViewMut<'a, f32>>,
    ) -> Result<(), TrainingError> {
        let (x, out) = (x.into(), out.into());
        let mut operands = Operands::on(on, self.device())?;
        operands.reads("the matrix", x, (x.rows(), self.width_of(x)))?;
        operands.writes("the sums", &out, (1, x.cols()))?;
        let Self { parts, turn } = self;
        if let Some(on) = operands.queued()? {
            let kernel = entry(Variant::ColumnSums)?;
            let to = matrix(out.as_view())?;
            if is_empty(x) {
                let bytes = 4 * wide(out.cols());
                // SAFETY: the bytes are those of `out`, which is borrowed for itself.
                let zero = |queue: &dyn Queue| unsafe { queue.zero(out.address(), bytes) };
                return if bytes == 0 { Ok(()) } else { Ok(on.run([], zero)?) };
            }
            let terms = ColumnTerms::of(x, None)?;
            // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued
            // before, and of other memory the views were promised that it lives; `out` has an element for each column
            // and is borrowed for itself.
            return Ok(turn.run(&on, [kernel], |queue| unsafe { parts.queue(queue, kernel, terms, to) })?);
        }
        if let (Some(x), Some(out)) = (x.host(), out.into_host()) {
            let sums = if x.cols() == 0 { Vec::new() } else { host_sums(x, None)? };
            out.into_data().iter_mut().zip(sums).for_each(|(out, sum)| *out = f32::from_f64(sum));
        }
        Ok(())
    }

    /// `out[0, column] ← Σ x[r, c]·y[r, c]` over all elements; the other elements of `out` stay.
    ///
    /// # Shapes
    /// - `x`, `y`: m × n, with `n` no more than these sums are for;
    /// - `out`: one row, with this column.
    ///
    /// # Errors
    /// See [`training`](crate::training#errors).
    ///
    /// # Examples
    /// ```
    /// use windrow::training::ColumnSums;
    /// use windrow::{DenseRef, Device, DeviceMatrix};
    ///
    /// let device = Device::best()?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
    /// let mut out = DeviceMatrix::zeros(&device, 1, 3)?;
    /// ColumnSums::new(&device, 2)?.dot(&x, &x, (&mut out, 1))?;
    /// assert_eq!(out.download()?, [0.0, 30.0, 0.0]);
    /// # Ok::<(), windrow::TrainingError>(())
    /// ```
    pub fn dot(
        &mut self,
        x: &DeviceMatrix<f32>,
        y: &DeviceMatrix<f32>,
        (out, column): (&mut DeviceMatrix<f32>, usize),
    ) -> Result<(), TrainingError> {
        self.dot_on(&x.device().stream(), [x.view(), y.view()], (out.view_mut(), column))
    }

    /// [`dot`](Self::dot) on a [`Stream`], for `[x, y]` and a row in memory of any origin.
    ///
    /// # Errors
    /// Those of [`dot`](Self::dot), and what is said of [streams](crate::training#streams).
    pub fn dot_on(
        &mut self,
        on: &Stream,
        [x, y]: [DeviceView<'_, f32>; 2],
        (out, column): (DeviceViewMut<'_, f32>, usize),
    ) -> Result<(), TrainingError> {
        let mut operands = Operands::on(on, self.device())?;
        operands.reads("the matrix", x, (x.rows(), self.width_of(x)))?;
        operands.reads("the other factor", y, (x.rows(), x.cols()))?;
        operands.writes("the sum", &out, (1, out.cols().max(column.saturating_add(1))))?;
        let Self { parts, turn } = self;
        if let Some(on) = operands.queued()? {
            let address = out.address() + 4 * wide(column);
            if is_empty(x) {
                // SAFETY: the element is one of `out`, which is borrowed for itself.
                return Ok(on.run([], |queue| unsafe { queue.zero(address, 4) })?);
            }
            let kernel = entry(Variant::ColumnSums)?;
            let terms = ColumnTerms::of(x, Some(y))?;
            let columns = matrix(parts.columns.view())?;
            let of_columns =
                ColumnTerms { x: Matrix { ld: 1, vectors: 0, ..columns }, rows: terms.cols, ..terms };
            let of_columns = ColumnTerms { y: Matrix::NONE, cols: 1, ..of_columns };
            let to = Matrix { data: GlobalPtr::from_address(address), ld: 1, vectors: 0 };
            // SAFETY: as in `sum_on`; the sums of the columns, one below the other, are left by the launches before,
            // and there are partial sums for as many columns.
            let queue = |queue: &dyn Queue| unsafe {
                parts.queue(queue, kernel, terms, columns)?;
                of_columns.queue(queue, kernel, terms.cols, to)
            };
            return Ok(turn.run(&on, [kernel], queue)?);
        }
        if let (Some(x), Some(y), Some(out)) = (x.host(), y.host(), out.into_host()) {
            let sums = if x.cols() == 0 { Vec::new() } else { host_sums(x, Some(y))? };
            out.into_data()[column] = f32::from_f64(sums.into_iter().sum());
        }
        Ok(())
    }

    fn device(&self) -> &Device {
        self.parts.columns.device()
    }

    /// The columns that a matrix must have: its own, if they are no more than these sums are for.
    fn width_of(&self, x: DeviceView<'_, f32>) -> usize {
        x.cols().min(self.parts.columns.cols())
    }
}

impl Parts {
    /// For up to so many columns.
    ///
    /// # Errors
    /// Those of [`ColumnSums::new`].
    pub(super) fn new(device: &Device, most_cols: usize) -> Result<Self, TrainingError> {
        let chunks = if device.machine().is_some() { MOST_CHUNKS } else { 0 };
        let partial = DeviceMatrix::zeros(device, chunks, most_cols)?;
        Ok(Self { partial, columns: DeviceMatrix::zeros(device, 1, most_cols)? })
    }

    /// Queues the sums of columns of a matrix with elements.
    ///
    /// # Safety
    /// The terms are live matrices of the queue's machine until the work is done, and `out` has an element for each of
    /// their columns, no more than there are parts for, which nothing else touches; nothing else uses the parts.
    pub(super) unsafe fn queue(
        &self,
        queue: &dyn Queue,
        kernel: &'static Entry,
        terms: ColumnTerms,
        out: Matrix,
    ) -> Result<(), DeviceError> {
        let partial =
            Matrix { data: self.partial.buffer().pointer(), ld: narrow(self.partial.ld()), vectors: 0 };
        // SAFETY: the caller's promise; there is a row of partial sums for each chunk.
        unsafe { terms.queue_all(queue, kernel, partial, out) }
    }
}

/// Bytes of the sums of chunks of rows, of so many columns.
pub(crate) fn column_sums_bytes(cols: u32) -> u64 {
    4 * wide(MOST_CHUNKS) * u64::from(cols)
}

impl ColumnTerms {
    /// Those of matrices with elements and of one shape.
    pub(super) fn of(x: DeviceView<'_, f32>, y: Option<DeviceView<'_, f32>>) -> Result<Self, TrainingError> {
        let (rows, cols) = counts(x)?;
        Ok(Self { x: matrix(x)?, y: y.map_or(Ok(Matrix::NONE), matrix)?, rows, cols })
    }

    /// Queues the sums of columns of matrices with elements, by way of those of chunks.
    ///
    /// # Safety
    /// The terms are live matrices of the queue's machine until the work is done, `partial` has
    /// [`column_sums_bytes`], and `out` an element for each of their columns; nothing else touches these.
    pub(crate) unsafe fn queue_all(
        self,
        queue: &dyn Queue,
        kernel: &'static Entry,
        partial: Matrix,
        out: Matrix,
    ) -> Result<(), DeviceError> {
        let chunk = narrow(chunk_rows(crate::num::index(u64::from(self.rows))));
        let chunks = self.rows.div_ceil(chunk);
        let again = Self { x: partial, y: Matrix::NONE, rows: chunks, ..self };
        // SAFETY: the caller's promise; there is a row of partial sums for each chunk.
        unsafe {
            self.queue(queue, kernel, chunk, partial)?;
            again.queue(queue, kernel, chunks, out)
        }
    }

    /// Queues the sums of chunks of so many rows.
    ///
    /// # Safety
    /// As for [`Parts::queue`]; `out` has a row for each chunk.
    unsafe fn queue(
        self,
        queue: &dyn Queue,
        kernel: &'static Entry,
        chunk_rows: u32,
        out: Matrix,
    ) -> Result<(), DeviceError> {
        let Self { x, y, rows, cols } = self;
        let params = ColumnSumsParams { x, y, out, rows, cols, chunk_rows, reserved: 0 };
        // SAFETY: the caller's promise.
        unsafe { start(queue, kernel, u64::from(rows.div_ceil(chunk_rows)), cols, &params) }
    }
}

/// Rows of a chunk.
fn chunk_rows(rows: usize) -> usize {
    rows.div_ceil(MOST_CHUNKS).max(LEAST_ROWS)
}

/// Sums of columns in f64, chunk by chunk: the same whatever the number of threads.
pub(super) fn host_sums(x: DenseRef<'_, f32>, y: Option<DenseRef<'_, f32>>) -> Result<Vec<f64>, OutOfMemory> {
    let (chunk, cols) = (chunk_rows(x.rows()), x.cols());
    let parts = x.rows().div_ceil(chunk);
    // The sums, and behind them those of each chunk.
    let mut all = try_zeroed::<f64>((parts + 1).saturating_mul(cols), "sums of columns")?;
    let (sums, of_chunks) = all.split_at_mut(cols);
    of_chunks.par_chunks_mut(cols).enumerate().for_each(|(i, sums)| {
        for r in chunk * i..x.rows().min(chunk * (i + 1)) {
            for (c, (sum, &x)) in sums.iter_mut().zip(x.row(r)).enumerate() {
                *sum += f64::from(x) * y.map_or(1.0, |y| f64::from(y.row(r)[c]));
            }
        }
    });
    for of_chunk in of_chunks.chunks(cols) {
        sums.iter_mut().zip(of_chunk).for_each(|(sum, part)| *sum += part);
    }
    all.truncate(cols);
    Ok(all)
}
