//! `windrow spmm`: plans a product, runs it, times it, and checks it.

use std::fmt;

use serde::Serialize;
use windrow::{
    Csr, Element, Precision, Profile, SpmmOptions, SpmmPlan, SpmmReport, Tuned, Value, Verification,
    with_element,
};
use windrow_bench::measure::{Timing, measure};

use crate::args::SpmmArgs;
use crate::console::Console;
use crate::dense::{self, Input, Written};
use crate::failure::{Exit, Failure, Result};
use crate::listing::Listing;
use crate::load;
use crate::ordering::PlanRequest;
use crate::output::Output;
use crate::peers::{CuSparseRun, comparison};
use crate::product::{Operands, timed, verdict_beside};
use crate::units::{bytes, digits, giga_per_second, time_us};

/// What `windrow spmm` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    /// The type in which the values of the file are held, before they are rounded to the precision.
    values: &'static str,
    /// NaN and infinite ones among them.
    non_finite: usize,
    width: usize,
    seed: u64,
    /// The file of B, if it was not made from the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    plan: SpmmReport,
    preprocessing_us: f64,
    time: Timing,
    rates: Rates,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    /// The file of C.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cusparse: Option<CuSparseRun>,
    /// Runs after which planning is earned back against cuSPARSE.
    #[serde(skip_serializing_if = "Option::is_none")]
    break_even_calls: Option<f64>,
}

/// What the median time means.
#[derive(Debug, Serialize)]
struct Rates {
    /// Floating-point operations: two for each entry and column.
    flop: f64,
    gflop_s: f64,
    /// Bytes of `B` that the kernels gather.
    gathered_bytes: f64,
    gathered_gb_s: f64,
    /// Bytes that have to move once: the plan's arrays, `B` and `C`.
    operand_bytes: f64,
    operand_gb_s: f64,
}

impl Rates {
    fn of(report: &SpmmReport, width: usize, median_us: f64) -> Self {
        let n = width as f64;
        let a = (report.device_bytes - report.workspace_bytes) as f64;
        let b = report.cols as f64 * n * f64::from(report.precision.bytes());
        let c = report.rows as f64 * n * f64::from(report.precision.bytes().max(4));
        let flop = 2.0 * report.nnz as f64 * n;
        let (gathered_bytes, operand_bytes) = (report.gathered_bytes(width), a + b + c);
        // A product without columns moves nothing.
        let giga = |amount| if width == 0 { 0.0 } else { giga_per_second(amount, median_us) };
        Self {
            flop,
            gflop_s: giga(flop),
            gathered_bytes,
            gathered_gb_s: giga(gathered_bytes),
            operand_bytes,
            operand_gb_s: giga(operand_bytes),
        }
    }
}

/// What is multiplied, and where the result goes.
struct Case<'a> {
    args: &'a SpmmArgs,
    width: usize,
    b: Option<Input<'a>>,
    out: Option<Output<'a>>,
}

pub(crate) fn run(args: &SpmmArgs, console: Console) -> Result<()> {
    let out = dense::output(args.out.as_deref(), &[Some(&args.file), args.b.as_deref()], console)?;
    let b = Input::of("B", args.b.as_deref(), args.read.limits())?;
    let width = dense::agreed(("--width", args.width), ("B", b.map(|b| b.cols)))?.unwrap_or(0);
    let options = args.options(width)?;
    let case = Case { args, width, b, out };
    match options.precision {
        Precision::F64 => run_with::<f64>(options, &case, console),
        _ => run_with::<f32>(options, &case, console),
    }
}

/// With the values of the file as `V`.
fn run_with<V: Value>(options: SpmmOptions, case: &Case<'_>, console: Console) -> Result<()> {
    let args = case.args;
    let device = args.device.open()?;
    let (a, _) = load::read::<V>(&args.file, &args.read, console)?;
    if let Some(b) = case.b {
        b.check(a.cols(), case.width, "a row for each column of A")?;
    }
    let non_finite = load::tell_non_finite(&a, console);
    let (profile, tuned) = match args.no_tuned {
        true => (Profile::built_in(&device), None),
        false => (load::profile(&device, console), load::tuned(&device, console)),
    };
    let request = PlanRequest::new(options, &args.plan, (&a, &device), profile, console)?;
    let spinner = console.spinner("planning");
    let mut builder = request.builder(&a);
    if let Some(tuned) = &tuned {
        builder = builder.tuned(tuned);
    }
    let plan = builder.build(&device);
    spinner.finish_and_clear();
    let plan = plan?;
    if let (Some(why), Some(path)) = (&plan.report().tuned_refused, Tuned::path(&device)) {
        console.note(format_args!(
            "note: the choice that {} holds for this product was left out: {why}; tune again, or use --no-tuned",
            path.display()
        ));
    }
    let mut outcome = with_element!(options.precision, T => product::<T, V>(&a, &plan, case, console))?;
    outcome.non_finite = non_finite;
    match case.out {
        Some(output) => console.summary(output, &outcome)?,
        None => console.line(&outcome)?,
    }
    console.object("spmm", &outcome)?;
    conclusion(outcome.verification.as_ref())
}

/// A wrong product is a failure.
pub(super) fn conclusion(verification: Option<&Verification>) -> Result<()> {
    match verification {
        Some(found) if !found.passed() => Err(Failure::new(Exit::Verification, "the product is wrong")),
        _ => Ok(()),
    }
}

fn product<B: Element, V: Value>(
    a: &Csr<V>,
    plan: &SpmmPlan,
    case: &Case<'_>,
    console: Console,
) -> Result<Outcome> {
    let &Case { args, width, b, out } = case;
    let spinner = console.spinner("making B");
    let operands = match b {
        Some(b) => Operands::<B, B::Sum>::read(a, b, plan.device(), console),
        None => Operands::<B, B::Sum>::new(a, width, args.seed, plan.device()),
    };
    spinner.finish_and_clear();
    let mut operands = operands?;
    if args.verify {
        operands.poison()?;
    }
    let spinner = console.spinner("timing");
    let time = measure(plan.device(), args.timing.sampling(), || operands.run(plan));
    spinner.finish_and_clear();
    let time = time?;
    let spinner = console.spinner("verifying");
    let verification = args.verify.then(|| operands.verify(plan, a)).transpose()?;
    // What is wrong is not written, and cuSPARSE writes to C, too.
    let right = verification.as_ref().is_none_or(Verification::passed);
    let out = out.filter(|_| right).map(|output| dense::write(output, &operands.c)).transpose()?;
    spinner.set_message("timing cuSPARSE");
    let cusparse =
        args.peers.then(|| CuSparseRun::on(a, &mut operands, plan, args.timing.sampling())).transpose();
    spinner.finish_and_clear();
    let cusparse = cusparse?;
    let report = plan.report().clone();
    let peer_us = cusparse.as_ref().and_then(CuSparseRun::best_us);
    Ok(Outcome {
        file: args.file.display().to_string(),
        values: V::NAME,
        non_finite: 0,
        width,
        seed: args.seed,
        b: b.map(|b| b.printed()),
        out,
        preprocessing_us: report.preprocessing_us(),
        rates: Rates::of(&report, width, time.median_us),
        break_even_calls: peer_us.and_then(|us| report.break_even_calls(time.median_us, us)),
        plan: report,
        time,
        verification,
        cusparse,
    })
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, rates, .. } = self;
        writeln!(f, "{}\n", self.plan)?;
        let mut listing = Listing::default();
        let rounded = if self.values == "f64" {
            ""
        } else {
            ", rounded if the file has more digits; -p f64 keeps them"
        };
        listing.add("values", format!("of the file as {}{rounded}", self.values));
        listing.add("time", format!("{}, width {}", timed(time), self.width));
        listing.add(
            "rates",
            format!(
                "{} GFLOP/s, {} GB/s gathered, {} GB/s of operands",
                digits(rates.gflop_s),
                digits(rates.gathered_gb_s),
                digits(rates.operand_gb_s)
            ),
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "sizes of arrays that exist"
        )]
        let size = |amount: f64| bytes(amount as u64);
        listing.add(
            "bytes",
            format!("{} gathered, {} of operands", size(rates.gathered_bytes), size(rates.operand_bytes)),
        );
        let calls = if time.median_us > 0.0 { self.preprocessing_us / time.median_us } else { 0.0 };
        listing.add(
            "planning",
            format!("{}, as long as {} runs", time_us(self.preprocessing_us), digits(calls)),
        );
        if let Some(found) = &self.verification {
            listing.add("verify", verdict_beside(found, self.non_finite, "values"));
        }
        if let Some(out) = &self.out {
            listing.add("C", out.to_string());
        }
        if let Some(cusparse) = &self.cusparse {
            listing.add("cuSPARSE", cusparse.to_string());
            if let Some(peer_us) = cusparse.best_us() {
                listing.add("", comparison(time.median_us, peer_us, self.break_even_calls));
            }
        }
        write!(f, "{listing}")
    }
}

#[cfg(test)]
mod tests {
    use windrow::{Device, Spmm};

    use super::*;
    use crate::product::verdict;

    #[test]
    fn a_wrong_product_is_a_failure() {
        let a = Csr::<f32>::identity(4).unwrap();
        let plan = Spmm::builder(&a).build(&Device::cpu()).unwrap();
        let mut operands = Operands::<f32, f32>::new(&a, 3, 1, plan.device()).unwrap();
        operands.poison().unwrap();
        let before = operands.verify(&plan, &a).unwrap();
        assert_eq!(conclusion(Some(&before)).unwrap_err().exit, Exit::Verification);
        assert!(verdict(&before).starts_with("FAILED: 12 of 12 elements"), "{}", verdict(&before));
        operands.run(&plan).unwrap();
        let after = operands.verify(&plan, &a).unwrap();
        assert!(conclusion(Some(&after)).is_ok() && conclusion(None).is_ok());
        assert!(verdict(&after).starts_with("passed: 12 elements checked"), "{}", verdict(&after));
    }

    #[test]
    fn rates_are_amounts_over_the_median() {
        let a = Csr::<f32>::identity(1000).unwrap();
        let plan = Spmm::builder(&a).build(&Device::cpu()).unwrap();
        let rates = Rates::of(plan.report(), 50, 10.0);
        assert_eq!((rates.flop, rates.gflop_s), (100_000.0, 10.0));
        assert_eq!((rates.gathered_bytes, rates.gathered_gb_s), (200_000.0, 20.0));
        assert!(rates.operand_bytes > 400_000.0);
        assert_eq!(Rates::of(plan.report(), 50, 0.0).gflop_s, 0.0);
        assert_eq!(Rates::of(plan.report(), 0, 10.0).operand_gb_s, 0.0);
    }
}
