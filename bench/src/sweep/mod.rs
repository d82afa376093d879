//! Matrices × widths × paths: each case planned, run on fresh numbers, timed, verified, and reported at once.
//!
//! ```
//! use windrow::{Csr, Device};
//! use windrow_bench::{MatrixSource, Sampling, SweepOptions, SweepPath, sweep};
//!
//! let matrix = MatrixSource::InMemory { name: "identity".to_owned(), csr: Csr::identity(100)? };
//! let options = SweepOptions {
//!     widths: vec![32],
//!     paths: vec!["row-split-f32".parse::<SweepPath>()?],
//!     sampling: Sampling::SMOKE,
//!     ..SweepOptions::default()
//! };
//! let mut lines = Vec::new();
//! let summary = sweep(&Device::cpu(), &[matrix], &options, &mut |record| {
//!     lines.push(record.to_json_line());
//!     Ok(())
//! })?;
//! assert_eq!((summary.cases, summary.failed()), (1, 0));
//! assert!(lines[0].contains("\"median_us\""));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compare;
mod path;
mod record;
mod source;
mod table;

use std::collections::HashMap;
use std::io;
use std::time::Instant;

use rayon::prelude::*;
use windrow::reorder::Method;
use windrow::{Csr, Device};

use crate::error::BenchError;
use crate::operands::pattern_checksum;
use crate::orders::{FoundOrder, OrderTask, find_orders};
use crate::product::{Measured, Operands, Product};
use crate::roofline::DeviceRates;
use crate::timing::Sampling;
pub(crate) use compare::{Compared, Peers};

pub(crate) use path::SCHEDULES;
pub use path::SweepPath;
pub use record::{
    CheckFacts, DeviceFacts, MatrixFacts, OrderFacts, PeerAttempt, PeerFacts, PlanFacts, Record, SCHEMA,
    SchedulingFacts, TimeFacts,
};
pub(crate) use source::file_name;
pub use source::{MatrixSource, Values};
pub use table::Table;

/// What a sweep measures, and how.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// Columns of `B`.
    pub widths: Vec<usize>,
    /// Algorithms and precisions.
    pub paths: Vec<SweepPath>,
    /// Where values of matrices come from.
    pub values: Values,
    /// Seed of the values of matrices that have none, and of `B`.
    pub seed: u64,
    /// How much is measured.
    pub sampling: Sampling,
    /// Which windrow this is, for the records.
    pub revision: String,
    /// Rates of the device for the roofline; `None` leaves it out.
    pub rates: Option<DeviceRates>,
    /// Whether cuSPARSE and cuBLAS are measured beside, on a CUDA device.
    pub peers: bool,
    /// Largest dense `A` in bytes of f32 for which cuBLAS multiplies the dense matrices.
    pub dense_limit_bytes: u64,
    /// Is told what is done before the first measurement.
    pub progress: fn(&str),
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            widths: vec![32, 64, 128, 256],
            paths: SweepPath::DEFAULT.to_vec(),
            values: Values::File,
            seed: 1,
            sampling: Sampling::default(),
            revision: revision(),
            rates: None,
            peers: true,
            dense_limit_bytes: 256 << 20,
            progress: |_| {},
        }
    }
}

/// Which windrow this is: `WINDROW_REVISION` of the environment, or of the build (`git describe`), or the version.
#[must_use]
pub fn revision() -> String {
    let built = option_env!("WINDROW_REVISION").unwrap_or(concat!("v", env!("CARGO_PKG_VERSION")));
    std::env::var("WINDROW_REVISION").unwrap_or_else(|_| built.to_owned())
}

/// How a sweep went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepSummary {
    /// Records written, those of failed cases included.
    pub cases: u64,
    /// Cases with a wrong result.
    pub wrong: u64,
    /// Cases that did not run.
    pub errors: u64,
    /// Matrices that could not be had.
    pub unreadable: u64,
}

impl SweepSummary {
    /// Cases without a time.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.wrong + self.errors + self.unreadable
    }
}

/// Measures every matrix in every width on every path and hands each record to `emit` as soon as it is measured.
///
/// First all matrices are read and all orders found, on all cores: nothing but the measuring itself runs later. A case
/// is: a plan of the width; `B` uniform in `[−1, 1)`, the same for all cases of a matrix, width and type; `C` full of
/// NaN; the product timed; what the last call left in `C` compared with an f64 reference. A case that fails has its
/// error in its record, and the sweep goes on. On a CUDA device the peers are measured once for each matrix and width,
/// before the paths.
///
/// # Errors
/// The first error of `emit`.
pub fn sweep(
    device: &Device,
    sources: &[MatrixSource],
    options: &SweepOptions,
    emit: &mut dyn FnMut(&Record) -> io::Result<()>,
) -> io::Result<SweepSummary> {
    let mut summary = SweepSummary::default();
    let peers = Peers::load(device, options.peers);
    let matrices = load_all(sources, options.values, options.seed, options.progress);
    let orders = Orders::find(&matrices, options);
    for (at, (source, matrix)) in sources.iter().zip(&matrices).enumerate() {
        let blank = Record::blank(device, options, source.name());
        let Matrix { csr, checksum } = match matrix {
            Ok(matrix) => matrix,
            Err(error) => {
                summary.cases += 1;
                summary.unreadable += 1;
                emit(&Record { error: Some(error.to_string()), ..blank })?;
                continue;
            }
        };
        let blank = Record { matrix: blank.matrix.of(csr, *checksum), ..blank };
        for &width in &options.widths {
            let mut operands = Operands::new(device, csr, width, (options.seed, *checksum));
            let compared = match &mut operands {
                Ok(operands) => {
                    let case = Compared { device, csr, checksum: *checksum, width, options };
                    peers.compare(&case, operands)
                }
                Err(_) => (Vec::new(), Vec::new()),
            };
            for &path in &options.paths {
                let mut record = Record { width, path: path.to_string(), ..blank.clone() };
                (record.cusparse, record.cublas) = compared.clone();
                let order = path.order.and_then(|method| orders.get(at, method));
                record.order =
                    path.order.zip(order).map(|(method, order)| OrderFacts::of(method.name(), order));
                let permutation = order.map(FoundOrder::permutation);
                let product = Product { device, csr, width, path, order: permutation, partition: None };
                if let Err((error, is_wrong)) = run(&product, &mut operands, options, &mut record) {
                    summary.wrong += u64::from(is_wrong);
                    summary.errors += u64::from(!is_wrong);
                    record.error = Some(error);
                }
                summary.cases += 1;
                emit(&record)?;
            }
        }
    }
    Ok(summary)
}

/// Fills in what is known; after an error, which is returned with whether a result was wrong, what was known until
/// then.
fn run(
    product: &Product<'_>,
    operands: &mut Result<Operands<'_>, BenchError>,
    options: &SweepOptions,
    record: &mut Record,
) -> Result<(), (String, bool)> {
    let operands = operands.as_mut().map_err(|error| (error.to_string(), false))?;
    let mut measured = Measured::default();
    let result = product.measure(operands, options.sampling, &mut measured);
    record.check = measured.check;
    if let Some(report) = &measured.report {
        record.plan = Some(PlanFacts::of(report));
        let rates = options.rates.as_ref();
        record.time = measured.timing.map(|timing| TimeFacts::of(timing, report, product.width, rates));
    }
    result.map_err(|error| (error.to_string(), matches!(error, BenchError::Wrong(_))))
}

/// A matrix that was read.
pub(crate) struct Matrix {
    pub(crate) csr: Csr<f32>,
    pub(crate) checksum: u64,
}

/// Reads all matrices, in parallel.
pub(crate) fn load_all(
    sources: &[MatrixSource],
    values: Values,
    seed: u64,
    progress: fn(&str),
) -> Vec<Result<Matrix, BenchError>> {
    let started = Instant::now();
    let load = |source: &MatrixSource| {
        let csr = source.load(values, seed)?;
        Ok(Matrix { checksum: pattern_checksum(&csr), csr })
    };
    let matrices: Vec<_> = sources.par_iter().map(load).collect();
    progress(&format!("{} matrices read in {:.1} s", matrices.len(), started.elapsed().as_secs_f64()));
    matrices
}

/// The orders that paths ask for, by matrix and method.
struct Orders(HashMap<(usize, Method), FoundOrder>);

impl Orders {
    fn find(matrices: &[Result<Matrix, BenchError>], options: &SweepOptions) -> Self {
        let (mut names, mut tasks) = (Vec::new(), Vec::new());
        for (at, matrix) in matrices.iter().enumerate() {
            let Ok(Matrix { csr, .. }) = matrix else { continue };
            for reordering in options.paths.iter().filter_map(SweepPath::reordering) {
                let name = (at, reordering.method);
                if !names.contains(&name) {
                    names.push(name);
                    tasks.push(OrderTask { csr, options: reordering });
                }
            }
        }
        let found = find_orders(&tasks, |task, order| {
            let csr = tasks[task].csr;
            (options.progress)(&format!(
                "{} order of {} entries in {:.1} s on {} threads",
                names[task].1,
                csr.nnz(),
                order.seconds,
                order.threads
            ));
        });
        Self(names.into_iter().zip(found).collect())
    }

    fn get(&self, matrix: usize, method: Method) -> Option<&FoundOrder> {
        self.0.get(&(matrix, method))
    }
}

#[cfg(test)]
mod tests;
