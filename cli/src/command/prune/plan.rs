//! What becomes of each tensor of a model.

use std::collections::BTreeMap;
use std::path::Path;

use regex_lite::Regex;
use windrow::io::{self, BitmaskWeights, Model, ModelTensor, NmSink, NmTensor, Rewrite};
use windrow::{NmPattern, ValueType, with_value_type};

use super::Patterns;
use super::layer::{Job, Pruner, Refused, Source};
use super::report::{Layer, extents, name_of};
use crate::args::PruneArgs;
use crate::failure::{Failure, Result};
use crate::units::count;

/// How torch.nn.utils.prune calls weights that have a mask beside them.
const MASKED: &str = "_orig";

/// Where masks are, and how they are called.
#[derive(Clone, Copy)]
pub(super) struct Masks<'a> {
    pub(super) model: &'a Model,
    /// Whether that is another model than the one that is pruned.
    pub(super) is_other: bool,
    pub(super) suffix: &'a str,
}

impl Masks<'_> {
    /// The mask of the weights `name`, and what these are called without it; or why there is none.
    fn of(self, name: &str) -> std::result::Result<(String, String), String> {
        let mask = format!("{name}{}", self.suffix);
        if self.model.tensor(&mask).is_some() {
            return Ok((mask, name.to_owned()));
        }
        let Some(base) = name.strip_suffix(MASKED) else {
            return Err(format!("no mask {}", name_of(&mask)));
        };
        let other = format!("{base}{}", self.suffix);
        match self.model.tensor(&other) {
            Some(_) => Ok((other, base.to_owned())),
            None => Err(format!("no mask {} or {}", name_of(&mask), name_of(&other))),
        }
    }

    /// Whether the tensor `name` of the model that is pruned is the mask of another.
    fn has(self, name: &str) -> bool {
        let of = name.strip_suffix(self.suffix).filter(|_| !self.is_other);
        of.is_some_and(|of| {
            self.model.tensor(of).is_some() || self.model.tensor(&format!("{of}{MASKED}")).is_some()
        })
    }
}

/// What is to be done with the tensors of a model.
pub(super) struct Plan {
    /// Layers that are pruned, in the order of the model.
    pub(super) jobs: Vec<Job>,
    /// A line for each tensor whose name matches.
    pub(super) lines: Vec<Layer>,
}

impl Plan {
    pub(super) fn of(
        model: &Model,
        patterns: Patterns,
        (args, layers, masks): (&PruneArgs, Option<&Regex>, Option<Masks<'_>>),
    ) -> Result<Self> {
        let matches = |name: &str| layers.is_none_or(|layers| layers.is_match(name));
        let mut plan = Self { jobs: Vec::new(), lines: Vec::new() };
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
                    plan.packed(tensor, weights);
                }
            } else if let Some(weights) = parts.get(name) {
                if weights.tensors()[0] == name && matches(&weights.name()) {
                    plan.bitmask(tensor, weights, patterns.sparse);
                }
            } else if !masks.is_some_and(|masks| masks.has(name)) {
                let mask = masks.map(|masks| masks.of(name));
                let called = match &mask {
                    Some(Ok((_, called))) => called,
                    _ => name,
                };
                if matches(name) || matches(called) {
                    plan.dense(tensor, (called.to_owned(), mask.as_ref(), masks), (args, patterns));
                }
            }
        }
        if plan.lines.is_empty() {
            return Err(Failure::usage(none_matches(model)));
        }
        Ok(plan)
    }

    /// Notes weights that are packed already.
    fn packed(&mut self, values: ModelTensor<'_>, weights: &NmTensor) {
        let NmTensor { rows, cols, transposed, .. } = *weights;
        let shape = if transposed { vec![cols, rows] } else { vec![rows, cols] };
        self.lines.push(Layer::of(weights.name.clone(), shape, values.dtype()));
        self.leave_last(format!("it is {} already", weights.pattern));
    }

    /// Plans weights that are in the layout of compressed-tensors.
    fn bitmask(&mut self, values: ModelTensor<'_>, weights: &BitmaskWeights, pattern: NmPattern) {
        let [_, bits, extents] = weights.tensors();
        let shape = match *values.shape() {
            [rows, half] => vec![rows, half.saturating_mul(2)],
            _ => values.shape().to_vec(),
        };
        self.lines.push(Layer::of(weights.name(), shape.clone(), values.dtype()));
        match suits(values) {
            Err(left) => self.leave_last(left),
            Ok((value_type, _)) => {
                let name = weights.name();
                let packed =
                    NmTensor { name, rows: shape[1], cols: shape[0], pattern, value_type, transposed: true };
                self.jobs.push(Job {
                    tensor: values.name().to_owned(),
                    weights: packed,
                    source: Source::Bitmask(weights.clone()),
                    parts: vec![bits, extents],
                    line: self.lines.len() - 1,
                });
            }
        }
    }

    /// Plans a tensor that will be `called` so, with its mask if there are any.
    fn dense(
        &mut self,
        tensor: ModelTensor<'_>,
        (called, mask, masks): (String, Option<&MaskOf>, Option<Masks<'_>>),
        (args, patterns): (&PruneArgs, Patterns),
    ) {
        self.lines.push(Layer::of(called.clone(), tensor.shape().to_vec(), tensor.dtype()));
        let (value_type, [first, second]) = match suits(tensor) {
            Ok(suits) => suits,
            Err(left) => return self.leave_last(left),
        };
        let mut parts = Vec::new();
        let (source, pattern) = match (mask, masks) {
            (Some(Err(none)), _) => return self.leave_last(none.clone()),
            (Some(Ok((mask, _))), Some(masks)) => {
                let shape = masks.model.tensor(mask).map_or(&[][..], ModelTensor::shape);
                if shape != tensor.shape() {
                    return self.leave_last(format!("its mask has shape {}", extents(shape)));
                }
                parts.extend((!masks.is_other).then(|| mask.clone()));
                (Source::Mask(mask.clone()), patterns.sparse)
            }
            _ if args.zeros => (Source::Zeros, patterns.sparse),
            _ => (Source::Magnitude, patterns.dense),
        };
        let (rows, cols) = if args.in_out { (first, second) } else { (second, first) };
        let weights = NmTensor { name: called, rows, cols, pattern, value_type, transposed: !args.in_out };
        let line = self.lines.len() - 1;
        self.jobs.push(Job { tensor: tensor.name().to_owned(), weights, source, parts, line });
    }

    fn leave_last(&mut self, left: String) {
        if let Some(line) = self.lines.last_mut() {
            line.left = Some(left);
        }
    }

    /// Prunes every layer and keeps what is known of it; leaves those that have not the pattern.
    pub(super) fn check(&mut self, pruner: &Pruner<'_>, mut done: impl FnMut(u64)) -> Result<()> {
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

    pub(super) fn write(
        &mut self,
        pruner: &Pruner<'_>,
        out: &Path,
        progress: Option<io::ProgressFn<'_>>,
    ) -> Result<u64> {
        let mut rewrites: BTreeMap<String, Rewrite> = BTreeMap::new();
        for job in &self.jobs {
            rewrites.extend(job.parts.iter().map(|part| (part.clone(), Rewrite::Omit)));
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

/// A mask and what its weights are called, or why there is none.
type MaskOf = std::result::Result<(String, String), String>;

/// What is said where no name matches.
fn none_matches(model: &Model) -> String {
    let some: Vec<String> = model.tensors().take(3).map(|tensor| name_of(tensor.name())).collect();
    match model.tensors().count() {
        0 => "the model has no tensors".to_owned(),
        all => {
            format!("--layers matches none of {} tensors; some are called {}", count(all), some.join(", "))
        }
    }
}

/// Type and extents of a tensor that can be pruned, or why it cannot.
fn suits(tensor: ModelTensor<'_>) -> std::result::Result<(ValueType, [usize; 2]), String> {
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
    Ok((value_type, [first, second]))
}
