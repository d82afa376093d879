//! Arguments of `windrow tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use windrow::reorder::Method;
use windrow::{Determinism, DeviceSelector, Precision, SpmmOptions};

use super::ReadArgs;
use crate::units::parse_duration;

/// Measure what suits a device, or one matrix on it, and keep it for later plans.
///
/// Without FILE: thresholds of a GPU model. Times hybrids of made-up matrices, every result verified: in one stream
/// and in two, and with every threshold of the two distributions. Takes some seconds. What loses least is written to
/// a profile, from which spmm, sddmm and verify read it: at which occupancies --schedule auto takes two streams, the
/// two occupancy thresholds of --schedule thresholds (Libra's equation 8; the paper's, and said to be, where no
/// measurement separates others from them), and what vectors and tiles go to Tensor Cores.
///
/// With FILE: the quickest way to products of a matrix with WIDTH columns. Times what --algorithm auto takes, then
/// other algorithms, divisions of the work and launches, on the CPU ways to deal rows and columns out to threads,
/// near the best of what was found; every result is verified before its time counts. What is measurably quicker than
/// auto is kept for matrices of the same size and lengths of rows, and spmm --algorithm auto takes it, unless told
/// --no-tuned.
///
/// Files are in the user's cache folder, or in the folder that WINDROW_CACHE_DIR names. Several commands may tune at
/// once. A file that cannot be read is moved aside, its name with .broken behind it; products do without it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow tune
  windrow tune --device cuda:1 --dry-run
  windrow tune --json | jq .profile
  windrow tune graph.mtx.gz --width 8
  windrow tune graph.mtx.gz --width 64 --precision f16 --budget 2m --reorder similarity
  windrow tune graph.mtx.gz --width 128 --device cpu --json")]
pub(crate) struct TuneArgs {
    /// The device to measure: best, cpu (with FILE), cuda:0, cuda:1, ...
    #[arg(long, short, value_name = "DEVICE", default_value_t = DeviceSelector::Best)]
    pub(crate) device: DeviceSelector,

    /// Measure and print, but keep nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Write each thing that is tried to standard error, a line each; a terminal shows the last of them anyway.
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) product: TuneProductArgs,
}

/// What is tuned of one matrix.
#[derive(Debug, Args)]
#[command(next_help_heading = "Only with FILE")]
pub(crate) struct TuneProductArgs {
    /// The matrix A; - reads standard input.
    #[arg(requires = "width")]
    pub(crate) file: Option<PathBuf>,

    /// Columns of B and C.
    #[arg(long, short = 'n', value_name = "N", requires = "file")]
    pub(crate) width: Option<usize>,

    /// Type in which A and B are multiplied: f32, tf32, f16, bf16 or f64.
    #[arg(long, short, value_name = "TYPE", default_value_t = Precision::F32)]
    pub(crate) precision: Precision,

    /// Whether two runs of what is tried must give the same bits: run-to-run or fast.
    #[arg(long, value_name = "NAME", default_value_t = Determinism::default())]
    pub(crate) determinism: Determinism,

    /// Time to spend, for example 30s, 500ms or 2m; less is spent if nothing is better for long.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) budget: Duration,

    /// Try also rows in the order that this method finds, beside the matrix's own (GPU only).
    ///
    /// The time to find it is not part of the budget. A plan that takes such a choice finds the order anew.
    #[arg(long, value_name = "METHOD")]
    pub(crate) reorder: Option<Method>,

    /// Seed of the values of B: the same seed makes the same B.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

impl TuneProductArgs {
    /// What the product is, with `width` columns; the way to it is what is searched.
    pub(crate) fn options(&self, width: usize) -> SpmmOptions {
        let (precision, determinism) = (self.precision, self.determinism);
        SpmmOptions { width, precision, determinism, ..SpmmOptions::default() }
    }
}
