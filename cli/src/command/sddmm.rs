//! `windrow sddmm`: plans a sampled product, runs it, times it, and checks it.

use std::fmt;

use serde::Serialize;
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
use crate::failure::Result;
use crate::listing::Listing;
use crate::load;
use crate::product::{refuse_beyond_memory, timed, verdict};
use crate::units::{digits, giga_per_second};

/// What `windrow sddmm` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    inner: usize,
    seed: u64,
    plan: SddmmReport,
    preprocessing_us: f64,
    time: Timing,
    /// Two operations for each entry and column of `X`, over the median.
    gflop_s: f64,
    /// Rows of `X` and `Y` that the kernels gather, over the median.
    gathered_gb_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
}

pub(crate) fn run(args: &SddmmArgs, console: Console) -> Result<()> {
    match args.precision {
        Precision::F64 => run_with::<f64>(args, console),
        _ => run_with::<f32>(args, console),
    }
}

/// With the values of the file as `V`.
fn run_with<V: Value>(args: &SddmmArgs, console: Console) -> Result<()> {
    let device = args.device.open()?;
    let (a, _) = load::read::<V>(&args.file, &args.read, console)?;
    let profile = load::profile(&device, console);
    let spinner = console.spinner("planning");
    let plan = plan(&a, &device, args, &profile);
    spinner.finish_and_clear();
    let plan = plan?;
    let outcome = with_element!(args.precision, T => product::<T, V>(&a, &plan, args, console))?;
    console.line(&outcome)?;
    console.object("sddmm", &outcome)?;
    conclusion(outcome.verification.as_ref())
}

fn plan<V: Value>(a: &Csr<V>, device: &Device, args: &SddmmArgs, profile: &Profile) -> Result<SddmmPlan> {
    let mut builder = Sddmm::builder(a).inner(args.inner).precision(args.precision).form(args.form);
    builder = builder.algorithm(args.algorithm).schedule(args.schedule).profile(profile);
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
    args: &SddmmArgs,
    console: Console,
) -> Result<Outcome> {
    let device = plan.device();
    check_memory::<T>((a.rows(), a.cols()), args.inner, device)?;
    let spinner = console.spinner("making X and Y");
    let operand = |rows: usize, seed: u64| -> Result<DeviceMatrix<T>> {
        let values = seeded_values::<T>(rows * args.inner, seed)?;
        Ok(DeviceMatrix::upload(device, DenseRef::packed(&values, rows, args.inner)?)?)
    };
    let operands = operand(a.rows(), args.seed).and_then(|x| Ok((x, operand(a.cols(), !args.seed)?)));
    spinner.finish_and_clear();
    let (x, y) = operands?;
    // An entry that no kernel writes cannot pass for a right one.
    let nan = try_filled(a.nnz(), T::Sum::from_f32(f32::NAN), "a result of NaN")?;
    let mut out = DeviceBuffer::from_slice(device, &nan)?;
    drop(nan);
    let spinner = console.spinner("timing");
    let time = measure(device, args.timing.sampling(), || plan.run_into(T::Sum::ONE, &x, &y, &mut out));
    spinner.finish_and_clear();
    let time = time?;
    let spinner = console.spinner("verifying");
    let verification = args.verify.then(|| plan.verify(a, &x, &y, &out)).transpose();
    spinner.finish_and_clear();
    let report = plan.report().clone();
    let giga = |amount| giga_per_second(amount, time.median_us);
    Ok(Outcome {
        file: args.file.display().to_string(),
        inner: args.inner,
        seed: args.seed,
        preprocessing_us: report.preprocessing_us(),
        gflop_s: giga(2.0 * report.nnz as f64 * args.inner as f64),
        gathered_gb_s: giga(report.gathered_bytes(args.inner)),
        plan: report,
        time,
        verification: verification?,
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
        write!(f, "{listing}")
    }
}
