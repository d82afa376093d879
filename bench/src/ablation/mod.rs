//! What each component of a hybrid product is worth: one line of JSON for each matrix and variant.
//!
//! | part | compares |
//! | --- | --- |
//! | `thresholds` | partitions by [`PartitionRule::Overlap`] and [`PartitionRule::Printed`] with thresholds 0 to 8 |
//! | `vectors` | partitions by [`PartitionRule::ColumnVectors`] with thresholds 1/8 to 8/8 |
//! | `stream` | windows dealt out evenly with a warp for each window |
//! | `reorder` | orders of the rows, and the stages of the similarity order |
//! | `bytes` | RS-Tile with COO, CSR and `BitTCF` |
//! | `hybrid` | the hybrid with all rows in tiles and all on CUDA cores |
//! | `determinism` | 50 runs beside other work, and the cost of a fixed order of sums |
//! | `preprocess` | plans made on the CPU with plans made on the GPU, whose arrays must be the same |
//!
//! On the CPU, which has one algorithm, times are skipped and counted. Every result that has a time is verified.
//!
//! [`PartitionRule::Overlap`]: windrow::partition::PartitionRule::Overlap
//! [`PartitionRule::ColumnVectors`]: windrow::partition::PartitionRule::ColumnVectors
//! [`PartitionRule::Printed`]: windrow::partition::PartitionRule::Printed

mod bytes;
mod determinism;
mod load;
mod preprocess;
mod record;
mod reorder;
mod summary;
mod thresholds;
mod variants;
mod vectors;

#[cfg(test)]
mod tests;

use std::io;

use windrow::partition::{CostModel, Density, PartitionRule, ProductShape};
use windrow::{Csr, Device, DeviceKind, Permutation};
use windrow_formats::names;

use crate::error::BenchError;
use crate::product::{Measured, Operands, Product};
use crate::sweep::{
    DeviceFacts, Matrix, MatrixFacts, MatrixSource, PlanFacts, SweepPath, Values, load_all, revision,
};
use crate::timing::Sampling;

pub use record::{
    ABLATION_SCHEMA, AblationFacts, AblationRecord, DeterminismFacts, FormatFacts, HybridFacts, Measurement,
    PlaceFacts, PreprocessFacts, ReorderFacts, ThresholdFacts, VectorFacts,
};

pub use summary::summarise_ablation;

/// A part of the ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AblationPart {
    /// Thresholds of partitions.
    Thresholds,
    /// Thresholds of column vectors.
    Vectors,
    /// The balance of the tile stream.
    Stream,
    /// Orders of rows.
    Reorder,
    /// Bytes of formats.
    Bytes,
    /// The hybrid and its parts.
    Hybrid,
    /// Repeated runs.
    Determinism,
    /// Where plans are made.
    Preprocess,
}

impl AblationPart {
    /// Every part.
    pub const ALL: [Self; 8] = [
        Self::Thresholds,
        Self::Vectors,
        Self::Stream,
        Self::Reorder,
        Self::Bytes,
        Self::Hybrid,
        Self::Determinism,
        Self::Preprocess,
    ];
}

names!(AblationPart, "part", BenchError;
    Thresholds => "thresholds", Vectors => "vectors", Stream => "stream", Reorder => "reorder", Bytes => "bytes",
    Hybrid => "hybrid", Determinism => "determinism", Preprocess => "preprocess");

/// What is compared, and how.
#[derive(Debug, Clone)]
pub struct AblationOptions {
    /// The parts.
    pub parts: Vec<AblationPart>,
    /// Columns of `B`; each part is done for each.
    pub widths: Vec<usize>,
    /// Where values of matrices come from.
    pub values: Values,
    /// Seed of made-up values and of `B`.
    pub seed: u64,
    /// How much is measured.
    pub sampling: Sampling,
    /// Runs that must give the same bits.
    pub runs: u32,
    /// Which windrow this is.
    pub revision: String,
    /// Is told what is done.
    pub progress: fn(&str),
}

impl Default for AblationOptions {
    fn default() -> Self {
        Self {
            parts: AblationPart::ALL.to_vec(),
            widths: vec![128],
            values: Values::Random,
            seed: 1,
            sampling: Sampling::default(),
            runs: 50,
            revision: revision(),
            progress: |_| {},
        }
    }
}

/// How an ablation went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AblationSummary {
    /// Lines written.
    pub lines: u64,
    /// Products with a wrong result, paths whose runs differ, and plans whose arrays do.
    pub wrong: u64,
    /// Products that did not run.
    pub errors: u64,
    /// Matrices that could not be had.
    pub unreadable: u64,
    /// Times that were not taken for want of a GPU.
    pub skipped: u64,
}

/// Does every part for every matrix and width, and hands each line to `emit` as soon as it is known.
///
/// All matrices are read and all orders found before the first measurement.
///
/// # Errors
/// The first error of `emit`.
pub fn ablation(
    device: &Device,
    sources: &[MatrixSource],
    options: &AblationOptions,
    emit: &mut dyn FnMut(&AblationRecord) -> io::Result<()>,
) -> io::Result<AblationSummary> {
    let mut summary = AblationSummary::default();
    let matrices = load_all(sources, options.values, options.seed, options.progress);
    let wanted = options.parts.contains(&AblationPart::Reorder);
    let mut orders = reorder::find_all(&matrices, wanted, options.progress).into_iter();
    for (source, matrix) in sources.iter().zip(&matrices) {
        let mut record = AblationRecord {
            schema: ABLATION_SCHEMA,
            revision: options.revision.clone(),
            device: DeviceFacts::of(device),
            matrix: MatrixFacts::named(source.name()),
            values: options.values.to_string(),
            width: 0,
            facts: None,
            error: None,
        };
        let Matrix { csr, checksum } = match matrix {
            Ok(matrix) => matrix,
            Err(error) => {
                summary.unreadable += 1;
                summary.lines += 1;
                emit(&AblationRecord { error: Some(error.to_string()), ..record })?;
                continue;
            }
        };
        record.matrix = record.matrix.of(csr, *checksum);
        let orders = orders.next().unwrap_or_default();
        for &width in &options.widths {
            record.width = width;
            let has_kernels = device.kind() != DeviceKind::Cpu;
            let seeds = (options.seed, *checksum);
            let mut bench =
                Bench { device, csr, width, options, has_kernels, seeds, operands: None, summary };
            for part in &options.parts {
                (options.progress)(&format!("{} at {width}: {part}", record.matrix.name));
                let found = match part {
                    AblationPart::Thresholds => thresholds::facts(&mut bench),
                    AblationPart::Vectors => vectors::facts(&mut bench),
                    AblationPart::Stream => variants::stream(&mut bench),
                    AblationPart::Reorder => reorder::facts(&mut bench, &orders),
                    AblationPart::Bytes => bytes::facts(&bench),
                    AblationPart::Hybrid => variants::hybrid(&mut bench),
                    AblationPart::Determinism => determinism::facts(&mut bench),
                    AblationPart::Preprocess => preprocess::facts(&mut bench),
                };
                let lines = match found {
                    Ok(facts) => facts
                        .into_iter()
                        .map(|facts| AblationRecord { facts: Some(facts), ..record.clone() })
                        .collect(),
                    Err(error) => {
                        bench.summary.errors += 1;
                        vec![AblationRecord { error: Some(format!("{part}: {error}")), ..record.clone() }]
                    }
                };
                for line in lines {
                    bench.summary.lines += 1;
                    emit(&line)?;
                }
            }
            summary = bench.summary;
        }
    }
    Ok(summary)
}

/// One matrix and width, and what products of it need.
struct Bench<'a> {
    device: &'a Device,
    csr: &'a Csr<f32>,
    width: usize,
    options: &'a AblationOptions,
    /// Whether the device has more than one algorithm.
    has_kernels: bool,
    seeds: (u64, u64),
    operands: Option<Operands<'a>>,
    summary: AblationSummary,
}

impl<'a> Bench<'a> {
    fn product(&self, path: SweepPath) -> Product<'a> {
        Product { device: self.device, csr: self.csr, width: self.width, path, order: None, partition: None }
    }

    /// Time that the cost model predicts for a product whose entries are divided so, in microseconds.
    fn predicted_us(&self, density: &Density, path: SweepPath) -> f64 {
        let (rows, cols, width) = (self.csr.rows(), self.csr.cols(), self.width);
        let shape = ProductShape { rows, cols, width, element_bytes: path.precision.bytes() as usize };
        CostModel::h200().seconds(density, shape) * 1e6
    }

    fn operands(&mut self) -> Result<&mut Operands<'a>, BenchError> {
        Ok(match &mut self.operands {
            Some(operands) => operands,
            none => none.insert(Operands::new(self.device, self.csr, self.width, self.seeds)?),
        })
    }

    /// Measures a product; nothing on a device without kernels, which is counted.
    fn measure(
        &mut self,
        path: SweepPath,
        order: Option<&Permutation>,
        partition: Option<PartitionRule>,
    ) -> Option<Measurement> {
        if !self.has_kernels {
            self.summary.skipped += 1;
            return None;
        }
        let mut measured = Measured::default();
        let (product, sampling) = (Product { order, partition, ..self.product(path) }, self.options.sampling);
        let result = self.operands().and_then(|operands| product.measure(operands, sampling, &mut measured));
        if let Err(error) = &result {
            let is_wrong = matches!(error, BenchError::Wrong(_));
            self.summary.wrong += u64::from(is_wrong);
            self.summary.errors += u64::from(!is_wrong);
        }
        Some(Measurement {
            path: path.to_string(),
            plan: measured.report.as_ref().map(PlanFacts::of),
            check: measured.check,
            time: measured.timing,
            error: result.err().map(|error| error.to_string()),
        })
    }
}

/// Time of `other` over that of `one`.
fn speed_up(one: Option<&Measurement>, other: Option<&Measurement>) -> Option<f64> {
    let (one, other) = (one?.us()?, other?.us()?);
    Some(other / one).filter(|ratio| ratio.is_finite())
}
