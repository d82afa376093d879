//! Products on the CPU beside the crate `sprs`, which multiplies on one thread: so windrow does so too.

use std::hint::black_box;

use criterion::BenchmarkId;
use ndarray::Array2;
use sprs::CsMatI;
use windrow::synthetic::seeded_values;
use windrow::{Algorithm, Csr, DenseRef, Device, DeviceMatrix, Precision};
use windrow_bench::measure::SweepPath;

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
        group.case(BenchmarkId::new("sprs-f32_t1", width), || product_of_sprs(a, width));
    }
}

/// The same product by `sprs`, which adds to `C`: that is zeroed first, as part of the product.
fn product_of_sprs(a: &Csr<f32>, width: usize) -> Work {
    let row_offsets =
        a.row_offsets().iter().map(|&offset| usize::try_from(offset).expect("64 bits")).collect();
    let (col_indices, values) = (a.col_indices().to_vec(), a.values().to_vec());
    let theirs = CsMatI::<f32, u32, usize>::new((a.rows(), a.cols()), row_offsets, col_indices, values);
    let b = seeded_values::<f32>(a.cols() * width, 1).expect("memory for B");
    let b = Array2::from_shape_vec((a.cols(), width), b).expect("k × n elements");
    let mut c = Array2::<f32>::zeros((a.rows(), width));
    let multiply = move |b: &Array2<f32>, c: &mut Array2<f32>| {
        c.fill(0.0);
        sprs::prod::csr_mulacc_dense_rowmaj(theirs.view(), b.view(), c.view_mut());
    };
    multiply(&b, &mut c);
    verify_sprs(a, &b, &c);
    Box::new(move || multiply(&b, black_box(&mut c)))
}

fn verify_sprs(a: &Csr<f32>, b: &Array2<f32>, c: &Array2<f32>) {
    let device = Device::cpu();
    let upload = |x: &Array2<f32>| {
        let elements = x.as_slice().expect("row-major");
        let view = DenseRef::packed(elements, x.nrows(), x.ncols()).expect("rows × n elements");
        DeviceMatrix::upload(&device, view).expect("memory for a copy")
    };
    let plan = PATH.builder(a, c.ncols(), None).build(&device).expect("a plan on the CPU");
    let found = plan.verify(a, &upload(b), &upload(c)).expect("operands of the plan");
    assert!(found.passed(), "{found}");
}
