//! The tables of cases, and cases from a seed.

mod edge;
mod shape;
mod value;

pub use edge::{edge_cases, edge_patterns, non_finite_cases};
pub use shape::{random_case, shape_cases};
pub use value::value_cases;

/// Widths around what kernels handle at once: vectors of 4 and 8, warps of 32, slices of 64 to 256.
pub const WIDTHS: [usize; 17] = [1, 2, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 130, 256, 257];

/// Pairs `(α, β)` that keep whole numbers exact; with and without reading `C`.
pub const SCALARS: [(f32, f32); 5] = [(1.0, 0.0), (1.0, 1.0), (-2.0, 0.0), (0.5, -1.0), (0.0, 2.0)];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{Case, spmm};

    fn all() -> Vec<Case> {
        edge_cases().into_iter().chain(shape_cases()).chain(value_cases()).chain(non_finite_cases()).collect()
    }

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for case in all() {
            assert!(seen.insert(case.name.clone()), "twice: {}", case.name);
        }
    }

    #[test]
    fn tables_cover_what_they_promise() {
        let cases = all();
        for n in WIDTHS {
            for padding in [0, 3] {
                let here = cases.iter().filter(|case| case.n == n && case.ldb == n + padding);
                let [exact, reals]: [usize; 2] =
                    here.fold([0, 0], |[e, r], case| if case.exact { [e + 1, r] } else { [e, r + 1] });
                assert!(exact > 0 && reals > 0, "n = {n}, padding {padding}: {exact} exact, {reals} reals");
            }
        }
        let any = |what: &str, holds: &dyn Fn(&Case) -> bool| {
            assert!(cases.iter().any(holds), "no case with {what}")
        };
        any("0 x 0", &|case| case.m() == 0 && case.k() == 0);
        any("m = 0", &|case| case.m() == 0 && case.k() > 0);
        any("k = 0", &|case| case.m() > 0 && case.k() == 0);
        any("n = 0", &|case| case.m() > 0 && case.n == 0);
        any("no entries", &|case| case.m() > 0 && case.k() > 0 && case.a.nnz() == 0);
        any("explicit zeros", &|case| case.a.values().contains(&0.0));
        any("poison", &|case| case.b.iter().any(|x| x.is_infinite()));
        any("C as NaN", &|case| case.beta == 0.0 && case.c.iter().any(|x| x.is_nan()));
        any("a row beyond any split limit", &|case| (0..case.m()).any(|r| case.a.row_len(r) > 1024));
        for alignment in 0..8 {
            any("each alignment of row starts", &|case| {
                case.a.row_offsets().iter().any(|o| o % 8 == alignment)
            });
        }
    }

    #[test]
    fn exact_cases_are_exact_in_f32() {
        let tables = edge_cases().into_iter().chain(shape_cases());
        for case in tables.filter(|case| case.exact) {
            let reference = spmm(&case);
            for (&want, &abs_sum) in reference.want.iter().zip(&reference.abs_sum) {
                // Half of a whole number below 2^23 is an f32, and so is every partial sum.
                assert!(abs_sum < 4_194_304.0, "{}: {abs_sum}", case.name);
                assert_eq!(want * 2.0, (want * 2.0).round(), "{}", case.name);
            }
        }
    }

    #[test]
    fn references_are_finite_but_where_announced() {
        for case in edge_cases().into_iter().chain(shape_cases()).chain(value_cases()) {
            assert!(
                spmm(&case).want.iter().all(|x| x.is_finite()),
                "{}: poison reached the result",
                case.name
            );
        }
        let reached =
            non_finite_cases().iter().filter(|case| spmm(case).want.iter().any(|x| !x.is_finite())).count();
        assert_eq!(reached, non_finite_cases().len());
    }

    #[test]
    fn cases_are_the_same_every_time() {
        for (one, other) in all().iter().zip(all()) {
            assert!(one.a.bitwise_eq(&other.a) && one.name == other.name);
            assert!(one.b.iter().zip(&other.b).all(|(x, y)| x.to_bits() == y.to_bits()));
        }
        assert_eq!(random_case(5).a, random_case(5).a);
    }

    #[test]
    fn tables_stay_small_enough_to_emulate() {
        let cases = all();
        let work: usize = cases.iter().map(|case| (case.a.nnz() + case.m()) * case.n).sum();
        assert!(cases.len() < 700 && work < 60_000_000, "{} cases, {work} products", cases.len());
    }
}
