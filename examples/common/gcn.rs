//! A graph convolutional network (Kipf and Welling, 2017): `H' = ReLU(Â·(H·W) + b)`, the last layer without ReLU.
//!
//! ```text
//! forward                         backward, from G = ∂loss/∂(Â·Z + b)
//! Z = H·W         dense           ∂b = Σ G[r]           sums of columns
//! H' = Â·Z + b    SpMM            ∂Z = Âᵀ·G             SpMM
//! H' ← max(H', 0)                 ∂W = Hᵀ·∂Z, ∂H = ∂Z·Wᵀ, zero where H is
//! ```

use std::time::Instant;

use windrow::synthetic::SplitMix64;
use windrow::training::{ColumnSums, add_bias_on, add_bias_relu_on, relu_backward_on};
use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm, SpmmError, SpmmPlan};

use super::Result;
use super::clock::{Clock, Work};
use super::data::Task;
use super::gemm::Form;
use super::graph::normalized;
use super::lane::Lane;
use super::model::{Model, Operand, Parameter, Shape, Tools, spmm};

/// One layer: its parameters, and its result.
struct Layer {
    weight: Parameter,
    bias: Parameter,
    output: DeviceMatrix<f32>,
}

/// Matrices of one width that every layer of that width uses anew.
struct Scratch {
    product: DeviceMatrix<f32>,
    gradient: DeviceMatrix<f32>,
    operand: Operand,
}

/// What the model multiplies by: `Â` and its transpose.
pub(crate) trait Adjacency {
    type Error: std::error::Error + Send + Sync + 'static;

    /// `product ← alpha·Â·x`, or `alpha·Âᵀ·x`, for an `x` that the operand was set to.
    ///
    /// # Errors
    /// If a device fails.
    fn multiply(
        &self,
        lane: &Lane,
        transposed: bool,
        scaled: (f32, &Operand, &DeviceMatrix<f32>),
        product: &mut DeviceMatrix<f32>,
    ) -> std::result::Result<(), Self::Error>;

    /// Adds to the gradient of a parameter what it is for nodes that others have.
    ///
    /// # Errors
    /// If a device fails.
    fn reduce(&self, gradient: &mut DeviceMatrix<f32>) -> std::result::Result<(), Self::Error>;

    /// What the plans say of themselves.
    fn reports(&self) -> String;
}

/// All of `Â` on one device.
pub(crate) struct Whole {
    forward: SpmmPlan,
    /// For `Âᵀ`; none if that is `Â`.
    backward: Option<SpmmPlan>,
}

impl Adjacency for Whole {
    type Error = SpmmError;

    fn multiply(
        &self,
        lane: &Lane,
        transposed: bool,
        scaled: (f32, &Operand, &DeviceMatrix<f32>),
        product: &mut DeviceMatrix<f32>,
    ) -> std::result::Result<(), SpmmError> {
        let plan = self.backward.as_ref().filter(|_| transposed).unwrap_or(&self.forward);
        spmm(lane, plan, scaled, (0.0, product))
    }

    fn reduce(&self, _gradient: &mut DeviceMatrix<f32>) -> std::result::Result<(), SpmmError> {
        Ok(())
    }

    fn reports(&self) -> String {
        let transposed =
            if self.backward.is_some() { "another plan" } else { "the same: the graph is symmetric" };
        format!("{}\nfor the transpose: {transposed}", self.forward.report())
    }
}

/// The model, its plans and its memory.
pub(crate) struct Gcn<A = Whole> {
    tools: Tools,
    adjacency: A,
    features: DeviceMatrix<f32>,
    layers: Vec<Layer>,
    /// For hidden layers, and for the last.
    scratch: [Scratch; 2],
    sums: ColumnSums,
    gradient_scale: f32,
    preprocessing_s: f64,
}

impl Gcn {
    /// For an undirected graph with loops.
    ///
    /// # Errors
    /// If there are no layers, or the device refuses.
    pub(crate) fn new(graph: &Csr<f32>, task: &Task, shape: &Shape, tools: Tools) -> Result<Self> {
        let device = tools.device.clone();
        let a = normalized(graph)?;
        let start = Instant::now();
        let forward = plan(&a, shape, &device)?;
        let transposed = a.transpose()?;
        let backward = match transposed.bitwise_eq(&a) {
            true => None,
            false => Some(plan(&transposed, shape, &device)?),
        };
        device.synchronize()?;
        let preprocessing_s = start.elapsed().as_secs_f64();
        let model = Self::with(Whole { forward, backward }, task, shape, tools)?;
        Ok(Self { preprocessing_s, ..model })
    }
}

impl<A: Adjacency> Gcn<A> {
    /// For the nodes of a task.
    ///
    /// # Errors
    /// If there are no layers, or the device refuses.
    pub(crate) fn with(adjacency: A, task: &Task, shape: &Shape, tools: Tools) -> Result<Self> {
        let device = tools.device.clone();
        let (n, widths) = (task.labels.len(), &shape.widths);
        let Some((&classes, hidden)) = widths.split_last().filter(|(_, others)| !others.is_empty()) else {
            return Err("--layers must be at least 1".into());
        };
        let mut random = SplitMix64::new(shape.seed.wrapping_add(3 << 32));
        let layer = |ends: &[usize]| {
            let [inputs, outputs] = [ends[0], ends[1]];
            Ok(Layer {
                weight: Parameter::glorot(&device, inputs, outputs, &mut random)?,
                bias: Parameter::new(&device, 1, outputs, &vec![0.0; outputs])?,
                output: DeviceMatrix::zeros(&device, n, outputs)?,
            })
        };
        let scratch = |width: usize| {
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Scratch {
                product: DeviceMatrix::zeros(&device, n, width)?,
                gradient: DeviceMatrix::zeros(&device, n, width)?,
                operand: Operand::new(&device, shape.precision, n, width)?,
            })
        };
        Ok(Self {
            adjacency,
            features: DeviceMatrix::upload(&device, DenseRef::packed(&task.features, n, task.width)?)?,
            layers: widths.windows(2).map(layer).collect::<Result<_>>()?,
            scratch: [scratch(hidden.get(1).copied().unwrap_or(0))?, scratch(classes)?],
            sums: ColumnSums::new(&device, shape.widest())?,
            gradient_scale: shape.gradient_scale(task.mean_of()),
            preprocessing_s: 0.0,
            tools,
        })
    }

    /// What the plans say of themselves.
    pub(crate) fn reports(&self) -> String {
        self.adjacency.reports()
    }
}

fn plan(a: &Csr<f32>, shape: &Shape, device: &Device) -> Result<SpmmPlan> {
    Ok(Spmm::builder(a).width(shape.widest()).precision(shape.precision).build(device)?)
}

impl<A: Adjacency> Model for Gcn<A> {
    fn forward(&mut self) -> Result<&DeviceMatrix<f32>> {
        let Self { tools: Tools { gemm, clock, lane, .. }, adjacency, features, layers, scratch, .. } = self;
        let last = layers.len() - 1;
        let mut input: &DeviceMatrix<f32> = features;
        for (l, layer) in layers.iter_mut().enumerate() {
            let Scratch { product, operand, .. } = &mut scratch[usize::from(l == last)];
            gemm.run(Form::Plain, input, &layer.weight.value, product)?;
            operand.set(lane, 1.0, product)?;
            clock.time(Work::Spmm, || {
                adjacency.multiply(lane, false, (1.0, operand, product), &mut layer.output)
            })?;
            let (output, bias) = (lane.write(&mut layer.output), lane.read(&layer.bias.value));
            match l == last {
                true => add_bias_on(&lane.stream, output, bias)?,
                false => add_bias_relu_on(&lane.stream, output, bias)?,
            }
            input = &layer.output;
        }
        Ok(input)
    }

    fn backward(&mut self, of_logits: &DeviceMatrix<f32>) -> Result<()> {
        let Self {
            tools: Tools { gemm, clock, lane, .. }, adjacency, features, layers, scratch, sums, ..
        } = self;
        let scale = self.gradient_scale;
        let last = layers.len() - 1;
        let [hidden, classes] = scratch;
        for l in (0..=last).rev() {
            let (before, from) = layers.split_at_mut(l);
            let layer = &mut from[0];
            let Scratch { product, gradient, operand } = if l == last { &mut *classes } else { &mut *hidden };
            let gradient = if l == last { of_logits } else { &*gradient };
            sums.sum_on(&lane.stream, lane.read(gradient), lane.write(&mut layer.bias.gradient))?;
            operand.set(lane, scale, gradient)?;
            let scaled = (1.0 / scale, &*operand, gradient);
            clock.time(Work::Spmm, || adjacency.multiply(lane, true, scaled, product))?;
            let input = before.last().map_or(&*features, |layer| &layer.output);
            gemm.run(Form::First, input, product, &mut layer.weight.gradient)?;
            if l > 0 {
                // The last layer's product is not one of the hidden ones'; any other's is not used again.
                let product = if l == last { &classes.product } else { &hidden.product };
                gemm.run(Form::Second, product, &layer.weight.value, &mut hidden.gradient)?;
                relu_backward_on(&lane.stream, lane.write(&mut hidden.gradient), lane.read(input))?;
            }
        }
        for layer in layers {
            adjacency.reduce(&mut layer.weight.gradient)?;
            adjacency.reduce(&mut layer.bias.gradient)?;
        }
        Ok(())
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        self.layers.iter_mut().flat_map(|layer| [&mut layer.weight, &mut layer.bias]).collect()
    }

    fn lane(&self) -> &Lane {
        &self.tools.lane
    }

    fn clock(&mut self) -> &mut Clock {
        &mut self.tools.clock
    }

    fn preprocessing_s(&self) -> f64 {
        self.preprocessing_s
    }
}
