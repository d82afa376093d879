//! Runs of one product beside other work, bit by bit.

use rayon::prelude::*;
use windrow::{Algorithm, Determinism, DeviceMatrix, Precision, Real, SpmmOptions, Value, with_element};

use super::bench::{Bench, speed_up};
use super::facts::{AblationFacts, DeterminismFacts};
use super::load::{LoadFacts, beside};
use crate::measure::operands::{Filling, fill};
use crate::measure::product::Stored;
use crate::measure::{BenchError, SweepPath, poisoned_matrix, random_matrix};

/// What is repeated: Tensor Cores with whatever goes beside, and strict f32.
pub(super) const PATHS: [SweepPath; 2] =
    [SweepPath::new(Algorithm::Hybrid, Precision::F16), SweepPath::new(Algorithm::RowSplit, Precision::F32)];

pub(super) fn facts(bench: &mut Bench<'_>, path: SweepPath, runs: u32) -> Result<AblationFacts, BenchError> {
    let repeated = || with_element!(path.options.precision, T => differing::<T>(bench, path, runs));
    let (differing, LoadFacts { what, products }) = beside(bench.device, bench.csr, repeated)?;
    bench.aside.wrong += u64::from(differing > 0);
    let run_to_run = bench.measure(path, None, None);
    let in_any_order = SpmmOptions { determinism: Determinism::Fast, ..path.options };
    let any_order = bench.measure(in_any_order.into(), None, None);
    Ok(AblationFacts::Determinism(DeterminismFacts {
        path: path.to_string(),
        runs,
        differing,
        load: what.to_owned(),
        load_products: products,
        cost: speed_up(any_order.as_ref(), run_to_run.as_ref()),
        run_to_run,
        any_order,
    }))
}

/// Runs whose result differs from the first in some bit.
fn differing<T: Stored>(bench: &Bench<'_>, path: SweepPath, runs: u32) -> Result<u32, BenchError> {
    let plan = bench.product(path).plan()?;
    let b = random_matrix::<T>(bench.device, bench.csr.cols(), bench.width, bench.seeds.0)?;
    let mut c = poisoned_matrix(bench.device, bench.csr.rows(), bench.width)?;
    let run = |c: &mut DeviceMatrix<T::Sum>| -> Result<Vec<T::Sum>, BenchError> {
        fill(c, Filling::Nan)?;
        plan.run_into(T::Sum::ONE, &b, T::Sum::ZERO, c)?;
        Ok(c.download()?)
    };
    let first = run(&mut c)?;
    let mut differing = 0;
    for _ in 1..runs {
        differing += u32::from(!same_bits(&first, &run(&mut c)?));
    }
    Ok(differing)
}

fn same_bits<S: Real>(a: &[S], b: &[S]) -> bool {
    let bits = |x: &S| x.to_f64().to_bits(); // each f32 is an f64
    a.len() == b.len() && a.par_iter().zip(b).with_min_len(1 << 14).all(|(a, b)| bits(a) == bits(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_not_values() {
        assert!(same_bits(&[1.0, f32::NAN], &[1.0, f32::NAN]));
        assert!(!same_bits(&[0.0], &[-0.0]) && !same_bits(&[1.0], &[1.0, 1.0]));
    }
}
