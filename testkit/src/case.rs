//! One product to check: operands, layout and scalars.

use windrow_formats::{Csr, Value};

use crate::{Pattern, SplitMix64, round_tf32};

/// What stands between the end of a row of `C` and its leading dimension, and must still stand there
/// after the product. Exact in every element type.
pub const PADDING_MARK: f32 = -1536.0;

/// What the elements of a case are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Whole numbers in −4..=4. Sums of up to 2²⁰ products are exact in f32, in any order.
    Integers,
    /// Numbers in −1..1 with 24 random bits.
    Reals,
}

impl Values {
    /// The next value from `rng`.
    pub fn next(self, rng: &mut SplitMix64) -> f32 {
        match self {
            Self::Integers => rng.integer(),
            Self::Reals => rng.real(),
        }
    }
}

/// Everything of a [`Case`] that is not the sparse matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operands {
    /// Columns of `B` and `C`.
    pub n: usize,
    /// `ldb − n` and `ldc − n`, in elements.
    pub padding: usize,
    /// The factors of the product and of what `C` holds: `(α, β)`.
    pub scalars: (f32, f32),
    /// What the elements of `B` and `C` are.
    pub values: Values,
    /// Whether rows of `B` to which `A` never refers are NaN, ∞ or −∞ throughout.
    pub poison: bool,
}

/// One product `C[m×n] ← α·A[m×k]·B[k×n] + β·C`, with all it needs.
///
/// `b` and `c` are row-major with leading dimensions `ldb`, `ldc ≥ n` and end with the last element of
/// their last row: `b` has `(k − 1)·ldb + n` elements, none if `k` or `n` is 0; `c` likewise with `m`.
/// Elements of `b` between a row's end and `ldb` are NaN, those of `c` are [`PADDING_MARK`]. If β = 0,
/// the elements of `c` are NaN, which must not be read.
#[derive(Debug, Clone)]
pub struct Case {
    /// What is particular about it, and its sizes; unique in a table.
    pub name: String,
    /// The sparse matrix, m × k.
    pub a: Csr<f32>,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Leading dimension of `b`, in elements.
    pub ldb: usize,
    /// Leading dimension of `c`, in elements.
    pub ldc: usize,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what `c` held.
    pub beta: f32,
    /// The dense matrix `B`, k × n.
    pub b: Vec<f32>,
    /// What `C` holds before, m × n.
    pub c: Vec<f32>,
    /// Whether every sum is exact in f32 in any order, so that the result must equal the reference
    /// (rounded once to the output type) and not just be near it.
    pub exact: bool,
}

impl Case {
    /// A case with this sparse matrix and the described dense operands, filled from `rng`.
    ///
    /// The sizes and scalars are appended to `name`. The case is exact if the operands are
    /// [`Values::Integers`]; the values of `a` must then be whole numbers in −4..=4 as well.
    pub fn new(name: &str, a: Csr<f32>, operands: Operands, rng: &mut SplitMix64) -> Self {
        let Operands { n, padding, scalars: (alpha, beta), values, poison } = operands;
        let (m, k, ld) = (a.rows(), a.cols(), n + padding);
        let mut b = row_major((k, n, ld), f32::NAN, || values.next(rng));
        if poison && n > 0 {
            for (i, row) in unreferenced_columns(&a).into_iter().enumerate() {
                b[row * ld..row * ld + n].fill([f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 3]);
            }
        }
        let c = row_major((m, n, ld), PADDING_MARK, || if beta == 0.0 { f32::NAN } else { values.next(rng) });
        let name = format!(
            "{name}: {m} x {k}, {} entries, n = {n}, ld = {ld}, alpha = {alpha}, beta = {beta}{}",
            a.nnz(),
            if poison { ", poisoned" } else { "" }
        );
        Self { name, a, n, ldb: ld, ldc: ld, alpha, beta, b, c, exact: values == Values::Integers }
    }

    /// The case with values for this pattern, of the kind that the operands have.
    pub fn from_pattern(name: &str, pattern: &Pattern, operands: Operands, rng: &mut SplitMix64) -> Self {
        let a = pattern.with_values(operands.values, rng);
        Self::new(name, a, operands, rng)
    }

    /// Rows of `A` and `C`.
    pub fn m(&self) -> usize {
        self.a.rows()
    }

    /// Columns of `A`, rows of `B`.
    pub fn k(&self) -> usize {
        self.a.cols()
    }

    /// `B` with leading dimension `n`.
    pub fn packed_b(&self) -> Vec<f32> {
        packed(&self.b, (self.k(), self.n, self.ldb))
    }

    /// `C` before the product, with leading dimension `n`.
    pub fn packed_c(&self) -> Vec<f32> {
        packed(&self.c, (self.m(), self.n, self.ldc))
    }

    /// The case with `A`, `B` and `C` rounded to `V`: what a path with elements of that type computes.
    ///
    /// Whole numbers in −4..=4 do not change, so exact cases stay exact.
    #[must_use]
    pub fn rounded_to<V: Value>(&self) -> Self {
        let round = |x: f32| V::from_f32(x).to_f32();
        Self {
            name: format!("{} [{}]", self.name, V::NAME),
            a: self.a.map_values(round),
            b: self.b.iter().copied().map(round).collect(),
            c: self.c.iter().copied().map(round).collect(),
            ..self.clone()
        }
    }

    /// The case with `A` and `B` rounded to tf32: what a path that multiplies f32 operands as tf32 computes. `C` is
    /// f32 and stays as it is.
    #[must_use]
    pub fn rounded_to_tf32(&self) -> Self {
        Self {
            name: format!("{} [tf32]", self.name),
            a: self.a.map_values(round_tf32),
            b: self.b.iter().copied().map(round_tf32).collect(),
            ..self.clone()
        }
    }

    /// The case with only what `C` holds rounded to `V`.
    #[must_use]
    pub fn with_c_rounded_to<V: Value>(&self) -> Self {
        Self { c: self.c.iter().map(|&x| V::from_f32(x).to_f32()).collect(), ..self.clone() }
    }

    /// The case with other scalars. `C` holds NaN afterwards if `beta` is 0, and ones if it was 0 before.
    #[must_use]
    pub fn with_scalars(&self, alpha: f32, beta: f32) -> Self {
        let fresh = match (self.beta == 0.0, beta == 0.0) {
            (true, false) => Some(1.0),
            (false, true) => Some(f32::NAN),
            _ => None,
        };
        let mut case =
            Self { alpha, beta, name: format!("{} -> ({alpha}, {beta})", self.name), ..self.clone() };
        if let Some(fresh) = fresh {
            case.c = row_major((self.m(), self.n, self.ldc), PADDING_MARK, || fresh);
        }
        case
    }
}

/// Columns of `a` without an entry, ascending.
fn unreferenced_columns(a: &Csr<f32>) -> Vec<usize> {
    let mut referenced = vec![false; a.cols()];
    for &col in a.col_indices() {
        referenced[col as usize] = true;
    }
    (0..a.cols()).filter(|&col| !referenced[col]).collect()
}

/// A row-major matrix of `(rows, cols, ld)` that ends with its last element, `padding` between rows.
pub(crate) fn row_major(
    (rows, cols, ld): (usize, usize, usize),
    padding: f32,
    mut element: impl FnMut() -> f32,
) -> Vec<f32> {
    if rows == 0 || cols == 0 {
        return Vec::new();
    }
    let len = (rows - 1) * ld + cols;
    (0..len).map(|at| if at % ld < cols { element() } else { padding }).collect()
}

/// The elements of a row-major matrix of `(rows, cols, ld)`, without padding.
fn packed(data: &[f32], (rows, cols, ld): (usize, usize, usize)) -> Vec<f32> {
    if cols == 0 {
        return Vec::new();
    }
    (0..rows).flat_map(|r| data[r * ld..r * ld + cols].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn operands(beta: f32) -> Operands {
        Operands { n: 3, padding: 2, scalars: (1.0, beta), values: Values::Integers, poison: true }
    }

    #[test]
    fn layout_padding_and_poison() {
        let pattern = Pattern { cols: 5, rows: vec![vec![0, 2], vec![2]] };
        let case = Case::from_pattern("layout", &pattern, operands(0.0), &mut SplitMix64::new(1));
        assert_eq!((case.b.len(), case.c.len()), (4 * 5 + 3, 5 + 3));
        assert!(case.b[3..5].iter().chain(&case.b[13..15]).all(|x| x.is_nan()), "padding of B");
        assert_eq!(case.c[3..5], [PADDING_MARK; 2]);
        assert!(case.packed_c().iter().all(|x| x.is_nan()), "C must not be read when beta is 0");
        let b = case.packed_b();
        assert_eq!(b.len(), 15);
        assert!(b[..3].iter().chain(&b[6..9]).all(|x| x.is_finite()), "referenced rows");
        assert!(b[3..6].iter().all(|x| x.is_nan()));
        assert_eq!(b[9..12], [f32::INFINITY; 3]);
        assert_eq!(b[12..15], [f32::NEG_INFINITY; 3]);
    }

    #[test]
    fn empty_operands_have_no_elements() {
        let mut rng = SplitMix64::new(1);
        for (m, k, n) in [(0, 0, 3), (0, 4, 3), (4, 0, 3), (4, 4, 0)] {
            let spec = Operands { n, ..operands(1.0) };
            let case = Case::from_pattern("empty", &Pattern::empty(m, k), spec, &mut rng);
            assert_eq!(case.b.is_empty(), k == 0 || n == 0);
            assert_eq!(case.c.is_empty(), m == 0 || n == 0);
            assert_eq!((case.packed_b().len(), case.packed_c().len()), (k * n, m * n));
        }
    }

    #[test]
    fn rounding_changes_reals_only() {
        let mut rng = SplitMix64::new(9);
        let pattern = Pattern::dense(4, 4);
        let whole = Case::from_pattern("w", &pattern, operands(1.0), &mut rng);
        assert_eq!(whole.rounded_to::<f16>().packed_b(), whole.packed_b());
        assert_eq!(whole.rounded_to::<f16>().a, whole.a);
        let spec = Operands { values: Values::Reals, ..operands(1.0) };
        let reals = Case::from_pattern("r", &pattern, spec, &mut rng);
        let rounded = reals.rounded_to::<f16>();
        assert_ne!(rounded.packed_b(), reals.packed_b());
        assert!(rounded.packed_b().iter().all(|&x| f16::from_f32(x).to_f32() == x));
        let rounded = reals.rounded_to_tf32();
        assert_eq!(whole.rounded_to_tf32().packed_b(), whole.packed_b());
        assert!(rounded.packed_b().iter().all(|&x| x.to_bits() & 0x1fff == 0));
        assert!(rounded.a != reals.a && rounded.packed_b() != reals.packed_b());
        assert_eq!(rounded.packed_c(), reals.packed_c());
        let rounded = reals.with_c_rounded_to::<f16>();
        assert_eq!((&rounded.a, rounded.packed_b()), (&reals.a, reals.packed_b()));
        assert!(rounded.packed_c().iter().all(|&x| f16::from_f32(x).to_f32() == x));
        assert_ne!(rounded.packed_c(), reals.packed_c());
    }

    #[test]
    fn scalars_refill_c() {
        let case = Case::from_pattern("s", &Pattern::dense(2, 2), operands(0.0), &mut SplitMix64::new(2));
        assert_eq!(case.with_scalars(2.0, 1.0).packed_c(), [1.0; 6]);
        assert!(case.with_scalars(2.0, 1.0).with_scalars(1.0, 0.0).packed_c().iter().all(|x| x.is_nan()));
    }
}
