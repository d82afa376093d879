//! Every instance of the kernels of products with N:M weights, forced by its name.

use std::collections::BTreeMap;

use windrow::{ActivationLayout, NmAlgorithm, NmError, NmPacking, NmSpmm, Precision};

use crate::common::{kernel_devices, report_missing_gpu};
use crate::nm_case::{Case, entries, layout, pattern, runs_on};

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
            // Every other instance: the rest has its turn with the next pattern.
            for (at, entry) in entries(prefix).enumerate().filter(|(at, _)| (at + p + v) % 2 == 0) {
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
    assert!(ran.values().all(|&runs| runs >= 3) && divided >= least_divided, "{ran:?}, {divided} divided");
}

#[test]
fn tensor_cores_f16() {
    tensor_cores("nm_f16_", Precision::F16, 5);
}

#[test]
fn tensor_cores_bf16() {
    tensor_cores("nm_bf16_", Precision::Bf16, 5);
}

#[test]
fn tensor_cores_tf32() {
    tensor_cores("nm_tf32_", Precision::Tf32, 5);
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
            for (at, entry) in entries(prefix).enumerate().filter(|(at, _)| (at + p + v) % 2 == 0) {
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
    assert!(ran.values().all(|&runs| runs >= 14) && brought > 20 && brought < cases, "{ran:?}, {brought}");
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

/// Every instance whose tiles lie in one vector, and multiply the rows that it keeps: on patterns that keep any share
/// of the rows, activations of either layout, divided along `k` or not. What is dropped is not seen.
fn kept_rows(precision: Precision) {
    const PATTERNS: [((usize, usize), usize); 5] =
        [((16, 32), 128), ((3, 7), 256), ((1, 32), 384), ((24, 32), 512), ((7, 8), 1024)];
    let prefix = format!("nm_kept_{precision}_");
    let (mut ran, mut divided, mut refused, mut cases) = (BTreeMap::<_, usize>::new(), 0, 0, 0);
    for (p, ((keep, group), l)) in PATTERNS.into_iter().enumerate() {
        for i in 0..2 {
            let m = [2, 65, 130, 257][(p + i) % 4];
            let (k, n) = ([64, 131, 3000, 322][(p + i) % 4], [70, 300, 513, 260][(p + 3 * i) % 4]);
            let case = Case::new((m, k, n), pattern(keep, group, l), layout(p + i));
            for (at, entry) in entries(&prefix).enumerate() {
                let builder = NmSpmm::builder(&case.weights).rows(m).precision(precision).layout(case.layout);
                let builder = builder.kernel(entry);
                cases += 1;
                for device in kernel_devices(at + p) {
                    if !runs_on(&device, entry) {
                        continue;
                    }
                    // A tile of 256 columns reaches into more than one vector of 128 or 384.
                    let plan = match builder.build(&device) {
                        Err(NmError::NoKernel { .. } | NmError::NoTensorCores { .. }) if l % 256 > 0 => {
                            refused += 1;
                            continue;
                        }
                        plan => plan.unwrap(),
                    };
                    case.check(&plan);
                    let report = plan.report();
                    assert_eq!(report.algorithm, NmAlgorithm::TensorCores);
                    assert!(report.packing_reason.ends_with("multiply the rows that it keeps"), "{report}");
                    assert!(report.entries.contains(&entry), "{report}");
                    divided += usize::from(report.entries.contains(&"nm_combine"));
                    *ran.entry(entry).or_default() += 1;
                }
            }
        }
    }
    report_missing_gpu(&format!("instances for {precision} whose tiles keep rows"), cases);
    assert_eq!(ran.len(), entries(&prefix).count(), "only {ran:?}");
    assert!(ran.values().all(|&runs| runs >= 5) && refused > 0 && divided > 0, "{ran:?}, {refused} refused");
}

#[test]
fn kept_rows_f16() {
    kept_rows(Precision::F16);
}

#[test]
fn kept_rows_bf16() {
    kept_rows(Precision::Bf16);
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
