//! Many matrices and widths: each tuned, or every division of the tree timed for a fit.

use std::io;

use windrow::{Algorithm, Csr, Determinism, Device, Precision};

use super::products::Products;
use super::record::{TUNING_SCHEMA, TriedFacts, TuningRecord};
use super::search::{Limits, Outcome, Subject, survey};
use super::{default_path, space, tune_products};
use crate::error::BenchError;
use crate::sweep::{
    Compared, DeviceFacts, Matrix, MatrixFacts, MatrixSource, Peers, SweepOptions, SweepPath, SweepSummary,
    load_all,
};

/// What a tuning sweep measures, and how.
#[derive(Debug, Clone)]
pub struct TuneSweepOptions {
    /// Type of the values and of `B`.
    pub precision: Precision,
    /// Whether two runs must give the same bits.
    pub determinism: Determinism,
    /// How each case is searched; `None` measures every division of the tree instead, and searches nothing.
    pub limits: Option<Limits>,
    /// Batches of each division, where nothing is searched.
    pub batches: u32,
    /// Widths, seeds, peers and the rest, as sweeps have them; of the paths nothing is read.
    pub sweep: SweepOptions,
}

/// Tunes every matrix in every width and hands each record to `emit` as soon as it is there.
///
/// # Errors
/// The first error of `emit`.
pub fn tune_sweep(
    device: &Device,
    sources: &[MatrixSource],
    options: &TuneSweepOptions,
    emit: &mut dyn FnMut(&TuningRecord) -> io::Result<()>,
) -> io::Result<SweepSummary> {
    let mut summary = SweepSummary::default();
    let sweep = &options.sweep;
    let peers = Peers::load(device, sweep.peers);
    let matrices = load_all(sources, sweep.values, sweep.seed, sweep.progress);
    for (source, matrix) in sources.iter().zip(&matrices) {
        let named = MatrixFacts::named(source.name());
        let Matrix { csr, checksum } = match matrix {
            Ok(matrix) => matrix,
            Err(error) => {
                (summary.cases, summary.unreadable) = (summary.cases + 1, summary.unreadable + 1);
                let blank = blank(device, options, named, 0);
                emit(&TuningRecord { error: Some(error.to_string()), ..blank })?;
                continue;
            }
        };
        let facts = named.of(csr, *checksum);
        for &width in &sweep.widths {
            summary.cases += 1;
            let blank = blank(device, options, facts.clone(), width);
            let case = Compared { device, csr, checksum: *checksum, width, options: sweep };
            let (record, wrong) = match measure(&case, &peers, options, blank.clone()) {
                Ok(record) => {
                    let wrong = record.tried.iter().any(is_wrong);
                    (record, wrong)
                }
                Err(error) => {
                    let wrong = matches!(error, BenchError::Wrong(_));
                    (TuningRecord { error: Some(error.to_string()), ..blank }, wrong)
                }
            };
            summary.wrong += u64::from(wrong);
            summary.errors += u64::from(record.error.is_some() && !wrong);
            emit(&record)?;
        }
    }
    Ok(summary)
}

/// Whether a path ran and its result was wrong.
fn is_wrong(tried: &TriedFacts) -> bool {
    tried.error.as_ref().is_some_and(|error| error.starts_with("the result is wrong"))
}

fn measure(
    case: &Compared<'_>,
    peers: &Peers,
    options: &TuneSweepOptions,
    blank: TuningRecord,
) -> Result<TuningRecord, BenchError> {
    let Compared { device, csr, checksum, width, .. } = *case;
    let TuneSweepOptions { precision, determinism, .. } = *options;
    let seeds = (options.sweep.seed, checksum);
    let mut products = Products::new((device, csr), width, precision, seeds)?;
    let record = match &options.limits {
        Some(limits) => {
            let base = SweepPath { determinism, ..SweepPath::new(Algorithm::Auto, precision) };
            let seeds = space::seeds(base, csr, width, device.kind());
            blank.with(&tune_products(&mut products, csr, width, (base, &seeds), limits)?)
        }
        None => survey_tree(&mut products, csr, width, options, blank)?,
    };
    let cusparse = peers.sparse(precision, case, products.operands());
    Ok(TuningRecord { cusparse, ..record })
}

/// Every division of the tree, and row-split.
fn survey_tree(
    products: &mut Products<'_>,
    csr: &Csr<f32>,
    width: usize,
    options: &TuneSweepOptions,
    blank: TuningRecord,
) -> Result<TuningRecord, BenchError> {
    let TuneSweepOptions { precision, determinism, batches, .. } = *options;
    let base = SweepPath { determinism, ..SweepPath::new(Algorithm::Auto, precision) };
    let default = default_path(products, csr, width, base)?;
    let grid = space::grid(precision, width).into_iter().map(|path| SweepPath { determinism, ..path });
    let tried = survey(products, &grid.collect::<Vec<_>>(), batches);
    let of_default = tried.iter().find(|tried| tried.candidate == default);
    Ok(TuningRecord {
        default: Some(default.to_string()),
        default_us: of_default.and_then(|tried| Outcome::median_us(&tried.outcome)),
        tried: tried.iter().map(TriedFacts::of).collect(),
        seconds: products.elapsed().as_secs_f64(),
        ..blank
    })
}

fn blank(device: &Device, options: &TuneSweepOptions, matrix: MatrixFacts, width: usize) -> TuningRecord {
    TuningRecord {
        schema: TUNING_SCHEMA,
        revision: options.sweep.revision.clone(),
        device: DeviceFacts::of(device),
        matrix,
        values: options.sweep.values.to_string(),
        width,
        precision: options.precision.to_string(),
        determinism: options.determinism.to_string(),
        default: None,
        default_us: None,
        winner: None,
        winner_us: None,
        families: Vec::new(),
        tried: Vec::new(),
        ended: None,
        seconds: 0.0,
        cusparse: None,
        error: None,
    }
}
