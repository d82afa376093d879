//! `windrow verify`: every algorithm, precision and width, checked.

use std::time::Instant;

use serde::Serialize;
use windrow::io::DenseArray;
use windrow::memory::try_collect;
use windrow::{
    Algorithm, Csr, Determinism, Device, DeviceKind, Element, Precision, SpmmBuilder, SpmmError, SpmmPlan,
    Value, Verification, bf16, f16, with_element,
};

use crate::args::VerifyArgs;
use crate::console::Console;
use crate::dense::{self, Input};
use crate::failure::{Exit, Failure, Result};
use crate::listing::{Align, Table};
use crate::ordering::PlanRequest;
use crate::product::{MadeOf, run_and_verify, run_once};
use crate::{load, units};

/// What `windrow verify` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Sweep {
    file: String,
    rows: usize,
    cols: usize,
    nnz: usize,
    /// NaN and infinite values of the file.
    non_finite: usize,
    device: String,
    determinism: Determinism,
    /// The order of the rows: a method, a file, or the matrix's own.
    order: String,
    seed: u64,
    passed: usize,
    failed: usize,
    errors: usize,
    cases: Vec<Case>,
}

/// One product that was checked: a line of the table.
#[derive(Debug, Serialize)]
struct Case {
    algorithm: Algorithm,
    precision: Precision,
    output: Precision,
    width: usize,
    /// Wall-clock time of the case, its reference included.
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What became of it.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
enum Outcome {
    Passed(Verification),
    Failed(Verification),
    /// It could not be run.
    Error {
        message: String,
        #[serde(skip)]
        exit: Exit,
    },
}

pub(crate) fn run(args: &VerifyArgs, console: Console) -> Result<()> {
    let out = dense::output(args.out.as_deref(), &[Some(&args.file), args.b.as_deref()], console)?;
    let options = args.plan.options()?;
    let b = Input::of("B", args.b.as_deref(), args.read.limits())?;
    let device = args.device.open()?;
    let (a, _) = load::read::<f64>(&args.file, &args.read, console)?;
    let b = match b {
        Some(b) => {
            b.check(a.cols(), b.cols, "a row for each column of A")?;
            Some(b.read::<f64>(console)?)
        }
        None => None,
    };
    console.note(format_args!(
        "{}: {} × {}, {} entries, on {device}",
        windrow::io::printable(&args.file),
        units::count(a.rows()),
        units::count(a.cols()),
        units::count(a.nnz())
    ));
    let non_finite = load::tell_non_finite(&a, console);
    let profile = load::profile(&device, console);
    let request =
        PlanRequest::new(options, &args.plan, (&a, &device), profile, console)?.settle(&a, console)?;
    let single = try_collect(a.values().iter().map(|&x| f32::from_f64(x)), "values")?;
    let single = a.with_values(single)?;
    let cases =
        sweep(&Matrix { double: &a, single: &single }, &request, &device, (args, b.as_ref()), console)?;
    let number = |wanted: fn(&Outcome) -> bool| cases.iter().filter(|case| wanted(&case.outcome)).count();
    let sweep = Sweep {
        file: args.file.display().to_string(),
        rows: a.rows(),
        cols: a.cols(),
        nnz: a.nnz(),
        non_finite,
        device: device.to_string(),
        determinism: options.determinism,
        order: match (&args.plan.reorder, options.reorder) {
            (Some(named), _) if request.is_ordered() => named.to_string(),
            (None, Some(found_by)) if request.is_ordered() => found_by.method.to_string(),
            _ => "its own".to_owned(),
        },
        seed: args.seed,
        passed: number(|outcome| matches!(outcome, Outcome::Passed(_))),
        failed: number(|outcome| matches!(outcome, Outcome::Failed(_))),
        errors: number(|outcome| matches!(outcome, Outcome::Error { .. })),
        cases,
    };
    console.line(format_args!(
        "{} passed, {} failed, {} could not run",
        sweep.passed, sweep.failed, sweep.errors
    ))?;
    console.object("verify", &sweep)?;
    conclusion(&sweep)?;
    if let (Some(output), Some(b)) = (out, &b) {
        let plan = request.builder(&a).width(b.cols()).precision(Precision::F64).build(&device)?;
        let c = run_once::<f64, f64>(&plan, &a, MadeOf::Given(b))?;
        console.note(dense::write(output, &c)?);
    }
    Ok(())
}

/// The failure that the exit code tells of: a wrong result before one that could not be had.
fn conclusion(sweep: &Sweep) -> Result<()> {
    let total = sweep.cases.len();
    if sweep.failed > 0 {
        let message = format!("{} of {total} products are wrong", sweep.failed);
        return Err(Failure::new(Exit::Verification, message));
    }
    match sweep.cases.iter().find_map(|case| case.outcome.exit()) {
        Some(exit) => Err(Failure::new(exit, format!("{} of {total} products could not run", sweep.errors))),
        None => Ok(()),
    }
}

/// Algorithms that differ on `device`: the CPU has one.
fn algorithms(device: &Device) -> &'static [Algorithm] {
    const GPU: [Algorithm; 8] = [
        Algorithm::RowSplit,
        Algorithm::ShortRows,
        Algorithm::SegmentGroup,
        Algorithm::MergePath,
        Algorithm::RowPanels,
        Algorithm::MatricizedRows,
        Algorithm::TileStream,
        Algorithm::Hybrid,
    ];
    if device.kind() == DeviceKind::Cpu { &[Algorithm::Auto] } else { &GPU }
}

/// The matrix with its values as the file has them, and as f32: plans of f64 take the former.
struct Matrix<'a> {
    double: &'a Csr<f64>,
    single: &'a Csr<f32>,
}

/// Runs every case and writes its line when it is known.
fn sweep(
    a: &Matrix<'_>,
    request: &PlanRequest,
    device: &Device,
    (args, given): (&VerifyArgs, Option<&DenseArray<f64>>),
    console: Console,
) -> Result<Vec<Case>> {
    let width_given = given.map(DenseArray::cols);
    let widths = width_given.as_ref().map_or(&args.widths[..], std::slice::from_ref);
    let table = Table::new(&[
        ("algorithm", 11, Align::Left),
        ("A, B", 0, Align::Left),
        ("C", 3, Align::Left),
        ("width", 5, Align::Right),
        ("worst / bound", 0, Align::Right),
        ("beyond", 6, Align::Right),
        ("time", 8, Align::Right),
        ("result", 6, Align::Left),
    ]);
    console.line(table.titles())?;
    let combinations: Vec<(Precision, Algorithm)> = Precision::ALL
        .into_iter()
        .flat_map(|precision| algorithms(device).iter().map(move |&algorithm| (precision, algorithm)))
        .filter(|(precision, algorithm)| algorithm.supports(*precision))
        .collect();
    let products: usize =
        combinations.iter().map(|&(precision, _)| outputs(precision).len() * widths.len()).sum();
    let bar = console.steps_bar("verifying", products);
    let mut cases = Vec::with_capacity(products);
    for (precision, algorithm) in combinations {
        bar.set_message(format!("{algorithm} {precision}"));
        let largest = widths.iter().copied().max().unwrap_or(0);
        let plan = match precision {
            Precision::F64 => planned(request.builder(a.double), largest, (precision, algorithm), device),
            _ => planned(request.builder(a.single), largest, (precision, algorithm), device),
        };
        for &output in outputs(precision) {
            for &width in widths {
                let start = Instant::now();
                let b = match given {
                    Some(b) => MadeOf::Given(b),
                    None => MadeOf::Seed { width, seed: args.seed },
                };
                let outcome = match &plan {
                    Ok(plan) => product(plan, a, output, b),
                    Err(error) => Err(error.clone().into()),
                };
                let seconds = start.elapsed().as_secs_f64();
                let algorithm = plan.as_ref().map_or(algorithm, |plan| plan.report().algorithm);
                let case = Case { algorithm, precision, output, width, seconds, outcome: outcome.into() };
                bar.suspend(|| console.line(table.row(&case.cells())))?;
                bar.inc(1);
                cases.push(case);
            }
        }
    }
    bar.finish_and_clear();
    Ok(cases)
}

fn planned<V: Value>(
    builder: SpmmBuilder<'_, Csr<V>>,
    width: usize,
    (precision, algorithm): (Precision, Algorithm),
    device: &Device,
) -> std::result::Result<SpmmPlan, SpmmError> {
    builder.width(width).precision(precision).algorithm(algorithm).build(device)
}

/// Types of `C` that a precision has.
fn outputs(precision: Precision) -> &'static [Precision] {
    match precision {
        Precision::F16 => &[Precision::F32, Precision::F16],
        Precision::Bf16 => &[Precision::F32, Precision::Bf16],
        Precision::F64 => &[Precision::F64],
        _ => &[Precision::F32],
    }
}

fn product(plan: &SpmmPlan, a: &Matrix<'_>, output: Precision, b: MadeOf<'_>) -> Result<Verification> {
    match (plan.precision(), output) {
        (Precision::F16, Precision::F16) => run_and_verify::<f16, f16>(plan, a.single, b),
        (Precision::Bf16, Precision::Bf16) => run_and_verify::<bf16, bf16>(plan, a.single, b),
        (Precision::F64, _) => run_and_verify::<f64, f64>(plan, a.double, b),
        (precision, _) => {
            with_element!(precision, T => run_and_verify::<T, <T as Element>::Sum>(plan, a.single, b))
        }
    }
}

impl From<Result<Verification>> for Outcome {
    fn from(result: Result<Verification>) -> Self {
        match result {
            Ok(verification) if verification.passed() => Self::Passed(verification),
            Ok(verification) => Self::Failed(verification),
            Err(failure) => Self::Error { message: failure.to_string(), exit: failure.exit },
        }
    }
}

impl Outcome {
    fn exit(&self) -> Option<Exit> {
        match self {
            Self::Error { exit, .. } => Some(*exit),
            _ => None,
        }
    }
}

impl Case {
    fn cells(&self) -> Vec<String> {
        let (ratio, beyond, result) = match &self.outcome {
            Outcome::Passed(found) if found.checked == 0 => {
                (String::new(), "0".to_owned(), "passed, C is empty".into())
            }
            Outcome::Passed(found) => {
                (format!("{:.3}", found.worst_ratio), "0".to_owned(), "passed".to_owned())
            }
            Outcome::Failed(found) => (
                format!("{:.3}", found.worst_ratio),
                units::count(found.failures),
                format!("FAILED, worst at row {}, column {}", found.worst_row, found.worst_col),
            ),
            Outcome::Error { message, .. } => (String::new(), String::new(), format!("error: {message}")),
        };
        vec![
            self.algorithm.to_string(),
            self.precision.to_string(),
            self.output.to_string(),
            self.width.to_string(),
            ratio,
            beyond,
            units::time_us(self.seconds * 1e6),
            result,
        ]
    }
}

#[cfg(test)]
mod tests {
    use windrow::Spmm;

    use super::*;

    fn verification(worst_ratio: f64, failures: u64) -> Verification {
        // Its fields are the library's to extend, so one is made by verifying.
        let a = Csr::<f32>::identity(1).unwrap();
        let plan = Spmm::builder(&a).build(&Device::cpu()).unwrap();
        let mut found = run_and_verify::<f32, f32>(&plan, &a, MadeOf::Seed { width: 1, seed: 1 }).unwrap();
        (found.worst_ratio, found.failures) = (worst_ratio, failures);
        found
    }

    fn conclusion_of(outcomes: Vec<Outcome>) -> Option<Exit> {
        let number = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count();
        let (failed, errors) =
            (number(|o| matches!(o, Outcome::Failed(_))), number(|o| matches!(o, Outcome::Error { .. })));
        let case = |outcome| Case {
            algorithm: Algorithm::Auto,
            precision: Precision::F32,
            output: Precision::F32,
            width: 1,
            seconds: 0.0,
            outcome,
        };
        let sweep = Sweep {
            file: String::new(),
            rows: 1,
            cols: 1,
            nnz: 1,
            non_finite: 0,
            device: String::new(),
            determinism: Determinism::default(),
            order: String::new(),
            seed: 1,
            passed: 0,
            failed,
            errors,
            cases: outcomes.into_iter().map(case).collect(),
        };
        conclusion(&sweep).err().map(|failure| failure.exit)
    }

    #[test]
    fn a_wrong_product_outweighs_one_that_could_not_run() {
        let passed = || Outcome::from(Ok(verification(0.5, 0)));
        let failed = || Outcome::from(Ok(verification(1.5, 3)));
        let error = || Outcome::from(Err(Failure::new(Exit::Limit, "too large")));
        assert!(matches!((passed(), failed()), (Outcome::Passed(_), Outcome::Failed(_))));
        assert_eq!(conclusion_of(vec![passed()]), None);
        assert_eq!(conclusion_of(vec![passed(), error()]), Some(Exit::Limit));
        assert_eq!(conclusion_of(vec![error(), failed()]), Some(Exit::Verification));
    }
}
