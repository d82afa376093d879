//! Products on the CPU, beside the crate `sprs`. Throughput is in entries of `A`.
//!
//! `sprs` multiplies on one thread, so windrow is measured on one thread too, and on all.

mod common;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array2;
use sprs::CsMatI;
use windrow::synthetic::{Synthetic, seeded_values};
use windrow::{Csr, DenseRef, Device, DeviceMatrix, Precision, Spmm, bf16, f16};
use windrow_bench::random_matrix;

const WIDTHS: [usize; 2] = [32, 128];

fn spmm_cpu(criterion: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    for (name, a) in common::matrices(&[Synthetic::Pruned4096, Synthetic::Molbatch300k]) {
        let mut group = criterion.benchmark_group(format!("spmm_cpu/{name}"));
        group.sample_size(10).throughput(Throughput::Elements(a.nnz() as u64));
        for width in WIDTHS {
            let threads = rayon::current_num_threads();
            for precision in Precision::ALL {
                let mut run = product(&a, width, precision);
                group.bench_function(
                    BenchmarkId::new(format!("windrow_{precision}_t{threads}"), width),
                    |bencher| {
                        bencher.iter(&mut run);
                    },
                );
            }
            let mut run = product(&a, width, Precision::F32);
            group.bench_function(BenchmarkId::new("windrow_f32_t1", width), |bencher| {
                one_thread.install(|| bencher.iter(&mut run));
            });
            let mut run = product_of_sprs(&a, width);
            group.bench_function(BenchmarkId::new("sprs_f32_t1", width), |bencher| bencher.iter(&mut run));
        }
        group.finish();
    }
}

/// A verified product, ready to be repeated.
fn product(a: &Csr<f32>, width: usize, precision: Precision) -> Box<dyn FnMut() + Send> {
    match precision {
        Precision::F16 => product_as::<f16>(a, width, precision),
        Precision::Bf16 => product_as::<bf16>(a, width, precision),
        _ => product_as::<f32>(a, width, precision),
    }
}

fn product_as<T: windrow::Element>(
    a: &Csr<f32>,
    width: usize,
    precision: Precision,
) -> Box<dyn FnMut() + Send> {
    let device = Device::cpu();
    let plan = Spmm::builder(a).width(width).precision(precision).build(&device).expect("a plan on the CPU");
    let b = random_matrix::<T>(&device, a.cols(), width, 1).expect("memory for B");
    let mut c = DeviceMatrix::<f32>::zeros(&device, a.rows(), width).expect("memory for C");
    plan.run_into(1.0, &b, 0.0, &mut c).expect("a product");
    let verification = plan.verify(a, &b, &c).expect("operands of the plan");
    assert!(verification.passed(), "{verification}");
    Box::new(move || plan.run_into(1.0, &b, 0.0, black_box(&mut c)).expect("the same product"))
}

/// The same product by `sprs`, which adds to `C`: that is zeroed first, as part of the product.
fn product_of_sprs(a: &Csr<f32>, width: usize) -> impl FnMut() {
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
    move || multiply(&b, black_box(&mut c))
}

fn verify_sprs(a: &Csr<f32>, b: &Array2<f32>, c: &Array2<f32>) {
    let device = Device::cpu();
    let upload = |x: &Array2<f32>| {
        let elements = x.as_slice().expect("row-major");
        let view = DenseRef::packed(elements, x.nrows(), x.ncols()).expect("rows × n elements");
        DeviceMatrix::upload(&device, view).expect("memory for a copy")
    };
    let plan = Spmm::builder(a).width(c.ncols()).build(&device).expect("a plan on the CPU");
    let verification = plan.verify(a, &upload(b), &upload(c)).expect("operands of the plan");
    assert!(verification.passed(), "{verification}");
}

criterion_group!(benches, spmm_cpu);
criterion_main!(benches);
