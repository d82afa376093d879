//! Products with vector-wise N:M weights. Throughput is in products of elements that are kept.

use std::hint::black_box;

use criterion::BenchmarkId;
use windrow::synthetic::seeded_weights;
use windrow::{DenseRef, Device, DeviceMatrix, Element, Epilogue, NmPattern, NmSpmm, Precision, bf16, f16};
use windrow_bench::measure::random_matrix;

use crate::cases::{Bench, Work};

/// Rows of `A` and `C`, columns of `C`, and the inner dimension; of 32 rows of weights, how many are kept.
const SHAPES: [(usize, usize, usize); 3] = [(512, 512, 512), (512, 2048, 2048), (1024, 4096, 4096)];
const KEPT: [usize; 2] = [16, 4];
/// On the CPU, and of a run that only shows that all works.
const SHAPE_OF_CPU: (usize, usize, usize) = (128, 256, 256);
const LITTLE: (usize, usize, usize) = (16, 64, 64);
/// Rows of a result that are compared with the reference.
const CHECKED_ROWS: usize = 64;

/// There are no such products in f64.
const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

pub(crate) fn suite(bench: &mut Bench) {
    let shapes: &[(usize, usize, usize)] = match (bench.is_quick, bench.has_kernels()) {
        (true, _) => &[LITTLE],
        (false, true) => &SHAPES,
        (false, false) => &[SHAPE_OF_CPU],
    };
    for &shape in shapes {
        let (m, n, k) = shape;
        let device = bench.device.clone();
        let mut group = bench.group(format!("nm/{m}x{n}x{k}"), m * n * k);
        for kept in KEPT {
            group.elements(m * n * k * kept / 32);
            for precision in PRECISIONS {
                let id = BenchmarkId::new(precision.to_string(), format!("{kept}:32"));
                group.case(id, || match precision {
                    Precision::F16 => product::<f16>(&device, shape, kept, precision),
                    Precision::Bf16 => product::<bf16>(&device, shape, kept, precision),
                    _ => product::<f32>(&device, shape, kept, precision),
                });
            }
        }
    }
}

/// A verified product, ready to be repeated.
fn product<T: Element<Sum = f32>>(
    device: &Device,
    (m, n, k): (usize, usize, usize),
    kept: usize,
    precision: Precision,
) -> Work {
    let pattern = NmPattern::new(kept, 32, 32).expect("a pattern");
    let weights = seeded_weights::<f32>((k, n), pattern, 1).expect("memory for weights");
    let builder = NmSpmm::builder(&weights).rows(m).precision(precision);
    let plan = builder.build(device).expect("a plan");
    let (rows, cols) = plan.report().layout.stored(m, k);
    let a = random_matrix::<T>(device, rows, cols, 2).expect("memory for A");
    let nan = vec![T::from_f64(f64::NAN); m * n];
    let mut c = DeviceMatrix::upload(device, DenseRef::packed(&nan, m, n).expect("m × n elements"))
        .expect("memory for C");
    let run = Epilogue::default();
    plan.run_into(&run, &a, &mut c).expect("a product");
    let checked: Vec<usize> = (0..m).step_by(m.div_ceil(CHECKED_ROWS)).collect();
    let found = plan.verify_rows(&weights, &run, &a, &c, &checked).expect("operands of the plan");
    assert!(found.passed(), "{m}x{n}x{k} {kept}:32 {precision}: {found}");
    Box::new(move || plan.run_into(&Epilogue::default(), &a, black_box(&mut c)).expect("the same product"))
}
