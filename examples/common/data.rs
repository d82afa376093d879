//! A task that can be learned, for any graph: nodes of communities are of one class, features are noisy class centres.
//!
//! Nothing here is a data set. Nodes are put in the order of communities that [`reorder`] finds, which is cut into as
//! many pieces of equal length as there are classes: neighbours are mostly of one class. Node `v` of class `k` has the
//! features `centre[k] + noise · u[v]`, with elements of both drawn uniformly from [−1, 1). With the default noise a
//! node alone tells little of its class, its neighbourhood much. Three of five nodes, drawn at random, are learned
//! from.
//!
//! All draws are fixed by the seed, so that `bench/peers/gnn_pyg.py` makes the same features.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use windrow::Csr;
use windrow::reorder::{Method, Options, reorder};
use windrow::synthetic::{SplitMix64, seeded_values};

use super::Result;

/// Nodes of five that are learned from.
const TRAINED_OF_FIVE: u32 = 3;

/// Features and classes of the nodes of a graph.
pub(crate) struct Task {
    /// Node after node, `width` of them each.
    pub(crate) features: Vec<f32>,
    pub(crate) width: usize,
    pub(crate) classes: usize,
    pub(crate) labels: Vec<u32>,
    /// Whether a node is learned from.
    pub(crate) trained: Vec<bool>,
    /// How many nodes the loss is the mean of: those of other ranks counted, too, where these are some of all.
    mean_of: usize,
}

/// What a [`Task`] is made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskOptions {
    pub(crate) width: usize,
    pub(crate) classes: usize,
    pub(crate) noise: f32,
    pub(crate) seed: u64,
}

impl Task {
    /// The task for an undirected graph.
    ///
    /// # Errors
    /// If there are no classes, or there is too little memory.
    pub(crate) fn new(graph: &Csr<f32>, options: TaskOptions) -> Result<Self> {
        let TaskOptions { width, classes, noise, seed } = options;
        let count = u32::try_from(classes).ok().filter(|&count| count > 0);
        let count = count.ok_or("--classes must be a number from 1 to 2³² − 1")?;
        let labels = communities(graph, count)?;
        let centres = seeded_values::<f32>(classes * width, seed)?;
        let mut features = seeded_values::<f32>(graph.rows() * width, seed.wrapping_add(1 << 32))?;
        for (node, &label) in features.chunks_exact_mut(width.max(1)).zip(&labels) {
            for (x, centre) in node.iter_mut().zip(&centres[label as usize * width..]) {
                *x = centre + noise * *x;
            }
        }
        let mut random = SplitMix64::new(seed.wrapping_add(2 << 32));
        let trained: Vec<bool> = (0..graph.rows()).map(|_| random.below(5) < TRAINED_OF_FIVE).collect();
        let mean_of = trained.iter().filter(|&&trained| trained).count();
        Ok(Self { features, width, classes, labels, trained, mean_of })
    }

    /// Some of the nodes, whose losses are their part of the mean over all.
    pub(crate) fn of_nodes(&self, nodes: Range<usize>) -> Self {
        let Self { width, classes, mean_of, .. } = *self;
        let features = self.features[nodes.start * width..nodes.end * width].to_vec();
        let (labels, trained) = (self.labels[nodes.clone()].to_vec(), self.trained[nodes].to_vec());
        Self { features, width, classes, labels, trained, mean_of }
    }

    /// How many nodes the loss is the mean of.
    pub(crate) fn mean_of(&self) -> usize {
        self.mean_of
    }

    /// How many nodes are learned from.
    pub(crate) fn trained_count(&self) -> usize {
        self.trained.iter().filter(|&&trained| trained).count()
    }

    /// The weight of each node in the mean loss over those that are learned from.
    pub(crate) fn weights(&self) -> Vec<f32> {
        #[expect(clippy::cast_precision_loss, reason = "a weight is rounded")]
        let weight = 1.0 / self.mean_of.max(1) as f32;
        self.trained.iter().map(|&trained| if trained { weight } else { 0.0 }).collect()
    }

    /// Writes the label of each node and whether it is learned from, a line each, for other programs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_labels(&self, path: &Path) -> Result<()> {
        let mut file =
            BufWriter::new(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?);
        for (label, &trained) in self.labels.iter().zip(&self.trained) {
            writeln!(file, "{label} {}", u8::from(trained))?;
        }
        Ok(file.flush()?)
    }
}

/// The class of each node: the order of communities, cut into `classes` pieces.
fn communities(graph: &Csr<f32>, classes: u32) -> Result<Vec<u32>> {
    let options = Options { method: Method::Community, ..Options::default() };
    let order = reorder(graph, &options, &()).map_err(|error| error.to_string())?.permutation;
    let nodes = u64::try_from(graph.rows())?;
    let class = |position: u32| u64::from(position) * u64::from(classes) / nodes.max(1);
    order.old_to_new().iter().map(|&position| Ok(u32::try_from(class(position))?)).collect()
}
