//! Checks a sampled product against a reference of twice f64's precision, entry by entry.

use windrow_formats::{Csr, Value};

use super::options::SddmmForm;
use super::plan::{Body, SddmmPlan};
use crate::dense::DenseRef;
use crate::device::DeviceBuffer;
use crate::element::Element;
use crate::error::{PlanError, SddmmError};
use crate::matrix::DeviceMatrix;
use crate::num::{index, wide};
use crate::options::Precision;
use crate::plan::{Double, UNIT_MMA, Verification, all_parts, error_ratio, multiplied, unit_of};

impl SddmmPlan {
    /// Compares `out` with `(X·Yᵀ) ⊙ A`, summed with twice f64's precision (α = 1), every entry, on the host's threads.
    ///
    /// `a` is the pattern that the plan was built from, with its current values. An entry passes if
    ///
    /// ```text
    /// |out − want| ≤ γ(d + 4)·|a|·Σ|x·y|,   γ(t) = t·u / (1 − t·u)
    /// ```
    ///
    /// with operands as the plan rounds them, `u = 2⁻²⁴` (`2⁻²³` where tiles take part, `2⁻⁵³` in f64) and `a` = 1 for
    /// [`SddmmForm::Mask`]. Operands and result are copied from the device.
    ///
    /// # Errors
    /// - [`PlanError::OtherMatrix`] if `a` has not the plan's sizes;
    /// - those of [`run_into`](Self::run_into).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, Sddmm};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(3)?);
    /// let plan = Sddmm::builder(&a).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0], 3, 1)?)?;
    /// let mut out = DeviceBuffer::<f32>::alloc_zeroed(&device, 3)?;
    /// assert!(!plan.verify(&a, &x, &x, &out)?.passed()); // not computed yet
    /// plan.run_into(1.0, &x, &x, &mut out)?;
    /// assert!(plan.verify(&a, &x, &x, &out)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<V: Value, T: Element, O: Element>(
        &self,
        a: &Csr<V>,
        x: &DeviceMatrix<T>,
        y: &DeviceMatrix<T>,
        out: &DeviceBuffer<O>,
    ) -> Result<Verification, SddmmError> {
        if (a.rows(), a.cols(), a.nnz()) != (self.rows, self.cols, self.nnz) {
            let (rows, cols, nnz) = (a.rows(), a.cols(), a.nnz());
            let (plan_rows, plan_cols, plan_nnz) = (self.rows, self.cols, self.nnz);
            return Err(PlanError::OtherMatrix { rows, cols, nnz, plan_rows, plan_cols, plan_nnz }.into());
        }
        self.check_operands(x.view(), y.view(), out.view())?;
        let inner = x.cols();
        let (x, y) = (multiplied(self.precision, x)?, multiplied(self.precision, y)?);
        let out = out.to_vec()?;
        let (x, y) = (DenseRef::packed(&x, self.rows, inner)?, DenseRef::packed(&y, self.cols, inner)?);
        let unit = match &self.body {
            Body::Gpu(plan) if plan.uses_tiles() => UNIT_MMA,
            _ => unit_of(self.precision),
        };
        let row = |r: usize| {
            let (cols, values) = a.row(r);
            let first = index(a.row_offsets()[r]);
            let mut row = Verification { worst_row: r, checked: wide(cols.len()), ..Verification::NOTHING };
            for ((&col, value), &got) in cols.iter().zip(values).zip(&out[first..]) {
                let factor = match self.form {
                    SddmmForm::Mask => 1.0,
                    SddmmForm::Scale if self.precision == Precision::F64 => value.to_f64(),
                    SddmmForm::Scale => f64::from(value.to_f32()),
                };
                let (mut want, mut scale) = (Double::default(), 0.0f64);
                for (&x, &y) in x.row(r).iter().zip(y.row(col as usize)) {
                    scale += want.add_product(x, y).abs();
                }
                (want, scale) = (want.times(factor), scale * factor.abs());
                // Two roundings more than a sum of as many products: of the factor and of α.
                let ratio = error_ratio::<O>(got.to_f64(), want, scale, inner + 2, unit);
                row.failures += u64::from(ratio > 1.0);
                if ratio > row.worst_ratio {
                    (row.worst_ratio, row.worst_col) = (ratio, col as usize);
                }
            }
            Ok(row)
        };
        Ok(all_parts(a.rows(), &row)?)
    }
}
