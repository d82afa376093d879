//! Memory and order of another library: `B` and `C` are where that has them, and the product is queued in a stream.
//!
//! ```console
//! $ cargo run -p windrow-examples --example 08_own_stream
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use windrow::{
    Csr, Device, DeviceBuffer, DeviceKind, DeviceView, DeviceViewMut, SpmmError, SpmmPlan, Stream,
};

/// `C ← A·B` for packed matrices of f32 with `n` columns at addresses of the plan's device.
///
/// # Safety
/// The matrices live until the work is done, and are used in the order of `stream`; nobody else writes `C` meanwhile.
unsafe fn multiply(plan: &SpmmPlan, stream: &Stream, [b, c]: [u64; 2], n: usize) -> Result<(), SpmmError> {
    let ((m, k), device) = (plan.shape(), plan.device());
    // SAFETY: the caller's promise. What the driver knows of the addresses is checked.
    let (b, c) = unsafe {
        (
            DeviceView::<f32>::from_raw(device, b, k, n, n)?,
            DeviceViewMut::<f32>::from_raw(device, c, m, n, n)?,
        )
    };
    plan.run_into_on(stream, 1.0, b, 0.0, c)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    let a = Csr::from_dense(2, 2, &[0.0f32, 2.0, 1.0, 0.0])?;
    let plan = windrow::Spmm::builder(&a).width(2).build(&device)?;
    // With CUDA, Stream::from_raw borrows a CUstream, such as torch.cuda.current_stream().cuda_stream.
    let stream = Stream::new(&device)?;
    let (b, mut c) = ([1.0f32, 2.0, 3.0, 4.0], [f32::NAN; 4]);
    if device.kind() == DeviceKind::Cpu {
        let address = [b.as_ptr().expose_provenance() as u64, c.as_mut_ptr().expose_provenance() as u64];
        // SAFETY: both are 2 × 2, live, and used by nothing else until the stream is done.
        unsafe { multiply(&plan, &stream, address, 2)? };
        stream.synchronize()?;
    } else {
        // They stand for what the other library's allocator returned.
        let (b, to) = (DeviceBuffer::from_slice(&device, &b)?, DeviceBuffer::from_slice(&device, &c)?);
        device.synchronize()?; // they are written in the device's own stream, of which ours knows nothing
        // SAFETY: as above.
        unsafe { multiply(&plan, &stream, [b.address(), to.address()], 2)? };
        stream.synchronize()?;
        c.copy_from_slice(&to.to_vec()?);
    }
    println!("on {device}: C = {c:?}");
    assert_eq!(c, [6.0, 8.0, 1.0, 2.0]);
    Ok(())
}
