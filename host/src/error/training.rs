//! What can go wrong with the dense operations of training.

use thiserror::Error;

use super::plan::PlanError;
use super::via_plan_error;

/// Why an operation of [`training`](crate::training) could not be made or run.
///
/// Every message has the numbers and what to do about them. Rows are counted from 0.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// A label that names no class.
    #[error("row {row} has label {label}, but there are {classes} classes, counted from 0")]
    UnknownClass {
        /// The row, counted from 0.
        row: usize,
        /// The label that it has.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// A weight that is no weight.
    #[error("row {row} has weight {weight}; give a finite number of at least 0")]
    Weight {
        /// The row, counted from 0.
        row: usize,
        /// The weight that it has.
        weight: f32,
    },
    /// What can go wrong with any product.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

via_plan_error!(TrainingError);
