//! Checks an MTTKRP against a reference of twice f64's precision, element by element.

use std::ops::Range;

use windrow_formats::memory::try_filled;
use windrow_formats::{Csf3, Value};

use super::plan::MttkrpPlan;
use super::slices::level_dims;
use crate::dense::DenseRef;
use crate::element::{Element, is_narrow};
use crate::error::{PlanError, TensorError};
use crate::matrix::DeviceMatrix;
use crate::num::{real, wide};
use crate::plan::{
    Bits, Double, SUMMED_AT_ONCE, Storing, Verification, all_parts, column_blocks, gamma, multiplied,
    ratio_to, subnormal_error, unit_of,
};

impl MttkrpPlan {
    /// Compares `y` with `A·(B ⊙ C)`, summed with twice f64's precision (α = 1, β = 0), every element, on the host's
    /// threads.
    ///
    /// `a` is the tensor that the plan was built from, with its current values. An element passes if
    ///
    /// ```text
    /// |Y − want| ≤ γ(len + 3)·Σ|a·b·c| + u_out·|want| + tiny,   γ(t) = t·u / (1 − t·u)
    /// ```
    ///
    /// with values and factors as the plan rounds them, `len` the entries of its slice, `u = 2⁻²⁴` (f64: `2⁻⁵³`), and
    /// `u_out`, `tiny` for a `Y` of 16 bits and for products below f32's normal numbers. Factors and result are copied
    /// from the device.
    ///
    /// # Errors
    /// - [`PlanError::OtherMatrix`] if `a` has not the plan's sizes;
    /// - those of [`run_into`](Self::run_into).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, DenseRef, Device, DeviceMatrix, Mttkrp};
    ///
    /// let device = Device::best()?;
    /// let tensor = Coo3::from_entries([2, 2, 2], [([0, 1, 0], 3.0f32), ([0, 1, 1], 4.0)])?.to_csf([0, 1, 2])?;
    /// let plan = Mttkrp::builder(&tensor).width(1).build(&device)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0], 2, 1)?)?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// assert!(!plan.verify(&tensor, [&b, &b], &y)?.passed()); // not computed yet
    /// plan.run_into(1.0, [&b, &b], 0.0, &mut y)?;
    /// assert!(plan.verify(&tensor, [&b, &b], &y)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<V: Value, T: Element, O: Element>(
        &self,
        a: &Csf3<V>,
        [b, c]: [&DeviceMatrix<T>; 2],
        y: &DeviceMatrix<O>,
    ) -> Result<Verification, TensorError> {
        let [rows, b_rows, c_rows] = level_dims(a);
        if ([rows, b_rows, c_rows], a.nnz()) != (self.dims, self.nnz) {
            let [plan_rows, plan_b, plan_c] = self.dims;
            return Err(PlanError::OtherMatrix {
                rows,
                cols: b_rows.saturating_mul(c_rows),
                nnz: a.nnz(),
                plan_rows,
                plan_cols: plan_b.saturating_mul(plan_c),
                plan_nnz: self.nnz,
            }
            .into());
        }
        self.check_operands([b.view(), c.view()], y.view())?;
        let n = y.cols();
        let (b, c, y) = (multiplied(self.precision, b)?, multiplied(self.precision, c)?, y.download()?);
        let factors = [DenseRef::packed(&b, b_rows, n)?, DenseRef::packed(&c, c_rows, n)?];
        let y = DenseRef::packed(&y, rows, n)?;
        let values = Bits::of(self.precision, a.values())?.numbers::<f64>()?;
        let mut root_of = try_filled(rows, None, "the root of each row")?;
        for (root, &row) in a.root_indices().iter().enumerate() {
            root_of[row as usize] = Some(root);
        }
        let slice = |row: usize| {
            let of_block = |columns: Range<usize>| {
                let sums = root_of[row].map(|root| Sums::of(a, &values, root, factors, &columns));
                sums.unwrap_or_default().compare(
                    (row, columns.start),
                    unit_of(self.precision),
                    &y.row(row)[columns],
                )
            };
            Ok(column_blocks(n).map(of_block).reduce(Verification::and).unwrap_or(Verification::NOTHING))
        };
        Ok(all_parts(rows, &slice)?)
    }
}

/// The reference of a slice, some columns of it; of one without entries, zeros.
struct Sums {
    want: [Double; SUMMED_AT_ONCE],
    /// Sums of absolute values.
    scale: [f64; SUMMED_AT_ONCE],
    /// Sum of the absolute values of the tensor.
    values: f64,
    entries: usize,
}

impl Default for Sums {
    fn default() -> Self {
        let want = [Double::default(); SUMMED_AT_ONCE];
        Self { want, scale: [0.0; SUMMED_AT_ONCE], values: 0.0, entries: 0 }
    }
}

impl Sums {
    fn of<V>(
        a: &Csf3<V>,
        values: &[f64],
        root: usize,
        [b, c]: [DenseRef<'_, f64>; 2],
        columns: &Range<usize>,
    ) -> Self {
        let mut sums = Self::default();
        for fiber in a.root_range(root) {
            let b = &b.row(a.fiber_indices()[fiber] as usize)[columns.clone()];
            for entry in a.fiber_range(fiber) {
                let (value, c) = (values[entry], c.row(a.leaf_indices()[entry] as usize));
                let c = &c[columns.clone()];
                for (j, (&b, &c)) in b.iter().zip(c).enumerate() {
                    // A product of factors that f64 does not hold has a part that it lost.
                    let product = b * c;
                    sums.scale[j] += sums.want[j].add_product(value, product).abs();
                    let lost = b.mul_add(c, -product);
                    if lost.is_finite() && value.is_finite() {
                        sums.want[j].add_product(value, lost);
                    }
                }
                sums.values += value.abs();
                sums.entries += 1;
            }
        }
        sums
    }

    /// With elements of a row from a column on.
    fn compare<O: Element>(&self, (row, first): (usize, usize), unit: f32, got: &[O]) -> Verification {
        let storing = Storing::of(O::PRECISION);
        let largest = if is_narrow::<O>() { storing.largest } else { f64::INFINITY };
        let roundings = real(wide(self.entries)) + 3.0;
        // A product of factors may be rounded to a multiple of the least number before it is multiplied by the value.
        let tiny = subnormal_error(roundings, unit) + subnormal_error(1.0, unit) * self.values + storing.tiny;
        let mut all = Verification { worst_row: row, checked: wide(got.len()), ..Verification::NOTHING };
        for (j, got) in got.iter().enumerate() {
            let (want, scale) = (self.want[j], self.scale[j]);
            let bound = gamma(roundings, unit) * scale + storing.unit * want.value().abs() + tiny;
            let ratio = ratio_to(got.to_f64(), want, bound, largest);
            all.failures += u64::from(ratio > 1.0);
            if ratio > all.worst_ratio {
                (all.worst_ratio, all.worst_col) = (ratio, first + j);
            }
        }
        all
    }
}
