//! Arguments about how a plan is made, common to `spmm` and `verify`: one [`SpmmOptions`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use windrow::partition::{PartitionRule, Thresholds, VectorThreshold};
use windrow::reorder::{self, Method};
use windrow::{
    AtomicParallelism, Determinism, GroupLaunch, Preprocessing, Profile, Schedule, SpmmOptions, TilePipeline,
    TileValues,
};

use crate::failure::{Exit, Failure, Result};

const OPTIONS: &str = r#"All that the plan is told, as JSON ('{"tile_values": "packed"}') or a file of JSON"#;
const OPTIONS_MORE: &str = "The fields are those of SpmmOptions in the library windrow, each with its default where it is \
                            missing. What another option of the command says is taken instead of what is said here; \
                            verify goes through widths, precisions and algorithms of its own.";

/// How a plan is made.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct PlanArgs {
    #[arg(help = OPTIONS, long_help = format!("{OPTIONS}\n\n{OPTIONS_MORE}"))]
    #[arg(long, value_name = "JSON|FILE")]
    pub(crate) options: Option<String>,

    /// Work on the rows in another order (GPU only): a method of windrow reorder, or a file that it wrote.
    ///
    /// With a method, the time to find the order is part of the planning. A file whose name is a method's is written
    /// with its folder: ./rcm. B and C remain in the matrix's own order.
    #[arg(long, value_name = "METHOD|FILE")]
    pub(crate) reorder: Option<RowOrder>,

    /// Whether two runs give the same bits: run-to-run or fast (parts of cut rows are added in any order) [default:
    /// run-to-run]
    #[arg(long, value_name = "NAME")]
    pub(crate) determinism: Option<Determinism>,

    /// Time the two paths that are predicted to be quickest, and keep the quicker (GPU only).
    ///
    /// Where predicted times decide for algorithm auto. It costs the second plan and some hundred products.
    #[arg(long)]
    pub(crate) autotune: bool,

    /// How device memory holds the values of tiles: auto, dense, packed or bitmap [default: auto]
    ///
    /// dense: all places of a tile, zeros included, in the order in which they are multiplied; packed: the values of
    /// entries, found in the multiply by counting the bits of a mask: fewer bytes where tiles are sparse; bitmap: the
    /// same by the 64-bit bitmaps of RSH-SpMM's tiles, for comparison; auto: packed where there are few entries in a
    /// tile. Without tiles it means nothing.
    #[arg(long, value_name = "FORM")]
    pub(crate) tile_values: Option<TileValues>,

    /// How rows of B get to Tensor Cores: three-stages, two-stages or registers [default: three-stages]
    ///
    /// The last two are what RSH-SpMM prints, for comparison, in f16: through shared memory with two steps under way
    /// instead of three, or straight to registers. Without tiles it means nothing.
    #[arg(long, value_name = "PIPELINE")]
    pub(crate) tile_pipeline: Option<TilePipeline>,

    /// Where the matrix is laid out in tiles: auto, cpu or gpu [default: auto]
    ///
    /// The plan is the same, byte for byte. gpu: kernels lay it out, where all rows go to tiles or entries are
    /// divided by column vectors; auto: the GPU for a large matrix without --memory-limit, the CPU otherwise. The
    /// plan says where, why, and how long each stage took.
    #[arg(long, value_name = "PLACE")]
    pub(crate) preprocess: Option<Preprocessing>,

    /// What algorithm hybrid leaves to CUDA cores: auto, tile, residual, short:N, overlap:N, printed:N,M or vectors:X.
    ///
    /// auto: as a cost model prefers; tile: none; residual: all; short:N: those of at most N entries; overlap:N: those
    /// of them that share few columns with their window; printed:N,M: as RSH-SpMM's algorithm 1 is printed, at most N
    /// entries and fewer than M columns of their own; vectors:X: as Libra does, the entries of every column of a window
    /// of 8 rows that fill less than the share X of it, as 0.375 or 3/8; vectors alone: as windrow tune measured, else
    /// what was measured for the GPU's architecture, else 3/8.
    #[arg(long, value_name = "RULE")]
    pub(crate) partition: Option<Partition>,

    /// How the two parts of algorithm hybrid follow each other: auto, sequential, multi-stream or thresholds [default:
    /// auto]
    ///
    /// multi-stream: beside each other, in two streams; auto: so where windrow tune found that it pays, or what was
    /// measured for the GPU's architecture; thresholds: so where the occupancy of each part is below a threshold of its
    /// own, as Libra does. The report has the occupancy ratios that decide.
    #[arg(long, value_name = "NAME")]
    pub(crate) schedule: Option<Schedule>,

    /// How algorithm segment-group divides the work: a point of Sgap's space.
    ///
    /// Such as '{<8 nnz, 4 col>, 32}': a thread takes 8 nonzeros and 4 columns, 32 threads add up their sums
    /// together; or '{<1/4 row, 4 col>, 4}': four threads share a row. Unless given, one that suits the lengths of
    /// the rows.
    #[arg(long, value_name = "POINT")]
    pub(crate) parallelism: Option<AtomicParallelism>,

    /// Threads of a block of algorithm segment-group: a multiple of 32, at most 512 [default: as suits the matrix, or
    /// 128]
    #[arg(long, value_name = "THREADS")]
    pub(crate) block_threads: Option<u32>,

    /// Columns of B that threads of algorithm segment-group have side by side: a power of two; all, unless given.
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) tile_columns: Option<u32>,
}

impl PlanArgs {
    /// What the plan is told. A partition by column vectors whose threshold is not named has Libra's until the
    /// device is known; an order in a file is not among the options.
    ///
    /// # Errors
    /// A usage error for JSON that is no options, [`Exit::File`] for a file of it that cannot be used.
    pub(crate) fn options(&self) -> Result<SpmmOptions> {
        let base = self.options.as_deref().map_or(Ok(SpmmOptions::DEFAULT), read_options)?;
        Ok(SpmmOptions {
            determinism: self.determinism.unwrap_or(base.determinism),
            autotune: self.autotune || base.autotune,
            preprocessing: self.preprocess.unwrap_or(base.preprocessing),
            reorder: match self.reorder {
                Some(RowOrder::Method(method)) => Some(reorder::Options { method, ..Default::default() }),
                Some(RowOrder::File(_)) => None,
                None => base.reorder,
            },
            partition: match self.partition {
                Some(Partition::Auto) => None,
                Some(Partition::Vectors) => {
                    Some(PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA })
                }
                Some(Partition::Rule(rule)) => Some(rule),
                None => base.partition,
            },
            tile_values: self.tile_values.unwrap_or(base.tile_values),
            tile_pipeline: self.tile_pipeline.unwrap_or(base.tile_pipeline),
            schedule: self.schedule.unwrap_or(base.schedule),
            parallelism: self.parallelism.or(base.parallelism),
            group_launch: self.launch(base.group_launch),
            ..base
        })
    }

    /// With the threshold of column vectors that was measured, if a partition by them has none of its own.
    pub(crate) fn with_measured_threshold(&self, options: SpmmOptions, profile: &Profile) -> SpmmOptions {
        match self.partition {
            Some(Partition::Vectors) => {
                let rule = PartitionRule::ColumnVectors { threshold: profile.vector_threshold() };
                SpmmOptions { partition: Some(rule), ..options }
            }
            _ => options,
        }
    }

    /// The launch of segment groups, if anything of it is given.
    fn launch(&self, base: Option<GroupLaunch>) -> Option<GroupLaunch> {
        let launch = base.unwrap_or_default();
        let given = base.is_some() || self.block_threads.is_some() || self.tile_columns.is_some();
        given.then_some(GroupLaunch {
            block_threads: self.block_threads.unwrap_or(launch.block_threads),
            tile_columns: self.tile_columns.or(launch.tile_columns),
            ..launch
        })
    }
}

/// Options as JSON, or in a file of JSON.
fn read_options(text: &str) -> Result<SpmmOptions> {
    if text.trim_start().starts_with('{') {
        let wrong = |error| Failure::usage(format!("--options: {error}"));
        return serde_json::from_str(text).map_err(wrong);
    }
    let failure = |error: &dyn fmt::Display| Failure::new(Exit::File, format!("--options {text}: {error}"));
    let read = std::fs::read_to_string(text).map_err(|error| failure(&error))?;
    serde_json::from_str(&read).map_err(|error| failure(&error))
}

/// An order of the rows as named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// A method, by which the order is yet to be found.
    Method(Method),
    /// A file that `windrow reorder` wrote.
    File(PathBuf),
}

impl FromStr for RowOrder {
    type Err = String;

    /// A method's name, else a file: one that exists, or that has a folder or an ending in its name.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let path = Path::new(text);
        match text.parse() {
            Ok(method) => Ok(Self::Method(method)),
            Err(_) if path.exists() || path.extension().is_some() || path.components().count() > 1 => {
                Ok(Self::File(path.to_owned()))
            }
            Err(unknown) => Err(format!("{unknown}, and no file has this name")),
        }
    }
}

impl fmt::Display for RowOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => method.fmt(f),
            Self::File(path) => windrow::io::printable(path).fmt(f),
        }
    }
}

/// A partition as named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partition {
    /// What the library's cost model prefers.
    Auto,
    /// By column vectors, with the threshold that was measured.
    Vectors,
    /// The rule that was named.
    Rule(PartitionRule),
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let unknown = || {
            format!(
                "{text:?} is no partition; there are auto, tile, residual, short:N, overlap:N, printed:N,M and vectors:X, \
                 N and M whole numbers, X above 0 and at most 1"
            )
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let (name, numbers) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let rule = match (name, numbers) {
            ("auto", None) => return Ok(Self::Auto),
            ("tile", None) => PartitionRule::AllTile,
            ("residual", None) => PartitionRule::AllResidual,
            ("short", Some(most)) => PartitionRule::ShortRows { max_entries: number(most)? },
            ("overlap", Some(most)) => PartitionRule::Overlap { thresholds: Thresholds::new(number(most)?) },
            ("printed", Some(both)) => {
                let (most, increment) = both.split_once(',').ok_or_else(unknown)?;
                PartitionRule::Printed { max_entries: number(most)?, max_increment: number(increment)? }
            }
            ("vectors", None) => return Ok(Self::Vectors),
            ("vectors", Some(share)) => {
                PartitionRule::ColumnVectors { threshold: share.parse().map_err(|_| unknown())? }
            }
            _ => return Err(unknown()),
        };
        Ok(Self::Rule(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of a command line.
    fn args(words: &[&str]) -> PlanArgs {
        use clap::Parser;
        let line = [&["windrow", "verify", "a.mtx"], words].concat();
        let crate::args::Command::Verify(args) = crate::args::Arguments::parse_from(line).command else {
            unreachable!("that is the command")
        };
        args.plan
    }

    #[test]
    fn arguments_are_one_value() {
        let options = |words: &[&str]| args(words).options().unwrap();
        assert_eq!(options(&[]), SpmmOptions::default());
        let said = options(&[
            "--determinism=fast",
            "--tile-values=packed",
            "--tile-pipeline=two-stages",
            "--preprocess=gpu",
            "--partition=short:4",
            "--schedule=sequential",
            "--parallelism={<8 nnz, 4 col>, 32}",
            "--block-threads=64",
            "--tile-columns=8",
            "--reorder=rcm",
        ]);
        let method = Method::ReverseCuthillMckee;
        let expected = SpmmOptions {
            determinism: Determinism::Fast,
            tile_values: TileValues::Packed,
            tile_pipeline: TilePipeline::TwoStages,
            preprocessing: Preprocessing::Gpu,
            partition: Some(PartitionRule::ShortRows { max_entries: 4 }),
            schedule: Schedule::Sequential,
            parallelism: Some("{<8 nnz, 4 col>, 32}".parse().unwrap()),
            group_launch: Some(GroupLaunch { block_threads: 64, tile_columns: Some(8), workers_log2: 0 }),
            reorder: Some(reorder::Options { method, ..reorder::Options::default() }),
            ..SpmmOptions::default()
        };
        assert_eq!(said, expected);
        let json = serde_json::to_string(&expected).unwrap();
        assert_eq!(options(&["--options", &json]), expected);
        // What is said beside it is taken.
        let beside = options(&["--options", &json, "--determinism=run-to-run", "--partition=auto"]);
        let other = SpmmOptions { determinism: Determinism::RunToRun, partition: None, ..expected };
        assert_eq!(beside, other);
        let launch = GroupLaunch { block_threads: 128, ..expected.group_launch.unwrap() };
        let beside = options(&["--options", &json, "--block-threads=128"]);
        assert_eq!(beside, SpmmOptions { group_launch: Some(launch), ..expected });
        let of_file = options(&["--options", &json, "--reorder=./a.order"]);
        assert_eq!(of_file, SpmmOptions { reorder: None, ..expected }, "another order is given");
    }

    #[test]
    fn options_that_are_none_are_refused() {
        for (text, exit, why) in [
            ("{}x", Exit::Usage, "trailing"),
            (r#"{"widht": 3}"#, Exit::Usage, "unknown field `widht`, expected one of `width`"),
            ("no-such-folder/options.json", Exit::File, "--options no-such-folder/options.json: "),
            (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), Exit::File, "Cargo.toml: expected"),
        ] {
            let failure = args(&["--options", text]).options().unwrap_err();
            assert!(failure.exit == exit && failure.to_string().contains(why), "{failure}");
        }
    }

    #[test]
    fn partitions_by_name() {
        let rule = |text: &str| match text.parse().unwrap() {
            Partition::Rule(rule) => Some(rule),
            Partition::Auto | Partition::Vectors => None,
        };
        assert_eq!("vectors".parse(), Ok(Partition::Vectors));
        assert_eq!(rule("auto"), None);
        assert_eq!(rule("tile"), Some(PartitionRule::AllTile));
        assert_eq!(rule("residual"), Some(PartitionRule::AllResidual));
        assert_eq!(rule("short:4"), Some(PartitionRule::ShortRows { max_entries: 4 }));
        assert_eq!(rule("overlap:0"), Some(PartitionRule::Overlap { thresholds: Thresholds::new(0) }));
        let printed = PartitionRule::Printed { max_entries: 4, max_increment: 3 };
        assert_eq!(rule("printed:4,3"), Some(printed));
        for (text, threshold) in [(":0.375", 2), (":3/8", 2), (":1", 7), (":0.01", 0)] {
            let threshold = VectorThreshold::ALL[threshold];
            assert_eq!(rule(&format!("vectors{text}")), Some(PartitionRule::ColumnVectors { threshold }));
        }
        for text in [
            "vectors:0",
            "vectors:",
            "vectors:9/8",
            "",
            "tiles",
            "tile:1",
            "short",
            "short:",
            "short:-1",
            "overlap:x",
            "printed:4",
            "auto:",
        ] {
            let error = text.parse::<Partition>().unwrap_err();
            assert!(error.starts_with(&format!("{text:?} is no partition; there are auto")), "{error}");
        }
    }

    #[test]
    fn orders_by_name_or_file() {
        let order = |text: &str| text.parse::<RowOrder>();
        assert_eq!(order("rcm"), Ok(RowOrder::Method(Method::ReverseCuthillMckee)));
        for file in ["./rcm", "a.order", "folder/a", "Cargo.toml", "src"] {
            assert_eq!(order(file), Ok(RowOrder::File(file.into())));
            assert_eq!(order(file).unwrap().to_string(), file);
        }
        let error = order("metis").unwrap_err();
        assert!(error.contains("\"metis\"") && error.contains("community"), "{error}");
        assert!(error.ends_with("no file has this name"), "{error}");
    }
}
