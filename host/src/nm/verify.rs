//! Checks a product with N:M weights against an f64 reference, element by element.

use windrow_formats::memory::{try_collect, try_filled, try_with_room};
use windrow_formats::{OutOfMemory, Value, VectorNm};

use super::options::NmAlgorithm;
use super::plan::NmSpmmPlan;
use crate::activation::{Activation, Epilogue};
use crate::dense::DenseRef;
use crate::device::DeviceBuffer;
use crate::element::Element;
use crate::error::NmError;
use crate::matrix::DeviceMatrix;
use crate::num::{real, wide};
use crate::plan::{
    Bits, Storing, UNIT_FMA, UNIT_MMA, Verification, all_parts, bounded_ratio, gamma, multiplied,
    subnormal_error,
};

/// Rows of `C` that go through the weights together, so that these come from memory once for all of them.
const ROWS_AT_ONCE: usize = 8;
/// The largest slope of the tanh form of GELU is 1.1290, that of SiLU 1.0999.
const CURVED_SLOPE: f64 = 1.13;
/// What evaluating GELU or SiLU in f32 may cost, in units of `2⁻²⁴·|x|`.
const CURVED_UNITS: f64 = 16.0;

impl NmSpmmPlan {
    /// Compares `c` with `act(α·scale·A·W + bias)` in f64 (β = 0, no gate), every element, on the host's threads.
    ///
    /// `weights` are those that the plan was built from. An element passes if
    ///
    /// ```text
    /// |C − want| ≤ slope·(γ(w + 5)·S + tiny) + [GELU, SiLU: 16·2⁻²⁴·|x|] + u_out·|want| + tiny_out
    /// S = |α·scale|·Σ|a·w| + |bias|,   γ(t) = t·u / (1 − t·u)
    /// ```
    ///
    /// with `A` and weights as the plan rounds them, `w` kept rows, `x` what the activation is applied to,
    /// its largest slope (1; for GELU and SiLU 1.13), `u = 2⁻²⁴` (`2⁻²³` on Tensor Cores), and `u_out`, `tiny_out` the
    /// rounding of an f16 or bf16 `C`. Operands and result are copied from the device. It takes as long as
    /// the product on one thread in f64, divided by the threads.
    ///
    /// Where `S` or `Σ|a·w|` is beyond the largest f32, a sum may be infinite on its way, and NaN in the end.
    /// There an element passes, too, if it is not finite, or is what ReLU makes of −∞.
    ///
    /// # Errors
    /// - [`NmError::OtherWeights`] if `weights` have not the plan's sizes or pattern;
    /// - [`NmError::OldOutput`] if `run.beta` is not 0 or the run is gated: what `C` held before is gone;
    /// - those of [`run_into`](Self::run_into).
    ///
    /// # Examples
    /// ```
    /// use windrow::{DenseRef, Device, DeviceMatrix, NmPattern, Epilogue, NmSpmm, VectorNm};
    ///
    /// let device = Device::cpu();
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
    /// let plan = NmSpmm::builder(&weights).build(&device)?;
    /// let a = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 1.0], 1, 2)?)?;
    /// let (mut c, run) = (DeviceMatrix::<f32>::zeros(&device, 1, 2)?, Epilogue::default());
    /// assert!(!plan.verify(&weights, &run, &a, &c)?.passed()); // not computed yet
    /// plan.run_into(&run, &a, &mut c)?;
    /// assert!(plan.verify(&weights, &run, &a, &c)?.passed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify<V: Value, E: Element<Sum = f32>, C: Element<Sum = f32>>(
        &self,
        weights: &VectorNm<V>,
        run: &Epilogue<'_>,
        a: &DeviceMatrix<E>,
        c: &DeviceMatrix<C>,
    ) -> Result<Verification, NmError> {
        self.verify_rows(weights, run, a, c, &try_collect(0..c.rows(), "rows to check")?)
    }

    /// [`verify`](Self::verify) for some rows of `C`: of a large product a sample. Rows that follow each
    /// other are checked together, which is quicker.
    ///
    /// # Errors
    /// As for [`verify`](Self::verify), and [`NmError::NoSuchRow`] for a row that `C` does not have.
    #[expect(clippy::too_many_arguments, reason = "those of `verify`, and the rows")]
    pub fn verify_rows<V: Value, E: Element<Sum = f32>, C: Element<Sum = f32>>(
        &self,
        weights: &VectorNm<V>,
        run: &Epilogue<'_>,
        a: &DeviceMatrix<E>,
        c: &DeviceMatrix<C>,
        rows: &[usize],
    ) -> Result<Verification, NmError> {
        let found = (weights.rows(), weights.cols(), weights.pattern());
        let expected = (self.inner, self.cols, self.pattern);
        if found != expected {
            return Err(NmError::OtherWeights { found, expected });
        }
        if run.reads_output() {
            return Err(NmError::OldOutput { beta: run.beta, gated: run.gated });
        }
        let bias = run.bias.map(DeviceBuffer::view);
        self.check_operands(&run.with_bias(bias.as_ref()), a.view(), c.view())?;
        let (m, n) = (c.rows(), c.cols());
        if let Some(&row) = rows.iter().find(|&&row| row >= m) {
            return Err(NmError::NoSuchRow { row, rows: m });
        }
        if rows.is_empty() || n == 0 {
            return Ok(Verification::NOTHING);
        }
        let values = Bits::of(self.precision, weights.values())?.numbers::<f64>()?;
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
        let mut checked = try_with_room(batches(rows).count(), "rows to check")?;
        checked.extend(batches(rows));
        let batches: Vec<&[usize]> = checked;
        let of_batch = |batch: usize| {
            let (first, rows) = (batches[batch][0], batches[batch].len());
            check.rows(first, &got[first * n..][..rows * n])
        };
        Ok(all_parts(batches.len(), &of_batch)?)
    }
}

/// Rows that follow each other, a few together: what one thread checks at a time.
fn batches(rows: &[usize]) -> impl Iterator<Item = &[usize]> {
    rows.chunk_by(|&row, &next| next == row + 1).flat_map(|run| run.chunks(ROWS_AT_ONCE))
}

/// What the activation is applied to, in f64, and what f32 may make of it.
struct Sum {
    x: f64,
    /// `S`, of terms that are finite.
    scale: f64,
    /// The larger one of `S` and `Σ|a·w|`: what a sum may reach on its way.
    reach: f64,
}

/// What the rows of a result are compared with.
struct Check<'a, V> {
    plan: &'a NmSpmmPlan,
    weights: &'a VectorNm<V>,
    /// The weights as the plan rounds them.
    values: &'a [f64],
    /// As it is stored.
    a: DenseRef<'a, f64>,
    factor: f64,
    bias: Option<&'a [f32]>,
    activation: Activation,
}

impl<V: Value> Check<'_, V> {
    /// Compares some rows, the first of which is row `first` of `C`.
    fn rows<C: Element>(&self, first: usize, got: &[C]) -> Result<Verification, OutOfMemory> {
        let n = self.weights.cols();
        let count = got.len() / n;
        let mut sums = try_filled(got.len(), (0.0f64, 0.0f64), "sums of rows")?;
        for u in 0..self.weights.kept_rows() {
            for v in 0..self.weights.vectors() {
                let (columns, source) = (self.weights.vector_columns(v), self.weights.source_row(u, v));
                let values = &self.values[u * n..][columns.clone()];
                for row in 0..count {
                    let a = match self.plan.layout {
                        super::ActivationLayout::RowMajor => self.a.row(first + row)[source],
                        super::ActivationLayout::KMajor => self.a.row(source)[first + row],
                    };
                    for ((sum, abs), &value) in sums[row * n..][columns.clone()].iter_mut().zip(values) {
                        let term = a * value;
                        *sum += term;
                        *abs += finite_part(term);
                    }
                }
            }
        }
        let mut all = Verification { worst_row: first, checked: wide(got.len()), ..Verification::NOTHING };
        for (at, (got, (sum, abs))) in got.iter().zip(sums).enumerate() {
            let bias = self.bias.map_or(0.0, |bias| f64::from(bias[at % n]));
            let scale = self.factor.abs() * abs + finite_part(bias);
            let sum = Sum { x: self.factor * sum + bias, scale, reach: scale.max(abs) };
            let ratio = self.ratio::<C>(got.to_f64(), &sum);
            all.failures += u64::from(ratio > 1.0);
            if ratio > all.worst_ratio {
                (all.worst_ratio, all.worst_row, all.worst_col) = (ratio, first + at / n, at % n);
            }
        }
        Ok(all)
    }

    /// `|got − act(x)|` in units of the bound; infinite where only one of the two is finite and none may
    /// overflow.
    fn ratio<C: Element>(&self, got: f64, &Sum { x, scale, reach }: &Sum) -> f64 {
        let tensor_cores = match self.plan.report.algorithm {
            NmAlgorithm::TensorCores | NmAlgorithm::SparseTensorCores => true,
            NmAlgorithm::Dense => self.plan.precision.has_tile_kernels(),
            NmAlgorithm::Auto | NmAlgorithm::CudaCores => false,
        };
        let unit = if tensor_cores { UNIT_MMA } else { UNIT_FMA };
        let want = in_f64(self.activation, x);
        let roundings = real(wide(self.weights.kept_rows())) + 5.0;
        let gamma = gamma(roundings, unit);
        if reach * (1.0 + gamma) > f64::from(f32::MAX) && self.overflowed(got) {
            return 0.0;
        }
        let of_sum = gamma * scale + subnormal_error(roundings, unit) * (1.0 + self.factor.abs());
        let before_store = match self.activation {
            Activation::Gelu | Activation::Silu => {
                CURVED_SLOPE * of_sum + CURVED_UNITS * f64::from(UNIT_FMA) * x.abs()
            }
            Activation::Identity | Activation::Relu => of_sum,
        };
        let storing = Storing::of(C::PRECISION);
        let bound = before_store * (1.0 + storing.unit) + storing.unit * want.abs() + storing.tiny;
        // What may be stored as a number that the type of C cannot hold is rightly infinite.
        bounded_ratio(got, want, bound, storing.largest - bound)
    }

    /// Whether a sum that is infinite or NaN may have become this.
    fn overflowed(&self, got: f64) -> bool {
        !got.is_finite() || (self.activation == Activation::Relu && got == 0.0)
    }
}

/// `|x|`, or 0 if it is not finite: such a term has its effect on the sum and none on the bound.
fn finite_part(x: f64) -> f64 {
    if x.is_finite() { x.abs() } else { 0.0 }
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
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use super::*;

    #[test]
    fn rows_that_follow_each_other_are_checked_by_several_threads() {
        let rows: Vec<usize> = (0..2 * ROWS_AT_ONCE).collect();
        let batches: Vec<&[usize]> = batches(&rows).collect();
        let (begun, both) = (Mutex::new(0), Condvar::new());
        let met = |batch: usize| {
            assert_eq!(batches[batch].len(), ROWS_AT_ONCE);
            let mut begun = begun.lock().unwrap();
            *begun += 1;
            both.notify_all();
            // Nobody who has begun goes on before both have: one thread alone would wait in vain.
            let waited = both.wait_timeout_while(begun, Duration::from_secs(60), |n| *n < 2).unwrap().1;
            Ok(Verification { failures: waited.timed_out().into(), checked: 1, ..Verification::NOTHING })
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let found = pool.install(|| all_parts(batches.len(), &met)).unwrap();
        assert!(
            found.passed() && found.checked == 2,
            "one thread checked one batch after the other: {found}"
        );
    }

    #[test]
    fn batches_are_of_rows_that_follow_each_other() {
        let rows = [0, 1, 2, 7, 8, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 5];
        let lengths: Vec<usize> = batches(&rows).map(<[usize]>::len).collect();
        assert_eq!(lengths, [3, 2, 8, 2, 1]);
        assert_eq!(batches(&rows).flatten().copied().collect::<Vec<_>>(), rows);
    }
}
