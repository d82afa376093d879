//! What `Auto` predicts and takes: plans, and what is told without one, agree.

use windrow::{Algorithm, Csr, DeviceCsr, DeviceKind, Precision, Profile, Sddmm, SddmmAlgorithm, Spmm};
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
