//! `windrow attention`: plans attention over the entries of a matrix, runs it, times it, and checks it.

use std::fmt;

use serde::Serialize;
use windrow::synthetic::seeded_values;
use windrow::{
    AttentionBackward, AttentionGradients, AttentionOperands, AttentionOptions, AttentionPlan,
    AttentionReport, AttentionScores, Csr, DenseRef, Device, DeviceBuffer, DeviceKind, DeviceMatrix, Element,
    GraphAttention, HeadLayout, Precision, Value, Verification, bf16, f16,
};
use windrow_bench::measure::{Sampling, Timing, measure};

use crate::args::AttentionArgs;
use crate::command::spmm::conclusion;
use crate::console::Console;
use crate::failure::Result;
use crate::listing::Listing;
use crate::load;
use crate::product::{poison, refuse_beyond_memory, timed, verdict};
use crate::units::{digits, giga_per_second};

/// What `windrow attention` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    seed: u64,
    scale: f32,
    plan: AttentionReport,
    preprocessing_us: f64,
    time: Timing,
    /// Two operations for each entry, head and column of `Q` and `V`, over the median.
    gflop_s: f64,
    /// Rows of `K` and `V` that the kernels gather, over the median.
    gathered_gb_s: f64,
    /// The gradients of `Q`, `K` and `V`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gradients: Option<Timing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
}

pub(crate) fn run(args: &AttentionArgs, console: Console) -> Result<()> {
    let device = args.device.open()?;
    let (a, _) = load::read::<f32>(&args.file, &args.read, console)?;
    let options = AttentionOptions {
        heads: args.heads,
        layout: args.layout,
        scores: match (args.additive, args.gatv2) {
            (Some(negative_slope), _) => AttentionScores::Additive { negative_slope },
            (None, Some(negative_slope)) => AttentionScores::Gatv2 { negative_slope },
            (None, None) => AttentionScores::DotProduct,
        },
        columns: args.dim,
        value_columns: args.value_dim,
        precision: args.precision,
        algorithm: args.algorithm,
        window_rows: args.window_rows,
        biased: false,
        gradients: args.gradients,
        memory_limit: args.memory.limit,
    };
    let spinner = console.spinner("planning");
    let plan = GraphAttention::builder(&a).options(options).build(&device);
    spinner.finish_and_clear();
    let plan = plan?;
    // Of other precisions there is no plan.
    let outcome = match (args.precision, args.additive) {
        (Precision::F16, None) => attend::<f16, f16>(&a, &plan, args, console),
        (Precision::F16, Some(_)) => attend::<f16, f32>(&a, &plan, args, console),
        (Precision::Bf16, None) => attend::<bf16, bf16>(&a, &plan, args, console),
        (Precision::Bf16, Some(_)) => attend::<bf16, f32>(&a, &plan, args, console),
        (Precision::F32 | Precision::Tf32 | Precision::F64, _) => {
            attend::<f32, f32>(&a, &plan, args, console)
        }
    }?;
    console.line(&outcome)?;
    console.object("attention", &outcome)?;
    conclusion(outcome.verification.as_ref())
}

/// Attends with values of `T` and scores of `S`.
fn attend<T: Element<Sum = f32>, S: Element<Sum = f32>>(
    a: &Csr<f32>,
    plan: &AttentionPlan,
    args: &AttentionArgs,
    console: Console,
) -> Result<Outcome> {
    let (device, options) = (plan.device(), &plan.report().options);
    check_memory::<T, S>((a.rows(), a.cols()), options, device)?;
    let value_columns = options.value_columns();
    let shape = |rows: usize, columns: usize| match options.layout {
        HeadLayout::Rows => (options.heads * rows, columns),
        _ => (rows, options.heads * columns),
    };
    let spinner = console.spinner("making Q, K and V");
    let of_scores = options.score_columns();
    let operands = operand::<S>(device, shape(a.rows(), of_scores), args.seed).and_then(|q| {
        let k = operand::<S>(device, shape(a.cols(), of_scores), !args.seed)?;
        let v = operand::<T>(device, shape(a.cols(), value_columns), args.seed.wrapping_add(1 << 32))?;
        Ok((q, k, v))
    });
    spinner.finish_and_clear();
    let (q, k, v) = operands?;
    let vector = vector_of(device, options, args.seed)?;
    let operands = || with_vector(AttentionOperands::new(&q, &k, &v), vector.as_ref());
    let (rows, columns) = shape(a.rows(), value_columns);
    let mut out = DeviceMatrix::<f32>::zeros(device, rows, columns)?;
    // An element that no kernel writes cannot pass for a right one.
    poison(&mut out)?;
    let scale = args.scale.unwrap_or_else(|| 1.0 / (of_scores as f32).sqrt());
    let spinner = console.spinner("timing");
    let stream = device.stream();
    let time =
        measure(device, args.timing.sampling(), || plan.forward_on(&stream, scale, operands(), &mut out));
    spinner.finish_and_clear();
    let time = time?;
    let spinner = console.spinner("verifying");
    let verification = args.verify.then(|| plan.verify(a, scale, &operands(), &out)).transpose();
    spinner.finish_and_clear();
    let gradients = match args.gradients {
        true => {
            let gradient = operand::<T>(device, (rows, columns), args.seed.wrapping_add(2 << 32))?;
            let spinner = console.spinner("timing the gradients");
            let time = time_gradients(
                plan,
                scale,
                ([&q, &k], [&v, &gradient]),
                vector.as_ref(),
                args.timing.sampling(),
            );
            spinner.finish_and_clear();
            Some(time?)
        }
        false => None,
    };
    let report = plan.report().clone();
    let giga = |amount| giga_per_second(amount, time.median_us);
    let of_entry = (options.heads * (of_scores + value_columns)) as f64;
    let gathered_bytes =
        (options.heads * (of_scores * size_of::<S>() + value_columns * size_of::<T>())) as f64;
    Ok(Outcome {
        file: args.file.display().to_string(),
        seed: args.seed,
        scale,
        preprocessing_us: report.preprocessing_us(),
        gflop_s: giga(2.0 * report.nnz as f64 * of_entry),
        gathered_gb_s: giga(report.gathered as f64 * gathered_bytes),
        plan: report,
        time,
        gradients,
        verification: verification?,
    })
}

/// A matrix of made-up elements on the device.
fn operand<T: Element>(
    device: &Device,
    (rows, columns): (usize, usize),
    seed: u64,
) -> Result<DeviceMatrix<T>> {
    let values = seeded_values::<T>(rows * columns, seed)?;
    Ok(DeviceMatrix::upload(device, DenseRef::packed(&values, rows, columns)?)?)
}

/// What scores of `GATv2` multiply sums by, for others none.
fn vector_of(device: &Device, options: &AttentionOptions, seed: u64) -> Result<Option<DeviceBuffer<f32>>> {
    if !options.scores.have_vector() {
        return Ok(None);
    }
    let numbers = seeded_values::<f32>(options.heads * options.score_columns(), seed.wrapping_add(3 << 32))?;
    Ok(Some(DeviceBuffer::from_slice(device, &numbers)?))
}

fn with_vector<'a, T: Value, S: Value>(
    operands: AttentionOperands<'a, T, S>,
    vector: Option<&'a DeviceBuffer<f32>>,
) -> AttentionOperands<'a, T, S> {
    vector.into_iter().fold(operands, AttentionOperands::vector)
}

/// Times the gradients, of the type of `V`, given that of the result.
fn time_gradients<T: Element<Sum = f32>, S: Element<Sum = f32>>(
    plan: &AttentionPlan,
    scale: f32,
    ([q, k], [v, gradient]): ([&DeviceMatrix<S>; 2], [&DeviceMatrix<T>; 2]),
    vector: Option<&DeviceBuffer<f32>>,
    sampling: Sampling,
) -> Result<Timing> {
    let (device, stream) = (plan.device(), plan.device().stream());
    let zeros = |rows, columns| DeviceMatrix::<T>::zeros(device, rows, columns);
    let (mut of_q, mut of_k) = (zeros(q.rows(), q.cols())?, zeros(k.rows(), k.cols())?);
    let (mut of_v, mut out) = (zeros(v.rows(), v.cols())?, zeros(gradient.rows(), gradient.cols())?);
    let mut states =
        DeviceBuffer::<f32>::alloc_zeroed(device, 2 * plan.report().options.heads * plan.report().rows)?;
    let operands = || with_vector(AttentionOperands::new(q, k, v), vector);
    plan.forward_on(&stream, scale, operands().states(&mut states), &mut out)?;
    let time = measure(device, sampling, || {
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
        plan.backward_on(&stream, scale, AttentionBackward::new(operands(), &states, &out, gradient), found)
    })?;
    Ok(time)
}

/// Whether the operands fit, before a byte is allocated: an operating system may promise more than it has.
fn check_memory<T: Element, S: Element>(
    (m, n): (usize, usize),
    options: &AttentionOptions,
    device: &Device,
) -> Result<()> {
    let heads = options.heads as u128;
    let (m, n) = (m as u128 * heads, n as u128 * heads);
    let (d, e) = (options.score_columns() as u128, options.value_columns() as u128);
    let inputs = (m + n) * d * size_of::<S>() as u128 + n * e * size_of::<T>() as u128;
    // On the CPU they exist twice while they are made.
    let inputs = if device.kind() == DeviceKind::Cpu { 2 * inputs } else { inputs };
    let gradients = if options.gradients { inputs + 2 * m * e * size_of::<T>() as u128 } else { 0 };
    let needed = inputs + gradients + m * e * size_of::<f32>() as u128;
    let operands = || format!("Q ({m} × {d}), K ({n} × {d}), V ({n} × {e}) and the result");
    refuse_beyond_memory(device, needed, operands, "--dim or --heads")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.plan)?;
        let mut listing = Listing::default();
        listing.add("time", format!("{}, scale {}", timed(&self.time), self.scale));
        let (flop, bytes) = (digits(self.gflop_s), digits(self.gathered_gb_s));
        listing.add("rates", format!("{flop} GFLOP/s, {bytes} GB/s gathered"));
        if let Some(time) = &self.gradients {
            let times = time.median_us / self.time.median_us;
            listing.add("gradients", format!("{}, {times:.2} × the time of the result", timed(time)));
        }
        if let Some(found) = &self.verification {
            listing.add("verify", verdict(found));
        }
        write!(f, "{listing}")
    }
}
