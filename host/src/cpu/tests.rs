//! Every case of the tables on every vector unit and several numbers of threads.

use proptest::prelude::*;
use windrow_testkit::{
    Case, ExactCase, Output, Pattern, SplitMix64, Tally, UNIT_FMA, Values, assert_matches, edge_cases,
    non_finite_cases, random_case, shape_cases, value_cases,
};

use half::{bf16, f16};

use super::*;

/// A type of `B`, and what is multiplied where it is used.
trait Made: Operand + Summed<In = f32> {
    fn made(x: f32) -> Self;
    fn rounded(case: &Case) -> Case;
}

macro_rules! made_of_values {
    ($($type:ty),+) => {$(
        impl Made for $type {
            fn made(x: f32) -> Self {
                <$type as Value>::from_f32(x)
            }
            fn rounded(case: &Case) -> Case {
                case.rounded_to::<$type>()
            }
        }
    )+};
}
made_of_values!(f32, f16, bf16);

impl Made for Tf32 {
    /// As it is: the load rounds it.
    fn made(x: f32) -> Self {
        bytemuck::cast(x)
    }
    fn rounded(case: &Case) -> Case {
        case.rounded_to_tf32()
    }
}

/// The vector units there are, whether this machine has them or not.
fn units() -> Vec<Unit> {
    #[cfg(target_arch = "x86_64")]
    return vec![Unit::Portable, Unit::Avx2, Unit::Avx512];
    #[cfg(not(target_arch = "x86_64"))]
    vec![Unit::Portable]
}

fn cases() -> Vec<Case> {
    edge_cases().into_iter().chain(shape_cases()).chain(value_cases()).chain(non_finite_cases()).collect()
}

/// The case's product as `B` and `C` of these types, in the case's own layout.
fn product<B: Made, C: Storage + Summed<In = f32> + Value>(unit: Unit, case: &Case) -> Vec<C> {
    product_streaming::<B, C>(unit, case, usize::MAX)
}

/// The same, with a result of `stream_bytes` or more written past the caches.
fn product_streaming<B: Made, C: Storage + Summed<In = f32> + Value>(
    unit: Unit,
    case: &Case,
    stream_bytes: usize,
) -> Vec<C> {
    product_dealt_out::<B, C>(unit, case, (stream_bytes, CpuTasks::default()))
}

/// The same, dealt out as told.
fn product_dealt_out<B: Made, C: Storage + Summed<In = f32> + Value>(
    unit: Unit,
    case: &Case,
    (stream_bytes, tasks): (usize, CpuTasks),
) -> Vec<C> {
    let b: Vec<B> = case.b.iter().map(|&x| B::made(x)).collect();
    let mut c: Vec<C> = case.c.iter().map(|&x| C::from_f32(x)).collect();
    let b = DenseRef::try_new(&b, case.k(), case.n, case.ldb).unwrap();
    let view = DenseMut::try_new(&mut c, case.m(), case.n, case.ldc).unwrap();
    let mut product = Product::new(&case.a, (case.alpha, b), (case.beta, view));
    product.stream_bytes = stream_bytes;
    run(unit, &product, tasks);
    c
}

/// All cases on all units, each result compared with the reference.
fn check<B: Made, C: Storage + Summed<In = f32> + Output>(what: &str) {
    for unit in units() {
        let mut tally = Tally::new(format!("CPU {what} on {unit:?}"));
        if !unit.exists() {
            eprintln!("CPU {what} on {unit:?}: skipped, this machine does not have it");
            continue;
        }
        for case in cases() {
            let rounded = B::rounded(&case).with_c_rounded_to::<C>();
            let given = Case { b: case.b, ..rounded.clone() };
            for stream_bytes in [0, usize::MAX] {
                let got: Vec<C> = product_streaming::<B, C>(unit, &given, stream_bytes);
                tally.ran(&assert_matches(&rounded, &got, rounded.ldc, UNIT_FMA));
            }
        }
        tally.finish();
    }
}

#[test]
fn f32_operands() {
    check::<f32, f32>("f32");
}

#[test]
fn f16_operands_f32_result() {
    check::<f16, f32>("f16 -> f32");
}

#[test]
fn f16_operands_f16_result() {
    check::<f16, f16>("f16 -> f16");
}

#[test]
fn bf16_operands() {
    check::<bf16, f32>("bf16 -> f32");
    check::<bf16, f16>("bf16 -> f16");
    check::<bf16, bf16>("bf16 -> bf16");
}

#[test]
fn tf32_operands() {
    check::<Tf32, f32>("tf32 -> f32");
    check::<Tf32, f16>("tf32 -> f16");
}

/// One lane after the other through `B`, against what each should become: `1·b` is `b` as it is multiplied.
fn multiplied<B: Made>(unit: Unit, b: &[f32]) -> Vec<f32> {
    let a = Csr::<f32>::identity(1).unwrap();
    let (b, mut c): (Vec<B>, _) = (b.iter().map(|&x| B::made(x)).collect(), vec![0.0; b.len()]);
    let view = DenseRef::packed(&b, 1, b.len()).unwrap();
    run(
        unit,
        &Product::new(&a, (1.0, view), (0.0, DenseMut::packed(&mut c, 1, b.len()).unwrap())),
        CpuTasks::default(),
    );
    c
}

/// The sums start from +0, which turns −0 into +0; nothing else changes on the way.
#[test]
fn every_bf16_and_the_edges_of_tf32_on_every_unit() {
    let halves: Vec<f32> = (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32()).collect();
    let edges: Vec<f32> = (0..=0x1ff)
        .flat_map(|high: u32| [0, 0x0fff, 0x1000, 0x1fff, 0x3000, 0x7f_f000].map(|low| high << 23 | low))
        .map(f32::from_bits)
        .collect();
    let same = |x: f32, y: f32| x == y || (x.is_nan() && y.is_nan());
    for unit in units().into_iter().filter(|unit| unit.exists()) {
        for (x, got) in halves.iter().zip(multiplied::<bf16>(unit, &halves)) {
            assert!(same(got, *x), "{x:e} became {got:e} on {unit:?}");
        }
        for (x, got) in edges.iter().zip(multiplied::<Tf32>(unit, &edges)) {
            assert!(same(got, windrow_testkit::round_tf32(*x)), "{x:e} became {got:e} on {unit:?}");
        }
    }
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// A case with enough work for threads, of the named shape.
fn large(name: &str, pattern: &Pattern, n: usize) -> Case {
    let operands =
        windrow_testkit::Operands { n, padding: 3, scalars: (1.5, 0.5), values: Values::Reals, poison: true };
    Case::from_pattern(name, pattern, operands, &mut SplitMix64::new(11))
}

fn large_cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(12);
    vec![
        large("regular", &Pattern::random(900, 700, 20, &mut rng), 48),
        large("power law", &Pattern::power_law(500, 3000, 2500, &mut rng), 130),
        large("one full row", &Pattern::empty(40, 5000).with_dense_row(7), 257),
        large("one row", &Pattern::dense(1, 4000), 100),
        large("one column of C", &Pattern::random(9000, 300, 90, &mut rng), 1),
    ]
}

/// Promise, determinism: on the CPU a result does not depend on the number of threads.
#[test]
fn threads_and_units_give_the_same_bits() {
    for case in large_cases() {
        let want = pool(1).install(|| product::<f32, f32>(Unit::best(), &case));
        assert_matches(&case, &want, case.ldc, UNIT_FMA);
        for threads in [2, 3, 8] {
            let areas = deal_out(case.a.row_offsets(), case.n, threads, CpuTasks::default());
            assert!(areas.len() > 1, "{}: {threads} threads have nothing to share", case.name);
            let got = pool(threads).install(|| product::<f32, f32>(Unit::best(), &case));
            assert_eq!(bits(&got), bits(&want), "{} on {threads} threads", case.name);
            for tile_columns in [None, Some(1), Some(40)] {
                let tasks = CpuTasks { ranges_per_thread: 3, tile_columns };
                let dealt_out = |stream| product_dealt_out::<f32, f32>(Unit::best(), &case, (stream, tasks));
                let got = pool(threads).install(|| [dealt_out(usize::MAX), dealt_out(0)]);
                for got in got {
                    assert_eq!(bits(&got), bits(&want), "{} on {threads} threads, {tasks}", case.name);
                }
            }
            let case = case.with_scalars(1.5, 0.0);
            let streamed = pool(threads).install(|| product_streaming::<f32, f32>(Unit::best(), &case, 0));
            assert_eq!(bits(&streamed), bits(&product::<f32, f32>(Unit::best(), &case)), "{}", case.name);
        }
        // Units that fuse agree with each other; the portable one may not fuse.
        for unit in units().into_iter().filter(|&unit| unit.exists() && unit != Unit::Portable) {
            assert_eq!(bits(&product::<f32, f32>(unit, &case)), bits(&want), "{} on {unit:?}", case.name);
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn rounding_b_keeps_rows_and_drops_padding() {
    let data = [1.0, 1.0 + 1.0 / 2048.0, f32::NAN, 3.0, 70_000.0];
    let b = DenseRef::try_new(&data, 2, 2, 3).unwrap();
    assert_eq!(rounded::<_, f16>(b).unwrap(), [1.0, 1.0, 3.0, f32::INFINITY].map(f16::from_f32));
    assert!(rounded::<f32, f16>(DenseRef::try_new(&[], 3, 0, 0).unwrap()).unwrap().is_empty());
    let many: Vec<f32> = (0..u16::MAX).map(f32::from).collect();
    let b = DenseRef::packed(&many, many.len() / 8, 8).unwrap();
    assert_eq!(
        rounded::<_, f16>(b).unwrap(),
        many[..b.rows() * 8].iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()
    );
}

#[test]
fn what_f16_cannot_hold_stays_finite_in_bf16() {
    let data = [70_000.0, -1e38, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN, 1.0 + 1.0 / 256.0];
    let rounded = rounded::<_, bf16>(DenseRef::packed(&data, 2, 3).unwrap()).unwrap();
    let want = [70_144.0, -9.969_21e37, f32::MIN_POSITIVE, f32::INFINITY];
    assert_eq!(rounded[..4].iter().map(|x| x.to_f32()).collect::<Vec<_>>(), want);
    assert!(rounded[4].is_nan());
    assert_eq!(rounded[5], bf16::ONE, "a tie goes to even");
}

/// All patterns of the tables with f64 on all units, against exact sums.
#[test]
fn f64_operands() {
    let mut rng = SplitMix64::new(64);
    for unit in units().into_iter().filter(|unit| unit.exists()) {
        for case in edge_cases().into_iter().chain(shape_cases()) {
            let exact = ExactCase::of(&case.a, case.n, &mut rng);
            for (alpha, beta) in [(1.0, 0.0), (-2.0, 4.0)] {
                for stream_bytes in [0, usize::MAX] {
                    let mut c = if beta == 0.0 { vec![f64::NAN; exact.c.len()] } else { exact.c.clone() };
                    let b = DenseRef::packed(&exact.b, exact.a.cols(), exact.n).unwrap();
                    let view = DenseMut::packed(&mut c, exact.a.rows(), exact.n).unwrap();
                    let mut product = Product::new(&exact.a, (alpha, b), (beta, view));
                    product.stream_bytes = stream_bytes;
                    run(unit, &product, CpuTasks::default());
                    exact.assert_matches(&format!("{} on {unit:?}", case.name), (alpha, beta), &c);
                }
            }
        }
    }
}

#[test]
fn replaced_values_are_used() {
    let pattern = Pattern::random(20, 30, 9, &mut SplitMix64::new(3));
    let case = large("values", &pattern, 21).with_scalars(1.0, 0.0);
    let mut a = CpuCsr::new(case.a.clone(), Precision::F32);
    let doubled: Vec<f32> = case.a.values().iter().map(|x| 2.0 * x).collect();
    assert!(a.replace_values(doubled[1..].to_vec()).is_err());
    a.replace_values(doubled).unwrap();
    assert_eq!(a.matrix().col_indices(), case.a.col_indices());
    let multiply = |a: &CpuCsr<f32>, alpha: f32| {
        let mut c = case.c.clone();
        let b = DenseRef::try_new(&case.b, case.k(), case.n, case.ldb).unwrap();
        let view = DenseMut::try_new(&mut c, case.m(), case.n, case.ldc).unwrap();
        spmm(a, alpha, b, 0.0, view);
        c
    };
    let once = CpuCsr::new(case.a.clone(), Precision::F32);
    assert_eq!(bits(&multiply(&a, 1.0)), bits(&multiply(&once, 2.0)));
    assert_ne!(bits(&multiply(&a, 1.0)), bits(&multiply(&once, 1.0)));
}

#[test]
fn new_values_leave_the_indices_where_they_are() {
    let given = Pattern::random(40, 30, 9, &mut SplitMix64::new(5))
        .with_values(Values::Reals, &mut SplitMix64::new(6));
    let indices = |csr: &Csr<f32>| (csr.row_offsets().as_ptr(), csr.col_indices().as_ptr());
    let mut a = CpuCsr::new(given.with_values(given.values().to_vec()).unwrap(), Precision::F32);
    assert_eq!(indices(a.matrix()), indices(&given), "the caller's own");
    for round in 0..3 {
        let values = vec![round as f32; given.nnz()];
        a.replace_values(values.clone()).unwrap();
        assert_eq!((indices(a.matrix()), a.matrix().values()), (indices(&given), &values[..]));
    }
    // A plan outlives the matrix that it was made from.
    let at = indices(&given);
    drop(given);
    a.replace_values(vec![1.0; a.matrix().nnz()]).unwrap();
    assert_eq!(indices(a.matrix()), at);
}

#[test]
#[should_panic(expected = "B is k x n")]
fn operands_of_the_wrong_size_are_refused() {
    let a = CpuCsr::new(Csr::identity(3).unwrap(), Precision::F32);
    let (b, mut c) = ([0.0f32; 8], [0.0f32; 6]);
    spmm(&a, 1.0, DenseRef::packed(&b, 4, 2).unwrap(), 0.0, DenseMut::packed(&mut c, 3, 2).unwrap());
}

proptest! {
    #[test]
    fn random_products(seed: u64) {
        let case = random_case(seed);
        for unit in units().into_iter().filter(|unit| unit.exists()) {
            assert_matches(&case, &product::<f32, f32>(unit, &case), case.ldc, UNIT_FMA);
            let halves = case.rounded_to::<f16>();
            assert_matches(&halves, &product::<f16, f16>(unit, &halves), case.ldc, UNIT_FMA);
        }
    }

    #[test]
    fn areas_cover_c_once(
        lengths in prop::collection::vec(prop_oneof![9 => 0..50u64, 1 => 0..20_000u64], 0..60),
        n in 0..300usize,
        threads in 1..20usize,
        ranges_per_thread in 0..9u32,
        tile_columns in prop::option::of(0..80usize),
    ) {
        let tasks = CpuTasks { ranges_per_thread, tile_columns };
        let ends: Vec<u64> = std::iter::once(0).chain(lengths.iter().scan(0, |sum, len| { *sum += len; Some(*sum) })).collect();
        let mut covered = vec![0u8; lengths.len() * n];
        let areas = deal_out(&ends, n, threads, tasks);
        for Area { rows, columns } in (0..areas.len()).map(|at| areas.get(at)) {
            for row in rows {
                for at in &mut covered[row * n..][columns.clone()] {
                    *at += 1;
                }
            }
        }
        prop_assert!(covered.iter().all(|&times| times == 1));
    }
}
