//! Sums of columns and of products.

use rayon::prelude::*;
use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Value};
use windrow_kernels::Variant;
use windrow_kernels::training::{ColumnSumsParams, Matrix};

use super::{check, counts, is_empty, launch, view};
use crate::dense::DenseRef;
use crate::device::Device;
use crate::error::TrainingError;
use crate::matrix::DeviceMatrix;
use crate::num::narrow;

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
    /// A row for each chunk.
    partial: DeviceMatrix<f32>,
    /// The sums of columns of products.
    columns: DeviceMatrix<f32>,
}

impl ColumnSums {
    /// For matrices of up to `most_cols` columns on `device`. Takes 4 KiB for each column.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`](crate::PlanError::TooLarge), [`PlanError::Device`](crate::PlanError::Device).
    pub fn new(device: &Device, most_cols: usize) -> Result<Self, TrainingError> {
        let chunks = if device.machine().is_some() { MOST_CHUNKS } else { 0 };
        let partial = DeviceMatrix::zeros(device, chunks, most_cols)?;
        Ok(Self { partial, columns: DeviceMatrix::zeros(device, 1, most_cols)? })
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
        check("the sums", out, x.device(), (1, x.cols()))?;
        self.check_width(x)?;
        self.columns_into(x, None, out)
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
        check("the other factor", y, x.device(), (x.rows(), x.cols()))?;
        check("the sum", out, x.device(), (1, out.cols().max(column.saturating_add(1))))?;
        self.check_width(x)?;
        if let Some(machine) = x.device().machine().filter(|_| !is_empty(x)) {
            let (_, cols) = counts(x)?;
            self.chunks_into(x, Some(y), view(&self.columns)?)?;
            let columns = Matrix { ld: 1, vectors: 0, ..view(&self.columns)? };
            let place = view(out)?;
            let params = ColumnSumsParams {
                x: columns,
                y: Matrix::NONE,
                out: Matrix { data: place.data.at(narrow(column)), ..place },
                rows: cols,
                cols: 1,
                chunk_rows: cols,
                reserved: 0,
            };
            // SAFETY: the sums of the columns, one below the other, were left by the launch before; `out` has the
            // column and is borrowed for itself.
            return unsafe { launch(machine, Variant::ColumnSums, 1, 1, &params) };
        }
        let sums = x.host().filter(|_| !is_empty(x)).map(|x| host_sums(x, y.host())).transpose()?;
        let mut elements = out.download()?;
        elements[column] = f32::from_f64(sums.into_iter().flatten().sum());
        Ok(out.copy_from(DenseRef::packed(&elements, 1, elements.len())?)?)
    }

    fn check_width(&self, x: &DeviceMatrix<f32>) -> Result<(), TrainingError> {
        let expected = (x.rows(), x.cols().min(self.columns.cols()));
        check("the matrix", x, self.columns.device(), expected)
    }

    /// Sums of columns, or of those of products.
    fn columns_into(
        &mut self,
        x: &DeviceMatrix<f32>,
        y: Option<&DeviceMatrix<f32>>,
        out: &mut DeviceMatrix<f32>,
    ) -> Result<(), TrainingError> {
        if is_empty(x) {
            let zeros = try_zeroed::<f32>(out.cols(), "sums of columns")?;
            return Ok(out.copy_from(DenseRef::packed(&zeros, 1, out.cols())?)?);
        }
        if x.device().machine().is_some() {
            return self.chunks_into(x, y, view(out)?);
        }
        if let (Some(x), Some(out)) = (x.host(), out.host_mut()) {
            let y = y.and_then(DeviceMatrix::host);
            let sums = host_sums(x, y)?;
            out.into_data().iter_mut().zip(sums).for_each(|(out, sum)| *out = f32::from_f64(sum));
        }
        Ok(())
    }

    /// Queues the sums of a matrix with elements.
    fn chunks_into(
        &self,
        x: &DeviceMatrix<f32>,
        y: Option<&DeviceMatrix<f32>>,
        out: Matrix,
    ) -> Result<(), TrainingError> {
        let Some(machine) = x.device().machine() else { return Ok(()) };
        let (rows, cols) = counts(x)?;
        let chunk = narrow(chunk_rows(x.rows()));
        let chunks = rows.div_ceil(chunk);
        let partial = view(&self.partial)?;
        let y = y.map_or(Ok(Matrix::NONE), view)?;
        let params =
            ColumnSumsParams { x: view(x)?, y, out: partial, rows, cols, chunk_rows: chunk, reserved: 0 };
        let again =
            ColumnSumsParams { x: partial, y: Matrix::NONE, out, rows: chunks, chunk_rows: chunks, ..params };
        // SAFETY: shapes and devices were checked; there is a row of partial sums for each chunk, and `self` is
        // borrowed for itself; `out` has an element for each column.
        unsafe {
            launch(machine, Variant::ColumnSums, u64::from(chunks), cols, &params)?;
            launch(machine, Variant::ColumnSums, 1, cols, &again)
        }
    }
}

/// Rows of a chunk.
fn chunk_rows(rows: usize) -> usize {
    rows.div_ceil(MOST_CHUNKS).max(LEAST_ROWS)
}

/// Sums of columns in f64, chunk by chunk: the same whatever the number of threads.
fn host_sums(x: DenseRef<'_, f32>, y: Option<DenseRef<'_, f32>>) -> Result<Vec<f64>, OutOfMemory> {
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
