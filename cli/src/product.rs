//! Products with made-up operands: what the commands that run one have in common.

use windrow::io::DenseArray;
use windrow::memory::try_filled;
use windrow::synthetic::seeded_values;
use windrow::{Csr, DenseRef, Device, DeviceKind, DeviceMatrix, Element, SpmmPlan, Value, Verification};
use windrow_bench::measure::Timing;

use crate::console::Console;
use crate::dense::{self, Input};
use crate::failure::{Exit, Failure, Result};
use crate::units;

/// The dense operands of one product, on the device.
pub(crate) struct Operands<B: Element, C: Element<Sum = B::Sum>> {
    pub(crate) b: DeviceMatrix<B>,
    pub(crate) c: DeviceMatrix<C>,
}

impl<B: Element, C: Element<Sum = B::Sum>> Operands<B, C> {
    /// `B` of width `n` with values in [−1, 1) from `seed`, and a `C` of zeros, for `a` on `device`.
    pub(crate) fn new<V>(a: &Csr<V>, n: usize, seed: u64, device: &Device) -> Result<Self> {
        check_memory::<B, C>((a.rows(), a.cols()), n, device)?;
        let b = seeded_values::<B>(a.cols() * n, seed)?;
        let b = DeviceMatrix::upload(device, DenseRef::packed(&b, a.cols(), n)?)?;
        Ok(Self { b, c: DeviceMatrix::zeros(device, a.rows(), n)? })
    }

    /// `B` from a file, and a `C` of zeros.
    pub(crate) fn read<V>(a: &Csr<V>, b: Input<'_>, device: &Device, console: Console) -> Result<Self> {
        check_memory::<B, C>((a.rows(), a.cols()), b.cols, device)?;
        let c = DeviceMatrix::zeros(device, a.rows(), b.cols)?;
        Ok(Self { b: b.upload(device, console)?, c })
    }

    fn made_of<V>(plan: &SpmmPlan, a: &Csr<V>, b: MadeOf<'_>) -> Result<Self> {
        let device = plan.device();
        match b {
            MadeOf::Seed { width, seed } => Self::new(a, width, seed, device),
            MadeOf::Given(b) => {
                check_memory::<B, C>((a.rows(), a.cols()), b.cols(), device)?;
                let c = DeviceMatrix::zeros(device, a.rows(), b.cols())?;
                Ok(Self { b: dense::rounded(b, device)?, c })
            }
        }
    }

    /// Fills `C` with NaN, so that an element which no kernel writes cannot pass for a right one.
    pub(crate) fn poison(&mut self) -> Result<()> {
        poison(&mut self.c)
    }

    /// `C ← A·B`; on a GPU it is queued.
    pub(crate) fn run(&mut self, plan: &SpmmPlan) -> Result<()> {
        Ok(plan.run_into(B::Sum::ONE, &self.b, B::Sum::ZERO, &mut self.c)?)
    }

    /// Compares `C` with the reference.
    pub(crate) fn verify<V: Value>(&self, plan: &SpmmPlan, a: &Csr<V>) -> Result<Verification> {
        Ok(plan.verify(a, &self.b, &self.c)?)
    }
}

/// Fills a matrix with NaN: on the CPU in place, else by way of a copy.
pub(crate) fn poison<C: Value>(matrix: &mut DeviceMatrix<C>) -> Result<()> {
    let (rows, cols, nan) = (matrix.rows(), matrix.cols(), C::from_f32(f32::NAN));
    if let Some(mut here) = matrix.host_mut() {
        (0..rows).for_each(|r| here.row_mut(r).fill(nan));
        return Ok(());
    }
    let nan = try_filled(rows * cols, nan, "a matrix of NaN")?;
    Ok(matrix.copy_from(DenseRef::packed(&nan, rows, cols)?)?)
}

/// What a `B` that is checked with is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MadeOf<'a> {
    /// So many columns of values from a seed.
    Seed { width: usize, seed: u64 },
    /// Elements of a file, rounded to the type of the plan's.
    Given(&'a DenseArray<f64>),
}

/// Runs a product once, into a poisoned `C`, and compares it with the reference.
pub(crate) fn run_and_verify<B: Element, C: Element<Sum = B::Sum>>(
    plan: &SpmmPlan,
    a: &Csr<impl Value>,
    b: MadeOf<'_>,
) -> Result<Verification> {
    let mut operands = Operands::<B, C>::made_of(plan, a, b)?;
    operands.poison()?;
    operands.run(plan)?;
    operands.verify(plan, a)
}

/// `C` of a product that runs once.
pub(crate) fn run_once<B: Element, C: Element<Sum = B::Sum>>(
    plan: &SpmmPlan,
    a: &Csr<impl Value>,
    b: MadeOf<'_>,
) -> Result<DeviceMatrix<C>> {
    let mut operands = Operands::<B, C>::made_of(plan, a, b)?;
    operands.run(plan)?;
    Ok(operands.c)
}

/// Whether `B` and `C` fit for an `A` of that shape, before a byte is allocated: an operating system may promise more
/// than it has.
pub(crate) fn check_memory<B: Element, C: Element<Sum = B::Sum>>(
    (rows, cols): (usize, usize),
    n: usize,
    device: &Device,
) -> Result<()> {
    let bytes = |rows: usize, size: usize| (rows as u128) * (n as u128) * (size as u128);
    let b = bytes(cols, size_of::<B>());
    let c = bytes(rows, size_of::<C>());
    // On the CPU, B exists twice while it is made.
    let needed = if device.kind() == DeviceKind::Cpu { 2 * b + c } else { b + c };
    let operands = || format!("B ({cols} × {n}) and C ({rows} × {n})");
    refuse_beyond_memory(device, needed, operands, "--width")
}

/// Refuses operands that need more bytes than are free; a smaller `option` makes them smaller.
pub(crate) fn refuse_beyond_memory(
    device: &Device,
    needed: u128,
    operands: impl FnOnce() -> String,
    option: &str,
) -> Result<()> {
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    match device.memory_free()? {
        Some(free) if needed > free => {
            let (operands, needed, free) = (operands(), units::bytes(needed), units::bytes(free));
            let message =
                format!("{operands} need {needed}, but {free} are free on {device}; use a smaller {option}");
            Err(Failure::new(Exit::Limit, message))
        }
        _ => Ok(()),
    }
}

/// How long the runs took, in words.
pub(crate) fn timed(time: &Timing) -> String {
    format!(
        "{} median, {} min, noise {} ({} runs in {} batches)",
        units::time_us(time.median_us),
        units::time_us(time.min_us),
        units::percent(time.noise),
        time.calls,
        time.batches
    )
}

/// [`verdict`] of a product with so many values that are NaN or infinite.
pub(crate) fn verdict_beside(verification: &Verification, non_finite: usize, what: &str) -> String {
    let verdict = verdict(verification);
    match non_finite {
        0 => verdict,
        _ => {
            format!(
                "{verdict}; what {what} without a finite value reach is only compared in not being finite"
            )
        }
    }
}

/// What a verification found, in words: where the worst element is and how near to its bound.
pub(crate) fn verdict(verification: &Verification) -> String {
    let Verification { worst_ratio, worst_row, worst_col, failures, checked, .. } = verification;
    if *checked == 0 {
        return "passed: the result has no elements".to_owned();
    }
    let worst =
        format!("the worst, at row {worst_row}, column {worst_col}, has {worst_ratio:.3} of its error bound");
    if verification.passed() {
        format!("passed: {} elements checked; {worst}", units::count(*checked))
    } else {
        format!(
            "FAILED: {} of {} elements beyond their bound; {worst}",
            units::count(*failures),
            units::count(*checked)
        )
    }
}
