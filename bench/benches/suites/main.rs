//! Criterion suites of every family, on any device: SpMM, SDDMM, attention, N:M weights, tensors, plan making, reading
//! files.
//!
//! ```console
//! $ cargo bench -p windrow-bench                                  # the first GPU, or the CPU where there is none
//! $ WINDROW_DEVICE=cuda:1 cargo bench -p windrow-bench            # the second GPU; `cpu` and `best` are names too
//! $ cargo bench -p windrow-bench -- sddmm                         # cases whose names hold "sddmm"
//! $ cargo bench -p windrow-bench -- --save-baseline before        # then, after a change: -- --baseline before
//! ```
//!
//! | group | measures |
//! | --- | --- |
//! | `spmm/MATRIX` | sparse-dense products: algorithms, precisions and widths; on the CPU beside the crate `sprs` |
//! | `sddmm/MATRIX` | sampled products: algorithms, precisions and inner dimensions |
//! | `attention/MATRIX` | attention and its gradients: one head and eight, products and sums, f16 and f32 |
//! | `nm/SHAPE` | products with N:M weights |
//! | `tensor/MODE` | MTTKRP and TTM of a made-up tensor |
//! | `plan/MATRIX` | making plans, from CSR arrays in host memory to arrays on the device |
//! | `parse` | reading Matrix Market files, on the CPU whatever the device |
//!
//! Plots are in `target/criterion/report/index.html`. On a GPU work is timed by device events. Every product is
//! compared with an f64 reference before it is timed; a wrong one ends the run. The committed matrices are looked for
//! in `WINDROW_DATA`, or in `data/` of the repository.
//!
//! The CPU has one algorithm: cases of others are skipped there, and a line on standard error says how many. With
//! `WINDROW_REQUIRE_GPU=1` a device that is no GPU is a failure. Without `--bench`, as `cargo test --benches` starts
//! it, every case runs once on little matrices.

mod attention;
mod cases;
mod matrices;
mod nm;
mod parse;
mod plan;
mod sddmm;
mod spmm;
mod spmm_sprs;
mod tensor;

use std::process::ExitCode;

use criterion::{Criterion, PlottingBackend};
use windrow::{DeviceKind, DeviceSelector};

use cases::Bench;

fn main() -> ExitCode {
    let selector = match std::env::var("WINDROW_DEVICE").ok().map(|name| name.parse::<DeviceSelector>()) {
        None => DeviceSelector::Best,
        Some(Ok(selector)) => selector,
        Some(Err(error)) => return failed(&format!("WINDROW_DEVICE: {error}")),
    };
    let device = match selector.open() {
        Ok(device) => device,
        Err(error) => return failed(&format!("{error}; name another device in WINDROW_DEVICE")),
    };
    let required = std::env::var("WINDROW_REQUIRE_GPU").is_ok_and(|value| value == "1");
    if required && device.kind() != DeviceKind::Cuda {
        return failed(&format!("WINDROW_REQUIRE_GPU=1, but the device is {device}"));
    }
    eprintln!("device: {device}");
    // Its own plots, whether or not gnuplot is installed.
    let criterion = Criterion::default().plotting_backend(PlottingBackend::Plotters).configure_from_args();
    let mut bench = Bench::new(criterion, device);
    spmm::suite(&mut bench);
    sddmm::suite(&mut bench);
    attention::suite(&mut bench);
    nm::suite(&mut bench);
    tensor::suite(&mut bench);
    plan::suite(&mut bench);
    parse::suite(&mut bench);
    bench.finish();
    ExitCode::SUCCESS
}

fn failed(why: &str) -> ExitCode {
    eprintln!("suites: FAILED: {why}");
    ExitCode::FAILURE
}
