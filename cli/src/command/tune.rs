//! `windrow tune`: measures thresholds of a GPU model and keeps them; with a matrix, see [`tune_product`].

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use windrow::{DeviceKind, Profile, StreamRule};
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
    rule: impl Into<StreamRule>,
) -> fmt::Result {
    let rule = rule.into();
    writeln!(f, "{title}: two streams {rule}; {}\n", judgement(cases, rule))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuning { profile, spmm, sddmm, thresholds, vectors, tiles } = &self.tuning;
        writeln!(f, "{}\n", self.device)?;
        schedule(f, "products", spmm, profile.spmm)?;
        schedule(f, "sampled products", sddmm, profile.sddmm)?;
        let both = [spmm.as_slice(), sddmm].concat();
        schedule(f, "both, by --schedule thresholds", &both, profile.thresholds)?;
        writeln!(f, "{thresholds}\n")?;
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

#[cfg(test)]
mod tests {
    use windrow::{Device, OccupancyThresholds};
    use windrow_bench::measure::{ThresholdFit, ThresholdSource};

    use super::*;

    #[test]
    fn it_is_told_whose_thresholds_are_kept() {
        let case = ScheduleCase {
            product: "p".to_owned(),
            occupancy: [2.5, 1.0],
            sequential_us: 10.0,
            multi_stream_us: 12.0,
        };
        let thresholds = OccupancyThresholds { cuda_cores: 2.0, ..OccupancyThresholds::LIBRA_H100 };
        let mut profile = Profile::of(&Device::cpu());
        profile.thresholds = thresholds;
        let tuning = Tuning {
            profile,
            spmm: vec![case.clone()],
            sddmm: vec![ScheduleCase { occupancy: [0.5, 1.0], multi_stream_us: 8.0, ..case }],
            thresholds: ThresholdFit {
                thresholds,
                cuda_cores: ThresholdSource::Measured,
                tensor_cores: ThresholdSource::Paper,
            },
            vectors: Vec::new(),
            tiles: Vec::new(),
        };
        let outcome = Outcome { device: "cuda:0".to_owned(), kept: None, tuning };
        let text = outcome.to_string();
        let rule =
            "two streams below 2.00 on CUDA cores and below 3.91 on Tensor Cores; right in 2 of 2 cases";
        assert!(text.contains(&format!("both, by --schedule thresholds: {rule}")), "{text}");
        assert!(text.contains("the one on Tensor Cores is the paper's of an H100"), "{text}");
        let object = serde_json::to_value(&outcome).unwrap();
        assert_eq!(object["thresholds"]["cuda_cores"], "measured");
        assert_eq!(object["profile"]["thresholds"]["cuda_cores"], 2.0);
    }
}
