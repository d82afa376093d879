//! An attention-based graph neural network (Thekumparampil et al., 2018): a node takes the average of its neighbours,
//! weighted by the softmax of `β · cos` of the angles to them, with a `β` that each layer learns.
//!
//! ```text
//! forward                                     backward, from G = ∂loss/∂O
//! Z = H·W                         dense       ∂Z of O and of X
//! X = Z, rows of length 1                     ∂W = Hᵀ·∂Z, ∂H = ∂Z·Wᵀ, zero where H is
//! O = softmax(β·X·Xᵀ) · Z         over the entries of each row
//! H' = max(O, 0)
//! ```
//!
//! Attention is computed in one pass ([`one_pass`]), or step by step with arrays of a number for each entry
//! ([`steps`]).

pub(crate) mod one_pass;
pub(crate) mod steps;

use windrow::synthetic::SplitMix64;
use windrow::training::{normalize_rows_backward_on, normalize_rows_on};
use windrow::{DeviceBuffer, DeviceMatrix, DeviceSlice, Scale};

use super::Result;
use super::gemm::Form;
use super::lane::Lane;
use super::model::{Operand, Parameter, Tools};
use super::stack::{Ends, Stack};

/// The model with attention in one pass.
pub(crate) type Agnn = Stack<one_pass::Layer>;
/// The model with attention step by step.
pub(crate) type AgnnBySteps = Stack<steps::Layer>;

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// In one pass, forward and backward, without a number for each entry. Not in tf32.
    Fused,
    /// By a sampled product, a softmax and a product with the weights as values.
    Steps,
}

/// What both ways attend to: `Z`, and the directions `X` of its rows.
struct Directions {
    weight: Parameter,
    beta: Parameter,
    z: DeviceMatrix<f32>,
    z_operand: Operand,
    x: DeviceMatrix<f32>,
    x_operand: Operand,
    inverse_norms: DeviceBuffer<f32>,
}

impl Directions {
    fn new(ends: Ends<'_>, tools: &Tools, random: &mut SplitMix64) -> Result<Self> {
        let (device, rows, outputs) = (&tools.device, ends.graph.rows(), ends.width()?.all());
        let operand = || Operand::new(device, ends.shape.precision, rows, outputs);
        Ok(Self {
            weight: Parameter::glorot(device, ends.inputs, outputs, random)?,
            beta: Parameter::new(device, 1, 1, &[1.0])?,
            z: DeviceMatrix::zeros(device, rows, outputs)?,
            z_operand: operand()?,
            x: DeviceMatrix::zeros(device, rows, outputs)?,
            x_operand: operand()?,
            inverse_norms: DeviceBuffer::alloc_zeroed(device, rows)?,
        })
    }

    /// `Z` and `X`, from the input.
    fn forward(&mut self, tools: &Tools, input: &DeviceMatrix<f32>) -> Result<()> {
        let Tools { gemm, lane, .. } = tools;
        let Self { weight, z, z_operand, x, x_operand, inverse_norms, .. } = self;
        gemm.run(Form::Plain, input, &weight.value, z)?;
        z_operand.set(lane, 1.0, z)?;
        let inverse_norms = lane.write_array(inverse_norms);
        normalize_rows_on(&lane.stream, lane.read(z), lane.write(x), inverse_norms)?;
        Ok(x_operand.set(lane, 1.0, x)?)
    }

    /// Adds to the gradient with respect to `Z` that of `X`, from `scale` times that with respect to `X`.
    fn add_of_directions<'a>(
        &self,
        lane: &Lane,
        (scale, of_x): (impl Into<Scale<'a>>, &DeviceMatrix<f32>),
        of_z: &mut DeviceMatrix<f32>,
    ) -> Result<()> {
        let normalized = (lane.read(&self.x), lane.read_array(&self.inverse_norms));
        let (of_x, of_z) = (lane.read(of_x), lane.write(of_z));
        Ok(normalize_rows_backward_on(&lane.stream, scale.into(), normalized, of_x, of_z)?)
    }

    /// Gradients with respect to the weight and to the input, from that with respect to `Z`.
    fn backward(
        &mut self,
        tools: &Tools,
        of_z: &DeviceMatrix<f32>,
        (input, of_input): (&DeviceMatrix<f32>, Option<&mut DeviceMatrix<f32>>),
    ) -> Result<()> {
        tools.gemm.run(Form::First, input, of_z, self.weight.scaled_gradient())?;
        match of_input {
            Some(of_input) => tools.gemm.run(Form::Second, of_z, &self.weight.value, of_input),
            None => Ok(()),
        }
    }
}

/// The `β` of a layer, where it is.
fn factor<'a>(lane: &Lane, beta: &'a Parameter) -> DeviceSlice<'a, f32> {
    lane.read_array(beta.value.buffer())
}
