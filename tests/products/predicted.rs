//! What `Auto` predicts and takes: plans, and what is told without one, agree.

use windrow::{
    Algorithm, Csr, Device, DeviceCsr, DeviceKind, Precision, Profile, Sddmm, SddmmAlgorithm, Spmm,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::devices;
use crate::device_csr::of_i64;

/// Short rows, long ones, unlike ones, shared columns, hardly any entries.
fn matrices() -> Vec<(&'static str, Csr<f32>)> {
    let mut rng = SplitMix64::new(0xc40f);
    let mut patterns = vec![
        ("diagonal", Pattern::diagonal(200, 200)),
        ("short", Pattern::random(300, 150, 4, &mut rng)),
        ("long", Pattern::random(24, 400, 180, &mut rng)),
        ("empty", Pattern::random(9, 9, 0, &mut rng)),
    ];
    patterns.push(("wide", Pattern::random(16, 5000, 60, &mut rng)));
    patterns.into_iter().map(|(name, pattern)| (name, pattern.with_values(Values::Reals, &mut rng))).collect()
}

/// The decision that is told without a GPU is the one that plans make, of matrices on the host and on the device.
#[test]
fn what_is_told_is_what_plans_take() {
    for device in devices().into_iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        let profile = Profile::built_in(&device);
        let mut in_f32 = 0;
        for (name, a) in matrices() {
            let uploaded = of_i64(&device, &a);
            let on_device: DeviceCsr<'_, f32> = uploaded.matrix();
            for precision in Precision::ALL {
                for width in [1, 4, 16, 32, 128] {
                    let what = format!("{name} in {precision} at {width} on {device}");
                    let builder = Spmm::builder(&a).width(width).precision(precision);
                    let told = builder.weigh(&profile).unwrap();
                    let report = builder.build(&device).unwrap().report().clone();
                    assert_eq!(
                        (report.algorithm, report.precision),
                        (told.algorithm, told.precision),
                        "{what}"
                    );
                    assert_eq!((&report.reason, &report.weighed), (&told.reason, &told.candidates), "{what}");
                    assert_eq!((report.requested, report.requested_precision), (Algorithm::Auto, precision));
                    let there = Spmm::builder(&on_device).width(width).precision(precision);
                    let there = there.build_on(&device.stream()).unwrap().report().clone();
                    assert_eq!(
                        (there.algorithm, there.precision),
                        (told.algorithm, told.precision),
                        "{what}"
                    );
                    assert_eq!(there.weighed, told.candidates, "{what}");
                    in_f32 += u32::from(precision == Precision::Tf32 && told.precision == Precision::F32);

                    let builder = Sddmm::builder(&a).inner(width).precision(precision);
                    let told = builder.weigh(&profile).unwrap();
                    let report = builder.build(&device).unwrap().report().clone();
                    assert_eq!(
                        (report.algorithm, report.precision),
                        (told.algorithm, told.precision),
                        "{what}"
                    );
                    assert_eq!((&report.reason, &report.weighed), (&told.reason, &told.candidates), "{what}");
                    assert_eq!(
                        (report.requested, report.requested_precision),
                        (SddmmAlgorithm::Auto, precision)
                    );
                    let there = Sddmm::builder(&on_device).inner(width).precision(precision);
                    let there = there.build_on(&device.stream()).unwrap().report().clone();
                    assert_eq!(
                        (there.algorithm, there.precision),
                        (told.algorithm, told.precision),
                        "{what}"
                    );
                    assert_eq!(there.weighed, told.candidates, "{what}");
                }
            }
        }
        assert!(in_f32 > 0, "f32 serves tf32 somewhere");
    }
}

/// The two best are timed where that was asked for, one of them is kept, and what it computes is right.
#[test]
fn plans_that_are_timed_are_right() {
    let cpu = Device::cpu();
    for device in devices() {
        let mut timed = 0;
        for (name, a) in matrices() {
            let uploaded = of_i64(&device, &a);
            let on_device: DeviceCsr<'_, f32> = uploaded.matrix();
            let dense = |rows: usize, cols: usize| -> Vec<f32> {
                (0..rows * cols).map(|at| (at % 7) as f32 - 3.0).collect()
            };
            for precision in [Precision::F16, Precision::F32, Precision::Tf32] {
                let what = format!("{name} in {precision} on {device}");
                let close = |found: &[f32], expected: &[f32]| {
                    let all = found
                        .iter()
                        .zip(expected)
                        .all(|(x, y)| (x - y).abs() <= 0.02 * (1.0 + y.abs()) + 0.3);
                    assert!(found.len() == expected.len() && all, "{what}");
                };
                let b = dense(a.cols(), 16);
                let expected = Spmm::builder(&a).width(16).build(&cpu).unwrap().run(&b).unwrap();
                let builder = Spmm::builder(&a).width(16).precision(precision).autotune(true);
                let there = Spmm::builder(&on_device).width(16).precision(precision).autotune(true);
                let told = builder.weigh(&Profile::built_in(&device)).unwrap();
                for plan in [builder.build(&device).unwrap(), there.build_on(&device.stream()).unwrap()] {
                    let report = plan.report();
                    let was_timed = report.reason.starts_with("timed to be quickest: ");
                    timed += u32::from(was_timed);
                    let weighed = told.candidates.iter().take(2).map(|of| of.algorithm.clone());
                    assert!(
                        !was_timed || weighed.into_iter().any(|of| of == report.algorithm.to_string()),
                        "{what}: {}",
                        report.reason
                    );
                    assert_eq!((report.requested, report.requested_precision), (Algorithm::Auto, precision));
                    close(&plan.run(&b).unwrap(), &expected);
                }
                for not in [builder.clone().memory_limit(1 << 30), builder.clone().expected_runs(1 << 20)] {
                    let reason = not.build(&device).unwrap().report().reason.clone();
                    assert!(!reason.starts_with("timed"), "{what}: {reason}");
                }

                let (x, y) = (dense(a.rows(), 16), dense(a.cols(), 16));
                let expected = Sddmm::builder(&a).inner(16).build(&cpu).unwrap().run(&x, &y).unwrap();
                let builder = Sddmm::builder(&a).inner(16).precision(precision).autotune(true);
                let there = Sddmm::builder(&on_device).inner(16).precision(precision).autotune(true);
                for plan in [builder.build(&device).unwrap(), there.build_on(&device.stream()).unwrap()] {
                    timed += u32::from(plan.report().reason.starts_with("timed to be quickest: "));
                    close(&plan.run(&x, &y).unwrap(), &expected);
                }
            }
        }
        assert_eq!(timed == 0, device.kind() == DeviceKind::Cpu, "{device}: {timed} plans were timed");
    }
}
