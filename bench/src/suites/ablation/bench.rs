//! One matrix and width, and what products of it need.

use windrow::partition::{CostModel, Density, PartitionRule, ProductShape, VectorThreshold};
use windrow::{Csr, Device, Permutation, RowAssignment};

use super::facts::Measurement;
use crate::measure::product::{Operands, Product};
use crate::measure::{BenchError, Sampling, SweepPath};
use crate::suites::Tally;
use crate::suites::facts::CheckFacts;
use crate::suites::spmm::facts::PlanFacts;

/// What the steps of one matrix and width share.
#[derive(Default)]
pub(super) struct Shared {
    operands: Option<Operands>,
    /// The threshold before, how it divides the rows, and its hybrid.
    pub(super) last_threshold: Option<(u32, RowAssignment, Option<Measurement>)>,
    /// The same for column vectors: where the entries of the tiles come from.
    pub(super) last_vectors: Option<(VectorThreshold, Vec<u64>, Option<Measurement>)>,
    /// The hybrid in the matrix's own order, once it was measured.
    pub(super) own: Option<Option<Measurement>>,
}

/// One matrix and width.
pub(super) struct Bench<'a> {
    pub(super) device: &'a Device,
    pub(super) csr: &'a Csr<f32>,
    pub(super) width: usize,
    pub(super) sampling: Sampling,
    /// Whether the device has more than one algorithm.
    pub(super) has_kernels: bool,
    pub(super) seeds: (u64, u64),
    pub(super) shared: &'a mut Shared,
    /// What went wrong in products, and what was skipped.
    pub(super) aside: Tally,
}

impl<'a> Bench<'a> {
    pub(super) fn product(&self, path: SweepPath) -> Product<'a> {
        Product { device: self.device, csr: self.csr, width: self.width, path, order: None, partition: None }
    }

    /// Time that the cost model predicts for a product whose entries are divided so, in microseconds.
    pub(super) fn predicted_us(&self, density: &Density, path: SweepPath) -> f64 {
        let (rows, cols, width) = (self.csr.rows(), self.csr.cols(), self.width);
        let shape =
            ProductShape { rows, cols, width, element_bytes: path.options.precision.bytes() as usize };
        CostModel::h200().seconds(density, shape) * 1e6
    }

    /// Measures a product; nothing on a device without kernels, which is counted.
    pub(super) fn measure(
        &mut self,
        path: SweepPath,
        order: Option<&Permutation>,
        partition: Option<PartitionRule>,
    ) -> Option<Measurement> {
        if !self.has_kernels {
            self.aside.skipped += 1;
            return None;
        }
        let product = Product { order, partition, ..self.product(path) };
        let mut report = None;
        let operands = (self.shared.operands)
            .get_or_insert_with(|| Operands::new(self.device, self.csr, self.width, self.seeds));
        let result = product.measure(operands, self.sampling, &mut report);
        let (check, time, error) = match result {
            Ok((found, timing)) => (Some(CheckFacts::of(&found)), Some(timing), None),
            Err(error) => {
                self.aside.count(&error);
                let found =
                    if let BenchError::Wrong(found) = &error { Some(CheckFacts::of(found)) } else { None };
                (found, None, Some(error.to_string()))
            }
        };
        let plan = report.as_ref().map(PlanFacts::of);
        Some(Measurement { path: path.to_string(), plan, check, time, error })
    }
}

/// Time of `other` over that of `one`.
pub(super) fn speed_up(one: Option<&Measurement>, other: Option<&Measurement>) -> Option<f64> {
    let (one, other) = (one?.us()?, other?.us()?);
    Some(other / one).filter(|ratio| ratio.is_finite())
}
