//! New values that are on the device, for plans and for those of transposes, on every device.

use crate::common::{Setup, column_vectors, devices, report_missing_gpu};
use windrow::{
    Algorithm, Csr, Device, DeviceBuffer, EmulatorSchedule, FormatError, Permutation, PlanError, Precision,
    Schedule, Sddmm, SddmmForm, Spmm, SpmmError, TileValues,
};
use windrow_testkit::{Case, Operands, Pattern, SplitMix64, Values};

/// Plans with every part, and both forms of tiles.
fn setups() -> [Setup; 8] {
    let hybrid = Setup::new(Algorithm::Hybrid, Precision::F16);
    let by_vectors = hybrid.told(|o| o.partition = column_vectors(3));
    let tiles = |precision| Setup::new(Algorithm::TileStream, precision);
    [
        Setup::new(Algorithm::RowSplit, Precision::F32),
        Setup::new(Algorithm::ShortRows, Precision::Bf16),
        tiles(Precision::F16).told(|o| o.workers = Some(20)),
        tiles(Precision::Tf32).told(|o| o.tile_values = TileValues::Packed),
        hybrid,
        by_vectors,
        by_vectors.told(|o| o.schedule = Schedule::MultiStream),
        Setup { reversed: true, ..Setup::new(Algorithm::Hybrid, Precision::Tf32) },
    ]
}

fn case() -> Case {
    let mut rng = SplitMix64::new(0x7a11);
    let pattern = Pattern::from_lengths(90, [80, 2, 0, 30, 1, 1, 8, 70, 3, 12, 0, 5], &mut rng);
    let operands =
        Operands { n: 90, padding: 0, scalars: (1.0, 0.0), values: Values::Integers, poison: false };
    Case::from_pattern("values", &pattern, operands, &mut rng)
}

/// What a product with the identity must be: the matrix, its values rounded.
fn rounded(a: &Csr<f32>, precision: Precision) -> Vec<f32> {
    let mut dense = vec![0.0; a.rows() * a.cols()];
    for (r, (cols, values)) in a.rows_iter().enumerate() {
        for (&col, &value) in cols.iter().zip(values) {
            dense[r * a.cols() + col as usize] = match precision {
                Precision::F16 => half::f16::from_f32(value).to_f32(),
                Precision::Bf16 => half::bf16::from_f32(value).to_f32(),
                Precision::Tf32 => f32::from_bits((value.to_bits() + 0x1000) & !0x1fff),
                _ => value,
            };
        }
    }
    dense
}

fn identity(n: usize) -> Vec<f32> {
    (0..n * n).map(|i| if i % (n + 1) == 0 { 1.0 } else { 0.0 }).collect()
}

#[test]
fn values_on_the_device_go_to_their_places() {
    let case = case();
    let mut rng = SplitMix64::new(3);
    for device in devices() {
        for setup in setups() {
            let mut plan = setup.plan(&device, &case);
            for _ in 0..2 {
                let values: Vec<f32> = (0..case.a.nnz()).map(|_| rng.real()).collect();
                plan.replace_values_from(&DeviceBuffer::from_slice(&device, &values).unwrap()).unwrap();
                let want = rounded(&case.a.with_values(values).unwrap(), setup.options.precision);
                assert_eq!(plan.run(&identity(case.k())).unwrap(), want, "{plan:?}");
                assert_eq!(plan.overflowed_values().unwrap(), 0);
            }
        }
    }
    report_missing_gpu("new values on the device", 2 * setups().len());
}

#[test]
fn values_of_a_matrix_go_to_a_plan_of_its_transpose() {
    let case = case();
    let order = case.a.transpose_order().unwrap();
    let transposed = case.a.transpose().unwrap();
    let mut rng = SplitMix64::new(4);
    for device in devices() {
        for setup in setups() {
            let build = Spmm::builder(&transposed)
                .algorithm(setup.options.algorithm)
                .precision(setup.options.precision)
                .width(12);
            let mut plan = build.value_order(&order).build(&device).unwrap();
            let want = rounded(&transposed, setup.options.precision);
            assert_eq!(plan.run(&identity(transposed.cols())).unwrap(), want, "its own values, {plan:?}");
            for from_device in [true, false] {
                let values: Vec<f32> = (0..case.a.nnz()).map(|_| rng.real()).collect();
                match from_device {
                    true => plan.replace_values_from(&DeviceBuffer::from_slice(&device, &values).unwrap()),
                    false => plan.replace_values(&values),
                }
                .unwrap();
                let a = case.a.with_values(values).unwrap();
                let want = rounded(&a.transpose().unwrap(), setup.options.precision);
                assert_eq!(plan.run(&identity(transposed.cols())).unwrap(), want, "{plan:?}");
            }
        }
    }
    report_missing_gpu("new values of transposes", 2 * setups().len());
}

#[test]
fn overflow_is_counted_where_it_happens() {
    let a = Csr::try_from_parts(1, 4, vec![0, 4], vec![0, 1, 2, 3], vec![1.0f32; 4]).unwrap();
    for device in devices() {
        let mut plan = Spmm::builder(&a).precision(Precision::F16).width(1).build(&device).unwrap();
        let replace = |values: [f32; 4]| DeviceBuffer::from_slice(&device, &values).unwrap();
        plan.replace_values_from(&replace([1e5, 1.0, f32::INFINITY, -7e4])).unwrap();
        assert_eq!(plan.overflowed_values().unwrap(), 2, "on {device}");
        plan.replace_values_from(&replace([1.0, 2.0, f32::NAN, 4.0])).unwrap();
        assert_eq!(plan.overflowed_values().unwrap(), 0, "on {device}");
        plan.replace_values(&[1e5f32, 1e5, 1e5, 0.0]).unwrap();
        assert_eq!(
            (plan.overflowed_values().unwrap(), plan.report().overflowed_values),
            (3, 3),
            "on {device}"
        );
    }
    report_missing_gpu("overflow of values on the device", 3);
}

#[test]
fn sampled_products_are_scaled_by_values_on_the_device() {
    let a = Csr::from_dense(2, 3, &[1.0f32, 0.0, 1.0, 0.0, 1.0, 0.0]).unwrap();
    for device in devices() {
        let new = DeviceBuffer::from_slice(&device, &[2.0f32, 3.0, 4.0]).unwrap();
        for (form, want) in [(SddmmForm::Scale, [2.0, 9.0, 8.0]), (SddmmForm::Mask, [1.0, 3.0, 2.0])] {
            let mut plan = Sddmm::builder(&a).inner(1).form(form).build(&device).unwrap();
            plan.replace_values_from(&new).unwrap();
            assert_eq!(plan.run(&[1.0, 1.0], &[1.0, 2.0, 3.0]).unwrap(), want, "{form} on {device}");
            let short = DeviceBuffer::from_slice(&device, &[2.0f32]).unwrap();
            let error = PlanError::ValueCount { operand: "the new values", found: 1, expected: 3 };
            assert_eq!(plan.replace_values_from(&short), Err(error.into()));
        }
    }
    report_missing_gpu("new values of sampled products", 2);
}

#[test]
fn matrices_without_entries() {
    for device in devices() {
        for (m, k) in [(0, 0), (3, 0), (0, 3), (3, 2)] {
            let none = DeviceBuffer::<f32>::alloc_zeroed(&device, 0).unwrap();
            let a = Csr::<f32>::zeros(m, k).unwrap();
            for setup in setups() {
                let builder = Spmm::builder(&a)
                    .algorithm(setup.options.algorithm)
                    .precision(setup.options.precision)
                    .width(2);
                let mut plan = builder.values_from_device().build(&device).unwrap();
                plan.replace_values_from(&none).unwrap();
                assert_eq!(plan.run(&vec![1.0; 2 * k]).unwrap(), vec![0.0; 2 * m], "{plan:?}");
            }
        }
    }
    report_missing_gpu("no values", 4 * setups().len());
}

#[test]
fn what_does_not_fit_is_refused() {
    let a = Csr::<f32>::identity(40).unwrap();
    let other = Device::emulator(EmulatorSchedule::InOrder);
    let wrong_order = Permutation::identity(39).unwrap();
    for device in devices() {
        let build = Spmm::builder(&a).algorithm(Algorithm::TileStream).precision(Precision::F16).width(8);
        let refused = build.clone().value_order(&wrong_order).build(&device).unwrap_err();
        let (found, expected, why) = (39, 40, "one for each entry");
        let mismatch = FormatError::LengthMismatch { array: "the order of values", found, expected, why };
        assert_eq!(refused, SpmmError::Plan(PlanError::Format(mismatch)));
        let mut plan = build.clone().build(&device).unwrap();
        let short = DeviceBuffer::<f32>::alloc_zeroed(&device, 39).unwrap();
        let error =
            SpmmError::Plan(PlanError::ValueCount { operand: "the new values", found: 39, expected: 40 });
        assert_eq!(plan.replace_values_from(&short), Err(error));
        let elsewhere = DeviceBuffer::<f32>::alloc_zeroed(&other, 40).unwrap();
        assert!(matches!(
            plan.replace_values_from(&elsewhere),
            Err(SpmmError::Plan(PlanError::WrongDevice { .. }))
        ));
        if device.kind() == windrow::DeviceKind::Cpu {
            continue; // a plan of the CPU's needs no more for this
        }
        // Just enough for the plan: the limit holds for what the first replacement makes, and for the option.
        let needed = plan.report().device_bytes;
        let mut plan = build.clone().memory_limit(needed).build(&device).unwrap();
        let fits = DeviceBuffer::<f32>::alloc_zeroed(&device, 40).unwrap();
        let limited = |error| matches!(error, SpmmError::Plan(PlanError::MemoryLimit { needed: more, .. }) if more == needed + 164);
        assert!(limited(plan.replace_values_from(&fits).unwrap_err()));
        assert_eq!(plan.report().device_bytes, needed, "nothing was made");
        assert!(limited(build.memory_limit(needed).values_from_device().build(&device).unwrap_err()));
    }
    report_missing_gpu("refusals of values on the device", 1);
}
