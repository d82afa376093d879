//! Multiplies a matrix that several ranks have together, in each of the ways in which that can be divided, and compares
//! the results with those of one device.
//!
//! ```console
//! $ cargo run --release -p windrow --features dist --example dist_spmm -- graph.mtx.gz --ranks 4 --width 64
//! $ cargo run --release -p windrow --features dist --example dist_spmm -- --devices cuda:0,cuda:1    # a made-up graph
//! ```
//!
//! Ranks are threads; rank 0 has the first of the devices, rank 1 the next, and so on round and round.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use windrow::dist::{Communicator, DistCsr, DistReport, DistSpmm, Scheme};
use windrow::synthetic::{SplitMix64, Synthetic};
use windrow::{Csr, DenseRef, Device, DeviceMatrix, DeviceSelector, DistError, Spmm};

#[derive(Parser)]
struct Options {
    /// The matrix; a made-up graph of communities unless told
    file: Option<PathBuf>,
    /// Ranks, each a thread
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Columns of the dense operand `B`
    #[arg(long, default_value_t = 32)]
    width: usize,
    /// Devices that the ranks have by turns
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    devices: Vec<String>,
    /// Products of each scheme, of which the quickest is told
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// What a rank has to tell: the first row and column of its part of `C`, that part, its time in ms, its report.
type Told = ([usize; 2], DeviceMatrix<f32>, f64, DistReport);

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let a: Csr<f32> = match &options.file {
        Some(file) => windrow::io::read_csr(file)?,
        None => Synthetic::Community60k.generate(1)?,
    };
    let devices: Vec<Device> = options
        .devices
        .iter()
        .map(|name| Ok(name.parse::<DeviceSelector>()?.open()?))
        .collect::<Result<_, Box<dyn std::error::Error>>>()?;
    let mut rng = SplitMix64::new(1);
    let n = options.width;
    let b: Vec<f32> = (0..a.cols() * n).map(|_| rng.below(17) as f32 / 8.0 - 1.0).collect();
    let want = Spmm::builder(&a).width(n).build(&devices[0])?.run(&b)?;
    println!("{} × {}, {} entries, {n} columns, {} ranks", a.rows(), a.cols(), a.nnz(), options.ranks);
    for scheme in [Scheme::Halo, Scheme::AllGather, Scheme::Columns] {
        let ranks: Vec<Result<Told, DistError>> = std::thread::scope(|scope| {
            let group = Communicator::threads(options.ranks)?.into_iter().zip(devices.iter().cycle());
            let threads: Vec<_> = group
                .map(|(rank, device)| scope.spawn(|| of_rank(rank, device, (&a, &b), (scheme, options))))
                .collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(told) => told,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            Ok::<_, DistError>(ended.collect())
        })?;
        let (mut slowest, mut off, mut received) = (0.0_f64, 0.0_f32, 0);
        for told in ranks {
            let ([first_row, first_column], c, ms, report) = told?;
            for (i, row) in c.download()?.chunks(c.cols().max(1)).enumerate() {
                for (j, x) in row.iter().enumerate() {
                    let want = want[(first_row + i) * n + first_column + j];
                    off = off.max((x - want).abs() / want.abs().max(1.0));
                }
            }
            slowest = slowest.max(ms);
            received += report.received_rows;
        }
        println!("{scheme:10}  {slowest:8.2} ms, {received} rows of B received, off by {off:.1e} at most");
        if off > 1e-4 {
            return Err("the ranks' product is another than one device's".into());
        }
    }
    Ok(())
}

/// One rank's part: its rows, or columns, of `B` and `C`.
fn of_rank(
    rank: Communicator,
    device: &Device,
    (a, b): (&Csr<f32>, &[f32]),
    (scheme, options): (Scheme, &Options),
) -> Result<Told, DistError> {
    let n = options.width;
    let part = DistCsr::of(&rank, a)?;
    let plan = DistSpmm::builder(&rank, &part).scheme(scheme).width(n).build(device)?;
    let (rows, columns) = match plan.columns() {
        Some(columns) => (0..a.cols(), columns.range(rank.rank())),
        None => (part.columns().range(rank.rank()), 0..n),
    };
    let own: Vec<f32> = rows
        .clone()
        .flat_map(|row| b[row * n + columns.start..row * n + columns.end].iter().copied())
        .collect();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&own, rows.len(), columns.len())?)?;
    let (m, width) = plan.result_shape();
    let mut c = DeviceMatrix::zeros(device, m, width)?;
    let mut quickest = f64::INFINITY;
    for _ in 0..=options.repeat {
        rank.barrier()?;
        let begun = Instant::now();
        plan.run_into(1.0, &b, 0.0, &mut c)?;
        device.synchronize()?;
        rank.barrier()?;
        quickest = quickest.min(begun.elapsed().as_secs_f64() * 1e3);
    }
    let first_row = if plan.columns().is_some() { 0 } else { part.rows().range(rank.rank()).start };
    Ok(([first_row, columns.start], c, quickest, plan.report().clone()))
}
