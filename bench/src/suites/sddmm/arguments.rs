//! Arguments of `windrow-bench sddmm`, and their way to the suite's options.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use windrow::Device;

use super::summary::summarise;
use super::{Options, SampledRecord, Sddmm};
use crate::measure::sampled::SampledPath;
use crate::program::{CacheArguments, Command, Common, Failure, MatrixArguments, progress};
use crate::suites::spmm::read_rates;

/// Sampled dense-dense products: patterns, inner dimensions and paths.
///
/// A path is an algorithm (auto, tiles, entries, groups, row-panels, hybrid) and a precision, such as auto-f16;
/// hybrid-f16:24 keeps tiles of at least 24 entries on Tensor Cores, +sequential, +multi-stream and +thresholds say how
/// its parts follow each other; +scale multiplies by the values, +scan finds positions by scanning masks, +group:8x4 is
/// 8 threads for each of 4 entries.
///
/// On a CUDA device cuSPARSE's SDDMM is measured beside, with f32 and f16 operands, beside paths of f64 with f64
/// operands.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Inner dimensions: columns of X and Y.
    #[arg(long, value_name = "D", value_delimiter = ',', default_value = "32,64,128,256")]
    inners: Vec<usize>,
    /// Algorithms, precisions and options.
    #[arg(long, value_name = "PATH", value_delimiter = ',', default_value = "auto-f16,auto-tf32,auto-f32")]
    paths: Vec<SampledPath>,
    /// Rates of the device for the roofline, as the suite spmm writes them.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    /// Leave out cuSPARSE's SDDMM.
    #[arg(long)]
    no_peers: bool,
}

impl Command for Arguments {
    type Suite = Sddmm;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Sddmm, Failure> {
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            inners: self.inners.clone(),
            paths: self.paths.clone(),
            seed: self.common.seed,
            sampling: self.common.sampling(),
            l2: self.cache.states(),
            rates: self.rates.as_deref().map(read_rates).transpose()?,
            peers: !self.no_peers,
            progress,
        };
        Ok(Sddmm::open(device, options))
    }

    fn line(record: &SampledRecord) -> String {
        let facts = &record.facts;
        let us = record.us().map_or_else(|| "no time".to_owned(), |us| format!("{us:.1} µs"));
        let error = record.error.as_ref().map_or_else(String::new, |error| format!("  FAILED: {error}"));
        format!("{} {} {}: {us}{error}", facts.matrix.name, facts.inner, facts.path)
    }

    fn summarise(&self, records: &[SampledRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}
