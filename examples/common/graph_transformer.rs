//! A graph transformer (Shi et al., 2021): a node takes the average of its neighbours' values, in each head weighted by
//! the softmax of the products of its query with their keys, and adds what it makes of itself. Hidden layers have
//! several heads beside each other, the last has one.
//!
//! ```text
//! forward                                             backward, from G = ∂loss/∂(O + H·U)
//! Q = H·W₁, K = H·W₂, V = H·W₃     dense              ∂Q, ∂K, ∂V                attention's gradients
//! O = softmax(Q·Kᵀ / √d) · V                          ∂W₁ = Hᵀ·∂Q, …, ∂U = Hᵀ·G
//! H' = max(O + H·U, 0)             dense              ∂H = G·Uᵀ + ∂Q·W₁ᵀ + …, zero where H is
//! ```

use windrow::synthetic::SplitMix64;
use windrow::training::round_into_on;
use windrow::{Csr, DeviceMatrix};

use super::Result;
use super::attention::{Attended, Attention, Operands, builder};
use super::gemm::Form;
use super::model::{Operand, Parameter, Shape, Tools, Typed};
use super::stack::{self, Ends, Stack};

pub(crate) type GraphTransformer = Stack<Layer>;

pub(crate) struct Layer {
    projections: [Projection; 3],
    /// `U`: what a node makes of itself.
    skip: Parameter,
    attended: Attended,
    output: DeviceMatrix<f32>,
    /// `1 / √d`, for heads of `d` columns.
    scale: f32,
    place: usize,
}

/// One of `Q`, `K` and `V`.
struct Projection {
    weight: Parameter,
    made: DeviceMatrix<f32>,
    operand: Operand,
}

impl Projection {
    fn typed(&self) -> Typed<'_> {
        self.operand.of(&self.made)
    }
}

fn operands(projections: &[Projection; 3]) -> Operands<'_> {
    Operands::DotProduct(projections.each_ref().map(Projection::typed))
}

impl stack::Layer for Layer {
    /// Of hidden layers, and of the last.
    type Shared = [Attention; 2];

    fn share(graph: &Csr<f32>, shape: &Shape, tools: &Tools) -> Result<[Attention; 2]> {
        let [hidden, last] = shape.two_widths()?;
        let attention = |width| Attention::new(&builder(graph, shape.precision, width), &tools.device);
        Ok([attention(hidden)?, attention(last)?])
    }

    fn reports(shared: &[Attention; 2]) -> String {
        shared.each_ref().map(Attention::report).join("\n\nof the last layer:\n")
    }

    fn new(ends: Ends<'_>, tools: &Tools, random: &mut SplitMix64) -> Result<Self> {
        let (device, rows, width) = (&tools.device, ends.graph.rows(), ends.width()?);
        let mut projection = || -> Result<Projection> {
            Ok(Projection {
                weight: Parameter::glorot(device, ends.inputs, width.all(), random)?,
                made: DeviceMatrix::zeros(device, rows, width.all())?,
                operand: Operand::new(device, ends.shape.precision, rows, width.all())?,
            })
        };
        #[expect(clippy::cast_precision_loss, reason = "at most 256 columns")]
        let scale = 1.0 / (width.columns as f32).sqrt();
        Ok(Self {
            projections: [projection()?, projection()?, projection()?],
            skip: Parameter::glorot(device, ends.inputs, width.all(), random)?,
            attended: Attended::new(device, rows, width)?,
            output: DeviceMatrix::zeros(device, rows, width.all())?,
            scale,
            place: ends.place,
        })
    }

    fn forward(
        &mut self,
        tools: &mut Tools,
        shared: &mut [Attention; 2],
        input: &DeviceMatrix<f32>,
    ) -> Result<()> {
        for Projection { weight, made, operand } in &mut self.projections {
            tools.gemm.run(Form::Plain, input, &weight.value, made)?;
            operand.set(&tools.lane, 1.0, made)?;
        }
        let attention = &shared[self.place];
        attention.forward(tools, self.scale, operands(&self.projections), &mut self.attended)?;
        // The gradient wants what attention alone has made.
        let (lane, output) = (&tools.lane, &mut self.output);
        round_into_on(&lane.stream, 1.0, lane.read(&self.attended.out), lane.write(output))?;
        tools.gemm.run_into(Form::Plain, [input, &self.skip.value], 1.0, output)
    }

    fn backward(
        &mut self,
        tools: &mut Tools,
        shared: &mut [Attention; 2],
        of_output: &DeviceMatrix<f32>,
        (input, mut of_input): (&DeviceMatrix<f32>, Option<&mut DeviceMatrix<f32>>),
    ) -> Result<()> {
        let attention = &mut shared[self.place];
        attention.backward(tools, (self.scale, operands(&self.projections)), &self.attended, of_output)?;
        let Self { projections, skip, .. } = self;
        let of_projections = projections.iter_mut().map(|projection| &mut projection.weight);
        let parts = [skip].into_iter().chain(of_projections);
        let gradients = [of_output].into_iter().chain(&attention.found);
        for (part, (parameter, gradient)) in parts.zip(gradients).enumerate() {
            tools.gemm.run(Form::First, input, gradient, parameter.scaled_gradient())?;
            if let Some(of_input) = &mut of_input {
                let beta = if part == 0 { 0.0 } else { 1.0 };
                tools.gemm.run_into(Form::Second, [gradient, &parameter.value], beta, of_input)?;
            }
        }
        Ok(())
    }

    fn output(&self) -> &DeviceMatrix<f32> {
        &self.output
    }

    fn output_mut(&mut self) -> &mut DeviceMatrix<f32> {
        &mut self.output
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let Self { projections, skip, .. } = self;
        projections.iter_mut().map(|projection| &mut projection.weight).chain([skip]).collect()
    }
}
