//! Arguments of `windrow spy`.

use std::path::PathBuf;

use clap::Args;

use super::ReadArgs;
use super::plan::RowOrder;

/// Draw where a matrix has entries, as an SVG file; with --order in its own order of the rows and in another.
///
/// The picture is a grid of cells, the darker the more entries, on a logarithmic scale. Below each part of it is how
/// many entries a column vector of 8 rows has: what a product on Tensor Cores saves. PICTURE appears whole or not at
/// all.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow spy graph.mtx.gz --out graph.svg
  windrow spy graph.mtx.gz --out graph.svg --order similarity
  windrow spy graph.mtx.gz --out graph.svg --order graph.order --symmetric
  windrow spy graph.mtx.gz --out graph.svg --cells 64 --json")]
pub(crate) struct SpyArgs {
    /// The matrix; - reads standard input.
    pub(crate) file: PathBuf,

    /// The picture to write; one that exists is replaced; - is standard output.
    #[arg(long, short, value_name = "PICTURE")]
    pub(crate) out: PathBuf,

    /// Draw the matrix a second time, its rows in this order: a method of windrow reorder, or a file that it wrote.
    #[arg(long, value_name = "METHOD|FILE")]
    pub(crate) order: Option<RowOrder>,

    /// Draw the columns of a square matrix in that order too. A product leaves them, and B, as they are.
    #[arg(long, requires = "order")]
    pub(crate) symmetric: bool,

    /// Most cells in either direction, 1 to 512.
    #[arg(long, value_name = "N", default_value_t = 96)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) cells: u16,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}
