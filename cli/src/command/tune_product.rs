//! `windrow tune FILE`: finds the quickest way to one product and remembers it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use windrow::reorder::{Method, Options};
use windrow::{
    Csr, Determinism, Device, DeviceKind, Permutation, Precision, ProductKey, Real, SpmmOptions, Tuned, Value,
};
use windrow_bench::measure::{Limits, Outcome as Tried, ProductTuning, SweepPath, TuneRequest, tune_product};

use crate::args::{TuneArgs, TuneProductArgs};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::listing::{Align, Table};
use crate::load;
use crate::ordering::find;
use crate::product::check_memory;
use crate::units::{digits, time_us};

/// A way to the product, and its time.
#[derive(Debug, Serialize)]
struct Timed {
    path: String,
    us: f64,
    /// The same way as `spmm --options` takes it.
    options: SpmmOptions,
}

/// The quickest of a family, as it was timed in the search.
#[derive(Debug, Serialize)]
struct Family {
    family: String,
    #[serde(flatten)]
    best: Timed,
}

/// What `windrow tune FILE` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    device: String,
    /// The name under which choices are kept.
    model: String,
    width: usize,
    precision: Precision,
    determinism: Determinism,
    default: Timed,
    /// The quickest, if it is measurably quicker than the default beside it.
    winner: Option<Timed>,
    /// The default's time over the winner's; 1 without one.
    speed_up: f64,
    families: Vec<Family>,
    tried: usize,
    /// Given up after the first batch.
    abandoned: usize,
    /// Reasons of those that could not be planned or run.
    failed: Vec<String>,
    /// Paths with a wrong result.
    wrong: Vec<String>,
    ended: String,
    seconds: f64,
    /// Where the choice is kept; none if nothing is.
    kept: Option<PathBuf>,
}

impl Outcome {
    fn of(tuning: &ProductTuning, args: &TuneProductArgs, device: &Device, width: usize) -> Self {
        let found = &tuning.found;
        let options = |path: &SweepPath| SpmmOptions { width, ..path.options };
        let timed = |path: &SweepPath, us| Timed { path: path.to_string(), us, options: options(path) };
        let outcomes = || found.tried.iter().map(|tried| &tried.outcome);
        let wrong = found.tried.iter().filter(|tried| matches!(tried.outcome, Tried::Wrong(_)));
        let families = tuning.best_of_families().into_iter();
        Self {
            file: args.file.as_ref().map_or_else(String::new, |file| file.display().to_string()),
            device: device.to_string(),
            model: device.name().to_owned(),
            width,
            precision: args.precision,
            determinism: args.determinism,
            default: timed(&tuning.default, found.default_us.median),
            winner: found.winner.as_ref().map(|(path, us)| timed(path, us.median)),
            speed_up: found.speed_up(),
            families: families
                .map(|(family, path, us)| Family { family: family.to_string(), best: timed(&path, us) })
                .collect(),
            tried: found.tried.len(),
            abandoned: outcomes().filter(|outcome| matches!(outcome, Tried::Abandoned { .. })).count(),
            failed: outcomes()
                .filter_map(|outcome| if let Tried::Failed(why) = outcome { Some(why.clone()) } else { None })
                .collect(),
            wrong: wrong.map(|tried| tried.candidate.to_string()).collect(),
            ended: found.ended.to_string(),
            seconds: found.spent.as_secs_f64(),
            kept: None,
        }
    }
}

pub(super) fn run(args: &TuneArgs, device: &Device, console: Console) -> Result<()> {
    match args.product.precision {
        Precision::F64 => run_with::<f64>(args, device, console),
        _ => run_with::<f32>(args, device, console),
    }
}

/// With the values of the file, and `C`, as `V`.
fn run_with<V: Real>(
    &TuneArgs { dry_run, verbose, product: ref args, .. }: &TuneArgs,
    device: &Device,
    console: Console,
) -> Result<()> {
    let (Some(file), Some(width)) = (&args.file, args.width) else {
        return Err(Failure::usage("a matrix is tuned for a width: windrow tune FILE --width N"));
    };
    let kept = match dry_run {
        true => None,
        false => Some(Tuned::path(device).ok_or_else(no_folder)?),
    };
    if let Some(path) = &kept {
        Tuned::prepare(path)?;
    }
    let tuned = load::tuned(device, console);
    let (a, _) = load::read::<V>(file, &args.read, console)?;
    check_memory::<V, V>((a.rows(), a.cols()), width, device)?;
    let method = args.reorder.filter(|_| device.kind() != DeviceKind::Cpu);
    let order = method.map(|method| find_order(&a, method, console)).transpose()?;
    let options = args.options(width);
    let key = ProductKey::new(&a, &options);
    let spinner = console.spinner("tuning");
    let tell = |path: &SweepPath, spent: Duration| {
        let message = trial(path, spent, args.budget);
        if verbose {
            spinner.suspend(|| console.note(&message));
        }
        spinner.set_message(message);
    };
    let request = TuneRequest {
        options,
        order: method.zip(order.as_ref()),
        also: tuned.as_ref().and_then(|tuned| tuned.get(&key)).map(|product| product.options),
        limits: Limits { budget: args.budget, ..Limits::default() },
        seed: args.seed,
        tell: Some(&tell),
    };
    let tuning = tune_product(device, &a, &request);
    spinner.finish_and_clear();
    let tuning = tuning?;
    let mut outcome = Outcome::of(&tuning, args, device, width);
    // What is in the file by now, not what was there before the search: others tune too.
    let saved = kept.as_ref().map_or(Ok(()), |path| {
        Tuned::update(path, device, |tuned| match &tuning.found.winner {
            Some((path, us)) => tuned.remember(key, path.options, us.median, tuning.found.default_us.median),
            None => {
                tuned.forget(&key);
                Ok(())
            }
        })
    });
    outcome.kept = kept.filter(|_| saved.is_ok() && tuning.found.winner.is_some());
    console.line(&outcome)?;
    console.object("tune-product", &outcome)?;
    // What was found is worth its lines even if it cannot be kept.
    if !outcome.wrong.is_empty() {
        let mut message = format!("results were wrong, and left out: {}", outcome.wrong.join(", "));
        if let Err(error) = saved {
            message.push_str(&format!("; {error}"));
        }
        return Err(Failure::new(Exit::Verification, message));
    }
    Ok(saved?)
}

/// What is tried, and how much of the budget is spent.
fn trial(path: &SweepPath, spent: Duration, budget: Duration) -> String {
    let us = |time: Duration| time_us(time.as_secs_f64() * 1e6);
    format!("tuning, {} of at most {}: {path}", us(spent), us(budget))
}

fn find_order<V: Value>(a: &Csr<V>, method: Method, console: Console) -> Result<Permutation> {
    let options = Options { method, ..Options::default() };
    Ok(find(a, &options, console)?.permutation)
}

/// Nothing can be kept.
pub(super) fn no_folder() -> Failure {
    let message = "there is no cache folder; name one in WINDROW_CACHE_DIR, or use --dry-run";
    Failure::new(Exit::File, message)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.device)?;
        let table = Table::new(&[
            ("", 8, Align::Left),
            ("time", 10, Align::Right),
            ("default / it", 12, Align::Right),
            ("  path", 20, Align::Left),
        ]);
        writeln!(f, "{}", table.titles())?;
        let mut row = |name: &str, Timed { path, us, .. }: &Timed| {
            let ratio = digits(self.default.us / us);
            writeln!(f, "{}", table.row(&[name.to_owned(), time_us(*us), ratio, format!("  {path}")]))
        };
        row("default", &self.default)?;
        if let Some(winner) = &self.winner {
            row("winner", winner)?;
        }
        for Family { best, .. } in &self.families {
            row("family", best)?;
        }
        let Self { tried, abandoned, .. } = self;
        let failed = self.failed.len() + self.wrong.len();
        writeln!(
            f,
            "\n{tried} candidates tried, {abandoned} given up early, {failed} failed; {} s: {}",
            digits(self.seconds),
            self.ended
        )?;
        match (&self.winner, &self.kept) {
            (None, _) => write!(f, "the default stays: nothing was measurably quicker"),
            (Some(_), Some(path)) => {
                write!(f, "{} x the default; kept in {}", digits(self.speed_up), windrow::io::printable(path))
            }
            (Some(_), None) => write!(f, "{} x the default; nothing is kept", digits(self.speed_up)),
        }
    }
}
