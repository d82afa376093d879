//! Plans of N:M weights that are on the device: the arrays and the products of plans made of the same on the host.

use half::{bf16, f16};
use windrow::internal::nm_arrays;
use windrow::{
    ActivationLayout, Device, DeviceBuffer, DeviceKind, DeviceVectorNm, NmAddresses, NmAlgorithm, NmError,
    NmOptions, NmPattern, NmSpmm, NmSpmmPlan, PlanError, Precision, Stream, Value, VectorNm, prune_magnitude,
};

use crate::common::{devices, kernel_devices, report_missing_gpu};

/// Values that every type holds exactly, or with `reals` none.
fn weights((k, n): (usize, usize), pattern: NmPattern, reals: bool) -> VectorNm<f32> {
    let dense: Vec<f32> = (0..k * n)
        .map(|i| {
            let x = ((i * 104_729 + i / 13) % 201) as f32 - 100.0;
            if reals { x * 1.001_953_7e-2 + 1e-4 } else { x / 8.0 }
        })
        .collect();
    prune_magnitude(&dense, k, n, pattern).unwrap()
}

fn pattern(n: usize, m: usize, l: usize) -> NmPattern {
    NmPattern::new(n, m, l).unwrap()
}

/// Ragged groups and vectors, blocks and stages that are not full, one vector of all columns, nothing kept, no columns.
fn shapes() -> Vec<((usize, usize), NmPattern)> {
    vec![
        ((70, 130), pattern(2, 8, 32)),
        ((64, 128), pattern(4, 8, 16)),
        ((37, 41), pattern(1, 4, 8)),
        ((530, 72), pattern(3, 7, 4)),
        ((150, 300), pattern(2, 4, 512)),
        ((33, 9), pattern(1, 16, 1)),
        ((0, 40), pattern(2, 8, 32)),
        ((40, 0), pattern(2, 8, 32)),
    ]
}

fn typed<V: Value>(weights: &VectorNm<f32>) -> VectorNm<V> {
    weights.with_values(weights.values().iter().map(|&x| V::from_f32(x)).collect()).unwrap()
}

#[track_caller]
fn same(what: &str, got: &NmSpmmPlan, want: &NmSpmmPlan) {
    let (got_arrays, want_arrays) = (nm_arrays(got).unwrap(), nm_arrays(want).unwrap());
    for ((name, got), (_, want)) in got_arrays.iter().zip(&want_arrays) {
        assert_eq!(got.len(), want.len(), "bytes of {name}: {what}");
        let differs = want.iter().zip(got).position(|(want, got)| want != got);
        assert_eq!(differs, None, "first byte of {name} that differs: {what}");
    }
    assert_eq!(got_arrays.len(), want_arrays.len(), "{what}");
    let facts = |plan: &NmSpmmPlan| {
        let r = plan.report().clone();
        (r.algorithm, r.reason, r.packing, r.block, r.entries, r.overflowed_values, r.kept_rows)
    };
    assert_eq!(facts(got), facts(want), "{what}");
}

/// Compares plans of weights with values of a type; whether there is such a plan.
#[track_caller]
fn check<V: Value>(what: &str, device: &Device, weights: &VectorNm<V>, options: &NmOptions) -> bool {
    let Ok(want) = NmSpmm::builder(weights).options(options.clone()).build(device) else { return false };
    let on_device = DeviceVectorNm::from_host(device, weights).unwrap();
    let got = NmSpmm::builder(&on_device)
        .options(options.clone())
        .build_on(&device.stream())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    same(what, &got, &want);
    if device.kind() != DeviceKind::Cpu {
        let expected = format!("the indices, {} bytes", weights.indices().len());
        assert_eq!(got.report().copied, expected, "{what}");
    }
    let a: Vec<f32> = (0..3 * weights.rows()).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
    let run = |plan: &NmSpmmPlan| plan.run(&a).unwrap();
    assert_eq!(run(&got), run(&want), "{what}");
    true
}

/// Every instance for each precision, by turns under the schedules.
#[test]
fn the_arrays_are_those_of_the_host() {
    let names: Vec<&str> = windrow_kernels::ENTRIES
        .iter()
        .map(|entry| entry.name)
        .filter(|name| name.starts_with("nm_") && !name.starts_with("nm_stage"))
        .collect();
    let mut made = 0;
    for (turn, (shape, pattern)) in shapes().into_iter().enumerate() {
        let reals = weights(shape, pattern, true);
        for precision in [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16] {
            for (i, name) in names.iter().enumerate() {
                let options = NmOptions {
                    rows: 3,
                    precision,
                    kernel: Some((*name).to_owned()),
                    ..NmOptions::default()
                };
                for device in kernel_devices(turn + i) {
                    let what = format!("{name}, {precision}, {shape:?}, {pattern} on {device}");
                    made += usize::from(check(&what, &device, &reals, &options));
                }
            }
        }
    }
    assert!(made > 200, "{made} plans");
    report_missing_gpu("N:M weights on the device", made);
}

/// Under every schedule, and on the CPU: what the model chooses, of values of every type.
#[test]
fn values_of_any_type() {
    let (shape, pattern) = shapes().remove(0);
    let (reals, eighths) = (weights(shape, pattern, true), weights(shape, pattern, false));
    for device in devices() {
        for precision in [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16] {
            for algorithm in [NmAlgorithm::Auto, NmAlgorithm::CudaCores] {
                let options = NmOptions { rows: 3, precision, algorithm, ..NmOptions::default() };
                let what = format!("{algorithm}, {precision} on {device}");
                assert!(check(&what, &device, &reals, &options));
                assert!(check(&what, &device, &typed::<f16>(&eighths), &options));
                assert!(check(&what, &device, &typed::<bf16>(&reals), &options));
            }
        }
        // f64 values come by way of the host.
        let wide = typed::<f64>(&reals);
        let on_device = DeviceVectorNm::from_host(&device, &wide).unwrap();
        let mut plan = NmSpmm::builder(&on_device).build_on(&device.stream()).unwrap();
        assert!(plan.report().copied.starts_with("all: "), "{}", plan.report().copied);
        same("f64", &plan, &NmSpmm::builder(&wide).build(&device).unwrap());
        if device.kind() != DeviceKind::Cpu {
            let new = DeviceBuffer::from_slice(&device, reals.values()).unwrap();
            assert_eq!(plan.replace_values_on(&device.stream(), &new), Err(NmError::NoPlaces));
        }
    }
    report_missing_gpu("N:M weights of any type", 24);
}

/// New values, on a stream of their own, between products on others; and how many of them overflow.
#[test]
fn new_values_reach_their_places() {
    let (shape, pattern) = shapes().remove(0);
    let old = weights(shape, pattern, true);
    let mut values: Vec<f32> = old.values().iter().rev().map(|x| x * 1.25).collect();
    (values[3], values[77], values[200]) = (70_000.0, f32::INFINITY, -66_000.0);
    let new = old.with_values(values.clone()).unwrap();
    let a: Vec<f32> = (0..5 * shape.0).map(|i| ((i * 3) % 7) as f32 - 3.0).collect();
    for device in devices() {
        for (precision, algorithm, overflowed) in [
            (Precision::F16, NmAlgorithm::Auto, 2),
            (Precision::F16, NmAlgorithm::CudaCores, 2),
            (Precision::F32, NmAlgorithm::Auto, 0),
            (Precision::Bf16, NmAlgorithm::Auto, 0),
        ] {
            let options = NmOptions { rows: 5, precision, algorithm, ..NmOptions::default() };
            let want = NmSpmm::builder(&new).options(options.clone()).build(&device).unwrap();
            let given = DeviceBuffer::from_slice(&device, &values).unwrap();
            let on_device = DeviceVectorNm::from_host(&device, &old).unwrap();
            let mut got =
                NmSpmm::builder(&on_device).options(options.clone()).build_on(&device.stream()).unwrap();
            assert_eq!(got.overflowed_values(), Ok(0));
            let before = got.run(&a).unwrap();
            let stream = Stream::new(&device).unwrap_or_else(|_| device.stream());
            got.replace_values_on(&stream, &given).unwrap();
            assert_eq!(got.overflowed_values(), Ok(overflowed), "{precision} on {device}");
            let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let (after, expected) = (got.run(&a).unwrap(), want.run(&a).unwrap());
            let alike = after.iter().zip(&expected).all(|(x, y)| x == y || x.is_nan() && y.is_nan());
            assert!(alike, "{precision} on {device}");
            let (got_arrays, want_arrays) = (nm_arrays(&got).unwrap(), nm_arrays(&want).unwrap());
            assert!(got_arrays == want_arrays, "{precision} on {device}");
            // The old ones once more, from halves that hold them: bf16 of bf16.
            if precision == Precision::Bf16 {
                let halves: Vec<bf16> = old.values().iter().map(|&x| bf16::from_f32(x)).collect();
                let halves = DeviceBuffer::from_slice(&device, &halves).unwrap();
                got.replace_values_on(&stream, &halves).unwrap();
                assert_eq!(bits(got.run(&a).unwrap()), bits(before), "on {device}");
            }
        }
    }
    report_missing_gpu("new values of N:M weights", 4);
}

#[test]
fn what_is_wrong_is_told() {
    let (shape, pattern) = ((70, 130), pattern(2, 8, 32));
    let weights = weights(shape, pattern, false);
    let (k, n) = shape;
    for device in devices() {
        let stream = device.stream();
        let buffer = |indices: &[u8]| DeviceBuffer::from_slice(&device, indices).unwrap();
        let values = DeviceBuffer::from_slice(&device, weights.values()).unwrap();
        let of = |indices: &[u8]| {
            let indices = buffer(indices);
            let weights = DeviceVectorNm::new(k, n, pattern, &values, &indices).unwrap();
            let built = NmSpmm::builder(&weights).build_on(&stream).map(|_| ()).unwrap_err();
            let checked = weights.checked(&stream).map(|_| ()).unwrap_err();
            assert_eq!(built.to_string(), checked.to_string());
            checked.to_string()
        };
        let q = weights.vectors();
        let mut indices = weights.indices().to_vec();
        (indices[7 * q + 3], indices[9 * q + 1]) = (8, 200);
        let error = of(&indices);
        assert!(
            error.starts_with("kept row 7, vector 3: index 8 is not below the 8 rows of group 3"),
            "{error}"
        );
        let mut indices = weights.indices().to_vec();
        indices[5 * q + 2] = indices[4 * q + 2];
        let error = of(&indices);
        assert!(error.starts_with("kept row 5, vector 2: index"), "{error}");

        let indices = buffer(weights.indices());
        let lengths =
            [(k + 8, n, "values"), (k, n + 32, "values"), (k - 8, n, "values"), (k, n - 2, "values")];
        for (k, n, array) in lengths {
            let error = DeviceVectorNm::new(k, n, pattern, &values, &indices).unwrap_err().to_string();
            assert!(error.contains(array), "{error}");
        }
        let short = buffer(&weights.indices()[1..]);
        let error = DeviceVectorNm::new(k, n, pattern, &values, &short).unwrap_err().to_string();
        assert!(error.contains("indices"), "{error}");
        assert!(DeviceVectorNm::new(1 << 32, n, pattern, &values, &indices).is_err());

        let on_device = DeviceVectorNm::new(k, n, pattern, &values, &indices).unwrap();
        assert_eq!(on_device.to_host(&stream).unwrap(), weights);
        let other = Device::cpu();
        if device.kind() != DeviceKind::Cpu {
            let error = NmSpmm::builder(&on_device).build_on(&other.stream()).unwrap_err();
            assert!(matches!(error, NmError::Plan(PlanError::WrongDevice { .. })), "{error}");
        }
        let mut plan = NmSpmm::builder(&on_device).build_on(&stream).unwrap();
        let few = DeviceBuffer::from_slice(&device, &[1.0f32; 5]).unwrap();
        let error = plan.replace_values_on(&stream, &few).unwrap_err();
        assert!(matches!(error, NmError::Plan(PlanError::ValueCount { .. })), "{error}");
        if device.kind() != DeviceKind::Cpu {
            let wide = DeviceBuffer::from_slice(&device, &vec![1.0f64; weights.kept()]).unwrap();
            let error = plan.replace_values_on(&stream, &wide).unwrap_err();
            assert!(matches!(error, NmError::Plan(PlanError::ElementType { .. })), "{error}");
        }
        let mut plan = NmSpmm::builder(&weights).build(&device).unwrap();
        assert_eq!(plan.replace_values_on(&stream, &values), Err(NmError::NoPlaces));
    }
    report_missing_gpu("wrong N:M weights", 8);
}

/// Arrays of somebody else, of which nothing is read beyond the ends, written by another stream before.
#[test]
fn arrays_of_somebody_else() {
    let (shape, pattern) = shapes().remove(2);
    let weights = weights(shape, pattern, true);
    for device in devices() {
        let values = DeviceBuffer::from_slice(&device, weights.values()).unwrap();
        let indices = DeviceBuffer::from_slice(&device, weights.indices()).unwrap();
        let addresses = NmAddresses { values: values.address(), indices: indices.address() };
        // SAFETY: the buffers have as many elements, live until the end of the turn and are not written.
        let lent = unsafe { DeviceVectorNm::<f32>::from_raw(&device, shape, pattern, addresses).unwrap() };
        let lent = lent.checked(&device.stream()).unwrap();
        for layout in [ActivationLayout::RowMajor, ActivationLayout::KMajor] {
            let plan = NmSpmm::builder(&lent).layout(layout).build_on(&device.stream()).unwrap();
            same("lent", &plan, &NmSpmm::builder(&weights).layout(layout).build(&device).unwrap());
        }
    }
    report_missing_gpu("N:M weights of somebody else", 2);
}
