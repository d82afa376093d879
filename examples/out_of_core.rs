//! Multiplies a matrix whose operands need not fit in the device's memory, and compares the time with what the bus and
//! the device allow.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example out_of_core -- graph.mtx.gz --width 128 --limit-mib 512
//! $ cargo run --release -p windrow-examples --example out_of_core -- random:1000000:100 --precision f16
//! ```
//!
//! The bound is the longest of three times: of the bytes that go up, of those that come back, both at the rate that is
//! measured for page-locked memory, and of the product with all operands on the device. So the device must hold these
//! for the comparison, whatever the limit is.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

#[path = "common/named_matrix.rs"]
mod named_matrix;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use half::f16;
use windrow::synthetic::SplitMix64;
use windrow::{
    Algorithm, Csr, DenseMut, DenseRef, Device, DeviceBuffer, DeviceMatrix, DeviceSelector, Element,
    OutOfCoreReport, PinnedBuffer, Precision, Spmm, SpmmOptions,
};

/// Bytes by which the rates of the bus are measured.
const RATE_BYTES: usize = 256 << 20;

#[derive(Parser)]
struct Options {
    /// The matrix: a file, the name of a made-up one such as fem100k, or random:ROWS:ENTRIES for so many entries in
    /// each row
    #[arg(default_value = "community60k")]
    matrix: String,
    /// Columns of the dense operand `B`
    #[arg(long, default_value_t = 128)]
    width: usize,
    /// Type of the values and of `B`: f32 or f16
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// The algorithm of the blocks
    #[arg(long, default_value = "auto")]
    algorithm: Algorithm,
    /// Memory of the device that may be taken, in MiB
    #[arg(long, default_value_t = 64)]
    limit_mib: u64,
    /// The device: best, cpu or cuda:0
    #[arg(long, default_value = "best")]
    device: DeviceSelector,
    /// Times that are taken, of which the median is told
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match options.precision {
        Precision::F32 => run::<f32>(&options),
        Precision::F16 => run::<f16>(&options),
        other => Err(format!("this example has no {other}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run<T: Element<Sum = f32>>(options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (a, device, n) = (named_matrix::matrix(&options.matrix)?, options.device.open()?, options.width);
    let mut rng = SplitMix64::new(1);
    let mut b = PinnedBuffer::<T>::zeroed(&device, a.cols() * n)?;
    b.iter_mut().for_each(|x| *x = T::from_f32(rng.below(17) as f32 / 8.0 - 1.0));
    let Options { precision, algorithm, limit_mib, .. } = *options;
    let told = SpmmOptions { width: n, precision, algorithm, ..SpmmOptions::default() };
    let builder = Spmm::builder(&a).options(told).memory_limit(limit_mib << 20);
    let mut plan = builder.build_out_of_core(&device)?;
    println!("{}", plan.report());
    let ([up, down], (on_device_ms, want)) =
        (rates(&device)?, on_device(&device, &a, &b, (options, plan.report()))?);
    let OutOfCoreReport { a_bytes_up, b_bytes_up, c_bytes_down, .. } = *plan.report();
    let bounds =
        [(a_bytes_up + b_bytes_up) as f64 / up * 1e3, c_bytes_down as f64 / down * 1e3, on_device_ms];
    let bound = bounds.into_iter().fold(0.0, f64::max);
    println!("bus            {:.1} GB/s up, {:.1} GB/s down", up / 1e9, down / 1e9);
    let [up, down, on_device] = bounds;
    println!("bounds         {up:.3} ms up, {down:.3} ms down, {on_device:.3} ms on the device");
    let ordinary = b.to_vec();
    let mut c = PinnedBuffer::<T>::zeroed(&device, a.rows() * n)?;
    let mut ordinary_c = c.to_vec();
    for (what, b, c) in [("page-locked", &b[..], &mut c[..]), ("ordinary", &ordinary, &mut ordinary_c)] {
        let b = DenseRef::packed(b, a.cols(), n)?;
        let ms = median_ms(options.repeat, || {
            Ok(plan.run_host(1.0, b, 0.0, DenseMut::packed(&mut *c, a.rows(), n)?)?)
        })?;
        let off = c
            .iter()
            .zip(&want)
            .map(|(x, want)| (x.to_f32() - want.to_f32()).abs() / want.to_f32().abs().max(1.0));
        let off = off.fold(0.0, f32::max);
        println!("{what:11}    {ms:.3} ms, {:.2} of the bound, off by {off:.1e} at most", bound / ms);
        // Other orders of the sums, and then half a unit in the last place.
        if off > if size_of::<T>() == 2 { 2e-3 } else { 1e-4 } {
            return Err("the product out of core is another than the device's".into());
        }
    }
    Ok(())
}

/// Bytes a second that the bus carries up and down, of page-locked memory.
fn rates(device: &Device) -> Result<[f64; 2], Box<dyn Error + Send + Sync>> {
    let mut host = PinnedBuffer::<f32>::zeroed(device, RATE_BYTES / 4)?;
    let mut there = DeviceBuffer::<f32>::alloc_zeroed(device, RATE_BYTES / 4)?;
    let up = median_ms(7, || Ok(there.copy_from_slice(&host)?))?;
    let down = median_ms(7, || Ok(there.copy_to_slice(&mut host)?))?;
    Ok([up, down].map(|ms| RATE_BYTES as f64 / ms * 1e3))
}

/// The time of a product whose operands are all on the device, by the algorithm of the blocks, and the result.
fn on_device<T: Element<Sum = f32>>(
    device: &Device,
    a: &Csr<f32>,
    b: &[T],
    (options, report): (&Options, &OutOfCoreReport),
) -> Result<(f64, Vec<T>), Box<dyn Error + Send + Sync>> {
    let builder = Spmm::builder(a).width(options.width).precision(options.precision);
    let plan = builder.algorithm(report.algorithm).build(device)?;
    let b = DeviceMatrix::upload(device, DenseRef::packed(b, a.cols(), options.width)?)?;
    let mut c = DeviceMatrix::<T>::zeros(device, a.rows(), options.width)?;
    let ms = median_ms(options.repeat, || {
        plan.run_into(1.0, &b, 0.0, &mut c)?;
        Ok(device.synchronize()?)
    })?;
    Ok((ms, c.download()?))
}

/// Median time, in ms.
fn median_ms(
    repeat: usize,
    mut work: impl FnMut() -> Result<(), Box<dyn Error + Send + Sync>>,
) -> Result<f64, Box<dyn Error + Send + Sync>> {
    work()?; // the first makes what others need
    let mut times = Vec::new();
    for _ in 0..repeat.max(1) {
        let begun = Instant::now();
        work()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
