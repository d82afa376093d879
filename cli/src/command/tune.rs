//! `windrow tune`: measures thresholds of a GPU model and keeps them; with a matrix, see [`tune_product`].

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use windrow::{DeviceKind, OccupancyRange, Profile};
use windrow_bench::measure::{Sampling, ScheduleCase, Tuning, judgement, tune};

use super::tune_product;
use crate::args::TuneArgs;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::listing::{Align, Table};

/// What `windrow tune` without a file prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    device: String,
    /// Where the profile is kept; none if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<PathBuf>,
    #[serde(flatten)]
    tuning: Tuning,
}

pub(crate) fn run(args: &TuneArgs, console: Console) -> Result<()> {
    let device = args.device.open()?;
    if args.product.file.is_some() {
        return tune_product::run(args, &device, console);
    }
    if device.kind() == DeviceKind::Cpu {
        let message =
            "the CPU has no thresholds to tune; name a GPU, --device cuda:0, or a matrix and --width";
        return Err(Failure::new(Exit::NoDevice, message));
    }
    let path = match args.dry_run {
        true => None,
        false => Some(Profile::path(&device).ok_or_else(tune_product::no_folder)?),
    };
    if let Some(path) = &path {
        Profile::prepare(path)?;
    }
    let spinner = console.spinner("measuring");
    let found = tune(&device, Sampling::default(), &mut |what| {
        spinner.set_message(what.to_owned());
        if args.verbose {
            spinner.suspend(|| console.note(what));
        }
    });
    spinner.finish_and_clear();
    let tuning = found?;
    let saved = path.as_ref().map_or(Ok(()), |path| tuning.profile.save(path));
    let kept = path.filter(|_| saved.is_ok());
    let outcome = Outcome { device: device.to_string(), kept, tuning };
    console.line(&outcome)?;
    console.object("tune", &outcome)?;
    // What was measured is worth its lines even if it cannot be kept.
    Ok(saved?)
}

fn schedule(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    cases: &[ScheduleCase],
    range: OccupancyRange,
) -> fmt::Result {
    writeln!(f, "{title}: two streams {range}; {}\n", judgement(cases, range))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuning { profile, spmm, sddmm, vectors, tiles } = &self.tuning;
        writeln!(f, "{}\n", self.device)?;
        schedule(f, "products", spmm, profile.spmm)?;
        schedule(f, "sampled products", sddmm, profile.sddmm)?;
        let table = Table::new(&[("threshold", 12, Align::Left), ("time over the best", 18, Align::Right)]);
        writeln!(f, "{}", table.titles())?;
        for (threshold, loss) in vectors {
            writeln!(f, "{}", table.row(&[format!("vectors {threshold}"), format!("{loss:.3}")]))?;
        }
        for (entries, loss) in tiles {
            writeln!(f, "{}", table.row(&[format!("tiles {entries}"), format!("{loss:.3}")]))?;
        }
        writeln!(
            f,
            "\nvectors of at least {} of 8, and tiles of at least {} entries of 128, go to Tensor Cores",
            profile.vector_threshold().entries(),
            profile.tile_entries
        )?;
        match &self.kept {
            Some(path) => write!(f, "kept in {}", windrow::io::printable(path)),
            None => write!(f, "nothing is kept"),
        }
    }
}
