//! Dense products on the emulator, where a naive one stands for the library's: layouts, what finishes sums, values,
//! graphs, and which plans take them.

use half::{bf16, f16};
use windrow_formats::{NmPattern, VectorNm};

use super::PANEL;
use crate::internal::nm_arrays;
use crate::num::index;
use crate::{
    Activation, ActivationLayout, DenseRef, Device, DeviceBuffer, DeviceMatrix, DeviceVectorNm, Element,
    EmulatorSchedule, Epilogue, NmAlgorithm, NmError, NmOptions, NmSpmm, NmSpmmBuilder, NmSpmmPlan,
    Precision, Stream, prune_magnitude,
};

fn device() -> Device {
    Device::emulator_with_library(EmulatorSchedule::InOrder)
}

/// Small integers: sums of products with them are exact in any type.
fn numbers(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| (((i + seed) * 104_729 + i / 13) % 7) as f32 - 3.0).collect()
}

fn weights((k, n): (usize, usize), pattern: (usize, usize, usize)) -> VectorNm<f32> {
    let (keep, group, l) = pattern;
    prune_magnitude(&numbers(k * n, 3), k, n, NmPattern::new(keep, group, l).unwrap()).unwrap()
}

fn dense(weights: &VectorNm<f32>) -> NmSpmmBuilder<'_, VectorNm<f32>> {
    NmSpmm::builder(weights).algorithm(NmAlgorithm::Dense).rows(5)
}

/// What a run of a plan makes of a `C` that held numbers, rows 3 elements longer than they need be.
fn run_typed<E: Element<Sum = f32>, C: Element<Sum = f32>>(
    plan: &NmSpmmPlan,
    run: &Epilogue<'_, f32, [f32]>,
) -> Vec<f64> {
    let (device, m) = (plan.device(), 5);
    let (k, n) = plan.shape();
    let (rows, cols) = plan.layout().stored(m, k);
    let a: Vec<E> = numbers(rows * cols, 1).into_iter().map(E::from_f32).collect();
    let a = DeviceMatrix::upload(device, DenseRef::packed(&a, rows, cols).unwrap()).unwrap();
    let old: Vec<C> = numbers(m * (n + 3), 2).into_iter().map(C::from_f32).collect();
    let old = DeviceBuffer::from_slice(device, &old).unwrap();
    let mut c = DeviceMatrix::from_buffer(old, m, n, n + 3).unwrap();
    let bias = run.bias.map(|bias| DeviceBuffer::from_slice(device, bias).unwrap());
    plan.run_into(&run.with_bias(bias.as_ref()), &a, &mut c).unwrap();
    c.buffer().to_vec().unwrap().into_iter().map(|x| x.to_f64()).collect()
}

fn run<C: Element<Sum = f32>>(plan: &NmSpmmPlan, run: &Epilogue<'_, f32, [f32]>) -> Vec<f64> {
    match plan.precision() {
        Precision::F16 => run_typed::<f16, C>(plan, run),
        Precision::Bf16 => run_typed::<bf16, C>(plan, run),
        _ => run_typed::<f32, C>(plan, run),
    }
}

#[track_caller]
fn same(plan: &NmSpmmPlan, other: &NmSpmmPlan, bias: &[f32]) {
    let plain = Epilogue::default();
    let with_bias = Epilogue { bias: Some(bias), ..plain };
    for epilogue in [
        plain,
        Epilogue { alpha: 0.5, beta: -2.0, ..plain },
        Epilogue { alpha: 0.0, ..plain },
        with_bias,
        Epilogue { activation: Activation::Relu, beta: 1.0, ..with_bias },
        Epilogue { gated: true, ..plain },
    ] {
        let bits = |of: Vec<f64>| of.into_iter().map(|x| x + 0.0).collect::<Vec<_>>();
        let context = || format!("{epilogue:?}\n{}", plan.report());
        assert_eq!(bits(run::<f32>(plan, &epilogue)), bits(run::<f32>(other, &epilogue)), "{}", context());
        assert_eq!(bits(run::<f16>(plan, &epilogue)), bits(run::<f16>(other, &epilogue)), "{}", context());
        assert_eq!(bits(run::<bf16>(plan, &epilogue)), bits(run::<bf16>(other, &epilogue)), "{}", context());
    }
}

#[test]
fn dense_products_are_those_of_the_cpu() {
    let device = device();
    // Rows of A that are aligned, and such as are not; columns beyond a multiple of four.
    for (shape, pattern) in
        [((32, 72), (2, 4, 8)), ((21, 70), (1, 3, 32)), ((12, 5), (3, 4, 1)), ((0, 6), (1, 2, 1))]
    {
        let weights = weights(shape, pattern);
        for precision in [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16] {
            for layout in ActivationLayout::ALL {
                let builder = dense(&weights).precision(precision).layout(layout).scale(2.0);
                let plan = builder.build(&device).unwrap();
                let report = plan.report();
                assert_eq!((report.algorithm, report.block), (NmAlgorithm::Dense, None), "{report}");
                assert!(report.arrays.iter().any(|array| array.name == "library"), "{report}");
                let cpu = builder.algorithm(NmAlgorithm::Auto).build(&Device::cpu()).unwrap();
                same(&plan, &cpu, &numbers(shape.1, 9));
            }
        }
    }
}

#[test]
fn columns_beyond_a_panel_are_multiplied_apart() {
    let device = device();
    let weights = weights((4, index(u64::from(PANEL)) + 70), (1, 2, 8));
    let plan = dense(&weights).precision(Precision::F16).build(&device).unwrap();
    let cpu = NmSpmm::builder(&weights).precision(Precision::F16).build(&Device::cpu()).unwrap();
    let plain = Epilogue::default();
    assert_eq!(run::<f16>(&plan, &plain), run::<f16>(&cpu, &plain));
    let relu = Epilogue { activation: Activation::Relu, ..plain };
    assert_eq!(run::<f32>(&plan, &relu), run::<f32>(&cpu, &relu));
    let on_device = DeviceVectorNm::from_host(&device, &weights).unwrap();
    let options =
        NmOptions { algorithm: NmAlgorithm::Dense, precision: Precision::F16, ..NmOptions::default() };
    let other = NmSpmm::builder(&on_device).options(options).build_on(&device.stream()).unwrap();
    assert!(nm_arrays(&other).unwrap() == nm_arrays(&plan).unwrap());
}

#[test]
fn values_on_the_device_are_laid_out_and_replaced() {
    for (shape, pattern) in
        [((32, 72), (2, 4, 8)), ((21, 70), (1, 3, 32)), ((12, 200), (3, 4, 6)), ((8, 40), (1, 2, 40))]
    {
        let device = device();
        let before = weights(shape, pattern);
        let new: Vec<f32> = before.values().iter().map(|x| 1.0 - x).collect();
        let after = before.with_values(new.clone()).unwrap();
        for precision in [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16] {
            let options = NmOptions { algorithm: NmAlgorithm::Dense, precision, ..NmOptions::default() };
            let on_device = DeviceVectorNm::from_host(&device, &before).unwrap();
            let builder = NmSpmm::builder(&on_device).options(options.clone());
            let mut plan = builder.build_on(&device.stream()).unwrap();
            let of_host = |weights| NmSpmm::builder(weights).options(options.clone()).build(&device).unwrap();
            assert!(nm_arrays(&plan).unwrap() == nm_arrays(&of_host(&before)).unwrap(), "{precision}");
            let values = DeviceBuffer::from_slice(&device, &new).unwrap();
            plan.replace_values_on(&device.stream(), &values).unwrap();
            assert!(nm_arrays(&plan).unwrap() == nm_arrays(&of_host(&after)).unwrap(), "{precision}");
            assert_eq!(of_host(&before).replace_values_on(&device.stream(), &values), Err(NmError::NoPlaces));
        }
    }
}

#[test]
fn prepared_dense_products_are_captured() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator_with_library(schedule);
        let weights = weights((32, 72), (2, 4, 8));
        let plan = dense(&weights).precision(Precision::F16).build(&device).unwrap();
        let stream = Stream::new(&device).unwrap();
        plan.prepare_on(&stream, 5).unwrap();
        let upload = |seed| {
            let a: Vec<f16> = numbers(5 * 32, seed).into_iter().map(f16::from_f32).collect();
            DeviceMatrix::upload(&device, DenseRef::packed(&a, 5, 32).unwrap()).unwrap()
        };
        let bias = DeviceBuffer::from_slice(&device, &numbers(72, 9)).unwrap();
        let (mut a, mut c) = (upload(1), DeviceMatrix::<f32>::zeros(&device, 5, 72).unwrap());
        let mut fused = DeviceMatrix::<f16>::zeros(&device, 5, 72).unwrap();
        device.synchronize().unwrap();
        let queue = stream.queue().unwrap();
        queue.begin_capture();
        // SAFETY: the stream is waited for before anything is used otherwise.
        unsafe {
            let bias = bias.view().lent();
            let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
            plan.run_into_on(&stream, &run, a.view().lent(), fused.view_mut().lent()).unwrap();
            plan.run_into_on(&stream, &Epilogue::default(), a.view().lent(), c.view_mut().lent()).unwrap();
        }
        let graph = queue.end_capture();
        for seed in [1, 4] {
            let new = upload(seed).download().unwrap();
            a.copy_from(DenseRef::packed(&new, 5, 32).unwrap()).unwrap();
            graph().unwrap();
            stream.synchronize().unwrap();
            let mut want = DeviceMatrix::<f32>::zeros(&device, 5, 72).unwrap();
            plan.run_into(&Epilogue::default(), &a, &mut want).unwrap();
            assert_eq!(c.download().unwrap(), want.download().unwrap(), "{schedule:?}");
            let mut want = DeviceMatrix::<f16>::zeros(&device, 5, 72).unwrap();
            let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
            plan.run_into(&run, &a, &mut want).unwrap();
            assert_eq!(fused.download().unwrap(), want.download().unwrap(), "{schedule:?}");
        }
    }
}

#[test]
fn a_dense_product_takes_the_place_of_one_that_is_slower() {
    let device = device();
    // Hardly anything is dropped, in vectors that Tensor Cores have no kernel for.
    let weights = weights((64, 128), (7, 8, 1));
    let builder = NmSpmm::builder(&weights).precision(Precision::F16).rows(512);
    let sparse = builder.build(&device).unwrap();
    let (report, compared) = (sparse.report(), sparse.report().dense.unwrap());
    assert!(report.algorithm != NmAlgorithm::Dense && report.dense_refused.is_none(), "{report}");
    assert!(compared.is_quicker(), "{report}");
    let text = report.to_string();
    assert!(
        text.contains("a dense product would be quicker: about ") && text.contains("; see dense_fallback"),
        "{text}"
    );

    let plan = builder.clone().dense_fallback(true).build(&device).unwrap();
    let report = plan.report();
    assert_eq!((report.algorithm, report.dense), (NmAlgorithm::Dense, Some(compared)), "{report}");
    let reason = "a dense product by a library of the emulator's is quicker than a sparse one, by the model";
    assert_eq!((report.reason.as_str(), &report.dense_refused), (reason, &None));
    assert!(report.to_string().contains(" µs by the model, the sparse product "), "{report}");
    assert!(report.entries.is_empty(), "{report}");
    same(&plan, &builder.build(&Device::cpu()).unwrap(), &numbers(128, 9));

    // Room for the sparse product alone.
    let limit = sparse.report().device_bytes;
    let plan = builder.clone().dense_fallback(true).memory_limit(limit).build(&device).unwrap();
    let report = plan.report();
    assert_eq!((report.algorithm, report.device_bytes), (sparse.report().algorithm, limit), "{report}");
    assert!(report.dense_refused.as_ref().unwrap().contains("bytes"), "{report}");
    // All is tried; the emulator has no time, and the first stays.
    let plan = builder.clone().dense_fallback(true).autotune(true).build(&device).unwrap();
    let report = plan.report();
    assert!(report.tuned.iter().any(|(name, _)| name == "cublasGemmEx"), "{report}");
    assert_eq!(report.dense_refused.as_deref(), Some("the sparse product is quicker, as tried"));
    // A kernel that was asked for.
    let entry = sparse.report().entries.iter().find(|name| !name.contains("stage")).unwrap();
    let plan = builder.clone().dense_fallback(true).kernel(entry).build(&device).unwrap();
    assert_eq!(plan.report().dense_refused.as_deref(), Some("a kernel was asked for"));
    let error = dense(&weights).kernel(entry).build(&device).unwrap_err().to_string();
    assert!(error.contains("there are cublasGemmEx"), "{error}");
}

#[test]
fn one_that_is_quicker_stays() {
    let weights = weights((2048, 256), (1, 32, 32));
    let builder = NmSpmm::builder(&weights).precision(Precision::F16).rows(512).dense_fallback(true);
    let plan = builder.build(&device()).unwrap();
    let report = plan.report();
    assert!(report.algorithm != NmAlgorithm::Dense && !report.dense.unwrap().is_quicker(), "{report}");
    assert_eq!(report.dense_refused.as_deref(), Some("the sparse product is quicker by the model"));
    let text = report.to_string();
    assert!(
        text.contains("would take about ") && text.contains("no fallback    the sparse product"),
        "{text}"
    );
}
