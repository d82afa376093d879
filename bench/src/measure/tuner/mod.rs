//! The tuner: times the ways to one product on one device, every result checked, and says which is quickest.
//!
//! ```
//! use std::time::Duration;
//! use windrow::{Csr, Device, SpmmOptions};
//! use windrow_bench::measure::{Limits, TuneRequest, tune_product};
//!
//! let (device, csr) = (Device::cpu(), Csr::<f32>::identity(100)?);
//! let limits = Limits { budget: Duration::from_millis(50), ..Limits::default() };
//! let options = SpmmOptions { width: 4, ..SpmmOptions::default() };
//! let request = TuneRequest { options, limits, ..TuneRequest::default() };
//! let tuning = tune_product(&device, &csr, &request)?;
//! assert!(tuning.found.speed_up() >= 1.0 && tuning.found.tried[0].candidate == tuning.default);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod products;
mod search;
mod space;

use std::fmt;
use std::time::Duration;

use windrow::internal::{Division, GroupThresholds, RowLengths};
use windrow::reorder::{self, Method};
use windrow::{Algorithm, Csr, Device, Permutation, SpmmOptions, Value};

use crate::measure::error::BenchError;
use crate::measure::operands::pattern_checksum;
use crate::measure::path::SweepPath;
pub(crate) use products::Products;
pub use search::{Ended, Found, Limits, Outcome, Tried};
pub(crate) use search::{Subject, survey};
pub use space::PathFamily;
pub(crate) use space::{grid, seeds};

/// What is about to be timed, and the time since the search began.
pub type Telling<'a> = &'a dyn Fn(&SweepPath, Duration);

/// What is tuned, and for how long.
#[derive(Clone, Copy)]
pub struct TuneRequest<'a> {
    /// What all candidates are told, and what the default is: width, precision, determinism and the like. Candidates
    /// say more.
    pub options: SpmmOptions,
    /// An order of rows that is tried besides the matrix's own, and what it is called.
    pub order: Option<(Method, &'a Permutation)>,
    /// Options that are tried too: those that won before.
    pub also: Option<SpmmOptions>,
    /// How long and how thoroughly.
    pub limits: Limits,
    /// Seed of the random elements of `B`.
    pub seed: u64,
    /// Whom to tell what is tried.
    pub tell: Option<Telling<'a>>,
}

impl fmt::Debug for TuneRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, order, also, limits, seed, tell: _ } = self;
        let mut fields = f.debug_struct("TuneRequest");
        fields.field("options", options).field("order", order).field("also", also).field("limits", limits);
        fields.field("seed", seed).finish_non_exhaustive()
    }
}

impl Default for TuneRequest<'_> {
    fn default() -> Self {
        let (options, limits) = (SpmmOptions::DEFAULT, Limits::default());
        Self { options, order: None, also: None, limits, seed: 1, tell: None }
    }
}

/// The default of one product, what was tried beside it, and what won.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductTuning {
    /// What the plan takes unless told.
    pub default: SweepPath,
    /// What was tried, and who won.
    pub found: Found<SweepPath>,
}

impl ProductTuning {
    /// The quickest path of each family that has a time, the quickest family first.
    #[must_use]
    pub fn best_of_families(&self) -> Vec<(PathFamily, SweepPath, f64)> {
        let mut best: Vec<(PathFamily, SweepPath, f64)> = Vec::new();
        for Tried { candidate, outcome } in &self.found.tried {
            let (family, Some(us)) = (PathFamily::of(candidate), outcome.median_us()) else { continue };
            match best.iter_mut().find(|(of, ..)| *of == family) {
                Some(known) if us < known.2 => *known = (family, *candidate, us),
                Some(_) => {}
                None => best.push((family, *candidate, us)),
            }
        }
        best.sort_by(|a, b| a.2.total_cmp(&b.2));
        best
    }
}

/// Times the default, one candidate of every family, and what is near the quickest; then the quickest once more beside
/// the default. Candidates that are far behind their family are given up after one batch; every other result is
/// compared with the f64 reference before its time counts.
///
/// # Errors
/// If the default cannot be planned or run, or is wrong. Other candidates that are so are in the list, with the reason.
pub fn tune_product<V: Value>(
    device: &Device,
    csr: &Csr<V>,
    request: &TuneRequest<'_>,
) -> Result<ProductTuning, BenchError> {
    let TuneRequest { options, order, also, limits, seed, tell } = *request;
    let SpmmOptions { width, precision, .. } = options;
    let products = Products::new((device, csr), width, precision, (seed, pattern_checksum(csr)))?;
    let order = order.map(|(method, order)| (reorder::Options { method, ..Default::default() }, order));
    let mut products = products.ordered(order).telling(tell);
    let base = SweepPath::from(options);
    let mut seeds = space::seeds(base, csr, width, device.kind());
    seeds.splice(0..0, also.map(SweepPath::from));
    if let Some((found_by, _)) = order {
        let unordered = seeds.iter().filter(|path| path.options.parallelism.is_none());
        let ordered = unordered.map(|path| SpmmOptions { reorder: Some(found_by), ..path.options });
        let ordered: Vec<SweepPath> = ordered.map(SweepPath::from).collect();
        seeds.extend(ordered);
    }
    tune_products(&mut products, csr, width, (base, &seeds), &limits)
}

pub(crate) fn tune_products<V: Value>(
    products: &mut Products<'_, V>,
    csr: &Csr<V>,
    width: usize,
    (base, seeds): (SweepPath, &[SweepPath]),
    limits: &Limits,
) -> Result<ProductTuning, BenchError> {
    let default = default_path(products, csr, width, base)?;
    let found = search::search(products, default, seeds, limits)?;
    Ok(ProductTuning { default, found })
}

/// What the plan takes unless told, named.
pub(crate) fn default_path<V: Value>(
    products: &mut Products<'_, V>,
    csr: &Csr<V>,
    width: usize,
    base: SweepPath,
) -> Result<SweepPath, BenchError> {
    let report = products.plan(base)?.report();
    let (algorithm, cpu_tasks) = (report.algorithm, report.cpu_tasks);
    let taken = SpmmOptions { algorithm, cpu_tasks, ..base.options };
    if algorithm != Algorithm::SegmentGroup {
        return Ok(taken.into());
    }
    let Division { point, launch, .. } = RowLengths::of(csr).division(width, &GroupThresholds::FITTED);
    Ok(SpmmOptions { parallelism: Some(point), group_launch: Some(launch), ..taken }.into())
}
