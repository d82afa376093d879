//! The verification itself: it must pass what is right and find what is wrong, on every device alike.

use crate::common::{Setup, devices, report_missing_gpu};
use half::{bf16, f16};
use windrow::{
    Algorithm, Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Element, PlanError, Precision, SpmmError,
    SpmmPlan, Value, Verification,
};
use windrow_testkit::{Case, Operands, Output, Pattern, SplitMix64, Values, error_bound};

const PLANS: [(Algorithm, Precision); 6] = [
    (Algorithm::RowSplit, Precision::F32),
    (Algorithm::RowSplit, Precision::Tf32),
    (Algorithm::RowSplit, Precision::F16),
    (Algorithm::RowSplit, Precision::Bf16),
    (Algorithm::TileStream, Precision::F16),
    (Algorithm::Hybrid, Precision::F16),
];

fn case(values: Values) -> Case {
    let mut rng = SplitMix64::new(0xc4ec);
    let pattern = Pattern::power_law(60, 700, 650, &mut rng);
    let operands = Operands { n: 37, padding: 0, scalars: (1.0, 0.0), values, poison: false };
    Case::from_pattern("verify", &pattern, operands, &mut rng)
}

/// Runs the plan and verifies the result, after `tamper` has changed it (row-major, packed).
fn verify<B: Element<Sum = f32>, C: Element<Sum = f32>>(
    plan: &SpmmPlan,
    case: &Case,
    device: &Device,
    tamper: impl FnOnce(&mut Vec<C>),
) -> Verification {
    let b: Vec<B> = case.b.iter().map(|&x| B::from_f32(x)).collect();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&b, case.k(), case.n).unwrap()).unwrap();
    let mut c = DeviceMatrix::<C>::zeros(device, case.m(), case.n).unwrap();
    plan.run_into(1.0, &b, 0.0, &mut c).unwrap();
    let mut elements = c.download().unwrap();
    tamper(&mut elements);
    let c = DeviceBuffer::from_slice(device, &elements).unwrap();
    let c = DeviceMatrix::from_buffer(c, case.m(), case.n, case.n).unwrap();
    plan.verify(&case.a, &b, &c).unwrap()
}

fn verify_as<C: Element<Sum = f32>>(
    precision: Precision,
    plan: &SpmmPlan,
    case: &Case,
    device: &Device,
    tamper: impl FnOnce(&mut Vec<C>),
) -> Verification {
    match precision {
        Precision::F32 | Precision::Tf32 => verify::<f32, C>(plan, case, device, tamper),
        Precision::Bf16 => verify::<bf16, C>(plan, case, device, tamper),
        _ => verify::<f16, C>(plan, case, device, tamper),
    }
}

#[test]
fn right_products_pass() {
    for device in devices() {
        for values in [Values::Integers, Values::Reals] {
            let case = case(values);
            for (algorithm, precision) in PLANS {
                let plan = Setup::new(algorithm, precision).plan(&device, &case);
                let whole = verify_as::<f32>(precision, &plan, &case, &device, |_| {});
                assert!(whole.passed(), "{algorithm} {precision} on {device}: {whole}");
                assert_eq!(whole.checked, 60 * 37);
                assert_eq!(whole.worst_ratio > 0.0, values == Values::Reals, "{whole}");
                let half = verify_as::<f16>(precision, &plan, &case, &device, |_| {});
                assert!(half.passed(), "{algorithm} {precision} to f16 on {device}: {half}");
            }
        }
    }
    report_missing_gpu("right products", 4 * PLANS.len());
}

/// Promise, results: `verify` finds an element that is wrong, and says which.
#[test]
fn planted_errors_are_found_where_they_are() {
    let case = case(Values::Reals);
    let row = (0..case.m()).max_by_key(|&r| case.a.row_len(r)).unwrap();
    for device in devices() {
        for (algorithm, precision) in PLANS {
            let plan = Setup::new(algorithm, precision).plan(&device, &case);
            for (column, wrong) in [(0, 1.0), (36, f32::NAN), (7, f32::INFINITY), (20, f32::NEG_INFINITY)] {
                let tamper = |c: &mut Vec<f32>| c[row * 37 + column] += wrong;
                let found = verify_as::<f32>(precision, &plan, &case, &device, tamper);
                let place = (found.worst_row, found.worst_col, found.failures);
                assert_eq!(place, (row, column, 1), "{algorithm} {precision} on {device}: {found}");
                assert!(!found.passed() && found.worst_ratio > 1.0);
                assert!(found.to_string().starts_with("FAILED"));
            }
            let all =
                verify_as::<f32>(precision, &plan, &case, &device, |c| c.iter_mut().for_each(|x| *x += 9.0));
            assert_eq!(all.failures, 60 * 37, "{all}");
        }
    }
    report_missing_gpu("planted errors", 5 * PLANS.len());
}

/// The largest error allowed for an element, as the testkit has it, and the element. Of whole numbers, so that the
/// product itself has none.
fn bound_of<C: Output>(case: &Case, (row, column): (usize, usize), unit: f64) -> (f64, f64) {
    let (columns, values) = case.a.row(row);
    let products =
        columns.iter().zip(values).map(|(&k, &a)| f64::from(a * case.b[k as usize * case.n + column]));
    let (want, abs_sum) = products.fold((0.0, 0.0), |(sum, abs), x| (sum + x, abs + x.abs()));
    (error_bound::<C>(want, abs_sum, columns.len(), unit), want)
}

/// Errors a little below the bound pass and those a little above do not: a bound that is too wide or too narrow is
/// found, whatever kernels do with it.
#[test]
fn the_bound_is_as_wide_as_it_says() {
    let case = case(Values::Integers);
    let row = (0..case.m()).max_by_key(|&r| case.a.row_len(r)).unwrap();
    for device in devices() {
        for (algorithm, precision) in PLANS {
            let setup = Setup::new(algorithm, precision);
            let plan = setup.plan(&device, &case);
            for (column, bounds) in [(3, 0.9), (3, -0.9), (3, 1.1), (3, -1.1), (36, 1.5), (36, 0.5)] {
                let (bound, want) = bound_of::<f32>(&case, (row, column), setup.unit(&device));
                let mut planted = 0.0;
                let found = verify_as::<f32>(precision, &plan, &case, &device, |c| {
                    let x = &mut c[row * 37 + column];
                    assert_eq!(f64::from(*x), want, "sums of whole numbers are exact");
                    *x = Value::from_f64(want + bounds * bound);
                    planted = (f64::from(*x) - want).abs() / bound;
                });
                let what = format!("{algorithm} {precision} on {device}, {planted} bounds: {found}");
                assert!((planted - bounds.abs()).abs() < 0.05, "{what}");
                assert!((found.worst_ratio - planted).abs() < 0.01 * planted, "{what}");
                assert_eq!(
                    (found.passed(), found.failures),
                    (planted < 1.0, u64::from(planted > 1.0)),
                    "{what}"
                );
            }
        }
    }
    report_missing_gpu("widths of the bound", 6 * PLANS.len());
}

/// A result that should be infinite or NaN must be, and of the right sign.
#[test]
fn non_finite_references() {
    let a = Csr::from_dense(3, 2, &[1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
    let b = [f32::INFINITY, 1.0, f32::NEG_INFINITY, f32::NAN];
    let right = [f32::INFINITY, 1.0, f32::NEG_INFINITY, f32::NAN, f32::NAN, f32::NAN];
    for device in devices() {
        let plan = windrow::Spmm::builder(&a).build(&device).unwrap();
        let b = DeviceMatrix::upload(&device, DenseRef::packed(&b, 2, 2).unwrap()).unwrap();
        let verify = |c: [f32; 6]| {
            let c = DeviceMatrix::upload(&device, DenseRef::packed(&c, 3, 2).unwrap()).unwrap();
            plan.verify(&a, &b, &c).unwrap()
        };
        assert!(verify(right).passed(), "{device}: {}", verify(right));
        for (at, wrong) in [(0, f32::NEG_INFINITY), (0, 1e30), (2, f32::NAN), (3, 0.0), (4, f32::INFINITY)] {
            let mut c = right;
            c[at] = wrong;
            let found = verify(c);
            assert_eq!((found.failures, found.worst_row * 2 + found.worst_col), (1, at), "{device}: {found}");
            assert_eq!(found.worst_ratio, f64::INFINITY);
        }
    }
    report_missing_gpu("non-finite references", 6);
}

/// The kernel and the CPU's reference were written apart; they must come to the same ratio.
#[test]
fn device_and_host_agree_on_the_worst_ratio() {
    let case = case(Values::Reals);
    let mut ratios = Vec::new();
    for device in devices() {
        let plan = Setup::new(Algorithm::RowSplit, Precision::F32).plan(&device, &case);
        // The same C everywhere: an error of some bounds at every element, growing along the matrix.
        let found = verify_as::<f32>(Precision::F32, &plan, &case, &device, |c| {
            for (i, x) in c.iter_mut().enumerate() {
                *x = i as f32;
            }
        });
        ratios.push((found.worst_ratio, found.worst_row, found.worst_col, found.failures));
    }
    let (first, row, column, failures) = ratios[0];
    for &(ratio, r, c, f) in &ratios[1..] {
        approx::assert_relative_eq!(ratio, first, max_relative = 1e-5);
        assert_eq!((r, c, f), (row, column, failures), "{ratios:?}");
    }
    report_missing_gpu("agreement", 1);
}

#[test]
fn other_matrices_are_refused() {
    let case = case(Values::Integers);
    let device = Device::cpu();
    let plan = Setup::new(Algorithm::RowSplit, Precision::F32).plan(&device, &case);
    let b = DeviceMatrix::<f32>::zeros(&device, 700, 2).unwrap();
    let c = DeviceMatrix::<f32>::zeros(&device, 60, 2).unwrap();
    let other = Csr::<f32>::identity(60).unwrap();
    assert!(matches!(
        plan.verify(&other, &b, &c),
        Err(SpmmError::Plan(PlanError::OtherMatrix { rows: 60, cols: 60, nnz: 60, .. }))
    ));
    assert!(matches!(plan.verify(&case.a, &c, &b), Err(SpmmError::InnerDim { .. })));
    let empty = DeviceMatrix::<f32>::zeros(&device, 700, 0).unwrap();
    let nothing = DeviceMatrix::<f32>::zeros(&device, 60, 0).unwrap();
    let verified = plan.verify(&case.a, &empty, &nothing).unwrap();
    assert!(verified.passed() && verified.checked == 0);
}
