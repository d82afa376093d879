//! `windrow mttkrp` and `windrow ttm`.

use std::path::PathBuf;

use clap::Args;
use windrow::io::Limits;
use windrow::{Algorithm, AtomicParallelism, Determinism, Precision};

use super::run::{DeviceArgs, MemoryArgs, TimingArgs};
use crate::units::parse_bytes;

/// Multiply a sparse tensor by the Khatri-Rao product of two dense matrices: Y = unfolded A * (B (.) C) (MTTKRP).
///
/// The tensor has three modes; Y has a row for each index of --mode, and B and C for each of the other two. B and C
/// are read from files, or made up with values in [-1, 1). Prints the plan, the median time of repeated runs and the
/// rate that follows from it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow mttkrp nell-2.tns.gz --width 32 --verify
  windrow mttkrp nell-2.tns.gz --width 16 --mode 2 --precision f16
  windrow mttkrp nell-2.tns.gz --b factor1.npy --c factor2.npy --out new-factor0.npy
  windrow mttkrp nell-2.tns.gz --width 64 --parallelism '{<16 nnz, 4 col>, 2}' --json")]
pub(crate) struct MttkrpArgs {
    #[command(flatten)]
    pub(crate) product: TensorArgs,

    /// Read C from this file, with a row for each index of the last of the other modes [default: made from the seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) c: Option<PathBuf>,
}

/// Multiply a sparse tensor by a dense matrix along one mode: Y(i, j, :) = sum of A(i, j, l) * B(l, :) (TTM).
///
/// The tensor has three modes; B has a row for each index of --mode, and Y one for each fiber along it that has
/// entries, in the order of the other two indices. B is read from a file, or made up with values in [-1, 1). Prints the
/// plan, the median time of repeated runs and the rate that follows from it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow ttm nell-2.tns.gz --width 32 --verify
  windrow ttm nell-2.tns.gz --b factor0.npy --out fibers.npy
  windrow ttm nell-2.tns.gz --width 16 --mode 2 --algorithm segment-group --json")]
pub(crate) struct TtmArgs {
    #[command(flatten)]
    pub(crate) product: TensorArgs,

    /// How to compute on a GPU, a fiber for a row of spmm: auto, row-split, short-rows, segment-group, tile-stream or
    /// hybrid.
    #[arg(long, short, value_name = "NAME", default_value_t = Algorithm::Auto)]
    pub(crate) algorithm: Algorithm,
}

/// What the products of tensors have in common.
#[derive(Debug, Args)]
pub(crate) struct TensorArgs {
    /// The tensor A, a FROSTT .tns file, also behind gzip; - reads standard input.
    pub(crate) file: PathBuf,

    /// Columns of the dense matrices [default: those of --b]
    #[arg(long, short = 'n', value_name = "N", required_unless_present = "b")]
    pub(crate) width: Option<usize>,

    /// Read B from this file, a .npy or a Matrix Market array: for mttkrp with a row for each index of the first of the
    /// other modes, for ttm of the mode itself [default: made from the seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) b: Option<PathBuf>,

    /// Write Y to this file: .npy or .mtx, each also with .gz behind it; - writes .npy to standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// The mode that the product is for, from 0.
    #[arg(long, short, value_name = "MODE", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) mode: u8,

    /// Type in which values and matrices are multiplied: f32, f16 or f64, ttm also tf32 and bf16; sums and the result
    /// are f32, in f64 they are f64.
    #[arg(long, short, value_name = "TYPE", default_value_t = Precision::F32)]
    pub(crate) precision: Precision,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Whether two runs give the same bits: run-to-run or fast (parts of what is cut are added in any order).
    #[arg(long, value_name = "NAME", default_value_t = Determinism::default())]
    pub(crate) determinism: Determinism,

    /// How the work is divided: a point of Sgap's space, such as '{<8 nnz, 4 col>, 4}' [default: one that suits]
    #[arg(long, value_name = "POINT")]
    pub(crate) parallelism: Option<AtomicParallelism>,

    /// Compare every element with an f64 reference, within its error bound.
    #[arg(long)]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) timing: TimingArgs,

    /// Seed of the dense matrices.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Refuse a tensor with more entries.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_nnz, help_heading = "Reading")]
    max_nnz: u64,

    /// Refuse a file with more content, decompressed, for example 512MiB [default: half of the memory]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Reading")]
    max_bytes: Option<u64>,
}

impl TensorArgs {
    pub(crate) fn limits(&self) -> Limits {
        let machine = Limits::of_machine();
        Limits { max_nnz: self.max_nnz, max_bytes: self.max_bytes.unwrap_or(machine.max_bytes), ..machine }
    }
}
