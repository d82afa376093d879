//! `windrow sddmm`: plans a sampled product, runs it, times it, and checks it.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use windrow::io::{Format, WriteOptions};
use windrow::memory::try_filled;
use windrow::synthetic::seeded_values;
use windrow::{
    Csr, DenseRef, Device, DeviceBuffer, DeviceKind, DeviceMatrix, Element, Precision, Profile, Sddmm,
    SddmmPlan, SddmmReport, Value, Verification, with_element,
};
use windrow_bench::measure::{Timing, measure};

use crate::args::SddmmArgs;
use crate::command::spmm::conclusion;
use crate::console::Console;
use crate::dense::{self, Input};
use crate::failure::{Failure, Result};
use crate::listing::Listing;
use crate::load::{self, Written};
use crate::output::Output;
use crate::product::{refuse_beyond_memory, timed, verdict};
use crate::units::{digits, giga_per_second};

/// What `windrow sddmm` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    inner: usize,
    seed: u64,
    /// The files of X and Y, where they were not made from the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    plan: SddmmReport,
    preprocessing_us: f64,
    time: Timing,
    /// Two operations for each entry and column of `X`, over the median.
    gflop_s: f64,
    /// Rows of `X` and `Y` that the kernels gather, over the median.
    gathered_gb_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    /// The file of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<Written>,
}

/// What is multiplied, and where the result goes.
struct Case<'a> {
    args: &'a SddmmArgs,
    inner: usize,
    x: Option<Input<'a>>,
    y: Option<Input<'a>>,
    out: Option<(Output<'a>, WriteOptions<'static>)>,
}

pub(crate) fn run(args: &SddmmArgs, console: Console) -> Result<()> {
    let inputs: Vec<&Path> = [Some(&args.file), args.x.as_ref(), args.y.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| &**path)
        .collect();
    let out = args.out.as_deref().map(|path| {
        let output = Output::of(path, &inputs, console)?;
        let format = output.is_standard().then_some(Format::MatrixMarket);
        Ok::<_, Failure>((output, load::write_options(output, format)?))
    });
    let out = out.transpose()?;
    let limits = args.read.limits();
    let (x, y) = (Input::of("X", args.x.as_deref(), limits)?, Input::of("Y", args.y.as_deref(), limits)?);
    let of_x = dense::agreed(("--inner", args.inner), ("X", x.map(|x| x.cols)))?;
    let of_y = dense::agreed(("--inner", args.inner), ("Y", y.map(|y| y.cols)))?;
    let case = Case { args, inner: of_x.or(of_y).unwrap_or(0), x, y, out };
    match args.precision {
        Precision::F64 => run_with::<f64>(&case, console),
        _ => run_with::<f32>(&case, console),
    }
}

/// With the values of the file as `V`.
fn run_with<V: Value>(case: &Case<'_>, console: Console) -> Result<()> {
    let args = case.args;
    let device = args.device.open()?;
    let (a, _) = load::read::<V>(&args.file, &args.read, console)?;
    if let Some(x) = case.x {
        x.check(a.rows(), case.inner, "a row for each row of A, and as many columns as Y")?;
    }
    if let Some(y) = case.y {
        y.check(a.cols(), case.inner, "a row for each column of A, and as many columns as X")?;
    }
    let profile = load::profile(&device, console);
    let spinner = console.spinner("planning");
    let plan = plan(&a, &device, case, &profile);
    spinner.finish_and_clear();
    let plan = plan?;
    let outcome = with_element!(args.precision, T => product::<T, V>(&a, &plan, case, console))?;
    match case.out {
        Some((output, _)) => console.summary(output, &outcome)?,
        None => console.line(&outcome)?,
    }
    console.object("sddmm", &outcome)?;
    conclusion(outcome.verification.as_ref())
}

fn plan<V: Value>(a: &Csr<V>, device: &Device, case: &Case<'_>, profile: &Profile) -> Result<SddmmPlan> {
    let args = case.args;
    let mut builder = Sddmm::builder(a).inner(case.inner).precision(args.precision).form(args.form);
    builder = builder.algorithm(args.algorithm).schedule(args.schedule).profile(profile);
    builder = builder.autotune(args.autotune);
    if let Some(entries) = args.tile_threshold {
        builder = builder.tile_threshold(entries);
    }
    if let Some(limit) = args.memory.limit {
        builder = builder.memory_limit(limit);
    }
    Ok(builder.build(device)?)
}

fn product<T: Element, V: Value>(
    a: &Csr<V>,
    plan: &SddmmPlan,
    case: &Case<'_>,
    console: Console,
) -> Result<Outcome> {
    let &Case { args, inner, x, y, out } = case;
    let device = plan.device();
    check_memory::<T>((a.rows(), a.cols()), inner, device)?;
    let spinner = console.spinner("making X and Y");
    let operand = |file: Option<Input<'_>>, rows: usize, seed: u64| -> Result<DeviceMatrix<T>> {
        if let Some(file) = file {
            return file.upload(device, console);
        }
        let values = seeded_values::<T>(rows * inner, seed)?;
        Ok(DeviceMatrix::upload(device, DenseRef::packed(&values, rows, inner)?)?)
    };
    let files = [x, y].map(|file| file.map(|file| file.printed()));
    let operands = operand(x, a.rows(), args.seed).and_then(|x| Ok((x, operand(y, a.cols(), !args.seed)?)));
    spinner.finish_and_clear();
    let (x, y) = operands?;
    // An entry that no kernel writes cannot pass for a right one.
    let nan = try_filled(a.nnz(), T::Sum::from_f32(f32::NAN), "a result of NaN")?;
    let mut result = DeviceBuffer::from_slice(device, &nan)?;
    drop(nan);
    let spinner = console.spinner("timing");
    let time = measure(device, args.timing.sampling(), || plan.run_into(T::Sum::ONE, &x, &y, &mut result));
    spinner.finish_and_clear();
    let time = time?;
    let spinner = console.spinner("verifying");
    let verification = args.verify.then(|| plan.verify(a, &x, &y, &result)).transpose();
    spinner.finish_and_clear();
    let verification = verification?;
    // What is wrong is not written.
    let right = verification.as_ref().is_none_or(Verification::passed);
    let out = out
        .filter(|_| right)
        .map(|(output, options)| load::write(output, &a.with_values(result.to_vec()?)?, &options, console));
    let ([x, y], report) = (files, plan.report().clone());
    let giga = |amount| giga_per_second(amount, time.median_us);
    Ok(Outcome {
        file: args.file.display().to_string(),
        inner,
        seed: args.seed,
        x,
        y,
        out: out.transpose()?,
        preprocessing_us: report.preprocessing_us(),
        gflop_s: giga(2.0 * report.nnz as f64 * inner as f64),
        gathered_gb_s: giga(report.gathered_bytes(inner)),
        plan: report,
        time,
        verification,
    })
}

/// Whether `X` and `Y` fit, before a byte is allocated: an operating system may promise more than it has.
fn check_memory<T: Element>((m, n): (usize, usize), inner: usize, device: &Device) -> Result<()> {
    let rows = (m as u128) + (n as u128);
    let bytes = rows * (inner as u128) * (size_of::<T>() as u128);
    // On the CPU they exist twice while they are made, and in the type of the sums while they are multiplied.
    let needed = if device.kind() == DeviceKind::Cpu {
        2 * bytes + rows * (inner as u128) * (size_of::<T::Sum>() as u128)
    } else {
        bytes
    };
    let operands = || format!("X ({m} × {inner}) and Y ({n} × {inner})");
    refuse_beyond_memory(device, needed, operands, "--inner")
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.plan)?;
        let mut listing = Listing::default();
        listing.add("time", format!("{}, inner dimension {}", timed(&self.time), self.inner));
        let (flop, bytes) = (digits(self.gflop_s), digits(self.gathered_gb_s));
        listing.add("rates", format!("{flop} GFLOP/s, {bytes} GB/s gathered"));
        if let Some(found) = &self.verification {
            listing.add("verify", verdict(found));
        }
        if let Some(out) = &self.out {
            listing.add("result", out.to_string());
        }
        write!(f, "{listing}")
    }
}
