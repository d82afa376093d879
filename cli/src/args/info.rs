//! Options of the command `info`.

use std::path::PathBuf;

use clap::Args;
use windrow::{DeviceSelector, Precision};

use super::ReadArgs;
use crate::spy::SpySize;

/// Tell what a matrix is like, and whether a sparse product will pay.
///
/// Prints format and size, how rows, 8 x 1 column vectors and 8 x 8 tiles are filled, the bytes of the matrix as
/// CSR and as RS-Tile, and an estimate from that structure of how a sparse product compares with a dense one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow info graph.mtx.gz
  windrow info graph.mtx.gz --spy --spy-size 60x30
  windrow info graph.mtx.gz --width 16 --precision tf32
  windrow info model.safetensors --tensor model.layers.0.mlp.up_proj.weight
  windrow info weights.smtx --json | jq .structure.nnz_per_vector")]
pub(crate) struct InfoArgs {
    /// The matrix; - reads standard input.
    pub(crate) file: PathBuf,

    /// Draw where the entries are, in Braille dots, as large as the terminal.
    #[arg(long)]
    pub(crate) spy: bool,

    /// Size of the drawing in characters, for example 60x30; implies --spy.
    #[arg(long, value_name = "WxH")]
    pub(crate) spy_size: Option<SpySize>,

    /// Predict the time of a product with so many columns of B on each path that may serve, and tell which one auto
    /// takes.
    #[arg(long, short = 'n', value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) width: Option<u32>,

    /// The same of a sampled product of this inner dimension.
    #[arg(long, value_name = "K")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) inner: Option<u32>,

    /// Type in which these multiply: f32, tf32, f16, bf16 or f64 [default: f32, tf32 and f16]
    #[arg(long, short, value_name = "TYPE")]
    pub(crate) precision: Option<Precision>,

    /// GPU whose measured costs count, for example cuda:0 [default: an H200, without asking any]
    #[arg(long, short, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceSelector>,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}
