//! The few dense operations that training a graph neural network needs beside sparse products.
//!
//! They are what the examples `gcn`, `agnn`, `gat` and `graph_transformer` need, and no more: not a framework, and no
//! way to one. Dense products are left to a library made for them (cuBLAS on a GPU, see [`interop`](crate::interop)).
//!
//! | | computes |
//! | --- | --- |
//! | [`add_bias`], [`add_bias_relu`], [`relu`] | `x ← x + b`, `max(x + b, 0)`, `max(x, 0)` |
//! | [`relu_backward`] | `g ← g ⊙ [y > 0]` |
//! | [`round_into`] | elements, scaled, rounded to the type that a plan takes |
//! | [`CrossEntropy`] | softmax cross-entropy of logits with weights of rows, its gradient, what is predicted right |
//! | [`normalize_rows`], [`normalize_rows_backward`] | rows of length 1, and the gradient |
//! | [`ColumnSums`] | `Σ x[r]`, the gradient of a bias, and `Σ x ⊙ y` |
//! | [`Adam`], [`CountedAdam`] | a step of the optimiser, counted by the host, or by the device |
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
//! # Streams
//! What ends in `_on` is done on a [`Stream`](crate::Stream), for operands in memory of any origin, and
//! [ordered](crate::Stream#order-between-streams) with other work as is said there; memory that a value keeps for
//! itself, such as partial sums, is in order whatever streams it is used on. It may be captured into a
//! [graph](crate::Stream#graphs) with operands that are lent, after it was done once on the same stream; all but
//! [`Adam::step_on`] may, of which [`CountedAdam`] is the one for graphs. Refused are, beside what is said above:
//! - [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for a stream of another device;
//! - [`PlanError::Overlap`](crate::PlanError::Overlap) if what is written has bytes in common with another operand;
//! - [`DeviceError::Captured`](crate::DeviceError::Captured) for what cannot be part of a graph.
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
mod counted;
mod cross_entropy;
mod normalize;
mod operands;
mod pointwise;
mod sums;

pub use adam::{Adam, Moments};
pub use counted::{CountedAdam, CountedStep};
pub use cross_entropy::{CrossEntropy, Outcome};
pub use normalize::{
    MIN_NORM, normalize_rows, normalize_rows_backward, normalize_rows_backward_on, normalize_rows_on,
};
pub use pointwise::{
    add_bias, add_bias_on, add_bias_relu, add_bias_relu_on, relu, relu_backward, relu_backward_on, relu_on,
    round_into, round_into_on,
};
pub use sums::ColumnSums;
pub(crate) use sums::{ColumnTerms, column_sums_bytes};

use crate::dense::DenseMut;
use rayon::prelude::*;
use windrow_formats::Value;

/// Elements that are worth a task of their own on the CPU.
const TASK_ELEMENTS: usize = 1 << 14;

/// The rows of a matrix in host memory that has elements, each a task's, with its number.
fn rows_mut<T: Value>(matrix: DenseMut<'_, T>) -> impl IndexedParallelIterator<Item = (usize, &mut [T])> {
    let (rows, cols, ld) = (matrix.rows(), matrix.cols(), matrix.ld());
    let rows = matrix.into_data().par_chunks_mut(ld).take(rows).enumerate();
    rows.with_min_len(TASK_ELEMENTS.div_ceil(cols)).map(move |(r, row)| (r, &mut row[..cols]))
}
