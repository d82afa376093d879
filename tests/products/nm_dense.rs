//! Products with N:M weights as dense ones by cuBLAS, on GPUs where it is; and what becomes of them elsewhere.

use cudarc::driver::{result, sys};
use half::f16;
use windrow::interop::cuda_handles;
use windrow::{
    Activation, ActivationLayout, DenseRef, Device, DeviceBuffer, DeviceMatrix, DeviceVectorNm,
    EmulatorSchedule, Epilogue, NmAlgorithm, NmError, NmOptions, NmSpmm, NmSpmmPlan, Precision, Stream,
    VectorNm, prune_magnitude,
};
use windrow_testkit::{NmCase, Tally, nm_edge_cases, nm_value_cases};

use crate::common::{gpu, report_missing_gpu};
use crate::nm_case::{integers, pattern};
use crate::nm_spmm::{layout, precisions, run};

/// Weights of which hardly anything is dropped, in vectors that Tensor Cores have no kernel for: dense products are
/// quicker.
fn hardly_pruned(k: usize, n: usize) -> VectorNm<f32> {
    prune_magnitude(&integers(k * n, 5, 4), k, n, pattern(7, 8, 1)).unwrap()
}

/// The GPU, if there is one with cuBLAS; counts what does not run for want of either.
fn gpu_with_cublas(what: &str, cases: usize) -> Option<Device> {
    let Some(device) = gpu() else {
        report_missing_gpu(what, cases);
        return None;
    };
    let weights = hardly_pruned(8, 8);
    match NmSpmm::builder(&weights).algorithm(NmAlgorithm::Dense).build(&device) {
        Ok(_) => Some(device),
        Err(NmError::NoLibrary { reason }) => {
            windrow_testkit::announce_skip(what, cases, &format!("no cuBLAS: {reason}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn without_cublas_the_product_stays_sparse() {
    let weights = hardly_pruned(64, 128);
    for (device, missing) in [
        (Device::cpu(), "it multiplies on CUDA devices, and the plan is for the CPU"),
        (Device::emulator(EmulatorSchedule::InOrder), "cuBLAS is for CUDA devices alone"),
    ] {
        for precision in precisions() {
            let builder = NmSpmm::builder(&weights).precision(precision).rows(512);
            let [plan, sparse] =
                [true, false].map(|allowed| builder.clone().dense_fallback(allowed).build(&device));
            let (plan, sparse) = (plan.unwrap(), sparse.unwrap());
            let report = plan.report();
            let refused = report.dense_refused.as_ref().unwrap();
            assert!(refused.ends_with(missing), "{report}");
            assert!(report.to_string().contains(&format!("no fallback    {refused}")), "{report}");
            assert_eq!(report.algorithm, sparse.report().algorithm);
            assert_eq!(report.dense, sparse.report().dense);
            assert_eq!(sparse.report().dense_refused, None);
            let a = integers(3 * 64, 1, 3);
            assert_eq!(plan.run(&a), sparse.run(&a));
            let error = builder.algorithm(NmAlgorithm::Dense).build(&device).unwrap_err();
            assert!(error.to_string().starts_with("a dense product needs cuBLAS: "), "{error}");
            assert!(error.to_string().contains(missing), "{error}");
        }
    }
}

/// The case with zeros for what is not finite, all of it in columns that nothing keeps: 0·∞ is not a number.
fn finite(mut case: NmCase) -> NmCase {
    case.a.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
    case
}

/// Every precision, layout and epilogue, with any extents and leading dimensions, against the f64 reference.
#[test]
fn dense_products_are_those_of_the_reference() {
    let cases: Vec<NmCase> = nm_edge_cases().into_iter().chain(nm_value_cases()).map(finite).collect();
    let Some(device) = gpu_with_cublas("dense products with N:M weights", 4 * cases.len()) else { return };
    for precision in precisions() {
        let mut tally = Tally::new(format!("dense products with N:M weights, {precision}, on {device}"));
        for (at, case) in cases.iter().enumerate() {
            let builder = NmSpmm::builder(&case.weights).rows(case.m).precision(precision);
            let builder = builder.layout(layout(case)).scale(case.scale).algorithm(NmAlgorithm::Dense);
            let plan = builder.build(&device).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert_eq!(plan.report().algorithm, NmAlgorithm::Dense);
            tally.ran(&run(&plan, case, at));
        }
        tally.finish();
    }
}

#[test]
fn dense_products_take_the_place_of_slower_ones() {
    let Some(device) = gpu_with_cublas("dense products in the place of sparse ones", 5) else { return };
    let weights = hardly_pruned(1024, 1024);
    let a = integers(200 * 1024, 1, 2);
    for precision in precisions() {
        let builder = NmSpmm::builder(&weights).precision(precision).rows(200);
        let sparse = builder.build(&device).unwrap();
        let plan = builder.clone().dense_fallback(true).build(&device).unwrap();
        let (report, was) = (plan.report(), sparse.report());
        let quicker = was.dense.unwrap().is_quicker();
        assert_eq!(quicker, report.algorithm == NmAlgorithm::Dense, "{report}\n{was}");
        assert!(quicker || precision == Precision::F32, "{was}");
        assert_eq!(plan.run(&a).unwrap(), sparse.run(&a).unwrap(), "{report}");
        assert!(report.dense_refused.is_some() || report.reason.contains("cuBLAS "), "{report}");
    }
    let builder = NmSpmm::builder(&weights).precision(Precision::F16).rows(200).dense_fallback(true);
    let plan = builder.autotune(true).build(&device).unwrap();
    let report = plan.report();
    assert!(report.tuned.iter().any(|(name, _)| name == "cublasGemmEx"), "{report}");
    let best = report.tuned.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!(best.0 == "cublasGemmEx", report.algorithm == NmAlgorithm::Dense, "{report}");
}

#[test]
fn values_of_dense_plans_are_replaced() {
    let Some(device) = gpu_with_cublas("new values of dense plans", 4) else { return };
    for (k, n, kept) in [(200, 300, (2, 4, 32)), (64, 70_000, (7, 8, 1))] {
        let (keep, group, l) = kept;
        let before = prune_magnitude(&integers(k * n, 5, 4), k, n, pattern(keep, group, l)).unwrap();
        let new: Vec<f32> = before.values().iter().map(|x| 1.0 - x).collect();
        let after = before.with_values(new.clone()).unwrap();
        let a = integers(9 * k, 1, 2);
        for precision in precisions() {
            let options =
                NmOptions { algorithm: NmAlgorithm::Dense, precision, rows: 9, ..NmOptions::default() };
            let on_device = DeviceVectorNm::from_host(&device, &before).unwrap();
            let builder = NmSpmm::builder(&on_device).options(options);
            let mut plan = builder.build_on(&device.stream()).unwrap();
            let want = |weights| {
                NmSpmm::builder(weights).precision(precision).build(&Device::cpu()).unwrap().run(&a).unwrap()
            };
            assert_eq!(plan.run(&a).unwrap(), want(&before), "{precision}");
            let stream = Stream::new(&device).unwrap();
            let values = DeviceBuffer::from_slice(&device, &new).unwrap();
            plan.replace_values_on(&stream, &values).unwrap();
            assert_eq!(plan.run(&a).unwrap(), want(&after), "{precision}");
        }
    }
}

/// What a plan makes of an `A` of f16: plain in f32, and with a bias and ReLU in f16.
fn results(plan: &NmSpmmPlan, a: &DeviceMatrix<f16>, bias: &DeviceBuffer<f32>) -> (Vec<f32>, Vec<f16>) {
    let (device, m, n) = (plan.device(), a.rows(), plan.shape().1);
    let mut c = DeviceMatrix::<f32>::zeros(device, m, n).unwrap();
    let mut fused = DeviceMatrix::<f16>::zeros(device, m, n).unwrap();
    plan.run_into(&Epilogue::default(), a, &mut c).unwrap();
    let run = Epilogue { bias: Some(bias), activation: Activation::Relu, ..Epilogue::default() };
    plan.run_into(&run, a, &mut fused).unwrap();
    (c.download().unwrap(), fused.download().unwrap())
}

#[test]
fn captured_dense_products_are_done_when_their_graph_is_launched() {
    let Some(device) = gpu_with_cublas("dense products in graphs", 3) else { return };
    cuda_handles(&device).unwrap();
    let bias = DeviceBuffer::from_slice(&device, &integers(512, 9, 3)).unwrap();
    let weights = hardly_pruned(256, 512);
    for m in [1, 40, 300] {
        let builder = NmSpmm::builder(&weights).precision(Precision::F16).rows(m);
        let plan =
            builder.algorithm(NmAlgorithm::Dense).layout(ActivationLayout::RowMajor).build(&device).unwrap();
        let stream = Stream::new(&device).unwrap();
        let upload =
            |seed| -> Vec<f16> { integers(m * 256, seed, 3).into_iter().map(f16::from_f32).collect() };
        let mut a = DeviceMatrix::upload(&device, DenseRef::packed(&upload(1), m, 256).unwrap()).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, m, 512).unwrap();
        let mut fused = DeviceMatrix::<f16>::zeros(&device, m, 512).unwrap();
        plan.prepare_on(&stream, m).unwrap();
        device.synchronize().unwrap();
        let raw: sys::CUstream = stream.raw().unwrap().cast();
        // SAFETY: the stream lives, and is captured by this thread alone; all that the graph uses outlives its
        // launches, which are waited for before anything is used otherwise.
        unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            result::stream::begin_capture(raw, mode).unwrap();
            plan.run_into_on(&stream, &Epilogue::default(), a.view().lent(), c.view_mut().lent()).unwrap();
            let lent = bias.view().lent();
            let run = Epilogue { bias: Some(&lent), activation: Activation::Relu, ..Epilogue::default() };
            plan.run_into_on(&stream, &run, a.view().lent(), fused.view_mut().lent()).unwrap();
            let graph = result::stream::end_capture(raw).unwrap();
            let mut launchable: sys::CUgraphExec = std::ptr::null_mut();
            sys::cuGraphInstantiateWithFlags(&raw mut launchable, graph, 0).result().unwrap();
            assert!(c.download().unwrap().iter().all(|&x| x == 0.0), "nothing is done yet");
            for seed in [1, 2, 3] {
                a.copy_from(DenseRef::packed(&upload(seed), m, 256).unwrap()).unwrap();
                device.synchronize().unwrap();
                sys::cuGraphLaunch(launchable, raw).result().unwrap();
                stream.synchronize().unwrap();
                let got = (c.download().unwrap(), fused.download().unwrap());
                assert!(got == results(&plan, &a, &bias), "{m} rows");
            }
            sys::cuGraphExecDestroy(launchable).result().unwrap();
            sys::cuGraphDestroy(graph).result().unwrap();
        }
    }
}
