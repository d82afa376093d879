//! `windrow mttkrp` and `windrow ttm`: plan a product of a sparse tensor, run it, time it, and check it.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use windrow::io::{self, ReadOptions};
use windrow::synthetic::seeded_values;
use windrow::{
    Algorithm, Csf3, DenseRef, Device, DeviceKind, DeviceMatrix, Element, Mttkrp, MttkrpPlan, MttkrpReport,
    Precision, Profile, SpmmReport, Ttm, TtmPlan, Value, Verification, with_element,
};
use windrow_bench::measure::{TensorOperation, Timing, measure};

use crate::args::{MttkrpArgs, TensorArgs, TtmArgs};
use crate::command::spmm::conclusion;
use crate::console::{Console, tell};
use crate::dense::{self, Input, Written};
use crate::failure::{Failure, Result};
use crate::listing::Listing;
use crate::load;
use crate::output::Output;
use crate::product::{poison, refuse_beyond_memory, timed, verdict};
use crate::units::{count, digits, giga_per_second};

/// What `windrow mttkrp` and `windrow ttm` print, and write with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    mode: u8,
    width: usize,
    seed: u64,
    /// The files of the matrices, where they were not made from the seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
    dims: [usize; 3],
    nnz: usize,
    fibers: usize,
    plan: Report,
    preprocessing_us: f64,
    time: Timing,
    /// Operations over the median: for each entry and column three of MTTKRP, two of TTM.
    gflop_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    /// The file of Y.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<Written>,
}

/// The report of a plan.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Report {
    Mttkrp(Box<MttkrpReport>),
    Ttm(Box<SpmmReport>),
}

/// A plan of either product.
enum Plan {
    Mttkrp(Box<MttkrpPlan>),
    Ttm(Box<TtmPlan>),
}

/// What is done with a tensor.
#[derive(Clone, Copy)]
enum Product {
    Mttkrp,
    Ttm(Algorithm),
}

impl Product {
    fn operation(self) -> TensorOperation {
        match self {
            Self::Mttkrp => TensorOperation::Mttkrp,
            Self::Ttm(_) => TensorOperation::Ttm,
        }
    }

    fn plan<V: Value>(
        self,
        a: &Csf3<V>,
        (args, width): (&TensorArgs, usize),
        device: &Device,
        profile: &Profile,
    ) -> Result<Plan> {
        let TensorArgs { precision, determinism, .. } = *args;
        Ok(match self {
            Self::Mttkrp => {
                let mut builder = Mttkrp::builder(a).width(width).precision(precision).profile(profile);
                builder = builder.determinism(determinism);
                if let Some(point) = args.parallelism {
                    builder = builder.parallelism(point);
                }
                if let Some(limit) = args.memory.limit {
                    builder = builder.memory_limit(limit);
                }
                Plan::Mttkrp(Box::new(builder.build(device)?))
            }
            Self::Ttm(algorithm) => {
                let mut builder = Ttm::builder(a).width(width).precision(precision).algorithm(algorithm);
                builder = builder.determinism(determinism).profile(profile);
                if let Some(point) = args.parallelism {
                    builder = builder.parallelism(point);
                }
                if let Some(limit) = args.memory.limit {
                    builder = builder.memory_limit(limit);
                }
                Plan::Ttm(Box::new(builder.build(device)?))
            }
        })
    }
}

pub(crate) fn mttkrp(args: &MttkrpArgs, console: Console) -> Result<()> {
    run(&args.product, args.c.as_deref(), Product::Mttkrp, console)
}

pub(crate) fn ttm(args: &TtmArgs, console: Console) -> Result<()> {
    run(&args.product, None, Product::Ttm(args.algorithm), console)
}

fn run(args: &TensorArgs, c: Option<&Path>, product: Product, console: Console) -> Result<()> {
    let inputs = [Some(&*args.file), args.b.as_deref(), c];
    let out = dense::output(args.out.as_deref(), &inputs, console)?;
    let limits = args.limits();
    let (b, c) = (Input::of("B", args.b.as_deref(), limits)?, Input::of("C", c, limits)?);
    let of_b = dense::agreed(("--width", args.width), ("B", b.map(|b| b.cols)))?;
    let width = dense::agreed(("--width", args.width), ("C", c.map(|c| c.cols)))?;
    let dense = Dense { width: of_b.or(width).unwrap_or(0), inputs: [b, c], out };
    let outcome = match args.precision {
        Precision::F64 => outcome::<f64>(args, &dense, product, console),
        _ => outcome::<f32>(args, &dense, product, console),
    }?;
    match out {
        Some(output) => console.summary(output, &outcome)?,
        None => console.line(&outcome)?,
    }
    console.object(&product.operation().to_string(), &outcome)?;
    conclusion(outcome.verification.as_ref())
}

/// The dense matrices of a product.
struct Dense<'a> {
    width: usize,
    /// Files of `B` and `C`.
    inputs: [Option<Input<'a>>; 2],
    out: Option<Output<'a>>,
}

/// With the values of the file as `V`.
fn outcome<V: Value>(
    args: &TensorArgs,
    dense: &Dense<'_>,
    product: Product,
    console: Console,
) -> Result<Outcome> {
    let (device, operation) = (args.device.open()?, product.operation());
    let a = read::<V>(args, operation, console)?;
    let case = Case { a: &a, args, operation, dense };
    case.check_inputs()?;
    let profile = load::profile(&device, console);
    let spinner = console.spinner("planning");
    let plan = product.plan(&a, (args, dense.width), &device, &profile);
    spinner.finish_and_clear();
    let plan = plan?;
    with_element!(args.precision, T => case.product::<T>(&plan, &device, console))
}

/// The tensor, its modes in the order that the product takes.
fn read<V: Value>(args: &TensorArgs, operation: TensorOperation, console: Console) -> Result<Csf3<V>> {
    let bar = console.bytes_bar("reading");
    let show = |progress| tell(&bar, progress);
    let options = ReadOptions { limits: args.limits(), progress: Some(&show), ..ReadOptions::default() };
    let tensor = if args.file == Path::new("-") {
        io::read_tns_from(std::io::stdin(), None, &options)
            .map_err(|error| Failure::from(error).with_context("standard input"))
    } else {
        io::read_tns(&args.file, None, &options).map_err(Failure::from)
    };
    bar.finish_and_clear();
    Ok(tensor?.to_csf(operation.order(usize::from(args.mode)))?)
}

/// A tensor and what is done with it.
struct Case<'a, V> {
    a: &'a Csf3<V>,
    args: &'a TensorArgs,
    operation: TensorOperation,
    dense: &'a Dense<'a>,
}

impl<V: Value> Case<'_, V> {
    /// Rows of the factors, and of the result.
    fn shapes(&self) -> (Vec<usize>, usize) {
        let [root, fiber, leaf] = self.a.mode_order().map(|mode| self.a.dims()[mode]);
        match self.operation {
            TensorOperation::Mttkrp => (vec![fiber, leaf], root),
            TensorOperation::Ttm => (vec![leaf], self.a.fibers()),
        }
    }

    /// Whether the files have a row for each index.
    fn check_inputs(&self) -> Result<()> {
        for (input, rows) in self.dense.inputs.iter().zip(self.shapes().0) {
            if let Some(input) = input {
                input.check(
                    rows,
                    self.dense.width,
                    "a row for each index of its mode, and --width columns",
                )?;
            }
        }
        Ok(())
    }

    fn product<T: Element>(&self, plan: &Plan, device: &Device, console: Console) -> Result<Outcome> {
        let Self { a, args, operation, dense: &Dense { width, inputs, out } } = *self;
        let (factors, rows) = self.shapes();
        self.check_memory::<T>(&factors, rows, device)?;
        let spinner = console.spinner("making the matrices");
        let made: Result<Vec<_>> = (0..)
            .zip(factors.iter().zip(inputs))
            .map(|(i, (&rows, input))| {
                if let Some(input) = input {
                    return input.upload(device, console);
                }
                let values = seeded_values::<T>(rows * width, args.seed ^ i)?;
                Ok(DeviceMatrix::upload(device, DenseRef::packed(&values, rows, width)?)?)
            })
            .collect();
        spinner.finish_and_clear();
        let factors = made?;
        // An element that no kernel writes cannot pass for a right one.
        let mut y = DeviceMatrix::<T::Sum>::zeros(device, rows, width)?;
        poison(&mut y)?;
        let (alpha, beta) = (T::Sum::ONE, T::Sum::ZERO);
        let spinner = console.spinner("timing");
        let time = measure(device, args.timing.sampling(), || match plan {
            Plan::Mttkrp(plan) => {
                plan.run_into(alpha, [&factors[0], &factors[1]], beta, &mut y).map_err(windrow::Error::from)
            }
            Plan::Ttm(plan) => plan.run_into(alpha, &factors[0], beta, &mut y).map_err(windrow::Error::from),
        });
        spinner.finish_and_clear();
        let time = time?;
        let spinner = console.spinner("verifying");
        let check = || match plan {
            Plan::Mttkrp(plan) => {
                plan.verify(a, [&factors[0], &factors[1]], &y).map_err(windrow::Error::from)
            }
            Plan::Ttm(plan) => plan.verify(a, &factors[0], &y).map_err(windrow::Error::from),
        };
        let verification = args.verify.then(check).transpose();
        spinner.finish_and_clear();
        let verification = verification?;
        // What is wrong is not written.
        let right = verification.as_ref().is_none_or(Verification::passed);
        let out = out.filter(|_| right).map(|output| dense::write(output, &y)).transpose()?;
        let (report, preprocessing_us) = match plan {
            Plan::Mttkrp(plan) => {
                (Report::Mttkrp(Box::new(plan.report().clone())), plan.report().preprocessing_us())
            }
            Plan::Ttm(plan) => {
                (Report::Ttm(Box::new(plan.report().clone())), plan.report().preprocessing_us())
            }
        };
        let flop = operation.flop() * a.nnz() as f64 * width as f64;
        Ok(Outcome {
            file: args.file.display().to_string(),
            mode: args.mode,
            width,
            seed: args.seed,
            inputs: inputs.iter().flatten().map(Input::printed).collect(),
            out,
            dims: a.dims(),
            nnz: a.nnz(),
            fibers: a.fibers(),
            plan: report,
            preprocessing_us,
            gflop_s: giga_per_second(flop, time.median_us),
            time,
            verification,
        })
    }

    /// Whether the matrices fit, before a byte is allocated.
    fn check_memory<T: Element>(&self, factors: &[usize], rows: usize, device: &Device) -> Result<()> {
        let n = self.dense.width;
        let elements = |rows: usize| (rows as u128) * (n as u128);
        let inputs: u128 = factors.iter().map(|&rows| elements(rows) * (size_of::<T>() as u128)).sum();
        // On the CPU they exist twice while they are made.
        let inputs = if device.kind() == DeviceKind::Cpu { 2 * inputs } else { inputs };
        let operands = || format!("dense matrices of {n} columns and a result of {rows} × {n}");
        refuse_beyond_memory(
            device,
            inputs + elements(rows) * (size_of::<T::Sum>() as u128),
            operands,
            "--width",
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            Report::Mttkrp(report) => writeln!(f, "{report}\n")?,
            Report::Ttm(report) => writeln!(f, "{report}\n")?,
        }
        let mut listing = Listing::default();
        let [i, j, k] = self.dims;
        let (nnz, fibers) = (count(self.nnz), count(self.fibers));
        listing
            .add("tensor", format!("{i} × {j} × {k}, {nnz} entries in {fibers} fibers, mode {}", self.mode));
        listing.add("time", format!("{}, width {}", timed(&self.time), self.width));
        listing.add("rate", format!("{} GFLOP/s", digits(self.gflop_s)));
        if let Some(found) = &self.verification {
            listing.add("verify", verdict(found));
        }
        if let Some(out) = &self.out {
            listing.add("Y", out.to_string());
        }
        write!(f, "{listing}")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use windrow::{Coo3, EmulatorSchedule};

    use super::*;
    use crate::args::{Arguments, Command};

    #[test]
    fn plans_go_by_the_profile() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let entries = (0..4000u32).map(|i| ([i % 10, i % 50, i % 80], 1.0f32));
        let tensor = Coo3::from_entries([10, 50, 80], entries).unwrap().to_csf([0, 1, 2]).unwrap();
        for (name, product) in [("mttkrp", Product::Mttkrp), ("ttm", Product::Ttm(Algorithm::SegmentGroup))] {
            let command = ["windrow", name, "a.tns", "--width", "4"];
            let args = match Arguments::parse_from(command).command {
                Command::Mttkrp(args) => args.product,
                Command::Ttm(args) => args.product,
                _ => panic!("another command"),
            };
            let report = |threads| {
                let mut profile = Profile::built_in(&device);
                profile.costs.tensor_threads = threads;
                let point = match product.plan(&tensor, (&args, 4), &device, &profile).unwrap() {
                    Plan::Mttkrp(plan) => plan.report().parallelism.clone(),
                    Plan::Ttm(plan) => plan.report().parallelism.clone(),
                };
                point.expect("a GPU's plan has a point")
            };
            assert_ne!(report(1.0), report(1e9), "{name}");
        }
    }
}
