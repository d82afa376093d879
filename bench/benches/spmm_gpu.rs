//! Products on a GPU, timed by device events. Throughput is in entries of `A`.
//!
//! Without a GPU there is nothing to measure: one line says so, and with `WINDROW_REQUIRE_GPU=1` that is a failure. A
//! GPU that is there and cannot be used is a failure always.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use windrow::synthetic::Synthetic;
use windrow::{Algorithm, Csr, Device, DeviceError, Element, Precision, Spmm, bf16, f16};
use windrow_bench::{SweepPath, poisoned_matrix, random_matrix};

const WIDTHS: [usize; 2] = [32, 128];
/// Of a vector, and of few columns.
const NARROW: [usize; 4] = [1, 2, 4, 8];

fn main() -> ExitCode {
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(error) => {
            let missing = matches!(error, DeviceError::NoDriver | DeviceError::NoSuchDevice { .. });
            let required = std::env::var("WINDROW_REQUIRE_GPU").is_ok_and(|value| value == "1");
            let fails = required || !missing;
            eprintln!("spmm_gpu: {}: {error}", if fails { "FAILED" } else { "skipped" });
            return if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let mut criterion = Criterion::default().configure_from_args();
    for (name, a) in common::matrices(&[Synthetic::Fem100k, Synthetic::Rmat17]) {
        let matricized = SweepPath::new(Algorithm::MatricizedRows, Precision::F16);
        let wide = SweepPath::DEFAULT.into_iter().chain([matricized]).map(|path| (path, &WIDTHS[..]));
        let narrow = [Algorithm::Auto, Algorithm::RowSplit]
            .map(|algorithm| (SweepPath::new(algorithm, Precision::F32), &NARROW[..]));
        for of in wide.chain(narrow) {
            match of.0.precision {
                Precision::F16 => products::<f16>(&mut criterion, &device, (name, &a), of),
                Precision::Bf16 => products::<bf16>(&mut criterion, &device, (name, &a), of),
                _ => products::<f32>(&mut criterion, &device, (name, &a), of),
            }
        }
    }
    criterion.final_summary();
    ExitCode::SUCCESS
}

fn products<T: Element>(
    criterion: &mut Criterion,
    device: &Device,
    (name, a): (&str, &Csr<f32>),
    (path, widths): (SweepPath, &[usize]),
) {
    let mut group = criterion.benchmark_group(format!("spmm_gpu/{name}"));
    group.sample_size(20).throughput(Throughput::Elements(a.nnz() as u64));
    for &width in widths {
        let builder = Spmm::builder(a).width(width).precision(path.precision).algorithm(path.algorithm);
        let plan = builder.build(device).expect("a plan");
        let b = random_matrix::<T>(device, a.cols(), width, 1).expect("memory for B");
        let mut c = poisoned_matrix(device, a.rows(), width).expect("memory for C");
        plan.run_into(1.0, &b, 0.0, &mut c).expect("a product");
        let verification = plan.verify(a, &b, &c).expect("operands of the plan");
        assert!(verification.passed(), "{name}, {path}, width {width}: {verification}");
        group.bench_function(BenchmarkId::new(path.to_string(), width), |bencher| {
            bencher.iter_custom(|calls| {
                let start = device.record().expect("a mark");
                for _ in 0..calls {
                    plan.run_into(1.0, &b, 0.0, &mut c).expect("the same product");
                }
                let end = device.record().expect("a mark");
                Duration::from_secs_f64(start.elapsed_us(&end).expect("work without errors") * 1e-6)
            });
        });
    }
    group.finish();
}
