//! Every case of the tables on every vector unit and several numbers of threads.

use proptest::prelude::*;
use windrow_testkit::{
    Case, Output, Pattern, SplitMix64, Tally, UNIT_FMA, Values, assert_matches, edge_cases, non_finite_cases,
    random_case, shape_cases, value_cases,
};

use super::*;

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
fn product<B: Storage, C: Storage>(unit: Unit, case: &Case) -> Vec<C> {
    product_streaming::<B, C>(unit, case, usize::MAX)
}

/// The same, with a result of `stream_bytes` or more written past the caches.
fn product_streaming<B: Storage, C: Storage>(unit: Unit, case: &Case, stream_bytes: usize) -> Vec<C> {
    let b: Vec<B> = case.b.iter().map(|&x| B::from_f32(x)).collect();
    let mut c: Vec<C> = case.c.iter().map(|&x| C::from_f32(x)).collect();
    let b = DenseRef::try_new(&b, case.k(), case.n, case.ldb).unwrap();
    let view = DenseMut::try_new(&mut c, case.m(), case.n, case.ldc).unwrap();
    let mut product = Product::new(&case.a, (case.alpha, b), (case.beta, view));
    product.stream_bytes = stream_bytes;
    run(unit, &product);
    c
}

/// All cases on all units, each result compared with the reference.
fn check<B: Storage, C: Storage + Output>(what: &str) {
    for unit in units() {
        let mut tally = Tally::new(format!("CPU {what} on {unit:?}"));
        if !unit.exists() {
            eprintln!("CPU {what} on {unit:?}: skipped, this machine does not have it");
            continue;
        }
        for case in cases() {
            let case = case.rounded_to::<B>();
            // C keeps its own precision unless it is stored in halves.
            let case = if C::NAME == B::NAME { case } else { case.rounded_to::<C>() };
            for stream_bytes in [0, usize::MAX] {
                let got: Vec<C> = product_streaming::<B, C>(unit, &case, stream_bytes);
                tally.ran(&assert_matches(&case, &got, case.ldc, UNIT_FMA));
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

#[test]
fn threads_and_units_give_the_same_bits() {
    for case in large_cases() {
        let want = pool(1).install(|| product::<f32, f32>(Unit::best(), &case));
        assert_matches(&case, &want, case.ldc, UNIT_FMA);
        for threads in [2, 3, 8] {
            let areas = deal_out(case.a.row_offsets(), case.n, threads);
            assert!(areas.len() > 1, "{}: {threads} threads have nothing to share", case.name);
            let got = pool(threads).install(|| product::<f32, f32>(Unit::best(), &case));
            assert_eq!(bits(&got), bits(&want), "{} on {threads} threads", case.name);
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
    assert_eq!(to_f16(b), [1.0, 1.0, 3.0, f32::INFINITY].map(f16::from_f32));
    assert_eq!(to_f16(DenseRef::try_new(&[], 3, 0, 0).unwrap()), []);
    let many: Vec<f32> = (0..u16::MAX).map(f32::from).collect();
    let b = DenseRef::packed(&many, many.len() / 8, 8).unwrap();
    assert_eq!(to_f16(b), many[..b.rows() * 8].iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
}

#[test]
fn replaced_values_are_used() {
    let pattern = Pattern::random(20, 30, 9, &mut SplitMix64::new(3));
    let case = large("values", &pattern, 21).with_scalars(1.0, 0.0);
    let mut a = CpuCsr::new(case.a.clone());
    let doubled: Vec<f32> = case.a.values().iter().map(|x| 2.0 * x).collect();
    assert!(a.replace_values(doubled[1..].to_vec()).is_err());
    a.replace_values(doubled).unwrap();
    assert_eq!(a.matrix().col_indices(), case.a.col_indices());
    let multiply = |a: &CpuCsr, alpha: f32| {
        let mut c = case.c.clone();
        let b = DenseRef::try_new(&case.b, case.k(), case.n, case.ldb).unwrap();
        let view = DenseMut::try_new(&mut c, case.m(), case.n, case.ldc).unwrap();
        spmm(a, alpha, b, 0.0, view);
        c
    };
    let once = CpuCsr::new(case.a.clone());
    assert_eq!(bits(&multiply(&a, 1.0)), bits(&multiply(&once, 2.0)));
    assert_ne!(bits(&multiply(&a, 1.0)), bits(&multiply(&once, 1.0)));
}

#[test]
#[should_panic(expected = "B is k x n")]
fn operands_of_the_wrong_size_are_refused() {
    let a = CpuCsr::new(Csr::identity(3).unwrap());
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
    ) {
        let ends: Vec<u64> = std::iter::once(0).chain(lengths.iter().scan(0, |sum, len| { *sum += len; Some(*sum) })).collect();
        let mut covered = vec![0u8; lengths.len() * n];
        for Area { rows, columns } in deal_out(&ends, n, threads) {
            for row in rows {
                for at in &mut covered[row * n..][columns.clone()] {
                    *at += 1;
                }
            }
        }
        prop_assert!(covered.iter().all(|&times| times == 1));
    }
}
