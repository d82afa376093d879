//! What a plan chose and why, how much memory it takes, and whether its result is right.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example 07_verify_report
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::synthetic::seeded_values;
use windrow::{Algorithm, Coo, DenseRef, Device, DeviceMatrix, Spmm};

const ROWS: usize = 2000;
const WIDTH: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    // A band of five entries a row.
    let near = |r: usize| {
        (r.saturating_sub(2)..(r + 3).min(ROWS)).map(move |c| (r, c, 1.0 / (1 + r.abs_diff(c)) as f32))
    };
    let a = Coo::from_triplets(ROWS, ROWS, (0..ROWS).flat_map(near))?.to_csr()?;
    let b = seeded_values::<f32>(ROWS * WIDTH, 1)?;
    let b = DeviceMatrix::upload(&device, DenseRef::packed(&b, ROWS, WIDTH)?)?;
    for algorithm in [Algorithm::Auto, Algorithm::RowSplit] {
        let plan = Spmm::builder(&a).width(WIDTH).algorithm(algorithm).build(&device)?;
        let report = plan.report();
        println!("{algorithm}: takes {}, since {}", report.algorithm, report.reason);
        println!(
            "  {} bytes on the device, planned in {:.0} µs",
            report.device_bytes,
            report.preprocessing_us()
        );
        let mut c = DeviceMatrix::<f32>::zeros(&device, ROWS, WIDTH)?;
        plan.run_into(1.0, &b, 0.0, &mut c)?;
        // Every element against a sum of twice f64's precision, within a bound that follows from the roundings.
        let found = plan.verify(&a, &b, &c)?;
        println!("  {} elements checked, the worst has {:.3} of its bound", found.checked, found.worst_ratio);
        assert!(found.passed());
    }
    // More than a plan may take is refused before anything is allocated.
    let refused = Spmm::builder(&a).width(WIDTH).memory_limit(1000).build(&device).unwrap_err();
    println!("with 1000 bytes: {refused}");
    Ok(())
}
