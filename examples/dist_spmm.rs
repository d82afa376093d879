//! Multiplies a matrix that several ranks have together, in each of the ways in which that can be divided, and compares
//! results and times with those of one device.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example dist_spmm -- graph.mtx.gz --ranks 4 --width 64
//! $ cargo run --release -p windrow-examples --example dist_spmm -- --devices cuda:0,cuda:1 # made-up graph
//! ```
//!
//! Ranks are threads, or with `--processes` the processes that a launcher starts, each with a rank of its own:
//!
//! ```console
//! $ torchrun --no-python --nproc-per-node 2 target/release/examples/dist_spmm --processes --devices cuda:0,cuda:1
//! ```
//!
//! Rank 0 has the first of the devices, rank 1 the next, and so on round and round; on each host anew. Times are those
//! of products one after another, without a wait between them; those of the parts are of each by itself, of the slowest
//! rank.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

#[path = "common/group.rs"]
mod group;
#[path = "common/named_matrix.rs"]
mod named_matrix;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use half::f16;
use windrow::dist::{Communicator, DistCsr, DistReport, DistSpmm, PartTimes, Scheme};
use windrow::reorder::{self, Method, reorder};
use windrow::synthetic::SplitMix64;
use windrow::{Csr, DenseRef, Device, DeviceMatrix, DistError, Element, Precision, Spmm};

use group::Group;

/// Whatever went wrong, which a thread can hand on.
type Failed = Box<dyn std::error::Error + Send + Sync>;

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
    /// Columns of the dense operand `B`
    #[arg(long, default_value_t = 32)]
    width: usize,
    /// Type of the values and of `B`: f32 or f16
    #[arg(long, default_value = "f32")]
    precision: Precision,
    #[command(flatten)]
    group: Group,
    /// Times that are taken of each scheme, of which the median is told
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

fn run<B: Element<Sum = f32>>(options: &Options) -> Result<(), Failed> {
    let mut a = named_matrix::matrix(&options.matrix)?;
    if let Some(method) = options.reorder {
        let found = reorder(&a, &reorder::Options { method, ..Default::default() }, &())?;
        a = a.permute_symmetric(&found.permutation)?;
    }
    let mut rng = SplitMix64::new(1);
    let n = options.width;
    let b: Vec<B> = (0..a.cols() * n).map(|_| B::from_f32(rng.below(17) as f32 / 8.0 - 1.0)).collect();
    options.group.run(|rank, device| of_rank(rank, device, (&a, &b), options))
}

/// One rank's part: the product on its device alone, which it compares with, and the ranks' in each of the schemes.
fn of_rank<B: Element<Sum = f32>>(
    rank: &Communicator,
    device: &Device,
    (a, b): (&Csr<f32>, &[B]),
    options: &Options,
) -> Result<(), Failed> {
    // Rank 0 measures while the others wait.
    let others_begin = || rank.barrier();
    if rank.rank() > 0 {
        others_begin()?;
    }
    let (want, one) = of_one(device, (a, b), options)?;
    if rank.rank() == 0 {
        let (rows, columns, ranks) = (a.rows(), a.cols(), rank.size());
        let (n, precision, entries) = (options.width, options.precision, a.nnz());
        println!("{rows} × {columns}, {entries} entries, {n} columns in {precision}, {ranks} ranks");
        println!("one device  {one:8.3} ms");
        others_begin()?;
    }
    for scheme in [Scheme::Halo, Scheme::AllGather, Scheme::Columns] {
        let Part { first, c, times, report } = part_of(rank, device, (a, b), (scheme, options))?;
        let mut off = 0.0_f32;
        for (i, row) in c.download()?.chunks(c.cols().max(1)).enumerate() {
            for (j, x) in row.iter().enumerate() {
                let want = want[(first[0] + i) * options.width + first[1] + j];
                off = off.max((x - want).abs() / want.abs().max(1.0));
            }
        }
        let all: Vec<(PartTimes, f32, usize)> = rank.all_gather(&(times, off, report.received_rows))?;
        let slowest = PartTimes::slowest(&all.iter().map(|(times, ..)| *times).collect::<Vec<_>>());
        let off = all.iter().map(|(_, off, _)| *off).fold(0.0, f32::max);
        let received: usize = all.iter().map(|(.., received)| received).sum();
        if rank.rank() == 0 {
            let PartTimes { whole_ms, inner_ms, exchange_ms, outer_ms, .. } = slowest;
            let (efficiency, hidden) = (one / (whole_ms * rank.size() as f64), slowest.hidden());
            println!(
                "{scheme:10}  {whole_ms:8.3} ms, efficiency {efficiency:.2}; own rows {inner_ms:.3}, exchange {exchange_ms:.3} \
                 (hidden: {hidden:.2}), rows of others {outer_ms:.3}; {received} rows of B received, off by {off:.1e} at \
                 most; {}",
                report.transport
            );
        }
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
) -> Result<(Vec<f32>, f64), Failed> {
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

/// A rank's part of a product.
struct Part {
    /// First row and column of it.
    first: [usize; 2],
    c: DeviceMatrix<f32>,
    times: PartTimes,
    report: DistReport,
}

/// This rank's part of a product of all ranks.
fn part_of<B: Element<Sum = f32>>(
    rank: &Communicator,
    device: &Device,
    (a, b): (&Csr<f32>, &[B]),
    (scheme, options): (Scheme, &Options),
) -> Result<Part, DistError> {
    let n = options.width;
    let part = DistCsr::of(rank, a)?;
    let builder = DistSpmm::builder(rank, &part).scheme(scheme).width(n).precision(options.precision);
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
    let times = plan.time_parts(&b, &mut c, options.repeat)?;
    plan.run_into(1.0, &b, 0.0, &mut c)?;
    let first_row = if plan.columns().is_some() { 0 } else { part.rows().range(rank.rank()).start };
    Ok(Part { first: [first_row, columns.start], c, times, report: plan.report().clone() })
}
