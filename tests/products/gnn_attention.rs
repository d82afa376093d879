//! GAT and the graph transformer of the examples: gradients against finite differences of an f64 model, and training
//! that learns.

use crate::common::{devices, gpu, report_missing_gpu, takes_turn};
use crate::example::data::{Task, TaskOptions};
use crate::example::gat::Gat;
use crate::example::graph_transformer::GraphTransformer;
use crate::example::lane::Lane;
use crate::example::model::Shape;
use crate::example::train::Training;
use crate::gnn::{Dense, Reference, check_gradients, communities, learn, one_pass_tolerances, tiny, tools};
use windrow::{Csr, Device, Precision};

const HEADS: usize = 2;

impl Reference<'_> {
    /// `softmax(scores) · V` over the neighbours of each node, head after head.
    fn attend(&self, heads: usize, score: impl Fn(usize, usize, usize) -> f64, v: &Dense) -> Dense {
        let columns = v.cols / heads;
        let mut out = v.map(|_, _, _| 0.0);
        for head in 0..heads {
            for i in 0..v.rows {
                let weights: Vec<f64> = (0..v.rows)
                    .map(|j| if self.adjacency.at(i, j) == 0.0 { 0.0 } else { score(head, i, j).exp() })
                    .collect();
                let sum: f64 = weights.iter().sum();
                for c in head * columns..(head + 1) * columns {
                    let found: f64 = weights.iter().enumerate().map(|(j, w)| w * v.at(j, c)).sum();
                    out.data[i * v.cols + c] = found / sum;
                }
            }
        }
        out
    }

    /// Loss of a GAT with these parameters: weight, and what scores are made with, layer after layer.
    fn gat(&self, parameters: &[Dense]) -> f64 {
        let layers = parameters.len() / 3;
        let mut h = self.features();
        for (l, layer) in parameters.chunks(3).enumerate() {
            let z = h.times(&layer[0]);
            let (q, k) = (z.times(&layer[1]), z.times(&layer[2]));
            let score = |head, i, j| {
                let sum = q.at(i, head) + k.at(j, head);
                if sum > 0.0 { sum } else { 0.2 * sum }
            };
            let o = self.attend(q.cols, score, &z);
            h = if l + 1 < layers { o.map(|_, _, x| x.max(0.0)) } else { o };
        }
        self.loss(&h)
    }

    /// Loss of a graph transformer with these parameters: those of queries, keys, values and of the node itself, layer
    /// after layer.
    fn transformer(&self, parameters: &[Dense]) -> f64 {
        let layers = parameters.len() / 4;
        let mut h = self.features();
        for (l, layer) in parameters.chunks(4).enumerate() {
            let heads = if l + 1 < layers { HEADS } else { 1 };
            let [q, k, v, own] = [0, 1, 2, 3].map(|part| h.times(&layer[part]));
            let columns = q.cols / heads;
            let score = |head: usize, i, j| {
                let of_head = head * columns..(head + 1) * columns;
                of_head.map(|c| q.at(i, c) * k.at(j, c)).sum::<f64>() / (columns as f64).sqrt()
            };
            let o = self.attend(heads, score, &v).map(|i, c, x| x + own.at(i, c));
            h = if l + 1 < layers { o.map(|_, _, x| x.max(0.0)) } else { o };
        }
        self.loss(&h)
    }
}

/// The graph, task and shape of the gradient tests.
fn tiny_with_heads(precision: Precision) -> (Csr<f32>, Task, Shape) {
    let (graph, task, shape) = tiny(precision);
    (graph, task, Shape { widths: vec![5, 8, 8, 3], heads: HEADS, ..shape })
}

#[test]
fn gradients_of_gat_are_those_of_its_loss() {
    for device in devices() {
        for (turn, (precision, tolerance)) in one_pass_tolerances().enumerate() {
            if !takes_turn(&device, turn + 1) {
                continue;
            }
            let Some(tools) = tools(Lane::own(&device)) else { continue };
            let (graph, task, shape) = tiny_with_heads(precision);
            let reference = Reference::new(&graph, &task);
            let model = Gat::new(&graph, &task, &shape, tools).unwrap();
            let mut training = Training::new(model, &task, &device, 0.01).unwrap();
            let what = format!("GAT in {precision} on {device}");
            check_gradients(&what, &mut training, |p| reference.gat(p), tolerance);
        }
    }
    report_missing_gpu("gradients of GAT", one_pass_tolerances().count());
}

#[test]
fn gradients_of_graph_transformer_are_those_of_its_loss() {
    for device in devices() {
        for (turn, (precision, tolerance)) in one_pass_tolerances().enumerate() {
            if !takes_turn(&device, turn + 1) {
                continue;
            }
            let Some(tools) = tools(Lane::own(&device)) else { continue };
            let (graph, task, shape) = tiny_with_heads(precision);
            let reference = Reference::new(&graph, &task);
            let model = GraphTransformer::new(&graph, &task, &shape, tools).unwrap();
            let mut training = Training::new(model, &task, &device, 0.01).unwrap();
            let what = format!("graph transformer in {precision} on {device}");
            check_gradients(&what, &mut training, |p| reference.transformer(p), tolerance);
        }
    }
    report_missing_gpu("gradients of graph transformers", one_pass_tolerances().count());
}

#[test]
fn heads_learn() {
    let graph = communities(240, 20, 8);
    let task = Task::new(&graph, TaskOptions { width: 16, classes: 6, noise: 2.0, seed: 5 }).unwrap();
    for device in [Device::cpu()].into_iter().chain(gpu()) {
        let data = (&graph, &task);
        let headed = |shape: &Shape| Shape { heads: 4, ..shape.clone() };
        let gat = learn(
            data,
            &device,
            |tools, shape| Gat::new(&graph, &task, &headed(shape), tools).unwrap(),
            (Precision::F32, 40),
        );
        let transformer = learn(
            data,
            &device,
            |tools, shape| GraphTransformer::new(&graph, &task, &headed(shape), tools).unwrap(),
            (Precision::F32, 40),
        );
        for (name, learned) in [("GAT", gat), ("graph transformer", transformer)] {
            let Some(([first, last], [train, test])) = learned else { continue };
            assert!(last < 0.25 * first, "{name} on {device}: loss from {first} to {last}");
            assert!(train > 0.9 && test > 0.8, "{name} on {device}: {train}, {test}");
        }
    }
    report_missing_gpu("training with heads", 2);
}

#[test]
fn heads_share_the_width_evenly_or_are_refused() {
    let (graph, task, shape) = tiny_with_heads(Precision::F32);
    let model = |shape: &Shape| {
        let tools = tools(Lane::own(&Device::cpu())).unwrap();
        Gat::new(&graph, &task, shape, tools).map(|_| ()).map_err(|error| error.to_string())
    };
    for heads in [0, 3] {
        let refused = model(&Shape { heads, ..shape.clone() }).unwrap_err();
        assert_eq!(refused, format!("--hidden 8 is no multiple of --heads {heads}"));
    }
    let refused = model(&Shape { widths: vec![5], ..shape.clone() }).unwrap_err();
    assert_eq!(refused, "--layers must be at least 1");
    model(&Shape { widths: vec![5, 3], ..shape }).unwrap();
}
