//! Every instance of the kernels of products with N:M weights, forced by its name; which algorithm is chosen, and what
//! is refused.

use std::collections::BTreeMap;

use crate::common::{kernel_devices, report_missing_gpu};
use half::{bf16, f16};
use windrow::{
    ActivationLayout, DenseRef, Device, DeviceKind, DeviceMatrix, Element, EmulatorSchedule, Epilogue,
    NmAlgorithm, NmError, NmPacking, NmPattern, NmSpmm, NmSpmmPlan, Precision, VectorNm, prune_magnitude,
    synthetic::seeded_weights,
};

fn pattern(n: usize, m: usize, l: usize) -> NmPattern {
    NmPattern::new(n, m, l).unwrap()
}

/// Small integers: sums of products with them are exact, whatever their order.
fn integers(len: usize, seed: usize, most: usize) -> Vec<f32> {
    let numbers = (0..len).map(|i| ((i + seed) * 104_729 + (i + seed) / 13) % (2 * most + 1));
    numbers.map(|x| x as f32 - most as f32).collect()
}

/// The `entry` of every instance whose name begins so.
fn entries(prefix: &str) -> impl Iterator<Item = &'static str> {
    windrow_kernels::ENTRIES.iter().map(|entry| entry.name).filter(move |name| name.starts_with(prefix))
}

/// A product with what must not be seen made NaN: rows of `A` that no vector keeps, and what `C` held. One row that
/// some vector keeps is NaN, too, and must be seen in its columns.
struct Case {
    weights: VectorNm<f32>,
    m: usize,
    layout: ActivationLayout,
    /// As it is stored, without padding.
    a: Vec<f32>,
    want: Vec<f32>,
}

impl Case {
    fn new(shape: (usize, usize, usize), pattern: NmPattern, layout: ActivationLayout) -> Self {
        let case = Self::with(shape, pattern, layout, f32::NAN);
        let nans = case.want.iter().filter(|x| x.is_nan()).count();
        assert!(shape.1 == 0 || (1..case.want.len()).contains(&nans), "some must be seen, and some not");
        case
    }

    /// With a number in place of each NaN of `A`.
    fn with(
        (m, k, n): (usize, usize, usize),
        pattern: NmPattern,
        layout: ActivationLayout,
        unseen: f32,
    ) -> Self {
        let mut dense = integers(k * n, m, 4);
        // No vector keeps the first row of any group, if it may leave one.
        for row in (0..k).step_by(pattern.m()) {
            dense[row * n..][..n].fill(0.0);
        }
        let weights = prune_magnitude(&dense, k, n, pattern).unwrap();
        let mut vectors = vec![0; k];
        for u in 0..weights.kept_rows() {
            (0..weights.vectors()).for_each(|v| vectors[weights.source_row(u, v)] += 1);
        }
        let vectors_of = |row: usize| vectors[row];
        let mut a = integers(m * k, 7, 3);
        let seen = (0..k).filter(|&row| vectors_of(row) > 0).min_by_key(|&row| vectors_of(row));
        for row in (0..k).filter(|&row| vectors_of(row) == 0).chain(seen) {
            for i in 0..m {
                let at = if layout == ActivationLayout::RowMajor { i * k + row } else { row * m + i };
                if vectors_of(row) == 0 || i == m / 2 {
                    a[at] = unseen;
                }
            }
        }
        let want = NmSpmm::builder(&weights).layout(layout).build(&Device::cpu()).unwrap().run(&a).unwrap();
        Self { weights, m, layout, a, want }
    }

    /// Runs a plan for the case over a `C` of NaN.
    #[track_caller]
    fn check(&self, plan: &NmSpmmPlan) {
        match plan.precision() {
            Precision::F16 => self.check_typed::<f16>(plan),
            Precision::Bf16 => self.check_typed::<bf16>(plan),
            _ => self.check_typed::<f32>(plan),
        }
    }

    #[track_caller]
    fn check_typed<E: Element<Sum = f32>>(&self, plan: &NmSpmmPlan) {
        let (rows, cols) = self.layout.stored(self.m, self.weights.rows());
        let a: Vec<E> = self.a.iter().map(|&x| E::from_f32(x)).collect();
        let a = DeviceMatrix::upload(plan.device(), DenseRef::packed(&a, rows, cols).unwrap()).unwrap();
        let old = vec![f32::NAN; self.want.len()];
        let n = self.weights.cols();
        let mut c = DeviceMatrix::upload(plan.device(), DenseRef::packed(&old, self.m, n).unwrap()).unwrap();
        plan.run_into(&Epilogue::default(), &a, &mut c)
            .and_then(|()| Ok(c.download()?))
            .map(|got| {
                for (at, (got, want)) in got.iter().zip(&self.want).enumerate() {
                    let same = got == want || (got.is_nan() && want.is_nan());
                    assert!(same, "C[{}, {}]: {got} instead of {want}\n{}", at / n, at % n, plan.report());
                }
            })
            .unwrap_or_else(|error| panic!("{error}\n{}", plan.report()));
    }
}

/// Whether a device runs an entry: no GPU of another architecture runs those for one alone. Counts where it does not.
fn runs_on(device: &Device, entry: &str) -> bool {
    let arch = windrow_kernels::ENTRIES.iter().find(|known| known.name == entry).unwrap().arch;
    let runs = match (device.kind(), device.compute_capability()) {
        (DeviceKind::Cuda, Some((major, minor))) => arch.runs_on(10 * major + minor),
        _ => true,
    };
    if !runs {
        windrow_testkit::announce_skip(entry, 1, &format!("it is not for {device}"));
    }
    runs
}

fn layout(at: usize) -> ActivationLayout {
    ActivationLayout::ALL[at % 2]
}

/// Every instance of the f32 kernel that a pattern allows, packed and plain, divided along `k` or not, in every
/// precision.
#[test]
fn cuda_cores() {
    let (mut ran, mut cases) = (BTreeMap::<_, usize>::new(), 0);
    let (mut divided, mut plain) = (0, 0);
    let shapes = [
        ((8, 32, 32), 230, 150),
        ((3, 8, 16), 64, 70),
        ((1, 4, 8), 90, 136),
        ((5, 7, 4), 50, 40),
        ((2, 4, 3), 41, 37),
    ];
    let mut shapes: Vec<_> = shapes.iter().flat_map(|&of| [(3, of), (140, of)]).collect();
    shapes.push((3, ((8, 32, 32), 1500, 40))); // long enough to be divided
    for (m, ((keep, group, l), k, n)) in shapes {
        let case = Case::new((m, k, n), pattern(keep, group, l), layout(m + k));
        for (at, entry) in entries("nm_f32").enumerate() {
            for packing in [NmPacking::Packed, NmPacking::Plain] {
                let precisions = Precision::ALL
                    .map(|precision| NmAlgorithm::Auto.supports(precision).then_some(precision));
                let precisions: Vec<_> = precisions.into_iter().flatten().collect();
                let precision = precisions[(at + m + k) % precisions.len()];
                let builder = NmSpmm::builder(&case.weights).rows(m).kernel(entry).packing(packing);
                let builder = builder.precision(precision).layout(case.layout);
                cases += 1;
                for device in kernel_devices(at) {
                    match builder.build(&device) {
                        Ok(plan) => {
                            case.check(&plan);
                            let report = plan.report();
                            assert_eq!(report.algorithm, NmAlgorithm::CudaCores);
                            divided += usize::from(report.entries.contains(&"nm_combine"));
                            plain += usize::from(report.packing == NmPacking::Plain);
                            *ran.entry(entry).or_default() += 1;
                        }
                        Err(NmError::NoKernel { .. }) => {}
                        Err(error) => panic!("{entry}: {error}"),
                    }
                }
            }
        }
    }
    assert_eq!(ran.len(), entries("nm_f32").count(), "only {ran:?}");
    assert!(divided > 10 && plain > 10, "{divided} divided, {plain} plain");
    report_missing_gpu("instances on CUDA cores", cases);
}

/// Every instance for Tensor Cores whose name begins so, on patterns, widths of vectors and sizes that turn, of which
/// at least so many are to be divided along `k`.
fn tensor_cores(prefix: &str, precision: Precision, least_divided: usize) {
    const PATTERNS: [(usize, usize); 5] = [(1, 4), (2, 8), (3, 7), (4, 32), (16, 32)];
    const VECTORS: [usize; 4] = [8, 16, 32, 64];
    const ROWS: [usize; 4] = [1, 15, 65, 130];
    let (mut ran, mut divided, mut refused, mut cases) = (BTreeMap::<_, usize>::new(), 0, 0, 0);
    for (p, (keep, group)) in PATTERNS.into_iter().enumerate() {
        for (v, l) in VECTORS.into_iter().enumerate() {
            // A few stages and one that is ragged; now and then many, which the model divides.
            let k = if (p + v) % 3 == 0 { 64 * group / keep + 5 } else { 300 * group / keep + 3 };
            let n = [70, 550, 129, 260][(p + v) % 4];
            let m = ROWS[(p + 2 * v) % 4];
            let case = Case::new((m, k, n), pattern(keep, group, l), layout(p + v));
            for (at, entry) in entries(prefix).enumerate() {
                let builder = NmSpmm::builder(&case.weights).rows(m).kernel(entry).precision(precision);
                let builder = builder.layout(case.layout);
                cases += 1;
                for device in kernel_devices(at + v) {
                    match builder.build(&device) {
                        Ok(plan) => {
                            case.check(&plan);
                            let report = plan.report();
                            assert_eq!(report.algorithm, NmAlgorithm::TensorCores);
                            divided += usize::from(report.entries.contains(&"nm_combine"));
                            *ran.entry(entry).or_default() += 1;
                        }
                        Err(NmError::NoKernel { .. } | NmError::NoTensorCores { .. }) => refused += 1,
                        Err(error) => panic!("{entry}: {error}"),
                    }
                }
            }
        }
    }
    report_missing_gpu(&format!("instances {prefix}* on Tensor Cores"), cases);
    assert_eq!(ran.len(), entries(prefix).count(), "only {ran:?}, {refused} refused");
    assert!(ran.values().all(|&runs| runs >= 5) && divided >= least_divided, "{ran:?}, {divided} divided");
}

#[test]
fn tensor_cores_f16() {
    tensor_cores("nm_f16_", Precision::F16, 11);
}

#[test]
fn tensor_cores_bf16() {
    tensor_cores("nm_bf16_", Precision::Bf16, 11);
}

#[test]
fn tensor_cores_tf32() {
    tensor_cores("nm_tf32_", Precision::Tf32, 11);
}

#[test]
fn few_rows_f16() {
    tensor_cores("nm_few_f16_", Precision::F16, 0);
}

#[test]
fn few_rows_bf16() {
    tensor_cores("nm_few_bf16_", Precision::Bf16, 0);
}

/// Every instance for sparse Tensor Cores whose name begins so, on patterns that fill both places of four rows and on
/// some that do not, with vectors of any length, activations of either layout whose rows begin at multiples of 16 bytes
/// or do not.
fn sparse_tensor_cores(prefix: &str, precision: Precision) {
    const PATTERNS: [(usize, usize); 7] = [(2, 4), (1, 2), (1, 4), (2, 8), (1, 3), (1, 7), (2, 12)];
    let (mut ran, mut brought, mut cases) = (BTreeMap::<_, usize>::new(), 0, 0);
    for (p, (keep, group)) in PATTERNS.into_iter().enumerate() {
        for (v, l) in [1, 4, 48, 512].into_iter().enumerate() {
            let m = [1, 65, 130, 257][(p + v) % 4];
            let (k, n) = ([64, 131, 200, 322][(p + 2 * v) % 4], [70, 300, 129, 260][(p + 3 * v) % 4]);
            // Where a weight of zero stands in for one that is kept, what is dropped must be finite.
            let unseen = if p < 2 { f32::NAN } else { 5.0 };
            let case = Case::with((m, k, n), pattern(keep, group, l), layout(p + v), unseen);
            for (at, entry) in entries(prefix).enumerate() {
                let builder = NmSpmm::builder(&case.weights).rows(m).precision(precision).layout(case.layout);
                let builder = builder.algorithm(NmAlgorithm::SparseTensorCores).kernel(entry);
                cases += 1;
                for device in kernel_devices(at + v) {
                    if !runs_on(&device, entry) {
                        continue;
                    }
                    let plan = builder.build(&device).unwrap();
                    case.check(&plan);
                    let report = plan.report();
                    assert_eq!(report.algorithm, NmAlgorithm::SparseTensorCores);
                    let is_brought = case.layout == ActivationLayout::KMajor || !k.is_multiple_of(8);
                    let (before, own) = report.entries.split_at(usize::from(is_brought));
                    assert!(own[0] == entry && matches!(own[1..], [] | ["nm_combine"]), "{report}");
                    assert!(before.iter().all(|name| name.starts_with("nm_stage")), "{report}");
                    brought += usize::from(is_brought);
                    *ran.entry(entry).or_default() += 1;
                }
            }
        }
    }
    report_missing_gpu(&format!("instances {prefix}* on sparse Tensor Cores"), cases);
    assert_eq!(ran.len(), entries(prefix).count(), "only {ran:?}");
    assert!(ran.values().all(|&runs| runs >= 28) && brought > 40 && brought < cases, "{ran:?}, {brought}");
}

#[test]
fn sparse_tensor_cores_f16() {
    sparse_tensor_cores("nm_sparse_f16_", Precision::F16);
}

#[test]
fn sparse_tensor_cores_bf16() {
    sparse_tensor_cores("nm_sparse_bf16_", Precision::Bf16);
}

#[test]
fn few_rows_on_sparse_tensor_cores_f16() {
    sparse_tensor_cores("nm_few_sparse_f16_", Precision::F16);
}

#[test]
fn few_rows_on_sparse_tensor_cores_bf16() {
    sparse_tensor_cores("nm_few_sparse_bf16_", Precision::Bf16);
}

/// Every instance that multiplies rows in an order of its own for each tile of columns: on patterns that keep half of
/// the rows or fewer, in vectors of which a tile has eight or fewer, with activations of either layout. Unless sparse
/// Tensor Cores are asked for, what is dropped is not seen.
fn ordered_rows(precision: Precision) {
    const PATTERNS: [((usize, usize), usize); 6] =
        [((16, 32), 32), ((4, 8), 16), ((12, 32), 32), ((3, 7), 48), ((5, 32), 64), ((16, 32), 512)];
    let prefix = format!("nm_packed_{precision}_");
    let (mut ran, mut refused, mut cases) = (BTreeMap::<_, usize>::new(), 0, 0);
    for (p, ((keep, group), l)) in PATTERNS.into_iter().enumerate() {
        for (i, algorithm) in [NmAlgorithm::Auto, NmAlgorithm::SparseTensorCores].into_iter().enumerate() {
            let m = [1, 65, 130, 257][(p + i) % 4];
            let (k, n) = ([64, 131, 200, 322][(p + 2 * i) % 4], [70, 300, 129, 260][(p + 3 * i) % 4]);
            let unseen = if algorithm == NmAlgorithm::Auto { f32::NAN } else { 5.0 };
            let case = Case::with((m, k, n), pattern(keep, group, l), layout(p + i), unseen);
            for (at, entry) in entries(&prefix).enumerate() {
                let builder = NmSpmm::builder(&case.weights).rows(m).precision(precision).layout(case.layout);
                let builder = builder.algorithm(algorithm).kernel(entry);
                cases += 1;
                for device in kernel_devices(at + p) {
                    if !runs_on(&device, entry) {
                        continue;
                    }
                    // A tile of 256 columns reaches into sixteen vectors of 16.
                    let plan = match builder.build(&device) {
                        Err(NmError::NoKernel { .. } | NmError::NoTensorCores { .. }) if l == 16 => {
                            refused += 1;
                            continue;
                        }
                        plan => plan.unwrap(),
                    };
                    case.check(&plan);
                    let report = plan.report();
                    assert_eq!(report.algorithm, NmAlgorithm::SparseTensorCores);
                    assert_eq!(report.packing, NmPacking::Packed);
                    assert!(report.packing_reason.contains(" slots a row"), "{report}");
                    assert!(report.entries.contains(&entry), "{report}");
                    *ran.entry(entry).or_default() += 1;
                }
            }
        }
    }
    report_missing_gpu(&format!("instances for {precision} that multiply rows in an order"), cases);
    assert_eq!(ran.len(), entries(&prefix).count(), "only {ran:?}");
    assert!(ran.values().all(|&runs| runs >= 8) && refused > 0, "{ran:?}, {refused} refused");
}

#[test]
fn ordered_rows_f16() {
    ordered_rows(Precision::F16);
}

#[test]
fn ordered_rows_bf16() {
    ordered_rows(Precision::Bf16);
}

/// Few columns and a long inner dimension: windows are divided into parts, whose sums another kernel adds up.
#[test]
fn few_rows_are_divided() {
    let (mut divided, mut cases) = (BTreeMap::<_, usize>::new(), 0);
    for (at, entry) in entries("nm_few_f16_").enumerate() {
        let case = Case::new((2 + at, 20_000, 16), pattern(16, 32, 32), layout(at));
        let builder = NmSpmm::builder(&case.weights).rows(case.m).precision(Precision::F16);
        let builder = builder.layout(case.layout).kernel(entry);
        cases += 1;
        for device in kernel_devices(at) {
            let plan = builder.build(&device).unwrap();
            case.check(&plan);
            let entries = &plan.report().entries;
            assert!(entries.ends_with(&[entry, "nm_combine"]), "{}", plan.report());
            *divided.entry(entry).or_default() += 1;
        }
    }
    report_missing_gpu("instances for few rows whose windows are divided", cases);
    assert_eq!(divided.len(), entries("nm_few_f16_").count(), "only {divided:?}");
}

/// A few rows and a long inner dimension: stages are divided into parts, whose sums another kernel adds up.
#[test]
fn few_rows_on_sparse_tensor_cores_are_divided() {
    let (mut divided, mut cases) = (BTreeMap::<_, usize>::new(), 0);
    for (at, entry) in entries("nm_sparse_f16_").enumerate() {
        let case = Case::new((3 + at, 4096, 100), pattern(2, 4, [1, 32][at % 2]), layout(at));
        let builder = NmSpmm::builder(&case.weights).rows(case.m).precision(Precision::F16);
        let builder = builder.layout(case.layout).algorithm(NmAlgorithm::SparseTensorCores).kernel(entry);
        cases += 1;
        for device in kernel_devices(at) {
            if !runs_on(&device, entry) {
                continue;
            }
            let plan = builder.build(&device).unwrap();
            case.check(&plan);
            let entries = &plan.report().entries;
            assert!(entries.ends_with(&[entry, "nm_combine"]), "{}", plan.report());
            *divided.entry(entry).or_default() += 1;
        }
    }
    report_missing_gpu("instances on sparse Tensor Cores whose stages are divided", cases);
    assert_eq!(divided.len(), entries("nm_sparse_f16_").count(), "only {divided:?}");
}

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
