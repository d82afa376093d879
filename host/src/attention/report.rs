//! What a plan of attention is, what it holds and what it cost to make.

use std::fmt;

use super::options::{AttentionAlgorithm, AttentionOptions, AttentionScores};
use crate::device::DeviceKind;
use crate::plan::{ArraySize, StageTime, total_us, write_arrays, write_stages};

/// What a plan of attention is, what it holds and what it cost to make. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct AttentionReport {
    /// Rows of the matrix, and of `Q`.
    pub rows: usize,
    /// Columns of the matrix, rows of `K` and `V`.
    pub cols: usize,
    /// Entries of the matrix.
    pub nnz: usize,
    /// What was asked for.
    pub options: AttentionOptions,
    /// Selector and model of the device, as its `Display` prints it.
    pub device: String,
    /// What sort of device it is.
    pub device_kind: DeviceKind,
    /// The algorithm that the plan uses.
    pub algorithm: AttentionAlgorithm,
    /// Why it uses that one.
    pub reason: String,
    /// Rows of a window.
    pub window_rows: u32,
    /// Rows of `K` and `V` that are gathered for each head.
    pub gathered: u64,
    /// Windows that are a block's, whole or in pieces.
    pub pieces: u64,
    /// Windows that are cut, and joined by a second launch.
    pub cut_windows: u64,
    /// The kernel for aligned operands; empty on the CPU.
    pub entry: &'static str,
    /// Those of the gradients, over rows and over columns; none on the CPU, and of a plan without.
    pub gradient_entries: Vec<&'static str>,
    /// Arrays in device memory.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
}

impl AttentionReport {
    /// Time to make the plan, in microseconds: all stages.
    #[must_use]
    pub fn preprocessing_us(&self) -> f64 {
        total_us(&self.stages)
    }
}

impl fmt::Display for AttentionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionOptions { heads, precision, scores, .. } = self.options;
        let (columns, value_columns) = (self.options.score_columns(), self.options.value_columns());
        writeln!(f, "matrix         {} × {}, {} entries", self.rows, self.cols, self.nnz)?;
        writeln!(f, "heads          {heads} of {columns} columns, {value_columns} of V, {precision}")?;
        match scores {
            AttentionScores::DotProduct => {}
            AttentionScores::Additive { negative_slope } => {
                writeln!(f, "scores         additive, negative slope {negative_slope}")?;
            }
            AttentionScores::Gatv2 { negative_slope } => {
                writeln!(f, "scores         of GATv2, negative slope {negative_slope}")?;
            }
        }
        writeln!(f, "device         {}", self.device)?;
        writeln!(f, "algorithm      {}: {}", self.algorithm, self.reason)?;
        if !self.entry.is_empty() {
            writeln!(f, "windows        of {} rows, {} rows gathered", self.window_rows, self.gathered)?;
            writeln!(f, "long windows   {} pieces, {} cut", self.pieces, self.cut_windows)?;
            writeln!(f, "entry          {}", self.entry)?;
        }
        if !self.gradient_entries.is_empty() {
            writeln!(f, "gradients      {}", self.gradient_entries.join(", "))?;
        }
        write_arrays(f, self.device_bytes, "", &self.arrays)?;
        write_stages(f, "", &self.stages)
    }
}
