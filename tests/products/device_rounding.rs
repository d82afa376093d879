//! f64 values that are on the device, rounded there once: the bits of the host, in every narrower precision.

use windrow::internal::device_arrays;
use windrow::{Algorithm, Csr, DeviceCsr, Precision, Spmm};
use windrow_testkit::SplitMix64;

use crate::common::{kernel_devices, report_missing_gpu};

/// Numbers in the middle between two of every narrower type, and next to that by less than an f32 holds; those at the
/// ends of the types, and some with any bits at all.
fn values() -> Vec<f64> {
    let mut values = vec![0.0, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::from(f32::MAX)];
    // Of f16, bf16, tf32 and f32: bits behind the first, and the exponents of the least and the largest number.
    for (bits, least, largest) in [(10, -24, 15), (7, -133, 127), (10, -136, 127), (23, -149, 127)] {
        for exponent in [least - 2, least - 1, least, least + 1, least + bits, 0, 1, largest - 1, largest] {
            let one = 2.0f64.powi(exponent);
            for steps in [1.0, 3.0, 2.0f64.powi(bits + 1) - 1.0] {
                let middle = one * (1.0 + steps * 2.0f64.powi(-bits - 1));
                for little in [0.0, 2.0f64.powi(-28), 2.0f64.powi(-50)] {
                    values.extend([middle * (1.0 + little), middle * (1.0 - little)]);
                }
            }
        }
    }
    let mut rng = SplitMix64::new(64);
    for _ in 0..2000 {
        let exponent = i32::try_from(rng.below(320)).unwrap() - 165;
        values.push((1.0 + f64::from(rng.real()).abs() + 2.0f64.powi(-45)) * 2.0f64.powi(exponent));
    }
    values.extend(values.clone().iter().map(|x| -x));
    values
}

/// Promise, results: f64 values that are on the device are rounded there to a plan's precision once, as on the host.
#[test]
fn f64_is_rounded_once() {
    let values = values();
    let nnz = values.len();
    let columns = (0..u32::try_from(nnz).unwrap()).collect();
    let a = Csr::try_from_parts(1, nnz, vec![0, nnz as u64], columns, values).unwrap();
    let narrower = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];
    for (turn, precision) in narrower.into_iter().enumerate() {
        for device in kernel_devices(turn) {
            // Checked, so that one kernel reads and cuts the matrix; or not, so that one reads it and others cut it.
            for checked in [false, true] {
                let stream = device.stream();
                let on_device = DeviceCsr::from_host(&device, &a).unwrap();
                let on_device = if checked { on_device.checked(&stream).unwrap() } else { on_device };
                let what = format!("{precision}, checked: {checked}, on {device}");
                let of_host = Spmm::builder(&a).precision(precision).algorithm(Algorithm::RowSplit);
                let want = of_host.build(&device).unwrap();
                let of_device = Spmm::builder(&on_device).precision(precision).algorithm(Algorithm::RowSplit);
                let got = of_device.build_on(&stream).unwrap();
                assert!(!got.report().preprocessing_reason.contains("copy"), "{what}: {}", got.report());
                assert!(device_arrays(&got).unwrap() == device_arrays(&want).unwrap(), "{what}");
                assert_eq!(got.overflowed_values(), want.overflowed_values(), "{what}");
            }
        }
    }
    report_missing_gpu("f64 values on the device", 2 * narrower.len());
}
