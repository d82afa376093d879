//! What the examples that train are told on the command line.

use std::path::PathBuf;

use clap::Parser;
use windrow::synthetic::Synthetic;
use windrow::{Csr, Device, DeviceSelector, Precision, io};

use super::Result;
use super::capture;
use super::data::{Task, TaskOptions};
use super::gemm::DenseMath;
use super::graph::undirected;
use super::lane::Lane;
use super::model::{Shape, Tools};

/// Trains a model to tell the classes of a graph's nodes, and says how long epochs take.
///
/// The classes are made up, so that any graph will do: they follow communities of the graph, and the features are noisy
/// centres of classes. What is learned is of no interest; that it is learned shows that gradients are right.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Options {
    /// The graph: a file that windrow reads (Matrix Market, edge list, .npz), or the name of a synthetic matrix.
    #[arg(default_value = "community60k")]
    pub(crate) graph: PathBuf,
    /// Passes over the graph.
    #[arg(long, default_value_t = 100)]
    pub(crate) epochs: usize,
    /// Layers of the network: the last gives a logit for each class.
    #[arg(long, default_value_t = 5)]
    pub(crate) layers: usize,
    /// Width of hidden layers.
    #[arg(long, default_value_t = 64)]
    pub(crate) hidden: usize,
    /// Features of a node.
    #[arg(long, default_value_t = 64)]
    pub(crate) features: usize,
    /// Classes that nodes belong to.
    #[arg(long, default_value_t = 16)]
    pub(crate) classes: usize,
    /// Noise of the features, in half-widths of the centres' distribution.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) noise: f32,
    /// Learning rate of Adam.
    #[arg(long, default_value_t = 0.01)]
    pub(crate) learning_rate: f32,
    /// best, cpu or cuda:N.
    #[arg(long, default_value = "best")]
    pub(crate) device: DeviceSelector,
    /// Type of the operands of sparse products: f32, tf32, f16 or bf16; their sums, and all else, are f32.
    #[arg(long, default_value = "f16")]
    pub(crate) precision: Precision,
    /// How dense products multiply f32 on a GPU.
    #[arg(long, value_enum, default_value = "f32")]
    pub(crate) dense: DenseMath,
    /// What features, weights and the choice of nodes are drawn from.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Epochs from one line of progress to the next.
    #[arg(long, default_value_t = 10)]
    pub(crate) every: usize,
    /// Epochs at the beginning whose time does not count.
    #[arg(long, default_value_t = 5)]
    pub(crate) warm_up: usize,
    /// Then captures an epoch into a CUDA graph and trains as many epochs again by launching it, to say how long epochs
    /// take without it and with it. Needs a GPU.
    #[arg(long = "graph")]
    pub(crate) captured: bool,
    /// Times the sparse work of a few more epochs, afterwards.
    #[arg(long)]
    pub(crate) profile: bool,
    /// Prints what the plans say of themselves.
    #[arg(long)]
    pub(crate) reports: bool,
    /// Prints the result as a line of JSON, and nothing else on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes the label of each node and whether it is learned from to this file, for other programs.
    #[arg(long)]
    pub(crate) write_labels: Option<PathBuf>,
}

impl Options {
    /// The graph, undirected and with loops.
    ///
    /// # Errors
    /// If it cannot be read, or is no graph.
    pub(crate) fn graph(&self) -> Result<Csr<f32>> {
        let named = self.graph.to_str().and_then(|name| name.parse::<Synthetic>().ok());
        let read = match named.filter(|_| !self.graph.exists()) {
            Some(synthetic) => synthetic.generate::<f32>(1)?,
            None => io::read_csr::<f32>(&self.graph)?,
        };
        undirected(&read)
    }

    /// Features and classes.
    ///
    /// # Errors
    /// If there are no classes, or too little memory.
    pub(crate) fn task(&self, graph: &Csr<f32>) -> Result<Task> {
        let Self { features: width, classes, noise, seed, .. } = *self;
        let task = Task::new(graph, TaskOptions { width, classes, noise, seed })?;
        if let Some(path) = &self.write_labels {
            task.write_labels(path)?;
        }
        Ok(task)
    }

    /// The sizes of the model.
    pub(crate) fn shape(&self) -> Shape {
        let mut widths = vec![self.hidden; self.layers + 1];
        widths[0] = self.features;
        if self.layers > 0 {
            widths[self.layers] = self.classes;
        }
        Shape { widths, precision: self.precision, heads: 1, seed: self.seed }
    }

    /// The device and what it computes dense products with.
    ///
    /// # Errors
    /// If there is no such device, or no cuBLAS on a GPU.
    pub(crate) fn tools(&self) -> Result<Tools> {
        let device: Device = self.device.open()?;
        let lane = match self.captured {
            false => Lane::own(&device),
            true => {
                capture::check(&device)?;
                // SAFETY: `Training` waits for each epoch before it looks at anything, and when it is dropped.
                unsafe { Lane::alone(&device)? }
            }
        };
        Tools::new(lane, self.dense)
    }
}

// For examples of several heads. The documentation of `Options` is their help.
#[derive(Debug, Clone, Parser)]
pub(crate) struct HeadedOptions {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Heads of hidden layers, which share the width; the last layer has one.
    #[arg(long, default_value_t = 4)]
    heads: usize,
}

impl HeadedOptions {
    /// The sizes of the model.
    pub(crate) fn shape(&self) -> Shape {
        Shape { heads: self.heads, ..self.options.shape() }
    }
}
