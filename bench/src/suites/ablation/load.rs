//! Other products that keep the device busy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use windrow::synthetic::Synthetic;
use windrow::{Algorithm, Csr, Device, DeviceKind, DeviceMatrix, Precision};

use crate::measure::peers::{CsrAlgorithm, CuSparse, DeviceCsr};
use crate::measure::{BenchError, SweepPath, random_matrix};

/// Columns of `B` of the products beside.
const WIDTH: usize = 64;
/// Products that are queued at a time: the device has work, and stops soon when it should.
const QUEUED: u64 = 16;

/// What ran beside some work.
pub(super) struct LoadFacts {
    pub(super) what: &'static str,
    pub(super) products: u64,
}

/// Does `work` while another thread runs products: on a GPU those of cuSPARSE in a stream of their own, elsewhere on
/// the CPU. `work` begins when they run.
pub(super) fn beside<R>(
    device: &Device,
    csr: &Csr<f32>,
    work: impl FnOnce() -> Result<R, BenchError>,
) -> Result<(R, LoadFacts), BenchError> {
    let (stop, products) = (AtomicBool::new(false), AtomicU64::new(0));
    let is_gpu = device.kind() == DeviceKind::Cuda;
    let what = if is_gpu { "cuSPARSE f32 in a stream of its own" } else { "products of another thread" };
    std::thread::scope(|scope| {
        let load = scope.spawn(|| match is_gpu {
            true => on_gpu(device, &stop, &products),
            false => on_cpu(csr, &stop, &products),
        });
        while products.load(Ordering::Acquire) == 0 && !load.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = products.load(Ordering::Acquire);
        let result = if load.is_finished() { None } else { Some(work()) };
        let during = products.load(Ordering::Acquire) - before;
        stop.store(true, Ordering::Release);
        let loaded = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        loaded?;
        match result {
            Some(result) => Ok((result?, LoadFacts { what, products: during })),
            // The load ends of itself only with an error, which was returned.
            None => Err(BenchError::Absent { library: "the load", reason: "it ended early".to_owned() }),
        }
    })
}

fn on_gpu(device: &Device, stop: &AtomicBool, products: &AtomicU64) -> Result<(), BenchError> {
    let library = CuSparse::load_beside(device)?;
    let csr = Synthetic::Pruned4096.generate::<f32>(3)?;
    let a = DeviceCsr::<f32>::upload(device, &csr)?;
    let b = random_matrix::<f32>(device, csr.cols(), WIDTH, 5)?;
    let mut c = DeviceMatrix::<f32>::zeros(device, csr.rows(), WIDTH)?;
    let spmm = library.prepare(CsrAlgorithm::Alg2, &a, &b, &mut c)?;
    while !stop.load(Ordering::Acquire) {
        for _ in 0..QUEUED {
            spmm.run()?;
        }
        library.finish()?;
        products.fetch_add(QUEUED, Ordering::AcqRel);
    }
    Ok(())
}

fn on_cpu(csr: &Csr<f32>, stop: &AtomicBool, products: &AtomicU64) -> Result<(), BenchError> {
    let device = Device::cpu();
    let path = SweepPath::new(Algorithm::Auto, Precision::F32);
    let plan = path.builder(csr, WIDTH, None).build(&device)?;
    let b = random_matrix::<f32>(&device, csr.cols(), WIDTH, 5)?;
    let mut c = DeviceMatrix::<f32>::zeros(&device, csr.rows(), WIDTH)?;
    while !stop.load(Ordering::Acquire) {
        plan.run_into(1.0, &b, 0.0, &mut c)?;
        products.fetch_add(1, Ordering::AcqRel);
    }
    Ok(())
}
