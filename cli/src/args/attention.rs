//! Arguments of `windrow attention`.

use std::path::PathBuf;

use clap::Args;
use windrow::{AttentionAlgorithm, HeadLayout, Precision};

use super::ReadArgs;
use super::run::{DeviceArgs, MemoryArgs, TimingArgs};

/// Attend over the entries of a sparse matrix: O = softmax(scale * (Q * transposed K) at the entries of A) * V.
///
/// The softmax is over the entries of each row, whose values do not matter; scores, softmax and sums are one pass. Q, K
/// and V are made up with values in [-1, 1). Prints the plan, the median time of repeated runs and the rates that
/// follow from it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow attention graph.mtx.gz --heads 8 --dim 64 --verify
  windrow attention graph.mtx.gz --dim 128 --precision f16 --gradients
  windrow attention graph.mtx.gz --heads 8 --dim 32 --additive --verify
  windrow attention graph.mtx.gz --heads 8 --dim 32 --gatv2 --gradients
  windrow attention graph.mtx.gz --heads 4 --dim 32 -p bf16 --algorithm entries --json")]
pub(crate) struct AttentionArgs {
    /// The matrix A; - reads standard input.
    pub(crate) file: PathBuf,

    /// Heads, all in one launch.
    #[arg(long, value_name = "H", default_value_t = 1)]
    pub(crate) heads: usize,

    /// Columns of each head of Q and K, at most 256. Of additive scores those of V.
    #[arg(long, short = 'k', value_name = "D", default_value_t = 64)]
    pub(crate) dim: usize,

    /// Additive scores, as in graph attention networks: the sum of a number of the row and one of the column, times
    /// this slope where it is below zero. Q and K then have one column a head, of f32.
    #[arg(long, value_name = "SLOPE", num_args = 0..=1, default_missing_value = "0.2", allow_negative_numbers = true)]
    pub(crate) additive: Option<f32>,

    /// Scores as in the second version of these networks: a vector times the sum of two rows, whose elements below zero
    /// are multiplied by this slope.
    #[arg(
        long, value_name = "SLOPE", num_args = 0..=1, default_missing_value = "0.2", allow_negative_numbers = true,
        conflicts_with = "additive"
    )]
    pub(crate) gatv2: Option<f32>,

    /// Columns of each head of V and the result, at most 256 [default: those of Q]
    #[arg(long, value_name = "E")]
    pub(crate) value_dim: Option<usize>,

    /// Where operands have their heads: columns (beside each other), or rows (below each other).
    #[arg(long, value_name = "LAYOUT", default_value_t = HeadLayout::Columns)]
    pub(crate) layout: HeadLayout,

    /// Factor of the scores [default: one over the square root of --dim; 1 if they are additive]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    pub(crate) scale: Option<f32>,

    /// Type of Q, K and V: f32, f16 or bf16; sums and the result are f32, and so are the numbers of additive scores.
    #[arg(long, short, value_name = "TYPE", default_value_t = Precision::F32)]
    pub(crate) precision: Precision,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// How to compute on a GPU: auto, rows, entries or columns.
    ///
    /// rows: CUDA cores, a row at a time; entries: Tensor Cores over windows of 4 or 8 rows of the matrix as it is;
    /// columns: the same over the distinct columns of a window, listed once. entries and columns are for f16 and bf16.
    #[arg(long, short, value_name = "NAME", default_value_t = AttentionAlgorithm::Auto)]
    pub(crate) algorithm: AttentionAlgorithm,

    /// Rows of a window on Tensor Cores, 4 or 8 [default: what suits the matrix]
    #[arg(long, value_name = "ROWS")]
    pub(crate) window_rows: Option<u32>,

    /// Also compute the gradients of Q, K and V, given random ones of the result, and time that.
    #[arg(long)]
    pub(crate) gradients: bool,

    /// Compare every element of the result with an f64 reference, within its error bound.
    #[arg(long)]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) timing: TimingArgs,

    /// Seed of Q, K and V.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}
