//! The peer of products on the CPU: the crate `sprs`, each result verified.

use sprs::MulAcc;
use windrow::{Precision, Real};

use super::compare::{Attempt, Compared};
use super::facts::PeerFacts;
use crate::measure::operands::Filling;
use crate::measure::peers::SprsSpmm;
use crate::measure::product::{Operands, Stored};
use crate::measure::{BenchError, measure};

/// Facts of `sprs` in f32 or f64, on the same operands; it is not asked for other types.
pub(super) fn facts(precision: Precision, case: &Compared<'_>, operands: &mut Operands) -> Option<PeerFacts> {
    match precision {
        Precision::F32 => Some(facts_in::<f32>(case, operands)),
        Precision::F64 => Some(facts_in::<f64>(case, operands)),
        _ => None,
    }
}

fn facts_in<T: Stored<Sum = T> + Real + MulAcc>(case: &Compared<'_>, operands: &mut Operands) -> PeerFacts {
    let mut attempt = Attempt::new(SprsSpmm::ALGORITHM.to_owned());
    let result = attempt_in::<T>(case, operands, &mut attempt);
    PeerFacts::best_of(T::PRECISION.to_string(), SprsSpmm::VERSION, vec![attempt.end(result)])
}

fn attempt_in<T: Stored<Sum = T> + Real + MulAcc>(
    case: &Compared<'_>,
    operands: &mut Operands,
    attempt: &mut Attempt,
) -> Result<(), BenchError> {
    let (b, c) = operands.get::<T>(Filling::Huge)?;
    let mut spmm = SprsSpmm::new(case.csr, b, Filling::Huge.element())?;
    attempt.timing = Some(measure(case.device, case.options.sampling, || {
        spmm.run();
        Ok::<(), BenchError>(())
    })?);
    spmm.copy_to(c)?;
    attempt.verify(&case.verifier(T::PRECISION)?, case.csr, b, c)
}
