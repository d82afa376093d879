//! An attention-based graph neural network (Thekumparampil et al., 2018): a node takes the average of its neighbours,
//! weighted by the softmax of `β · cos` of the angles to them, with a `β` that each layer learns.
//!
//! ```text
//! forward                              backward, from G = ∂loss/∂O
//! Z = H·W                dense         ∂P = G·Zᵀ at the entries          SDDMM
//! X = Z, rows of length 1              ∂Z = Pᵀ·G                         SpMM
//! S = X·Xᵀ at entries    SDDMM         ∂T = p·(∂p − Σ p·∂p)              softmax over rows, backward
//! P = softmax(β·S)       over rows     U = ∂T·X, ∂β = Σ X ⊙ U            SpMM
//! O = P·Z                SpMM          U += ∂Tᵀ·X, ∂X = β·U              SpMM
//! H' = max(O, 0)                       ∂Z += of ∂X;  ∂W = Hᵀ·∂Z, ∂H = ∂Z·Wᵀ, zero where H is
//! ```
//!
//! `P` and `∂T` never leave the device: they become the values of a plan for the graph and of one for its transpose. In
//! f16 the weights of a node with more than 2¹⁴ neighbours are subnormal, and lose digits; bf16 has the range of f32.

use std::time::Instant;

use windrow::synthetic::SplitMix64;
use windrow::training::{
    ColumnSums, normalize_rows_backward_on, normalize_rows_on, relu_backward_on, relu_on,
};
use windrow::{
    Csr, DenseRef, Device, DeviceBuffer, DeviceMatrix, DeviceSlice, RowSoftmax, Sddmm, SddmmPlan, Spmm,
    SpmmBuilder, SpmmPlan,
};

use super::Result;
use super::clock::{Clock, Work};
use super::data::Task;
use super::gemm::Form;
use super::lane::Lane;
use super::model::{Model, Operand, Parameter, Shape, Tools, sddmm, spmm};

/// One layer: its weight, and what its backward pass needs of its forward pass.
struct Layer {
    weight: Parameter,
    z: DeviceMatrix<f32>,
    z_operand: Operand,
    x: DeviceMatrix<f32>,
    x_operand: Operand,
    inverse_norms: DeviceBuffer<f32>,
    attention: DeviceBuffer<f32>,
    output: DeviceMatrix<f32>,
}

/// Matrices of one width that every layer of that width uses anew.
struct Scratch {
    of_z: DeviceMatrix<f32>,
    u: DeviceMatrix<f32>,
    gradient: DeviceMatrix<f32>,
    operand: Operand,
}

/// The plans for one graph.
struct Plans {
    scores: SddmmPlan,
    softmax: RowSoftmax,
    forward: SpmmPlan,
    /// For the transpose; takes values in the order of the graph's entries.
    transposed: SpmmPlan,
}

/// The model, its plans and its memory.
pub(crate) struct Agnn {
    tools: Tools,
    plans: Plans,
    features: DeviceMatrix<f32>,
    layers: Vec<Layer>,
    /// `β` of each layer, in one row.
    betas: Parameter,
    /// For hidden layers, and for the last.
    scratch: [Scratch; 2],
    /// Gradients of the entries: with respect to attention, and to what its softmax was taken of.
    of_entries: [DeviceBuffer<f32>; 2],
    sums: ColumnSums,
    gradient_scale: f32,
    preprocessing_s: f64,
}

impl Plans {
    fn new(graph: &Csr<f32>, shape: &Shape, device: &Device) -> Result<Self> {
        let width = shape.widest();
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

impl Agnn {
    /// For an undirected graph with loops.
    ///
    /// # Errors
    /// If there are no layers, or the device refuses.
    pub(crate) fn new(graph: &Csr<f32>, task: &Task, shape: &Shape, tools: Tools) -> Result<Self> {
        let device = tools.device.clone();
        let (n, widths) = (graph.rows(), &shape.widths);
        let Some((&classes, hidden)) = widths.split_last().filter(|(_, others)| !others.is_empty()) else {
            return Err("--layers must be at least 1".into());
        };
        let start = Instant::now();
        let plans = Plans::new(graph, shape, &device)?;
        device.synchronize()?;
        let preprocessing_s = start.elapsed().as_secs_f64();
        let mut random = SplitMix64::new(shape.seed.wrapping_add(3 << 32));
        let zeros = |width: usize| DeviceMatrix::zeros(&device, n, width);
        let operand = |width: usize| Operand::new(&device, shape.precision, n, width);
        let entries = || DeviceBuffer::alloc_zeroed(&device, graph.nnz());
        let layer = |ends: &[usize]| {
            let [inputs, outputs] = [ends[0], ends[1]];
            Ok(Layer {
                weight: Parameter::glorot(&device, inputs, outputs, &mut random)?,
                z: zeros(outputs)?,
                z_operand: operand(outputs)?,
                x: zeros(outputs)?,
                x_operand: operand(outputs)?,
                inverse_norms: DeviceBuffer::alloc_zeroed(&device, n)?,
                attention: entries()?,
                output: zeros(outputs)?,
            })
        };
        let layers: Vec<Layer> = widths.windows(2).map(layer).collect::<Result<_>>()?;
        let scratch = |width: usize| -> Result<Scratch> {
            let (of_z, u, gradient) = (zeros(width)?, zeros(width)?, zeros(width)?);
            Ok(Scratch { of_z, u, gradient, operand: operand(width)? })
        };
        Ok(Self {
            plans,
            features: DeviceMatrix::upload(&device, DenseRef::packed(&task.features, n, task.width)?)?,
            betas: Parameter::new(&device, 1, layers.len(), &vec![1.0; layers.len()])?,
            layers,
            scratch: [scratch(hidden.get(1).copied().unwrap_or(0))?, scratch(classes)?],
            of_entries: [entries()?, entries()?],
            sums: ColumnSums::new(&device, shape.widest())?,
            gradient_scale: shape.gradient_scale(task.trained_count()),
            preprocessing_s,
            tools,
        })
    }

    /// What the plans say of themselves.
    pub(crate) fn reports(&self) -> String {
        let Plans { scores, forward, transposed, .. } = &self.plans;
        format!("{}\n\n{}\n\nfor the transpose:\n{}", scores.report(), forward.report(), transposed.report())
    }
}

/// The `β` of a layer, where it is.
fn beta<'a>(lane: &Lane, betas: &'a DeviceMatrix<f32>, l: usize) -> Result<DeviceSlice<'a, f32>> {
    Ok(lane.read_array(betas.buffer()).get(l..l + 1).ok_or("a layer has no β")?)
}

/// Gradients of one layer, from `G` in `scratch.operand`: with respect to `Z`, in `scratch.of_z`, and to `β`.
fn backward_of_attention(
    (lane, plans, clock, sums): (&Lane, &mut Plans, &mut Clock, &mut ColumnSums),
    (layer, beta, scale): (&Layer, DeviceSlice<'_, f32>, f32),
    (scratch, of_entries): (&mut Scratch, &mut [DeviceBuffer<f32>; 2]),
    (of_output, of_beta): (Option<&DeviceMatrix<f32>>, (&mut DeviceMatrix<f32>, usize)),
) -> Result<()> {
    let Plans { scores, softmax, forward, transposed } = plans;
    let Scratch { of_z, u, gradient, operand } = scratch;
    let gradient = of_output.unwrap_or(gradient);
    let [of_attention, of_scores] = of_entries;
    operand.set(lane, scale, gradient)?;
    let on = &lane.stream;
    let (z, x) = ((&layer.z_operand, &layer.z), (1.0 / scale, &layer.x_operand, &layer.x));
    clock.time(Work::Values, || transposed.replace_values_on(on, lane.read_array(&layer.attention)))?;
    clock.time(Work::Spmm, || spmm(lane, transposed, (1.0 / scale, operand, gradient), (0.0, of_z)))?;
    clock.time(Work::Sddmm, || sddmm((lane, scores), 1.0 / scale, (operand, gradient), z, of_attention))?;
    // Scaled like other gradients, for they are rounded when they become values.
    let inputs = [lane.read_array(&layer.attention), lane.read_array(of_attention)];
    clock.time(Work::Softmax, || softmax.backward_on(on, scale, inputs, lane.write_array(of_scores)))?;
    clock.time(Work::Values, || forward.replace_values_on(on, lane.read_array(of_scores)))?;
    clock.time(Work::Values, || transposed.replace_values_on(on, lane.read_array(of_scores)))?;
    clock.time(Work::Spmm, || spmm(lane, forward, x, (0.0, u)))?;
    let (of_betas, column) = of_beta;
    sums.dot_on(on, [lane.read(&layer.x), lane.read(u)], (lane.write(of_betas), column))?;
    clock.time(Work::Spmm, || spmm(lane, transposed, x, (1.0, u)))?;
    let normalized = (lane.read(&layer.x), lane.read_array(&layer.inverse_norms));
    Ok(normalize_rows_backward_on(on, beta, normalized, lane.read(u), lane.write(of_z))?)
}

impl Model for Agnn {
    fn forward(&mut self) -> Result<&DeviceMatrix<f32>> {
        let Self { tools: Tools { gemm, clock, lane, .. }, plans, features, layers, betas, .. } = self;
        let on = &lane.stream;
        let Plans { scores, softmax, forward, .. } = plans;
        let last = layers.len() - 1;
        let mut input: &DeviceMatrix<f32> = features;
        for (l, layer) in layers.iter_mut().enumerate() {
            let Layer { weight, z, z_operand, x, x_operand, inverse_norms, attention, output } = layer;
            gemm.run(Form::Plain, input, &weight.value, z)?;
            z_operand.set(lane, 1.0, z)?;
            normalize_rows_on(on, lane.read(z), lane.write(x), lane.write_array(inverse_norms))?;
            x_operand.set(lane, 1.0, x)?;
            clock.time(Work::Sddmm, || {
                sddmm((lane, scores), 1.0, (x_operand, x), (x_operand, x), attention)
            })?;
            let beta = beta(lane, &betas.value, l)?;
            clock
                .time(Work::Softmax, || softmax.forward_in_place_on(on, beta, lane.write_array(attention)))?;
            clock.time(Work::Values, || forward.replace_values_on(on, lane.read_array(attention)))?;
            clock.time(Work::Spmm, || spmm(lane, forward, (1.0, z_operand, z), (0.0, output)))?;
            if l < last {
                relu_on(on, lane.write(output))?;
            }
            input = output;
        }
        Ok(input)
    }

    fn backward(&mut self, of_logits: &DeviceMatrix<f32>) -> Result<()> {
        let Self { tools: Tools { gemm, clock, lane, .. }, plans, features, layers, betas, .. } = self;
        let last = layers.len() - 1;
        let [hidden, classes] = &mut self.scratch;
        for l in (0..=last).rev() {
            let (before, from) = layers.split_at_mut(l);
            let layer = &mut from[0];
            let (scratch, of_output) =
                if l == last { (&mut *classes, Some(of_logits)) } else { (&mut *hidden, None) };
            backward_of_attention(
                (lane, plans, clock, &mut self.sums),
                (layer, beta(lane, &betas.value, l)?, self.gradient_scale),
                (scratch, &mut self.of_entries),
                (of_output, (&mut betas.gradient, l)),
            )?;
            let input = before.last().map_or(&*features, |layer| &layer.output);
            gemm.run(Form::First, input, &scratch.of_z, &mut layer.weight.gradient)?;
            if l > 0 {
                let of_z = if l == last { &classes.of_z } else { &hidden.of_z };
                gemm.run(Form::Second, of_z, &layer.weight.value, &mut hidden.gradient)?;
                relu_backward_on(&lane.stream, lane.write(&mut hidden.gradient), lane.read(input))?;
            }
        }
        Ok(())
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        self.layers.iter_mut().map(|layer| &mut layer.weight).chain([&mut self.betas]).collect()
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
