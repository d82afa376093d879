//! What `Auto` predicts and takes: plans, and what is told without one, agree.

use windrow::{
    Algorithm, Csr, Device, DeviceCsr, DeviceKind, EmulatorSchedule, Error, Fault, Precision, Profile, Sddmm,
    SddmmAlgorithm, SddmmPlan, Spmm, SpmmPlan,
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
                    assert_eq!(there.weighed, told.candidates, "{what}");
                    assert_eq!(
                        (there.algorithm, there.precision),
                        (told.algorithm, told.precision),
                        "{what}"
                    );
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
                    assert_eq!(there.weighed, told.candidates, "{what}");
                    assert_eq!(
                        (there.algorithm, there.precision),
                        (told.algorithm, told.precision),
                        "{what}"
                    );
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
                    let was_timed = report.reason.starts_with(TIMED);
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
                    timed += u32::from(plan.report().reason.starts_with(TIMED));
                    close(&plan.run(&x, &y).unwrap(), &expected);
                }
            }
        }
        assert_eq!(timed == 0, device.kind() == DeviceKind::Cpu, "{device}: {timed} plans were timed");
    }
}

/// Builds of SpMM and SDDMM on a device, with what they are told more, that give the reasons of their plans.
type Build = fn(&Device, &Csr<f32>) -> Result<String, Error>;

const TIMED: &str = "timed to be quickest: ";

/// Plans of both families whose two best paths are timed.
const TRIALS: [(&str, Build); 2] = [
    ("SpMM", |device, a| {
        let builder = Spmm::builder(a).width(16).precision(Precision::Tf32).autotune(true);
        Ok(builder.build(device)?.report().reason.clone())
    }),
    ("SDDMM", |device, a| {
        let builder = Sddmm::builder(a).inner(16).precision(Precision::Tf32).autotune(true);
        Ok(builder.build(device)?.report().reason.clone())
    }),
];

/// Want of memory leaves a trial out, and the reason says so; any other call that fails, fails the build.
#[test]
fn errors_of_trials_are_errors_of_builds() {
    let a = Pattern::random(24, 16, 4, &mut SplitMix64::new(3))
        .with_values(Values::Reals, &mut SplitMix64::new(4));
    for (family, build) in TRIALS {
        let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
        let before = faults.calls();
        let reason = build(&device, &a).unwrap();
        assert!(reason.starts_with(TIMED), "{family}: {reason}");
        let (mut left_out, mut failed) = (0, 0);
        for at in 0..faults.calls() - before {
            faults.plan(at, Fault::Refused);
            let outcome = build(&device, &a);
            let call = faults.clear()[0];
            let what = format!("{family}: call {at} ({call}): {outcome:?}");
            match outcome {
                Ok(reason) if call == "alloc" => {
                    assert!(reason.contains("; not timed, for want of room: "), "{what}");
                    assert!(reason.contains(" bytes for "), "{what}");
                    left_out += 1;
                }
                Ok(_) => panic!("{what}: a fault that nobody hears of"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(call != "alloc" && told.contains("a fault that was asked for"), "{what}");
                    failed += 1;
                }
            }
        }
        assert!(left_out > 5 && failed > 5, "{family}: {left_out} trials left out, {failed} builds failed");
        assert_eq!(faults.allocated(), (0, 0), "{family}");
    }
}

/// Where a trial was asked for and is not made, the reason for the plan says why.
#[test]
fn a_trial_that_is_not_made_is_told() {
    let a = Pattern::random(24, 16, 4, &mut SplitMix64::new(3))
        .with_values(Values::Reals, &mut SplitMix64::new(4));
    let emulator = Device::emulator(EmulatorSchedule::InOrder);
    let uploaded = of_i64(&emulator, &a);
    let on_device: DeviceCsr<'_, f32> = uploaded.matrix();
    let spmm = Spmm::builder(&a).width(16).precision(Precision::Tf32).autotune(true);
    let there = Spmm::builder(&on_device).width(16).precision(Precision::Tf32).autotune(true);
    let sddmm = Sddmm::builder(&a).inner(16).precision(Precision::Tf32).autotune(true);
    let sddmm_there = Sddmm::builder(&on_device).inner(16).precision(Precision::Tf32).autotune(true);
    let of_spmm = |plan: SpmmPlan| plan.report().reason.clone();
    let of_sddmm = |plan: SddmmPlan| plan.report().reason.clone();
    let on = emulator.stream();
    let (limited, alone) = ("; not timed: there is a memory limit", "; not timed: no other path was weighed");
    let counted = "; not timed: the runs to expect are given";
    let no_columns = "; not timed: products of 0 columns take no time";
    let hybrid = spmm.clone().algorithm(Algorithm::Hybrid);
    let entries = sddmm.clone().algorithm(SddmmAlgorithm::Entries);
    for (reason, why) in [
        (of_spmm(spmm.clone().memory_limit(1 << 30).build(&emulator).unwrap()), limited),
        (of_spmm(there.clone().memory_limit(1 << 30).build_on(&on).unwrap()), limited),
        (of_sddmm(sddmm.clone().memory_limit(1 << 30).build(&emulator).unwrap()), limited),
        (of_sddmm(sddmm_there.clone().memory_limit(1 << 30).build_on(&on).unwrap()), limited),
        (of_spmm(spmm.clone().expected_runs(1 << 20).build(&emulator).unwrap()), counted),
        (of_spmm(there.clone().expected_runs(1).build_on(&on).unwrap()), counted),
        (of_spmm(spmm.clone().width(0).build(&emulator).unwrap()), no_columns),
        (of_sddmm(sddmm.clone().inner(0).build(&emulator).unwrap()), no_columns),
        (of_spmm(hybrid.build(&emulator).unwrap()), alone),
        (of_sddmm(entries.build(&emulator).unwrap()), alone),
        (of_spmm(spmm.build(&Device::cpu()).unwrap()), alone),
        (of_sddmm(sddmm.build(&Device::cpu()).unwrap()), alone),
    ] {
        let said = reason.strip_suffix(why);
        assert!(said.is_some_and(|said| !said.is_empty() && !said.contains("timed")), "{why}: {reason}");
    }
    let unasked = spmm.clone().autotune(false).memory_limit(1 << 30).build(&emulator).unwrap();
    assert!(!of_spmm(unasked).contains("timed"));
}
