//! Softmax cross-entropy: the loss of a classifier, its gradient, and how many rows are predicted right.

use std::fmt;

use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::training::{CrossEntropyParams, OUTCOMES};

use super::operands::{Operands, counts, entry, is_empty, matrix};
use super::rows_mut;
use super::sums::{ColumnTerms, Parts, host_sums};
use crate::device::{Device, DeviceBuffer, Queue, Stream};
use crate::error::TrainingError;
use crate::matrix::DeviceMatrix;
use crate::plan::{On, Turn, check_count, start};
use crate::view::{DeviceView, DeviceViewMut};

/// Numbers for each row.
const WIDTH: usize = OUTCOMES as usize;

/// Softmax cross-entropy of logits `x` with the classes of some rows, and its gradient:
///
/// ```text
/// loss = Σ w[r]·(log Σ exp x[r, c] − x[r, label[r]])
/// g[r, c] = w[r]·(exp x[r, c] / Σ exp x[r, c] − [c = label[r]])
/// ```
///
/// with a weight `w[r] ≥ 0` for each row. For the mean over the rows of a training set these have the weight
/// `1 / their number`, all others 0: they have neither loss nor gradient, whatever their logits.
///
/// The class predicted for a row is that of its largest logit, of equals the first. It is counted whether it is right,
/// separately for rows with and without a weight.
///
/// # Precision
/// The largest logit of a row is subtracted first: nothing overflows. An element of the gradient is off by at most
/// `(2.25·(d + D) + classes + 20)·2⁻²⁴` of `w·p`, with `d` and `D` as for [`RowSoftmax`](crate::RowSoftmax), and by the
/// rounding of the difference. Two runs on a device give the same bits. Counts beyond 2²⁴ are rounded.
///
/// # Examples
/// ```
/// use windrow::training::CrossEntropy;
/// use windrow::{DenseRef, Device, DeviceMatrix};
///
/// let device = Device::best()?;
/// let mut loss = CrossEntropy::new(&device, 2, &[1, 0, 1], &[0.5, 0.5, 0.0])?; // the first two are learned from
/// let logits = [3.0f32, 3.0, 9.0, -9.0, 0.0, 1.0];
/// let logits = DeviceMatrix::upload(&device, DenseRef::packed(&logits, 3, 2)?)?;
/// let mut gradient = DeviceMatrix::zeros(&device, 3, 2)?;
/// loss.run(&logits, &mut gradient)?;
/// assert_eq!(gradient.download()?[..2], [0.25, -0.25]); // between both classes, not sure of either
/// assert_eq!(gradient.download()?[4..], [0.0, 0.0]);
/// let outcome = loss.outcome()?;
/// approx::assert_relative_eq!(outcome.loss, 0.5 * 2f32.ln(), max_relative = 1e-6);
/// assert_eq!((outcome.right_weighted, outcome.right_others), (1, 1));
/// # Ok::<(), windrow::TrainingError>(())
/// ```
pub struct CrossEntropy {
    classes: usize,
    labels: DeviceBuffer<u32>,
    weights: DeviceBuffer<f32>,
    /// [`OUTCOMES`] for each row.
    outcomes: DeviceMatrix<f32>,
    /// The sums of `outcomes` over all rows.
    totals: DeviceMatrix<f32>,
    parts: Parts,
    turn: Turn,
}

/// The loss of the last run of [`CrossEntropy`], and how many rows it predicts right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The sum of `−w·ln p` over all rows, `p` being the probability of the row's label.
    pub loss: f32,
    /// Rows with a weight that are predicted right.
    pub right_weighted: usize,
    /// Rows without a weight that are.
    pub right_others: usize,
}

impl CrossEntropy {
    /// For rows of these classes and weights.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`](crate::PlanError::ValueCount) unless there are as many weights as labels;
    /// - [`TrainingError::UnknownClass`] for the first label that is not below `classes`, [`TrainingError::Weight`]
    ///   for the first weight that is not a finite number of at least 0;
    /// - [`PlanError::Device`](crate::PlanError::Device).
    pub fn new(
        device: &Device,
        classes: usize,
        labels: &[u32],
        weights: &[f32],
    ) -> Result<Self, TrainingError> {
        check_count("the weights", weights.len(), labels.len())?;
        if let Some(row) = labels.iter().position(|&label| label as usize >= classes) {
            return Err(TrainingError::UnknownClass { row, label: labels[row], classes });
        }
        if let Some(row) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            return Err(TrainingError::Weight { row, weight: weights[row] });
        }
        Ok(Self {
            classes,
            labels: DeviceBuffer::of_caller(device, labels, "labels")?,
            weights: DeviceBuffer::of_caller(device, weights, "weights")?,
            outcomes: DeviceMatrix::zeros(device, labels.len(), WIDTH)?,
            totals: DeviceMatrix::zeros(device, 1, WIDTH)?,
            parts: Parts::new(device, WIDTH)?,
            turn: Turn::default(),
        })
    }

    /// The gradient of the loss with respect to `logits`; the loss itself is what [`outcome`](Self::outcome) says.
    ///
    /// # Shapes
    /// `logits`, `gradient`: a row for each label, a column for each class.
    ///
    /// # Errors
    /// See [`training`](crate::training#errors).
    pub fn run(
        &mut self,
        logits: &DeviceMatrix<f32>,
        gradient: &mut DeviceMatrix<f32>,
    ) -> Result<(), TrainingError> {
        self.run_on(&logits.device().stream(), logits, gradient)
    }

    /// [`run`](Self::run) on a [`Stream`], for matrices in memory of any origin.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and what is said of [streams](crate::training#streams).
    pub fn run_on<'a>(
        &mut self,
        on: &Stream,
        logits: impl Into<DeviceView<'a, f32>>,
        gradient: impl Into<DeviceViewMut<'a, f32>>,
    ) -> Result<(), TrainingError> {
        let (logits, gradient) = (logits.into(), gradient.into());
        let shape = (self.labels.len(), self.classes);
        let mut operands = Operands::on(on, self.labels.device())?;
        operands.reads("the matrix of logits", logits, shape)?;
        operands.writes("the gradient", &gradient, shape)?;
        if is_empty(logits) {
            return Ok(());
        }
        if let Some(on) = operands.queued()? {
            return self.queue(&on, logits, gradient.as_view());
        }
        if let (Some(x), Some(g), Some(outcomes), Some(labels), Some(weights)) = (
            logits.host(),
            gradient.into_host(),
            self.outcomes.host_mut(),
            self.labels.host(),
            self.weights.host(),
        ) {
            rows_mut(g).zip(rows_mut(outcomes)).for_each(|((r, g), (_, outcome))| {
                let row = Row { logits: x.row(r), label: labels[r] as usize, weight: weights[r] };
                outcome.copy_from_slice(&row.run(g));
            });
        }
        if let (Some(outcomes), Some(totals)) = (self.outcomes.host(), self.totals.host_mut()) {
            let sums = host_sums(outcomes, None)?;
            totals.into_data().iter_mut().zip(sums).for_each(|(total, sum)| *total = f32::from_f64(sum));
        }
        Ok(())
    }

    /// Queues the kernels for matrices with elements, which were checked; the gradient is written.
    fn queue(
        &mut self,
        on: &On<'_>,
        logits: DeviceView<'_, f32>,
        gradient: DeviceView<'_, f32>,
    ) -> Result<(), TrainingError> {
        let (rows, cols) = counts(logits)?;
        let params = CrossEntropyParams {
            logits: matrix(logits)?,
            gradient: matrix(gradient)?,
            labels: self.labels.pointer(),
            weights: self.weights.pointer(),
            outcomes: self.outcomes.buffer().pointer().cast(),
            rows,
            cols,
        };
        let (terms, totals) = (ColumnTerms::of(self.outcomes.view(), None)?, matrix(self.totals.view())?);
        let entries = [entry(Variant::CrossEntropy)?, entry(Variant::ColumnSums)?];
        let Self { parts, turn, .. } = self;
        // SAFETY: shapes and devices were checked, labels when they came; the matrices free their memory after the work
        // that was queued before, and of other memory the views were promised that it lives; the gradient is borrowed
        // for itself, the outcomes are this value's own, whose rows of four begin at multiples of 16 bytes, and so are
        // their sums.
        let queue = |queue: &dyn Queue| unsafe {
            start(queue, entries[0], u64::from(rows), 1, &params)?;
            parts.queue(queue, entries[1], terms, totals)
        };
        Ok(turn.run(on, entries, queue)?)
    }

    /// What the last [`run`](Self::run) found, on whatever stream it was; waits for it. Who launches a graph of runs
    /// waits for its stream first.
    ///
    /// # Errors
    /// [`PlanError::Device`](crate::PlanError::Device).
    pub fn outcome(&self) -> Result<Outcome, TrainingError> {
        if let Some(machine) = self.labels.device().machine() {
            self.turn.before_reading(&**machine.own())?;
        }
        let totals = self.totals.download()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "sums of zeros and ones, no more than there are rows"
        )]
        let count = |i: usize| totals.get(i).map_or(0, |&count| count as usize);
        let loss = totals.first().copied().unwrap_or(0.0);
        Ok(Outcome { loss, right_weighted: count(1), right_others: count(2) })
    }
}

/// One row on the CPU.
struct Row<'a> {
    logits: &'a [f32],
    label: usize,
    weight: f32,
}

impl Row<'_> {
    /// Writes the gradient; returns the numbers for the row.
    fn run(&self, gradient: &mut [f32]) -> [f32; WIDTH] {
        let (mut max, mut predicted) = (f32::NEG_INFINITY, usize::MAX);
        for (c, &x) in self.logits.iter().enumerate() {
            if x > max || x == max && c < predicted {
                (max, predicted) = (x, c);
            }
        }
        let right = if predicted == self.label { 1.0 } else { 0.0 };
        if self.weight == 0.0 {
            gradient.fill(0.0);
            return [0.0, 0.0, right, 0.0];
        }
        let mut sum = 0.0;
        for (g, &x) in gradient.iter_mut().zip(self.logits) {
            *g = (x - max).exp();
            sum += f64::from(*g);
        }
        let factor = f32::from_f64(f64::from(self.weight) / sum);
        for (c, g) in gradient.iter_mut().enumerate() {
            *g = *g * factor - if c == self.label { self.weight } else { 0.0 };
        }
        let loss = sum.ln() - f64::from(self.logits[self.label] - max);
        [f32::from_f64(f64::from(self.weight) * loss), right, 0.0, 0.0]
    }
}

impl fmt::Debug for CrossEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { classes, labels, .. } = self;
        write!(f, "CrossEntropy({} rows, {classes} classes, on {})", labels.len(), labels.device())
    }
}
