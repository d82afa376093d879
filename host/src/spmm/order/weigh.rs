//! Whether another order of the rows pays, from what was measured. Pure functions.

use windrow_preprocess::partition::{Density, PartitionRule, ProductShape};

use crate::costs::DeviceCosts;
use crate::num::{real, wide};
use crate::options::{Algorithm, Preprocessing};
use crate::spmm::decide::{Facts, Way};
use crate::spmm::options::SpmmOptions;
use crate::spmm::tiles::WINDOW_ROWS;

/// Column vectors of a step.
const STEP_VECTORS: u64 = 16;

/// The question whether rows are worked on in an order that nobody asked for.
///
/// It is answered twice. Before the order is made, from the most that it could gain: windows of 8 rows in which every
/// column vector is full. That is less than all products are predicted to take, so that making one at most doubles what
/// all takes. Once it is made and its column vectors are counted, from what the cost model predicts.
pub(in crate::spmm) struct Weighing<'a> {
    facts: &'a Facts,
    cols: usize,
    options: &'a SpmmOptions,
    costs: &'a DeviceCosts,
    /// Products that are expected.
    runs: u64,
}

impl<'a> Weighing<'a> {
    /// The question, where there is one: all rows in tiles, by a choice of [`Algorithm::Auto`], for a number of
    /// products that was said, of which nothing was said about the order.
    pub(in crate::spmm) fn of(
        facts: &'a Facts,
        cols: usize,
        options: &'a SpmmOptions,
        costs: &'a DeviceCosts,
        way: Way,
    ) -> Option<Self> {
        let is_open = options.algorithm == Algorithm::Auto
            && facts.own_order
            && options.memory_limit.is_none()
            && options.preprocessing != Preprocessing::Cpu
            && way == Way::Tiles(Some(PartitionRule::AllTile));
        let runs = options.expected_runs.filter(|_| is_open)?;
        Some(Self { facts, cols, options, costs, runs })
    }

    /// The time of a product whose windows have so many column vectors, in microseconds.
    fn predicted_us(&self, vectors: u64) -> f64 {
        let Facts { rows, empty_rows, .. } = *self.facts;
        let windows = wide(rows).saturating_sub(empty_rows).div_ceil(wide(WINDOW_ROWS));
        let mut parts = Density::default();
        parts.columns = vectors;
        parts.windows = windows;
        parts.steps = vectors / STEP_VECTORS + windows / 2; // the last of a window is half full
        let SpmmOptions { width, precision, .. } = *self.options;
        let shape = ProductShape { rows, cols: self.cols, width, element_bytes: precision.bytes() as usize };
        self.costs.spmm.seconds(&parts, shape) * 1e6
    }

    /// What making an order takes, in microseconds.
    fn cost_us(&self) -> f64 {
        let costs = &self.costs.orders;
        let ns = costs.entry_ns * real(wide(self.facts.nnz)) + costs.row_ns * real(wide(self.facts.rows));
        costs.base_us + ns / 1e3
    }

    /// Whether an order could pay for itself, of a matrix whose own has so many column vectors, or fewer; else why not.
    pub(super) fn may_pay(&self, own_vectors: u64) -> Result<(), String> {
        let own = self.predicted_us(own_vectors);
        let most = own - self.predicted_us(wide(self.facts.nnz.div_ceil(WINDOW_ROWS)));
        let cost = self.cost_us();
        if real(self.runs) * most > cost {
            return Ok(());
        }
        let runs = self.runs;
        Err(format!(
            "another saves at most {most:.1} of {own:.1} µs a product, and takes {cost:.0} µs: {runs} products are too few"
        ))
    }

    /// Why an order is taken, whose column vectors are the second number where its own has the first; else why not.
    pub(super) fn is_quicker(&self, [own, new]: [u64; 2]) -> Result<String, String> {
        let [own_us, new_us] = [own, new].map(|vectors| self.predicted_us(vectors));
        let entries = |vectors: u64| real(wide(self.facts.nnz)) / real(vectors.max(1));
        let (own_each, new_each) = (entries(own), entries(new));
        let weighed = format!(
            "{new_us:.1} µs predicted with {new_each:.2} entries a vector, {own_us:.1} µs with {own_each:.2}"
        );
        let runs = self.runs;
        match new_us < own_us * (1.0 - self.costs.orders.least_gain) {
            true => Ok(format!("{weighed} in its own; {runs} products are expected")),
            false => Err(format!("minhash has {weighed} in its own, which saves too little to be sure of")),
        }
    }
}

#[cfg(test)]
mod tests;
