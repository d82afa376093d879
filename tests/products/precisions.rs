//! What is particular to a precision: which numbers are multiplied, and that each of its kernels ran.

use std::collections::BTreeSet;

use crate::common::{Layout, Setup, devices, report_missing_gpu, run_case};
use half::bf16;
use windrow::internal::{Dtype, ENTRIES, Variant};
use windrow::{Algorithm, Csr, DenseRef, Device, DeviceMatrix, EmulatorSchedule, Precision, Spmm};
use windrow_testkit::{Case, Operands, Pattern, SplitMix64, Tally, Values, round_tf32};

const CUDA_CORES: [Algorithm; 2] = [Algorithm::RowSplit, Algorithm::ShortRows];

fn case(lengths: Vec<usize>, n: usize, rng: &mut SplitMix64) -> Case {
    let pattern = Pattern::from_lengths(300, lengths, rng);
    let operands = Operands { n, padding: 1, scalars: (1.0, 0.0), values: Values::Reals, poison: true };
    Case::from_pattern("entries", &pattern, operands, rng)
}

/// Widths and row lengths that bring every entry of two precisions into use, by the plan's own choice.
#[test]
fn every_entry_of_bf16_and_tf32_runs() {
    let mut rng = SplitMix64::new(0xbf16);
    let mut ran = BTreeSet::new();
    let mut tally = Tally::new("entries of bf16 and tf32");
    for precision in [Precision::Bf16, Precision::Tf32] {
        for algorithm in CUDA_CORES {
            for (len, n) in [(2, 32), (2, 64), (2, 128), (2, 256), (40, 32), (40, 64), (40, 128), (3, 20)] {
                let case = case(vec![len; 23], n, &mut rng);
                for device in devices() {
                    let setup = Setup::new(algorithm, precision);
                    ran.extend(setup.plan(&device, &case).report().entries.iter().copied());
                    tally.ran(&run_case(setup, &device, &case, Layout::Aligned));
                    // Rows at any alignment: the entry that reads element by element.
                    assert!(!case.ldb.is_multiple_of(4));
                    tally.ran(&run_case(setup, &device, &case, Layout::AsGiven));
                }
            }
        }
    }
    tally.finish();
    for entry in ENTRIES {
        let (Variant::RowSplit { dtype, vectors, .. } | Variant::ShortRows { dtype, vectors, .. }) =
            entry.variant
        else {
            continue;
        };
        if vectors && matches!(dtype, Dtype::Bf16 | Dtype::Tf32) {
            assert!(ran.contains(entry.name), "{} did not run: {ran:?}", entry.name);
        }
    }
}

/// `1·b` and `a·1` show what became of each operand.
#[test]
fn operands_are_rounded_as_the_precision_says() {
    let place = 2f32.powi(-10);
    let data = [
        1.0 + 0.5 * place,
        -1.0 - 0.5 * place,
        1.0 + 1.5 * place,
        1.0 + 0.499 * place,
        1.0 + 4.0 * place,
        1.0 + 12.0 * place,
        70_000.0,
        -3e38,
        1e-39,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let to_bf16 = |x: f32| bf16::from_f32(x).to_f32();
    let n = data.len();
    let same = |x: &[f32], y: &[f32]| x.iter().zip(y).all(|(x, y)| x == y || (x.is_nan() && y.is_nan()));
    for device in devices() {
        for (precision, round) in
            [(Precision::Tf32, round_tf32 as fn(f32) -> f32), (Precision::Bf16, to_bf16)]
        {
            let want: Vec<f32> = data.iter().copied().map(round).collect();
            for algorithm in CUDA_CORES {
                let build = |a: &Csr<f32>| {
                    Spmm::builder(a).precision(precision).algorithm(algorithm).build(&device).unwrap()
                };
                let what = format!("{algorithm} {precision} on {device}");
                let b = build(&Csr::identity(1).unwrap()).run(&data).unwrap();
                assert!(same(&b, &want), "B, {what}: {b:?}");
                let column = Csr::from_dense(n, 1, &data).unwrap();
                let a = build(&column).run(&[1.0]).unwrap();
                assert!(same(&a, &want), "A, {what}: {a:?}");
                // The values of another type are rounded once, not by way of f32.
                let mut plan = build(&Csr::identity(1).unwrap());
                let below_tie = 1.0 + f64::from(place) / 2.0 - 2f64.powi(-40);
                plan.replace_values(&[below_tie]).unwrap();
                assert_eq!(plan.run(&[1.0]).unwrap(), [1.0], "{what}");
            }
        }
    }
    report_missing_gpu("rounded operands", 12);
}

/// The element types of `B` in device memory, and the kernels' agreement with the CPU bit for bit where a row has one
/// entry: one product of two rounded numbers and one rounding.
#[test]
fn one_product_is_the_same_everywhere() {
    let mut rng = SplitMix64::new(0x7f32);
    let n = 37;
    let a = Pattern::diagonal(50, 50).with_values(Values::Reals, &mut rng);
    let b: Vec<f32> = (0..50 * n).map(|_| rng.real()).collect();
    for precision in Precision::ALL {
        let run = |device: &Device, algorithm| {
            let plan =
                Spmm::builder(&a).precision(precision).algorithm(algorithm).width(n).build(device).unwrap();
            plan.run(&b).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let want = run(&Device::cpu(), Algorithm::Auto);
        for device in devices() {
            for algorithm in CUDA_CORES {
                assert_eq!(run(&device, algorithm), want, "{algorithm} {precision} on {device}");
            }
        }
    }
    report_missing_gpu("one product", 8);
}

#[test]
fn bf16_matrices_live_on_devices() {
    for device in [Device::cpu(), Device::emulator(EmulatorSchedule::InOrder)] {
        let data: Vec<bf16> = (0i8..15).map(|i| bf16::from_f32(f32::from(i))).collect();
        let b = DeviceMatrix::upload(&device, DenseRef::packed(&data, 3, 5).unwrap()).unwrap();
        assert_eq!((b.ld(), b.download().unwrap()), (8, data));
        let plan = Spmm::builder(&Csr::<f64>::identity(3).unwrap())
            .precision(Precision::Bf16)
            .algorithm(windrow::Algorithm::TileStream)
            .build(&device)
            .unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, 3, 5).unwrap();
        plan.run_into(2.0, &b, 0.0, &mut c).unwrap();
        let want: Vec<f32> = (0i8..15).map(|i| 2.0 * f32::from(i)).collect();
        assert_eq!(c.download().unwrap(), want);
        let tiles = plan.report().algorithm == windrow::Algorithm::TileStream;
        assert_eq!(tiles, device.kind() != windrow::DeviceKind::Cpu);
    }
}
