//! Which kernel a product with N:M weights takes, and what is refused.

use windrow::{
    ActivationLayout, Device, DeviceKind, EmulatorSchedule, NmAlgorithm, NmError, NmSpmm, Precision,
    VectorNm, synthetic::seeded_weights,
};

use crate::nm_case::{Case, layout, pattern};

/// `Auto` takes them where nothing that is dropped can be seen, and only there.
#[test]
fn sparse_tensor_cores_are_taken_and_refused() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let row_major = ActivationLayout::RowMajor;
    for ((keep, group, l), expected) in [
        ((2, 4, 1), NmAlgorithm::SparseTensorCores),
        ((2, 4, 32), NmAlgorithm::SparseTensorCores),
        ((1, 2, 32), NmAlgorithm::SparseTensorCores),
        ((1, 4, 1), NmAlgorithm::CudaCores),
        ((2, 8, 32), NmAlgorithm::TensorCores),
    ] {
        let case = Case::new((256, 512, 256), pattern(keep, group, l), row_major);
        let builder = NmSpmm::builder(&case.weights).rows(256).precision(Precision::F16);
        let plan = builder.build(&device).unwrap();
        case.check(&plan);
        assert_eq!(plan.report().algorithm, expected, "{}", plan.report());
    }
    // In an order of the rows, if the product is large, half of the rows are kept, and vectors are long.
    for ((keep, group, l), rows, expected) in [
        ((16, 32, 32), 4096, NmAlgorithm::SparseTensorCores),
        ((4, 8, 64), 4096, NmAlgorithm::SparseTensorCores),
        ((16, 32, 32), 9, NmAlgorithm::TensorCores),
        ((16, 32, 8), 4096, NmAlgorithm::TensorCores),
        ((4, 32, 32), 4096, NmAlgorithm::TensorCores),
    ] {
        let case = Case::new((9, 2048, 1024), pattern(keep, group, l), row_major);
        let builder = NmSpmm::builder(&case.weights).rows(rows).precision(Precision::F16);
        let plan = builder.build(&device).unwrap();
        case.check(&plan);
        assert_eq!(plan.report().algorithm, expected, "{}", plan.report());
    }
    // More patterns, if activations are promised to be finite.
    for (keep, group, l) in [(12, 32, 32), (1, 4, 1), (2, 8, 32)] {
        let case = Case::with((9, 2048, 1024), pattern(keep, group, l), row_major, 5.0);
        let builder = NmSpmm::builder(&case.weights).rows(4096).precision(Precision::F16);
        let [plain, finite] =
            [false, true].map(|finite| builder.clone().finite_activations(finite).build(&device).unwrap());
        case.check(&finite);
        assert_ne!(plain.report().algorithm, NmAlgorithm::SparseTensorCores, "{}", plain.report());
        assert_eq!(finite.report().algorithm, NmAlgorithm::SparseTensorCores, "{}", finite.report());
    }
    let case = Case::new((9, 70, 40), pattern(4, 7, 8), row_major);
    let asked = |precision, weights: &VectorNm<f32>| {
        let builder = NmSpmm::builder(weights).algorithm(NmAlgorithm::SparseTensorCores).precision(precision);
        builder.build(&device).unwrap_err().to_string()
    };
    assert_eq!(
        asked(Precision::F16, &case.weights),
        "sparse-tensor-cores have no f16 kernel for weights with pattern 4:7 in vectors of 8: it keeps more than half \
         of the rows; use algorithm cuda-cores or auto"
    );
    let none = VectorNm::from_dense(&[0.0; 0], 0, 8, pattern(3, 6, 1)).unwrap();
    let error = asked(Precision::Bf16, &none);
    assert!(
        error.contains("3:6 in vectors of 1: of four rows") && error.contains("weights that have rows"),
        "{error}"
    );
    let error = asked(Precision::Tf32, &case.weights);
    assert!(
        error.starts_with("products with N:M weights by sparse-tensor-cores do not support precision tf32;"),
        "{error}"
    );
}

#[test]
fn weights_that_tensor_cores_have_no_kernel_for_go_to_cuda_cores() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    for (keep, group, l, n, reason) in [
        (2, 8, 4, 33, "vectors of 4 columns are no multiple of 8"),
        (1, 256, 8, 600, "the rows that a stage keeps come from more than shared memory has slots for"),
    ] {
        let case = Case::new((9, 70 * group / keep, n), pattern(keep, group, l), layout(l));
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
            let builder = NmSpmm::builder(&case.weights).rows(9).precision(precision).layout(case.layout);
            let plan = builder.clone().build(&device).unwrap();
            case.check(&plan);
            let report = plan.report();
            let expected = format!("Tensor Cores have no kernel for these weights: {reason}");
            assert_eq!((report.algorithm, &report.reason), (NmAlgorithm::CudaCores, &expected));
            let error = builder.clone().algorithm(NmAlgorithm::TensorCores).build(&device).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "tensor-cores have no {precision} kernel for weights with pattern {}: {reason}; use algorithm \
                     cuda-cores or auto",
                    case.weights.pattern()
                )
            );
        }
    }
    // A kernel that there is, but not for this precision; and one that does not find slots for these weights.
    let case = Case::new((9, 70, 40), pattern(2, 8, 32), ActivationLayout::KMajor);
    let error = NmSpmm::builder(&case.weights).kernel("nm_f16_64x256").build(&device).unwrap_err();
    let message = error.to_string();
    let expected = "there is no kernel \"nm_f16_64x256\" for f32 with weights of pattern 2:8 in vectors of 32; there are nm_f32_";
    assert!(message.starts_with(expected), "{message}");
    let weights = seeded_weights::<f32>((70 * 256, 600), pattern(1, 256, 8), 1).unwrap();
    let builder = NmSpmm::builder(&weights).kernel("nm_f16_32x512_by8").precision(Precision::F16);
    let error = builder.build(&device).unwrap_err();
    assert!(matches!(error, NmError::NoTensorCores { .. }), "{error}");
    // Weights that they have one for, on CUDA cores because these were asked for.
    let case = Case::new((9, 70, 40), pattern(2, 8, 8), ActivationLayout::KMajor);
    let builder = NmSpmm::builder(&case.weights).precision(Precision::Bf16).layout(case.layout);
    let plan = builder.algorithm(NmAlgorithm::CudaCores).build(&device).unwrap();
    case.check(&plan);
    assert_eq!(
        (plan.report().algorithm, plan.report().reason.as_str()),
        (NmAlgorithm::CudaCores, "as asked")
    );
}

#[test]
fn tuning_tries_a_few_and_keeps_one() {
    for precision in [Precision::F32, Precision::F16] {
        let case = Case::new((40, 200, 130), pattern(2, 8, 32), ActivationLayout::RowMajor);
        let builder = NmSpmm::builder(&case.weights).rows(400).precision(precision);
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let chosen = builder.clone().build(&device).unwrap();
        let plan = builder.clone().autotune(true).build(&device).unwrap();
        case.check(&plan);
        let (report, tuned) = (plan.report(), &plan.report().tuned);
        assert_eq!(tuned.len(), 4, "{report}");
        // The emulator has no time: the first choice, which is that of the model, stays.
        assert!(tuned.iter().all(|&(_, us)| us == 0.0));
        assert_eq!(report.entries, chosen.report().entries);
        // What brings row-major activations comes first.
        assert!(report.entries[0].starts_with("nm_stage_") && report.entries[1] == tuned[0].0, "{report}");
        assert!(report.to_string().contains(&format!("tried        {}", tuned[0].0)), "{report}");
        // No memory for operands: nothing is tried, and the plan is that of the model. No kernel reads k-major
        // activations in less than that of the model.
        let case = Case::new((40, 200, 130), pattern(2, 8, 32), ActivationLayout::KMajor);
        let builder = builder.layout(case.layout);
        let chosen = builder.build(&device).unwrap();
        let limit = chosen.report().device_bytes;
        let plan = builder.clone().autotune(true).memory_limit(limit).build(&device).unwrap();
        case.check(&plan);
        assert!(plan.report().tuned.is_empty() && plan.report().entries == chosen.report().entries);
        assert!(plan.report().reason.ends_with("there is no memory for operands to try tiles with"));
    }
    // The CPU has nothing to choose.
    let weights = VectorNm::from_dense(&[1.0f32, 0.0], 2, 1, pattern(1, 2, 1)).unwrap();
    let plan = NmSpmm::builder(&weights).autotune(true).build(&Device::cpu()).unwrap();
    assert!(plan.report().device_kind == DeviceKind::Cpu && plan.report().tuned.is_empty());
}
