//! `compare`: the same cases in two files of records.
//!
//! The ratio is the new time over the old one. How far it may be off is taken from the noise of both records; what they
//! do not hold, that two runs of one program differ, is a floor below that noise ([`verdict`]).

mod table;
mod verdict;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde::Serialize;

use crate::measure::statistics::geometric_mean;
use crate::program::{Exit, Failure, say, write};
use crate::reading::{Case, Reading, Recorded, Time};
use verdict::{Judgement, Verdict};

/// Compare the same cases (matrix, width, path, device, L2 cache warm or cold) in two files of records, of any suite.
///
/// The ratio is the new median over the old one: below 1 is quicker. Its interval is two standard deviations to either
/// side: the noise that both records hold, no less than 1 % each, 5 % where a record holds none. SAME: the interval is
/// within --same of 1. FAST, SLOW: it lies below 1, above 1. Anything else is undecided.
///
/// With --gate, a case that is SLOW by more than that fails it, and so does one that had a time and has an error now:
/// exit code 6. Cases that are in one file only are named and counted, and fail nothing.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Records that are compared with, of before.
    #[arg(value_name = "OLD.jsonl")]
    old: PathBuf,
    /// Records that are judged, of after.
    #[arg(value_name = "NEW.jsonl")]
    new: PathBuf,
    /// Fail if a case is slower by more than this, and noise does not explain it.
    #[arg(long, value_name = "PERCENT")]
    gate: Option<Percent>,
    /// What is no difference.
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    same: Percent,
    /// Leave out, and count, cases that take less than this in both files: there runs of one program differ most.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0.0)]
    above: f64,
    /// Compare cases that were measured on different devices, too.
    #[arg(long)]
    any_device: bool,
    /// List the cases that are SAME, and all names, too.
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Write one JSON object with every case.
    #[arg(long)]
    json: bool,
    /// Where the comparison goes; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A share, written with a percent sign.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Percent(pub(crate) f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match number.filter(|percent| (0.0..=1000.0).contains(percent)) {
            Some(percent) => Ok(Self(percent / 100.0)),
            None => Err(format!("{text:?} is no share; write it with a percent sign, 0% to 1000%: 5%")),
        }
    }
}

/// A case that both files have a time of.
#[derive(Debug, Serialize)]
struct Pair {
    #[serde(flatten)]
    case: Case,
    old: Time,
    new: Time,
    #[serde(flatten)]
    judgement: Judgement,
}

/// What two files say of each other.
#[derive(Debug, Serialize)]
struct Comparison {
    schema: u32,
    /// File, revisions and devices.
    old: Origin,
    new: Origin,
    /// Geometric mean of the ratios.
    mean: Option<f64>,
    counts: BTreeMap<Verdict, usize>,
    pairs: Vec<Pair>,
    only_old: Vec<String>,
    only_new: Vec<String>,
    /// Cases that had a time and have an error now.
    broken: Vec<Broken>,
    /// Cases without a time in the old file, or in both.
    untimed: usize,
    /// Cases that take less than is to be compared.
    brief: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<Gate>,
}

#[derive(Debug, Serialize)]
struct Origin {
    file: String,
    revisions: Vec<String>,
    devices: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Broken {
    case: String,
    error: String,
}

/// What the gate says.
#[derive(Debug, Serialize)]
struct Gate {
    /// Share of the old time.
    beyond: Percent,
    passed: bool,
    slower: Vec<String>,
}

impl Arguments {
    /// Compares, writes, and says in the exit code whether the gate let it pass.
    ///
    /// # Errors
    /// [`Exit::File`]; [`Exit::Usage`] where the files have no case in common.
    pub(crate) fn run(&self, talk: &mut dyn Write) -> Result<Exit, Failure> {
        let comparison = self.compare(&Recorded::read(&self.old)?, &Recorded::read(&self.new)?)?;
        let text = match self.json {
            true => {
                serde_json::to_string(&comparison).map_err(|error| Failure::new(Exit::Failed, error))? + "\n"
            }
            false => table::markdown(&comparison, self.all),
        };
        write(self.out.as_deref(), &text)?;
        let Some(Gate { passed: false, slower, beyond }) = &comparison.gate else { return Ok(Exit::Right) };
        let (percent, lost) = (100.0 * beyond.0, comparison.broken.len());
        say(
            talk,
            &format!(
                "the gate of {percent} % is not passed: {} cases are slower, {lost} have an error",
                slower.len()
            ),
        )?;
        Ok(Exit::Slower)
    }

    fn compare(&self, old: &Recorded, new: &Recorded) -> Result<Comparison, Failure> {
        let key = |reading: &Reading| match self.any_device {
            true => Case { device: String::new(), ..reading.case.clone() },
            false => reading.case.clone(),
        };
        let by_case = |recorded: &Recorded| -> BTreeMap<Case, Reading> {
            recorded.readings.iter().map(|reading| (key(reading), reading.clone())).collect()
        };
        let (before, mut after) = (by_case(old), by_case(new));
        let (mut pairs, mut broken, mut only_old) = (Vec::new(), Vec::new(), Vec::new());
        let (mut untimed, mut brief) = (0, 0);
        for (case, was) in before {
            let Some(is) = after.remove(&case) else {
                only_old.push(case.to_string());
                continue;
            };
            match (was.time, is.time) {
                (Some(old), Some(new)) if old.us.max(new.us) < self.above => brief += 1,
                (Some(old), Some(new)) => {
                    let judgement = Judgement::of(&old, &new, self.same.0);
                    pairs.push(Pair { case, old, new, judgement });
                }
                (Some(_), None) => broken.push(Broken {
                    case: case.to_string(),
                    error: is.error.unwrap_or_else(|| "no time and no error".to_owned()),
                }),
                _ => untimed += 1,
            }
        }
        if pairs.is_empty() && broken.is_empty() && untimed + brief == 0 {
            return Err(nothing_in_common(old, new));
        }
        pairs.sort_by(|a, b| b.judgement.ratio.total_cmp(&a.judgement.ratio));
        let mut counts = BTreeMap::from(Verdict::ALL.map(|verdict| (verdict, 0)));
        for pair in &pairs {
            *counts.entry(pair.judgement.verdict).or_default() += 1;
        }
        let gate = self.gate.map(|beyond| {
            let fails = |pair: &&Pair| {
                pair.judgement.verdict == Verdict::Slow && pair.judgement.ratio > 1.0 + beyond.0
            };
            let slower: Vec<_> = pairs.iter().filter(fails).map(|pair| pair.case.to_string()).collect();
            Gate { beyond, passed: slower.is_empty() && broken.is_empty(), slower }
        });
        let ratios: Vec<_> = pairs.iter().map(|pair| pair.judgement.ratio).collect();
        Ok(Comparison {
            schema: 1,
            old: Origin::of(old),
            new: Origin::of(new),
            mean: geometric_mean(&ratios),
            counts,
            pairs,
            only_old,
            only_new: after.keys().map(ToString::to_string).collect(),
            broken,
            untimed,
            brief,
            gate,
        })
    }
}

impl Origin {
    fn of(recorded: &Recorded) -> Self {
        Self {
            file: recorded.name(),
            revisions: recorded.each(|reading| reading.revision.clone()),
            devices: recorded.each(|reading| reading.case.device.clone()),
        }
    }
}

/// Why two files cannot be compared.
fn nothing_in_common(old: &Recorded, new: &Recorded) -> Failure {
    let [first, second] = [old, new].map(|recorded| &recorded.readings[0].case);
    Failure::usage(format!(
        "no case is in both files: {} begins with {first} on {}, {} with {second} on {}; name records of the same \
         suite, matrices, widths, paths and state of the L2 cache (--l2), and see --any-device",
        old.name(),
        first.device,
        new.name(),
        second.device
    ))
}
