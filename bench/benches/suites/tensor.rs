//! MTTKRP and TTM of a made-up sparse tensor, in f32. Throughput is in entries of the tensor.

use std::hint::black_box;

use criterion::BenchmarkId;
use windrow::synthetic::seeded_tensor;
use windrow::{Csf3, Device, Mttkrp, Ttm};
use windrow_bench::measure::{TensorOperation, poisoned_matrix, random_matrix};

use crate::cases::{Bench, Work};

/// Dimensions, and places that are drawn: on a GPU, on the CPU, and of a run that only shows that all works.
const OF_GPU: ([usize; 3], usize) = ([6000, 4500, 14_000], 2_000_000);
const OF_CPU: ([usize; 3], usize) = ([600, 450, 1400], 100_000);
const LITTLE: ([usize; 3], usize) = ([20, 30, 14], 400);
const WIDTHS: [usize; 2] = [16, 64];

pub(crate) fn suite(bench: &mut Bench) {
    let (dims, draws) = match (bench.is_quick, bench.has_kernels()) {
        (true, _) => LITTLE,
        (false, true) => OF_GPU,
        (false, false) => OF_CPU,
    };
    let widths: &[usize] = if bench.is_quick { &WIDTHS[..1] } else { &WIDTHS };
    let tensor = seeded_tensor::<f32>(dims, draws, 1).expect("memory for a test tensor");
    for mode in 0..3 {
        let device = bench.device.clone();
        let mut group = bench.group(format!("tensor/mode{mode}"), tensor.nnz());
        for operation in TensorOperation::ALL {
            let a = tensor.to_csf(operation.order(mode)).expect("an order of three modes");
            for &width in widths {
                group.case(BenchmarkId::new(operation.to_string(), width), || match operation {
                    TensorOperation::Mttkrp => mttkrp(&device, &a, width),
                    TensorOperation::Ttm => ttm(&device, &a, width),
                });
            }
        }
    }
}

/// A verified product, ready to be repeated.
fn mttkrp(device: &Device, a: &Csf3<f32>, width: usize) -> Work {
    let (dims, [root, fiber, leaf]) = (a.dims(), a.mode_order());
    let plan = Mttkrp::builder(a).width(width).build(device).expect("a plan");
    let factor =
        |mode: usize| random_matrix::<f32>(device, dims[mode], width, 1).expect("memory for a factor");
    let (b, c) = (factor(fiber), factor(leaf));
    let mut y = poisoned_matrix::<f32>(device, dims[root], width).expect("memory for Y");
    plan.run_into(1.0, [&b, &c], 0.0, &mut y).expect("a product");
    let found = plan.verify(a, [&b, &c], &y).expect("operands of the plan");
    assert!(found.passed(), "MTTKRP of mode {root}, width {width}: {found}");
    Box::new(move || plan.run_into(1.0, [&b, &c], 0.0, black_box(&mut y)).expect("the same product"))
}

/// A verified product, ready to be repeated.
fn ttm(device: &Device, a: &Csf3<f32>, width: usize) -> Work {
    let leaf = a.mode_order()[2];
    let plan = Ttm::builder(a).width(width).build(device).expect("a plan");
    let b = random_matrix::<f32>(device, a.dims()[leaf], width, 1).expect("memory for B");
    let mut y = poisoned_matrix::<f32>(device, a.fibers(), width).expect("memory for Y");
    plan.run_into(1.0, &b, 0.0, &mut y).expect("a product");
    let found = plan.verify(a, &b, &y).expect("operands of the plan");
    assert!(found.passed(), "TTM of mode {leaf}, width {width}: {found}");
    Box::new(move || plan.run_into(1.0, &b, 0.0, black_box(&mut y)).expect("the same product"))
}
