//! `windrow prune`: the layers of a model as packed weights with N:M sparsity, the rest as it is.

mod layer;
mod plan;
mod report;

use std::path::Path;

use regex_lite::Regex;
use windrow::NmPattern;
use windrow::io::{self, Model, ModelTensor, ReadOptions, printable};

use crate::args::{PruneArgs, Ratio};
use crate::console::{Console, tell};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, Stage};
use crate::output::Output;

use layer::{Pruner, Source};
use plan::{Masks, Plan};
use report::Outcome;

pub(crate) fn run(args: &PruneArgs, console: Console) -> Result<()> {
    let patterns = Patterns::of(args)?;
    let layers = args.layers.as_deref().map(Regex::new).transpose();
    let layers = layers.map_err(|error| Failure::usage(format!("--layers: {error}")))?;
    if args.mask.as_deref() == Some("") && args.mask_file.is_none() {
        return Err(Failure::usage("--mask: the end of the names of masks is missing, for example .mask"));
    }
    let spinner = console.spinner("reading headers");
    let model = Model::open(&args.model);
    let other = args.mask_file.as_ref().map(Model::open).transpose();
    spinner.finish_and_clear();
    let (model, other) = (model?, other?);
    let masks = (args.mask.is_some() || other.is_some()).then(|| Masks {
        model: other.as_ref().unwrap_or(&model),
        is_other: other.is_some(),
        suffix: args.mask.as_deref().unwrap_or(""),
    });
    let inputs: Vec<&Path> = model.paths().chain(other.iter().flat_map(Model::paths)).collect();
    let out = args.out.as_deref().map(|path| target(path, &model, &inputs, console)).transpose()?;
    let mut plan = Plan::of(&model, patterns, (args, layers.as_ref(), masks))?;
    let pruner = Pruner {
        model: &model,
        masks: other.as_ref().unwrap_or(&model),
        options: ReadOptions { limits: args.read.limits(), ..ReadOptions::default() },
    };
    let bar = console.bytes_bar("pruning");
    // What is read from the model may turn out not to have the pattern: known before anything is written.
    if out.is_none() || plan.jobs.iter().any(|job| !matches!(job.source, Source::Magnitude)) {
        bar.set_prefix(if out.is_none() { "pruning" } else { "checking" });
        bar.set_length(
            plan.jobs.iter().map(|job| model.tensor(&job.tensor).map_or(0, ModelTensor::bytes)).sum(),
        );
        let checked = plan.check(&pruner, |done| bar.inc(done));
        if let Err(failure) = checked {
            bar.finish_and_clear();
            return Err(failure);
        }
    }
    let mut bytes_after = None;
    if let (Some(out), true) = (out, !plan.jobs.is_empty()) {
        interrupt::enter(Stage::Writing);
        let show = |progress| tell(&bar, progress);
        let written = plan.write(&pruner, out, Some(&show));
        bar.finish_and_clear();
        bytes_after = Some(written?);
        interrupt::enter(Stage::Other);
    }
    bar.finish_and_clear();
    let outcome = Outcome {
        model: printable(&args.model),
        output: bytes_after.and(out).map(printable),
        n: patterns.dense.n(),
        m: patterns.dense.m(),
        files: model.files(),
        tensors: model.tensors().count(),
        pruned: plan.jobs.len(),
        bytes_before: model.bytes(),
        bytes_after,
        layers: plan.lines,
    };
    console.line(&outcome)?;
    console.object("prune", &outcome)?;
    if outcome.pruned == 0 {
        return Err(Failure::new(
            Exit::File,
            "no layer could be pruned, so nothing was written; the table says why",
        ));
    }
    Ok(())
}

/// The patterns that layers get.
#[derive(Debug, Clone, Copy)]
struct Patterns {
    /// Those that are pruned by magnitude.
    dense: NmPattern,
    /// Those that are sparse already.
    sparse: NmPattern,
}

impl Patterns {
    /// Columns of a vector, as `windrow nm` has them, unless the user says otherwise.
    const VECTOR: usize = 32;

    fn of(args: &PruneArgs) -> Result<Self> {
        let Ratio { n, m } = args.pattern;
        let pattern = |vector| {
            NmPattern::new(n, m, args.vector.unwrap_or(vector))
                .map_err(|error| Failure::usage(format!("--pattern, --vector: {error}")))
        };
        Ok(Self { dense: pattern(Self::VECTOR)?, sparse: pattern(1)? })
    }
}

/// Whether the output can be written.
fn target<'a>(path: &'a Path, model: &Model, inputs: &[&Path], console: Console) -> Result<&'a Path> {
    if model.is_folder() {
        io::check_new_folder(path)?;
        interrupt::enter(Stage::Before);
        return Ok(path);
    }
    if path.is_dir() {
        return Err(Failure::usage(format!(
            "{} is a folder, and the model is one file; name a file to write",
            printable(path)
        )));
    }
    let output = Output::of(path, inputs, console)?;
    if output.is_standard() {
        return Err(Failure::usage(
            "a model is written to a file or a folder, not to standard output; name one",
        ));
    }
    Ok(path)
}
