//! The naive product in f64 that everything is compared with.

use crate::Case;

/// What a [`Case`] must give, row-major m × n without padding.
#[derive(Debug, Clone)]
pub struct Reference {
    /// `α·Σ a·b + β·c` in f64; without the last term if β = 0.
    pub want: Vec<f64>,
    /// `|α|·Σ|a·b| + |β·c|`: what the error is measured against.
    pub abs_sum: Vec<f64>,
}

/// `C ← α·A·B + β·C` of the case in f64, one element after the other, entries in order.
///
/// Products of two f32 are exact in f64, and the at most `len` additions of a row are off by no more
/// than `len·2⁻⁵³·abs_sum`, far inside any bound for f32. For an exact case the result is exact.
pub fn spmm(case: &Case) -> Reference {
    let (alpha, beta) = (f64::from(case.alpha), f64::from(case.beta));
    let mut want = Vec::with_capacity(case.m() * case.n);
    let mut abs_sum = Vec::with_capacity(case.m() * case.n);
    for (r, (cols, values)) in case.a.rows_iter().enumerate() {
        for j in 0..case.n {
            let (mut sum, mut abs) = (0.0, 0.0);
            for (&col, &value) in cols.iter().zip(values) {
                let product = f64::from(value) * f64::from(case.b[col as usize * case.ldb + j]);
                sum += product;
                abs += product.abs();
            }
            let old = if case.beta == 0.0 { 0.0 } else { beta * f64::from(case.c[r * case.ldc + j]) };
            want.push(alpha * sum + old);
            abs_sum.push(alpha.abs() * abs + old.abs());
        }
    }
    Reference { want, abs_sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SplitMix64, edge_cases, random_case, value_cases};

    /// The same product through a dense `A`: another loop order, another way to find the entries.
    fn dense_product(case: &Case) -> Vec<f64> {
        let (m, k, n) = (case.m(), case.k(), case.n);
        let mut a = vec![0.0; m * k];
        for r in 0..m {
            let range = case.a.row_range(r);
            for e in range {
                a[r * k + case.a.col_indices()[e] as usize] = f64::from(case.a.values()[e]);
            }
        }
        let (b, c) = (case.packed_b(), case.packed_c());
        let mut out: Vec<f64> = vec![0.0; m * n];
        for p in 0..k {
            for i in 0..m {
                for j in 0..n {
                    // A place that is not an entry is no term at all, whatever B holds there.
                    if a[i * k + p] != 0.0 {
                        out[i * n + j] += a[i * k + p] * f64::from(b[p * n + j]);
                    }
                }
            }
        }
        for (out, c) in out.iter_mut().zip(c) {
            *out = f64::from(case.alpha) * *out
                + if case.beta == 0.0 { 0.0 } else { f64::from(case.beta) * f64::from(c) };
        }
        out
    }

    #[test]
    fn agrees_with_a_dense_product() {
        let mut rng = SplitMix64::new(77);
        let tables = edge_cases().into_iter().chain(value_cases());
        let small = tables.filter(|case| case.m() * case.k() * case.n < 100_000);
        let mut compared = 0;
        for case in small.chain((0..60).map(|_| random_case(rng.next_u64()))) {
            let (naive, dense) = (spmm(&case), dense_product(&case));
            assert_eq!(naive.want.len(), case.m() * case.n);
            for ((want, dense), abs_sum) in naive.want.iter().zip(dense).zip(&naive.abs_sum) {
                let error = (want - dense).abs();
                assert!(error <= 1e-13 * abs_sum, "{}: {want} and {dense}", case.name);
                compared += 1;
            }
        }
        assert!(compared > 10_000, "{compared} elements");
    }

    #[test]
    fn sums_are_taken_by_hand_once() {
        use crate::{Operands, Pattern, Values};
        let pattern = Pattern { cols: 3, rows: vec![vec![0, 2], vec![]] };
        let operands =
            Operands { n: 2, padding: 1, scalars: (2.0, -1.0), values: Values::Integers, poison: false };
        let mut case =
            Case::new("by hand", pattern.with_data(vec![3.0, -4.0]), operands, &mut SplitMix64::new(0));
        case.b.copy_from_slice(&[1.0, 2.0, 99.0, 99.0, 99.0, 99.0, 3.0, -1.0]);
        case.c.copy_from_slice(&[4.0, 1.0, 99.0, -2.0, 0.0]);
        let reference = spmm(&case);
        // Row 0: 2·(3·1 − 4·3) − 4 = −22 and 2·(3·2 + 4·1) − 1 = 19; row 1: −C.
        assert_eq!(reference.want, [-22.0, 19.0, 2.0, 0.0]);
        assert_eq!(reference.abs_sum, [34.0, 21.0, 2.0, 0.0]);
    }
}
