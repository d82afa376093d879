//! The Adam optimiser: parameters follow their gradients by running means of these and of their squares.

use rayon::prelude::*;
use windrow_kernels::training::AdamParams;
use windrow_kernels::{Entry, Variant};

use super::operands::{Operands, entry, extent, is_empty, matrix};
use super::rows_mut;
use crate::device::{Queue, Stream};
use crate::error::{DeviceError, PlanError, TrainingError};
use crate::matrix::DeviceMatrix;
use crate::plan::{Turn, start};
use crate::view::{DeviceView, DeviceViewMut};

/// The Adam optimiser (Kingma and Ba, 2015), as PyTorch has it, without weight decay:
///
/// ```text
/// m ← β₁·m + (1 − β₁)·g        p ← p − α/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
/// v ← β₂·v + (1 − β₂)·g²
/// ```
///
/// in step `t`, counted from 1, for a parameter `p` with gradient `g`. In f32; the same bits on every device.
///
/// The host counts these steps, and says the number of each to the device: what is to be captured into a graph, and
/// launched again and again, is a step of [`CountedAdam`](super::CountedAdam).
///
/// # Examples
/// ```
/// use windrow::training::{Adam, Moments};
/// use windrow::{DenseRef, Device, DeviceMatrix};
///
/// let device = Device::best()?;
/// let mut p = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 1.0], 1, 2)?)?;
/// let gradient = DeviceMatrix::upload(&device, DenseRef::packed(&[5.0f32, -0.1], 1, 2)?)?;
/// let mut moments = Moments::of(&p)?;
/// Adam { learning_rate: 0.5, ..Adam::default() }.step(&mut p, &gradient, &mut moments)?;
/// // The first step is the learning rate long, whatever the gradient.
/// approx::assert_relative_eq!(p.download()?[..], [0.5, 1.5][..], max_relative = 1e-5);
/// # Ok::<(), windrow::TrainingError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// `α`, the learning rate: the length of the first step of every element.
    pub learning_rate: f32,
    /// `β₁`, from 0 to below 1: what is kept of the mean of gradients in a step.
    pub beta1: f32,
    /// `β₂`, from 0 to below 1: what is kept of the mean of squares in a step.
    pub beta2: f32,
    /// `ε`, added to the root of the mean of squares, so that nothing is divided by zero.
    pub epsilon: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

/// What [`Adam`] keeps for one parameter: `m`, `v` and the number of steps.
#[derive(Debug)]
pub struct Moments {
    first: DeviceMatrix<f32>,
    second: DeviceMatrix<f32>,
    steps: u32,
    turn: Turn,
}

impl Moments {
    /// Those of a parameter like this one, before the first step: zeros.
    ///
    /// # Errors
    /// [`PlanError::Device`](crate::PlanError::Device).
    pub fn of(parameter: &DeviceMatrix<f32>) -> Result<Self, TrainingError> {
        let zeros = || DeviceMatrix::zeros(parameter.device(), parameter.rows(), parameter.cols());
        Ok(Self { first: zeros()?, second: zeros()?, steps: 0, turn: Turn::default() })
    }

    /// `[m, v]`, to be changed by an operation that is queued by [`Turn::run`].
    pub(super) fn means(&mut self) -> ([DeviceViewMut<'_, f32>; 2], &mut Turn) {
        let Self { first, second, turn, .. } = self;
        // SAFETY: `turn` orders all uses of both, which free their memory after the work.
        (unsafe { [first.view_mut().lent(), second.view_mut().lent()] }, turn)
    }

    /// Steps that were made.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }
}

impl Adam {
    /// One step of `parameter` against `gradient`. One that ends in an error is not counted.
    ///
    /// # Errors
    /// See [`training`](crate::training#errors): gradient and moments have the parameter's shape.
    pub fn step(
        &self,
        parameter: &mut DeviceMatrix<f32>,
        gradient: &DeviceMatrix<f32>,
        moments: &mut Moments,
    ) -> Result<(), TrainingError> {
        self.step_on(&parameter.device().stream(), parameter, gradient, moments)
    }

    /// [`step`](Self::step) on a [`Stream`], for a parameter and a gradient in memory of any origin.
    ///
    /// # Errors
    /// Those of [`step`](Self::step), and what is said of [streams](crate::training#streams), but that no such step can
    /// be captured: every launch of the graph would be the same one.
    pub fn step_on<'a>(
        &self,
        on: &Stream,
        parameter: impl Into<DeviceViewMut<'a, f32>>,
        gradient: impl Into<DeviceView<'a, f32>>,
        moments: &mut Moments,
    ) -> Result<(), TrainingError> {
        let steps = moments.steps.saturating_add(1);
        let (means, turn) = moments.means();
        let step = Step { parameter: parameter.into(), gradient: gradient.into(), means };
        let operands = step.check(on)?;
        if is_empty(step.gradient) {
            moments.steps = steps;
            return Ok(());
        }
        let numbers = self.params(steps);
        match operands.queued()? {
            Some(on) => {
                if on.is_captured()? {
                    let (what, remedy) = ("the number of one step of Adam", "take steps of `CountedAdam`");
                    return Err(DeviceError::Captured { what, remedy }.into());
                }
                let (kernel, params) = (entry(Variant::Adam)?, step.params(numbers)?);
                // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued
                // before, and of other memory the views were promised that it lives; those that are written are
                // borrowed for themselves.
                turn.run(&on, [kernel], |queue| unsafe { launch(queue, kernel, &params) })?;
            }
            None => step.run_on_cpu(&numbers),
        }
        moments.steps = steps; // one that the device refused is none
        Ok(())
    }

    /// The numbers of step `t`; powers are taken in f64.
    #[expect(clippy::cast_possible_truncation, reason = "factors of f32 arithmetic")]
    pub(super) fn params(&self, t: u32) -> AdamParams {
        let (beta1, beta2) = (f64::from(self.beta1), f64::from(self.beta2));
        let power = |beta: f64| beta.powf(f64::from(t));
        AdamParams {
            beta1: self.beta1,
            beta2: self.beta2,
            rest1: (1.0 - beta1) as f32,
            rest2: (1.0 - beta2) as f32,
            step_size: (f64::from(self.learning_rate) / (1.0 - power(beta1))) as f32,
            correction: (1.0 / (1.0 - power(beta2)).sqrt()) as f32,
            epsilon: self.epsilon,
            ..bytemuck::Zeroable::zeroed()
        }
    }
}

/// The operands of a step.
pub(super) struct Step<'a> {
    pub(super) parameter: DeviceViewMut<'a, f32>,
    pub(super) gradient: DeviceView<'a, f32>,
    /// Of gradients and of their squares.
    pub(super) means: [DeviceViewMut<'a, f32>; 2],
}

impl Step<'_> {
    /// Checks them.
    ///
    /// # Errors
    /// As for [`Operands`].
    pub(super) fn check<'s>(&'s self, on: &'s Stream) -> Result<Operands<'s>, PlanError> {
        let Self { parameter, gradient, means: [first, second] } = self;
        let shape = (parameter.rows(), parameter.cols());
        let mut operands = Operands::on(on, parameter.device())?;
        operands.writes("the parameter", parameter, shape)?;
        operands.reads("the gradient", *gradient, shape)?;
        operands.writes("the mean of gradients", first, shape)?;
        operands.writes("the mean of squares", second, shape)?;
        Ok(operands)
    }

    /// What the kernel is told, with these numbers.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`].
    pub(super) fn params(&self, numbers: AdamParams) -> Result<AdamParams, PlanError> {
        let Self { parameter, gradient, means: [first, second] } = self;
        Ok(AdamParams {
            parameter: matrix(parameter.as_view())?,
            gradient: matrix(*gradient)?,
            first: matrix(first.as_view())?,
            second: matrix(second.as_view())?,
            extent: extent(*gradient)?,
            ..numbers
        })
    }

    /// The step where all of it is in host memory.
    pub(super) fn run_on_cpu(self, numbers: &AdamParams) {
        let Self { parameter, gradient, means } = self;
        let [first, second] = means.map(DeviceViewMut::into_host);
        if let (Some(p), Some(g), Some(m), Some(v)) = (parameter.into_host(), gradient.host(), first, second)
        {
            rows_mut(p).zip(rows_mut(m)).zip(rows_mut(v)).for_each(|(((r, p), (_, m)), (_, v))| {
                for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g.row(r)) {
                    *m = numbers.beta1 * *m + numbers.rest1 * g;
                    *v = numbers.beta2 * *v + numbers.rest2 * (g * g);
                    *p -= numbers.step_size * *m / (v.sqrt() * numbers.correction + numbers.epsilon);
                }
            });
        }
    }
}

/// Queues the kernel of a step.
///
/// # Safety
/// `params` are of live matrices of the queue's machine until the work is done, those that are written used by nothing
/// else meanwhile.
pub(super) unsafe fn launch(
    queue: &dyn Queue,
    kernel: &'static Entry,
    params: &AdamParams,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's promise.
    unsafe { start(queue, kernel, params.extent.threads(), 1, params) }
}
