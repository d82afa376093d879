//! Arguments of `windrow-bench attention`, and their way to the suite's options.

use std::io::Write;

use clap::Args;
use windrow::Device;

use super::summary::summarise;
use super::{AttendedRecord, Attention, Options};
use crate::measure::attended::AttendedPath;
use crate::program::{CacheArguments, Command, Common, Failure, MatrixArguments, progress};

/// Attention over the entries of matrices: matrices, columns of a head and paths.
///
/// A path is an algorithm (auto, rows, entries, columns) and a precision, such as auto-f16; +heads:8 has eight heads,
/// +additive the scores of GAT instead of products, +gradients times the gradients instead of the result.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Columns of a head.
    #[arg(long, value_name = "D", value_delimiter = ',', default_value = "64")]
    columns: Vec<usize>,
    /// Algorithms, precisions and options; unless told auto in f16 and f32, one head and eight, with products and with
    /// sums, the result and the gradients.
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    paths: Vec<AttendedPath>,
}

impl Command for Arguments {
    type Suite = Attention;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Attention, Failure> {
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            columns: self.columns.clone(),
            paths: if self.paths.is_empty() { AttendedPath::standard() } else { self.paths.clone() },
            seed: self.common.seed,
            sampling: self.common.sampling(),
            l2: self.cache.states(),
            progress,
        };
        Ok(Attention::open(device, options))
    }

    fn line(record: &AttendedRecord) -> String {
        let facts = &record.facts;
        let us = record.us().map_or_else(|| "no time".to_owned(), |us| format!("{us:.1} µs"));
        let error = record.error.as_ref().map_or_else(String::new, |error| format!("  FAILED: {error}"));
        format!("{} {} {}: {us}{error}", facts.matrix.name, facts.columns, facts.path)
    }

    fn summarise(&self, records: &[AttendedRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}
