//! The models of the examples: gradients against finite differences of an f64 model, and training that learns.

use crate::common::{devices, gpu, report_missing_gpu, takes_turn};
use crate::example::agnn::{Agnn, AgnnBySteps};
use crate::example::data::{Task, TaskOptions};
use crate::example::gcn::Gcn;
use crate::example::gemm::{DenseMath, Form};
use crate::example::graph::{normalized, undirected};
use crate::example::lane::Lane;
use crate::example::model::{Model, Shape, Tools};
use crate::example::train::Training;
use windrow::synthetic::SplitMix64;
use windrow::{Coo, Csr, DenseRef, Device, DeviceMatrix, EmulatorSchedule, Precision};

/// Tools for work in a stream; `None` for a GPU without cuBLAS, unless a GPU must be tested.
pub(crate) fn tools(lane: Lane) -> Option<Tools> {
    match Tools::new(lane, DenseMath::F32) {
        Ok(tools) => Some(tools),
        Err(error) if std::env::var("WINDROW_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("{error}")
        }
        Err(error) => {
            windrow_testkit::announce_skip("models on a GPU", 1, &error.to_string());
            None
        }
    }
}

/// Communities of `size` nodes, `within` edges drawn into its own from each node, one anywhere.
pub(crate) fn communities(n: u32, size: u32, within: u32) -> Csr<f32> {
    let mut random = SplitMix64::new(77);
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for i in 0..n {
        for _ in 0..within {
            rows.push(i);
            cols.push((i / size * size + random.below(size)).min(n - 1));
        }
        rows.push(i);
        cols.push(random.below(n));
    }
    let ones = vec![1.0; rows.len()];
    let n = usize::try_from(n).unwrap();
    undirected(&Coo::try_new(n, n, rows, cols, ones).unwrap().to_csr().unwrap()).unwrap()
}

/// A matrix of f64, row after row.
#[derive(Clone)]
pub(crate) struct Dense {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) data: Vec<f64>,
}

impl Dense {
    fn of(rows: usize, cols: usize, data: impl IntoIterator<Item = f32>) -> Self {
        Self { rows, cols, data: data.into_iter().map(f64::from).collect() }
    }

    pub(crate) fn at(&self, r: usize, c: usize) -> f64 {
        self.data[r * self.cols + c]
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let element = |i: usize| {
            let (r, c) = (i / other.cols, i % other.cols);
            (0..self.cols).map(|k| self.at(r, k) * other.at(k, c)).sum()
        };
        let data = (0..self.rows * other.cols).map(element).collect();
        Self { rows: self.rows, cols: other.cols, data }
    }

    pub(crate) fn map(&self, f: impl Fn(usize, usize, f64) -> f64) -> Self {
        let data = self.data.iter().enumerate().map(|(i, &x)| f(i / self.cols, i % self.cols, x)).collect();
        Self { data, ..*self }
    }
}

/// A model in f64, on a dense matrix: nothing of it is windrow's.
pub(crate) struct Reference<'a> {
    pub(crate) adjacency: Dense,
    task: &'a Task,
}

impl<'a> Reference<'a> {
    pub(crate) fn new(graph: &Csr<f32>, task: &'a Task) -> Self {
        let mut adjacency = Dense::of(graph.rows(), graph.rows(), vec![0.0; graph.rows() * graph.rows()]);
        for (r, (cols, _)) in graph.rows_iter().enumerate() {
            cols.iter().for_each(|&c| adjacency.data[r * graph.rows() + c as usize] = 1.0);
        }
        Self { adjacency, task }
    }

    pub(crate) fn features(&self) -> Dense {
        Dense::of(self.task.labels.len(), self.task.width, self.task.features.iter().copied())
    }

    /// Mean cross-entropy over the nodes that are learned from.
    pub(crate) fn loss(&self, logits: &Dense) -> f64 {
        let of_row = |r: usize| {
            let row = &logits.data[r * logits.cols..][..logits.cols];
            row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[self.task.labels[r] as usize]
        };
        let trained = || (0..logits.rows).filter(|&r| self.task.trained[r]);
        trained().map(of_row).sum::<f64>() / trained().count() as f64
    }

    /// Loss of a GCN with these parameters: weight and bias, layer after layer.
    fn gcn(&self, parameters: &[Dense]) -> f64 {
        let degree = |r: usize| (0..self.adjacency.cols).map(|c| self.adjacency.at(r, c)).sum::<f64>();
        let a = self.adjacency.map(|r, c, x| x / (degree(r) * degree(c)).sqrt());
        let layers = parameters.len() / 2;
        let mut h = self.features();
        for (l, layer) in parameters.chunks(2).enumerate() {
            let biased = a.times(&h.times(&layer[0])).map(|_, c, x| x + layer[1].data[c]);
            h = if l + 1 < layers { biased.map(|_, _, x| x.max(0.0)) } else { biased };
        }
        self.loss(&h)
    }

    /// Loss of an AGNN with these parameters: weight and β, layer after layer.
    fn agnn(&self, parameters: &[Dense]) -> f64 {
        let layers = parameters.len() / 2;
        let mut h = self.features();
        for (l, layer) in parameters.chunks(2).enumerate() {
            let (z, beta) = (h.times(&layer[0]), layer[1].data[0]);
            let dot = |i: usize, j: usize| (0..z.cols).map(|k| z.at(i, k) * z.at(j, k)).sum::<f64>();
            let norms: Vec<f64> = (0..z.rows).map(|i| dot(i, i).sqrt()).collect();
            let exp = self.adjacency.map(|i, j, edge| match edge {
                0.0 => 0.0,
                // A node whose features are all zero has no direction.
                _ if norms[i] * norms[j] == 0.0 => 1.0,
                _ => (beta * dot(i, j) / (norms[i] * norms[j])).exp(),
            });
            let sums: Vec<f64> = (0..z.rows).map(|i| (0..z.rows).map(|j| exp.at(i, j)).sum()).collect();
            let o = exp.map(|i, _, x| x / sums[i]).times(&z);
            h = if l + 1 < layers { o.map(|_, _, x| x.max(0.0)) } else { o };
        }
        self.loss(&h)
    }
}

/// The graph, task and shape of the gradient tests: three layers do all that five do.
pub(crate) fn tiny(precision: Precision) -> (Csr<f32>, Task, Shape) {
    let graph = communities(30, 10, 2);
    let task = Task::new(&graph, TaskOptions { width: 5, classes: 3, noise: 1.0, seed: 4 }).unwrap();
    (graph, task, Shape { widths: vec![5, 7, 7, 3], precision, heads: 1, seed: 9 })
}

fn values(
    model: &mut impl Model,
    which: impl Fn(&crate::example::model::Parameter) -> Vec<f32>,
) -> Vec<Dense> {
    let parameters = model.parameters();
    parameters.into_iter().map(|p| Dense::of(p.value.rows(), p.value.cols(), which(p))).collect()
}

/// Compares loss and all gradients with those of the reference: derivatives by central differences in f64.
pub(crate) fn check_gradients<M: Model>(
    what: &str,
    training: &mut Training<M>,
    reference: impl Fn(&[Dense]) -> f64,
    tolerance: f64,
) {
    // Away from where biases are zero and every β is 1. Zeros among other elements are none that are learned.
    let mut random = windrow_testkit::SplitMix64::new(21);
    let mut learned = Vec::new();
    for parameter in training.model.parameters() {
        let (rows, cols) = (parameter.value.rows(), parameter.value.cols());
        let mut moved = parameter.value.download().unwrap();
        let all = moved.iter().all(|&x| x == 0.0);
        let those: Vec<bool> = moved.iter().map(|&x| all || x != 0.0).collect();
        moved
            .iter_mut()
            .zip(&those)
            .filter(|(_, those)| **those)
            .for_each(|(x, _)| *x += 0.2 * random.real());
        learned.push(those);
        parameter.value.copy_from(DenseRef::packed(&moved, rows, cols).unwrap()).unwrap();
    }
    training.gradients().unwrap();
    let mut parameters = values(&mut training.model, |p| p.value.download().unwrap());
    let gradients = values(&mut training.model, |p| p.gradient.download().unwrap());
    let (loss, want) = (f64::from(training.outcome().unwrap().loss), reference(&parameters));
    assert!((loss - want).abs() <= tolerance * want, "{what}: loss {loss} instead of {want}");
    let mut moved = 0;
    for (p, gradient) in gradients.iter().enumerate() {
        // Single numbers, one of each layer, are compared as if they were a row.
        let alike = |other: &usize| *other == p || gradients[*other].data.len() * gradient.data.len() == 1;
        let alike = (0..gradients.len()).filter(alike).flat_map(|other| &gradients[other].data);
        let largest = alike.fold(0.0f64, |most, x| most.max(x.abs()));
        for (i, &got) in gradient.data.iter().enumerate() {
            if !learned[p][i] {
                assert_eq!(got, 0.0, "{what}: parameter {p}, element {i}");
                continue;
            }
            let step = 1e-6;
            let value = parameters[p].data[i];
            parameters[p].data[i] = value + step;
            let above = reference(&parameters);
            parameters[p].data[i] = value - step;
            let below = reference(&parameters);
            parameters[p].data[i] = value;
            let want = (above - below) / (2.0 * step);
            let bound = tolerance * largest.max(1e-3);
            assert!(
                (got - want).abs() <= bound,
                "{what}: parameter {p}, element {i}: {got} instead of {want}"
            );
            moved += usize::from(want.abs() > 3.0 * bound);
        }
    }
    let elements = learned.iter().flatten().filter(|&&those| those).count();
    assert!(
        2 * moved > elements,
        "{what}: {moved} of {elements} gradients are beyond what would pass for zero"
    );
}

/// What gradients of a precision may be off by, of the largest of their parameter: about one and a half times the worst
/// that was seen.
const TOLERANCES: [(Precision, f64); 4] =
    [(Precision::F32, 3e-5), (Precision::Tf32, 7e-3), (Precision::F16, 7e-3), (Precision::Bf16, 1.6e-2)];

#[test]
fn gradients_of_gcn_are_those_of_its_loss() {
    for device in devices() {
        for (turn, (precision, tolerance)) in TOLERANCES.into_iter().enumerate() {
            if !takes_turn(&device, turn) {
                continue;
            }
            let Some(tools) = tools(Lane::own(&device)) else { continue };
            let (graph, task, shape) = tiny(precision);
            let reference = Reference::new(&graph, &task);
            let model = Gcn::new(&graph, &task, &shape, tools).unwrap();
            let mut training = Training::new(model, &task, &device, 0.01).unwrap();
            let what = format!("GCN in {precision} on {device}");
            check_gradients(&what, &mut training, |p| reference.gcn(p), tolerance);
        }
    }
    report_missing_gpu("gradients of GCN", TOLERANCES.len());
}

/// Those of them that attention in one pass has.
pub(crate) fn one_pass_tolerances() -> impl Iterator<Item = (Precision, f64)> {
    TOLERANCES.into_iter().filter(|(precision, _)| *precision != Precision::Tf32)
}

#[test]
fn gradients_of_agnn_are_those_of_its_loss() {
    for device in devices() {
        for (turn, (precision, tolerance)) in one_pass_tolerances().enumerate() {
            if !takes_turn(&device, turn + 1) {
                continue;
            }
            let Some(tools) = tools(Lane::own(&device)) else { continue };
            let (graph, task, shape) = tiny(precision);
            let reference = Reference::new(&graph, &task);
            let model = Agnn::new(&graph, &task, &shape, tools).unwrap();
            let mut training = Training::new(model, &task, &device, 0.01).unwrap();
            let what = format!("AGNN in {precision} on {device}");
            check_gradients(&what, &mut training, |p| reference.agnn(p), tolerance);
        }
    }
    report_missing_gpu("gradients of AGNN", one_pass_tolerances().count());
}

#[test]
fn gradients_of_agnn_by_steps_are_those_of_its_loss() {
    for device in devices() {
        for (turn, (precision, tolerance)) in TOLERANCES.into_iter().enumerate() {
            if !takes_turn(&device, turn) {
                continue;
            }
            let Some(tools) = tools(Lane::own(&device)) else { continue };
            let (graph, task, shape) = tiny(precision);
            let reference = Reference::new(&graph, &task);
            let model = AgnnBySteps::new(&graph, &task, &shape, tools).unwrap();
            let mut training = Training::new(model, &task, &device, 0.01).unwrap();
            let what = format!("AGNN by steps in {precision} on {device}");
            check_gradients(&what, &mut training, |p| reference.agnn(p), tolerance);
        }
    }
    report_missing_gpu("gradients of AGNN by steps", TOLERANCES.len());
}

/// Both ways to attention train alike: losses of twenty epochs, in f32, each within 2⁻¹⁴ of the other's.
#[test]
fn both_ways_of_agnn_have_the_same_losses() {
    let graph = communities(300, 30, 6);
    let task = Task::new(&graph, TaskOptions { width: 16, classes: 6, noise: 2.0, seed: 5 }).unwrap();
    let shape = Shape { widths: vec![16, 24, 24, 6], precision: Precision::F32, heads: 1, seed: 3 };
    fn losses<M: Model>(model: M, task: &Task, device: &Device) -> Vec<f32> {
        let (mut training, mut losses) = (Training::new(model, task, device, 0.01).unwrap(), Vec::new());
        let told = |_: usize, training: &Training<M>| {
            losses.push(training.outcome()?.loss);
            Ok(())
        };
        training.run(20, told).unwrap();
        losses
    }
    for device in [Device::cpu()].into_iter().chain(gpu()) {
        let made = |tools: Tools| Agnn::new(&graph, &task, &shape, tools).unwrap();
        let Some(one_pass) = tools(Lane::own(&device)).map(made) else { continue };
        let by_steps = tools(Lane::own(&device)).unwrap();
        let by_steps = AgnnBySteps::new(&graph, &task, &shape, by_steps).unwrap();
        let (found, want) = (losses(one_pass, &task, &device), losses(by_steps, &task, &device));
        assert!(want[19] < 0.7 * want[0], "{want:?}");
        for (found, want) in found.iter().zip(&want) {
            assert!((found - want).abs() <= 6.2e-5 * want, "{found} instead of {want} on {device}");
        }
    }
    report_missing_gpu("losses of both ways of AGNN", 1);
}

/// Trains a model of five layers; loss at the beginning and at the end, and shares of nodes that are predicted right.
pub(crate) fn learn<M: Model>(
    (graph, task): (&Csr<f32>, &Task),
    device: &Device,
    make: impl FnOnce(Tools, &Shape) -> M,
    (precision, epochs): (Precision, usize),
) -> Option<([f32; 2], [f64; 2])> {
    let shape = Shape { widths: vec![16, 24, 24, 24, 24, 6], precision, heads: 1, seed: 3 };
    let model = make(tools(Lane::own(device))?, &shape);
    let mut training = Training::new(model, task, device, 0.01).unwrap();
    let first = training.evaluate().unwrap().loss;
    let times = training.run(epochs, |_, _| Ok(())).unwrap();
    assert_eq!(times.len(), epochs);
    let last = training.evaluate().unwrap();
    let trained = task.trained_count();
    let share = |right: usize, of: usize| right as f64 / of as f64;
    let shares = [share(last.right_weighted, trained), share(last.right_others, graph.rows() - trained)];
    Some(([first, last.loss], shares))
}

#[test]
fn five_layers_learn() {
    let graph = communities(480, 40, 12);
    let task = Task::new(&graph, TaskOptions { width: 16, classes: 6, noise: 2.0, seed: 5 }).unwrap();
    assert!((240..336).contains(&task.trained_count()), "three of five");
    let of_class = |k: u32| task.labels.iter().filter(|&&label| label == k).count();
    assert!((0..6).all(|k| of_class(k) == 80), "classes of equal size");
    let mut tested = vec![Device::cpu()];
    tested.extend(gpu());
    for device in tested {
        // On the CPU both are computed alike, but for the rounding of operands.
        let on_cpu = device.kind() == windrow::DeviceKind::Cpu;
        let precisions = [Precision::F16, Precision::F32];
        for precision in precisions.into_iter().take(if on_cpu { 1 } else { 2 }) {
            let data = (&graph, &task);
            let gcn = learn(
                data,
                &device,
                |tools, shape| Gcn::new(&graph, &task, shape, tools).unwrap(),
                (precision, 60),
            );
            let agnn = learn(
                data,
                &device,
                |tools, shape| Agnn::new(&graph, &task, shape, tools).unwrap(),
                (precision, 60),
            );
            for (name, learned) in [("GCN", gcn), ("AGNN", agnn)] {
                let Some(([first, last], [train, test])) = learned else { continue };
                assert!(
                    last < 0.25 * first,
                    "{name} in {precision} on {device}: loss from {first} to {last}"
                );
                assert!(train > 0.9 && test > 0.85, "{name} in {precision} on {device}: {train}, {test}");
            }
        }
    }
    report_missing_gpu("training", 4);
}

/// Promise, determinism: two trainings of a graph neural network give the same bits.
#[test]
fn two_trainings_give_the_same_bits() {
    let (graph, task, shape) = tiny(Precision::F16);
    let run = |device: &Device| {
        let model = Agnn::new(&graph, &task, &shape, tools(Lane::own(device))?).unwrap();
        let mut training = Training::new(model, &task, device, 0.01).unwrap();
        training.run(4, |_, _| Ok(())).unwrap();
        let values = values(&mut training.model, |p| p.value.download().unwrap());
        Some(values.into_iter().flat_map(|p| p.data).map(f64::to_bits).collect::<Vec<u64>>())
    };
    let expected = run(&Device::emulator(EmulatorSchedule::InOrder));
    for schedule in EmulatorSchedule::STANDARD {
        assert_eq!(run(&Device::emulator(schedule)), expected, "{schedule:?}");
    }
    assert_eq!(run(&Device::cpu()), run(&Device::cpu()));
    if let Some(gpu) = gpu() {
        assert_eq!(run(&gpu), run(&gpu));
    }
    report_missing_gpu("bits of trainings", 1);
}

#[test]
fn dense_products_are_exact_for_whole_numbers() {
    let mut rng = windrow_testkit::SplitMix64::new(6);
    for device in [Device::cpu(), Device::emulator(EmulatorSchedule::InOrder)].into_iter().chain(gpu()) {
        let Some(Tools { gemm, .. }) = tools(Lane::own(&device)) else { continue };
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (2050, 6, 3), (4, 3, 9000), (33, 17, 40)] {
            for form in [Form::Plain, Form::First, Form::Second] {
                let mut random = |len: usize| (0..len).map(|_| rng.integer()).collect::<Vec<f32>>();
                let (a, b) = (random(m * k), random(k * n));
                let upload = |x: &[f32], rows, cols, transposed: bool| {
                    let x: Vec<f32> = match transposed {
                        false => x.to_vec(),
                        true => (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect(),
                    };
                    let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
                    DeviceMatrix::upload(&device, DenseRef::packed(&x, rows, cols).unwrap()).unwrap()
                };
                let (a_there, b_there) =
                    (upload(&a, m, k, form == Form::First), upload(&b, k, n, form == Form::Second));
                let mut c = DeviceMatrix::zeros(&device, m, n).unwrap();
                gemm.run(form, &a_there, &b_there, &mut c).unwrap();
                let want = |i: usize| (0..k).map(|t| a[i / n * k + t] * b[t * n + i % n]).sum::<f32>();
                let want: Vec<f32> = (0..m * n).map(want).collect();
                assert_eq!(c.download().unwrap(), want, "{m} × {n} × {k}, {form:?} on {device}");
                gemm.run_into(form, [&a_there, &b_there], 1.0, &mut c).unwrap();
                let twice: Vec<f32> = want.iter().map(|x| 2.0 * x).collect();
                assert_eq!(c.download().unwrap(), twice, "{m} × {n} × {k}, {form:?} added on {device}");
                assert!(
                    gemm.run(form, &a_there, &b_there, &mut DeviceMatrix::zeros(&device, m, n + 1).unwrap())
                        .is_err()
                );
            }
        }
    }
}

#[test]
fn features_are_those_that_the_peer_draws() {
    // The first draws of `bench/peers/gnn_pyg.py` for these seeds.
    let graph = communities(4, 2, 1);
    let task = Task::new(&graph, TaskOptions { width: 2, classes: 2, noise: 2.0, seed: 1 }).unwrap();
    let centres = [[0.133_123_04f32, 0.491_563_44], [0.942_005_4, -0.111_281_63]];
    let noise = [
        -0.747_938_04f32,
        -0.610_022_2,
        0.727_217_1,
        0.883_078_46,
        0.912_944_8,
        0.933_156_25,
        0.320_519_8,
        -0.597_715_85,
    ];
    for (v, (features, noise)) in task.features.chunks(2).zip(noise.chunks(2)).enumerate() {
        let centre = centres[task.labels[v] as usize];
        assert_eq!(features, [centre[0] + 2.0 * noise[0], centre[1] + 2.0 * noise[1]], "node {v}");
    }
    assert_eq!(task.trained, [false, false, true, true]);
}

#[test]
fn graphs_become_undirected_and_normalised() {
    let a = Csr::try_from_parts(3, 3, vec![0, 2, 2, 3], vec![1, 2, 0], vec![5.0f32, 6.0, 7.0]).unwrap();
    let graph = undirected(&a).unwrap();
    assert_eq!((graph.row_offsets(), graph.values()), (&[0, 3, 5, 7][..], &[1.0; 7][..]));
    assert_eq!(graph.col_indices(), [0, 1, 2, 0, 1, 0, 2]);
    let weights = normalized(&graph).unwrap();
    assert!(weights.transpose().unwrap().bitwise_eq(&weights));
    let (third, half, other) = (1.0 / 3.0, 0.5, 1.0 / 6f32.sqrt()); // degrees are 3, 2 and 2
    let want = [third, other, other, other, half, other, half];
    approx::assert_relative_eq!(weights.values()[..], want[..], max_relative = 2e-6);
    assert!(undirected(&Csr::<f32>::zeros(2, 3).unwrap()).unwrap_err().to_string().contains("2 × 3"));
}
