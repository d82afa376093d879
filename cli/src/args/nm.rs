//! Arguments of `windrow nm`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use windrow::io::Limits;
use windrow::{Activation, ActivationLayout, NmAlgorithm, NmPacking, Precision};

use super::run::{DeviceArgs, MemoryArgs, TimingArgs};
use crate::units::parse_bytes;

/// Prune weights to vector-wise N:M sparsity, multiply by them, and time it.
///
/// Computes C = A W. Of every M rows of the weights W, in every L columns, the N vectors of largest norm are kept; the
/// activations A, M rows with values in [-1, 1), and the weights are made from a seed unless files are named.
/// Prints how the product was planned and what pruning and planning cost, then the time of a product and the rate that
/// follows from it, counted on the operations that are kept.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("of_file").args(["weights", "pruned"]).multiple(true))]
#[command(after_help = "\
Examples:
  windrow nm --pattern 2:8 --shape 512x1024x1024 --verify
  windrow nm --pattern 1:8 --vector 64 --shape 4096x4096x4096 --precision f16 --layout k-major --device cuda:0
  windrow nm --pattern 2:4 --shape 64x3072x768 --weights model.safetensors --tensor h.0.mlp.c_fc.weight
  windrow nm --pattern 2:8 --shape 64 --weights linear.safetensors --transpose --save linear-2-8.safetensors
  windrow nm --pruned linear-2-8.safetensors --a activations.npy --out layer.npy
  windrow nm --shape 64 --pruned pruned-model --tensor model.layers.0.mlp.up_proj.weight
  windrow nm --shape 64 --pruned linear-2-8.safetensors --bias --activation gelu --verify --json")]
pub(crate) struct NmArgs {
    /// Rows of A, columns of W and rows of W, for example 512x4096x4096. M alone where a file has the weights [default:
    /// M of --a]
    #[arg(long, short, value_name = "MxNxK", required_unless_present = "a")]
    pub(crate) shape: Option<Shape>,

    /// Read A from this file, a .npy or a Matrix Market array, M x K whatever --layout says [default: made from the
    /// seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) a: Option<PathBuf>,

    /// Write C to this file: .npy or .mtx, each also with .gz behind it; - writes .npy to standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Vectors to keep of each group of rows, and rows of a group, for example 2:8.
    #[arg(long, value_name = "N:M", required_unless_present = "pruned", conflicts_with = "pruned")]
    pub(crate) pattern: Option<Ratio>,

    /// Columns of a vector.
    #[arg(long, value_name = "L", default_value_t = 32, conflicts_with = "pruned")]
    pub(crate) vector: usize,

    /// A safetensors file, an index of several or a folder of a model, with dense weights, K x N [default: made from
    /// the seed]
    #[arg(long, value_name = "FILE", conflicts_with = "pruned")]
    pub(crate) weights: Option<PathBuf>,

    /// Name of the tensor in the file or model [default: the only one]
    #[arg(long, value_name = "NAME", requires = "of_file")]
    pub(crate) tensor: Option<String>,

    /// The tensor is N x K (out x in), as PyTorch's Linear keeps it.
    #[arg(long, requires = "weights")]
    pub(crate) transpose: bool,

    /// A file with weights that are pruned already, as --save writes it, or a model as prune writes it; it has the
    /// pattern too.
    #[arg(long, value_name = "FILE")]
    pub(crate) pruned: Option<PathBuf>,

    /// Write the pruned weights to this file, in the type that they have in theirs (f32 if that is a pipe):
    /// .safetensors or .npz; - writes safetensors to standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Type in which A and W are multiplied: f32, tf32, f16 or bf16; sums and C are f32.
    #[arg(long, short, value_name = "TYPE", default_value_t = Precision::F32)]
    pub(crate) precision: Precision,

    /// How A is stored: row-major, or k-major (column after column), which kernels read as it is.
    #[arg(long, short, value_name = "LAYOUT", default_value_t = ActivationLayout::RowMajor)]
    pub(crate) layout: ActivationLayout,

    /// Add a bias, made from the seed, to each row of C.
    #[arg(long)]
    pub(crate) bias: bool,

    /// What is applied to C in the end: identity, relu, gelu or silu.
    #[arg(long, value_name = "NAME", default_value_t = Activation::Identity)]
    pub(crate) activation: Activation,

    /// A factor of the product; M/N is what the paper's equation 1 has.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) scale: f32,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// How to compute on a GPU: auto, cuda-cores, tensor-cores (tf32, f16 and bf16), sparse-tensor-cores (f16 and
    /// bf16: 2:4 and its like, and on compute capability 9.0 any half of the rows or fewer); dense for cuBLAS.
    #[arg(long, short, value_name = "NAME", default_value_t = NmAlgorithm::Auto)]
    pub(crate) algorithm: NmAlgorithm,

    /// Promise that A has no infinity and no NaN: auto may then take sparse Tensor Cores for more patterns.
    #[arg(long)]
    pub(crate) finite: bool,

    /// Let cuBLAS multiply densely where the model says that this is quicker, or with --autotune where it was. What is
    /// not finite in A then makes its whole row of C NaN.
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) dense_fallback: bool,

    /// Whether a GPU packs the columns of A that a block of W names: auto, packed or plain.
    #[arg(long, value_name = "NAME", default_value_t = NmPacking::Auto)]
    pub(crate) packing: NmPacking,

    /// Check the choice of the kernel by running a few on the GPU.
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) autotune: bool,

    /// Run one kernel, by the name of its entry point as the report has it. For measurements.
    #[arg(long, value_name = "ENTRY")]
    pub(crate) kernel: Option<String>,

    /// Compare every element of C with an f64 reference, within its error bound.
    #[arg(long)]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) timing: TimingArgs,

    /// Seed of A, of the bias, and of weights that no file has.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) read: WeightLimits,
}

/// How much of a file of weights is read at most.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading")]
pub(crate) struct WeightLimits {
    /// Refuse weights with more rows [default: 2^28, or one for each 128 bytes of memory if that is less]
    #[arg(long, value_name = "N")]
    max_rows: Option<u64>,

    /// Refuse weights with more columns.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_cols)]
    max_cols: u64,

    /// Refuse weights with more elements, only those counted that a pruned file keeps.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_nnz)]
    max_nnz: u64,

    /// Refuse a file with more content, for example 512MiB [default: half of the memory]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_bytes: Option<u64>,
}

impl WeightLimits {
    pub(crate) fn limits(&self) -> Limits {
        let machine = Limits::of_machine();
        Limits {
            max_rows: self.max_rows.unwrap_or(machine.max_rows),
            max_cols: self.max_cols,
            max_nnz: self.max_nnz,
            max_bytes: self.max_bytes.unwrap_or(machine.max_bytes),
        }
    }
}

/// How many rows of how many are kept, as the command line writes it: `N:M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    pub(crate) n: usize,
    pub(crate) m: usize,
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(n, m)| Some((number(n)?, number(m)?)));
        let (n, m) = numbers.ok_or("write vectors to keep and rows of a group, for example 2:8")?;
        Ok(Self { n, m })
    }
}

/// `MxNxK`, or `M` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Rows of `A` and `C`.
    pub(crate) m: usize,
    /// Columns and rows of the weights.
    pub(crate) weights: Option<(usize, usize)>,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Option<Vec<usize>> = text.split('x').map(number).collect();
        match sizes.as_deref() {
            Some(&[m]) => Ok(Self { m, weights: None }),
            Some(&[m, n, k]) => Ok(Self { m, weights: Some((n, k)) }),
            _ => Err("write rows of A, columns of W and rows of W, for example 512x4096x4096".to_owned()),
        }
    }
}

/// Digits alone: no sign.
fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_ratios_are_read() {
        assert_eq!("2:8".parse(), Ok(Ratio { n: 2, m: 8 }));
        assert_eq!("512x16x9".parse(), Ok(Shape { m: 512, weights: Some((16, 9)) }));
        assert_eq!("0".parse(), Ok(Shape { m: 0, weights: None }));
        for text in ["", "2", "2:", ":8", "2:8:1", "+2:8", "2/8", "a:b"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        for text in ["", "1x", "1x2", "1x2x3x4", "-1", "+1x2x3", "1 x 2 x 3", "99999999999999999999"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }
}
