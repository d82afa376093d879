//! The command line: commands, options, and the help that goes with them.

mod attention;
mod info;
mod nm;
pub(crate) mod plan;
mod program;
mod prune;
mod reorder;
mod run;
mod spy;
mod tensor;
mod tune;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use windrow::io::{Format, Limits};
use windrow::synthetic::Synthetic;
use windrow::{Algorithm, DeviceSelector, Precision, Schedule, SddmmAlgorithm, SddmmForm, SpmmOptions};

use crate::failure::{Failure, Result};
use crate::units::parse_bytes;

use plan::PlanArgs;
use run::{DeviceArgs, MemoryArgs, TimingArgs};

pub(crate) use attention::AttentionArgs;
pub(crate) use info::InfoArgs;
pub(crate) use nm::{NmArgs, Ratio};
#[cfg(feature = "man")]
pub(crate) use program::ManArgs;
pub(crate) use program::{BenchArgs, CompletionsArgs, Shell};
pub(crate) use prune::PruneArgs;
pub(crate) use reorder::ReorderArgs;
pub(crate) use spy::SpyArgs;
pub(crate) use tensor::{MttkrpArgs, TensorArgs, TtmArgs};
pub(crate) use tune::{TuneArgs, TuneProductArgs};

const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  verification failed
  2  the command line makes no sense
  3  a file cannot be read, is no matrix, or cannot be written
  4  no such device, or one that cannot run the kernels
  5  a device failed
  6  a limit is exceeded: of the options, of memory, of 32-bit indices
  130  interrupted by Ctrl-C; 143 by SIGTERM, 129 by SIGHUP. A file that is being written stays as it was

OUTPUT files appear whole or not at all, and are never an input of the same command; - is standard output.

Matrices are read from Matrix Market, SNAP edge lists, DLMC .smtx, scipy.sparse and TC-GNN .npz files, each
also behind gzip, and from dense tensors in safetensors files. The content tells the format, not the name. Dense
operands are .npy files or Matrix Market arrays, weights for nm and prune safetensors files, tensors for mttkrp and
ttm FROSTT .tns files.

First steps:
  windrow doctor                                      is there a usable GPU?
  windrow info data/ct2010.mtx.gz --spy               what is this matrix like?
  windrow spmm data/ct2010.mtx.gz --width 128 --verify";

/// Sparse-dense products on NVIDIA GPUs and on the CPU.
///
/// Inspects sparse matrices, multiplies them by dense ones, and checks and times the result. Data goes to
/// standard output, talk and progress to standard error.
#[derive(Debug, Parser)]
#[command(name = "windrow", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) global: Global,
}

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Write one JSON object, with a "schema", instead of text.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// Write nothing to standard error but errors.
    #[arg(long, short, global = true, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Threads to read and compute with on the CPU, at most 8 for each processor [default: one for each]
    #[arg(long, global = true, value_name = "T")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Info(InfoArgs),
    Spy(SpyArgs),
    Spmm(SpmmArgs),
    Sddmm(SddmmArgs),
    Attention(AttentionArgs),
    Mttkrp(MttkrpArgs),
    Ttm(TtmArgs),
    Nm(NmArgs),
    Prune(PruneArgs),
    Verify(VerifyArgs),
    Reorder(ReorderArgs),
    Convert(ConvertArgs),
    Gen(GenArgs),
    Tune(TuneArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Completions(CompletionsArgs),
    #[cfg(feature = "man")]
    Man(ManArgs),
}

/// How a matrix is read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading")]
pub(crate) struct ReadArgs {
    /// Format of the file: matrix-market, edge-list, smtx, scipy-npz, tc-gnn-npz or safetensors [default: from its
    /// content]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<Format>,

    /// Name of the tensor in a safetensors file, a dense one whose zeros are left out [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Option<String>,

    /// Refuse a matrix with more rows [default: 2^28, or one for each 128 bytes of memory if that is less]
    #[arg(long, value_name = "N")]
    max_rows: Option<u64>,

    /// Refuse a matrix with more entries, both halves of a symmetric one counted.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_nnz)]
    max_nnz: u64,

    /// Refuse a file with more content, decompressed, for example 512MiB [default: half of the memory]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_bytes: Option<u64>,
}

impl ReadArgs {
    /// What is not limited by an option is by the memory of the machine.
    pub(crate) fn limits(&self) -> Limits {
        let machine = Limits::of_machine();
        Limits {
            max_rows: self.max_rows.unwrap_or(machine.max_rows),
            max_nnz: self.max_nnz,
            max_bytes: self.max_bytes.unwrap_or(machine.max_bytes),
            ..machine
        }
    }
}

/// Multiply a matrix by a dense one, and time it.
///
/// Computes C = A B, A from the file and B from another, or with values in [-1, 1) made from a seed. Prints how the
/// product was planned and what that cost, then the time of a product and the rates that follow from it.
#[derive(Debug, Args)]
#[command(after_help = r#"Examples:
  windrow spmm graph.mtx.gz --width 128
  windrow spmm graph.mtx.gz --width 64 --precision f16 --verify
  windrow spmm graph.mtx.gz --b features.npy --out product.npy
  windrow spmm pruned.safetensors --tensor fc1.weight --b activations.npy --precision f16 --out - > product.npy
  windrow spmm graph.mtx.gz --width 128 --device cuda:0 --algorithm tile-stream --peers
  windrow spmm graph.mtx.gz --width 128 --precision f16 --reorder similarity
  windrow spmm graph.mtx.gz --width 64 --precision f16 --algorithm hybrid --partition overlap:4
  windrow spmm graph.mtx.gz --width 128 --precision f16 --preprocess gpu --json
  windrow spmm graph.mtx.gz --width 64 --options '{"cpu_tasks": {"ranges_per_thread": 4, "tile_columns": 32}}'
  windrow spmm graph.mtx.gz --width 32 --device cpu --repeat 20 --json"#)]
pub(crate) struct SpmmArgs {
    /// The matrix A; - reads standard input.
    pub(crate) file: PathBuf,

    /// Columns of B and C [default: those of --b]
    #[arg(long, short = 'n', value_name = "N", required_unless_present = "b")]
    pub(crate) width: Option<usize>,

    /// Read B from this file, a .npy or a Matrix Market array with as many rows as A has columns; it is rounded to the
    /// precision [default: made from the seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) b: Option<PathBuf>,

    /// Write C to this file: .npy or .mtx, each also with .gz behind it; - writes .npy to standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Type in which A and B are multiplied: f32, tf32, f16, bf16 or f64; sums and C are f32, in f64 they are f64
    /// [default: f32]
    #[arg(long, short, value_name = "TYPE")]
    pub(crate) precision: Option<Precision>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// How to compute on a GPU: auto, row-split, short-rows, segment-group, merge-path, row-panels, matricized-rows,
    /// tile-stream or hybrid [default: auto]
    ///
    /// row-split: CUDA cores over rows, long rows cut; short-rows: CUDA cores over rows of equal length; segment-group:
    /// CUDA cores for few columns of B, see --parallelism (f32, f64 and f16); auto takes it for narrow B; merge-path:
    /// CUDA cores for one column of B, whatever the lengths of rows, with --parallelism for the entries that a thread
    /// reads at once; row-panels: CUDA cores over 64 rows at a time, which share what they need of B in shared memory
    /// (f32), for rows that share many columns; matricized-rows: Tensor Cores over rows as they are (f16); tile-stream:
    /// Tensor Cores over 8 x 8 tiles; hybrid: tiles, with short rows that share few columns on CUDA cores. The last two
    /// multiply tf32, f16 and bf16.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) algorithm: Option<Algorithm>,

    /// Disregard what windrow tune found: for matrices of this structure and width, and thresholds of the GPU.
    #[arg(long)]
    pub(crate) no_tuned: bool,

    /// Compare every element of C with an f64 reference, within the error bound of its row.
    #[arg(long)]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) timing: TimingArgs,

    /// Also time cuSPARSE in the same run, its best algorithm shown first (GPU only).
    #[arg(long)]
    pub(crate) peers: bool,

    /// Seed of the values of B: the same seed makes the same B.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

impl SpmmArgs {
    /// What the plan is told, as [`PlanArgs::options`] has it.
    ///
    /// # Errors
    /// As there, and a usage error for what says how an algorithm works that is not the one to be taken.
    pub(crate) fn options(&self, width: usize) -> Result<SpmmOptions> {
        let base = self.plan.options()?;
        let algorithm = self.algorithm.unwrap_or(base.algorithm);
        let divides = self.plan.partition.is_some() || base.partition.is_some();
        if divides && algorithm != Algorithm::Hybrid {
            let message = "--partition divides the rows of --algorithm hybrid; name that algorithm too";
            return Err(Failure::usage(message));
        }
        if base.parallelism.is_some() && algorithm != Algorithm::SegmentGroup {
            let message =
                "--parallelism divides the work of --algorithm segment-group; name that algorithm too";
            return Err(Failure::usage(message));
        }
        Ok(SpmmOptions {
            width,
            precision: self.precision.unwrap_or(base.precision),
            memory_limit: self.memory.limit.or(base.memory_limit),
            algorithm,
            ..base
        })
    }
}

/// Multiply rows of X and Y where a sparse matrix has entries: out = (X * transposed Y) at the entries of A (SDDMM).
///
/// X and Y are read from files, or made up with values in [-1, 1). Prints the plan, the median time of repeated runs
/// and the rates that follow from it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow sddmm graph.mtx.gz --inner 64 --verify
  windrow sddmm graph.mtx.gz --inner 128 --precision f16 --form scale
  windrow sddmm graph.mtx.gz --x queries.npy --y keys.npy --out scores.npz
  windrow sddmm graph.mtx.gz --inner 32 -p tf32 --algorithm hybrid --tile-threshold 16 --json")]
pub(crate) struct SddmmArgs {
    /// The matrix A; - reads standard input.
    pub(crate) file: PathBuf,

    /// Inner dimension: columns of X and Y [default: those of --x or --y]
    #[arg(long, short = 'k', value_name = "K", required_unless_present_any = ["x", "y"])]
    pub(crate) inner: Option<usize>,

    /// Read X from this file, a .npy or a Matrix Market array with a row for each row of A [default: made from the
    /// seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) x: Option<PathBuf>,

    /// Read Y from this file, with a row for each column of A [default: made from the seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) y: Option<PathBuf>,

    /// Write the sparse result to this file: .mtx, .npz or .txt, each also with .gz behind it; - writes Matrix Market
    /// to standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// What the values of A are for: mask (nothing), or scale (the products are multiplied by them).
    #[arg(long, short, value_name = "FORM", default_value_t = SddmmForm::Mask)]
    pub(crate) form: SddmmForm,

    /// Type in which X and Y are multiplied: f32, tf32, f16, bf16 or f64; sums and the result are f32, in f64 they are
    /// f64.
    #[arg(long, short, value_name = "TYPE", default_value_t = Precision::F32)]
    pub(crate) precision: Precision,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// How to compute on a GPU: auto, tiles, entries, groups, row-panels or hybrid.
    ///
    /// tiles: Tensor Cores over tiles of 8 rows x 16 columns; entries: CUDA cores, entry by entry; groups: the same
    /// by groups of 1 to 32 threads, f32, f64 and f16; hybrid: tiles that have --tile-threshold entries on Tensor
    /// Cores, the rest on CUDA cores. tiles and hybrid multiply tf32, f16 and bf16.
    #[arg(long, short, value_name = "NAME", default_value_t = SddmmAlgorithm::Auto)]
    pub(crate) algorithm: SddmmAlgorithm,

    /// Time the two paths that are predicted to be quickest, and keep the quicker (GPU only).
    #[arg(long)]
    pub(crate) autotune: bool,

    /// Entries that a tile of --algorithm hybrid must have for Tensor Cores, of 128 places [default: as windrow tune
    /// measured, else what was measured for the GPU's architecture, else 24]
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) tile_threshold: Option<u32>,

    /// How the two parts of --algorithm hybrid follow each other: auto, sequential, multi-stream or thresholds.
    ///
    /// multi-stream: beside each other, in two streams; auto: so where windrow tune found that it pays, or what was
    /// measured for the GPU's architecture; thresholds: so where the occupancy of each part is below a threshold of its
    /// own, as Libra does.
    #[arg(long, value_name = "NAME", default_value_t = Schedule::default())]
    pub(crate) schedule: Schedule,

    /// Compare every entry with an f64 reference, within its error bound.
    #[arg(long)]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) timing: TimingArgs,

    /// Seed of X and Y.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Check SpMM on a matrix with every algorithm, precision and width: f32, tf32, f16, bf16 and f64.
///
/// Sampled products, attention, weights and tensors are checked by --verify of their own commands. Each product is
/// compared with an f64 reference, element by element, within the error bound that follows from the length of the row.
/// One line a product, written when it is known; exit code 1 if any of them is wrong.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow verify graph.mtx.gz
  windrow verify graph.mtx.gz --widths 1,33,128 --device cuda:0
  windrow verify graph.mtx.gz --reorder graph.order --determinism fast
  windrow verify graph.mtx.gz --b features.npy --out product-f64.npy
  windrow verify graph.mtx.gz --device cpu --json")]
pub(crate) struct VerifyArgs {
    /// The matrix A; - reads standard input.
    pub(crate) file: PathBuf,

    /// Columns of B and C, one product each [default: 1,7,32,64,128,130]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,7,32,64,128,130")]
    #[arg(hide_default_value = true, conflicts_with = "b")]
    pub(crate) widths: Vec<usize>,

    /// Read B from this file, a .npy or a Matrix Market array, instead of making one of each width; it is rounded to
    /// each precision.
    #[arg(long, value_name = "FILE")]
    pub(crate) b: Option<PathBuf>,

    /// Once all products have passed, write C as f64 gives it to this file: .npy or .mtx, each also with .gz behind it.
    #[arg(long, short, value_name = "FILE", requires = "b")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Seed of the values of B: the same seed makes the same B.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Read a matrix in any format and write it in another.
///
/// The name of OUTPUT tells the format: .mtx or .mm (Matrix Market), .smtx (DLMC, without values), .npz (scipy.sparse
/// CSR), .txt, .el or .edges (edge list); .gz behind it compresses. Values are kept as f64. OUTPUT appears whole or not
/// at all.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow convert graph.txt.gz graph.mtx
  windrow convert weights.mtx weights.npz
  windrow convert graph.npz pattern.dat --to smtx
  windrow convert graph.npz - --to matrix-market | head")]
pub(crate) struct ConvertArgs {
    /// The file to read; - reads standard input.
    pub(crate) input: PathBuf,

    /// The file to write; one that exists is replaced; - writes standard output, with --to.
    pub(crate) output: PathBuf,

    /// Format to write: matrix-market, edge-list, smtx or scipy-npz [default: from the name of OUTPUT]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<Format>,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Make one of the synthetic matrices.
///
/// The pattern is fixed by the name, the values, in [-1, 1), by the seed: the same on every machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow gen --list
  windrow gen fem100k fem100k.mtx.gz
  windrow gen rmat17 rmat17.npz --seed 7")]
pub(crate) struct GenArgs {
    /// Name of the matrix, see --list.
    #[arg(required_unless_present = "list")]
    pub(crate) name: Option<Synthetic>,

    /// The file to write; the name tells the format, as for convert; - writes standard output, with --to.
    #[arg(required_unless_present = "list")]
    pub(crate) output: Option<PathBuf>,

    /// List the names and what they stand for.
    #[arg(long, conflicts_with_all = ["name", "output"])]
    pub(crate) list: bool,

    /// Seed of the values.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Format to write: matrix-market, edge-list, smtx or scipy-npz [default: from the name of OUTPUT]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<Format>,
}

/// Tell what this machine can run, and what to do about the rest.
///
/// Looks at the processor, the CUDA driver, the GPUs and the libraries of the peers, and multiplies a small matrix on
/// the device, checked. Exit code 0 if the device works.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow doctor
  windrow doctor --device cuda:0      fails with code 4 if there is no such GPU
  windrow doctor --json")]
pub(crate) struct DoctorArgs {
    /// The device to test: best (a GPU if there is one, else the CPU), cpu, cuda:0, cuda:1, ...
    #[arg(long, short, value_name = "DEVICE", default_value_t = DeviceSelector::Best)]
    pub(crate) device: DeviceSelector,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples() {
        for command in Arguments::command().get_subcommands() {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains(&format!("windrow {}", command.get_name())), "{}", command.get_name());
        }
    }
}
