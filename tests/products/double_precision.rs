//! f64: every product and algorithm that has it, against sums that are exact, and what goes with it: results in bf16,
//! biases and activations, host memory in another type than the plan's.

use crate::common::{Setup, check, devices, report_missing_gpu, takes_turn};
use windrow::{
    Activation, Algorithm, Coo3, Csr, DenseMut, DenseRef, Determinism, Device, DeviceBuffer, DeviceKind,
    DeviceMatrix, Element, Epilogue, Mttkrp, NmError, NmPattern, NmSpmm, PlanError, Precision, Sddmm,
    SddmmAlgorithm, SddmmForm, Spmm, SpmmError, Ttm, Value, VectorNm, bf16, f16,
};
use windrow_testkit::{
    ExactCase, ExactSum, Pattern, SplitMix64, Tally, edge_cases, edge_patterns, non_finite_cases,
    shape_cases, value_cases, whole,
};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::RowSplit, Algorithm::ShortRows, Algorithm::SegmentGroup];

/// All tables of the other precisions, padding, poison and scalars included; their numbers are f32.
///
/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn all_cases_of_the_tables() {
    let some = || edge_cases().into_iter().chain(value_cases()).chain(non_finite_cases());
    for algorithm in ALGORITHMS {
        check(Setup::new(algorithm, Precision::F64), &some().chain(shape_cases()).collect::<Vec<_>>());
        let any_order = Setup::new(algorithm, Precision::F64).told(|o| o.determinism = Determinism::Fast);
        check(any_order, &some().collect::<Vec<_>>());
    }
}

/// Patterns whose rows are none, short, cut and all.
fn patterns(rng: &mut SplitMix64) -> Vec<Pattern> {
    vec![
        Pattern::empty(5, 3),
        Pattern::random(90, 70, 12, rng),
        Pattern::power_law(60, 700, 650, rng),
        Pattern::from_lengths(3000, [0, 2900, 1, 0, 3000, 33], rng),
    ]
}

fn upload(device: &Device, data: &[f64], rows: usize, n: usize) -> DeviceMatrix<f64> {
    DeviceMatrix::upload(device, DenseRef::packed(data, rows, n).unwrap()).unwrap()
}

/// Values with all bits of f64, widths from one column to several slices.
///
/// Promise, results: f64 is computed in f64: products of whole numbers of 53 bits are right to the last bit.
#[test]
fn no_bit_is_lost() {
    let mut rng = SplitMix64::new(53);
    let (mut tally, mut turn) = (0, 0);
    for pattern in patterns(&mut rng) {
        for n in [1, 2, 3, 4, 7, 8, 16, 31, 64, 130] {
            let case = ExactCase::random(&pattern, n, &mut rng);
            turn += 1;
            for device in devices().into_iter().filter(|device| takes_turn(device, turn)) {
                for algorithm in ALGORITHMS.into_iter().chain([Algorithm::Auto]) {
                    let what = format!("{algorithm} on {device}, {} entries, {n} columns", case.a.nnz());
                    let builder = Spmm::builder(&case.a).precision(Precision::F64).width(n);
                    let plan = builder.algorithm(algorithm).build(&device).unwrap();
                    let b = upload(&device, &case.b, case.a.cols(), n);
                    for (alpha, beta) in [(1.0, 0.0), (-2.0, 4.0)] {
                        let mut c = upload(&device, &case.c, case.a.rows(), n);
                        plan.run_into(alpha, &b, beta, &mut c).unwrap();
                        case.assert_matches(&what, (alpha, beta), &c.download().unwrap());
                        if alpha == 1.0 {
                            let found = plan.verify(&case.a, &b, &c).unwrap();
                            assert!(found.passed(), "{what}: {found}");
                        }
                        tally += 1;
                    }
                }
            }
        }
    }
    report_missing_gpu("f64 products", tally / 2);
}

/// What f32 would have made of it is far beyond the bound.
#[test]
fn a_product_in_f32_does_not_pass_for_one_in_f64() {
    let mut rng = SplitMix64::new(24);
    let case = ExactCase::random(&Pattern::random(20, 30, 9, &mut rng), 3, &mut rng);
    for device in devices() {
        let plan = Spmm::builder(&case.a).precision(Precision::F64).width(3).build(&device).unwrap();
        let b = upload(&device, &case.b, 30, 3);
        let mut c = DeviceMatrix::<f64>::zeros(&device, 20, 3).unwrap();
        plan.run_into(1.0, &b, 0.0, &mut c).unwrap();
        assert!(plan.verify(&case.a, &b, &c).unwrap().passed());
        let rounded: Vec<f64> =
            c.download().unwrap().into_iter().map(|x| f64::from(<f32 as Value>::from_f64(x))).collect();
        let found = plan.verify(&case.a, &b, &upload(&device, &rounded, 20, 3)).unwrap();
        assert!(!found.passed() && found.worst_ratio > 1e6, "{found}");
    }
}

#[test]
fn values_are_replaced_from_either_side() {
    let mut rng = SplitMix64::new(9);
    let before = ExactCase::random(&Pattern::power_law(40, 90, 80, &mut rng), 5, &mut rng);
    let values: Vec<f64> = before.a.values().iter().map(|_| whole(&mut rng)).collect();
    let after = ExactCase { a: before.a.with_values(values.clone()).unwrap(), ..before.clone() };
    for device in devices() {
        for algorithm in ALGORITHMS {
            let builder = Spmm::builder(&before.a).precision(Precision::F64).width(5).algorithm(algorithm);
            let mut plan = builder.build(&device).unwrap();
            before.assert_matches("before", (1.0, 0.0), &plan.run(&before.b).unwrap());
            plan.replace_values(&values).unwrap();
            after.assert_matches("from the host", (1.0, 0.0), &plan.run(&after.b).unwrap());
            let given = DeviceBuffer::from_slice(&device, before.a.values()).unwrap();
            plan.replace_values_from(&given).unwrap();
            before.assert_matches("from the device", (1.0, 0.0), &plan.run(&before.b).unwrap());
            let narrow = DeviceBuffer::from_slice(&device, &vec![1.0f32; values.len()]).unwrap();
            let error = plan.replace_values_from(&narrow).unwrap_err();
            let PlanError::ElementType { found: "f32", expected: Precision::F64, .. } = plan_error(error)
            else {
                panic!("values of f32 for a plan of f64");
            };
        }
    }
}

fn plan_error(error: SpmmError) -> PlanError {
    match error {
        SpmmError::Plan(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn sampled_products() {
    let mut rng = SplitMix64::new(11);
    let mut tally = Tally::new("sampled products in f64");
    for (name, pattern) in edge_patterns() {
        for inner in [1, 2, 5, 16, 33] {
            let ExactCase { a, .. } = ExactCase::random(&pattern, 0, &mut rng);
            let mut operand = |rows: usize| (0..rows * inner).map(|_| whole(&mut rng)).collect::<Vec<_>>();
            let (x, y) = (operand(a.rows()), operand(a.cols()));
            for device in devices() {
                for (algorithm, form) in
                    [(SddmmAlgorithm::Entries, SddmmForm::Mask), (SddmmAlgorithm::Groups, SddmmForm::Scale)]
                {
                    let scaled = a.with_values(vec![-2.0; a.nnz()]).unwrap();
                    let builder = Sddmm::builder(&scaled).precision(Precision::F64).form(form).inner(inner);
                    let plan = builder.algorithm(algorithm).build(&device).unwrap();
                    let (on_x, on_y) =
                        (upload(&device, &x, a.rows(), inner), upload(&device, &y, a.cols(), inner));
                    let mut out = DeviceBuffer::<f64>::alloc_zeroed(&device, a.nnz()).unwrap();
                    plan.run_into(1.0, &on_x, &on_y, &mut out).unwrap();
                    assert!(plan.verify(&scaled, &on_x, &on_y, &out).unwrap().passed(), "{name} on {device}");
                    let factor = if form == SddmmForm::Scale { -2.0 } else { 1.0 };
                    let mut got = out.to_vec().unwrap().into_iter();
                    for (row, (cols, _)) in a.rows_iter().enumerate() {
                        for &col in cols {
                            let mut want = ExactSum::default();
                            for k in 0..inner {
                                want.add(factor * x[row * inner + k], y[col as usize * inner + k]);
                            }
                            let got = got.next().unwrap();
                            assert!(want.ratio(got, 2) <= 1.0, "{name}, {algorithm} on {device}: {got}");
                        }
                    }
                    tally.ran(&windrow_testkit::Comparison { elements: a.nnz(), ..Default::default() });
                }
            }
        }
    }
    tally.finish();
}

/// Values and factors of a third of the bits each: their products are whole numbers that 128 bits hold.
#[test]
fn tensors() {
    let mut rng = SplitMix64::new(31);
    let mut entries = std::collections::BTreeMap::new();
    for _ in 0..700 {
        let place = [rng.below(9), rng.below(14), rng.below(11)].map(|i| u32::try_from(i).unwrap());
        entries.insert(place, third(&mut rng));
    }
    let tensor = Coo3::from_entries([9, 14, 11], entries.clone()).unwrap().to_csf([0, 1, 2]).unwrap();
    for n in [1, 4, 9, 33] {
        let mut factor = |rows: usize| (0..rows * n).map(|_| third(&mut rng)).collect::<Vec<_>>();
        let (b, c) = (factor(14), factor(11));
        for device in devices() {
            let plan = Mttkrp::builder(&tensor).precision(Precision::F64).width(n).build(&device).unwrap();
            let (on_b, on_c) = (upload(&device, &b, 14, n), upload(&device, &c, 11, n));
            let mut y = DeviceMatrix::<f64>::zeros(&device, 9, n).unwrap();
            plan.run_into(1.0, [&on_b, &on_c], 0.0, &mut y).unwrap();
            assert!(plan.verify(&tensor, [&on_b, &on_c], &y).unwrap().passed(), "{device}");
            let got = y.download().unwrap();
            for i in 0..9u32 {
                for j in 0..n {
                    let mut want = ExactSum::default();
                    for (&[_, k, l], value) in entries.range([i, 0, 0]..[i + 1, 0, 0]) {
                        // 34 and 17 bits: one product of them is exact.
                        want.add(value * b[k as usize * n + j], c[l as usize * n + j]);
                    }
                    let got = got[i as usize * n + j];
                    assert!(want.ratio(got, 3) <= 1.0, "MTTKRP of {n} columns on {device}: {got}");
                }
            }
            let ttm = Ttm::builder(&tensor).precision(Precision::F64).width(n).build(&device).unwrap();
            let mut y = DeviceMatrix::<f64>::zeros(&device, ttm.fibers(), n).unwrap();
            ttm.run_into(1.0, &on_c, 0.0, &mut y).unwrap();
            assert!(ttm.verify(&tensor, &on_c, &y).unwrap().passed(), "TTM of {n} columns on {device}");
        }
    }
}

/// A whole number of 17 bits.
fn third(rng: &mut SplitMix64) -> f64 {
    f64::from(u32::try_from(rng.below(1 << 18)).unwrap()) - f64::from(1 << 17)
}

#[test]
fn host_memory_may_be_of_another_type() {
    let a = Csr::from_dense(2, 2, &[1.0 + 2f64.powi(-40), 0.0, 0.0, 3.0]).unwrap();
    for device in devices() {
        let wide = Spmm::builder(&a).precision(Precision::F64).width(1).build(&device).unwrap();
        assert_eq!(wide.run(&[1.0f64, 1.0]).unwrap(), [1.0 + 2f64.powi(-40), 3.0]);
        assert_eq!(wide.run(&[1.0f32, 0.1]).unwrap(), [1.0, 3.0 * 0.1]);
        let half = Spmm::builder(&a).precision(Precision::F16).width(1).build(&device).unwrap();
        assert_eq!(half.run(&[1.0f64, 2049.0]).unwrap(), [1.0, 6144.0]); // 2048 and a bit
        let mut c = [5.0f64, 7.0];
        let (b, view) = ([1.0, 1.0], DenseMut::packed(&mut c, 2, 1).unwrap());
        half.run_host(2.0, DenseRef::packed(&b, 2, 1).unwrap(), -1.0, view).unwrap();
        assert_eq!(c, [-3.0, -1.0]);
    }
}

#[test]
fn results_of_sixteen_bits() {
    for (algorithm, precision) in [
        (Algorithm::RowSplit, Precision::F32),
        (Algorithm::RowSplit, Precision::Bf16),
        (Algorithm::ShortRows, Precision::Bf16),
        (Algorithm::SegmentGroup, Precision::F32),
        (Algorithm::MatricizedRows, Precision::F16),
        (Algorithm::TileStream, Precision::Bf16),
        (Algorithm::TileStream, Precision::Tf32),
        (Algorithm::Hybrid, Precision::Bf16),
    ] {
        let cases: Vec<_> = edge_cases().into_iter().chain(non_finite_cases()).collect();
        check(Setup { narrow: Some(Precision::Bf16), ..Setup::new(algorithm, precision) }, &cases);
    }
}

/// A sampled product whose result is `O`.
fn sampled_as<O: Element<Sum = f32>>(device: &Device) -> Vec<f64> {
    let a = Csr::from_dense(2, 2, &[1.0f32, 1.0, 0.0, 1.0]).unwrap();
    let plan = Sddmm::builder(&a).precision(Precision::Bf16).inner(2).build(device).unwrap();
    let x = [1.0, 2.0, 3.0, 4.0].map(bf16::from_f32);
    let x = DeviceMatrix::upload(device, DenseRef::packed(&x, 2, 2).unwrap()).unwrap();
    let mut out = DeviceBuffer::<O>::alloc_zeroed(device, 3).unwrap();
    plan.run_into(1.125, &x, &x, &mut out).unwrap();
    plan.run_into(1e30, &x, &x, &mut out).unwrap(); // what does not fit into f16 is infinite
    let overflowed = out.to_vec().unwrap().into_iter().all(|x| x.to_f64().is_infinite());
    assert_eq!(overflowed, O::PRECISION == Precision::F16, "{device}");
    plan.run_into(1.125, &x, &x, &mut out).unwrap();
    out.to_vec().unwrap().into_iter().map(Value::to_f64).collect()
}

#[test]
fn sampled_products_of_sixteen_bits() {
    let want = [5.625, 12.375, 28.125]; // 1.125 × 5, 11, 25
    for device in devices() {
        assert_eq!(sampled_as::<f32>(&device), want);
        assert_eq!(sampled_as::<f16>(&device), want);
        assert_eq!(sampled_as::<bf16>(&device), [5.625, 12.375, 28.125].map(|x| bf16::from_f64(x).to_f64()));
    }
}

/// Whether it rounds, and sums in f64 do not have it.
fn is_smooth(activation: Activation) -> bool {
    matches!(activation, Activation::Gelu | Activation::Silu)
}

/// `act(α·A·B + β·C + bias)`, and that times `C`, computed element by element from the plan's own product.
fn fused<B: Element, C: Element<Sum = B::Sum>>(
    device: &Device,
    (algorithm, precision): (Algorithm, Precision),
    activation: Activation,
) {
    let mut rng = SplitMix64::new(77);
    let a =
        Pattern::power_law(50, 400, 380, &mut rng).with_values(windrow_testkit::Values::Integers, &mut rng);
    let n = 70; // more than the columns of a stage
    let number = |x: f32| <B::Sum as Value>::from_f32(x);
    let b: Vec<B> = (0..400 * n).map(|_| B::from_f32(rng.integer())).collect();
    let bias: Vec<B::Sum> = (0..n).map(|_| number(rng.integer() / 2.0)).collect();
    let old: Vec<C> = (0..50 * n).map(|_| C::from_f32(rng.integer())).collect();
    let setup = Setup::new(algorithm, precision);
    let plan = Spmm::builder(&a).options(setup.options).width(n).build(device).unwrap();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&b, 400, n).unwrap()).unwrap();
    let mut sums = DeviceMatrix::<B::Sum>::zeros(device, 50, n).unwrap();
    plan.run_into(number(1.0), &b, number(0.0), &mut sums).unwrap();
    let sums = sums.download().unwrap();
    let on_device = DeviceBuffer::from_slice(device, &bias).unwrap();
    let runs =
        [(0.0f32, false, true), (2.0, false, true), (0.0, true, true), (2.0, true, true), (0.0, true, false)];
    for (beta, gated, biased) in runs {
        let mut c = DeviceMatrix::upload(device, DenseRef::packed(&old, 50, n).unwrap()).unwrap();
        let (alpha, beta) = (number(0.25), number(beta));
        plan.run_fused_into(
            &Epilogue { alpha, beta, bias: biased.then_some(&on_device), activation, gated },
            &b,
            &mut c,
        )
        .unwrap();
        let got = c.download().unwrap();
        for (at, got) in got.into_iter().enumerate() {
            // Integers and halves: exact until the activation.
            let bias = if biased { bias[at % n].to_f64() } else { 0.0 };
            let x = 0.25 * sums[at].to_f64() + beta.to_f64() * old[at].to_f64() + bias;
            let want = match activation {
                Activation::Identity => x,
                Activation::Relu => x.max(0.0),
                smooth => f64::from(smooth.apply(<f32 as Value>::from_f64(x))),
            };
            let want = if gated { want * old[at].to_f64() } else { want };
            let want = C::from_f64(want).to_f64();
            let near = (got.to_f64() - want).abs() <= 1e-6 * want.abs();
            let next = is_smooth(activation) && (got.to_f64() - want).abs() <= 0.01 * want.abs() + 1e-6;
            assert!(
                near || next,
                "{algorithm} {precision} on {device}: {} at {at} instead of {want}",
                got.to_f64()
            );
        }
    }
}

#[test]
fn biases_and_activations() {
    for device in devices() {
        for activation in Activation::ALL {
            fused::<f32, f32>(&device, (Algorithm::RowSplit, Precision::F32), activation);
            fused::<f16, f16>(&device, (Algorithm::RowSplit, Precision::F16), activation);
            fused::<bf16, bf16>(&device, (Algorithm::TileStream, Precision::Bf16), activation);
            fused::<f16, f32>(&device, (Algorithm::Hybrid, Precision::F16), activation);
            fused::<f32, bf16>(&device, (Algorithm::SegmentGroup, Precision::F32), activation);
            if !is_smooth(activation) {
                fused::<f64, f64>(&device, (Algorithm::RowSplit, Precision::F64), activation);
            }
        }
    }
}

#[test]
fn what_there_is_not_in_f64_is_refused() {
    let a = Csr::<f64>::identity(8).unwrap();
    for device in devices() {
        let builder = Spmm::builder(&a).precision(Precision::F64).width(8);
        if device.kind() != DeviceKind::Cpu {
            for algorithm in [Algorithm::TileStream, Algorithm::Hybrid, Algorithm::MatricizedRows] {
                let error = builder.clone().algorithm(algorithm).build(&device).unwrap_err();
                assert!(matches!(error, SpmmError::Unsupported { precision: Precision::F64, .. }), "{error}");
            }
        }
        let plan = builder.build(&device).unwrap();
        let b = upload(&device, &[1.0; 64], 8, 8);
        let mut c = DeviceMatrix::<f64>::zeros(&device, 8, 8).unwrap();
        for (activation, name) in [(Activation::Gelu, "gelu"), (Activation::Silu, "silu")] {
            let run = Epilogue { activation, ..Epilogue::default() };
            let error = plan.run_fused_into(&run, &b, &mut c).unwrap_err();
            assert!(error.to_string().contains(&format!("{name} is computed in f32")), "{error}");
        }
        let weights = VectorNm::from_dense(&[2.0f32, 0.0], 2, 1, NmPattern::new(1, 2, 1).unwrap()).unwrap();
        let error = NmSpmm::builder(&weights).precision(Precision::F64).build(&device).unwrap_err();
        assert!(matches!(error, NmError::Unsupported { precision: Precision::F64, .. }), "{error}");
    }
    let device = &devices()[0];
    let plan = Spmm::builder(&a).precision(Precision::F64).width(8).build(device).unwrap();
    let b = DeviceMatrix::<f32>::zeros(device, 8, 8).unwrap();
    let error =
        plan.run_into(1.0, &b, 0.0, &mut DeviceMatrix::<f32>::zeros(device, 8, 8).unwrap()).unwrap_err();
    assert!(matches!(
        plan_error(error),
        PlanError::ElementType { found: "f32", expected: Precision::F64, .. }
    ));
}
