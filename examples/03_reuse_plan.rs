//! One plan, many products: another `B`, another width, new values in the same places.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 03_reuse_plan
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a = Csr::from_dense(2, 2, &[1.0f32, 2.0, 0.0, 4.0])?;
    let device = Device::best()?;
    let mut plan = Spmm::builder(&a).width(2).build(&device)?;
    println!("planning took {:.0} µs, once", plan.report().preprocessing_us());

    // Matrices that stay on the device: runs are queued there, and allocate nothing.
    let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 0.0, 0.0, 1.0], 2, 2)?)?;
    let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 2)?;
    plan.run_into(1.0, &b, 0.0, &mut c)?;
    println!("A·I      = {:?}", c.download()?);
    plan.run_into(10.0, &b, 1.0, &mut c)?; // C ← 10·A·B + C
    println!("11·A     = {:?}", c.download()?);
    assert_eq!(c.download()?, [11.0, 22.0, 0.0, 44.0]);

    plan.replace_values(&[1.0f32, 1.0, 1.0])?; // one for each entry, row after row
    println!("new A·1  = {:?}", plan.run(&[1.0f32, 1.0])?); // of another width
    assert_eq!(plan.run(&[1.0f32, 1.0])?, [2.0, 1.0]);
    Ok(())
}
