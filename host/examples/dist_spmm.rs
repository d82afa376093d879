//! Multiplies a matrix that several ranks have together, in each of the ways in which that can be divided, and compares
//! results and times with those of one device.
//!
//! ```console
//! $ cargo run --release -p windrow --features dist --example dist_spmm -- graph.mtx.gz --ranks 4 --width 64
//! $ cargo run --release -p windrow --features dist --example dist_spmm -- --devices cuda:0,cuda:1    # a made-up graph
//! ```
//!
//! Ranks are threads; rank 0 has the first of the devices, rank 1 the next, and so on round and round. Times are those
//! of products one after another, without a wait between them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

#[path = "common/named_matrix.rs"]
mod named_matrix;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use half::f16;
use windrow::dist::{Communicator, DistCsr, DistReport, DistSpmm, Scheme, Transport};
use windrow::reorder::{self, Method, reorder};
use windrow::synthetic::SplitMix64;
use windrow::{Csr, DenseRef, Device, DeviceMatrix, DeviceSelector, DistError, Element, Precision, Spmm};

/// Products that are timed together.
const IN_A_ROW: u32 = 20;

#[derive(Parser)]
struct Options {
    /// The matrix: a file, the name of a made-up one such as fem100k, or random:ROWS:ENTRIES for so many entries in
    /// each row
    #[arg(default_value = "community60k")]
    matrix: String,
    /// An order that rows and columns are brought into before they are divided: degree, rcm, community and others
    #[arg(long)]
    reorder: Option<Method>,
    /// Ranks, each a thread
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Columns of the dense operand `B`
    #[arg(long, default_value_t = 32)]
    width: usize,
    /// Type of the values and of `B`: f32 or f16
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Devices that the ranks have by turns
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    devices: Vec<String>,
    /// The way of rows between devices: auto, nccl or host-memory
    #[arg(long, default_value = "auto")]
    transport: Transport,
    /// Times that are taken of each scheme, of which the median is told
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// What a rank has to tell: the first row and column of its part of `C`, that part, its median time in ms, its report.
type Told = ([usize; 2], DeviceMatrix<f32>, f64, DistReport);

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

fn run<B: Element<Sum = f32>>(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let mut a = named_matrix::matrix(&options.matrix)?;
    if let Some(method) = options.reorder {
        let found = reorder(&a, &reorder::Options { method, ..Default::default() }, &())?;
        a = a.permute_symmetric(&found.permutation)?;
    }
    let devices: Vec<Device> = options
        .devices
        .iter()
        .map(|name| Ok(name.parse::<DeviceSelector>()?.open()?))
        .collect::<Result<_, Box<dyn std::error::Error>>>()?;
    let mut rng = SplitMix64::new(1);
    let n = options.width;
    let b: Vec<B> = (0..a.cols() * n).map(|_| B::from_f32(rng.below(17) as f32 / 8.0 - 1.0)).collect();
    let precision = options.precision;
    println!(
        "{} × {}, {} entries, {n} columns in {precision}, {} ranks",
        a.rows(),
        a.cols(),
        a.nnz(),
        options.ranks
    );
    let (want, one) = of_one(&devices[0], (&a, &b), options)?;
    println!("one device  {one:8.3} ms");
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
        let (mut slowest, mut off, mut received, mut transport) = (0.0_f64, 0.0_f32, 0, String::new());
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
            transport = report.transport;
        }
        let efficiency = one / (slowest * options.ranks as f64);
        println!(
            "{scheme:10}  {slowest:8.3} ms, efficiency {efficiency:.2}, {received} rows of B received, off by {off:.1e} at \
             most; {transport}"
        );
        if off > 1e-4 {
            return Err("the ranks' product is another than one device's".into());
        }
    }
    Ok(())
}

/// The product on one device, and its time.
fn of_one<B: Element<Sum = f32>>(
    device: &Device,
    (a, b): (&Csr<f32>, &[B]),
    options: &Options,
) -> Result<(Vec<f32>, f64), Box<dyn std::error::Error>> {
    let plan = Spmm::builder(a).width(options.width).precision(options.precision).build(device)?;
    let b = DeviceMatrix::upload(device, DenseRef::packed(b, a.cols(), options.width)?)?;
    let mut c = DeviceMatrix::<f32>::zeros(device, a.rows(), options.width)?;
    let ms = median_ms(options.repeat, || {
        for _ in 0..IN_A_ROW {
            plan.run_into(1.0, &b, 0.0, &mut c)?;
        }
        Ok::<_, DistError>(device.synchronize()?)
    })?;
    Ok((c.download()?, ms))
}

/// Median time of a product, in ms.
fn median_ms(repeat: usize, mut products: impl FnMut() -> Result<(), DistError>) -> Result<f64, DistError> {
    products()?; // the first makes what others need
    let mut times = Vec::new();
    for _ in 0..repeat.max(1) {
        let begun = Instant::now();
        products()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3 / f64::from(IN_A_ROW));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// One rank's part: its rows, or columns, of `B` and `C`.
fn of_rank<B: Element<Sum = f32>>(
    rank: Communicator,
    device: &Device,
    (a, b): (&Csr<f32>, &[B]),
    (scheme, options): (Scheme, &Options),
) -> Result<Told, DistError> {
    let n = options.width;
    let rank = rank.transport(options.transport);
    let part = DistCsr::of(&rank, a)?;
    let builder = DistSpmm::builder(&rank, &part).scheme(scheme).width(n).precision(options.precision);
    let plan = builder.build(device)?;
    let (rows, columns) = match plan.columns() {
        Some(columns) => (0..a.cols(), columns.range(rank.rank())),
        None => (part.columns().range(rank.rank()), 0..n),
    };
    let own: Vec<B> = rows
        .clone()
        .flat_map(|row| b[row * n + columns.start..row * n + columns.end].iter().copied())
        .collect();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&own, rows.len(), columns.len())?)?;
    let (m, width) = plan.result_shape();
    let mut c = DeviceMatrix::zeros(device, m, width)?;
    let ms = median_ms(options.repeat, || {
        rank.barrier()?;
        for _ in 0..IN_A_ROW {
            plan.run_into(1.0, &b, 0.0, &mut c)?;
        }
        device.synchronize()?;
        rank.barrier()
    })?;
    let first_row = if plan.columns().is_some() { 0 } else { part.rows().range(rank.rank()).start };
    Ok(([first_row, columns.start], c, ms, plan.report().clone()))
}
