//! Making plans, from CSR arrays in host memory to arrays on the device. Throughput is in entries of `A`.

use criterion::BenchmarkId;
use windrow::synthetic::Synthetic;
use windrow::{
    Algorithm, Csr, Device, Element, Precision, Preprocessing, SddmmAlgorithm, Value, f16, with_element,
};
use windrow_bench::measure::{SweepPath, poisoned_matrix, random_matrix};

use crate::cases::{Bench, Work};
use crate::matrices::matrices;
use crate::sddmm::Case;

const WIDTH: usize = 128;

pub(crate) fn suite(bench: &mut Bench) {
    for (name, a) in matrices(bench, &[Synthetic::Fem100k]) {
        let (here, elsewhere): (Vec<_>, Vec<_>) = paths()
            .into_iter()
            .partition(|(path, _)| bench.has_kernels() || path.options.algorithm == Algorithm::Auto);
        for (path, place) in elsewhere {
            bench.skip(format!("plan/{name}/{}/{WIDTH}", id(path, place)));
        }
        let device = bench.device.clone();
        let mut group = bench.group(format!("plan/{name}"), a.nnz());
        for (path, place) in here {
            group.case(BenchmarkId::new(id(path, place), WIDTH), || spmm(&device, &a, path, place));
        }
        group.case(BenchmarkId::new("sddmm_auto-f16", WIDTH), || sddmm(&device, &a));
    }
}

fn id(path: SweepPath, place: Preprocessing) -> String {
    match place {
        Preprocessing::Auto => format!("spmm_{path}"),
        place => format!("spmm_{path}_on_{place}"),
    }
}

/// What the library chooses, and tiles laid out on the CPU and on the GPU.
fn paths() -> Vec<(SweepPath, Preprocessing)> {
    let path = SweepPath::new;
    let tiles = path(Algorithm::TileStream, Precision::F16);
    vec![
        (path(Algorithm::Auto, Precision::F16), Preprocessing::Auto),
        (path(Algorithm::Auto, Precision::F32), Preprocessing::Auto),
        (path(Algorithm::RowSplit, Precision::F32), Preprocessing::Auto),
        (tiles, Preprocessing::Cpu),
        (tiles, Preprocessing::Gpu),
    ]
}

/// Makes a plan whose product was verified, again and again.
fn spmm(device: &Device, a: &Csr<f32>, path: SweepPath, place: Preprocessing) -> Work {
    let (device, a) = (device.clone(), a.clone());
    let found = with_element!(path.options.precision, T => {
        let plan = path.builder(&a, WIDTH, None).preprocessing(place).build(&device).expect("a plan");
        let b = random_matrix::<T>(&device, a.cols(), WIDTH, 1).expect("memory for B");
        let mut c = poisoned_matrix::<<T as Element>::Sum>(&device, a.rows(), WIDTH).expect("memory for C");
        plan.run_into(<T as Element>::Sum::ONE, &b, <T as Element>::Sum::ZERO, &mut c).expect("a product");
        plan.verify(&a, &b, &c).expect("operands of the plan")
    });
    assert!(found.passed(), "{path}: {found}");
    Box::new(move || {
        let builder = path.builder(&a, WIDTH, None).preprocessing(place);
        drop(std::hint::black_box(builder.build(&device).expect("the same plan")));
        device.synchronize().expect("work without errors");
    })
}

/// The same for a sampled product.
fn sddmm(device: &Device, a: &Csr<f32>) -> Work {
    let (algorithm, precision, inner) = (SddmmAlgorithm::Auto, Precision::F16, WIDTH);
    let mut product = Case { device, a, inner, algorithm, precision }.work::<f16>();
    product();
    let (device, a) = (device.clone(), a.clone());
    Box::new(move || {
        let case = Case { device: &device, a: &a, inner, algorithm, precision };
        drop(std::hint::black_box(case.builder().build(&device).expect("the same plan")));
        device.synchronize().expect("work without errors");
    })
}
