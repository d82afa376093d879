//! The few dense operations that training a graph neural network needs beside sparse products.
//!
//! They are what the examples `gcn` and `agnn` need, and no more: not a framework, and no way to one. Dense products
//! are left to a library made for them (cuBLAS on a GPU, see [`interop`](crate::interop)).
//!
//! | | computes |
//! | --- | --- |
//! | [`add_bias`], [`add_bias_relu`], [`relu`] | `x ← x + b`, `max(x + b, 0)`, `max(x, 0)` |
//! | [`relu_backward`] | `g ← g ⊙ [y > 0]` |
//! | [`round_into`] | elements, scaled, rounded to the type that a plan takes |
//! | [`CrossEntropy`] | softmax cross-entropy of logits with weights of rows, its gradient, what is predicted right |
//! | [`normalize_rows`], [`normalize_rows_backward`] | rows of length 1, and the gradient |
//! | [`ColumnSums`] | `Σ x[r]`, the gradient of a bias, and `Σ x ⊙ y` |
//! | [`Adam`] | a step of the optimiser |
//!
//! Matrices are f32, row-major, of any leading dimension, on a CPU, a GPU or the emulator of one; a bias is a matrix of
//! one row. On a GPU the functions queue kernels and return, and allocate nothing; what makes something ([`new`] of the
//! types) allocates it. What is added up is added in a fixed order: two runs on a device give the same bits. A NaN
//! stays one.
//!
//! [`new`]: CrossEntropy::new
//!
//! # Errors
//! Functions refuse operands that do not fit, before anything is queued:
//! - [`PlanError::OperandShape`](crate::PlanError::OperandShape) for another shape,
//!   [`PlanError::ValueCount`](crate::PlanError::ValueCount) for another length;
//! - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) if the operands are not on one device;
//! - [`PlanError::TooLarge`](crate::PlanError::TooLarge) for about 2³² rows, columns or elements from row to row on a
//!   GPU;
//! - [`PlanError::Device`](crate::PlanError::Device).
//!
//! # Examples
//! ```
//! use windrow::{DenseRef, Device, DeviceMatrix, training};
//!
//! let device = Device::best()?;
//! let upload = |x: &[f32], rows, cols| DeviceMatrix::upload(&device, DenseRef::packed(x, rows, cols)?);
//! let mut x = upload(&[1.0, -2.0, 0.5, 3.0], 2, 2)?;
//! training::add_bias_relu(&mut x, &upload(&[-0.5, 1.0], 1, 2)?)?;
//! assert_eq!(x.download()?, [0.5, 0.0, 0.0, 4.0]);
//!
//! let mut gradient = upload(&[1.0, 2.0, 3.0, 4.0], 2, 2)?;
//! training::relu_backward(&mut gradient, &x)?;
//! assert_eq!(gradient.download()?, [1.0, 0.0, 0.0, 4.0]);
//! let mut of_bias = DeviceMatrix::zeros(&device, 1, 2)?;
//! training::ColumnSums::new(&device, 2)?.sum(&gradient, &mut of_bias)?;
//! assert_eq!(of_bias.download()?, [1.0, 4.0]);
//! # Ok::<(), windrow::TrainingError>(())
//! ```

mod adam;
mod cross_entropy;
mod normalize;
mod pointwise;
mod sums;

pub use adam::{Adam, Moments};
pub use cross_entropy::{CrossEntropy, Outcome};
pub use normalize::{MIN_NORM, normalize_rows, normalize_rows_backward};
pub use pointwise::{add_bias, add_bias_relu, relu, relu_backward, round_into};
pub use sums::ColumnSums;

use crate::dense::DenseMut;
use crate::device::{Device, Machine};
use crate::error::{DeviceError, TrainingError};
use crate::matrix::DeviceMatrix;
use crate::num::wide;
use crate::plan::{MAX_INDEX, check_device, check_index, check_ld, check_shape, start};
use bytemuck::Pod;
use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::training::{Extent, Matrix};

/// Elements that are worth a task of their own on the CPU.
const TASK_ELEMENTS: usize = 1 << 14;

/// Whether `operand` has this shape and is on `device`.
fn check<T: Value>(
    operand: &'static str,
    matrix: &DeviceMatrix<T>,
    device: &Device,
    expected: (usize, usize),
) -> Result<(), TrainingError> {
    check_device(operand, matrix.device(), device)?;
    Ok(check_shape(operand, (matrix.rows(), matrix.cols()), expected)?)
}

fn is_empty<T: Value>(matrix: &DeviceMatrix<T>) -> bool {
    matrix.rows() == 0 || matrix.cols() == 0
}

/// A matrix with elements as kernels take it.
fn view<T: Value>(matrix: &DeviceMatrix<T>) -> Result<Matrix, TrainingError> {
    let (data, ld) = (matrix.buffer().pointer(), check_ld(matrix.ld())?);
    let vectors = data.address().is_multiple_of(4 * wide(size_of::<T>())) && ld.is_multiple_of(4);
    Ok(Matrix { data: data.cast(), ld, vectors: u32::from(vectors) })
}

/// Rows and columns as kernels take them.
fn counts<T: Value>(matrix: &DeviceMatrix<T>) -> Result<(u32, u32), TrainingError> {
    let count = |what, found| check_index(what, found, MAX_INDEX, "divide the matrix");
    Ok((count("rows", matrix.rows())?, count("columns", matrix.cols())?))
}

/// How the elements are dealt out to threads.
fn extent<T: Value>(matrix: &DeviceMatrix<T>) -> Result<Extent, TrainingError> {
    let (rows, cols) = counts(matrix)?;
    Ok(Extent::of(rows, cols))
}

/// Queues an entry over `units` units of work and `columns` columns.
///
/// # Safety
/// `params` keep the entry's obligations, and what they point to is live memory of the machine until the work is done.
unsafe fn launch<P: Pod>(
    machine: &dyn Machine,
    variant: Variant,
    units: u64,
    columns: u32,
    params: &P,
) -> Result<(), TrainingError> {
    let entry = windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "training" })?;
    // SAFETY: the caller promises that the params are the entry's and point to live memory of the machine.
    unsafe { start(&**machine.own(), entry, units, columns, params)? };
    Ok(())
}

/// The rows of a matrix in host memory that has elements, each a task's, with its number.
fn rows_mut<T: Value>(matrix: DenseMut<'_, T>) -> impl IndexedParallelIterator<Item = (usize, &mut [T])> {
    let (rows, cols, ld) = (matrix.rows(), matrix.cols(), matrix.ld());
    let rows = matrix.into_data().par_chunks_mut(ld).take(rows).enumerate();
    rows.with_min_len(TASK_ELEMENTS.div_ceil(cols)).map(move |(r, row)| (r, &mut row[..cols]))
}
