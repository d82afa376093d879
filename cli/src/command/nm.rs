//! `windrow nm`: prunes weights, plans a product with them, runs it, times it, and checks it.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;
use windrow::io::{self, DenseTensor, Model, NmFormat, NmIndices, ReadOptions, printable};
use windrow::memory::try_with_room;
use windrow::synthetic::seeded_values;
use windrow::{
    ActivationLayout, DenseRef, Device, DeviceBuffer, DeviceKind, DeviceMatrix, Element, Epilogue, NmPattern,
    NmReport, NmSpmm, NmSpmmPlan, Precision, Profile, Value, ValueType, VectorNm, Verification, bf16, f16,
    prune_magnitude, with_value_type,
};
use windrow_bench::measure::{Timing, measure};

use crate::args::{NmArgs, Ratio};
use crate::command::spmm::conclusion;
use crate::console::Console;
use crate::dense::{self, Input, Written};
use crate::failure::{Failure, Result};
use crate::listing::Listing;
use crate::load;
use crate::output::Output;
use crate::product::{poison, refuse_beyond_memory, timed, verdict_beside};
use crate::units::{count, digits, giga_per_second, percent, time_us};

/// Elements whose squares are summed one after another.
const SUMMED_TOGETHER: usize = 1 << 16;

/// What `windrow nm` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    /// Where the weights are from.
    weights: String,
    rows: usize,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pruning: Option<Pruning>,
    /// NaN and infinite ones among the weights that are multiplied.
    non_finite: usize,
    plan: NmReport,
    preprocessing_us: f64,
    time: Timing,
    /// Two operations for each row of `A` and element of `W` that is kept, over the median.
    gflop_s: f64,
    /// The same, counted on all elements of `W`: what a dense product would have to reach.
    dense_gflop_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<String>,
    /// The file of A, if it was not made from the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    /// The file of C.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<Written>,
}

/// What pruning kept and what it cost.
#[derive(Debug, Serialize)]
struct Pruning {
    us: f64,
    /// Share of the sum of squares that is kept; none if the sum is no number.
    kept_squares: Option<f64>,
    /// NaN and infinite weights before pruning.
    non_finite: usize,
}

/// Weights, and how they came about.
struct Weights<V> {
    source: String,
    matrix: VectorNm<V>,
    pruning: Option<Pruning>,
}

/// The dense matrices of a product.
#[derive(Clone, Copy)]
struct Dense<'a> {
    /// Rows of `A` and `C`.
    rows: usize,
    a: Option<Input<'a>>,
    out: Option<Output<'a>>,
}

pub(crate) fn run(args: &NmArgs, console: Console) -> Result<()> {
    // Of a model, every file is one that is read.
    let files: Vec<PathBuf> = [&args.weights, &args.pruned].into_iter().flatten().flat_map(files).collect();
    let mut inputs = vec![args.weights.as_deref(), args.pruned.as_deref(), args.a.as_deref()];
    inputs.extend(files.iter().map(|path| Some(path.as_path())));
    let out = dense::output(args.out.as_deref(), &inputs, console)?;
    let save = args.save.as_ref().map(|path| {
        let inputs: Vec<&Path> = inputs.iter().copied().flatten().collect();
        let output = Output::of(path, &inputs, console)?;
        if !output.is_standard() {
            NmFormat::of_name(path).map_err(|error| error.in_file(path))?;
        }
        Ok::<_, Failure>(output)
    });
    let save = save.transpose()?;
    if save.is_some_and(Output::is_standard) && out.is_some_and(Output::is_standard) {
        return Err(Failure::usage("--save and --out cannot both go to standard output; name a file"));
    }
    let a = Input::of("A", args.a.as_deref(), args.read.limits())?;
    let asked = args.shape.map(|shape| shape.m);
    let rows = dense::agreed(("M of --shape", asked), ("A", a.map(|a| a.rows)))?.unwrap_or(0);
    let dense = Dense { rows, a, out };
    let device = args.device.open()?;
    let weights = with_value_type!(type_of_weights(args)?, V => {
        let weights = weights::<V>(args, &device, console)?;
        if let Some(a) = a {
            a.check(rows, weights.matrix.rows(), "a column for each row of W")?;
        }
        if let Some(output) = save {
            output.write(
                |path| io::write_vector_nm(path, &weights.matrix, NmIndices::Auto),
                |stream| io::write_vector_nm_safetensors(stream, &weights.matrix, NmIndices::Auto),
            )?;
        }
        weights.into_singles()?
    });
    let spinner = console.spinner("planning");
    let plan = plan((&weights.matrix, rows), &device, args, &load::profile(&device, console));
    spinner.finish_and_clear();
    let plan = plan?;
    let outcome = match args.precision {
        Precision::F16 => product::<f16>(weights, &plan, (args, dense), console),
        Precision::Bf16 => product::<bf16>(weights, &plan, (args, dense), console),
        _ => product::<f32>(weights, &plan, (args, dense), console), // of f64 there was no plan
    }?;
    match save.into_iter().chain(out).find(|output| output.is_standard()) {
        Some(output) => console.summary(output, &outcome)?,
        None => console.line(&outcome)?,
    }
    console.object("nm", &outcome)?;
    conclusion(outcome.verification.as_ref())
}

/// The files of a model; none of what is none, which whoever reads it says.
fn files(path: &PathBuf) -> Vec<PathBuf> {
    let model = Model::is_folder_or_index(path).then(|| Model::open(path).ok()).flatten();
    model.iter().flat_map(Model::paths).map(Path::to_owned).collect()
}

/// The type that weights have in their file, and are saved in; f32 of those that are made up.
fn type_of_weights(args: &NmArgs) -> Result<ValueType> {
    let options = read_options(args);
    Ok(match (&args.pruned, &args.weights) {
        // What can be read only once has the type that it is multiplied in.
        (Some(path), _) | (_, Some(path)) if !path.is_file() && !path.is_dir() => ValueType::F32,
        (Some(path), _) => io::vector_nm_type(path, &options).unwrap_or(ValueType::F32),
        (None, Some(path)) => io::tensor_type(path, args.tensor.as_deref()).unwrap_or(ValueType::F32),
        (None, None) => ValueType::F32,
    })
}

fn read_options(args: &NmArgs) -> ReadOptions<'_> {
    ReadOptions { limits: args.read.limits(), tensor: args.tensor.as_deref(), ..ReadOptions::default() }
}

impl<V: Value> Weights<V> {
    /// The same in f32, as the plan takes them.
    fn into_singles(self) -> Result<Weights<f32>> {
        let Self { source, matrix, pruning } = self;
        let mut matrix = Some(matrix);
        // Values that are f32 already are not copied.
        let same =
            (&mut matrix as &mut dyn Any).downcast_mut::<Option<VectorNm<f32>>>().and_then(Option::take);
        let matrix = match (same, matrix) {
            (Some(singles), _) => singles,
            (None, Some(others)) => {
                let mut singles = try_with_room(others.values().len(), "weights in f32")?;
                singles.extend(others.values().iter().map(|value| value.to_f32()));
                others.with_values(singles)?
            }
            (None, None) => return Err(Failure::usage("there are no weights")),
        };
        Ok(Weights { source, matrix, pruning })
    }
}

/// The weights of a file, or made up ones, pruned unless they are already.
fn weights<V: Value>(args: &NmArgs, device: &Device, console: Console) -> Result<Weights<V>> {
    let options = read_options(args);
    let spinner = console.spinner("reading");
    if let Some(path) = &args.pruned {
        let read = io::read_vector_nm::<V>(path, &options);
        spinner.finish_and_clear();
        let (matrix, mut source) = (read?, printable(path));
        if let Some(tensor) = &args.tensor {
            source = format!("{source}, tensor {}", tensor.escape_debug());
        }
        check_shape(args, (matrix.rows(), matrix.cols()), &source)?;
        return Ok(Weights { source, matrix, pruning: None });
    }
    let Some(Ratio { n, m }) = args.pattern else {
        // The parser of the command line sees to it.
        return Err(Failure::usage("name a pattern, for example --pattern 2:8"));
    };
    let pattern = NmPattern::new(n, m, args.vector)
        .map_err(|error| Failure::usage(format!("--pattern, --vector: {error}")))?;
    let (source, dense) = match &args.weights {
        Some(path) => {
            let dense = read_dense::<V>(path, args, &options);
            spinner.finish_and_clear();
            dense?
        }
        None => (format!("made up, seed {}", args.seed), made_up(args, device)?),
    };
    let spinner = console.spinner("pruning");
    let start = Instant::now();
    let pruned = prune_magnitude(dense.values(), dense.rows(), dense.cols(), pattern);
    let us = start.elapsed().as_secs_f64() * 1e6;
    spinner.finish_and_clear();
    let matrix = pruned?;
    let pruning = Pruning::of(dense.values(), matrix.values(), us);
    if pruning.non_finite > 0 {
        console.note(format_args!(
            "note: {} of {} weights are NaN or infinite",
            count(pruning.non_finite),
            count(dense.values().len())
        ));
    }
    Ok(Weights { source, matrix, pruning: Some(pruning) })
}

impl Pruning {
    fn of<V: Value>(all: &[V], kept: &[V], us: f64) -> Self {
        Self { us, kept_squares: kept_squares(all, kept), non_finite: non_finite(all) }
    }
}

/// The share of the sum of squares that is kept; none if some of the values is no number or infinite.
pub(crate) fn kept_squares<V: Value>(all: &[V], kept: &[V]) -> Option<f64> {
    let largest = all.par_iter().map(|x| x.to_f64().abs()).reduce(|| 0.0, f64::max);
    if non_finite(all) > 0 {
        return None;
    }
    if largest == 0.0 {
        return Some(1.0);
    }
    // Compared with the largest, none is too large or too small for its square. Sums of fixed parts, one after another:
    // the same whatever the number of threads.
    let squares = |values: &[V]| {
        let square = |x: &V| (x.to_f64() / largest).powi(2);
        let parts = values.par_chunks(SUMMED_TOGETHER).map(|part| part.iter().map(square).sum());
        parts.collect::<Vec<f64>>().iter().sum::<f64>()
    };
    Some(squares(kept) / squares(all))
}

pub(crate) fn non_finite<V: Value>(values: &[V]) -> usize {
    values.par_iter().filter(|value| !value.to_f64().is_finite()).count()
}

fn read_dense<V: Value>(
    path: &Path,
    args: &NmArgs,
    options: &ReadOptions<'_>,
) -> Result<(String, DenseTensor<V>)> {
    let mut dense = io::read_tensor::<V>(path, args.tensor.as_deref(), options)?;
    if args.transpose {
        dense = dense.transposed()?;
    }
    let source = format!("{}, tensor {}", printable(path), dense.name().escape_debug());
    check_shape(args, (dense.rows(), dense.cols()), &source)?;
    Ok((source, dense))
}

/// Whether weights from a file are K × N, if the shape says more than M.
fn check_shape(args: &NmArgs, found: (usize, usize), source: &str) -> Result<()> {
    let asked = args.shape.and_then(|shape| shape.weights);
    let Some((n, k)) = asked.filter(|&(n, k)| found != (k, n)) else { return Ok(()) };
    let turned = found == (n, k) && args.weights.is_some();
    let remedy = match (turned, args.transpose) {
        (true, false) => "turn them round with --transpose",
        (true, true) => "leave --transpose out",
        _ => "give --shape M alone, or the sizes of the weights",
    };
    let (rows, cols) = found;
    Err(Failure::usage(format!(
        "{source}: the weights are {rows} × {cols}, --shape asks for {k} × {n}; {remedy}"
    )))
}

/// Dense weights from the seed, with a name nobody sees.
fn made_up<V: Value>(args: &NmArgs, device: &Device) -> Result<DenseTensor<V>> {
    let Some((n, k)) = args.shape.and_then(|shape| shape.weights) else {
        return Err(Failure::usage(match args.shape {
            Some(_) => "--shape M alone needs --weights or --pruned; write MxNxK",
            None => "--a alone needs --weights or --pruned; write --shape MxNxK",
        }));
    };
    // The dense weights, and what is kept of them: on the host, which is the device if that is the CPU.
    let needed = 8 * (n as u128) * (k as u128);
    if device.kind() == DeviceKind::Cpu {
        refuse_beyond_memory(device, needed, || format!("the weights ({k} × {n})"), "--shape")?;
    }
    let len = k
        .checked_mul(n)
        .ok_or_else(|| Failure::usage("--shape: the weights are too large; use smaller sizes"))?;
    Ok(DenseTensor::new("weights", k, n, seeded_values::<V>(len, !args.seed)?)?)
}

fn plan(
    (weights, rows): (&VectorNm<f32>, usize),
    device: &Device,
    args: &NmArgs,
    profile: &Profile,
) -> Result<NmSpmmPlan> {
    let mut builder = NmSpmm::builder(weights)
        .profile(profile)
        .rows(rows)
        .precision(args.precision)
        .layout(args.layout)
        .scale(args.scale)
        .algorithm(args.algorithm)
        .finite_activations(args.finite)
        .dense_fallback(args.dense_fallback)
        .packing(args.packing)
        .autotune(args.autotune);
    if let Some(limit) = args.memory.limit {
        builder = builder.memory_limit(limit);
    }
    if let Some(entry) = &args.kernel {
        builder = builder.kernel(entry);
    }
    Ok(builder.build(device)?)
}

fn product<E: Element<Sum = f32>>(
    weights: Weights<f32>,
    plan: &NmSpmmPlan,
    (args, Dense { rows: m, a: of_file, out }): (&NmArgs, Dense<'_>),
    console: Console,
) -> Result<Outcome> {
    let device = plan.device();
    let (k, n) = plan.shape();
    check_memory::<E>(m, (k, n), device)?;
    let spinner = console.spinner("making A");
    let (rows, cols) = args.layout.stored(m, k);
    let a = match of_file {
        Some(file) => {
            let a = file.read::<E>(console)?;
            let a = dense::view(&a)?;
            let stored = match args.layout {
                ActivationLayout::KMajor => a.transposed(),
                _ => a,
            };
            DeviceMatrix::upload(device, stored)?
        }
        None => {
            let a = seeded_values::<E>(m * k, args.seed)?;
            DeviceMatrix::upload(device, DenseRef::packed(&a, rows, cols)?)?
        }
    };
    let bias = args.bias.then(|| seeded_values::<f32>(n, args.seed.rotate_left(32))).transpose()?;
    let bias = bias.map(|bias| DeviceBuffer::from_slice(device, &bias)).transpose()?;
    let mut c = DeviceMatrix::<f32>::zeros(device, m, n)?;
    if args.verify {
        // An element that no kernel writes cannot pass for a right one.
        poison(&mut c)?;
    }
    spinner.finish_and_clear();
    let run = Epilogue { bias: bias.as_ref(), activation: args.activation, ..Epilogue::default() };
    let spinner = console.spinner("timing");
    let time = measure(device, args.timing.sampling(), || plan.run_into(&run, &a, &mut c));
    spinner.finish_and_clear();
    let time = time?;
    let spinner = console.spinner("verifying");
    let verification = args.verify.then(|| plan.verify(&weights.matrix, &run, &a, &c)).transpose();
    spinner.finish_and_clear();
    let verification = verification?;
    // What is wrong is not written.
    let right = verification.as_ref().is_none_or(Verification::passed);
    let out = out.filter(|_| right).map(|output| dense::write(output, &c)).transpose()?;
    let report = plan.report().clone();
    let giga = |amount| giga_per_second(amount, time.median_us);
    Ok(Outcome {
        weights: weights.source,
        rows: m,
        seed: args.seed,
        pruning: weights.pruning,
        non_finite: non_finite(weights.matrix.values()),
        preprocessing_us: report.preprocessing_us(),
        gflop_s: giga(report.flop(m)),
        dense_gflop_s: giga(2.0 * m as f64 * n as f64 * k as f64),
        plan: report,
        time,
        verification,
        saved: args.save.as_ref().map(|path| Output::name_of(path)),
        a: of_file.map(|a| a.printed()),
        out,
    })
}

/// Whether `A` and `C` fit, before a byte is allocated: an operating system may promise more than it has.
fn check_memory<E: Element>(m: usize, (k, n): (usize, usize), device: &Device) -> Result<()> {
    let (m, k, n) = (m as u128, k as u128, n as u128);
    let (a, c) = (m * k * size_of::<E>() as u128, m * n * 4);
    // On the CPU, A exists twice while it is made, and as f32 while it is multiplied.
    let needed = if device.kind() == DeviceKind::Cpu { 2 * a + 4 * m * k + c } else { a + c };
    refuse_beyond_memory(device, needed, || format!("A ({m} × {k}) and C ({m} × {n})"), "--shape")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.plan)?;
        let mut listing = Listing::default();
        listing.add("weights", self.weights.as_str());
        if let Some(Pruning { us, kept_squares, non_finite }) = self.pruning {
            let kept = match kept_squares {
                Some(share) => format!("{} of the sum of squares kept", percent(share)),
                None => format!(
                    "no share of squares to tell: {} weights were NaN or infinite before",
                    count(non_finite)
                ),
            };
            listing.add("pruning", format!("{}, {kept}", time_us(us)));
        }
        if self.non_finite > 0 {
            listing.add(
                "not finite",
                format!("{} of the kept weights are NaN or infinite", count(self.non_finite)),
            );
        }
        listing.add("time", format!("{}, {} rows", timed(&self.time), self.rows));
        let (kept, dense) = (digits(self.gflop_s), digits(self.dense_gflop_s));
        listing.add("rates", format!("{kept} GFLOP/s of what is kept, {dense} GFLOP/s as if dense"));
        if let Some(found) = &self.verification {
            listing.add("verify", verdict_beside(found, self.non_finite, "weights"));
        }
        if let Some(path) = &self.saved {
            listing.add("saved", path.as_str());
        }
        if let Some(out) = &self.out {
            listing.add("C", out.to_string());
        }
        write!(f, "{listing}")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use windrow::EmulatorSchedule;

    use super::*;
    use crate::args::{Arguments, Command};

    #[test]
    fn plans_go_by_the_profile() {
        let command = ["windrow", "nm", "--pattern", "2:8", "--shape", "64x64x64"];
        let Command::Nm(args) = Arguments::parse_from(command).command else { panic!("another command") };
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let weights = seeded_values::<f32>(64 * 64, 1).unwrap();
        let weights = prune_magnitude(&weights, 64, 64, NmPattern::new(2, 8, 32).unwrap()).unwrap();
        let packing = |packed_from| {
            let mut profile = Profile::built_in(&device);
            profile.costs.nm_cuda_cores.packed_from = packed_from;
            plan((&weights, 64), &device, &args, &profile).unwrap().report().to_string()
        };
        assert_ne!(packing(0.0), packing(2.0));
    }
}
