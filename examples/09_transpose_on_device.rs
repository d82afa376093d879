//! `Aᵀ·B` for a matrix that is on the device, in any order of entries: canonical form, transpose and plan are made
//! there, and new values of `A` reach the plan in their own order.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 09_transpose_on_device
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{Device, DeviceBuffer, DeviceCsr, Spmm, Stream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    let stream = Stream::new(&device)?;
    // 2 × 3:  [ . 5 6 ]  with the first row unsorted, and its 6 in two parts.
    //         [ 7 8 . ]
    let offsets = DeviceBuffer::from_slice(&device, &[0i64, 3, 5])?;
    let columns = DeviceBuffer::from_slice(&device, &[2i64, 1, 2, 0, 1])?;
    let values = DeviceBuffer::from_slice(&device, &[4.0f32, 5.0, 2.0, 7.0, 8.0])?;
    let a = DeviceCsr::new(2, 3, &offsets, &columns, &values)?.canonical(&stream)?;

    let at = a.transposed(&stream)?;
    let mut plan = Spmm::builder(at.matrix()).width(1).values_from_device().build_on(&stream)?;
    println!("Aᵀ·B = {:?}", plan.run(&[1.0, 10.0])?);

    // What a step of training makes of the values, in the order of A's entries.
    let new = DeviceBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0])?;
    let mut of_transpose = DeviceBuffer::<f32>::alloc_zeroed(&device, at.matrix().nnz())?;
    at.values_on(&stream, &new, &mut of_transpose)?;
    plan.replace_values_on(&stream, &of_transpose)?;
    println!("with new values: {:?}", plan.run(&[1.0, 10.0])?);
    Ok(())
}
