//! Sampled products `A ∘ (X·Yᵀ)`. Throughput is in entries of `A`.

use std::hint::black_box;

use criterion::BenchmarkId;
use windrow::synthetic::Synthetic;
use windrow::{
    Csr, Device, DeviceBuffer, Element, Precision, Sddmm, SddmmAlgorithm, SddmmBuilder, Value, with_element,
};
use windrow_bench::measure::random_matrix;

use crate::cases::{Bench, Work};
use crate::matrices::matrices;

const INNERS: [usize; 2] = [32, 128];

pub(crate) fn suite(bench: &mut Bench) {
    let inners: &[usize] = if bench.is_quick { &INNERS[..1] } else { &INNERS };
    for (name, a) in matrices(bench, &[Synthetic::Rmat17]) {
        let (here, elsewhere): (Vec<_>, Vec<_>) = paths()
            .into_iter()
            .partition(|(algorithm, _)| bench.has_kernels() || *algorithm == SddmmAlgorithm::Auto);
        for (algorithm, precision) in elsewhere {
            inners
                .iter()
                .for_each(|inner| bench.skip(format!("sddmm/{name}/{algorithm}-{precision}/{inner}")));
        }
        let device = bench.device.clone();
        let mut group = bench.group(format!("sddmm/{name}"), a.nnz());
        for (algorithm, precision) in here {
            for &inner in inners {
                group.case(BenchmarkId::new(format!("{algorithm}-{precision}"), inner), || {
                    let case = Case { device: &device, a: &a, inner, algorithm, precision };
                    with_element!(precision, T => case.work::<T>())
                });
            }
        }
    }
}

/// What the library chooses in every precision, and every algorithm in f16.
fn paths() -> Vec<(SddmmAlgorithm, Precision)> {
    let auto = Precision::ALL.map(|precision| (SddmmAlgorithm::Auto, precision));
    let others =
        [SddmmAlgorithm::Tiles, SddmmAlgorithm::Entries, SddmmAlgorithm::Groups, SddmmAlgorithm::Hybrid];
    auto.into_iter().chain(others.map(|algorithm| (algorithm, Precision::F16))).collect()
}

/// One sampled product: what criterion's benchmark of it plans and runs.
pub(crate) struct Case<'a> {
    pub(crate) device: &'a Device,
    pub(crate) a: &'a Csr<f32>,
    pub(crate) inner: usize,
    pub(crate) algorithm: SddmmAlgorithm,
    pub(crate) precision: Precision,
}

impl Case<'_> {
    /// The builder of its plan.
    pub(crate) fn builder(&self) -> SddmmBuilder<'_, Csr<f32>> {
        let builder = Sddmm::builder(self.a).inner(self.inner);
        builder.algorithm(self.algorithm).precision(self.precision)
    }

    /// A verified product, ready to be repeated.
    pub(crate) fn work<T: Element>(&self) -> Work {
        let Self { device, a, inner, algorithm, precision } = *self;
        let plan = self.builder().build(device).expect("a plan");
        let x = random_matrix::<T>(device, a.rows(), inner, 1).expect("memory for X");
        let y = random_matrix::<T>(device, a.cols(), inner, 2).expect("memory for Y");
        let mut out = DeviceBuffer::from_slice(device, &vec![T::Sum::from_f32(f32::NAN); a.nnz()])
            .expect("memory for a result");
        plan.run_into(T::Sum::ONE, &x, &y, &mut out).expect("a product");
        let found = plan.verify(a, &x, &y, &out).expect("operands of the plan");
        assert!(found.passed(), "{algorithm}-{precision}, inner {inner}: {found}");
        Box::new(move || plan.run_into(T::Sum::ONE, &x, &y, black_box(&mut out)).expect("the same product"))
    }
}
