//! The shortest program: a sparse matrix times a dense one.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 01_hello_spmm
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{Coo, Device, Spmm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // [ 1 . 2 ]
    // [ . 3 . ]
    let a = Coo::from_triplets(2, 3, [(0, 0, 1.0f32), (0, 2, 2.0), (1, 1, 3.0)])?.to_csr()?;
    let device = Device::best()?; // a GPU if there is one, else the CPU
    let plan = Spmm::builder(&a).width(2).build(&device)?;
    let b = [1.0f32, 10.0, 2.0, 20.0, 3.0, 30.0]; // 3 × 2, row after row
    let c = plan.run(&b)?;
    println!("on {device}: C = {:?}", c.chunks(2).collect::<Vec<_>>());
    assert_eq!(c, [7.0, 70.0, 6.0, 60.0]);
    Ok(())
}
