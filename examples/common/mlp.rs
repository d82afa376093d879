//! A layer of many networks, with dense weights and with pruned ones: two linear ones with an activation between,
//! `y = act(x·U + b)·D + c`, or, as in Llama and its like, a gated one first,
//! `y = (act(x·G + a) ⊙ (x·U + b))·D + c`: up, gate and down.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use windrow::io::{self, DenseTensor, ReadOptions};
use windrow::synthetic::seeded_values;
use windrow::{
    Activation, DenseRef, Device, DeviceBuffer, DeviceMatrix, Element, Epilogue, NmPattern, NmSpmm,
    NmSpmmPlan, Precision, VectorNm, Verification, prune_magnitude,
};

use super::Result;
use super::gemm::{Form, Gemm};

/// Weights and bias of a linear layer, `y = x·W + b`.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    /// `W`, in × out.
    pub(crate) weight: DenseTensor<f32>,
    pub(crate) bias: Vec<f32>,
}

/// The weights as a file has them.
#[derive(Debug, Clone)]
pub(crate) struct Mlp {
    pub(crate) up: Linear,
    /// What multiplies the first layer's result, if anything does.
    pub(crate) gate: Option<Linear>,
    pub(crate) down: Linear,
    pub(crate) activation: Activation,
}

impl Linear {
    /// `NAME.weight`, which is out × in as PyTorch has it, and `NAME.bias`, if there is one.
    fn read(path: &Path, name: &str) -> Result<Self> {
        let options = ReadOptions::default();
        let weight = io::read_tensor::<f32>(path, Some(&format!("{name}.weight")), &options)?.transposed()?;
        let bias = match io::read_tensor::<f32>(path, Some(&format!("{name}.bias")), &options) {
            Ok(bias) => bias.into_values(),
            Err(error) if matches!(error.cause(), io::ReadError::Archive { .. }) => vec![0.0; weight.cols()],
            Err(error) => return Err(error.into()),
        };
        if bias.len() != weight.cols() {
            let (found, wanted) = (bias.len(), weight.cols());
            return Err(format!("{name}.bias has {found} elements, {name}.weight {wanted} rows").into());
        }
        Ok(Self { weight, bias })
    }

    /// Keeps, of the vectors that a group has in the same columns, those of largest norm.
    fn pruned(&self, pattern: NmPattern) -> Result<VectorNm<f32>> {
        let Self { weight, .. } = self;
        Ok(prune_magnitude(weight.values(), weight.rows(), weight.cols(), pattern)?)
    }

    /// `act(x·W + b)`, its product by `gemm`.
    fn forward(
        &self,
        gemm: &Gemm,
        x: &DeviceMatrix<f32>,
        activation: Activation,
    ) -> Result<DeviceMatrix<f32>> {
        let Self { weight, bias } = self;
        let w = DenseRef::packed(weight.values(), weight.rows(), weight.cols())?;
        let w = DeviceMatrix::upload(x.device(), w)?;
        let mut y = DeviceMatrix::zeros(x.device(), x.rows(), weight.cols())?;
        gemm.run(Form::Plain, x, &w, &mut y)?;
        let mut elements = y.download()?;
        for row in elements.chunks_exact_mut(bias.len().max(1)) {
            row.iter_mut().zip(bias).for_each(|(y, bias)| *y = activation.apply(*y + bias));
        }
        y.copy_from(DenseRef::packed(&elements, y.rows(), y.cols())?)?;
        Ok(y)
    }
}

impl Mlp {
    /// The layers `up` and `down` of a safetensors file, and the gate, if one is named.
    ///
    /// # Errors
    /// If it cannot be read, or the layers do not fit together.
    pub(crate) fn read(
        path: &Path,
        [up, down]: [&str; 2],
        gate: Option<&str>,
        activation: Activation,
    ) -> Result<Self> {
        let (up, down) = (Linear::read(path, up)?, Linear::read(path, down)?);
        let gate = gate.map(|gate| Linear::read(path, gate)).transpose()?;
        if up.weight.cols() != down.weight.rows() {
            let (out, into) = (up.weight.cols(), down.weight.rows());
            return Err(format!("the first layer gives {out} numbers, the second takes {into}").into());
        }
        let shape = |linear: &Linear| (linear.weight.rows(), linear.weight.cols());
        if let Some(gate) = &gate
            && shape(gate) != shape(&up)
        {
            let ((k, n), (k_up, n_up)) = (shape(gate), shape(&up));
            return Err(format!("the gate is {k} × {n}, the first layer {k_up} × {n_up}").into());
        }
        Ok(Self { up, gate, down, activation })
    }

    /// Writes a file of made-up layers, `up`, `gate` and `down`, as PyTorch would: weights out × in, uniform with the
    /// variance that keeps activations as large as they were.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write_made_up(path: &Path, width: usize, hidden: usize, seed: u64) -> Result<()> {
        let tensor = |name: &str, rows: usize, cols: usize, seed: u64| -> Result<DenseTensor<f32>> {
            let scale = (3.0 / cols.max(1) as f32).sqrt();
            let values = seeded_values::<f32>(rows * cols, seed)?.into_iter().map(|x| scale * x).collect();
            Ok(DenseTensor::new(name, rows, cols, values)?)
        };
        let tensors = [
            tensor("up.weight", hidden, width, seed)?,
            tensor("up.bias", 1, hidden, seed.wrapping_add(1))?,
            tensor("down.weight", width, hidden, seed.wrapping_add(2))?,
            tensor("down.bias", 1, width, seed.wrapping_add(3))?,
            tensor("gate.weight", hidden, width, seed.wrapping_add(4))?,
            tensor("gate.bias", 1, hidden, seed.wrapping_add(5))?,
        ];
        let mut file = BufWriter::new(File::create(path)?);
        Ok(io::write_tensors(&mut file, &tensors)?)
    }

    /// Its layers: up, the gate if there is one, down.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Linear> {
        [&self.up].into_iter().chain(&self.gate).chain([&self.down])
    }

    /// All layers pruned, on a device, for `rows` inputs.
    ///
    /// # Errors
    /// If there are no kernels, or too little memory.
    pub(crate) fn pruned(
        &self,
        pattern: NmPattern,
        (device, precision, rows): (&Device, Precision, usize),
    ) -> Result<PrunedMlp> {
        let layer = |linear: &Linear| -> Result<PrunedLinear> {
            let weights = linear.pruned(pattern)?;
            let plan = NmSpmm::builder(&weights).precision(precision).rows(rows).build(device)?;
            Ok(PrunedLinear { plan, bias: DeviceBuffer::from_slice(device, &linear.bias)?, weights })
        };
        let gate = self.gate.as_ref().map(layer).transpose()?;
        let (up, down) = (layer(&self.up)?, layer(&self.down)?);
        Ok(PrunedMlp { up, gate, down, activation: self.activation })
    }

    /// The same layers with what pruning leaves of their weights, dense.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn as_pruned(&self, pruned: &PrunedMlp) -> Result<Self> {
        let layer = |linear: &Linear, pruned: &PrunedLinear| -> Result<Linear> {
            let weights = &pruned.weights;
            let (name, rows, cols) = (linear.weight.name(), weights.rows(), weights.cols());
            let weight = DenseTensor::new(name, rows, cols, weights.to_dense()?)?;
            Ok(Linear { weight, bias: linear.bias.clone() })
        };
        let gates = self.gate.as_ref().zip(pruned.gate.as_ref());
        let gate = gates.map(|(linear, pruned)| layer(linear, pruned)).transpose()?;
        let (up, down) = (layer(&self.up, &pruned.up)?, layer(&self.down, &pruned.down)?);
        Ok(Self { up, gate, down, activation: self.activation })
    }

    /// The network with dense products in f32.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn forward(&self, gemm: &Gemm, x: &DeviceMatrix<f32>) -> Result<Vec<f32>> {
        let hidden = match &self.gate {
            None => self.up.forward(gemm, x, self.activation)?,
            Some(gate) => {
                let mut up = self.up.forward(gemm, x, Activation::Identity)?;
                let gate = gate.forward(gemm, x, self.activation)?.download()?;
                let product: Vec<f32> = up.download()?.iter().zip(gate).map(|(up, gate)| up * gate).collect();
                up.copy_from(DenseRef::packed(&product, up.rows(), up.cols())?)?;
                up
            }
        };
        Ok(self.down.forward(gemm, &hidden, Activation::Identity)?.download()?)
    }
}

/// A linear layer with pruned weights, on a device.
#[derive(Debug)]
pub(crate) struct PrunedLinear {
    pub(crate) weights: VectorNm<f32>,
    pub(crate) plan: NmSpmmPlan,
    bias: DeviceBuffer<f32>,
}

impl PrunedLinear {
    /// What becomes of its sums.
    fn epilogue(&self, activation: Activation, gated: bool) -> Epilogue<'_> {
        Epilogue { bias: Some(&self.bias), activation, gated, ..Epilogue::default() }
    }
}

/// The network with pruned weights, on a device.
#[derive(Debug)]
pub(crate) struct PrunedMlp {
    pub(crate) up: PrunedLinear,
    pub(crate) gate: Option<PrunedLinear>,
    pub(crate) down: PrunedLinear,
    activation: Activation,
}

impl PrunedMlp {
    /// `x`, what the first layer gives, and the result: room for `x.rows()` inputs.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn buffers<E: Element<Sum = f32>>(&self, x: DeviceMatrix<E>) -> Result<Buffers<E>> {
        let (device, rows) = (x.device().clone(), x.rows());
        let hidden = DeviceMatrix::zeros(&device, rows, self.up.plan.shape().1)?;
        Ok(Buffers { x, hidden, y: DeviceMatrix::zeros(&device, rows, self.down.plan.shape().1)? })
    }

    /// What becomes of the sums of the first layer: where there is a gate, that has the activation.
    fn of_up(&self) -> Epilogue<'_> {
        let activation = if self.gate.is_some() { Activation::Identity } else { self.activation };
        self.up.epilogue(activation, false)
    }

    /// All layers; on a GPU they are queued. What is between them has the type of the input: a gate multiplies it where
    /// it is.
    ///
    /// # Errors
    /// If the shapes do not fit, or the device fails.
    pub(crate) fn forward<E: Element<Sum = f32>>(&self, buffers: &mut Buffers<E>) -> Result<()> {
        let Buffers { x, hidden, y } = buffers;
        self.up.plan.run_into(&self.of_up(), x, hidden)?;
        if let Some(gate) = &self.gate {
            gate.plan.run_into(&gate.epilogue(self.activation, true), x, hidden)?;
        }
        Ok(self.down.plan.run_into(&self.down.epilogue(Activation::Identity, false), hidden, y)?)
    }

    /// Compares what each layer gives with an f64 product of what it gets and the pruned weights, and with a gate,
    /// whose product is not kept, what is between the layers with the product of both, bit by bit.
    ///
    /// # Errors
    /// If the device fails, or a bit differs.
    pub(crate) fn verify<E: Element<Sum = f32>>(
        &self,
        buffers: &Buffers<E>,
    ) -> Result<Vec<(&'static str, Verification)>> {
        let Buffers { x, hidden, y } = buffers;
        let of_down = self.down.epilogue(Activation::Identity, false);
        let down = ("down", self.down.plan.verify(&self.down.weights, &of_down, hidden, y)?);
        let Some(gate) = &self.gate else {
            return Ok(vec![("up", self.up.plan.verify(&self.up.weights, &self.of_up(), x, hidden)?), down]);
        };
        let mut up = DeviceMatrix::<E>::zeros(x.device(), hidden.rows(), hidden.cols())?;
        let mut factors = DeviceMatrix::<f32>::zeros(x.device(), hidden.rows(), hidden.cols())?;
        let of_gate = gate.epilogue(self.activation, false);
        self.up.plan.run_into(&self.of_up(), x, &mut up)?;
        gate.plan.run_into(&of_gate, x, &mut factors)?;
        let all = vec![
            ("up", self.up.plan.verify(&self.up.weights, &self.of_up(), x, &up)?),
            ("gate", gate.plan.verify(&gate.weights, &of_gate, x, &factors)?),
            down,
        ];
        let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        for ((got, up), factor) in hidden.download()?.into_iter().zip(up.download()?).zip(factors.download()?)
        {
            let want = E::from_f32(factor * up.to_f32()).to_f32();
            if bits(got.to_f32()) != bits(want) {
                return Err(
                    format!("{} between the layers, where {want} is the product", got.to_f32()).into()
                );
            }
        }
        Ok(all)
    }
}

/// Input, hidden activations and result.
#[derive(Debug)]
pub(crate) struct Buffers<E: Element<Sum = f32>> {
    pub(crate) x: DeviceMatrix<E>,
    pub(crate) hidden: DeviceMatrix<E>,
    pub(crate) y: DeviceMatrix<f32>,
}

/// `‖got − want‖ / ‖want‖`, by the square roots of sums of squares.
pub(crate) fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    let squares = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>().sqrt();
    let difference = squares(&mut got.iter().zip(want).map(|(&x, &y)| f64::from(x) - f64::from(y)));
    let norm = squares(&mut want.iter().map(|&x| f64::from(x)));
    if norm > 0.0 { difference / norm } else { difference }
}
