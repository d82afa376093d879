//! Arguments of `windrow-bench preprocess`, and their way to the suite's options.

use std::io::Write;

use clap::Args;
use windrow::Device;

use super::{Found, Options, Preprocess, PreprocessRecord, summarise};
use crate::program::{Command, Common, Failure, MatrixArguments, progress};
use crate::suites::matrices::Values;

/// Plans made on the CPU against plans made on the GPU, whose arrays must be the same, byte for byte.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Columns of B that plans are made for.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128")]
    widths: Vec<usize>,
    /// Values of the matrices: random ones in [0, 1), or those of the file.
    #[arg(long, default_value_t = Values::Random)]
    values: Values,
}

impl Command for Arguments {
    type Suite = Preprocess;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Preprocess, Failure> {
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            widths: self.widths.clone(),
            values: self.values,
            seed: self.common.seed,
            sampling: self.common.sampling(),
            progress,
        };
        Ok(Preprocess::open(device, options))
    }

    fn line(record: &PreprocessRecord) -> String {
        match (&record.error, &record.facts.facts) {
            (Some(error), _) => format!("{}: {error}", record.case),
            (None, Some(Found::Preprocess(facts))) => {
                let differs = facts.differs.as_ref().map(|name| format!(", {name} differs"));
                let (cpu, gpu) = (facts.cpu.us, facts.gpu.us);
                format!("{}: CPU {cpu:.0} µs, GPU {gpu:.0} µs{}", record.case, differs.unwrap_or_default())
            }
            (None, None) => record.case.clone(),
        }
    }

    fn summarise(&self, records: &[PreprocessRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}
