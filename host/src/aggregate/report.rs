//! What a plan of reductions is, what it holds and what it cost to make.

use std::fmt;

use super::options::AggregateOptions;
use crate::device::DeviceKind;
use crate::plan::{ArraySize, StageTime, total_us, write_arrays, write_stages};

/// What a plan of reductions is, what it holds and what it cost to make. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct AggregateReport {
    /// Rows of the matrix, and of the result.
    pub rows: usize,
    /// Columns of the matrix, rows of `X`.
    pub cols: usize,
    /// Entries of the matrix.
    pub nnz: usize,
    /// What was asked for.
    pub options: AggregateOptions,
    /// Selector and model of the device, as its `Display` prints it.
    pub device: String,
    /// What sort of device it is.
    pub device_kind: DeviceKind,
    /// Rows that are a block's, whole or in pieces.
    pub pieces: u64,
    /// Rows that are cut, and joined by a second launch.
    pub cut_rows: u64,
    /// The kernel for aligned operands; empty on the CPU.
    pub entry: &'static str,
    /// Arrays in device memory.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
}

impl AggregateReport {
    /// Time to make the plan, in microseconds: all stages.
    #[must_use]
    pub fn preprocessing_us(&self) -> f64 {
        total_us(&self.stages)
    }
}

impl fmt::Display for AggregateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AggregateOptions { reduce, message, columns, precision, .. } = self.options;
        writeln!(f, "matrix         {} × {}, {} entries", self.rows, self.cols, self.nnz)?;
        writeln!(f, "reduction      {reduce} of {message}, {columns} columns, {precision}")?;
        writeln!(f, "device         {}", self.device)?;
        if !self.entry.is_empty() {
            writeln!(f, "long rows      {} pieces, {} cut", self.pieces, self.cut_rows)?;
            writeln!(f, "entry          {}", self.entry)?;
        }
        write_arrays(f, self.device_bytes, "", &self.arrays)?;
        write_stages(f, "", &self.stages)
    }
}
