//! From a file to a verified product: the real matrices of `data/`.

use std::path::PathBuf;

use crate::common::{devices, report_missing_gpu};
use half::{bf16, f16};
use windrow::{Algorithm, Csr, DenseRef, DeviceKind, DeviceMatrix, Element, Spmm};
use windrow_testkit::SplitMix64;

const FILES: [&str; 3] = ["ct2010.mtx.gz", "mbeacxc.mtx.gz", "lyra_conv_to_gates.smtx.gz"];

/// The folder of the matrices: `data/` of the repository, or what `WINDROW_DATA` names where the tests were carried.
fn data() -> PathBuf {
    let in_repository = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data");
    std::env::var_os("WINDROW_DATA").map_or_else(in_repository, PathBuf::from)
}

fn read(name: &str) -> Csr<f32> {
    let path = data().join(name);
    windrow::io::read_csr::<f32>(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn verified<B: Element<Sum = f32>>(a: &Csr<f32>, device: &windrow::Device, algorithm: Algorithm, n: usize) {
    let plan = Spmm::builder(a).width(n).algorithm(algorithm).precision(B::PRECISION).build(device).unwrap();
    let mut rng = SplitMix64::new(n as u64);
    let b: Vec<B> = (0..a.cols() * n).map(|_| B::from_f32(rng.real())).collect();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&b, a.cols(), n).unwrap()).unwrap();
    let mut c = DeviceMatrix::<f32>::zeros(device, a.rows(), n).unwrap();
    plan.run_into(1.0, &b, 0.0, &mut c).unwrap();
    let verified = plan.verify(a, &b, &c).unwrap();
    assert!(verified.passed(), "{algorithm} on {device}: {verified}\n{}", plan.report());
    assert_eq!(verified.checked, (a.rows() * n) as u64);
    eprintln!("  {algorithm} {} on {device}, n = {n}: {verified}", B::PRECISION);
}

#[test]
fn files_become_verified_products() {
    let mut ran = 0;
    for name in FILES {
        let a = read(name);
        eprintln!("{name}: {} × {}, {} entries", a.rows(), a.cols(), a.nnz());
        for device in devices() {
            let n = match device.kind() {
                DeviceKind::Emulator if !device.name().contains("InOrder") => continue,
                DeviceKind::Emulator => 8,
                DeviceKind::Cpu => 32,
                _ => 128,
            };
            verified::<f32>(&a, &device, Algorithm::RowSplit, n);
            verified::<f16>(&a, &device, Algorithm::Hybrid, n);
            ran += 2;
            if device.kind() != DeviceKind::Emulator {
                verified::<bf16>(&a, &device, Algorithm::Auto, n);
                verified::<f16>(&a, &device, Algorithm::Auto, n);
                verified::<f16>(&a, &device, Algorithm::TileStream, n);
                ran += 3;
            }
        }
    }
    // The CPU and one schedule of the emulator, or the GPU where only that is asked for.
    assert!(ran >= FILES.len() * if devices().len() > 1 { 7 } else { 5 });
    report_missing_gpu("files", 5 * FILES.len());
}
