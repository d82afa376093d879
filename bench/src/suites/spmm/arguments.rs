//! Arguments of `windrow-bench spmm`, and their way to the suite's options.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use windrow::{Device, DeviceKind};

use super::summary::{Published, summarise};
use super::table::Table;
use super::{DENSE_LIMIT_BYTES, Options, Spmm, SpmmRecord};
use crate::measure::roofline::GatherProbe;
use crate::measure::{DeviceRates, SweepPath};
use crate::program::{CacheArguments, Command, Common, Exit, Failure, MatrixArguments, progress, read, say};
use crate::suites::matrices::Values;

/// Sparse-dense products: matrices, widths and paths.
///
/// A path is an algorithm and a precision, such as auto-f16, with options behind it: +reorder (similarity order of the
/// rows), +rcm, +community, +degree (other orders), +fast (results may differ in the last bits), +window-each (a warp
/// for each window), +dense, +packed (the form of the values of tiles), +sequential, +multi-stream, +thresholds (the
/// parts of a hybrid), +point:1/8row:4col:8 and +launch:128:8:1/2 (how segment-group divides the work, and its launch),
/// +rows:64:32:1 (how row-split does), +tasks:8:64 (how the CPU does), +column-major (of B), +vectors or +vectors:2/8
/// (a hybrid divided by column vectors, with Libra's threshold or that one). Example: hybrid-f16+reorder+fast.
///
/// Precisions are f32, tf32, f16, bf16 and f64: auto-f64, row-split-f64, short-rows-f64, segment-group-f64 multiply the
/// values, which are read as f32, and a B of f64. cuSPARSE is measured in f32 and f16, beside paths of f64 in f64.
///
/// On the CPU the crate sprs is measured beside, in f32 and f64, on its one thread.
///
/// On a CUDA device the gather roofline is measured first.
///
/// --published names a table of times for --summarise to compare with: a line `matrix,width,microseconds,library` for
/// each; lines that begin with # are remarks.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Times of other libraries, for --summarise.
    #[arg(long, value_name = "FILE", requires = "summarise")]
    published: Option<PathBuf>,
    /// Columns of B: each path is measured for each of these.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "32,64,128,256")]
    widths: Vec<usize>,
    /// Algorithms, precisions and options.
    #[arg(
        long,
        value_name = "PATH",
        value_delimiter = ',',
        default_value = "row-split-f32,row-split-f16,tile-stream-f16,hybrid-f16,auto-f16"
    )]
    paths: Vec<SweepPath>,
    /// Rates of the device for the roofline: read if the file exists, else measured and written.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    /// Leave out the roofline.
    #[arg(long, conflicts_with = "rates")]
    no_roofline: bool,
    /// Leave out the peers: cuSPARSE and cuBLAS on a CUDA device, sprs on the CPU.
    #[arg(long)]
    no_peers: bool,
    /// Leave out cuBLAS's dense product.
    #[arg(long)]
    no_cublas: bool,
    /// Values of the matrices: those of the file, or random ones in [0, 1), which do not overflow f16.
    #[arg(long, default_value_t = Values::File)]
    values: Values,
}

impl Command for Arguments {
    type Suite = Spmm;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, talk: &mut dyn Write) -> Result<Spmm, Failure> {
        let rates = self.rates(device)?;
        if let Some(DeviceRates { copy, gather }) = &rates {
            say(talk, &format!("copy {:.2} TB/s; gathered rows, TB/s:\n{gather}", copy / 1e12))?;
        }
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            widths: self.widths.clone(),
            paths: self.paths.clone(),
            values: self.values,
            seed: self.common.seed,
            sampling: self.common.sampling(),
            l2: self.cache.states(),
            rates,
            peers: !self.no_peers,
            dense_limit_bytes: if self.no_cublas { 0 } else { DENSE_LIMIT_BYTES },
            progress,
        };
        Ok(Spmm::open(device, options))
    }

    fn line(record: &SpmmRecord) -> String {
        Table.row(record)
    }

    fn titles() -> Option<String> {
        Some(Table.titles())
    }

    fn summarise(&self, records: &[SpmmRecord]) -> Result<String, Failure> {
        let published = self
            .published
            .as_deref()
            .map(|path| Published::parse(&read(path)?).map_err(|error| Failure::file(path, error)));
        Ok(summarise(records, published.transpose()?.as_ref()))
    }
}

impl Arguments {
    /// The rates of the device: from a file, or measured on a CUDA device.
    fn rates(&self, device: &Device) -> Result<Option<DeviceRates>, Failure> {
        if let Some(path) = self.rates.as_deref().filter(|path| path.exists()) {
            return read_rates(path).map(Some);
        }
        if self.no_roofline || device.kind() != DeviceKind::Cuda {
            return Ok(None);
        }
        let rates = DeviceRates::probe(device, &GatherProbe::default()).map_err(|error| {
            Failure::new(Exit::Failed, format!("the roofline: {error}; leave it out with --no-roofline"))
        })?;
        if let Some(path) = &self.rates {
            let text = serde_json::to_string(&rates).map_err(|error| Failure::file(path, error))?;
            std::fs::write(path, text + "\n").map_err(|error| Failure::file(path, error))?;
        }
        Ok(Some(rates))
    }
}

/// Rates that were written before.
pub(crate) fn read_rates(path: &Path) -> Result<DeviceRates, Failure> {
    serde_json::from_str(&read(path)?).map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use crate::program::Arguments as Program;
    use crate::suites::testing::parse_suite;

    use super::*;

    fn parse(words: &[&str]) -> Arguments {
        parse_suite(words)
    }

    #[test]
    fn arguments_are_lists_with_commas() {
        let arguments = parse(&["a.mtx"]);
        assert_eq!(
            (arguments.widths.as_slice(), arguments.paths.as_slice()),
            (&[32, 64, 128, 256][..], &SweepPath::DEFAULT[..])
        );
        let arguments = parse(&["--synthetic", "rmat17,fem100k", "--paths", "auto-f32", "--widths=1,7"]);
        let names = arguments.matrices.sources(&arguments.common).unwrap();
        assert_eq!(
            names.iter().map(crate::suites::matrices::MatrixSource::name).collect::<Vec<_>>(),
            ["rmat17", "fem100k"]
        );
        assert_eq!((arguments.widths.as_slice(), arguments.paths.len()), (&[1, 7][..], 1));
        let arguments = parse(&["--values", "random", "--paths", "auto-f16+fast,hybrid-f16+rcm"]);
        assert_eq!(
            (arguments.values, arguments.paths[1].to_string().as_str()),
            (Values::Random, "hybrid-f16+rcm")
        );
        let arguments = parse(&["--paths", "auto-f64,segment-group-f64"]);
        assert!(arguments.paths.iter().all(|path| path.options.precision == windrow::Precision::F64));
        for wrong in [
            ["--paths", "row-split"],
            ["--paths", "hybrid-f64"],
            ["--synthetic", "x"],
            ["--device", "gpu"],
            ["--widths", "-1"],
            ["--published", "x"],
        ] {
            let words = ["windrow-bench", "spmm"].into_iter().chain(wrong);
            assert!(<Program as clap::Parser>::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }
}
