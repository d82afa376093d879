//! What several suites are told.

use std::path::PathBuf;

use clap::Args;
use windrow::synthetic::Synthetic;
use windrow::{Device, DeviceSelector};

use super::{Exit, Failure};
use crate::measure::{L2, Sampling};
use crate::suites::matrices::{Family, MatrixSource};

/// What every suite is told.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// What is measured, in any format that windrow reads; with --summarise, results.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Summarise results as Markdown instead of measuring.
    #[arg(long)]
    pub(crate) summarise: bool,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    pub(crate) device: DeviceSelector,
    /// Where the lines or the summary go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Go on where --out ends, with the same options: cases that it has of this device and revision, without an error,
    /// are not measured again.
    #[arg(long, requires = "out", conflicts_with = "summarise")]
    pub(crate) resume: bool,
    /// Seed of made-up values and of operands.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run every case only as often as is needed to see that it runs.
    #[arg(long)]
    pub(crate) smoke: bool,
}

impl Common {
    /// How much is measured.
    pub(crate) fn sampling(&self) -> Sampling {
        if self.smoke { Sampling::SMOKE } else { Sampling::default() }
    }

    /// Opens the device.
    ///
    /// # Errors
    /// [`Exit::NoDevice`].
    pub(crate) fn open(&self) -> Result<Device, Failure> {
        self.device.open().map_err(|error| {
            // The library's remedy names its function; here it is an option.
            Failure::new(Exit::NoDevice, error.to_string().replace("`Device::cpu()`", "`--device cpu`"))
        })
    }

    /// For a suite that makes everything up.
    ///
    /// # Errors
    /// [`Exit::Usage`] if there are files.
    pub(crate) fn no_files(&self) -> Result<(), Failure> {
        match self.files.first() {
            Some(file) => {
                Err(Failure::usage(format!("{}: files are read with --summarise only", file.display())))
            }
            None => Ok(()),
        }
    }
}

/// Made-up matrices beside the files.
#[derive(Debug, Args)]
pub(crate) struct MatrixArguments {
    /// Made-up matrices, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "summarise")]
    pub(crate) synthetic: Vec<Synthetic>,
    /// Made-up matrices of many structures, to which costs are fitted, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "summarise")]
    pub(crate) families: Vec<Family>,
}

impl MatrixArguments {
    /// The files and the made-up matrices, in this order.
    ///
    /// # Errors
    /// [`Exit::Usage`] if there are none.
    pub(crate) fn sources(&self, common: &Common) -> Result<Vec<MatrixSource>, Failure> {
        let files = common.files.iter().cloned().map(MatrixSource::File);
        let synthetic = self.synthetic.iter().copied().map(MatrixSource::Synthetic);
        let families = self.families.iter().copied().map(MatrixSource::Family);
        let sources: Vec<_> = files.chain(synthetic).chain(families).collect();
        match sources.is_empty() {
            true => Err(Failure::usage("no matrix: name files, or made-up ones with --synthetic")),
            false => Ok(sources),
        }
    }
}

/// What the L2 cache holds before each timed product.
#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// Whether the L2 cache is warm, as the product before left it, or cold, full of other data: every product and
    /// every peer is measured with each of these. A cold product comes after a write of twice the cache's size, which
    /// is not in its time.
    #[arg(long = "l2", value_name = "STATE", value_delimiter = ',', default_value = "warm")]
    states: Vec<L2>,
}

impl CacheArguments {
    /// Each state once, in the order in which they were named.
    pub(crate) fn states(&self) -> Vec<L2> {
        let mut states = Vec::new();
        for &state in &self.states {
            if !states.contains(&state) {
                states.push(state);
            }
        }
        states
    }
}

/// What is told on standard error before the first measurement.
pub(crate) fn progress(line: &str) {
    eprintln!("{line}");
}
