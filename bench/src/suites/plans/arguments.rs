//! Arguments of `windrow-bench plans`, and their way to the suite's options.

use std::io::Write;

use clap::Args;
use windrow::Device;

use super::{Options, Plans, PlansRecord, summarise};
use crate::measure::SweepPath;
use crate::program::{Command, Common, Failure, MatrixArguments, progress};
use crate::suites::matrices::Values;

/// Plans of matrices that are on the device: in their own products, and the first product beside cuSPARSE's.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Columns of B that plans are made for.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128")]
    widths: Vec<usize>,
    /// Ways to the product; `+runs:1` expects one product of a plan.
    #[arg(
        long,
        value_name = "PATH",
        value_delimiter = ',',
        default_value = "auto-f32+runs:1,auto-f16+runs:1,auto-f32,auto-f16"
    )]
    paths: Vec<SweepPath>,
    /// Leaves cuSPARSE out, and its first product.
    #[arg(long)]
    no_peers: bool,
    /// Values of the matrices: random ones in [0, 1), or those of the file.
    #[arg(long, default_value_t = Values::Random)]
    values: Values,
}

impl Command for Arguments {
    type Suite = Plans;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Plans, Failure> {
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            widths: self.widths.clone(),
            paths: self.paths.clone(),
            peers: !self.no_peers,
            values: self.values,
            seed: self.common.seed,
            sampling: self.common.sampling(),
            progress,
        };
        Ok(Plans::open(device, options))
    }

    fn line(record: &PlansRecord) -> String {
        match (&record.error, &record.facts.plan) {
            (Some(error), _) => format!("{}: {error}", record.case),
            (None, Some(plan)) => {
                let theirs = record
                    .facts
                    .cusparse
                    .as_ref()
                    .map(|first| format!(", cuSPARSE {:.0} µs", first.first_us));
                let (products, first) = (plan.plan_in_products, plan.first_us);
                format!(
                    "{}: plan {:.0} µs, {products:.1} products; first {first:.0} µs{}",
                    record.case,
                    plan.plan_us,
                    theirs.unwrap_or_default()
                )
            }
            (None, None) => record.case.clone(),
        }
    }

    fn summarise(&self, records: &[PlansRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }
}
