//! Prunes the linear layers of an MLP to N:M sparsity, runs them, and says what that costs in exactness and gains in
//! time. The MLP has two, or three of which one is a gate, as in Llama: `down(silu(gate(x)) ⊙ up(x))`.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example pruned_mlp -- mlp.safetensors --make 1024x4096 # made-up weights
//! $ cargo run --release -p windrow-examples --example pruned_mlp -- model.safetensors --up h.0.up --down h.0.down
//! $ cargo run --release -p windrow-examples --example pruned_mlp -- mlp.safetensors --make 4096x11008 --gate gate \
//!       --activation silu --precision f16 --keep 2 --group 4 --vector 1
//! ```
//!
//! The file has `NAME.weight`, out × in as PyTorch's `Linear` keeps it, and `NAME.bias` of all layers. Every element
//! of the result is compared with an f64 product of the pruned weights; the distance to the product of the dense
//! weights tells what pruning changes. (Made-up weights have no structure, and lose more than trained ones, which would
//! also be trained further after pruning.) The dense products that are timed are cuBLAS's on a GPU, which must be
//! there.

mod common;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use windrow::synthetic::seeded_values;
use windrow::{
    Activation, DenseRef, Device, DeviceMatrix, DeviceSelector, Element, NmPattern, Precision, bf16, f16,
};

use common::Result;
use common::gemm::{DenseMath, Form, Gemm};
use common::mlp::{Linear, Mlp, relative_error};

/// Runs before those that are timed.
const WARM_UP: usize = 3;

/// Prunes the linear layers of an MLP, runs them, and compares them with the dense ones.
#[derive(Debug, Parser)]
struct Options {
    /// A safetensors file with the weights.
    file: PathBuf,
    /// Writes made-up weights to the file first: width of the input, and of what is between the layers.
    #[arg(long, value_name = "WIDTHxHIDDEN", value_parser = widths)]
    make: Option<(usize, usize)>,
    /// Name of the first layer.
    #[arg(long, default_value = "up")]
    up: String,
    /// Name of the second layer.
    #[arg(long, default_value = "down")]
    down: String,
    /// Name of a layer beside the first, whose result has the activation and multiplies that of the first: none unless
    /// told. A made-up file has one of the name `gate`.
    #[arg(long)]
    gate: Option<String>,
    /// What is between them: relu, gelu, silu or identity.
    #[arg(long, default_value = "gelu")]
    activation: Activation,
    /// Vectors that are kept of each group of rows.
    #[arg(long, default_value_t = 2)]
    keep: usize,
    /// Rows of a group.
    #[arg(long, default_value_t = 8)]
    group: usize,
    /// Columns of a vector.
    #[arg(long, default_value_t = 32)]
    vector: usize,
    /// Inputs at a time.
    #[arg(long, default_value_t = 512)]
    rows: usize,
    /// best, cpu or cuda:N.
    #[arg(long, default_value = "best")]
    device: DeviceSelector,
    /// Type of activations and weights: f32, tf32, f16 or bf16. The dense products beside it are f32, or tf32.
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Runs that are timed; the time is their median.
    #[arg(long, default_value_t = 20)]
    repeat: usize,
    /// What inputs, and made-up weights, are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn widths(text: &str) -> std::result::Result<(usize, usize), String> {
    let widths =
        text.split_once('x').and_then(|(width, hidden)| Some((width.parse().ok()?, hidden.parse().ok()?)));
    widths.ok_or_else(|| "write two numbers, for example 1024x4096".to_owned())
}

fn main() -> ExitCode {
    let options = Options::parse();
    common::exit_code(match options.precision {
        Precision::F16 => run::<f16>(&options),
        Precision::Bf16 => run::<bf16>(&options),
        _ => run::<f32>(&options),
    })
}

/// Whether the result is right.
fn run<E: Element<Sum = f32>>(options: &Options) -> Result<bool> {
    let device = options.device.open()?;
    if let Some((width, hidden)) = options.make {
        Mlp::write_made_up(&options.file, width, hidden, options.seed)?;
    }
    let gate = options.gate.as_deref();
    let dense = Mlp::read(&options.file, [&options.up, &options.down], gate, options.activation)?;
    let pattern = NmPattern::new(options.keep, options.group, options.vector)?;
    let rows = options.rows;
    let pruned = dense.pruned(pattern, (&device, options.precision, rows))?;

    let width = dense.up.weight.rows();
    let elements = seeded_values::<f32>(rows * width, !options.seed)?;
    let x = DeviceMatrix::upload(&device, DenseRef::packed(&elements, rows, width)?)?;
    let rounded: Vec<E> = elements.iter().map(|&x| E::from_f32(x)).collect();
    let mut buffers =
        pruned.buffers(DeviceMatrix::upload(&device, DenseRef::packed(&rounded, rows, width)?)?)?;
    pruned.forward(&mut buffers)?;
    let checks = pruned.verify(&buffers)?;

    let math = if options.precision == Precision::F32 { DenseMath::F32 } else { DenseMath::Tf32 };
    let gemm = Gemm::new(&device.stream(), math)?;
    let got = buffers.y.download()?;
    let of_pruned = relative_error(&got, &dense.as_pruned(&pruned)?.forward(&gemm, &x)?);
    let of_dense = relative_error(&got, &dense.forward(&gemm, &x)?);

    let sparse_us = time(&device, options.repeat, || pruned.forward(&mut buffers))?;
    let upload = |layer: &Linear| -> Result<DeviceMatrix<f32>> {
        let weight = &layer.weight;
        let values = DenseRef::packed(weight.values(), weight.rows(), weight.cols())?;
        Ok(DeviceMatrix::upload(&device, values)?)
    };
    let weights: Vec<DeviceMatrix<f32>> = dense.layers().map(upload).collect::<Result<_>>()?;
    let zeros = |cols| DeviceMatrix::<f32>::zeros(&device, rows, cols);
    let (mut hidden, mut y) = (zeros(dense.up.weight.cols())?, zeros(dense.down.weight.cols())?);
    let dense_us = time(&device, options.repeat, || {
        let Some((down, before)) = weights.split_last() else { return Ok(()) };
        for layer in before {
            gemm.run(Form::Plain, &x, layer, &mut hidden)?;
        }
        gemm.run(Form::Plain, &hidden, down, &mut y)
    })?;

    let mut out = std::io::stdout().lock();
    let (hidden, gated) = (dense.up.weight.cols(), if dense.gate.is_some() { ", gated" } else { "" });
    writeln!(out, "layers    {width} → {hidden} → {}, {}{gated}", y.cols(), options.activation)?;
    writeln!(out, "pruned    {pattern}, {:.1} % sparse", 100.0 * pattern.sparsity())?;
    writeln!(out, "device    {device}, {}", options.precision)?;
    for (name, check) in &checks {
        writeln!(out, "{name:<9} {check}")?;
    }
    writeln!(
        out,
        "apart     {of_pruned:.2e} from f32 products of the pruned weights, relative to their norm"
    )?;
    writeln!(out, "apart     {of_dense:.2e} from f32 products of the dense weights: what pruning changes")?;
    writeln!(
        out,
        "time      {sparse_us:.0} µs pruned with bias and activation, {dense_us:.0} µs for the dense products alone: \
         {:.2} times as fast",
        dense_us / sparse_us
    )?;
    Ok(checks.iter().all(|(_, check)| check.passed()))
}

/// Median time of a run in microseconds.
fn time(device: &Device, repeat: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..WARM_UP {
        run()?;
    }
    let mut times = Vec::new();
    for _ in 0..repeat.max(1) {
        let begin = device.record()?;
        run()?;
        times.push(begin.elapsed_us(&device.record()?)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
