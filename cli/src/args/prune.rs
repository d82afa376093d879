//! Arguments of `windrow prune`.

use std::path::PathBuf;

use clap::Args;

use super::nm::{Ratio, WeightLimits};

/// Prune the layers of a model to vector-wise N:M sparsity.
///
/// MODEL is a safetensors file, the index of several (model.safetensors.index.json), or a folder that has one of them.
/// Every tensor of two dimensions in f16, bf16, f32 or f64 whose name matches --layers becomes packed weights of the
/// same name and type, for windrow nm --pruned OUT --tensor NAME; every other is copied byte for byte. Prints what each
/// layer keeps, and what share of its sum of squares it loses. One tensor is in memory at a time.
///
/// OUT is a file if MODEL is one, which is replaced if it exists, else a new folder with files of the same names and an
/// index. It appears whole or not at all. Other files of the folder are not copied. MODEL is never changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow prune Llama-3.2-1B pruned-2-4 --pattern 2:4 --vector 1 --layers 'mlp\\..*'
  windrow prune model.safetensors pruned.safetensors --pattern 2:8 --layers 'mlp.*proj'
  windrow prune gpt2.safetensors pruned.safetensors --pattern 2:4 --in-out --layers 'mlp.c_fc.weight$'
  windrow prune Llama-3.2-1B --dry-run --pattern 2:4 --json
  windrow prune sparse-model packed --pattern 2:4 --zeros
  windrow prune model packed --pattern 2:4 --mask _mask
  windrow prune model packed --pattern 2:4 --mask-file masks.safetensors
  windrow nm --pruned pruned-2-4 --tensor model.layers.0.mlp.up_proj.weight --shape 64")]
pub(crate) struct PruneArgs {
    /// The model: a .safetensors file, an index (.json), or a folder.
    pub(crate) model: PathBuf,

    /// The file or folder to write; a file that exists is replaced, a folder must be new or empty.
    #[arg(required_unless_present = "dry_run", conflicts_with = "dry_run")]
    pub(crate) out: Option<PathBuf>,

    /// Vectors to keep of each group of inputs, and inputs of a group, for example 2:4.
    #[arg(long, value_name = "N:M")]
    pub(crate) pattern: Ratio,

    /// Outputs that keep the same inputs; GPUs are quick with 32 and more, 1 is what others call N:M [default: 32, or 1
    /// for layers that are sparse already]
    #[arg(long, value_name = "L")]
    pub(crate) vector: Option<usize>,

    /// Prune tensors whose name matches this regular expression, anywhere in the name [default: all]
    #[arg(long, value_name = "REGEX")]
    pub(crate) layers: Option<String>,

    /// Tensors are in x out (K x N), as GPT-2 keeps them, and not out x in, as PyTorch's Linear does.
    #[arg(long)]
    pub(crate) in_out: bool,

    /// Keep what is not zero; a layer with more than N of M is left as it is.
    #[arg(long, conflicts_with = "mask")]
    pub(crate) zeros: bool,

    /// Keep what the tensor NAME + SUFFIX says, of the shape of NAME, with elements 0 and 1; it is left out of OUT.
    /// With _mask, weights that torch.nn.utils.prune has split come together again, without the _orig in their names.
    #[arg(long, value_name = "SUFFIX")]
    pub(crate) mask: Option<String>,

    /// Take masks from this file or model, where they are called as their tensors, with the SUFFIX of --mask if given.
    #[arg(long, value_name = "FILE", conflicts_with = "zeros")]
    pub(crate) mask_file: Option<PathBuf>,

    /// Write nothing; tell what layers would lose.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) read: WeightLimits,
}
