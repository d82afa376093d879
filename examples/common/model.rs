//! What models are made of: parameters, and sparse products of operands in the plan's type.

use windrow::synthetic::SplitMix64;
use windrow::training::{Adam, CountedStep, Moments, round_into_on};
use windrow::{
    DenseRef, Device, DeviceBuffer, DeviceMatrix, Precision, Scale, SddmmError, SddmmPlan, SpmmError,
    SpmmPlan, TrainingError, bf16, f16,
};

use super::Result;
use super::clock::Clock;
use super::gemm::{DenseMath, Gemm};
use super::lane::Lane;

/// A model that is trained.
pub(crate) trait Model {
    /// The logits of every node, from the features.
    ///
    /// # Errors
    /// If the device fails.
    fn forward(&mut self) -> Result<&DeviceMatrix<f32>>;

    /// Gradients of all parameters, from the gradient with respect to the logits of the last
    /// [`forward`](Self::forward).
    ///
    /// # Errors
    /// If the device fails.
    fn backward(&mut self, of_logits: &DeviceMatrix<f32>) -> Result<()>;

    /// All parameters, each with its gradient of the last [`backward`](Self::backward).
    fn parameters(&mut self) -> Vec<&mut Parameter>;

    /// The stream that all of it is queued in.
    fn lane(&self) -> &Lane;

    /// What its sparse work is timed with.
    fn clock(&mut self) -> &mut Clock;

    /// Seconds to make its plans.
    fn preprocessing_s(&self) -> f64;

    /// Heads of its hidden layers.
    fn heads(&self) -> usize {
        1
    }
}

/// The sizes of a model.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Features, width of each hidden layer, classes: one more than there are layers.
    pub(crate) widths: Vec<usize>,
    /// Type of sparse operands.
    pub(crate) precision: Precision,
    /// Heads of hidden layers that have some: they share the width. The last layer has one.
    pub(crate) heads: usize,
    pub(crate) seed: u64,
}

/// The width of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Width {
    pub(crate) heads: usize,
    /// Columns of each head.
    pub(crate) columns: usize,
}

impl Width {
    /// Columns of all heads.
    pub(crate) fn all(self) -> usize {
        self.heads * self.columns
    }
}

impl Shape {
    /// The widths of hidden layers and of the last: where there are no hidden ones, the last's twice.
    ///
    /// # Errors
    /// If there are no layers, or the heads do not share the hidden width evenly.
    pub(crate) fn two_widths(&self) -> Result<[Width; 2]> {
        let (layers, heads) = (self.widths.len().saturating_sub(1), self.heads);
        let Some(&classes) = self.widths.last().filter(|_| layers > 0) else {
            return Err("--layers must be at least 1".into());
        };
        let last = Width { heads: 1, columns: classes };
        if layers == 1 {
            return Ok([last; 2]);
        }
        let hidden = self.widths[1];
        match hidden.checked_rem(heads) {
            Some(0) => Ok([Width { heads, columns: hidden / heads }, last]),
            _ => Err(format!("--hidden {hidden} is no multiple of --heads {heads}").into()),
        }
    }

    /// The widest matrix that a layer makes.
    pub(crate) fn widest(&self) -> usize {
        self.widths.iter().skip(1).copied().max().unwrap_or(0)
    }

    /// What gradients are multiplied by before they are rounded to f16, below whose range they would fall: a power of
    /// two, about a sixteenth of the number of nodes that the loss is the mean of, so that a sum over many neighbours
    /// has room above.
    pub(crate) fn gradient_scale(&self, trained: usize) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        match self.precision {
            Precision::F16 => (trained.next_power_of_two() / 16).max(1) as f32,
            _ => 1.0,
        }
    }
}

/// What a model runs with.
pub(crate) struct Tools {
    pub(crate) device: Device,
    pub(crate) lane: Lane,
    pub(crate) gemm: Gemm,
    pub(crate) clock: Clock,
}

impl Tools {
    /// For work in this stream.
    ///
    /// # Errors
    /// If it is one of a GPU and there is no cuBLAS.
    pub(crate) fn new(lane: Lane, math: DenseMath) -> Result<Self> {
        let device = lane.stream.device().clone();
        let gemm = Gemm::new(&lane.stream, math)?;
        Ok(Self { clock: Clock::new(&lane.stream), device, gemm, lane })
    }
}

/// An element of a weight of so many rows and columns, drawn uniformly from ±√(6 / (rows + cols)) (Glorot and Bengio,
/// 2010).
pub(crate) fn glorot(rows: usize, cols: usize, random: &mut SplitMix64) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let bound = (6.0 / (rows + cols) as f64).sqrt();
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32")]
    let element = ((2.0 * random.next_f64() - 1.0) * bound) as f32;
    element
}

/// A parameter, its gradient, and what the optimiser keeps of it.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) value: DeviceMatrix<f32>,
    pub(crate) gradient: DeviceMatrix<f32>,
    /// The gradient of a loss that is multiplied by a number, where it is.
    scaled: Option<DeviceMatrix<f32>>,
    moments: Moments,
}

impl Parameter {
    /// One with these values, row after row.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn new(device: &Device, rows: usize, cols: usize, values: &[f32]) -> Result<Self> {
        let value = DeviceMatrix::upload(device, DenseRef::packed(values, rows, cols)?)?;
        let (gradient, moments) = (DeviceMatrix::zeros(device, rows, cols)?, Moments::of(&value)?);
        Ok(Self { value, gradient, scaled: None, moments })
    }

    /// Makes room for gradients of `scale` times the loss; none for a scale of 1.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn make_room(&mut self, scale: f32) -> Result<()> {
        let (rows, cols) = (self.value.rows(), self.value.cols());
        self.scaled =
            if scale == 1.0 { None } else { Some(DeviceMatrix::zeros(self.value.device(), rows, cols)?) };
        Ok(())
    }

    /// Where the gradient of the scaled loss goes.
    pub(crate) fn scaled_gradient(&mut self) -> &mut DeviceMatrix<f32> {
        self.scaled.as_mut().unwrap_or(&mut self.gradient)
    }

    /// Makes the gradient of the loss from that of `scale` times the loss.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn unscale(&mut self, lane: &Lane, scale: f32) -> Result<()> {
        let Self { gradient, scaled: Some(scaled), .. } = self else { return Ok(()) };
        Ok(round_into_on(&lane.stream, 1.0 / scale, lane.read(scaled), lane.write(gradient))?)
    }

    /// A weight with [`glorot`] elements.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn glorot(device: &Device, rows: usize, cols: usize, random: &mut SplitMix64) -> Result<Self> {
        let values: Vec<f32> = (0..rows * cols).map(|_| glorot(rows, cols, random)).collect();
        Self::new(device, rows, cols, &values)
    }

    /// One step of the optimiser.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn step(&mut self, lane: &Lane, adam: &Adam) -> Result<()> {
        let Self { value, gradient, moments, .. } = self;
        Ok(adam.step_on(&lane.stream, lane.write(value), lane.read(gradient), moments)?)
    }

    /// Its part of a step of an optimiser that the device counts the steps of.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn update(&mut self, lane: &Lane, step: &mut CountedStep<'_>) -> Result<()> {
        let Self { value, gradient, moments, .. } = self;
        Ok(step.update(lane.write(value), lane.read(gradient), moments)?)
    }
}

/// A dense operand in the type that plans take: rounded, or the f32 matrix itself.
#[derive(Debug)]
pub(crate) enum Operand {
    AsItIs,
    /// Of f32 too, but multiplied by a number.
    F32(DeviceMatrix<f32>),
    F16(DeviceMatrix<f16>),
    Bf16(DeviceMatrix<bf16>),
}

/// A matrix of the type that plans take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Typed<'a> {
    F32(&'a DeviceMatrix<f32>),
    F16(&'a DeviceMatrix<f16>),
    Bf16(&'a DeviceMatrix<bf16>),
}

impl Operand {
    /// Room for a `rows × cols` matrix.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn new(device: &Device, precision: Precision, rows: usize, cols: usize) -> Result<Self> {
        Ok(match precision {
            Precision::F16 => Self::F16(DeviceMatrix::zeros(device, rows, cols)?),
            Precision::Bf16 => Self::Bf16(DeviceMatrix::zeros(device, rows, cols)?),
            _ => Self::AsItIs,
        })
    }

    /// The same for a matrix that is multiplied by a number, in f32 too.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn scaled(device: &Device, precision: Precision, rows: usize, cols: usize) -> Result<Self> {
        Ok(match Self::new(device, precision, rows, cols)? {
            Self::AsItIs => Self::F32(DeviceMatrix::zeros(device, rows, cols)?),
            rounded => rounded,
        })
    }

    /// Takes `scale·x`; f32 that are taken as they are have a scale of 1.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn set<'a>(
        &mut self,
        lane: &Lane,
        scale: impl Into<Scale<'a>>,
        x: &'a DeviceMatrix<f32>,
    ) -> std::result::Result<(), TrainingError> {
        let (scale, on) = (scale.into(), &lane.stream);
        let is_one = matches!(scale, Scale::Value(scale) if scale == 1.0);
        debug_assert!(is_one || !matches!(self, Self::AsItIs), "f32 need no scale");
        match self {
            Self::AsItIs => Ok(()),
            Self::F32(scaled) => round_into_on(on, scale, lane.read(x), lane.write(scaled)),
            Self::F16(rounded) => round_into_on(on, scale, lane.read(x), lane.write(rounded)),
            Self::Bf16(rounded) => round_into_on(on, scale, lane.read(x), lane.write(rounded)),
        }
    }

    /// What it was set to, which was `x`.
    pub(crate) fn of<'a>(&'a self, x: &'a DeviceMatrix<f32>) -> Typed<'a> {
        match self {
            Self::AsItIs => Typed::F32(x),
            Self::F32(scaled) => Typed::F32(scaled),
            Self::F16(rounded) => Typed::F16(rounded),
            Self::Bf16(rounded) => Typed::Bf16(rounded),
        }
    }
}

/// `y ← alpha·A·x + beta·y`, for an `x` that `operand` was set to.
///
/// # Errors
/// If the device fails.
pub(crate) fn spmm(
    lane: &Lane,
    plan: &SpmmPlan,
    (alpha, operand, x): (f32, &Operand, &DeviceMatrix<f32>),
    (beta, y): (f32, &mut DeviceMatrix<f32>),
) -> std::result::Result<(), SpmmError> {
    let (on, y) = (&lane.stream, lane.write(y));
    match operand.of(x) {
        Typed::F32(x) => plan.run_into_on(on, alpha, lane.read(x), beta, y),
        Typed::F16(x) => plan.run_into_on(on, alpha, lane.read(x), beta, y),
        Typed::Bf16(x) => plan.run_into_on(on, alpha, lane.read(x), beta, y),
    }
}

/// `out ← x·yᵀ` where the pattern has entries, for `x` and `y` that the operands were set to.
///
/// # Errors
/// If the device fails.
pub(crate) fn sddmm(
    (lane, plan): (&Lane, &SddmmPlan),
    (x_operand, x): (&Operand, &DeviceMatrix<f32>),
    (y_operand, y): (&Operand, &DeviceMatrix<f32>),
    out: &mut DeviceBuffer<f32>,
) -> std::result::Result<(), SddmmError> {
    let (on, out) = (&lane.stream, lane.write_array(out));
    match (x_operand.of(x), y_operand.of(y)) {
        (Typed::F16(x), Typed::F16(y)) => plan.run_into_on(on, 1.0, [lane.read(x), lane.read(y)], out),
        (Typed::Bf16(x), Typed::Bf16(y)) => plan.run_into_on(on, 1.0, [lane.read(x), lane.read(y)], out),
        _ => plan.run_into_on(on, 1.0, [lane.read(x), lane.read(y)], out),
    }
}
