//! Attention of AGNN in one pass: `Q = β·X`, `K = X`, `V = Z`.
//!
//! ```text
//! forward                                     backward, from G = ∂loss/∂O
//! O = softmax(Q·Kᵀ) · V   attention           ∂Q, ∂K, ∂V             attention's gradients
//!                                             ∂β = Σ X ⊙ ∂Q
//!                                             ∂X = β·∂Q + ∂K, ∂Z = ∂V + of ∂X
//! ```
//!
//! `β` stays on the device: `Q` is made, and `∂Q` is taken, with a factor that is there.

use windrow::synthetic::SplitMix64;
use windrow::training::ColumnSums;
use windrow::{Csr, DeviceMatrix};

use super::super::Result;
use super::super::attention::{Attended, Attention, Operands, builder};
use super::super::model::{Operand, Parameter, Shape, Tools};
use super::super::stack::{self, Ends};
use super::{Directions, factor};

/// A layer that attends in one pass.
pub(crate) struct Layer {
    directions: Directions,
    /// `β·X`, in the type of the plan.
    query: Operand,
    attended: Attended,
    place: usize,
}

/// What all layers of a network share.
pub(crate) struct Shared {
    /// Of hidden layers, and of the last.
    attention: [Attention; 2],
    sums: ColumnSums,
}

impl Layer {
    fn operands(&self) -> Operands<'_> {
        let Directions { z, z_operand, x, x_operand, .. } = &self.directions;
        Operands::DotProduct([self.query.of(x), x_operand.of(x), z_operand.of(z)])
    }
}

impl stack::Layer for Layer {
    type Shared = Shared;

    fn share(graph: &Csr<f32>, shape: &Shape, tools: &Tools) -> Result<Shared> {
        let [hidden, last] = shape.two_widths()?;
        let attention = |width| Attention::new(&builder(graph, shape.precision, width), &tools.device);
        let sums = ColumnSums::new(&tools.device, shape.widest())?;
        Ok(Shared { attention: [attention(hidden)?, attention(last)?], sums })
    }

    fn reports(shared: &Shared) -> String {
        shared.attention.each_ref().map(Attention::report).join("\n\nof the last layer:\n")
    }

    fn new(ends: Ends<'_>, tools: &Tools, random: &mut SplitMix64) -> Result<Self> {
        let (device, precision) = (&tools.device, ends.shape.precision);
        let (rows, width) = (ends.graph.rows(), ends.width()?);
        Ok(Self {
            directions: Directions::new(ends, tools, random)?,
            query: Operand::scaled(device, precision, rows, width.all())?,
            attended: Attended::new(device, rows, width)?,
            place: ends.place,
        })
    }

    fn forward(&mut self, tools: &mut Tools, shared: &mut Shared, input: &DeviceMatrix<f32>) -> Result<()> {
        self.directions.forward(tools, input)?;
        let Directions { beta, z, z_operand, x, x_operand, .. } = &self.directions;
        self.query.set(&tools.lane, factor(&tools.lane, beta), x)?;
        let operands = Operands::DotProduct([self.query.of(x), x_operand.of(x), z_operand.of(z)]);
        shared.attention[self.place].forward(tools, 1.0, operands, &mut self.attended)
    }

    fn backward(
        &mut self,
        tools: &mut Tools,
        shared: &mut Shared,
        of_output: &DeviceMatrix<f32>,
        input: (&DeviceMatrix<f32>, Option<&mut DeviceMatrix<f32>>),
    ) -> Result<()> {
        let attention = &mut shared.attention[self.place];
        attention.backward(tools, (1.0, self.operands()), &self.attended, of_output)?;
        let (lane, [of_q, of_k, of_z]) = (&tools.lane, &mut attention.found);
        let Directions { beta, x, .. } = &mut self.directions;
        let of_beta = (lane.write(beta.scaled_gradient()), 0);
        shared.sums.dot_on(&lane.stream, [lane.read(x), lane.read(of_q)], of_beta)?;
        let directions = &self.directions;
        directions.add_of_directions(lane, (factor(lane, &directions.beta), of_q), of_z)?;
        directions.add_of_directions(lane, (1.0, of_k), of_z)?;
        self.directions.backward(tools, of_z, input)
    }

    fn output(&self) -> &DeviceMatrix<f32> {
        &self.attended.out
    }

    fn output_mut(&mut self) -> &mut DeviceMatrix<f32> {
        &mut self.attended.out
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let Directions { weight, beta, .. } = &mut self.directions;
        vec![weight, beta]
    }
}
