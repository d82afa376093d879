//! A matrix from a file, and what the plan made of it.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example 02_file_and_plan -- data/ct2010.mtx.gz
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{Device, Precision, Spmm, io, synthetic::seeded_values};

const WIDTH: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "data/mbeacxc.mtx.gz".to_owned());
    // Matrix Market, edge lists, .smtx, .npz: the content tells. Sizes are held to limits before memory is taken.
    let (a, report) = io::read_csr_with_report::<f32>(&path, &io::ReadOptions::default())?;
    println!("{path}: {report}");
    let device = Device::best()?;
    let plan = Spmm::builder(&a).width(WIDTH).precision(Precision::F16).build(&device)?;
    println!("{}", plan.report()); // which kernel and why, bytes on the device, time of each stage
    let c = plan.run(&seeded_values::<f32>(a.cols() * WIDTH, 1)?)?;
    println!("C is {} × {WIDTH}; its first element is {}", a.rows(), c[0]);
    Ok(())
}
