//! A step of a CP decomposition: the products of a sparse tensor with its factors, one for each mode.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 06_mttkrp
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{Coo3, Device, Mttkrp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    // 2 × 3 × 2; a file would be read with windrow::io::read_tns.
    let entries = [([0, 1, 0], 2.0f32), ([0, 2, 1], 1.0), ([1, 0, 1], 3.0)];
    let tensor = Coo3::from_entries([2, 3, 2], entries)?;
    // Factors of rank 2: a row for each index of a mode.
    let factors = [vec![1.0f32, 2.0, 3.0, 4.0], vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0], vec![1.0, 1.0, 2.0, 0.5]];
    for (mode, others) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
        let fibers = tensor.to_csf([mode, others[0], others[1]])?;
        let plan = Mttkrp::builder(&fibers).width(2).build(&device)?;
        let y = plan.run(&factors[others[0]], &factors[others[1]])?;
        println!("mode {mode}: {:?}", y.chunks(2).collect::<Vec<_>>());
        if mode == 0 {
            // 2·b₁·c₀ + 1·b₂·c₁, and 3·b₀·c₁, column by column.
            assert_eq!(y, [2.0, 2.5, 6.0, 0.0]);
        }
    }
    Ok(())
}
