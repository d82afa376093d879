//! What a product out of core is.

use std::fmt;

use crate::options::{Algorithm, Precision};
use crate::plan::{ArraySize, StageTime, write_arrays, write_stages};

/// How a product whose operands are in host memory goes through a device: made with the plan.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct OutOfCoreReport {
    /// Rows of `A` and `C`.
    pub rows: usize,
    /// Columns of `A`, rows of `B`.
    pub cols: usize,
    /// Entries that `A` stores.
    pub nnz: usize,
    /// Columns of `B` for which the rest holds.
    pub width: usize,
    /// The type of values and of `B`.
    pub precision: Precision,
    /// The algorithm of the blocks.
    pub algorithm: Algorithm,
    /// Why it was taken.
    pub reason: String,
    /// Finite values that are infinite in the precision.
    pub overflowed_values: u64,
    /// Blocks of rows that `A` is cut into.
    pub blocks: usize,
    /// Blocks that stay on the device.
    pub resident_blocks: usize,
    /// Columns of a slice of `B`.
    pub slice_columns: usize,
    /// Slices of a product.
    pub slices: usize,
    /// Bytes of `A` that go to the device in a product that is not the first, all slices together: in the mean, for a
    /// slice meets the blocks in one order, the next in the other.
    pub a_bytes_up: u64,
    /// Bytes of `B` that go there.
    pub b_bytes_up: u64,
    /// Bytes of `C` that come back, of the type of `B`.
    pub c_bytes_down: u64,
    /// What is predicted for a product, in microseconds; 0 on the CPU.
    pub predicted_us: f64,
    /// Arrays in device memory.
    pub arrays: Vec<ArraySize>,
    /// Bytes of all of them.
    pub device_bytes: u64,
    /// Bytes of page-locked host memory.
    pub pinned_bytes: u64,
    /// The stages of making the plan.
    pub stages: Vec<StageTime>,
}

impl fmt::Display for OutOfCoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, cols, nnz, precision, algorithm, reason, .. } = self;
        writeln!(f, "matrix         {rows} × {cols}, {nnz} entries, in {precision}")?;
        writeln!(f, "algorithm      {algorithm}: {reason}")?;
        if self.overflowed_values > 0 {
            writeln!(f, "overflow       {} values are infinite in {precision}", self.overflowed_values)?;
        }
        let Self { blocks, resident_blocks, slices, slice_columns, width, .. } = self;
        writeln!(f, "A              {blocks} blocks of rows, {resident_blocks} of them stay on the device")?;
        writeln!(f, "B              {slices} slices of at most {slice_columns} columns, of {width}")?;
        let Self { a_bytes_up, b_bytes_up, c_bytes_down, predicted_us, .. } = self;
        writeln!(
            f,
            "a product      {a_bytes_up} bytes of A and {b_bytes_up} of B up, {c_bytes_down} of C down"
        )?;
        writeln!(f, "predicted      {predicted_us:.0} µs")?;
        write_arrays(f, self.device_bytes, "", &self.arrays)?;
        writeln!(f, "pinned memory  {} bytes of the host", self.pinned_bytes)?;
        write_stages(f, "", &self.stages)
    }
}
