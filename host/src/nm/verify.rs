//! Checks a product with N:M weights against an f64 reference, element by element.

use rayon::prelude::*;
use windrow_formats::{Value, VectorNm};

use super::activation::Activation;
use super::options::{NmAlgorithm, NmRun};
use super::plan::NmSpmmPlan;
use crate::dense::DenseRef;
use crate::device::DeviceBuffer;
use crate::error::SpmmError;
use crate::matrix::{DeviceMatrix, Element};
use crate::num::{real, wide};
use crate::spmm::{
    Bits, Storing, UNIT_FMA, UNIT_MMA, Verification, bounded_ratio, gamma, multiplied, subnormal_error,
};

/// Rows of `C` that go through the weights together, so that these come from memory once for all of them.
const ROWS_AT_ONCE: usize = 8;
/// The largest slope of the tanh form of GELU is 1.1290.
const GELU_SLOPE: f64 = 1.13;
/// What evaluating GELU in f32 may cost, in units of `2⁻²⁴·|x|`.
const GELU_UNITS: f64 = 16.0;

impl NmSpmmPlan {
    /// Compares `c` with `act(α·scale·A·W + bias)` in f64 (β = 0), every element, on the host's threads.
    ///
    /// `weights` are those that the plan was built from. An element passes if
    ///
    /// ```text
    /// |C − want| ≤ slope·(γ(w + 5)·S + tiny) + [GELU: 16·2⁻²⁴·|x|] + u_out·|want| + tiny_out
    /// S = |α·scale|·Σ|a·w| + |bias|,   γ(t) = t·u / (1 − t·u)
    /// ```
    ///
    /// with `A` and weights as the plan rounds them, `w` kept rows, `x` what the activation is applied to, its largest
    /// slope (1; for GELU 1.13), `u = 2⁻²⁴` (`2⁻²³` on Tensor Cores), and `u_out`, `tiny_out` the rounding of an f16 or
    /// bf16 `C`. Operands and result are copied from the device. It takes as long as the product on one thread in f64,
    /// divided by the threads.
    ///
    /// # Errors
    /// - [`SpmmError::OtherWeights`] if `weights` have not the plan's sizes or pattern;
    /// - [`SpmmError::OldOutput`] unless `run.beta` is 0: what `C` held before is gone;
    /// - those of [`run_into`](Self::run_into).
    ///
    /// # Examples
    /// ```
    /// use windrow::{DenseRef, Device, DeviceMatrix, NmPattern, NmRun, NmSpmm, VectorNm};
    ///
    /// let device = Device::cpu();
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
    /// let plan = NmSpmm::builder(&weights).build(&device)?;
    /// let a = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 1.0], 1, 2)?)?;
    /// let (mut c, run) = (DeviceMatrix::<f32>::zeros(&device, 1, 2)?, NmRun::default());
    /// assert!(!plan.verify(&weights, &run, &a, &c)?.passed()); // not computed yet
    /// plan.run_into(&run, &a, &mut c)?;
    /// assert!(plan.verify(&weights, &run, &a, &c)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<V: Value, E: Element, C: Element>(
        &self,
        weights: &VectorNm<V>,
        run: &NmRun<'_>,
        a: &DeviceMatrix<E>,
        c: &DeviceMatrix<C>,
    ) -> Result<Verification, SpmmError> {
        self.verify_rows(weights, run, (a, c), &(0..c.rows()).collect::<Vec<_>>())
    }

    /// [`verify`](Self::verify) for some rows of `C`, in ascending order: of a large product a sample.
    ///
    /// # Errors
    /// As for [`verify`](Self::verify).
    ///
    /// # Panics
    /// If there is no such row.
    pub fn verify_rows<V: Value, E: Element, C: Element>(
        &self,
        weights: &VectorNm<V>,
        run: &NmRun<'_>,
        (a, c): (&DeviceMatrix<E>, &DeviceMatrix<C>),
        rows: &[usize],
    ) -> Result<Verification, SpmmError> {
        let found = (weights.rows(), weights.cols(), weights.pattern());
        let expected = (self.inner, self.cols, self.pattern);
        if found != expected {
            return Err(SpmmError::OtherWeights { found, expected });
        }
        if run.beta != 0.0 {
            return Err(SpmmError::OldOutput { beta: run.beta });
        }
        self.check_operands(run, a, c)?;
        let (m, n) = (c.rows(), c.cols());
        if m == 0 || n == 0 {
            return Ok(Verification::NOTHING);
        }
        let values = Bits::of(self.precision, weights.values()).to_f32();
        let (stored_rows, stored_cols) = (a.rows(), a.cols());
        let a = multiplied(self.precision, a)?;
        let a = DenseRef::packed(&a, stored_rows, stored_cols)?;
        let bias = run.bias.map(DeviceBuffer::to_vec).transpose()?;
        let check = Check {
            plan: self,
            weights,
            values: &values,
            a,
            factor: f64::from(run.alpha * self.scale),
            bias: bias.as_deref(),
            activation: run.activation,
        };
        let got = c.download()?;
        let runs =
            rows.par_chunk_by(|&row, &next| next == row + 1).flat_map_iter(|run| run.chunks(ROWS_AT_ONCE));
        let of_run = |run: &[usize]| check.rows(run[0], &got[run[0] * n..][..run.len() * n]);
        let all = runs.map(of_run).reduce_with(Verification::worst_first);
        Ok(all.unwrap_or(Verification::NOTHING))
    }
}

/// What the rows of a result are compared with.
struct Check<'a, V> {
    plan: &'a NmSpmmPlan,
    weights: &'a VectorNm<V>,
    /// The weights as the plan rounds them.
    values: &'a [f32],
    /// As it is stored.
    a: DenseRef<'a, f32>,
    factor: f64,
    bias: Option<&'a [f32]>,
    activation: Activation,
}

impl<V: Value> Check<'_, V> {
    /// Compares some rows, the first of which is row `first` of `C`.
    fn rows<C: Element>(&self, first: usize, got: &[C]) -> Verification {
        let n = self.weights.cols();
        let count = got.len() / n;
        let mut sums = vec![(0.0f64, 0.0f64); got.len()];
        for u in 0..self.weights.kept_rows() {
            for v in 0..self.weights.vectors() {
                let (columns, source) = (self.weights.vector_columns(v), self.weights.source_row(u, v));
                let values = &self.values[u * n..][columns.clone()];
                for row in 0..count {
                    let a = f64::from(match self.plan.layout {
                        super::ActivationLayout::RowMajor => self.a.row(first + row)[source],
                        super::ActivationLayout::KMajor => self.a.row(source)[first + row],
                    });
                    for ((sum, abs), &value) in sums[row * n..][columns.clone()].iter_mut().zip(values) {
                        let term = a * f64::from(value);
                        *sum += term;
                        *abs += term.abs();
                    }
                }
            }
        }
        let mut all = Verification { worst_row: first, checked: wide(got.len()), ..Verification::NOTHING };
        for (at, (got, (sum, abs))) in got.iter().zip(sums).enumerate() {
            let bias = self.bias.map_or(0.0, |bias| f64::from(bias[at % n]));
            let (sum, abs) = (self.factor * sum + bias, self.factor.abs() * abs + bias.abs());
            let ratio = self.ratio::<C>(got.to_f64(), sum, abs);
            all.failures += u64::from(ratio > 1.0);
            if ratio > all.worst_ratio {
                (all.worst_ratio, all.worst_row, all.worst_col) = (ratio, first + at / n, at % n);
            }
        }
        all
    }

    /// `|got − act(sum)|` in units of the bound; infinite where only one of the two is finite.
    fn ratio<C: Element>(&self, got: f64, sum: f64, abs: f64) -> f64 {
        let tensor_cores = self.plan.report.algorithm == NmAlgorithm::TensorCores;
        let unit = if tensor_cores { UNIT_MMA } else { UNIT_FMA };
        let want = in_f64(self.activation, sum);
        let roundings = real(wide(self.weights.kept_rows())) + 5.0;
        let of_sum = gamma(roundings, unit) * abs + subnormal_error(roundings) * (1.0 + self.factor.abs());
        let before_store = match self.activation {
            Activation::Gelu => GELU_SLOPE * of_sum + GELU_UNITS * f64::from(UNIT_FMA) * sum.abs(),
            Activation::Identity | Activation::Relu => of_sum,
        };
        let storing = Storing::of(C::PRECISION);
        let bound = before_store * (1.0 + storing.unit) + storing.unit * want.abs() + storing.tiny;
        // What may be stored as a number that the type of C cannot hold is rightly infinite.
        bounded_ratio(got, want, bound, storing.largest - bound)
    }
}

/// The activation in f64; a NaN stays one.
fn in_f64(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu if x <= 0.0 => 0.0,
        Activation::Relu => x,
        // ½·(1 + tanh(t)) = 1 / (1 + e^(−2t)), which does not cancel where t is far below zero.
        Activation::Gelu => {
            let t = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x / (1.0 + (-2.0 * t).exp())
        }
    }
}
