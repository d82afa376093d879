//! A layer of many networks: two linear ones with an activation between, `y = act(x·W₁ + b₁)·W₂ + b₂`, with dense
//! weights and with pruned ones.

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
    /// The layers `up` and `down` of a safetensors file.
    ///
    /// # Errors
    /// If it cannot be read, or the layers do not follow each other.
    pub(crate) fn read(path: &Path, [up, down]: [&str; 2], activation: Activation) -> Result<Self> {
        let (up, down) = (Linear::read(path, up)?, Linear::read(path, down)?);
        if up.weight.cols() != down.weight.rows() {
            let (out, into) = (up.weight.cols(), down.weight.rows());
            return Err(format!("the first layer gives {out} numbers, the second takes {into}").into());
        }
        Ok(Self { up, down, activation })
    }

    /// Writes a file of made-up layers, `up` and `down`, as PyTorch would: weights out × in, uniform with the variance
    /// that keeps activations as large as they were.
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
        ];
        let mut file = BufWriter::new(File::create(path)?);
        Ok(io::write_tensors(&mut file, &tensors)?)
    }

    /// Both layers pruned, on a device, for `rows` inputs.
    ///
    /// # Errors
    /// If there are no kernels, or too little memory.
    pub(crate) fn pruned(
        &self,
        pattern: NmPattern,
        (device, precision, rows): (&Device, Precision, usize),
    ) -> Result<PrunedMlp> {
        let weights = [self.up.pruned(pattern)?, self.down.pruned(pattern)?];
        let plan = |weights| NmSpmm::builder(weights).precision(precision).rows(rows).build(device);
        let bias = |linear: &Linear| DeviceBuffer::from_slice(device, &linear.bias);
        Ok(PrunedMlp {
            plans: [plan(&weights[0])?, plan(&weights[1])?],
            biases: [bias(&self.up)?, bias(&self.down)?],
            activations: [self.activation, Activation::Identity],
            weights,
        })
    }

    /// The same layers with what pruning leaves of their weights, dense.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn as_pruned(&self, pruned: &PrunedMlp) -> Result<Self> {
        let layer = |linear: &Linear, weights: &VectorNm<f32>| -> Result<Linear> {
            let (name, rows, cols) = (linear.weight.name(), weights.rows(), weights.cols());
            let weight = DenseTensor::new(name, rows, cols, weights.to_dense()?)?;
            Ok(Linear { weight, bias: linear.bias.clone() })
        };
        let [up, down] = &pruned.weights;
        let (up, down) = (layer(&self.up, up)?, layer(&self.down, down)?);
        Ok(Self { up, down, activation: self.activation })
    }

    /// The network with dense products in f32.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn forward(&self, gemm: &Gemm, x: &DeviceMatrix<f32>) -> Result<Vec<f32>> {
        let hidden = self.up.forward(gemm, x, self.activation)?;
        Ok(self.down.forward(gemm, &hidden, Activation::Identity)?.download()?)
    }
}

/// The network with pruned weights, on a device.
#[derive(Debug)]
pub(crate) struct PrunedMlp {
    pub(crate) weights: [VectorNm<f32>; 2],
    pub(crate) plans: [NmSpmmPlan; 2],
    biases: [DeviceBuffer<f32>; 2],
    activations: [Activation; 2],
}

impl PrunedMlp {
    /// `x`, what the first layer gives, and the result: room for `x.rows()` inputs.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn buffers<E: Element<Sum = f32>>(&self, x: DeviceMatrix<E>) -> Result<Buffers<E>> {
        let zeros = |plan: &NmSpmmPlan| (x.device().clone(), x.rows(), plan.shape().1);
        let [(device, rows, hidden), (_, _, out)] = [&self.plans[0], &self.plans[1]].map(zeros);
        let hidden = DeviceMatrix::zeros(&device, rows, hidden)?;
        Ok(Buffers { x, hidden, y: DeviceMatrix::zeros(&device, rows, out)? })
    }

    fn run(&self, layer: usize) -> Epilogue<'_> {
        let (bias, activation) = (Some(&self.biases[layer]), self.activations[layer]);
        Epilogue { bias, activation, ..Epilogue::default() }
    }

    /// Both layers; on a GPU they are queued. What is between them has the type of the input.
    ///
    /// # Errors
    /// If the shapes do not fit, or the device fails.
    pub(crate) fn forward<E: Element<Sum = f32>>(&self, buffers: &mut Buffers<E>) -> Result<()> {
        self.plans[0].run_into(&self.run(0), &buffers.x, &mut buffers.hidden)?;
        Ok(self.plans[1].run_into(&self.run(1), &buffers.hidden, &mut buffers.y)?)
    }

    /// Compares what each layer gave with an f64 product of what it got and the pruned weights.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn verify<E: Element<Sum = f32>>(&self, buffers: &Buffers<E>) -> Result<[Verification; 2]> {
        let Buffers { x, hidden, y } = buffers;
        let [up, down] = &self.weights;
        Ok([
            self.plans[0].verify(up, &self.run(0), x, hidden)?,
            self.plans[1].verify(down, &self.run(1), hidden, y)?,
        ])
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
