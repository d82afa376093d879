//! Checks a result of attention against an f64 reference, element by element.

use windrow_formats::memory::try_zeroed;
use windrow_formats::{Csr, OutOfMemory, Value};

use super::operands::Extent;
use super::options::{AttentionOptions, AttentionScores, HeadLayout};
use super::plan::{AttentionPlan, Body};
use crate::element::Element;
use crate::error::{AttentionError, PlanError};
use crate::matrix::DeviceMatrix;
use crate::num::{real, wide};
use crate::options::Precision;
use crate::plan::{
    Storing, UNIT_FMA, UNIT_MMA, Verification, all_parts, bounded_ratio, check_device, multiplied,
};

/// Roundings of a score beside those of its products, and of a weight beside those of the sum of weights.
const OF_SCORE: f64 = 6.0;
const OF_WEIGHT: f64 = 24.0;
/// Roundings of a score that is large, in its exponential: as many units of the score itself.
const OF_EXPONENT: f64 = 4.0;

/// The operands of all heads on the host, and where they have them.
struct Heads<'a> {
    elements: Vec<f64>,
    extent: Extent,
    options: &'a AttentionOptions,
}

impl Heads<'_> {
    fn row(&self, head: usize, row: usize) -> &[f64] {
        let (_, width) = self.extent.shape(self.options);
        let first = head * self.extent.head(self.options, width) + row * width;
        &self.elements[first..first + self.extent.columns]
    }
}

/// What a result is compared with.
struct Reference<'a> {
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
    scores: AttentionScores,
    scale: f64,
    /// Unit roundoff of products and sums.
    unit: f64,
    /// What two numbers of the operands' type leave of a weight, on Tensor Cores.
    split: f64,
}

impl AttentionPlan {
    /// Compares `out` with what [`forward`](Self::forward) is to make of these operands, in f64, every element, on the
    /// host's threads.
    ///
    /// `a` is the matrix that the plan was built from. With weights `p` of a row of n entries an element passes if
    ///
    /// ```text
    /// |out − want| ≤ (exp(2ε) − 1 + (n + 24)·u + s)·Σ p·|v|
    /// ε = max over the entries of (d + 6)·u·|scale|·Σ |q·k| + 2⁻²²·|score|
    /// ```
    ///
    /// (of additive scores `|q| + |k|` in place of `Σ |q·k|`)
    /// and what storing it in its type may change, with `u = 2⁻²⁴`, and on a GPU `2⁻²³`; `s`, what two numbers of 16
    /// bits may leave of a weight, is 2⁻²¹ in f16, 2⁻¹⁶ in bf16 and 0 in f32. Row and column of the worst element are
    /// those of the matrix `out`, which has all heads. Operands and result are copied from the device.
    ///
    /// # Errors
    /// - [`PlanError::OtherMatrix`] if `a` has not the plan's sizes;
    /// - those of [`forward`](Self::forward).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, DenseRef, Device, DeviceMatrix, GraphAttention};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(3)?);
    /// let plan = GraphAttention::builder(&a).columns(1).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0], 3, 1)?)?;
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 3, 1)?;
    /// assert!(!plan.verify(&a, 1.0, ([&x, &x], &x), &out)?.passed()); // not computed yet
    /// plan.forward(1.0, [&x, &x, &x], &mut out)?;
    /// assert!(plan.verify(&a, 1.0, ([&x, &x], &x), &out)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<W: Value, T: Element<Sum = f32>, S: Element<Sum = f32>, O: Element<Sum = f32>>(
        &self,
        a: &Csr<W>,
        scale: f32,
        ([q, k], v): ([&DeviceMatrix<S>; 2], &DeviceMatrix<T>),
        out: &DeviceMatrix<O>,
    ) -> Result<Verification, AttentionError> {
        let options = &self.report.options;
        let (plan_rows, plan_cols, plan_nnz) = (self.report.rows, self.report.cols, self.report.nnz);
        let (rows, cols, nnz) = (a.rows(), a.cols(), a.nnz());
        if (rows, cols, nnz) != (plan_rows, plan_cols, plan_nnz) {
            return Err(PlanError::OtherMatrix { rows, cols, nnz, plan_rows, plan_cols, plan_nnz }.into());
        }
        let [of_q, of_k, of_v, of_out] = self.extents();
        let unit = f64::from(if matches!(self.body, Body::Cpu { .. }) { UNIT_FMA } else { UNIT_MMA });
        let split = match options.precision {
            Precision::F16 => 2f64.powi(-21),
            Precision::Bf16 => 2f64.powi(-16),
            Precision::F32 | Precision::Tf32 | Precision::F64 => 0.0,
        };
        let reference = Reference {
            q: self.heads_of(of_q, options.score_precision(), q)?,
            k: self.heads_of(of_k, options.score_precision(), k)?,
            v: self.heads_of(of_v, options.precision, v)?,
            scores: options.scores,
            scale: f64::from(scale),
            unit,
            split,
        };
        check_device(of_out.name, out.device(), &self.device)?;
        of_out.check(options, (out.rows(), out.cols()))?;
        let out = Heads { elements: multiplied(O::PRECISION, out)?, extent: of_out, options };
        let part = |part: usize| {
            let (head, row) = (part / rows, part % rows);
            let (columns, got) = (a.row(row).0, out.row(head, row));
            let mut want = try_zeroed::<f64>(got.len(), "a row of a reference")?;
            let mut size = try_zeroed::<f64>(got.len(), "what a row may be off by")?;
            let relative = reference.add_up(columns, (head, row), [&mut want, &mut size])?;
            let (worst_row, first) = match options.layout {
                HeadLayout::Columns => (row, head * of_out.columns),
                HeadLayout::Rows => (head * rows + row, 0),
            };
            let checked = wide(got.len());
            let mut row = Verification { worst_row, worst_col: first, checked, ..Verification::NOTHING };
            let storing = Storing::of(O::PRECISION);
            for (column, ((&got, &want), &size)) in got.iter().zip(&want).zip(&size).enumerate() {
                let bound =
                    relative * size + storing.unit * want.abs() + storing.tiny + f64::from(f32::MIN_POSITIVE);
                let ratio = bounded_ratio(got, want, bound, storing.largest);
                row.failures += u64::from(ratio > 1.0);
                if ratio > row.worst_ratio {
                    (row.worst_ratio, row.worst_col) = (ratio, first + column);
                }
            }
            Ok(row)
        };
        Ok(all_parts(options.heads * rows, &part)?)
    }

    /// An operand on the host, as it is multiplied.
    fn heads_of<T: Element<Sum = f32>>(
        &self,
        extent: Extent,
        precision: Precision,
        matrix: &DeviceMatrix<T>,
    ) -> Result<Heads<'_>, PlanError> {
        let options = &self.report.options;
        check_device(extent.name, matrix.device(), &self.device)?;
        extent.check(options, (matrix.rows(), matrix.cols()))?;
        Ok(Heads { elements: multiplied(precision, matrix)?, extent, options })
    }
}

impl Reference<'_> {
    /// Adds up a row of the result, and `Σ p·|v|` of each of its elements; returns what they may be off by, relative to
    /// that.
    fn add_up(
        &self,
        columns: &[u32],
        (head, row): (usize, usize),
        [want, size]: [&mut [f64]; 2],
    ) -> Result<f64, OutOfMemory> {
        let Self { q, k, v, scores: form, scale, unit, split } = self;
        let mut scores = try_zeroed::<f64>(columns.len(), "the scores of a row")?;
        let query = q.row(head, row);
        let (mut off, mut max) = (0.0f64, f64::NEG_INFINITY);
        for (score, &column) in scores.iter_mut().zip(columns) {
            let (mut made, mut of_made) = (0.0, 0.0);
            for (&q, &k) in query.iter().zip(k.row(head, column as usize)) {
                let (term, of_term) = match form {
                    AttentionScores::DotProduct => (q * k, (q * k).abs()),
                    AttentionScores::Additive { .. } => {
                        let slope = form.slope_at(q + k);
                        ((q + k) * slope, (q.abs() + k.abs()) * slope.abs().max(1.0))
                    }
                };
                made += term;
                of_made += of_term;
            }
            *score = scale * made;
            let of_terms = (real(wide(query.len())) + OF_SCORE) * unit * scale.abs() * of_made;
            off = off.max(of_terms + OF_EXPONENT * f64::from(UNIT_FMA) * score.abs());
            // A NaN is kept: the largest of numbers would leave it out.
            max = if score.is_nan() || max.is_nan() { f64::NAN } else { max.max(*score) };
        }
        if max == f64::NEG_INFINITY {
            return Ok(0.0);
        }
        let mut sum = 0.0;
        for score in &mut scores {
            *score = (*score - max).exp();
            sum += *score;
        }
        for (score, &column) in scores.iter().zip(columns) {
            let weight = score / sum;
            let of_row = want.iter_mut().zip(size.iter_mut()).zip(v.row(head, column as usize));
            for ((want, size), value) in of_row {
                *want += weight * value;
                *size += weight * value.abs();
            }
        }
        Ok((2.0 * off).exp_m1() + (real(wide(columns.len())) + OF_WEIGHT) * unit + split)
    }
}
