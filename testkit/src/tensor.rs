//! Products of sparse tensors of three modes: cases, and the naive results in f64.

use std::collections::BTreeMap;

use half::f16;
use windrow_formats::Coo3;
use windrow_formats::synthetic::seeded_power_law_tensor;

use crate::compare::{compare_elements, exact_ratio, ratio};
use crate::{Comparison, Output, SplitMix64, UNIT_FMA, Values, error_bound};

/// A tensor and a dense matrix for each of its modes, of which a product takes those that it needs.
#[derive(Debug, Clone)]
pub struct TensorCase {
    /// What it is, for messages.
    pub name: String,
    /// The tensor, in any order, duplicates allowed.
    pub tensor: Coo3<f32>,
    /// Columns of the matrices.
    pub n: usize,
    /// For mode `m` a matrix of `dims[m]` × n, row after row. Rows that no entry refers to are not numbers.
    pub factors: [Vec<f32>; 3],
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what the result held.
    pub beta: f32,
    /// Whether every sum is exact in f32.
    pub exact: bool,
}

/// What a [`TensorCase`] must give, row after row without padding.
#[derive(Debug, Clone)]
pub struct TensorReference {
    /// The product in f64, and `β` times what the result held unless β = 0.
    pub want: Vec<f64>,
    /// `|α|·Σ|terms| + |β·y|`: what the error is measured against.
    pub abs_sum: Vec<f64>,
    /// Roundings of a term and of the sum, by row.
    pub roundings: Vec<usize>,
}

impl TensorCase {
    /// A case of a tensor whose values are replaced. `at` decides width and scalars.
    fn new(name: &str, tensor: &Coo3<f32>, (at, values): (usize, Values), rng: &mut SplitMix64) -> Self {
        const WIDTHS: [usize; 8] = [8, 1, 4, 3, 16, 5, 33, 2];
        const SCALARS: [(f32, f32); 3] = [(1.0, 0.0), (2.0, 0.0), (-1.0, 2.0)];
        let (n, dims) = (WIDTHS[at % 8], tensor.dims());
        let entries: Vec<_> = tensor.entries().map(|(index, _)| (index, values.next(rng))).collect();
        let tensor = Coo3::from_entries(dims, entries).expect("places are those of a tensor");
        let factors = [0, 1, 2].map(|mode| {
            let mut factor = vec![f32::NAN; dims[mode] * n];
            for &row in tensor.indices(mode) {
                factor[row as usize * n..][..n].fill_with(|| values.next(rng));
            }
            factor
        });
        let (alpha, beta) = SCALARS[at % 3];
        let exact = values == Values::Integers;
        Self { name: format!("{name}, {n} columns"), tensor, n, factors, alpha, beta, exact }
    }

    /// What a result of `rows` rows holds before: numbers if they are read.
    pub fn initial(&self, rows: usize) -> Vec<f32> {
        let number = |i: usize| f32::from(u8::try_from(i % 9).unwrap_or(0)) - 4.0;
        (0..rows * self.n).map(|i| if self.beta == 0.0 { f32::NAN } else { number(i) }).collect()
    }

    /// The case with values and matrices rounded to f16.
    ///
    /// # Panics
    /// Never: the places are those of a tensor.
    pub fn rounded_to_halves(&self) -> Self {
        let round = |x: f32| f16::from_f32(x).to_f32();
        let entries = self.tensor.entries().map(|(index, value)| (index, round(value)));
        let tensor = Coo3::from_entries(self.tensor.dims(), entries).expect("the same places");
        let factors = self.factors.clone().map(|factor| factor.into_iter().map(round).collect());
        Self { tensor, factors, ..self.clone() }
    }

    /// MTTKRP for the first mode of `order`: `Y[i,:] ← α·Σ A[i,k,l]·(B[k,:] ⊙ C[l,:]) + β·Y[i,:]`.
    pub fn mttkrp(&self, order: [usize; 3]) -> TensorReference {
        let [of_rows, first, second] = order;
        let places: BTreeMap<_, _> = (0..self.tensor.dims()[of_rows]).map(|row| (row, row)).collect();
        // Of three numbers there is one product more than of two.
        self.sum(&places, 1, |index| {
            (index[of_rows] as usize, [first, second].map(|m| (m, index[m] as usize)))
        })
    }

    /// TTM for the last mode of `order`: a row for each fiber of the other two, in their order.
    pub fn ttm(&self, order: [usize; 3]) -> TensorReference {
        let [i, j, of_rows] = order;
        let fibers: std::collections::BTreeSet<_> =
            self.tensor.entries().map(|(index, _)| [index[i], index[j]]).collect();
        let places = fibers.into_iter().enumerate().map(|(row, fiber)| (fiber, row)).collect();
        self.sum(&places, 0, |index| ([index[i], index[j]], [(of_rows, index[of_rows] as usize); 1]))
    }

    /// Sums the products of each entry with its rows of the factors, to the row that its place has.
    fn sum<P: Ord, const F: usize>(
        &self,
        places: &BTreeMap<P, usize>,
        more: usize,
        of: impl Fn([u32; 3]) -> (P, [(usize, usize); F]),
    ) -> TensorReference {
        let (n, rows) = (self.n, places.len());
        let (mut want, mut abs_sum, mut roundings) =
            (vec![0.0; rows * n], vec![0.0; rows * n], vec![more; rows]);
        for (index, value) in self.tensor.entries() {
            let (place, factors) = of(index);
            let row = places[&place];
            roundings[row] += 1;
            for column in 0..n {
                let product: f64 = factors
                    .iter()
                    .map(|&(mode, row)| f64::from(self.factors[mode][row * n + column]))
                    .product();
                let term = f64::from(self.alpha) * f64::from(value) * product;
                want[row * n + column] += term;
                abs_sum[row * n + column] += term.abs();
            }
        }
        if self.beta != 0.0 {
            for (at, old) in self.initial(rows).into_iter().enumerate() {
                let old = f64::from(self.beta) * f64::from(old);
                (want[at], abs_sum[at]) = (want[at] + old, abs_sum[at] + old.abs());
            }
        }
        TensorReference { want, abs_sum, roundings }
    }

    /// Compares a result of leading dimension `ld`, whose padding must hold [`PADDING_MARK`](crate::PADDING_MARK),
    /// with a reference of this case.
    ///
    /// # Panics
    /// If anything differs, with the case's name and the worst element.
    #[track_caller]
    pub fn assert_matches<V: Output>(&self, reference: &TensorReference, got: &[V], ld: usize) -> Comparison {
        let (rows, n) = (reference.roundings.len(), self.n);
        let comparison = compare_elements((rows, n), (got, ld), Some(ld), |row, column, element: V| {
            let (want, abs_sum) = (reference.want[row * n + column], reference.abs_sum[row * n + column]);
            let ratio = match self.exact {
                true => exact_ratio(element, want),
                false => {
                    let bound = error_bound::<V>(want, abs_sum, reference.roundings[row], UNIT_FMA);
                    ratio::<V>(element.to_f64(), want, bound)
                }
            };
            (ratio, want)
        });
        assert!(comparison.passed(), "{}: {comparison}", self.name);
        comparison
    }
}

/// Tensors that are small enough to emulate, each with something of its own, with integers and with reals.
///
/// # Panics
/// Never: the tensors are valid.
pub fn tensor_cases() -> Vec<TensorCase> {
    let mut rng = SplitMix64::new(0x7e_4502);
    let listed = |dims, places: &[[u32; 3]]| {
        let entries = places.iter().map(|&index| (index, 1.0));
        Coo3::<f32>::from_entries(dims, entries).expect("places are inside")
    };
    let power_law = |dims, draws, exponents| {
        seeded_power_law_tensor::<f32>(dims, draws, exponents, 5).expect("small, and exponents are finite")
    };
    let slice: Vec<_> = (0..900u32).map(|e| [1, e / 30, e % 30]).collect();
    let fiber: Vec<_> = (0..200u32).map(|e| [2, 3, e]).collect();
    let diagonal: Vec<_> = (0..70u32).map(|e| [e, e % 9, e % 11]).collect();
    let with_gaps: Vec<_> = (0..120u32).map(|e| [40 * (e / 60) + 3, e % 60 / 12, e % 12]).collect();
    let twice: Vec<_> = (0..90u32).map(|e| [e % 5, e % 3, e % 2]).collect();
    let tensors = [
        ("nothing at all", listed([0, 0, 0], &[])),
        ("no rows of one factor", listed([3, 0, 4], &[])),
        ("no entries", listed([5, 4, 3], &[])),
        ("one entry", listed([3, 3, 3], &[[2, 0, 1]])),
        ("one slice has all", listed([3, 30, 30], &slice)),
        ("one fiber has all", listed([4, 5, 200], &fiber)),
        ("an entry in each slice", listed([70, 9, 11], &diagonal)),
        ("empty slices between", listed([90, 5, 12], &with_gaps)),
        ("duplicates", listed([5, 3, 2], &twice)),
        ("uniform", power_law([37, 20, 25], 1100, [0.0; 3])),
        ("power law", power_law([60, 45, 50], 1500, [1.1, 0.7, 0.9])),
    ];
    let mut cases = Vec::new();
    for (at, (name, tensor)) in tensors.iter().enumerate() {
        cases.push(TensorCase::new(name, tensor, (at, Values::Integers), &mut rng));
        // Duplicates are summed in f32 before they are multiplied, which reals do not survive unrounded.
        if *name != "duplicates" {
            let name = format!("{name}, reals");
            cases.push(TensorCase::new(&name, tensor, (at + 4, Values::Reals), &mut rng));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_taken_by_hand_once() {
        let tensor = Coo3::from_entries([2, 2, 2], [([0, 1, 0], 3.0), ([0, 1, 1], 4.0), ([1, 0, 1], 5.0)]);
        let case = TensorCase {
            name: "by hand".to_owned(),
            tensor: tensor.unwrap(),
            n: 1,
            factors: [vec![9.0, 9.0], vec![2.0, 10.0], vec![1.0, 7.0]],
            alpha: 1.0,
            beta: 0.0,
            exact: true,
        };
        let reference = case.mttkrp([0, 1, 2]);
        assert_eq!((reference.want, reference.roundings), (vec![310.0, 70.0], vec![3, 2]));
        assert_eq!(case.mttkrp([2, 0, 1]).want, [270.0, 450.0]);
        let reference = case.ttm([0, 1, 2]);
        assert_eq!((reference.want, reference.roundings), (vec![31.0, 35.0], vec![2, 1]));
        assert_eq!(case.ttm([2, 1, 0]).want, [27.0, 45.0, 36.0], "fibers (0, 1), (1, 0) and (1, 1)");
        let kept = TensorCase { beta: 2.0, ..case };
        assert_eq!(kept.initial(2), [-4.0, -3.0]);
        assert_eq!(kept.ttm([0, 1, 2]).want, [23.0, 29.0]);
    }

    #[test]
    fn references_are_finite_and_exact_ones_exact() {
        let cases = tensor_cases();
        assert!(cases.iter().any(|case| case.factors[1].iter().any(|x| x.is_nan())), "rows without entries");
        for case in cases {
            for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
                for reference in [case.mttkrp(order), case.ttm(order)] {
                    assert!(reference.want.iter().all(|x| x.is_finite()), "{}", case.name);
                    let fits = reference.abs_sum.iter().all(|&x| x < 16_777_216.0);
                    assert!(fits || !case.exact, "{}", case.name);
                }
            }
        }
    }
}
