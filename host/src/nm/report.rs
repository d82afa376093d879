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
    /// What a block takes at a time; none on the CPU.
    pub block: Option<NmBlock>,
    /// What the model says of a dense product of as many rows; none on the CPU.
    pub dense: Option<NmDense>,
    /// Why none runs, though [`dense_fallback`](crate::NmSpmmBuilder::dense_fallback) allows it.
    pub dense_refused: Option<String>,
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

/// What the model of kernels says of a dense product, with as many rows as a plan was made for, beside a sparse one.
/// Operands are taken to be packed.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct NmDense {
    /// Microseconds of a dense product by cuBLAS.
    pub dense_us: f64,
    /// Those of the plan's sparse product, or of the one in whose place the dense product came; none if that was asked
    /// for.
    pub sparse_us: Option<f64>,
}

impl NmDense {
    /// Whether a dense product would be quicker.
    #[must_use]
    pub fn is_quicker(&self) -> bool {
        self.sparse_us.is_some_and(|sparse_us| self.dense_us < sparse_us)
    }
}

/// What a block of a product with N:M weights takes at a time: a tile of `C`, and a stage of the inner dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct NmBlock {
    /// Rows of the tile, `m_s` of NM-SpMM.
    pub rows: u32,
    /// Columns of the tile, `n_s`.
    pub columns: u32,
    /// Columns that share the picks of a stage, inside one vector.
    pub strip: u32,
    /// Kept rows of a stage, `w_s`.
    pub kept_rows: u32,
    /// Columns of `A` that a stage brings at most: `k_s = w_s · M / N` of whole groups, fewer where they are packed.
    pub brought: u32,
}

impl NmBlock {
    /// Operations for each element that a stage moves: `2·m_s·n_s·w_s / (m_s·k_s + w_s·n_s + 2·m_s·n_s)`, equation 3 of
    /// NM-SpMM, with the columns of `A` that are [`brought`](Self::brought) for `k_s`. As printed it counts `C` in each
    /// stage, once read and once written, though sums stay in registers until the last.
    #[must_use]
    pub fn intensity(&self) -> f64 {
        let [m, n, w, k] = [self.rows, self.columns, self.kept_rows, self.brought].map(f64::from);
        2.0 * m * n * w / (m * k + w * n + 2.0 * m * n)
    }
}

impl fmt::Display for NmBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, strip, kept_rows, .. } = self;
        write!(f, "{rows} × {columns}, {kept_rows} kept rows a stage, strips of {strip}")
    }
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

    /// What the model says of a dense product, and what came of it.
    fn write_dense(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(dense) = &self.dense {
            let us = dense.dense_us;
            let is_dense = self.algorithm == NmAlgorithm::Dense;
            write!(f, "dense          ")?;
            match dense.sparse_us {
                Some(sparse_us) if is_dense => {
                    writeln!(f, "takes about {us:.0} µs by the model, the sparse product {sparse_us:.0} µs")
                }
                None => writeln!(f, "takes about {us:.0} µs by the model"),
                Some(sparse_us) if dense.is_quicker() => {
                    let see = if self.dense_refused.is_none() { "; see dense_fallback" } else { "" };
                    writeln!(
                        f,
                        "a dense product would be quicker: about {us:.0} µs by the model, this product \
                         {sparse_us:.0} µs{see}"
                    )
                }
                Some(sparse_us) => {
                    writeln!(f, "would take about {us:.0} µs by the model, this product {sparse_us:.0} µs")
                }
            }?;
        }
        match &self.dense_refused {
            Some(why) => writeln!(f, "no fallback    {why}"),
            None => Ok(()),
        }
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
        if let Some(block) = &self.block {
            writeln!(f, "tile           {block}, {}: {}", self.packing, self.packing_reason)?;
            writeln!(
                f,
                "intensity      {:.1} operations for each element that a stage moves",
                block.intensity()
            )?;
        }
        self.write_dense(f)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intensity_is_equation_3() {
        // 2·64·128·16 / (64·64 + 16·128 + 2·64·128): whole groups of 1:4.
        let plain = NmBlock { rows: 64, columns: 128, strip: 32, kept_rows: 16, brought: 64 };
        assert_eq!(plain.intensity(), 262_144.0 / (4096.0 + 2048.0 + 16_384.0));
        assert_eq!(plain.to_string(), "64 × 128, 16 kept rows a stage, strips of 32");
        // Fewer columns of A are brought, so each element has more to do.
        assert!(NmBlock { brought: 40, ..plain }.intensity() > plain.intensity());
    }
}
