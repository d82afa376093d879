//! Sparse-dense products: matrices × widths × paths, beside cuSPARSE and cuBLAS, or `sprs` on the CPU.
//!
//! First all matrices are read and all orders found, on all cores: nothing but the measuring itself runs later. A case
//! is: a plan of the width; `B` uniform in `[−1, 1)`, the same for all cases of a matrix, width and type; `C` full of
//! NaN; the product timed; what the last call left in `C` compared with an f64 reference. The peers of the device are
//! measured once for each matrix and width, before the paths.

mod arguments;
pub(crate) mod facts;
mod orders;
mod summary;
mod table;

#[cfg(test)]
pub(crate) mod tests;

use windrow::Device;

use super::compare::{Beside, Compared, PeerOptions, Peers, peer_precisions};
use super::facts::TimeFacts;
use super::kept::Kept;
use super::matrices::{Case, Matrices, MatrixSource, Place, Values};
use super::record::Record;
use super::{Measured, Suite};
use crate::measure::orders::FoundOrder;
use crate::measure::product::{Operands, Product};
use crate::measure::{BenchError, DeviceRates, L2, Sampling, SweepPath};
pub(crate) use arguments::{Arguments, read_rates};
use facts::{OrderFacts, PlanFacts, SpmmFacts};
use orders::Orders;

/// What is told of a sparse-dense product.
pub(crate) type SpmmRecord = Record<SpmmFacts>;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    pub(crate) widths: Vec<usize>,
    pub(crate) paths: Vec<SweepPath>,
    /// Where values of matrices come from.
    pub(crate) values: Values,
    /// Seed of the values of matrices that have none, and of `B`.
    pub(crate) seed: u64,
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// What the L2 cache holds before each timed product: each case is measured with each.
    pub(crate) l2: Vec<L2>,
    /// Rates of the device for the roofline; `None` leaves it out.
    pub(crate) rates: Option<DeviceRates>,
    /// Whether peers are measured beside: cuSPARSE and cuBLAS on a CUDA device, `sprs` on the CPU.
    pub(crate) peers: bool,
    /// Largest dense `A` in bytes of f32 for which cuBLAS multiplies the dense matrices.
    pub(crate) dense_limit_bytes: u64,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

/// Largest dense `A` that cuBLAS multiplies unless told.
const DENSE_LIMIT_BYTES: u64 = 256 << 20;

pub(crate) struct Spmm {
    device: Device,
    options: Options,
    matrices: Matrices,
    orders: Orders,
    peers: Peers,
    shared: Kept<Place, Shared>,
}

/// What the cases of one matrix, width and state of the cache share.
struct Shared {
    operands: Operands,
    beside: Beside,
}

impl Spmm {
    /// Reads all matrices and finds all orders.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let matrices = Matrices::load(&options.sources, options.values, options.seed, options.progress);
        let orders = Orders::find(&matrices, &options.paths, options.progress);
        let peers = Peers::load(device, options.peers);
        Self { device: device.clone(), options, matrices, orders, peers, shared: Kept::default() }
    }
}

impl Suite for Spmm {
    const NAME: &'static str = "spmm";
    type Case = Case<SweepPath>;
    type Facts = SpmmFacts;

    fn cases(&self) -> Vec<Self::Case> {
        self.matrices.cases(&self.options.widths, &self.options.l2, &self.options.paths)
    }

    fn name(&self, case: &Self::Case) -> String {
        self.matrices.name(case)
    }

    fn l2(&self, case: &Self::Case) -> L2 {
        case.l2
    }

    fn facts(&self, case: &Self::Case) -> SpmmFacts {
        let wanted = case.path.and_then(|path| path.options.reorder);
        let order = wanted.zip(wanted.and_then(|wanted| self.orders.get(case.matrix, &wanted)));
        SpmmFacts {
            matrix: self.matrices.facts(case),
            values: self.options.values.to_string(),
            width: case.width,
            path: case.path.map_or_else(String::new, |path| path.to_string()),
            order: order.map(|(wanted, order)| OrderFacts::of(wanted.method.name(), order)),
            plan: None,
            cusparse: Vec::new(),
            cublas: Vec::new(),
            sprs: Vec::new(),
        }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut SpmmFacts) -> Result<Measured, BenchError> {
        let (matrix, path) = self.matrices.of(case)?;
        let (csr, width, options, device) = (&matrix.csr, case.width, &self.options, &self.device);
        let sampling = options.sampling.with_l2(case.l2);
        let shared = self.shared.get(case.place(), || {
            let mut operands = Operands::new(device, csr, width, (options.seed, matrix.checksum));
            let compared = Compared {
                device,
                csr,
                checksum: matrix.checksum,
                width,
                options: PeerOptions {
                    sampling,
                    seed: options.seed,
                    dense_limit_bytes: options.dense_limit_bytes,
                },
            };
            let precisions = peer_precisions(options.paths.iter().map(|path| path.options.precision));
            let beside = self.peers.compare(&compared, &mut operands, &precisions);
            Ok::<_, BenchError>(Shared { operands, beside })
        })?;
        let Beside { cusparse, cublas, sprs } = shared.beside.clone();
        (facts.cusparse, facts.cublas, facts.sprs) = (cusparse, cublas, sprs);
        let order = path.options.reorder.and_then(|wanted| self.orders.get(case.matrix, &wanted));
        let order = order.map(FoundOrder::permutation);
        let product = Product { device, csr, width, path, order, partition: None };
        let mut report = None;
        let result = product.measure(&mut shared.operands, sampling, &mut report);
        facts.plan = report.as_ref().map(PlanFacts::of);
        let (found, timing) = result?;
        let rates = options.rates.as_ref();
        let time =
            report.map_or_else(|| timing.into(), |report| TimeFacts::of(timing, &report, width, rates));
        Measured::right(found, time)
    }
}
