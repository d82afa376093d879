//! Arguments about how a plan is made, common to `spmm` and `verify`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use windrow::partition::{PartitionRule, Thresholds};
use windrow::reorder::Method;
use windrow::{
    AtomicParallelism, Determinism, GroupLaunch, Preprocessing, Profile, Schedule, SpmmBuilder, TileValues,
};

/// How a plan is made.
#[derive(Debug, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct PlanArgs {
    /// Work on the rows in another order (GPU only): a method of windrow reorder, or a file that it wrote.
    ///
    /// With a method, the time to find the order is part of the planning. A file whose name is a method's is written
    /// with its folder: ./rcm. B and C remain in the matrix's own order.
    #[arg(long, value_name = "METHOD|FILE")]
    pub(crate) reorder: Option<RowOrder>,

    /// Whether two runs give the same bits: run-to-run or fast (parts of cut rows are added in any order).
    #[arg(long, value_name = "NAME", default_value_t = Determinism::default())]
    pub(crate) determinism: Determinism,

    /// How device memory holds the values of tiles: auto, dense or packed.
    ///
    /// dense: all places of a tile, zeros included, in the order in which they are multiplied; packed: the values of
    /// entries, found in the multiply by counting the bits of a mask: fewer bytes where tiles are sparse; auto: packed
    /// where there are few entries in a tile. Without tiles it means nothing.
    #[arg(long, value_name = "FORM", default_value_t = TileValues::default())]
    pub(crate) tile_values: TileValues,

    /// Where the matrix is laid out in tiles: auto, cpu or gpu.
    ///
    /// The plan is the same, byte for byte. gpu: kernels lay it out, where all rows go to tiles or entries are
    /// divided by column vectors; auto: the GPU for a large matrix without --memory-limit, the CPU otherwise. The
    /// plan says where, why, and how long each stage took.
    #[arg(long, value_name = "PLACE", default_value_t = Preprocessing::default())]
    pub(crate) preprocess: Preprocessing,

    /// What algorithm hybrid leaves to CUDA cores: auto, tile, residual, short:N, overlap:N, printed:N,M or vectors:X.
    ///
    /// auto: as a cost model prefers; tile: none; residual: all; short:N: those of at most N entries; overlap:N: those
    /// of them that share few columns with their window; printed:N,M: as RSH-SpMM's algorithm 1 is printed, at most N
    /// entries and fewer than M columns of their own; vectors:X: as Libra does, the entries of every column of a window
    /// of 8 rows that fill less than the share X of it, as 0.375 or 3/8; vectors alone: as windrow tune measured, else
    /// what was measured for the GPU's architecture, else 3/8.
    #[arg(long, value_name = "RULE")]
    pub(crate) partition: Option<Partition>,

    /// How the two parts of algorithm hybrid follow each other: auto, sequential or multi-stream.
    ///
    /// multi-stream: beside each other, in two streams; auto: so where windrow tune found that it pays, or what was
    /// measured for the GPU's architecture. The report has the occupancy ratios that decide.
    #[arg(long, value_name = "NAME", default_value_t = Schedule::default())]
    pub(crate) schedule: Schedule,

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
    /// The launch, if anything of it is given.
    fn group_launch(&self) -> Option<GroupLaunch> {
        let (given, tile_columns) = (self.block_threads, self.tile_columns);
        let default = GroupLaunch::default();
        let block_threads = given.unwrap_or(default.block_threads);
        let launch = GroupLaunch { block_threads, tile_columns, ..default };
        (given.is_some() || tile_columns.is_some()).then_some(launch)
    }

    /// Tells `builder` all but the order; `profile` is the device's.
    pub(crate) fn apply<'a>(&self, builder: SpmmBuilder<'a, f32>, profile: &Profile) -> SpmmBuilder<'a, f32> {
        let builder = builder.determinism(self.determinism).tile_values(self.tile_values);
        let builder = builder.preprocessing(self.preprocess);
        let builder = builder.schedule(self.schedule).profile(profile);
        let builder = match self.group_launch() {
            Some(launch) => builder.group_launch(launch),
            None => builder,
        };
        let builder = match self.parallelism {
            Some(point) => builder.parallelism(point),
            None => builder,
        };
        match self.partition {
            None | Some(Partition::Auto) => builder,
            Some(Partition::Rule(rule)) => builder.partition(rule),
            Some(Partition::Vectors) => {
                builder.partition(PartitionRule::ColumnVectors { threshold: profile.vector_threshold() })
            }
        }
    }
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
    fn from_str(text: &str) -> Result<Self, String> {
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
            Self::File(path) => path.display().fmt(f),
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

    fn from_str(text: &str) -> Result<Self, String> {
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
    use windrow::partition::VectorThreshold;
    use windrow::{Algorithm, Csr, Device, EmulatorSchedule, Precision, Spmm};

    use super::*;

    #[test]
    fn plans_are_told() {
        let a = Csr::<f32>::identity(16).unwrap();
        let gpu = Device::emulator(EmulatorSchedule::STANDARD[0]);
        let report = |partition: &str, determinism, tile_values| {
            let partition = Some(partition.parse().unwrap());
            let builder = Spmm::builder(&a).precision(Precision::F16).algorithm(Algorithm::Hybrid);
            let (schedule, preprocess) = (Schedule::MultiStream, Preprocessing::Gpu);
            let args = PlanArgs {
                reorder: None,
                determinism,
                tile_values,
                preprocess,
                partition,
                schedule,
                parallelism: None,
                block_threads: None,
                tile_columns: None,
            };
            args.apply(builder, &Profile::built_in(&gpu)).build(&gpu).unwrap().report().clone()
        };
        let tile = report("tile", Determinism::Fast, TileValues::Dense);
        let short = report("short:1", Determinism::RunToRun, TileValues::Auto);
        assert_eq!((tile.residual_rows, short.residual_rows), (0, 16));
        assert_eq!((tile.preprocessing, short.preprocessing), (Preprocessing::Gpu, Preprocessing::Cpu));
        assert_eq!((tile.determinism, short.determinism), (Determinism::Fast, Determinism::RunToRun));
        assert_eq!((tile.tile_values, short.tile_values), (TileValues::Dense, TileValues::Auto));
        let vectors = report("vectors:0.25", Determinism::RunToRun, TileValues::Auto);
        assert_eq!((vectors.segments, vectors.tiles), (16, 0), "one entry a vector");
        assert!(tile.scheduling.is_none(), "one part");
        let packed = report("tile", Determinism::RunToRun, TileValues::Packed);
        assert_eq!(packed.tile_values, TileValues::Packed);
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
