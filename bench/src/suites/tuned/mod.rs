//! The quickest way to each product: matrices × widths, each searched, or every division of the default's decision tree
//! timed for a fit.

mod arguments;
pub(crate) mod facts;
mod fit;
mod summary;

#[cfg(test)]
pub(crate) use fit::paths;

#[cfg(test)]
mod tests;

use std::fmt;

use windrow::{Csr, Determinism, Device, Precision, SpmmOptions};

use super::compare::{Compared, PeerOptions, Peers};
use super::matrices::{Case, Matrices, MatrixSource, Values};
use super::record::Record;
use super::{Measured, Suite, Tally};
use crate::measure::tuner::{Products, Subject, default_path, grid, seeds, survey, tune_products};
use crate::measure::{BenchError, L2, Limits, Sampling, SweepPath, Tried};
pub(crate) use arguments::Arguments;
use facts::{TriedFacts, TunedFacts};

/// What is told of a tuned product.
pub(crate) type TunedRecord = Record<TunedFacts>;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    pub(crate) widths: Vec<usize>,
    /// Type of the values and of `B`.
    pub(crate) precision: Precision,
    /// Whether two runs must give the same bits.
    pub(crate) determinism: Determinism,
    /// How each case is searched; `None` measures every division of the tree instead, and searches nothing.
    pub(crate) limits: Option<Limits>,
    /// Batches of each division, where nothing is searched.
    pub(crate) batches: u32,
    /// Where values of matrices come from.
    pub(crate) values: Values,
    /// Seed of the values of matrices that have none, and of `B`.
    pub(crate) seed: u64,
    /// How much of cuSPARSE is measured.
    pub(crate) sampling: Sampling,
    /// Whether cuSPARSE is measured beside, on a CUDA device.
    pub(crate) peers: bool,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

/// What is done with a matrix and a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// The quickest is searched.
    Tune,
    /// Every division of the tree is timed.
    Tree,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tune => "tuned",
            Self::Tree => "tree",
        })
    }
}

pub(crate) struct Tuned {
    device: Device,
    options: Options,
    matrices: Matrices,
    peers: Peers,
}

impl Tuned {
    /// Reads all matrices, and loads the peers that are asked for.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let matrices = Matrices::load(&options.sources, options.values, options.seed, options.progress);
        let peers = Peers::load(device, options.peers);
        Self { device: device.clone(), options, matrices, peers }
    }
}

impl Suite for Tuned {
    const NAME: &'static str = "tuned";
    type Case = Case<Search>;
    type Facts = TunedFacts;

    fn cases(&self) -> Vec<Self::Case> {
        let search = if self.options.limits.is_some() { Search::Tune } else { Search::Tree };
        self.matrices.cases(&self.options.widths, &[L2::Warm], &[search])
    }

    fn name(&self, case: &Self::Case) -> String {
        let Options { precision, determinism, .. } = self.options;
        format!("{}, {precision}, {determinism}", self.matrices.name(case))
    }

    fn facts(&self, case: &Self::Case) -> TunedFacts {
        TunedFacts {
            matrix: self.matrices.facts(case),
            values: self.options.values.to_string(),
            width: case.width,
            precision: self.options.precision.to_string(),
            determinism: self.options.determinism.to_string(),
            default: None,
            default_us: None,
            winner: None,
            winner_us: None,
            families: Vec::new(),
            tried: Vec::new(),
            ended: None,
            seconds: 0.0,
            cusparse: None,
        }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut TunedFacts) -> Result<Measured, BenchError> {
        let (matrix, _) = self.matrices.of(case)?;
        let (device, csr, width, options) = (&self.device, &matrix.csr, case.width, &self.options);
        let seeds_of = (options.seed, matrix.checksum);
        let mut products = Products::new((device, csr), width, options.precision, seeds_of)?;
        let (precision, determinism) = (options.precision, options.determinism);
        let base = SweepPath::from(SpmmOptions { precision, determinism, ..SpmmOptions::DEFAULT });
        match &options.limits {
            Some(limits) => {
                let seeds = seeds(base, csr, width, device.kind());
                facts.found(&tune_products(&mut products, csr, width, (base, &seeds), limits)?);
            }
            None => survey_tree(&mut products, csr, width, (base, options.batches), facts)?,
        }
        let compared = Compared {
            device,
            csr,
            checksum: matrix.checksum,
            width,
            options: PeerOptions { sampling: options.sampling, seed: options.seed, dense_limit_bytes: 0 },
        };
        facts.cusparse = self.peers.sparse(options.precision, &compared, products.operands());
        let wrong = u64::from(facts.tried.iter().any(TriedFacts::is_wrong));
        Ok(Measured { aside: Tally { wrong, ..Tally::default() }, ..Measured::default() })
    }
}

/// Every division of the tree, and row-split.
fn survey_tree(
    products: &mut Products<'_, f32>,
    csr: &Csr<f32>,
    width: usize,
    (base, batches): (SweepPath, u32),
    facts: &mut TunedFacts,
) -> Result<(), BenchError> {
    let default = default_path(products, csr, width, base)?;
    let tried = survey(products, &grid(base, width), batches);
    let of_default = tried.iter().find(|tried: &&Tried<SweepPath>| tried.candidate == default);
    facts.default = Some(default.to_string());
    facts.default_us = of_default.and_then(|tried| tried.outcome.median_us());
    facts.tried = tried.iter().map(TriedFacts::of).collect();
    facts.seconds = products.elapsed().as_secs_f64();
    Ok(())
}
