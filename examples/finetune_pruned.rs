//! Fine-tunes a pruned MLP of two layers on the device: what was dropped stays dropped, what is kept learns to make up
//! for it.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example finetune_pruned
//! $ cargo run --release -p windrow-examples --example finetune_pruned -- --width 4096 --hidden 11008 --rows 2048 \
//!       --precision bf16 --keep 2 --group 4 --vector 1
//! ```
//!
//! The model is `y = relu(x·W₁ + b)·W₂`, its target what it made of the same inputs before it was pruned, the loss the
//! mean of squared differences. Products forwards are those of [`NmSpmm`], gradients those of [`NmGradients`]; bias,
//! ReLU, the step of Adam and what is rounded between the layers are of [`windrow::training`]. Nothing leaves the
//! device but the loss. A derivative is compared with the quotient of differences in f64.

mod common;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rayon::prelude::*;
use windrow::synthetic::seeded_values;
use windrow::training::{Adam, ColumnSums, Moments, relu_backward, round_into};
use windrow::{
    Activation, DenseRef, Device, DeviceMatrix, DeviceSelector, DeviceVectorNm, Element, Epilogue,
    NmGradientPlan, NmGradients, NmPattern, NmSpmm, NmSpmmPlan, Precision, VectorNm, bf16, f16,
    prune_magnitude,
};

use common::Result;

/// Fine-tunes a pruned MLP.
#[derive(Debug, Parser)]
struct Options {
    /// Width of the input and the output.
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Width between the layers.
    #[arg(long, default_value_t = 160)]
    hidden: usize,
    /// Inputs, all of which are in each step.
    #[arg(long, default_value_t = 96)]
    rows: usize,
    /// Vectors that are kept of each group of rows.
    #[arg(long, default_value_t = 2)]
    keep: usize,
    /// Rows of a group.
    #[arg(long, default_value_t = 4)]
    group: usize,
    /// Columns of a vector.
    #[arg(long, default_value_t = 1)]
    vector: usize,
    /// How many steps Adam takes.
    #[arg(long, default_value_t = 100)]
    steps: u32,
    /// The length of the first step of every value.
    #[arg(long, default_value_t = 1e-3)]
    learning_rate: f32,
    /// Type of activations, weights and gradients in products: f32, tf32, f16 or bf16.
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Lets cuBLAS multiply where it is quicker.
    #[arg(long)]
    dense_fallback: bool,
    /// best, cpu or cuda:N.
    #[arg(long, default_value = "best")]
    device: DeviceSelector,
    /// What inputs and weights are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    common::exit_code(match options.precision {
        Precision::F16 => run::<f16>(&options),
        Precision::Bf16 => run::<bf16>(&options),
        _ => run::<f32>(&options),
    })
}

/// Kept values of a layer, what multiplies by them, and what their step needs.
struct Layer {
    forward: NmSpmmPlan,
    gradients: NmGradientPlan,
    /// w × n, as the plans have them.
    values: DeviceMatrix<f32>,
    of_values: DeviceMatrix<f32>,
    moments: Moments,
}

impl Layer {
    /// Unless it is the first, the layer before it needs the gradient of its input.
    fn new(weights: &VectorNm<f32>, is_first: bool, device: &Device, options: &Options) -> Result<Self> {
        let on_device = DeviceVectorNm::from_host(device, weights)?;
        let &Options { rows, precision, dense_fallback, .. } = options;
        let forward = NmSpmm::builder(&on_device).rows(rows).precision(precision);
        let gradients = NmGradients::builder(&on_device).rows(rows).precision(precision);
        let gradients = gradients.activations(!is_first).dense_fallback(dense_fallback);
        let (w, n) = (weights.kept_rows(), weights.cols());
        let values = DeviceMatrix::upload(device, DenseRef::packed(weights.values(), w, n)?)?;
        Ok(Self {
            forward: forward.build_on(&device.stream())?,
            gradients: gradients.build_on(&device.stream())?,
            moments: Moments::of(&values)?,
            of_values: DeviceMatrix::zeros(device, w, n)?,
            values,
        })
    }

    /// A step against the gradient; both plans then have the new values.
    fn step(&mut self, adam: &Adam) -> Result<()> {
        adam.step(&mut self.values, &self.of_values, &mut self.moments)?;
        let stream = self.values.device().stream();
        self.forward.replace_rows_on(&stream, &self.values)?;
        self.gradients.replace_rows_on(&stream, &self.values)?;
        Ok(())
    }
}

/// Matrices of a step, in the type of the products or in f32.
struct Buffers<E: Element<Sum = f32>> {
    x: DeviceMatrix<E>,
    target: DeviceMatrix<f32>,
    hidden: DeviceMatrix<f32>,
    hidden_rounded: DeviceMatrix<E>,
    /// What the output has too much.
    excess: DeviceMatrix<f32>,
    of_y: DeviceMatrix<E>,
    of_hidden: DeviceMatrix<f32>,
    of_hidden_rounded: DeviceMatrix<E>,
    bias: DeviceMatrix<f32>,
    of_bias: DeviceMatrix<f32>,
    of_bias_moments: Moments,
    sums: ColumnSums,
    loss: DeviceMatrix<f32>,
}

impl<E: Element<Sum = f32>> Buffers<E> {
    fn new(device: &Device, &Options { rows, width, hidden, seed, .. }: &Options) -> Result<Self> {
        let x: Vec<E> = seeded_values::<f32>(rows * width, !seed)?.into_iter().map(E::from_f32).collect();
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(device, rows, cols);
        let bias = zeros(1, hidden)?;
        Ok(Self {
            x: DeviceMatrix::upload(device, DenseRef::packed(&x, rows, width)?)?,
            target: zeros(rows, width)?,
            hidden: zeros(rows, hidden)?,
            hidden_rounded: DeviceMatrix::zeros(device, rows, hidden)?,
            excess: zeros(rows, width)?,
            of_y: DeviceMatrix::zeros(device, rows, width)?,
            of_hidden: zeros(rows, hidden)?,
            of_hidden_rounded: DeviceMatrix::zeros(device, rows, hidden)?,
            of_bias_moments: Moments::of(&bias)?,
            of_bias: zeros(1, hidden)?,
            bias,
            sums: ColumnSums::new(device, width.max(hidden))?,
            loss: zeros(1, 1)?,
        })
    }

    /// `hidden ← relu(x·W₁ + b)`, `excess ← hidden·W₂ − target`.
    fn forward(&mut self, first: &NmSpmmPlan, second: &NmSpmmPlan) -> Result<()> {
        let bias = self.bias.buffer().view().get(0..self.hidden.cols());
        let run = Epilogue { bias: bias.as_ref(), activation: Activation::Relu, ..Epilogue::default() };
        let stream = self.x.device().stream();
        first.run_into_on(&stream, &run, &self.x, &mut self.hidden)?;
        round_into(1.0, &self.hidden, &mut self.hidden_rounded)?;
        round_into(1.0, &self.target, &mut self.excess)?;
        let run = Epilogue { beta: -1.0, ..Epilogue::default() };
        Ok(second.run_into(&run, &self.hidden_rounded, &mut self.excess)?)
    }

    /// The gradients of the loss with respect to what is kept, and to the bias.
    fn backward(&mut self, layers: &mut [Layer; 2]) -> Result<()> {
        let [first, second] = layers;
        let stream = self.x.device().stream();
        round_into(self.slope(), &self.excess, &mut self.of_y)?;
        let of_y = &self.of_y;
        second.gradients.of_values_on(&stream, &self.hidden_rounded, of_y, &mut second.of_values)?;
        second.gradients.of_activations_on(&stream, of_y, &mut self.of_hidden)?;
        relu_backward(&mut self.of_hidden, &self.hidden)?;
        self.sums.sum(&self.of_hidden, &mut self.of_bias)?;
        round_into(1.0, &self.of_hidden, &mut self.of_hidden_rounded)?;
        first.gradients.of_values_on(&stream, &self.x, &self.of_hidden_rounded, &mut first.of_values)?;
        Ok(())
    }

    /// The derivative of the loss by an element of the output is so many times what that has too much.
    fn slope(&self) -> f32 {
        2.0 / (self.excess.rows() * self.excess.cols()) as f32
    }

    fn loss(&mut self) -> Result<f64> {
        self.sums.dot(&self.excess, &self.excess, (&mut self.loss, 0))?;
        Ok(f64::from(self.loss.download()?[0]) * f64::from(self.slope()) / 2.0)
    }
}

/// Whether the loss falls, and the gradient is right.
fn run<E: Element<Sum = f32>>(options: &Options) -> Result<bool> {
    let device = options.device.open()?;
    let &Options { width, hidden, seed, .. } = options;
    let pattern = NmPattern::new(options.keep, options.group, options.vector)?;
    let drawn = |rows: usize, cols: usize, seed| -> Result<Vec<f32>> {
        let scale = (3.0 / rows as f32).sqrt();
        Ok(seeded_values::<f32>(rows * cols, seed)?.into_iter().map(|x| x * scale).collect())
    };
    let dense =
        [(width, hidden, drawn(width, hidden, seed)?), (hidden, width, drawn(hidden, width, seed + 1)?)];
    let mut buffers = Buffers::<E>::new(&device, options)?;
    {
        // The target is what the model is before anything is dropped.
        let whole = NmPattern::new(options.group, options.group, options.vector)?;
        let layers = dense.each_ref().map(|(rows, cols, weights)| -> Result<NmSpmmPlan> {
            let weights = VectorNm::from_dense(weights, *rows, *cols, whole)?;
            Ok(NmSpmm::builder(&weights).rows(options.rows).precision(options.precision).build(&device)?)
        });
        let [first, second] = layers;
        buffers.forward(&first?, &second?)?;
        std::mem::swap(&mut buffers.target, &mut buffers.excess);
    }
    let pruned = dense.map(|(rows, cols, weights)| prune_magnitude(&weights, rows, cols, pattern));
    let [first, second] = pruned;
    let weights = [first?, second?];
    let mut layers =
        [Layer::new(&weights[0], true, &device, options)?, Layer::new(&weights[1], false, &device, options)?];
    writeln!(
        std::io::stdout(),
        "{pattern}, {} of {}, {device}",
        options.precision,
        layers[0].gradients.report().of_values.algorithm
    )?;

    let adam = Adam { learning_rate: options.learning_rate, ..Adam::default() };
    let (mut before, mut last) = (None, 0.0);
    let mut right = true;
    let mut started = Instant::now();
    for step in 0..options.steps {
        buffers.forward(&layers[0].forward, &layers[1].forward)?;
        if step % 10 == 0 || step + 1 == options.steps {
            last = buffers.loss()?;
            writeln!(std::io::stdout(), "step {step}: loss {last:.4e}")?;
        }
        before.get_or_insert(last);
        buffers.backward(&mut layers)?;
        if step == 0 {
            right = agrees(&buffers, &weights, &layers, options)?;
            device.synchronize()?;
            started = Instant::now();
        }
        layers.iter_mut().try_for_each(|layer| layer.step(&adam))?;
        adam.step(&mut buffers.bias, &buffers.of_bias, &mut buffers.of_bias_moments)?;
    }
    device.synchronize()?;
    let steps = f64::from(options.steps.saturating_sub(1).max(1));
    writeln!(std::io::stdout(), "{:.3} ms a step", started.elapsed().as_secs_f64() * 1e3 / steps)?;
    let falls = before.is_some_and(|before| last < before);
    writeln!(std::io::stdout(), "the loss {}", if falls { "falls" } else { "does not fall" })?;
    Ok(falls && right)
}

/// Whether the derivative of the loss along the gradient of the kept values is that of differences in f64.
fn agrees<E: Element<Sum = f32>>(
    buffers: &Buffers<E>,
    weights: &[VectorNm<f32>; 2],
    layers: &[Layer; 2],
    &Options { width, hidden, rows, .. }: &Options,
) -> Result<bool> {
    let x: Vec<f64> = buffers.x.download()?.into_iter().map(|x| x.to_f64()).collect();
    let target = buffers.target.download()?;
    let directions = [layers[0].of_values.download()?, layers[1].of_values.download()?];
    let norm = directions.iter().flatten().map(|&g| f64::from(g).powi(2)).sum::<f64>();
    let moved = |by: f64| -> Result<[Vec<f64>; 2]> {
        let [first, second] = [0, 1].map(|layer| -> Result<Vec<f64>> {
            let (of, along) = (&weights[layer], &directions[layer]);
            let values =
                of.values().iter().zip(along).map(|(&v, &g)| E::from_f32(v).to_f64() + by * f64::from(g));
            Ok(of.with_values(values.collect::<Vec<f64>>())?.to_dense()?)
        });
        Ok([first?, second?])
    };
    let loss = |by: f64| -> Result<f64> {
        let [first, second] = moved(by)?;
        let of_row = |row: usize| {
            let mut between = vec![0.0; hidden];
            for (i, x) in x[row * width..][..width].iter().enumerate() {
                let weights = &first[i * hidden..][..hidden];
                between.iter_mut().zip(weights).for_each(|(sum, w)| *sum += x * w);
            }
            let mut excess: Vec<f64> =
                target[row * width..][..width].iter().map(|&t| -f64::from(t)).collect();
            for (i, h) in between.iter().enumerate().filter(|(_, h)| **h > 0.0) {
                let weights = &second[i * width..][..width];
                excess.iter_mut().zip(weights).for_each(|(sum, w)| *sum += h * w);
            }
            excess.iter().map(|e| e * e).sum::<f64>()
        };
        let sum: f64 = (0..rows).into_par_iter().map(of_row).sum();
        Ok(sum / (rows * width) as f64)
    };
    // Small beside the values, so that hardly a ReLU turns between the two.
    let step = 1e-4 / norm.sqrt();
    let slope = (loss(step)? - loss(-step)?) / (2.0 * step);
    let off = (slope - norm).abs() / norm;
    let allowed = match E::PRECISION {
        Precision::Bf16 => 3e-2,
        Precision::F16 => 4e-3,
        _ => 2e-3,
    };
    writeln!(
        std::io::stdout(),
        "derivative along the gradient {norm:.6e}, by differences {slope:.6e}, off by {off:.1e}"
    )?;
    Ok(off < allowed)
}
