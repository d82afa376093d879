//! `windrow prune`: the layers of a model as packed weights with N:M sparsity, the rest as it is.

mod report;

use std::collections::BTreeMap;
use std::path::Path;

use regex_lite::Regex;
use windrow::io::{
    self, BitmaskWeights, Model, ModelTensor, NmSink, NmTensor, ReadOptions, Rewrite, printable,
};
use windrow::memory::try_with_room;
use windrow::{NmPattern, Value, ValueType, VectorNm, prune_magnitude, with_value_type};

use crate::args::{PruneArgs, Ratio};
use crate::console::{Console, tell};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, Stage};
use crate::output::Output;
use crate::units::count;

use report::{Layer, Outcome};

/// Where the dense elements of a layer come from.
#[derive(Debug, Clone)]
enum Source {
    /// The tensor, pruned by magnitude.
    Magnitude,
    /// The tensor, whose zeros are the mask.
    Zeros,
    /// The tensor, and the name of its mask.
    Mask(String),
    /// Three tensors in the layout of compressed-tensors.
    Bitmask(BitmaskWeights),
}

/// A layer that may be pruned.
#[derive(Debug, Clone)]
struct Job {
    /// The tensor in whose place the weights go.
    tensor: String,
    weights: NmTensor,
    source: Source,
    /// Number of its line in the table.
    line: usize,
}

/// The model and how it is read.
struct Pruner<'a> {
    model: &'a Model,
    options: ReadOptions<'a>,
}

pub(crate) fn run(args: &PruneArgs, console: Console) -> Result<()> {
    let patterns = Patterns::of(args)?;
    let layers = args.layers.as_deref().map(Regex::new).transpose();
    let layers = layers.map_err(|error| Failure::usage(format!("--layers: {error}")))?;
    let spinner = console.spinner("reading headers");
    let model = Model::open(&args.model);
    spinner.finish_and_clear();
    let model = model?;
    let out = args.out.as_deref().map(|path| target(path, &model, args, console)).transpose()?;
    let mut plan = Plan::of(&model, patterns, (args, layers.as_ref()))?;
    let pruner = Pruner {
        model: &model,
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
        bytes_before: model.tensors().map(ModelTensor::bytes).sum(),
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
fn target<'a>(path: &'a Path, model: &Model, args: &PruneArgs, console: Console) -> Result<&'a Path> {
    if model.is_folder() {
        io::check_new_folder(path)?;
        interrupt::enter(Stage::Before);
        return Ok(path);
    }
    let output = Output::of(path, &[&args.model], console)?;
    if output.is_standard() {
        return Err(Failure::usage(
            "a model is written to a file or a folder, not to standard output; name one",
        ));
    }
    Ok(path)
}

/// What is to be done with the tensors of a model.
struct Plan {
    /// Layers that are pruned, in the order of the model.
    jobs: Vec<Job>,
    /// Tensors that are left out if the layer of this name is pruned.
    omitted: Vec<(String, String)>,
    /// A line for each tensor whose name matches.
    lines: Vec<Layer>,
}

impl Plan {
    fn of(model: &Model, patterns: Patterns, (args, layers): (&PruneArgs, Option<&Regex>)) -> Result<Self> {
        let matches = |name: &str| layers.is_none_or(|layers| layers.is_match(name));
        let mut plan = Self { jobs: Vec::new(), omitted: Vec::new(), lines: Vec::new() };
        let bitmasks = model.bitmask_weights();
        let parts: BTreeMap<String, &BitmaskWeights> =
            bitmasks.iter().flat_map(|weights| weights.tensors().map(|name| (name, weights))).collect();
        if model.metadata().any(|entry| entry == ("format", "vector-nm")) {
            return Err(Failure::usage(
                "the file holds weights with N:M sparsity already; windrow nm --pruned multiplies by them",
            ));
        }
        let packed = model.vector_nm()?;
        let packed: BTreeMap<String, &NmTensor> =
            packed.iter().flat_map(|weights| weights.tensors().map(|name| (name, weights))).collect();
        for tensor in model.tensors() {
            let name = tensor.name();
            if let Some(weights) = packed.get(name) {
                if weights.tensors()[0] == name && matches(&weights.name) {
                    let shape = if weights.transposed {
                        [weights.cols, weights.rows]
                    } else {
                        [weights.rows, weights.cols]
                    };
                    plan.lines.push(Layer::of(weights.name.clone(), shape.to_vec(), tensor.dtype()));
                    plan.leave_last(format!("it is {} already", weights.pattern));
                }
                continue;
            }
            if let Some(weights) = parts.get(name) {
                if weights.tensors()[0] == name && matches(&weights.name()) {
                    plan.bitmask(tensor, weights, patterns.sparse)?;
                }
                continue;
            }
            if !matches(name) || is_mask(model, name, args.mask.as_deref()) {
                continue;
            }
            let mask = args.mask.as_ref().map(|suffix| format!("{name}{suffix}"));
            let source = match &mask {
                Some(mask) => Source::Mask(mask.clone()),
                None if args.zeros => Source::Zeros,
                None => Source::Magnitude,
            };
            plan.lines.push(Layer::of(name.to_owned(), tensor.shape().to_vec(), tensor.dtype()));
            match suits(model, tensor, mask.as_deref()) {
                Err(left) => plan.leave_last(left),
                Ok((value_type, [first, second])) => {
                    let pattern = match source {
                        Source::Magnitude => patterns.dense,
                        _ => patterns.sparse,
                    };
                    let (rows, cols) = if args.in_out { (first, second) } else { (second, first) };
                    let weights = NmTensor {
                        name: name.to_owned(),
                        rows,
                        cols,
                        pattern,
                        value_type,
                        transposed: !args.in_out,
                    };
                    plan.omitted.extend(mask.map(|mask| (name.to_owned(), mask)));
                    let line = plan.lines.len() - 1;
                    plan.jobs.push(Job { tensor: name.to_owned(), weights, source, line });
                }
            }
        }
        if plan.lines.is_empty() {
            let some: Vec<&str> = model.tensors().take(3).map(ModelTensor::name).collect();
            let some: Vec<String> = some.iter().map(|name| name.escape_debug().to_string()).collect();
            return Err(Failure::usage(format!(
                "--layers matches none of {} tensors; some are called {}",
                count(model.tensors().count()),
                some.join(", ")
            )));
        }
        Ok(plan)
    }

    /// Plans weights that are in the layout of compressed-tensors.
    fn bitmask(
        &mut self,
        values: ModelTensor<'_>,
        weights: &BitmaskWeights,
        pattern: NmPattern,
    ) -> Result<()> {
        let [_, bits, extents] = weights.tensors();
        let shape = match *values.shape() {
            [rows, half] => vec![rows, half.saturating_mul(2)],
            _ => values.shape().to_vec(),
        };
        self.lines.push(Layer::of(weights.name(), shape.clone(), values.dtype()));
        let line = self.lines.len() - 1;
        let (Some(value_type), &[cols, rows]) = (values.value_type(), &shape[..]) else {
            self.leave_last(format!("type {} and shape {:?} of its values", values.dtype(), values.shape()));
            return Ok(());
        };
        let name = weights.name();
        self.omitted.extend([bits, extents].map(|part| (name.clone(), part)));
        let packed = NmTensor { name, rows, cols, pattern, value_type, transposed: true };
        let source = Source::Bitmask(weights.clone());
        self.jobs.push(Job { tensor: values.name().to_owned(), weights: packed, source, line });
        Ok(())
    }

    fn leave_last(&mut self, left: String) {
        if let Some(line) = self.lines.last_mut() {
            line.left = Some(left);
        }
    }

    /// Prunes every layer and keeps what is known of it; leaves those that have not the pattern.
    fn check(&mut self, pruner: &Pruner<'_>, mut done: impl FnMut(u64)) -> Result<()> {
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for job in std::mem::take(&mut self.jobs) {
            let line = &mut self.lines[job.line];
            let pruned =
                with_value_type!(job.weights.value_type, V => pruner.prune::<V>(&job, line).map(drop));
            done(pruner.model.tensor(&job.tensor).map_or(0, ModelTensor::bytes));
            match pruned {
                Ok(()) => jobs.push(job),
                // What a layer holds is no reason to leave the others; what cannot be read is.
                Err(Refused::Layer(left)) => line.left = Some(left),
                Err(Refused::All(failure)) => return Err(failure),
            }
        }
        self.jobs = jobs;
        Ok(())
    }

    fn write(
        &mut self,
        pruner: &Pruner<'_>,
        out: &Path,
        progress: Option<io::ProgressFn<'_>>,
    ) -> Result<u64> {
        let mut rewrites: BTreeMap<String, Rewrite> = BTreeMap::new();
        for (layer, part) in &self.omitted {
            if self.jobs.iter().any(|job| job.weights.name == *layer) {
                rewrites.insert(part.clone(), Rewrite::Omit);
            }
        }
        for job in &self.jobs {
            rewrites.insert(job.tensor.clone(), Rewrite::Weights(job.weights.clone()));
        }
        let by_name: BTreeMap<&str, &Job> = self.jobs.iter().map(|job| (job.tensor.as_str(), job)).collect();
        let lines = &mut self.lines;
        let mut failed = None;
        let make = |name: &str, sink: &mut NmSink<'_>| {
            let Some(job) = by_name.get(name) else { return Ok(()) };
            with_value_type!(job.weights.value_type, V => {
                match pruner.prune::<V>(job, &mut lines[job.line]) {
                    Ok(weights) => sink.write(&weights),
                    Err(refused) => {
                        let why = refused.into_failure(name);
                        let stopped = std::io::Error::other(why.to_string());
                        failed = Some(why);
                        Err(stopped.into())
                    }
                }
            })
        };
        let written = io::write_model(pruner.model, out, &rewrites, make, progress);
        // The first failure has a code of its own.
        failed.map_or_else(|| Ok(written?), Err)
    }
}

/// Whether the tensor is the mask of another.
fn is_mask(model: &Model, name: &str, suffix: Option<&str>) -> bool {
    let of = suffix.filter(|suffix| !suffix.is_empty()).and_then(|suffix| name.strip_suffix(suffix));
    of.is_some_and(|of| model.tensor(of).is_some())
}

/// Type and extents of a tensor that can be pruned, or why it cannot.
fn suits(
    model: &Model,
    tensor: ModelTensor<'_>,
    mask: Option<&str>,
) -> std::result::Result<(ValueType, [usize; 2]), String> {
    let &[first, second] = tensor.shape() else {
        return Err(match tensor.shape().len() {
            1 => "one dimension, not two".to_owned(),
            others => format!("{others} dimensions, not two"),
        });
    };
    let Some(value_type) = tensor.value_type() else {
        return Err(format!("type {}, not f16, bf16, f32 or f64", tensor.dtype()));
    };
    if first == 0 || second == 0 {
        return Err("no elements".to_owned());
    }
    match mask.map(|mask| (mask, model.tensor(mask))) {
        Some((mask, None)) => Err(format!("no mask {}", mask.escape_debug())),
        Some((_, Some(found))) if found.shape() != tensor.shape() => {
            Err(format!("its mask has shape {:?}", found.shape()))
        }
        _ => Ok((value_type, [first, second])),
    }
}

/// Why a layer was not pruned.
enum Refused {
    /// For what it holds.
    Layer(String),
    /// For a reason that no other layer would be spared.
    All(Failure),
}

impl Refused {
    /// What ends the command, where a layer called `name` was checked before.
    fn into_failure(self, name: &str) -> Failure {
        match self {
            Self::Layer(why) => Failure::new(Exit::File, format!("{}: {why}", name.escape_debug())),
            Self::All(failure) => failure,
        }
    }
}

impl From<windrow::io::ReadError> for Refused {
    fn from(error: windrow::io::ReadError) -> Self {
        Self::All(error.into())
    }
}

impl From<windrow::FormatError> for Refused {
    fn from(error: windrow::FormatError) -> Self {
        match error {
            windrow::FormatError::NmGroup { .. } => Self::Layer(error.to_string()),
            _ => Self::All(error.into()),
        }
    }
}

impl Pruner<'_> {
    /// Reads a layer and prunes it; `line` is told what it lost.
    fn prune<V: Value>(&self, job: &Job, line: &mut Layer) -> std::result::Result<VectorNm<V>, Refused> {
        let NmTensor { rows, cols, pattern, transposed, .. } = job.weights;
        let mut dense = match &job.source {
            Source::Bitmask(weights) => self.model.read_bitmask::<V>(weights, &self.options)?,
            _ => self.model.read::<V>(&job.tensor, &self.options)?,
        };
        if transposed {
            dense = dense.transposed()?;
        }
        let weights = match &job.source {
            Source::Magnitude => prune_magnitude(dense.values(), rows, cols, pattern)?,
            Source::Zeros | Source::Bitmask(_) => VectorNm::from_dense(dense.values(), rows, cols, pattern)?,
            Source::Mask(mask) => {
                let mask = self.model.read_mask(mask, &self.options)?;
                let mask = if transposed { turned(&mask, cols, rows)? } else { mask };
                VectorNm::from_mask(dense.values(), &mask, (rows, cols), pattern)?
            }
        };
        line.vector = Some(pattern.l());
        line.measure(dense.values(), weights.values());
        Ok(weights)
    }
}

/// The transpose of a mask of so many rows and columns.
fn turned(mask: &[bool], rows: usize, cols: usize) -> std::result::Result<Vec<bool>, windrow::FormatError> {
    let mut turned = try_with_room(mask.len(), "the transposed mask")?;
    turned.extend((0..cols).flat_map(|col| (0..rows).map(move |row| mask[row * cols + col])));
    Ok(turned)
}
