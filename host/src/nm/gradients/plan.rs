//! Gradients that are ready to be computed.

use std::fmt;

use windrow_formats::Value;

use super::dense::{Elements, with_elements};
use super::places::Places;
use crate::activation::Epilogue;
use crate::device::{Device, Stream};
use crate::element::Element;
use crate::error::NmError;
use crate::matrix::DeviceMatrix;
use crate::nm::plan::NmSpmmPlan;
use crate::nm::report::NmReport;
use crate::options::Precision;
use crate::plan::{
    ArraySize, StageTime, check_device, check_element, check_shape, write_arrays, write_stages,
};
use crate::view::{DeviceView, DeviceViewMut};

/// The gradients of products `C[m×n] = scale·A[m×k]·W[k×n]` with N:M weights, on one device.
///
/// Made by [`NmGradients::builder`](super::NmGradients::builder); runs any number of times, on any streams.
///
/// # Precision
/// `A`, `dC` and `W` are rounded to the plan's [`Precision`], products are summed in f32, and rounded once to the type
/// of the result. With `u = 2⁻²⁴` (`2⁻²³` on Tensor Cores) and `γ(t) = t·u / (1 − t·u)`, an element of `dA` is off by
/// at most `γ(n + 5)·|scale|·Σ|dc·w|` besides, one of the values by `γ(m + 5)·|scale|·Σ|a·dc|`. Sums are taken in one
/// order: two runs, with operands of the same alignment, give the same bits.
///
/// # Not-a-number
/// What was dropped is multiplied as zero: where `dC` is not finite, all of its row of `dA` may be NaN. The gradient of
/// a value has what IEEE arithmetic makes of its row of `A` and its column of `dC`, and nothing else.
pub struct NmGradientPlan {
    pub(super) places: Places,
    pub(super) of_activations: Option<OfActivations>,
    pub(super) of_values: NmSpmmPlan,
    /// The gradient of all elements of the weights, those that were dropped too.
    pub(super) of_all: DeviceMatrix<f32>,
    pub(super) rows: usize,
    pub(super) report: NmGradientReport,
}

/// The product `dC·Wᵀ`, and its weights.
pub(super) struct OfActivations {
    /// The weights transposed, in which new values are laid out.
    pub(super) dense: Elements,
    pub(super) plan: NmSpmmPlan,
}

/// What a plan of gradients is, and what it holds. `Display` prints it as a table.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct NmGradientReport {
    /// Rows of `A` and `C`.
    pub rows: usize,
    /// The product `dC·Wᵀ`, whose weights are all elements of `Wᵀ`; none if the plan was built without.
    pub of_activations: Option<NmReport>,
    /// The product `Aᵀ·dC`: its rows are those of `W`, its weights the elements of `dC`.
    pub of_values: NmReport,
    /// Arrays in device memory, those of both products among them.
    pub arrays: Vec<ArraySize>,
    /// Sum of the arrays.
    pub device_bytes: u64,
    /// Time per stage, in the order in which they ran.
    pub stages: Vec<StageTime>,
}

impl fmt::Display for NmGradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "gradients for {} rows", self.rows)?;
        let of_activations = self.of_activations.iter().map(|of| ("activations", of));
        for (what, of) in of_activations.chain([("values", &self.of_values)]) {
            writeln!(f, "of {what}: {} ({})", of.algorithm, of.reason)?;
        }
        write_arrays(f, self.device_bytes, "", &self.arrays)?;
        write_stages(f, "", &self.stages)
    }
}

impl NmGradientPlan {
    /// `dA ← scale·dC·Wᵀ`. On a GPU this queues the kernels and returns.
    ///
    /// # Shapes
    /// - `of_c`: m × n for any m, row-major, of the plan's precision (for tf32: f32);
    /// - `of_a`: m × k, f32, f16 or bf16.
    ///
    /// # Errors
    /// [`NmError::NoActivations`] of a plan that was built [without](super::NmGradientBuilder::activations); those of
    /// [`NmSpmmPlan::run_into_on`], in which `dC` is `A` and `dA` is `C`.
    pub fn of_activations_on<'a, E: Element<Sum = f32>, C: Element<Sum = f32>>(
        &self,
        on: &Stream,
        of_c: impl Into<DeviceView<'a, E>>,
        of_a: impl Into<DeviceViewMut<'a, C>>,
    ) -> Result<(), NmError> {
        let of = self.of_activations.as_ref().ok_or(NmError::NoActivations)?;
        of.plan.run_into_on(on, &Epilogue::default(), of_c, of_a)
    }

    /// `dV[t] ← scale·Σᵢ A[i, row(t)]·dC[i, col(t)]` for each kept value, in their order: `w` rows of `n`. On a GPU
    /// this queues the kernels and returns. It cannot be captured into a graph: memory of the plan is ordered with the
    /// device's own stream.
    ///
    /// # Shapes
    /// - `a`: m × k, `of_c`: m × n, both row-major, of the plan's precision (for tf32: f32) and
    ///   [rows](super::NmGradientBuilder::rows);
    /// - `of_values`: w × n, row-major, f32, f16 or bf16, for w kept rows.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) if the sizes do not fit;
    /// - [`PlanError::ElementType`](crate::PlanError::ElementType),
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice),
    ///   [`PlanError::Overlap`](crate::PlanError::Overlap) of the values with another operand;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) on a stream that is captured.
    pub fn of_values_on<'a, E: Element<Sum = f32>, R: Element<Sum = f32>>(
        &mut self,
        on: &Stream,
        a: impl Into<DeviceView<'a, E>>,
        of_c: impl Into<DeviceView<'a, E>>,
        of_values: impl Into<DeviceViewMut<'a, R>>,
    ) -> Result<(), NmError> {
        self.add_of_values(on, (a.into(), of_c.into()), 0.0, of_values.into())
    }

    /// [`of_values_on`](Self::of_values_on) of further rows, for batches that do not fit at once: `dV` is the sum of
    /// this and of all runs since one of [`of_values_on`](Self::of_values_on), with that. Sums are kept in f32, and
    /// rounded for each run anew. After an error begin with that.
    ///
    /// # Errors
    /// Those of [`of_values_on`](Self::of_values_on).
    pub fn add_of_values_on<'a, E: Element<Sum = f32>, R: Element<Sum = f32>>(
        &mut self,
        on: &Stream,
        a: impl Into<DeviceView<'a, E>>,
        of_c: impl Into<DeviceView<'a, E>>,
        of_values: impl Into<DeviceViewMut<'a, R>>,
    ) -> Result<(), NmError> {
        self.add_of_values(on, (a.into(), of_c.into()), 1.0, of_values.into())
    }

    /// Both: `beta` is the factor of what the runs before have found.
    fn add_of_values<E: Element<Sum = f32>, R: Element<Sum = f32>>(
        &mut self,
        on: &Stream,
        (a, of_c): (DeviceView<'_, E>, DeviceView<'_, E>),
        beta: f32,
        of_values: DeviceViewMut<'_, R>,
    ) -> Result<(), NmError> {
        let (weights, m) = (self.places.weights(), self.rows);
        check_device("the stream", on.device(), self.device())?;
        for (operand, found) in
            [("A", a.device()), ("dC", of_c.device()), ("the gradient of the values", of_values.device())]
        {
            check_device(operand, found, self.device())?;
        }
        check_element::<E>("A", self.precision())?;
        check_shape("A", (a.rows(), a.cols()), (m, weights.rows()))?;
        check_shape("dC", (of_c.rows(), of_c.cols()), (m, weights.cols()))?;
        let expected = (weights.kept_rows(), weights.cols());
        check_shape("the gradient of the values", (of_values.rows(), of_values.cols()), expected)?;
        for (operand, bytes) in [("A", a.bytes()), ("dC", of_c.bytes())] {
            of_values.bytes().check_apart("the gradient of the values", operand, bytes)?;
        }
        self.of_values.replace_rows_on(on, of_c)?;
        let run = Epilogue { beta, ..Epilogue::default() };
        self.of_values.run_into_on(on, &run, a, &mut self.of_all)?;
        self.places.taken(on, &self.of_all, of_values)
    }

    /// Puts new values in the places of the old, a matrix of w kept rows and n columns of f32, f16 or bf16 (f64, too,
    /// on the CPU), as after a step of an optimiser. The pattern and the indices stay. On a GPU this queues two kernels
    /// and returns; it cannot be captured into a graph. What multiplies forwards takes the same matrix by
    /// [`NmSpmmPlan::replace_rows_on`]. The gradient of the values does not depend on them: of a plan without that of
    /// the activations nothing is replaced.
    ///
    /// # Errors
    /// - [`PlanError::OperandShape`](crate::PlanError::OperandShape) for another shape,
    ///   [`PlanError::ElementType`](crate::PlanError::ElementType) for f64 on a GPU,
    ///   [`PlanError::WrongDevice`](crate::PlanError::WrongDevice) for values or a stream of another device;
    /// - [`PlanError::Device`](crate::PlanError::Device), with
    ///   [`DeviceError::Captured`](crate::DeviceError::Captured) on a stream that is captured; the plan's values are
    ///   otherwise undefined until a replacement succeeds.
    pub fn replace_rows_on<'a, V: Value>(
        &mut self,
        on: &Stream,
        values: impl Into<DeviceView<'a, V>>,
    ) -> Result<(), NmError> {
        let values = values.into();
        check_device("the stream", on.device(), self.device())?;
        check_device("the matrix of new values", values.device(), self.device())?;
        let expected = (self.places.weights().kept_rows(), self.places.weights().cols());
        check_shape("the matrix of new values", (values.rows(), values.cols()), expected)?;
        let Self { places, of_activations, .. } = self;
        let Some(OfActivations { dense, plan }) = of_activations else { return Ok(()) };
        with_elements!(dense, of => {
            places.transposed(on, values, of)?;
            plan.replace_values_on(on, &*of)
        })
    }

    /// What the plan is, and what it holds.
    #[must_use]
    pub fn report(&self) -> &NmGradientReport {
        &self.report
    }

    /// The device that the plan runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.of_values.device()
    }

    /// The type of `A`, `dC` and the weights.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.of_values.precision()
    }

    /// `m`: rows of `A` and `dC` that the gradient of the values is of.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }
}

impl fmt::Debug for NmGradientPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights = self.places.weights();
        let (rows, cols, pattern) = (weights.rows(), weights.cols(), weights.pattern());
        let (precision, device) = (self.precision(), self.device());
        write!(f, "NmGradientPlan({rows} × {cols}, {pattern}, {} rows, {precision}, on {device})", self.rows)
    }
}
