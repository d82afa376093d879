//! Products on the CPU beside the crate `sprs`, which multiplies on one thread: so windrow does so too.

use criterion::BenchmarkId;
use windrow::{Algorithm, Csr, Device, Precision};
use windrow_bench::measure::peers::SprsSpmm;
use windrow_bench::measure::{SweepPath, poisoned_matrix, random_matrix};

use crate::cases::{Group, Work};
use crate::spmm::product;

/// The plan's own way, in strict f32.
const PATH: SweepPath = SweepPath::new(Algorithm::Auto, Precision::F32);

pub(crate) fn cases(group: &mut Group<'_>, a: &Csr<f32>, widths: &[usize]) {
    let device = Device::cpu();
    for &width in widths {
        group.case(BenchmarkId::new("auto-f32_t1", width), || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
            let mut run = product(&device, a, width, PATH);
            Box::new(move || pool.install(&mut run))
        });
        group.case(BenchmarkId::new("sprs-f32_t1", width), || product_of_sprs(&device, a, width));
    }
}

/// The same product by `sprs`, verified.
fn product_of_sprs(device: &Device, a: &Csr<f32>, width: usize) -> Work {
    let b = random_matrix::<f32>(device, a.cols(), width, 1).expect("memory for B");
    let mut c = poisoned_matrix::<f32>(device, a.rows(), width).expect("memory for C");
    let mut theirs = SprsSpmm::new(a, &b, f32::NAN).expect("k × n elements");
    theirs.run();
    theirs.copy_to(&mut c).expect("m × n elements");
    let plan = PATH.builder(a, width, None).build(device).expect("a plan on the CPU");
    let found = plan.verify(a, &b, &c).expect("operands of the plan");
    assert!(found.passed(), "{found}");
    Box::new(move || theirs.run())
}
