//! What each component of a hybrid product is worth, each against leaving it out.
//!
//! | part | compares |
//! | --- | --- |
//! | `thresholds` | partitions by [`PartitionRule::Overlap`] and [`PartitionRule::Printed`] with thresholds 0 to 8 |
//! | `vectors` | partitions by [`PartitionRule::ColumnVectors`] with thresholds 1/8 to 8/8 |
//! | `stream` | windows dealt out evenly with a warp for each window |
//! | `printed` | the tile stream as it is built with what RSH-SpMM prints in its place |
//! | `reorder` | orders of the rows, and the stages of the similarity order |
//! | `bytes` | RS-Tile with COO, CSR, ME-TCF and `BitTCF` |
//! | `hybrid` | the hybrid with all rows in tiles and all on CUDA cores |
//! | `determinism` | 50 runs beside other work, and the cost of a fixed order of sums |
//!
//! A part is a few steps, and each step is a case. On the CPU, which has one algorithm, times are skipped and counted.
//! Every result that has a time is verified.
//!
//! [`PartitionRule::Overlap`]: windrow::partition::PartitionRule::Overlap
//! [`PartitionRule::ColumnVectors`]: windrow::partition::PartitionRule::ColumnVectors
//! [`PartitionRule::Printed`]: windrow::partition::PartitionRule::Printed

mod arguments;
mod bench;
mod bytes;
mod determinism;
pub(crate) mod facts;
mod load;
mod part;
mod reorder;
mod summary;
mod thresholds;
mod variants;
mod vectors;

#[cfg(test)]
pub(crate) mod tests;

use windrow::{Device, DeviceKind};

use super::kept::Kept;
use super::matrices::{Case, Matrices, MatrixSource, Place, Values};
use super::record::Record;
use super::{Measured, Suite, Tally};
use crate::measure::orders::FoundOrder;
use crate::measure::{BenchError, L2, Sampling};
pub(crate) use arguments::Arguments;
use bench::{Bench, Shared};
use facts::{AblationFacts, PartFacts};
use part::{Part, Step};

/// What is told of a step.
pub(crate) type AblationRecord = Record<PartFacts<AblationFacts>>;

/// What is compared, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    pub(crate) parts: Vec<Part>,
    /// Columns of `B`; each part is done for each.
    pub(crate) widths: Vec<usize>,
    /// Where values of matrices come from.
    pub(crate) values: Values,
    /// Seed of made-up values and of `B`.
    pub(crate) seed: u64,
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// What the L2 cache holds before each timed product: each case is measured with each.
    pub(crate) l2: Vec<L2>,
    /// Runs that must give the same bits.
    pub(crate) runs: u32,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

pub(crate) struct Ablation {
    device: Device,
    options: Options,
    matrices: Matrices,
    /// The orders of each matrix, by its number.
    orders: Vec<Vec<FoundOrder>>,
    shared: Kept<Place, Shared>,
}

impl Ablation {
    /// Reads all matrices and finds all orders.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let matrices = Matrices::load(&options.sources, options.values, options.seed, options.progress);
        let wanted = options.parts.contains(&Part::Reorder);
        let orders = match wanted {
            true => reorder::find_all(&matrices, options.sources.len(), options.progress),
            false => vec![Vec::new(); options.sources.len()],
        };
        Self { device: device.clone(), options, matrices, orders, shared: Kept::default() }
    }
}

impl Suite for Ablation {
    const NAME: &'static str = "ablation";
    type Case = Case<Step>;
    type Facts = PartFacts<AblationFacts>;

    fn cases(&self) -> Vec<Self::Case> {
        let steps: Vec<Step> = self.options.parts.iter().flat_map(|part| part.steps()).collect();
        self.matrices.cases(&self.options.widths, &self.options.l2, &steps)
    }

    fn name(&self, case: &Self::Case) -> String {
        self.matrices.name(case)
    }

    fn l2(&self, case: &Self::Case) -> L2 {
        case.l2
    }

    fn facts(&self, case: &Self::Case) -> Self::Facts {
        let (matrix, values) = (self.matrices.facts(case), self.options.values.to_string());
        PartFacts { matrix, values, width: case.width, facts: None }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut Self::Facts) -> Result<Measured, BenchError> {
        let (matrix, step) = self.matrices.of(case)?;
        let mut bench = Bench {
            device: &self.device,
            csr: &matrix.csr,
            width: case.width,
            sampling: self.options.sampling.with_l2(case.l2),
            has_kernels: self.device.kind() != DeviceKind::Cpu,
            seeds: (self.options.seed, matrix.checksum),
            shared: self.shared.get(case.place(), || Ok::<_, BenchError>(Shared::default()))?,
            aside: Tally::default(),
        };
        facts.facts = Some(match step {
            Step::Threshold { rule, max_entries } => thresholds::facts(&mut bench, rule, max_entries),
            Step::Vectors(threshold) => vectors::facts(&mut bench, threshold),
            Step::Stream => Ok(variants::stream(&mut bench)),
            Step::Printed => Ok(variants::printed(&mut bench)),
            Step::Order(at) => Ok(reorder::facts(&mut bench, at, &self.orders[case.matrix][at])),
            Step::Bytes { estimated } => bytes::facts(&bench, estimated),
            Step::Hybrid => Ok(variants::hybrid(&mut bench)),
            Step::Determinism(path) => determinism::facts(&mut bench, path, self.options.runs),
        }?);
        Ok(Measured { aside: bench.aside, ..Measured::default() })
    }
}
