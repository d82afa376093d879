//! A graph attention network (Veličković et al., 2018): a node takes the average of its neighbours, in each head
//! weighted by the softmax of a rectified sum of a number of its own and one of the neighbour's. Hidden layers have
//! several heads beside each other, the last has one.
//!
//! ```text
//! forward                                            backward, from G = ∂loss/∂O
//! Z = H·W              dense, n × (heads·d)          ∂Q, ∂K, ∂Z                  attention's gradients
//! Q = Z·A, K = Z·B     dense, n × heads              ∂A = Zᵀ·∂Q, ∂B = Zᵀ·∂K      where A and B have elements
//! O = softmax(leaky_relu(Q[i] + K[j])) · Z           ∂Z += ∂Q·Aᵀ + ∂K·Bᵀ
//! H' = max(O, 0)                                     ∂W = Hᵀ·∂Z, ∂H = ∂Z·Wᵀ, zero where H is
//! ```
//!
//! Column `h` of `A` and `B` has elements in the `d` rows of head `h` alone: zeros elsewhere stay, for their gradient
//! is kept zero.

use windrow::synthetic::SplitMix64;
use windrow::training::relu_backward_on;
use windrow::{Csr, DenseRef, Device, DeviceMatrix};

use super::Result;
use super::attention::{Attended, Attention, Operands, builder};
use super::gemm::Form;
use super::model::{Operand, Parameter, Shape, Tools, Width, glorot};
use super::stack::{self, Ends, Stack};

pub(crate) type Gat = Stack<Layer>;

/// Slope of the rectifier below zero.
const NEGATIVE_SLOPE: f32 = 0.2;

pub(crate) struct Layer {
    weight: Parameter,
    /// `A` and `B`, which make scores of `Z`.
    to_scores: [Parameter; 2],
    z: DeviceMatrix<f32>,
    z_operand: Operand,
    /// `Q` and `K`, a column for each head.
    scores: [DeviceMatrix<f32>; 2],
    attended: Attended,
    place: usize,
}

/// What layers share: of hidden ones, and of the last.
pub(crate) struct Shared([OfWidth; 2]);

/// What layers of one width share.
struct OfWidth {
    attention: Attention,
    /// Ones where `A` and `B` have elements; none where that is everywhere.
    blocks: Option<DeviceMatrix<f32>>,
}

impl OfWidth {
    fn new(graph: &Csr<f32>, shape: &Shape, width: Width, device: &Device) -> Result<Self> {
        let builder = builder(graph, shape.precision, width).additive(NEGATIVE_SLOPE);
        let blocks = match width.heads {
            1 => None,
            heads => {
                let ones = of_blocks(width, || 1.0);
                Some(DeviceMatrix::upload(device, DenseRef::packed(&ones, width.all(), heads)?)?)
            }
        };
        Ok(Self { attention: Attention::new(&builder, device)?, blocks })
    }
}

/// A matrix with a column for each head, and these elements in the rows of the head.
fn of_blocks(width: Width, mut element: impl FnMut() -> f32) -> Vec<f32> {
    let mut elements = vec![0.0; width.all() * width.heads];
    for (row, elements) in elements.chunks_mut(width.heads).enumerate() {
        elements[row / width.columns] = element();
    }
    elements
}

impl stack::Layer for Layer {
    type Shared = Shared;

    fn share(graph: &Csr<f32>, shape: &Shape, tools: &Tools) -> Result<Shared> {
        let [hidden, last] = shape.two_widths()?;
        let of_width = |width| OfWidth::new(graph, shape, width, &tools.device);
        Ok(Shared([of_width(hidden)?, of_width(last)?]))
    }

    fn reports(Shared(shared): &Shared) -> String {
        shared.each_ref().map(|shared| shared.attention.report()).join("\n\nof the last layer:\n")
    }

    fn new(ends: Ends<'_>, tools: &Tools, random: &mut SplitMix64) -> Result<Self> {
        let (device, rows, width) = (&tools.device, ends.graph.rows(), ends.width()?);
        let zeros = |cols| DeviceMatrix::zeros(device, rows, cols);
        let weight = Parameter::glorot(device, ends.inputs, width.all(), random)?;
        let mut to_scores = || {
            let elements = of_blocks(width, || glorot(width.columns, 1, random));
            Parameter::new(device, width.all(), width.heads, &elements)
        };
        Ok(Self {
            weight,
            to_scores: [to_scores()?, to_scores()?],
            z: zeros(width.all())?,
            z_operand: Operand::new(device, ends.shape.precision, rows, width.all())?,
            scores: [zeros(width.heads)?, zeros(width.heads)?],
            attended: Attended::new(device, rows, width)?,
            place: ends.place,
        })
    }

    fn forward(&mut self, tools: &mut Tools, shared: &mut Shared, input: &DeviceMatrix<f32>) -> Result<()> {
        let Self { weight, to_scores, z, z_operand, scores, attended, place } = self;
        tools.gemm.run(Form::Plain, input, &weight.value, z)?;
        z_operand.set(&tools.lane, 1.0, z)?;
        for (scores, to_scores) in scores.iter_mut().zip(to_scores) {
            tools.gemm.run(Form::Plain, z, &to_scores.value, scores)?;
        }
        let operands = Operands::Additive(scores.each_ref(), z_operand.of(z));
        shared.0[*place].attention.forward(tools, 1.0, operands, attended)
    }

    fn backward(
        &mut self,
        tools: &mut Tools,
        shared: &mut Shared,
        of_output: &DeviceMatrix<f32>,
        (input, of_input): (&DeviceMatrix<f32>, Option<&mut DeviceMatrix<f32>>),
    ) -> Result<()> {
        let Self { weight, to_scores, z, z_operand, scores, attended, place } = self;
        let OfWidth { attention, blocks } = &mut shared.0[*place];
        let operands = Operands::Additive(scores.each_ref(), z_operand.of(z));
        attention.backward(tools, (1.0, operands), attended, of_output)?;
        let Tools { gemm, lane, .. } = tools;
        let [of_q, of_k, of_z] = &mut attention.found;
        for (to_scores, of_scores) in to_scores.iter_mut().zip([&*of_q, &*of_k]) {
            let gradient = to_scores.scaled_gradient();
            gemm.run(Form::First, z, of_scores, gradient)?;
            if let Some(blocks) = blocks {
                // What keeps elements by the sign of others does so by these ones and zeros.
                relu_backward_on(&lane.stream, lane.write(gradient), lane.read(blocks))?;
            }
            gemm.run_into(Form::Second, [of_scores, &to_scores.value], 1.0, of_z)?;
        }
        gemm.run(Form::First, input, of_z, weight.scaled_gradient())?;
        match of_input {
            Some(of_input) => gemm.run(Form::Second, of_z, &weight.value, of_input),
            None => Ok(()),
        }
    }

    fn output(&self) -> &DeviceMatrix<f32> {
        &self.attended.out
    }

    fn output_mut(&mut self) -> &mut DeviceMatrix<f32> {
        &mut self.attended.out
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let Self { weight, to_scores, .. } = self;
        [weight].into_iter().chain(to_scores).collect()
    }
}
