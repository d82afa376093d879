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
use crate::failure::{Failure, Result};
use crate::listing::Listing;
use crate::load;
use crate::product::{poison, refuse_beyond_memory, timed, verdict};
use crate::units::{count, digits, giga_per_second};

/// What `windrow mttkrp` and `windrow ttm` print, and write with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    mode: u8,
    width: usize,
    seed: u64,
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
        args: &TensorArgs,
        device: &Device,
        profile: &Profile,
    ) -> Result<Plan> {
        let TensorArgs { width, precision, determinism, .. } = *args;
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
    run(&args.product, Product::Mttkrp, console)
}

pub(crate) fn ttm(args: &TtmArgs, console: Console) -> Result<()> {
    run(&args.product, Product::Ttm(args.algorithm), console)
}

fn run(args: &TensorArgs, product: Product, console: Console) -> Result<()> {
    let outcome = match args.precision {
        Precision::F64 => outcome::<f64>(args, product, console),
        _ => outcome::<f32>(args, product, console),
    }?;
    console.line(&outcome)?;
    console.object(&product.operation().to_string(), &outcome)?;
    conclusion(outcome.verification.as_ref())
}

/// With the values of the file as `V`.
fn outcome<V: Value>(args: &TensorArgs, product: Product, console: Console) -> Result<Outcome> {
    let (device, operation) = (args.device.open()?, product.operation());
    let a = read::<V>(args, operation, console)?;
    let profile = load::profile(&device, console);
    let spinner = console.spinner("planning");
    let plan = product.plan(&a, args, &device, &profile);
    spinner.finish_and_clear();
    let (plan, case) = (plan?, Case { a: &a, args, operation });
    with_element!(args.precision, T => case.product::<T>(&plan, &device, console))
}

/// The tensor, its modes in the order that the product takes.
fn read<V: Value>(args: &TensorArgs, operation: TensorOperation, console: Console) -> Result<Csf3<V>> {
    let bar = console.bytes_bar("reading");
    let show = |progress| tell(&bar, progress);
    let options = ReadOptions { limits: args.limits(), progress: Some(&show), format: None };
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
}

impl<V: Value> Case<'_, V> {
    fn product<T: Element>(&self, plan: &Plan, device: &Device, console: Console) -> Result<Outcome> {
        let Self { a, args, operation } = self;
        let [root, fiber, leaf] = a.mode_order().map(|mode| a.dims()[mode]);
        let (factors, rows) = match operation {
            TensorOperation::Mttkrp => (vec![fiber, leaf], root),
            TensorOperation::Ttm => (vec![leaf], a.fibers()),
        };
        self.check_memory::<T>(&factors, rows, device)?;
        let spinner = console.spinner("making the matrices");
        let made: Result<Vec<_>> = (0..)
            .zip(&factors)
            .map(|(i, &rows)| {
                let values = seeded_values::<T>(rows * args.width, args.seed ^ i)?;
                Ok(DeviceMatrix::upload(device, DenseRef::packed(&values, rows, args.width)?)?)
            })
            .collect();
        spinner.finish_and_clear();
        let factors = made?;
        // An element that no kernel writes cannot pass for a right one.
        let mut y = DeviceMatrix::<T::Sum>::zeros(device, rows, args.width)?;
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
        let (report, preprocessing_us) = match plan {
            Plan::Mttkrp(plan) => {
                (Report::Mttkrp(Box::new(plan.report().clone())), plan.report().preprocessing_us())
            }
            Plan::Ttm(plan) => {
                (Report::Ttm(Box::new(plan.report().clone())), plan.report().preprocessing_us())
            }
        };
        let flop = operation.flop() * a.nnz() as f64 * args.width as f64;
        Ok(Outcome {
            file: args.file.display().to_string(),
            mode: args.mode,
            width: args.width,
            seed: args.seed,
            dims: a.dims(),
            nnz: a.nnz(),
            fibers: a.fibers(),
            plan: report,
            preprocessing_us,
            gflop_s: giga_per_second(flop, time.median_us),
            time,
            verification: verification?,
        })
    }

    /// Whether the matrices fit, before a byte is allocated.
    fn check_memory<T: Element>(&self, factors: &[usize], rows: usize, device: &Device) -> Result<()> {
        let n = self.args.width;
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
                let point = match product.plan(&tensor, &args, &device, &profile).unwrap() {
                    Plan::Mttkrp(plan) => plan.report().parallelism.clone(),
                    Plan::Ttm(plan) => plan.report().parallelism.clone(),
                };
                point.expect("a GPU's plan has a point")
            };
            assert_ne!(report(1.0), report(1e9), "{name}");
        }
    }
}
