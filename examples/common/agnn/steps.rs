//! Attention of AGNN step by step.
//!
//! ```text
//! forward                              backward, from G = ∂loss/∂O
//! S = X·Xᵀ at entries    SDDMM         ∂P = G·Zᵀ at the entries          SDDMM
//! P = softmax(β·S)       over rows     ∂Z = Pᵀ·G                         SpMM
//! O = P·Z                SpMM          ∂T = p·(∂p − Σ p·∂p)              softmax over rows, backward
//!                                      U = ∂T·X, ∂β = Σ X ⊙ U            SpMM
//!                                      U += ∂Tᵀ·X, ∂X = β·U              SpMM
//! ```
//!
//! `P` and `∂T` never leave the device: they become the values of a plan for the graph and of one for its transpose. In
//! f16 the weights of a node with more than 2¹⁴ neighbours are subnormal, and lose digits; bf16 has the range of f32.

use windrow::synthetic::SplitMix64;
use windrow::training::ColumnSums;
use windrow::{Csr, DeviceBuffer, DeviceMatrix, RowSoftmax, Sddmm, SddmmPlan, Spmm, SpmmBuilder, SpmmPlan};

use super::super::Result;
use super::super::clock::Work;
use super::super::model::{Operand, Parameter, Shape, Tools, Width, sddmm, spmm};
use super::super::stack::{self, Ends};
use super::{Directions, factor};

/// A layer that attends step by step.
pub(crate) struct Layer {
    directions: Directions,
    weights: DeviceBuffer<f32>,
    output: DeviceMatrix<f32>,
    place: usize,
}

/// What all layers of a network share.
pub(crate) struct Shared {
    plans: Plans,
    /// For hidden layers, and for the last.
    scratch: [Scratch; 2],
    /// Gradients of the entries: with respect to weights, and to what their softmax was taken of.
    of_entries: [DeviceBuffer<f32>; 2],
    sums: ColumnSums,
}

/// The plans for one graph.
struct Plans {
    scores: SddmmPlan,
    softmax: RowSoftmax,
    forward: SpmmPlan,
    /// For the transpose; takes values in the order of the graph's entries.
    transposed: SpmmPlan,
}

/// Matrices of one width that every layer of that width uses anew.
struct Scratch {
    of_z: DeviceMatrix<f32>,
    u: DeviceMatrix<f32>,
    gradient: Operand,
}

impl Plans {
    fn new(graph: &Csr<f32>, shape: &Shape, tools: &Tools) -> Result<Self> {
        let (width, device) = (shape.widest(), &tools.device);
        let (transposed, order) = (graph.transpose()?, graph.transpose_order()?);
        let build = |builder: SpmmBuilder<'_, Csr<f32>>| {
            builder.width(width).precision(shape.precision).values_from_device().build(device)
        };
        Ok(Self {
            scores: Sddmm::builder(graph).inner(width).precision(shape.precision).build(device)?,
            softmax: RowSoftmax::new(graph, device)?,
            forward: build(Spmm::builder(graph))?,
            transposed: build(Spmm::builder(&transposed).value_order(&order))?,
        })
    }
}

impl stack::Layer for Layer {
    type Shared = Shared;

    fn share(graph: &Csr<f32>, shape: &Shape, tools: &Tools) -> Result<Shared> {
        let (device, rows) = (&tools.device, graph.rows());
        let entries = || DeviceBuffer::alloc_zeroed(device, graph.nnz());
        let scratch = |width: Width| -> Result<Scratch> {
            let zeros = || DeviceMatrix::zeros(device, rows, width.all());
            let gradient = Operand::new(device, shape.precision, rows, width.all())?;
            Ok(Scratch { of_z: zeros()?, u: zeros()?, gradient })
        };
        let [hidden, last] = shape.two_widths()?;
        Ok(Shared {
            plans: Plans::new(graph, shape, tools)?,
            scratch: [scratch(hidden)?, scratch(last)?],
            of_entries: [entries()?, entries()?],
            sums: ColumnSums::new(device, shape.widest())?,
        })
    }

    fn reports(shared: &Shared) -> String {
        let Plans { scores, forward, transposed, .. } = &shared.plans;
        format!("{}\n\n{}\n\nfor the transpose:\n{}", scores.report(), forward.report(), transposed.report())
    }

    fn new(ends: Ends<'_>, tools: &Tools, random: &mut SplitMix64) -> Result<Self> {
        Ok(Self {
            directions: Directions::new(ends, tools, random)?,
            weights: DeviceBuffer::alloc_zeroed(&tools.device, ends.graph.nnz())?,
            output: DeviceMatrix::zeros(&tools.device, ends.graph.rows(), ends.width()?.all())?,
            place: ends.place,
        })
    }

    fn forward(&mut self, tools: &mut Tools, shared: &mut Shared, input: &DeviceMatrix<f32>) -> Result<()> {
        self.directions.forward(tools, input)?;
        let Self { directions: Directions { beta, z, z_operand, x, x_operand, .. }, weights, output, .. } =
            self;
        let Tools { clock, lane, .. } = tools;
        let on = &lane.stream;
        let Plans { scores, softmax, forward, .. } = &mut shared.plans;
        clock.time(Work::Sddmm, || sddmm((lane, scores), (x_operand, x), (x_operand, x), weights))?;
        let beta = factor(lane, beta);
        clock.time(Work::Softmax, || softmax.forward_in_place_on(on, beta, lane.write_array(weights)))?;
        clock.time(Work::Values, || forward.replace_values_on(on, lane.read_array(weights)))?;
        clock.time(Work::Spmm, || spmm(lane, forward, (1.0, z_operand, z), (0.0, output)))
    }

    fn backward(
        &mut self,
        tools: &mut Tools,
        shared: &mut Shared,
        of_output: &DeviceMatrix<f32>,
        input: (&DeviceMatrix<f32>, Option<&mut DeviceMatrix<f32>>),
    ) -> Result<()> {
        let Shared { plans, scratch, of_entries: [of_weights, of_scores], sums } = shared;
        let Plans { scores, softmax, forward, transposed } = plans;
        let Scratch { of_z, u, gradient } = &mut scratch[self.place];
        let Tools { clock, lane, .. } = &mut *tools;
        let on = &lane.stream;
        let Directions { beta, z, z_operand, x, x_operand, .. } = &mut self.directions;
        gradient.set(lane, 1.0, of_output)?;
        let (given, x_there) = ((&*gradient, of_output), (1.0, &*x_operand, &*x));
        clock.time(Work::Values, || transposed.replace_values_on(on, lane.read_array(&self.weights)))?;
        clock.time(Work::Spmm, || spmm(lane, transposed, (1.0, given.0, given.1), (0.0, of_z)))?;
        clock.time(Work::Sddmm, || sddmm((lane, scores), given, (z_operand, z), of_weights))?;
        let inputs = [lane.read_array(&self.weights), lane.read_array(of_weights)];
        clock.time(Work::Softmax, || softmax.backward_on(on, 1.0, inputs, lane.write_array(of_scores)))?;
        clock.time(Work::Values, || forward.replace_values_on(on, lane.read_array(of_scores)))?;
        clock.time(Work::Values, || transposed.replace_values_on(on, lane.read_array(of_scores)))?;
        clock.time(Work::Spmm, || spmm(lane, forward, x_there, (0.0, u)))?;
        let of_beta = (lane.write(beta.scaled_gradient()), 0);
        sums.dot_on(on, [lane.read(x), lane.read(u)], of_beta)?;
        clock.time(Work::Spmm, || spmm(lane, transposed, x_there, (1.0, u)))?;
        let directions = &self.directions;
        directions.add_of_directions(lane, (factor(lane, &directions.beta), u), of_z)?;
        self.directions.backward(tools, of_z, input)
    }

    fn output(&self) -> &DeviceMatrix<f32> {
        &self.output
    }

    fn output_mut(&mut self) -> &mut DeviceMatrix<f32> {
        &mut self.output
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let Directions { weight, beta, .. } = &mut self.directions;
        vec![weight, beta]
    }
}
