//! Checks a result of attention against an f64 reference, element by element.

use windrow_formats::memory::try_zeroed;
use windrow_formats::{Csr, OutOfMemory, Pattern, Value};
use windrow_kernels::attention::DroppedWeights;

use super::operands::{AttentionOperands, Extent, dropped_weights};
use super::options::{AttentionOptions, AttentionScores, HeadLayout};
use super::plan::{AttentionPlan, Body};
use crate::element::Element;
use crate::error::{AttentionError, PlanError};
use crate::matrix::DeviceMatrix;
use crate::num::{narrow, real, wide};
use crate::options::Precision;
use crate::plan::{
    Storing, UNIT_FMA, UNIT_MMA, Verification, all_parts, bounded_ratio, check_device, multiplied,
};
use crate::view::DeviceSlice;

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
    /// Of all heads, where scores have one.
    vector: Vec<f32>,
    /// For all heads, or for each; empty if there is none.
    bias: Vec<f32>,
    dropped: DroppedWeights,
    scale: f64,
    /// Unit roundoff of products and sums.
    unit: f64,
    /// What two numbers of the operands' type leave of a weight, on Tensor Cores.
    split: f64,
}

impl AttentionPlan {
    /// Compares `out` with what [`forward_on`](Self::forward_on) is to make of these operands, in f64, every element,
    /// on the host's threads. Where they would leave states is not looked at.
    ///
    /// `a` is the matrix that the plan was built from. With weights `p` of a row of n entries an element passes if
    ///
    /// ```text
    /// |out − want| ≤ (exp(2ε) − 1 + (n + 24)·u + s)·Σ p·|v|
    /// ε = max over the entries of (d + 6)·u·|scale|·Σ |q·k| + 2⁻²²·|score|
    /// ```
    ///
    /// (of additive scores `|q| + |k| + |bias|` in place of `Σ |q·k|`, of those of `GATv2` `Σ |a|·(|q| + |k|)`)
    /// and what storing it in its type may change, with `u = 2⁻²⁴`, and on a GPU `2⁻²³`; `s`, what two numbers of 16
    /// bits may leave of a weight, is 2⁻²¹ in f16, 2⁻¹⁶ in bf16 and 0 in f32. Row and column of the worst element are
    /// those of the matrix `out`, which has all heads. Operands and result are copied from the device.
    ///
    /// # Errors
    /// - [`PlanError::OtherMatrix`] if `a` has not the plan's sizes;
    /// - those of [`forward_on`](Self::forward_on).
    ///
    /// # Examples
    /// ```
    /// use windrow::{AttentionOperands, Csr, DenseRef, Device, DeviceMatrix, GraphAttention};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(3)?);
    /// let plan = GraphAttention::builder(&a).columns(1).build(&device)?;
    /// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0], 3, 1)?)?;
    /// let mut out = DeviceMatrix::<f32>::zeros(&device, 3, 1)?;
    /// let operands = AttentionOperands::new(&x, &x, &x);
    /// assert!(!plan.verify(&a, 1.0, &operands, &out)?.passed()); // not computed yet
    /// plan.forward(1.0, [&x, &x, &x], &mut out)?;
    /// assert!(plan.verify(&a, 1.0, &operands, &out)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<W: Value, T: Element<Sum = f32>, S: Element<Sum = f32>, O: Element<Sum = f32>>(
        &self,
        a: &Csr<W>,
        scale: f32,
        operands: &AttentionOperands<'_, T, S>,
        out: &DeviceMatrix<O>,
    ) -> Result<Verification, AttentionError> {
        self.check_read(operands)?;
        let AttentionOperands { q, k, v, vector, bias, dropout, .. } = operands;
        let on_host = |numbers: &Option<DeviceSlice<'_, f32>>| {
            numbers.map_or(Ok(Vec::new()), DeviceSlice::to_host).map_err(PlanError::from)
        };
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
            q: Heads { elements: multiplied(options.score_precision(), *q)?, extent: of_q, options },
            k: Heads { elements: multiplied(options.score_precision(), *k)?, extent: of_k, options },
            v: Heads { elements: multiplied(options.precision, *v)?, extent: of_v, options },
            scores: options.scores,
            vector: on_host(vector)?,
            bias: on_host(bias)?,
            dropped: dropped_weights(*dropout),
            scale: f64::from(scale),
            unit,
            split,
        };
        check_device(of_out.name, out.device(), &self.device)?;
        of_out.check(options, (out.rows(), out.cols()))?;
        let out = Heads { elements: multiplied(O::PRECISION, out)?, extent: of_out, options };
        let part = |part: usize| {
            let (head, row) = (part / rows, part % rows);
            let got = out.row(head, row);
            let mut want = try_zeroed::<f64>(got.len(), "a row of a reference")?;
            let mut size = try_zeroed::<f64>(got.len(), "what a row may be off by")?;
            let relative = reference.add_up(a.pattern(), (head, row), [&mut want, &mut size])?;
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
}

impl Reference<'_> {
    /// Adds up a row of the result, and `Σ p·|v|` of each of its elements; returns what they may be off by, relative to
    /// that.
    fn add_up(
        &self,
        pattern: &Pattern,
        (head, row): (usize, usize),
        [want, size]: [&mut [f64]; 2],
    ) -> Result<f64, OutOfMemory> {
        let entries = pattern.row_range(row);
        let columns = &pattern.col_indices()[entries.clone()];
        let mut scores = try_zeroed::<f64>(columns.len(), "the scores of a row")?;
        let (mut off, mut max) = (0.0f64, f64::NEG_INFINITY);
        for ((score, position), &column) in scores.iter_mut().zip(entries).zip(columns) {
            let of_score = self.score(pattern.nnz(), (head, row), (position, column as usize), score);
            off = off.max(of_score);
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
            let kept = self.dropped.kept(narrow(head), narrow(row), column, 1.0);
            let weight = if kept == 0.0 { 0.0 } else { score / sum * f64::from(kept) };
            let of_row = want.iter_mut().zip(size.iter_mut()).zip(self.v.row(head, column as usize));
            for ((want, size), value) in of_row {
                *want += weight * value;
                *size += weight * value.abs();
            }
        }
        let relative = (2.0 * off).exp_m1() + (real(wide(columns.len())) + OF_WEIGHT) * self.unit;
        Ok(relative + self.split)
    }

    /// The score of an entry; returns what it may be off by.
    fn score(
        &self,
        nnz: usize,
        (head, row): (usize, usize),
        (position, column): (usize, usize),
        score: &mut f64,
    ) -> f64 {
        let Self { scores: form, scale, unit, .. } = self;
        let (query, key) = (self.q.row(head, row), self.k.row(head, column));
        let of_head = if self.bias.len() > nnz { head * nnz } else { 0 };
        let bias = self.bias.get(of_head + position).map_or(0.0, |&bias| f64::from(bias));
        let vector = self.vector.get(head * query.len()..).unwrap_or_default();
        let (mut made, mut of_made) = (0.0, 0.0);
        for (c, (&q, &k)) in query.iter().zip(key).enumerate() {
            let (term, of_term) = match form {
                AttentionScores::DotProduct => (q * k, (q * k).abs()),
                AttentionScores::Additive { .. } => (q + k, q.abs() + k.abs()),
                AttentionScores::Gatv2 { .. } => {
                    let (slope, number) = (form.slope_at(q + k), f64::from(vector[c]));
                    ((q + k) * slope * number, (q.abs() + k.abs()) * number.abs() * slope.abs().max(1.0))
                }
            };
            made += term;
            of_made += of_term;
        }
        *score = scale * made + bias;
        if form.are_additive() {
            made += bias;
            let slope = form.slope_at(made);
            *score = scale * (made * slope);
            // What two rectifiers differ by where their sums differ in sign.
            of_made = (of_made + bias.abs()) * slope.abs().max(1.0);
        }
        if !score.is_finite() {
            return 0.0;
        }
        let of_terms = (real(wide(query.len())) + OF_SCORE) * unit * scale.abs() * of_made;
        of_terms + OF_EXPONENT * f64::from(UNIT_FMA) * score.abs()
    }
}
