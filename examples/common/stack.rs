//! Layers of attention, each upon the one before, with ReLU between them: what AGNN, GAT and the graph transformer have
//! in common.
//!
//! The loss is multiplied by a number on its way back where gradients are rounded to f16, below whose range they would
//! fall; the gradients of parameters are divided by it in the end.

use std::process::ExitCode;
use std::time::Instant;

use windrow::synthetic::SplitMix64;
use windrow::training::{relu_backward_on, relu_on, round_into_on};
use windrow::{Csr, DenseRef, DeviceMatrix};

use super::Result;
use super::clock::Clock;
use super::data::Task;
use super::lane::Lane;
use super::model::{Model, Parameter, Shape, Tools, Width};
use super::options::Options;
use super::train;

/// A layer of a network of attention.
pub(crate) trait Layer: Sized {
    /// What all layers of a network share: plans for the graph, and memory that each uses anew.
    type Shared;

    /// # Errors
    /// If a plan or the device refuses.
    fn share(graph: &Csr<f32>, shape: &Shape, tools: &Tools) -> Result<Self::Shared>;

    /// What the plans say of themselves.
    fn reports(shared: &Self::Shared) -> String;

    /// # Errors
    /// If there is too little memory.
    fn new(ends: Ends<'_>, tools: &Tools, random: &mut SplitMix64) -> Result<Self>;

    /// The [`output`](Self::output) from the input.
    ///
    /// # Errors
    /// If the device fails.
    fn forward(
        &mut self,
        tools: &mut Tools,
        shared: &mut Self::Shared,
        input: &DeviceMatrix<f32>,
    ) -> Result<()>;

    /// Gradients of the layer's parameters, and with respect to its input if there is a place for that, from that with
    /// respect to its output, whose elements are zero where ReLU has made the output's zero.
    ///
    /// # Errors
    /// If the device fails.
    fn backward(
        &mut self,
        tools: &mut Tools,
        shared: &mut Self::Shared,
        of_output: &DeviceMatrix<f32>,
        input: (&DeviceMatrix<f32>, Option<&mut DeviceMatrix<f32>>),
    ) -> Result<()>;

    fn output(&self) -> &DeviceMatrix<f32>;

    fn output_mut(&mut self) -> &mut DeviceMatrix<f32>;

    fn parameters(&mut self) -> Vec<&mut Parameter>;
}

/// What a layer is between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) graph: &'a Csr<f32>,
    pub(crate) shape: &'a Shape,
    /// Columns of the input.
    pub(crate) inputs: usize,
    /// Which of [`Shape::two_widths`] is the layer's.
    pub(crate) place: usize,
}

impl Ends<'_> {
    /// The layer's width.
    ///
    /// # Errors
    /// Those of [`Shape::two_widths`].
    pub(crate) fn width(&self) -> Result<Width> {
        Ok(self.shape.two_widths()?[self.place])
    }
}

/// The model, its plans and its memory.
pub(crate) struct Stack<L: Layer> {
    tools: Tools,
    shared: L::Shared,
    features: DeviceMatrix<f32>,
    layers: Vec<L>,
    /// With respect to the output of a hidden layer, and to its input, by turns.
    gradients: [DeviceMatrix<f32>; 2],
    /// With respect to the logits, scaled; none where the scale is 1.
    of_logits: Option<DeviceMatrix<f32>>,
    /// What the loss is multiplied by.
    scale: f32,
    heads: usize,
    preprocessing_s: f64,
}

impl<L: Layer> Stack<L> {
    /// For an undirected graph with loops.
    ///
    /// # Errors
    /// If there are no layers, or the device refuses.
    pub(crate) fn new(graph: &Csr<f32>, task: &Task, shape: &Shape, tools: Tools) -> Result<Self> {
        let (device, n) = (tools.device.clone(), graph.rows());
        let [hidden, last] = shape.two_widths()?;
        let start = Instant::now();
        let shared = L::share(graph, shape, &tools)?;
        device.synchronize()?;
        let preprocessing_s = start.elapsed().as_secs_f64();
        let mut random = SplitMix64::new(shape.seed.wrapping_add(3 << 32));
        let scale = shape.gradient_scale(task.trained_count());
        let count = shape.widths.len() - 1;
        let mut layers = Vec::with_capacity(count);
        for (l, &inputs) in shape.widths[..count].iter().enumerate() {
            let ends = Ends { graph, shape, inputs, place: usize::from(l + 1 == count) };
            let mut layer = L::new(ends, &tools, &mut random)?;
            layer.parameters().into_iter().try_for_each(|parameter| parameter.make_room(scale))?;
            layers.push(layer);
        }
        let zeros = |width| DeviceMatrix::zeros(&device, n, width);
        Ok(Self {
            shared,
            features: DeviceMatrix::upload(&device, DenseRef::packed(&task.features, n, task.width)?)?,
            layers,
            gradients: [zeros(hidden.all())?, zeros(hidden.all())?],
            of_logits: if scale == 1.0 { None } else { Some(zeros(last.all())?) },
            scale,
            heads: hidden.heads,
            preprocessing_s,
            tools,
        })
    }

    /// What the plans say of themselves.
    pub(crate) fn reports(&self) -> String {
        L::reports(&self.shared)
    }
}

impl<L: Layer> Model for Stack<L> {
    fn forward(&mut self) -> Result<&DeviceMatrix<f32>> {
        let Self { tools, shared, features, layers, .. } = self;
        let last = layers.len() - 1;
        let mut input: &DeviceMatrix<f32> = features;
        for (l, layer) in layers.iter_mut().enumerate() {
            layer.forward(tools, shared, input)?;
            if l < last {
                relu_on(&tools.lane.stream, tools.lane.write(layer.output_mut()))?;
            }
            input = layer.output();
        }
        Ok(input)
    }

    fn backward(&mut self, of_logits: &DeviceMatrix<f32>) -> Result<()> {
        let Self { tools, shared, features, layers, gradients, of_logits: scaled, scale, .. } = self;
        let of_logits = match scaled {
            None => of_logits,
            Some(scaled) => {
                let (from, to) = (tools.lane.read(of_logits), tools.lane.write(scaled));
                round_into_on(&tools.lane.stream, *scale, from, to)?;
                scaled
            }
        };
        let last = layers.len() - 1;
        let [mut of_output, mut of_input] = gradients.each_mut();
        for l in (0..=last).rev() {
            let (before, from) = layers.split_at_mut(l);
            let input = before.last().map_or(&*features, Layer::output);
            let gradient = if l == last { of_logits } else { &*of_output };
            let to = if l > 0 { Some(&mut *of_input) } else { None };
            from[0].backward(tools, shared, gradient, (input, to))?;
            if l > 0 {
                let lane = &tools.lane;
                relu_backward_on(&lane.stream, lane.write(of_input), lane.read(input))?;
                std::mem::swap(&mut of_output, &mut of_input);
            }
        }
        let mut parameters = layers.iter_mut().flat_map(Layer::parameters);
        parameters.try_for_each(|parameter| parameter.unscale(&tools.lane, *scale))
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        self.layers.iter_mut().flat_map(Layer::parameters).collect()
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

    fn heads(&self) -> usize {
        self.heads
    }
}

/// Makes such a network, trains it and says how that went, or what went wrong.
pub(crate) fn main<L: Layer>(name: &str, options: &Options, shape: &Shape) -> ExitCode {
    train::main(name, options, |graph, task| {
        let tools = options.tools()?;
        let device = tools.device.clone();
        let model = Stack::<L>::new(graph, task, shape, tools)?;
        let reports = if options.reports { model.reports() } else { String::new() };
        Ok((model, device, reports))
    })
}
