//! Beside cudarc: its context, its stream and its memory, with windrow's product between its own kernels and copies.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 10_cudarc
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use cudarc::driver::CudaContext;
use windrow::interop::CudarcStream;
use windrow::{Csr, Device, DeviceBuffer, DeviceError, Spmm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = match Device::cuda(0) {
        Err(error @ (DeviceError::NoDriver | DeviceError::NoSuchDevice { .. })) => {
            println!("cudarc: nothing to do: {error}");
            return Ok(());
        }
        other => other?,
    };
    // The primary context, as the one of windrow is; any stream of it.
    let cuda = CudaContext::new(0)?.new_stream()?;
    let on = CudarcStream::new(&device, &cuda)?;
    let a = Csr::from_dense(2, 2, &[0.0f32, 2.0, 1.0, 0.0])?;
    let plan = Spmm::builder(&a).width(2).build(&device)?;

    // cudarc's memory in windrow's product.
    let b = cuda.clone_htod(&[1.0f32, 2.0, 3.0, 4.0])?;
    let mut c = cuda.alloc_zeros::<f32>(4)?;
    plan.run_into_on(on.stream(), 1.0, &on.view(&b, 2, 2, 2)?, 0.0, &mut on.view_mut(&mut c, 2, 2, 2)?)?;
    let product = cuda.clone_dtoh(&c)?;
    println!("cudarc: C = {product:?}");
    assert_eq!(product, [6.0, 8.0, 1.0, 2.0]);

    // windrow's memory in cudarc's copy.
    let mut buffer = DeviceBuffer::<f32>::alloc_zeroed(&device, 4)?;
    cuda.memcpy_dtod(&c, &mut on.lend(&mut buffer)?.view_mut())?;
    assert_eq!(buffer.to_vec()?, product);
    Ok(())
}
