//! What a plan of products with N:M weights is, what it holds and what it cost to make.

use std::fmt;

use super::options::{ActivationLayout, NmAlgorithm, NmPacking};
use crate::device::DeviceKind;
use crate::num::{real, wide};
use crate::options::Precision;
use crate::plan::{ArraySize, StageTime, total_us, write_arrays, write_stages};

/// What a plan of products with N:M weights is, what it holds and what it cost to make. `Display` prints it
/// as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct NmReport {
    /// Rows of `A` and `C` that the plan was made for. Any other number can be run.
    pub rows: usize,
    /// Rows of the weights: the inner dimension.
    pub inner: usize,
    /// Columns of the weights and of `C`.
    pub cols: usize,
    /// `N`: vectors kept of each group.
    pub pattern_n: usize,
    /// `M`: rows of a group.
    pub pattern_m: usize,
    /// `L`: columns of a vector.
    pub pattern_l: usize,
    /// Rows of the weights that are kept.
    pub kept_rows: usize,
    /// Finite weights that the precision makes infinite.
    pub overflowed_values: u64,
    /// Type of `A` and of the weights.
    pub precision: Precision,
    /// How `A` is stored.
    pub layout: ActivationLayout,
    /// Factor of every product.
    pub scale: f32,
    /// Selector and model of the device, as its `Display` prints it.
    pub device: String,
    /// What sort of device it is.
    pub device_kind: DeviceKind,
    /// The algorithm asked for.
    pub requested: NmAlgorithm,
    /// The algorithm that the plan uses; `Auto` on the CPU, which has one of its own.
    pub algorithm: NmAlgorithm,
    /// Why it uses that one.
    pub reason: String,
    /// Whether columns of `A` are packed; `Auto` on the CPU, which needs neither.
    pub packing: NmPacking,
    /// Why they are, or are not.
    pub packing_reason: String,
    /// What of weights that were on the device was copied to the host to make the plan.
    pub copied: String,
    /// Shape of a block's tile, as its kernel has it; none on the CPU.
    pub tile: Option<String>,
    /// What was tried and how long each took, in microseconds; empty without autotuning.
    pub tuned: Vec<(String, f64)>,
    /// Entry points that a run of as many rows launches; empty on the CPU.
    pub entries: Vec<&'static str>,
    /// Arrays in device memory.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
}

impl NmReport {
    /// Time to make the plan, in microseconds: all stages.
    #[must_use]
    pub fn preprocessing_us(&self) -> f64 {
        total_us(&self.stages)
    }

    /// Operations of a product with `m` rows that are kept: `2·m·n·w`, with `w` kept rows.
    #[must_use]
    pub fn flop(&self, m: usize) -> f64 {
        2.0 * real(wide(m)) * real(wide(self.cols)) * real(wide(self.kept_rows))
    }

    /// Share of the weights that is not kept.
    #[must_use]
    pub fn sparsity(&self) -> f64 {
        if self.inner == 0 { 0.0 } else { 1.0 - real(wide(self.kept_rows)) / real(wide(self.inner)) }
    }
}

impl fmt::Display for NmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, inner, cols, pattern_n, pattern_m, pattern_l, kept_rows, .. } = self;
        writeln!(
            f,
            "weights        {inner} × {cols}, {pattern_n}:{pattern_m} in vectors of {pattern_l}, {kept_rows} rows kept \
             ({:.1} % sparse)",
            100.0 * self.sparsity()
        )?;
        writeln!(f, "activations    {} (made for {rows} rows), product times {}", self.layout, self.scale)?;
        if self.overflowed_values > 0 {
            writeln!(
                f,
                "overflow       {} finite weights are infinite in {}",
                self.overflowed_values, self.precision
            )?;
        }
        writeln!(f, "device         {}", self.device)?;
        writeln!(f, "algorithm      {} in {}: {}", self.algorithm, self.precision, self.reason)?;
        if let Some(tile) = &self.tile {
            writeln!(f, "tile           {tile}, {}: {}", self.packing, self.packing_reason)?;
        }
        if self.copied != "nothing" {
            writeln!(f, "copied         {}", self.copied)?;
        }
        for (what, us) in &self.tuned {
            writeln!(f, "  tried        {what}: {us:.1} µs")?;
        }
        if !self.entries.is_empty() {
            writeln!(f, "entries        {}", self.entries.join(", "))?;
        }
        write_arrays(f, self.device_bytes, "", &self.arrays)?;
        write_stages(f, "", &self.stages)
    }
}
