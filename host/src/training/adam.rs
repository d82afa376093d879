//! The Adam optimiser: parameters follow their gradients by running means of these and of their squares.

use rayon::prelude::*;
use windrow_kernels::Variant;
use windrow_kernels::training::AdamParams;

use super::{check, extent, is_empty, launch, rows_mut, view};
use crate::error::TrainingError;
use crate::matrix::DeviceMatrix;

/// The Adam optimiser (Kingma and Ba, 2015), as PyTorch has it, without weight decay:
///
/// ```text
/// m ← β₁·m + (1 − β₁)·g        p ← p − α/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
/// v ← β₂·v + (1 − β₂)·g²
/// ```
///
/// in step `t`, counted from 1, for a parameter `p` with gradient `g`. In f32; the same bits on every device.
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
}

impl Moments {
    /// Those of a parameter like this one, before the first step: zeros.
    ///
    /// # Errors
    /// [`PlanError::Device`](crate::PlanError::Device).
    pub fn of(parameter: &DeviceMatrix<f32>) -> Result<Self, TrainingError> {
        let zeros = || DeviceMatrix::zeros(parameter.device(), parameter.rows(), parameter.cols());
        Ok(Self { first: zeros()?, second: zeros()?, steps: 0 })
    }

    /// Steps that were made.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }
}

impl Adam {
    /// One step of `parameter` against `gradient`.
    ///
    /// # Errors
    /// See [`training`](crate::training#errors): gradient and moments have the parameter's shape.
    pub fn step(
        &self,
        parameter: &mut DeviceMatrix<f32>,
        gradient: &DeviceMatrix<f32>,
        moments: &mut Moments,
    ) -> Result<(), TrainingError> {
        let shape = (parameter.rows(), parameter.cols());
        check("the gradient", gradient, parameter.device(), shape)?;
        check("the mean of gradients", &moments.first, parameter.device(), shape)?;
        moments.steps = moments.steps.saturating_add(1);
        if is_empty(parameter) {
            return Ok(());
        }
        let params = self.params(moments.steps);
        if let Some(machine) = parameter.device().machine() {
            let params = AdamParams {
                parameter: view(parameter)?,
                gradient: view(gradient)?,
                first: view(&moments.first)?,
                second: view(&moments.second)?,
                extent: extent(parameter)?,
                ..params
            };
            // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued
            // before; those that are written are borrowed for themselves.
            return unsafe { launch(machine, Variant::Adam, (params.extent.threads(), 1), &params) };
        }
        let (first, second) = (moments.first.host_mut(), moments.second.host_mut());
        if let (Some(p), Some(g), Some(m), Some(v)) = (parameter.host_mut(), gradient.host(), first, second) {
            rows_mut(p).zip(rows_mut(m)).zip(rows_mut(v)).for_each(|(((r, p), (_, m)), (_, v))| {
                for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g.row(r)) {
                    *m = params.beta1 * *m + params.rest1 * g;
                    *v = params.beta2 * *v + params.rest2 * (g * g);
                    *p -= params.step_size * *m / (v.sqrt() * params.correction + params.epsilon);
                }
            });
        }
        Ok(())
    }

    /// The numbers of step `t`; powers are taken in f64.
    #[expect(clippy::cast_possible_truncation, reason = "factors of f32 arithmetic")]
    fn params(&self, t: u32) -> AdamParams {
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
