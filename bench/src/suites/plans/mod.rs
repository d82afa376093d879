//! Plans of matrices that are on the device: what one takes in its own products, and the first product beside
//! cuSPARSE's on the same arrays.
//!
//! A case is a matrix, a width and a path; `+runs:1` in a path is a plan of which one product is expected. The first
//! product is everything from three arrays in device memory, which were checked before, to a `C` that is there: the
//! plan, the product, the wait. Of cuSPARSE it is descriptors, workspace, `cusparseSpMM_preprocess`, the product and
//! the wait, by the algorithm that is quickest so. Every product is verified. Beside them stands the product without a
//! plan, of arrays that nobody has checked: alone with its wait, and one of many in a row.
//!
//! A path in another order of rows (`tile-stream-f16+minhash`) is compared with the same one in the matrix's own, and
//! told is after how many products it pays, if both are asked for.

mod arguments;
mod orders;
mod table;

#[cfg(test)]
mod tests;

use std::time::Instant;

use serde::{Deserialize, Serialize};
use windrow::{
    Csr, Device, DeviceKind, DeviceMatrix, Precision, Spmm, SpmmOptions, SpmmPlan, Value, Verification, bf16,
    f16,
};

use super::facts::MatrixFacts;
use super::matrices::{Case, Matrices, MatrixSource, Values};
use super::record::Record;
use super::{Measured, Suite, Tally};
use crate::measure::operands::Filling;
use crate::measure::peers::{CsrAlgorithm, CuSparse, DeviceCsr as PeerCsr};
use crate::measure::product::{Operands, Stored};
use crate::measure::{BenchError, L2, Sampling, StageSamples, Statistics, SweepPath, measure};
pub(crate) use arguments::Arguments;
use table::summarise;

/// What is told of a plan.
pub(crate) type PlansRecord = Record<PlansFacts>;

/// A plan of a matrix on the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlansFacts {
    pub(crate) matrix: MatrixFacts,
    /// Where its values came from.
    pub(crate) values: String,
    pub(crate) width: usize,
    pub(crate) path: String,
    /// What was found; `null` where nothing was.
    pub(crate) plan: Option<FoundPlan>,
    /// cuSPARSE's first product; `null` where there is none.
    pub(crate) cusparse: Option<PeerFirst>,
}

/// What a plan took and what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FoundPlan {
    pub(crate) algorithm: String,
    /// Where it was made, and why.
    pub(crate) place: String,
    /// Median of the builds, in microseconds, and the quickest.
    pub(crate) plan_us: f64,
    pub(crate) plan_min_us: f64,
    /// Median of each stage, in microseconds.
    pub(crate) stages: Vec<(String, f64)>,
    /// A product, in microseconds.
    pub(crate) product_us: f64,
    /// The plan in its own products: `plan_us / product_us`.
    pub(crate) plan_in_products: f64,
    /// Median of plan, product and wait, in microseconds.
    pub(crate) first_us: f64,
    /// Microseconds that the CPU takes to queue a product.
    pub(crate) queue_us: f64,
    /// The order of the rows.
    #[serde(default)]
    pub(crate) order: String,
    /// Distinct columns of all windows; 0 where the plan has no tiles.
    #[serde(default)]
    pub(crate) column_vectors: u64,
    /// The product without a plan; `null` where it was not measured.
    #[serde(default)]
    pub(crate) without: Option<WithoutPlan>,
}

/// What a product without a plan took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WithoutPlan {
    /// Median of the product and the wait, in microseconds.
    pub(crate) first_us: f64,
    /// One of many in a row, in microseconds.
    pub(crate) product_us: f64,
}

/// A first product of cuSPARSE.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerFirst {
    pub(crate) algorithm: String,
    /// Median of everything, in microseconds.
    pub(crate) first_us: f64,
}

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    pub(crate) widths: Vec<usize>,
    pub(crate) paths: Vec<SweepPath>,
    /// Whether cuSPARSE is asked.
    pub(crate) peers: bool,
    /// Where values of matrices come from.
    pub(crate) values: Values,
    /// Seed of made-up values.
    pub(crate) seed: u64,
    /// Its batches are how often a plan is made.
    pub(crate) sampling: Sampling,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

pub(crate) struct Plans {
    device: Device,
    options: Options,
    matrices: Matrices,
    cusparse: Option<CuSparse>,
}

impl Plans {
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let matrices = Matrices::load(&options.sources, options.values, options.seed, options.progress);
        let wanted = options.peers && device.kind() == DeviceKind::Cuda;
        let cusparse = wanted.then(|| CuSparse::load(device).ok()).flatten();
        Self { device: device.clone(), options, matrices, cusparse }
    }
}

impl Suite for Plans {
    const NAME: &'static str = "plans";
    type Case = Case<SweepPath>;
    type Facts = PlansFacts;

    fn cases(&self) -> Vec<Self::Case> {
        self.matrices.cases(&self.options.widths, &[L2::Warm], &self.options.paths)
    }

    fn name(&self, case: &Self::Case) -> String {
        self.matrices.name(case)
    }

    fn facts(&self, case: &Self::Case) -> PlansFacts {
        let (matrix, values) = (self.matrices.facts(case), self.options.values.to_string());
        let path = case.path.map_or_else(String::new, |path| path.to_string());
        PlansFacts { matrix, values, width: case.width, path, plan: None, cusparse: None }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut PlansFacts) -> Result<Measured, BenchError> {
        let (matrix, path) = self.matrices.of(case)?;
        let seeds = (self.options.seed, matrix.checksum);
        let maker = Maker {
            device: &self.device,
            csr: &matrix.csr,
            options: SpmmOptions { width: case.width, ..path.options },
            sampling: self.options.sampling,
            operands: Operands::new(&self.device, &matrix.csr, case.width, seeds),
        };
        let peer = self.cusparse.as_ref();
        let (found, plan, first) = match path.options.precision {
            Precision::F16 => maker.measure::<f16>(peer)?,
            Precision::Bf16 => maker.measure::<bf16>(None)?,
            Precision::F64 => maker.measure::<f64>(peer)?,
            Precision::F32 => maker.measure::<f32>(peer)?,
            Precision::Tf32 => maker.measure::<f32>(None)?,
        };
        (facts.plan, facts.cusparse) = (Some(plan), first);
        match found.passed() {
            true => Ok(Measured {
                check: Some(super::facts::CheckFacts::of(&found)),
                time: None,
                aside: Tally::default(),
            }),
            false => Err(BenchError::Wrong(found)),
        }
    }
}

/// Makes one plan again and again.
struct Maker<'a> {
    device: &'a Device,
    csr: &'a Csr<f32>,
    options: SpmmOptions,
    sampling: Sampling,
    operands: Operands,
}

/// Products that are queued in a row to see what one costs the CPU.
const QUEUED: u32 = 20;

impl Maker<'_> {
    fn measure<T: Stored>(
        mut self,
        peer: Option<&CuSparse>,
    ) -> Result<(Verification, FoundPlan, Option<PeerFirst>), BenchError> {
        let arrays = PeerCsr::<T>::upload(self.device, self.csr)?;
        let stream = self.device.stream();
        let a = arrays.matrix()?.checked(&stream)?;
        let builder = Spmm::builder(&a).options(self.options);
        let builds = self.sampling.min_batches.max(1);
        let elapsed = |start: Instant| start.elapsed().as_secs_f64() * 1e6;
        let (b, c) = self.operands.get::<T>(Filling::Huge)?;

        let mut plan = builder.build_on(&stream)?; // what is done once, the driver's part of it too
        let (mut plans, mut firsts) = (Vec::new(), Vec::new());
        let mut stages = StageSamples::default();
        for _ in 0..builds {
            drop(plan);
            self.device.synchronize()?;
            let start = Instant::now();
            plan = builder.build_on(&stream)?;
            self.device.synchronize()?;
            plans.push(elapsed(start));
            stages.add(&plan.report().stages);
        }
        for _ in 0..builds {
            drop(plan);
            self.device.synchronize()?;
            let start = Instant::now();
            plan = builder.build_on(&stream)?;
            run::<T>(&plan, b, c)?;
            self.device.synchronize()?;
            firsts.push(elapsed(start));
        }
        let found = plan.verify(self.csr, b, c)?;
        let timing = measure(self.device, self.sampling, || run::<T>(&plan, b, c))?;
        self.device.synchronize()?;
        let start = Instant::now();
        for _ in 0..QUEUED {
            run::<T>(&plan, b, c)?;
        }
        let queue_us = elapsed(start) / f64::from(QUEUED);
        self.device.synchronize()?;
        let without = self.without_plan::<T>(&plan, &arrays, builds)?;
        let report = plan.report();
        let all = Statistics::of(&plans);
        let median = |samples: &[f64]| Statistics::of(samples).map_or(0.0, |found| found.median);
        let plan_us = median(&plans);
        let facts = FoundPlan {
            algorithm: report.algorithm.to_string(),
            place: format!("{}: {}", report.preprocessing, report.preprocessing_reason),
            plan_us,
            plan_min_us: all.map_or(0.0, |found| found.min),
            stages: stages.medians(),
            product_us: timing.median_us,
            plan_in_products: plan_us / timing.median_us,
            first_us: median(&firsts),
            queue_us,
            order: report.order.clone(),
            column_vectors: report.column_vectors,
            without: Some(without),
        };
        let first = match peer {
            Some(peer) => self.first_of_peer::<T>(peer, &arrays, builds)?,
            None => None,
        };
        Ok((found, facts, first))
    }

    /// The product without a plan, of arrays that were not checked; `plan` verifies it.
    fn without_plan<T: Stored>(
        &mut self,
        plan: &SpmmPlan,
        arrays: &PeerCsr<T>,
        times: u32,
    ) -> Result<WithoutPlan, BenchError> {
        let a = arrays.matrix()?;
        let builder = Spmm::builder(&a).precision(self.options.precision);
        let stream = self.device.stream();
        let (b, c) = self.operands.get::<T>(Filling::Huge)?;
        let mut once = || builder.run_once_on(&stream, T::Sum::ONE, &*b, T::Sum::ZERO, &mut *c);
        let mut samples = Vec::new();
        for turn in 0..=times {
            self.device.synchronize()?;
            let start = Instant::now();
            once()?;
            self.device.synchronize()?;
            if turn > 0 {
                samples.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let timing = measure(self.device, self.sampling, || once().map_err(BenchError::from))?;
        let found = plan.verify(self.csr, b, c)?;
        let first_us = Statistics::of(&samples).map_or(0.0, |found| found.median);
        match found.passed() {
            true => Ok(WithoutPlan { first_us, product_us: timing.median_us }),
            false => Err(BenchError::Wrong(found)),
        }
    }

    /// The first product of cuSPARSE by the algorithm that is quickest so.
    fn first_of_peer<T: Stored>(
        &mut self,
        peer: &CuSparse,
        arrays: &PeerCsr<T>,
        times: u32,
    ) -> Result<Option<PeerFirst>, BenchError> {
        let (b, c) = self.operands.get::<T>(Filling::Huge)?;
        let mut best: Option<PeerFirst> = None;
        for algorithm in CsrAlgorithm::ROW_MAJOR {
            let mut samples = Vec::new();
            for turn in 0..=times {
                let start = Instant::now();
                let Ok(spmm) = peer.prepare(algorithm, arrays, b, c) else { break };
                spmm.run()?;
                self.device.synchronize()?;
                if turn > 0 {
                    samples.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
            let Some(found) = Statistics::of(&samples) else { continue };
            if best.as_ref().is_none_or(|best| found.median < best.first_us) {
                best = Some(PeerFirst { algorithm: algorithm.to_string(), first_us: found.median });
            }
        }
        Ok(best)
    }
}

fn run<T: Stored>(
    plan: &SpmmPlan,
    b: &DeviceMatrix<T>,
    c: &mut DeviceMatrix<T::Sum>,
) -> Result<(), BenchError> {
    Ok(plan.run_into(T::Sum::ONE, b, T::Sum::ZERO, c)?)
}
