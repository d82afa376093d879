//! Arguments of `windrow-bench tensor`, and their way to the suite's options.

use std::io::Write;

use clap::Args;
use windrow::{AtomicParallelism, Determinism, Device};

use super::source::{SyntheticTensor, TensorSource};
use super::summary::summarise;
use super::{Options, Tensor, TensorRecord};
use crate::measure::TensorOperation;
use crate::program::{CacheArguments, Command, Common, Failure, progress};

/// MTTKRP and TTM of sparse tensors in f32: FROSTT .tns files, also behind gzip, or made-up tensors.
///
/// Measured are what the library chooses, points of segment reduction in a fixed order and in any, and, for comparison,
/// a kernel that adds every product to the result atomically.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: CacheArguments,
    /// Made-up tensors: nell2-like, flickr-like (shapes of FROSTT tensors, indices by power laws), each also :DRAWS,
    /// and IxJxK:DRAWS (uniform).
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "summarise")]
    synthetic: Vec<SyntheticTensor>,
    /// Products to measure: mttkrp, ttm or both.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "mttkrp,ttm")]
    operations: Vec<TensorOperation>,
    /// Modes, from 0, that products are for.
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "0")]
    modes: Vec<usize>,
    /// Columns of the dense matrices.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8,16,32,64")]
    widths: Vec<usize>,
    /// Points of Sgap's space, separated by semicolons, instead of a choice for each width.
    #[arg(long, value_name = "POINTS", value_delimiter = ';')]
    points: Vec<AtomicParallelism>,
    /// How what is cut is added: run-to-run (in a fixed order), fast (atomically).
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "run-to-run,fast")]
    determinism: Vec<Determinism>,
}

impl Command for Arguments {
    type Suite = Tensor;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        if self.common.files.is_empty() && self.synthetic.is_empty() {
            return Err(Failure::usage("no tensor: name files, or made-up ones with --synthetic"));
        }
        match self.modes.iter().find(|&&mode| mode > 2) {
            Some(mode) => Err(Failure::usage(format!("mode {mode}: a tensor has modes 0, 1 and 2"))),
            None => Ok(()),
        }
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Tensor, Failure> {
        let files = self.common.files.iter().cloned().map(TensorSource::File);
        let options = Options {
            sources: files.chain(self.synthetic.iter().copied().map(TensorSource::Synthetic)).collect(),
            operations: self.operations.clone(),
            modes: self.modes.clone(),
            widths: self.widths.clone(),
            points: self.points.clone(),
            determinisms: self.determinism.clone(),
            seed: self.common.seed,
            sampling: self.common.sampling(),
            l2: self.cache.states(),
            progress,
        };
        Ok(Tensor::open(device, options))
    }

    fn line(record: &TensorRecord) -> String {
        let facts = &record.facts;
        match (record.us(), facts.gflops, &record.error) {
            (Some(us), Some(gflops), _) => format!("{}: {us:.1} µs, {gflops:.1} GFLOP/s", record.case),
            (.., error) => format!("{}: {}", record.case, error.as_deref().unwrap_or("no time")),
        }
    }

    fn summarise(&self, records: &[TensorRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}
