//! Arguments of `windrow-bench ablation`, and their way to the suite's options.

use std::io::Write;

use clap::Args;
use windrow::Device;

use super::part::Part;
use super::summary::summarise;
use super::{Ablation, AblationRecord, Options};
use crate::program::{CacheArguments, Command, Common, Failure, MatrixArguments, progress};
use crate::suites::matrices::Values;

/// What the components of a hybrid product are worth, each against leaving it out.
///
/// Parts: thresholds (partitions, and what they leave in the tiles), vectors (the same by column vectors), stream
/// (windows dealt out evenly against a warp for each), printed (the tile stream against what RSH-SpMM prints), reorder
/// (orders, and the stages of the similarity order), bytes (formats), hybrid (against all rows on one path),
/// determinism (runs bit by bit beside other work, and the cost of a fixed order of sums). On the CPU times are
/// skipped, and counted.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Parts to compare; all of them, unless given.
    #[arg(
        long,
        value_name = "PART",
        value_delimiter = ',',
        default_value = "thresholds,vectors,stream,printed,reorder,bytes,hybrid,determinism"
    )]
    parts: Vec<Part>,
    /// Columns of B: each part is compared for each of these.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128")]
    widths: Vec<usize>,
    /// Values of the matrices: random ones in [0, 1), or those of the file.
    #[arg(long, default_value_t = Values::Random)]
    values: Values,
    /// Runs that must give the same bits.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..))]
    runs: u32,
}

impl Command for Arguments {
    type Suite = Ablation;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Ablation, Failure> {
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            parts: self.parts.clone(),
            widths: self.widths.clone(),
            values: self.values,
            seed: self.common.seed,
            sampling: self.common.sampling(),
            l2: self.cache.states(),
            runs: self.runs,
            progress,
        };
        Ok(Ablation::open(device, options))
    }

    fn line(record: &AblationRecord) -> String {
        match &record.error {
            Some(error) => format!("{}: {error}", record.case),
            None => record.case.clone(),
        }
    }

    fn summarise(&self, records: &[AblationRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::suites::testing::parse_suite;

    #[test]
    fn arguments_name_parts() {
        let arguments: Arguments = parse_suite(&["a.mtx"]);
        assert_eq!((arguments.parts.as_slice(), arguments.widths.as_slice()), (&Part::ALL[..], &[128][..]));
        assert_eq!((arguments.values, arguments.runs), (Values::Random, 50));
        let arguments: Arguments = parse_suite(&["--parts", "bytes,hybrid", "--synthetic", "rmat17"]);
        assert_eq!(arguments.parts, [Part::Bytes, Part::Hybrid]);
        for wrong in [["--parts", "all"], ["--runs", "1"], ["--values", "ones"]] {
            let words = ["windrow-bench", "ablation"].into_iter().chain(wrong);
            assert!(crate::program::Arguments::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }
}
