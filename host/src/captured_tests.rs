//! Work of all families that is captured into a graph, as far as the emulator has graphs: what is queued is recorded,
//! and done when the graph is launched.

use windrow_formats::Csr;

use crate::training::{
    Adam, ColumnSums, CountedAdam, CrossEntropy, Moments, add_bias_on, add_bias_relu_on,
    normalize_rows_backward_on, normalize_rows_on, relu_backward_on, relu_on,
};
use crate::{
    ActivationLayout, Algorithm, Coo3, DenseRef, Device, DeviceBuffer, DeviceCsr, DeviceError, DeviceMatrix,
    EmulatorSchedule, Epilogue, Error, Mttkrp, NmPattern, NmSpmm, Precision, RowSoftmax, Sddmm,
    SddmmAlgorithm, SddmmForm, SddmmPlan, Spmm, SpmmPlan, Stream, f16, prune_magnitude,
};

/// Nodes of the graph, and features of each.
const N: usize = 24;
const F: usize = 6;
/// The same, as indices.
const NODES: u32 = 24;
const CLASSES: u32 = 6;
const LAYERS: usize = 5;

fn upload(device: &Device, rows: usize, cols: usize, seed: usize) -> DeviceMatrix<f32> {
    let data: Vec<f32> = (0..rows * cols).map(|i| ((i * 7 + seed * 5) % 11) as f32 / 8.0 - 0.5).collect();
    DeviceMatrix::upload(device, DenseRef::packed(&data, rows, cols).unwrap()).unwrap()
}

#[track_caller]
fn assert_captured<T>(outcome: Result<T, impl Into<Error>>, what: &str) {
    let error = outcome.map(|_| ()).map_err(Into::into).expect_err(what);
    assert!(matches!(error.device(), Some(DeviceError::Captured { .. })), "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

/// A network whose layers are `H' = ReLU(Â·H + b)`, the last without ReLU, that learns its features and biases: a GCN
/// without dense products, which are another library's.
struct Network {
    stream: Stream,
    adjacency: SpmmPlan,
    transposed: SpmmPlan,
    /// The features, then what each layer makes.
    outputs: Vec<DeviceMatrix<f32>>,
    biases: Vec<DeviceMatrix<f32>>,
    /// Of the features and of each bias.
    gradients: Vec<DeviceMatrix<f32>>,
    moments: Vec<Moments>,
    /// Where gradients of outputs go to and fro.
    between: [DeviceMatrix<f32>; 2],
    loss: CrossEntropy,
    sums: ColumnSums,
    adam: CountedAdam,
}

impl Network {
    fn graph() -> Csr<f32> {
        let offsets = (0..=N as u64).map(|row| 3 * row).collect();
        let columns = (0..NODES).flat_map(|row| {
            let mut columns = [row, (row + 1) % NODES, (row + 5) % NODES];
            columns.sort_unstable();
            columns
        });
        let columns: Vec<u32> = columns.collect();
        Csr::try_from_parts(N, N, offsets, columns, vec![0.5f32; 3 * N]).unwrap()
    }

    fn new(device: &Device) -> Self {
        let a = Self::graph();
        let plan = |a: &Csr<f32>| Spmm::builder(a).width(F).precision(Precision::F32).build(device).unwrap();
        let zeros = |rows| DeviceMatrix::zeros(device, rows, F).unwrap();
        let mut outputs = vec![upload(device, N, F, 1)];
        outputs.extend((0..LAYERS).map(|_| zeros(N)));
        let mut gradients = vec![zeros(N)];
        gradients.extend((0..LAYERS).map(|_| zeros(1)));
        let labels: Vec<u32> = (0..NODES).map(|row| row % CLASSES).collect();
        let adam = Adam { learning_rate: 0.05, ..Adam::default() };
        let network = Self {
            stream: Stream::new(device).unwrap(),
            adjacency: plan(&a),
            transposed: plan(&a.transpose().unwrap()),
            outputs,
            biases: (0..LAYERS).map(|layer| upload(device, 1, F, layer)).collect(),
            moments: gradients.iter().map(|gradient| Moments::of(gradient).unwrap()).collect(),
            gradients,
            between: [zeros(N), zeros(N)],
            loss: CrossEntropy::new(device, F, &labels, &[0.125; N]).unwrap(),
            sums: ColumnSums::new(device, F).unwrap(),
            adam: CountedAdam::new(device, adam).unwrap(),
        };
        device.synchronize().unwrap();
        network
    }

    /// Queues forward and backward pass, and a step of Adam.
    fn step(&mut self) -> Result<(), Error> {
        let Self { stream: on, adjacency, transposed, outputs, biases, gradients, moments, between, .. } =
            self;
        // SAFETY: nothing but this stream uses the network before it is waited for.
        unsafe {
            for l in 0..LAYERS {
                let (before, after) = outputs.split_at_mut(l + 1);
                let (input, output) = (before[l].view().lent(), &mut after[0]);
                adjacency.run_into_on(on, 1.0, input, 0.0, output.view_mut().lent())?;
                match l + 1 == LAYERS {
                    true => add_bias_on(on, output.view_mut().lent(), biases[l].view().lent())?,
                    false => add_bias_relu_on(on, output.view_mut().lent(), biases[l].view().lent())?,
                }
            }
            let [one, two] = between;
            self.loss.run_on(on, outputs[LAYERS].view().lent(), one.view_mut().lent())?;
            for l in (0..LAYERS).rev() {
                let of_bias = gradients[l + 1].view_mut().lent();
                self.sums.sum_on(on, one.view().lent(), of_bias)?;
                transposed.run_into_on(on, 1.0, one.view().lent(), 0.0, two.view_mut().lent())?;
                if l > 0 {
                    relu_backward_on(on, two.view_mut().lent(), outputs[l].view().lent())?;
                }
                std::mem::swap(one, two);
            }
            let mut step = self.adam.begin_on(on)?;
            let features = (&mut outputs[0], one.view().lent(), &mut moments[0]);
            step.update(features.0.view_mut().lent(), features.1, features.2)?;
            for ((bias, gradient), moments) in biases.iter_mut().zip(&gradients[1..]).zip(&mut moments[1..]) {
                step.update(bias.view_mut().lent(), gradient.view().lent(), moments)?;
            }
        }
        Ok(())
    }

    /// All parameters, and the loss.
    fn bits(&self) -> Vec<u32> {
        self.stream.synchronize().unwrap();
        let mut found = vec![self.loss.outcome().unwrap().loss];
        let parameters = self.biases.iter().chain([&self.outputs[0]]);
        found.extend(parameters.flat_map(|parameter| parameter.download().unwrap()));
        found.into_iter().map(f32::to_bits).collect()
    }
}

#[test]
fn ten_launches_of_a_captured_step_have_the_bits_of_ten_steps() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        let (mut eager, mut captured) = (Network::new(&device), Network::new(&device));
        for _ in 0..12 {
            eager.step().unwrap();
        }
        captured.step().unwrap(); // makes what is made once
        captured.step().unwrap();
        let mut before = captured.bits();
        let queue = std::sync::Arc::clone(captured.stream.shared_queue().unwrap());
        queue.begin_capture();
        captured.step().unwrap();
        let graph = queue.end_capture();
        assert_eq!(captured.bits(), before, "nothing is done yet");
        for launch in 1..=10 {
            graph().unwrap();
            let now = captured.bits();
            assert_ne!(now, before, "launch {launch} changes nothing");
            before = now;
        }
        assert_eq!((eager.adam.steps().unwrap(), captured.adam.steps().unwrap()), (12, 12));
        assert!(captured.bits() == eager.bits(), "{schedule:?}");
    }
}

#[test]
fn what_training_cannot_capture_is_refused_before_anything_is_queued() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let (mut x, mut sum) = (upload(&device, N, F, 1), upload(&device, 1, F, 2));
    let (mut sums, mut moments) = (ColumnSums::new(&device, F).unwrap(), Moments::of(&sum).unwrap());
    let mut loss = CrossEntropy::new(&device, F, &[0; N], &[1.0; N]).unwrap();
    let mut counted = CountedAdam::new(&device, Adam::default()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let queue = stream.queue().unwrap();
    let before = (x.download().unwrap(), sum.download().unwrap());
    queue.begin_capture();
    assert_captured(relu_on(&stream, &mut x), "operands in windrow's memory");
    // SAFETY: all of it is refused.
    unsafe {
        let mut to = DeviceMatrix::<f32>::zeros(&device, N, F).unwrap();
        let unused = "a wait for the stream of the operation before";
        assert_captured(sums.sum_on(&stream, x.view().lent(), sum.view_mut().lent()), unused);
        assert_captured(loss.run_on(&stream, x.view().lent(), to.view_mut().lent()), unused);
        assert_captured(counted.begin_on(&stream), unused);
        let gradient = upload(&device, 1, F, 3);
        let step =
            Adam::default().step_on(&stream, sum.view_mut().lent(), gradient.view().lent(), &mut moments);
        assert_captured(step, "the number of one step of Adam");
    }
    let graph = queue.end_capture();
    graph().unwrap();
    stream.synchronize().unwrap();
    assert_eq!((x.download().unwrap(), sum.download().unwrap()), before, "nothing was recorded");
    assert_eq!((moments.steps(), counted.steps().unwrap()), (0, 0));
}

#[test]
fn products_of_other_families_are_captured() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        let stream = Stream::new(&device).unwrap();
        let queue = stream.queue().unwrap();
        let dense: Vec<f32> = (0..32 * 16).map(|i| (i % 13) as f32 - 6.0).collect();
        let weights = prune_magnitude(&dense, 32, 16, NmPattern::new(2, 4, 8).unwrap()).unwrap();
        let pruned =
            NmSpmm::builder(&weights).rows(8).layout(ActivationLayout::RowMajor).build(&device).unwrap();
        let entries = [([0, 1, 2], 1.0f32), ([1, 0, 1], 2.0), ([1, 2, 3], 3.0)];
        let tensor = Coo3::from_entries([2, 3, 4], entries).unwrap().to_csf([0, 1, 2]).unwrap();
        let mut tensors = Mttkrp::builder(&tensor).width(16).build(&device).unwrap();
        let sampled = Sddmm::builder(&Csr::<f32>::identity(8).unwrap()).inner(32).build(&device).unwrap();
        let mut a = upload(&device, 8, 32, 1);
        let (b, c) = (upload(&device, 3, 16, 2), upload(&device, 4, 16, 3));
        let results = || (upload(&device, 8, 16, 4), upload(&device, 2, 16, 4));
        let ((mut of_pruned, mut of_tensors), mut of_sampled) =
            (results(), DeviceBuffer::<f16>::alloc_zeroed(&device, 8).unwrap());
        let values = DeviceBuffer::from_slice(&device, &[1.0f32; 3]).unwrap();
        let run = Epilogue::default();
        sampled.prepare_on::<f16>(&stream, 32).unwrap();
        device.synchronize().unwrap();
        // SAFETY: the stream is waited for before anything is used otherwise.
        unsafe {
            let mut all = |a: &DeviceMatrix<f32>| -> Result<(), Error> {
                let view = a.view().lent();
                pruned.run_into_on(&stream, &run, view, of_pruned.view_mut().lent())?;
                let factors = [b.view().lent(), c.view().lent()];
                tensors.run_into_on(&stream, 1.0, factors, 0.0, of_tensors.view_mut().lent())?;
                Ok(sampled.run_into_on(&stream, 0.125, [view, view], of_sampled.view_mut().lent())?)
            };
            queue.begin_capture();
            assert_captured(all(&a), "the making of a workspace");
            drop(queue.end_capture());
            pruned.prepare_on(&stream, 8).unwrap();
            tensors.prepare_on(&stream, 16, false).unwrap();
            queue.begin_capture();
            all(&a).unwrap();
            // More rows than there is a workspace for.
            let (more, mut to) = (upload(&device, 200, 32, 1), upload(&device, 200, 16, 1));
            let refused = pruned.run_into_on(&stream, &run, more.view().lent(), to.view_mut().lent());
            assert_captured(refused, "the making of a workspace");
            assert_captured(tensors.replace_values_on(&stream, &values), "the making of an array");
            let graph = queue.end_capture();
            let data: Vec<f32> = (0..8 * 32).map(|i| (i % 5) as f32).collect();
            a.copy_from(DenseRef::packed(&data, 8, 32).unwrap()).unwrap();
            graph().unwrap();
            stream.synchronize().unwrap();
        }
        let (mut want, mut want_of_tensors) = results();
        let mut want_of_sampled = DeviceBuffer::<f16>::alloc_zeroed(&device, 8).unwrap();
        pruned.run_into(&Epilogue::default(), &a, &mut want).unwrap();
        tensors.run_into(1.0, [&b, &c], 0.0, &mut want_of_tensors).unwrap();
        sampled.run_into(0.125, &a, &a, &mut want_of_sampled).unwrap();
        assert_eq!(of_pruned.download().unwrap(), want.download().unwrap());
        assert_eq!(of_tensors.download().unwrap(), want_of_tensors.download().unwrap());
        assert_eq!(of_sampled.to_vec().unwrap(), want_of_sampled.to_vec().unwrap());
    }
}

#[test]
fn a_workspace_is_not_changed_in_a_capture() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let a = Csr::<f32>::identity(4).unwrap();
    let spmm = Spmm::builder(&a).width(4).build(&device).unwrap();
    let sddmm = Sddmm::builder(&a).build(&device).unwrap();
    let mut scratch = DeviceBuffer::<u8>::alloc_zeroed(&device, 4096).unwrap();
    let stream = Stream::new(&device).unwrap();
    let queue = stream.queue().unwrap();
    queue.begin_capture();
    // SAFETY: refused.
    unsafe {
        assert_captured(spmm.set_workspace(&stream, &mut scratch), "the change of a workspace");
        assert_captured(sddmm.set_workspace(&stream, &mut scratch), "the change of a workspace");
    }
    assert_captured(sddmm.prepare_on::<f16>(&stream, 8), "what a plan prepares");
    drop(queue.end_capture());
}

#[test]
fn new_values_of_other_families_are_captured() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        let stream = Stream::new(&device).unwrap();
        let queue = stream.queue().unwrap();
        let entries = [([0, 1, 2], 1.0f32), ([1, 0, 1], 2.0), ([1, 2, 3], 3.0)];
        let tensor = Coo3::from_entries([2, 3, 4], entries).unwrap().to_csf([0, 1, 2]).unwrap();
        let mut tensors = Mttkrp::builder(&tensor).width(16).build(&device).unwrap();
        let scaled = Csr::<f32>::identity(3).unwrap();
        let mut sampled = Sddmm::builder(&scaled).form(SddmmForm::Scale).inner(16).build(&device).unwrap();
        let (b, c, mut y) = (upload(&device, 3, 16, 2), upload(&device, 4, 16, 3), upload(&device, 2, 16, 4));
        let mut values = DeviceBuffer::from_slice(&device, &[1.0f32; 3]).unwrap();
        let mut out = DeviceBuffer::from_slice(&device, &[0.0f32; 3]).unwrap();
        tensors.replace_values_from(&values).unwrap(); // makes the array
        tensors.prepare_on(&stream, 16, false).unwrap();
        sampled.replace_values_from(&values).unwrap(); // may not be done
        queue.begin_capture();
        // SAFETY: all of it is refused, or waited for before anything is used otherwise.
        unsafe {
            let new = values.view().lent();
            assert_captured(sampled.replace_values_on(&stream, new), "values that were written outside");
            drop(queue.end_capture());
            sampled.prepare_on::<f32>(&stream, 16).unwrap();
            device.synchronize().unwrap();
            queue.begin_capture();
            assert_captured(sampled.replace_values_on(&stream, &values), "operands in windrow's memory");
            sampled.replace_values_on(&stream, new).unwrap();
            tensors.replace_values_on(&stream, new).unwrap();
            let factors = [b.view().lent(), c.view().lent()];
            tensors.run_into_on(&stream, 1.0, factors, 0.0, y.view_mut().lent()).unwrap();
            let operands = [b.view().lent(); 2];
            sampled.run_into_on(&stream, 1.0, operands, out.view_mut().lent()).unwrap();
        }
        let graph = queue.end_capture();
        for new in [[2.0f32, -1.0, 0.5], [3.0, 4.0, 5.0]] {
            values.copy_from_slice(&new).unwrap();
            graph().unwrap();
            stream.synchronize().unwrap();
            let mut other = Mttkrp::builder(&tensor).width(16).build(&device).unwrap();
            other.replace_values(&new).unwrap();
            let mut want = upload(&device, 2, 16, 5);
            other.run_into(1.0, [&b, &c], 0.0, &mut want).unwrap();
            assert_eq!(y.download().unwrap(), want.download().unwrap(), "{schedule:?}");
            let mut other = Sddmm::builder(&scaled).form(SddmmForm::Scale).inner(16).build(&device).unwrap();
            other.replace_values(&new).unwrap();
            let mut want = DeviceBuffer::from_slice(&device, &[0.0f32; 3]).unwrap();
            other.run_into(1.0, &b, &b, &mut want).unwrap();
            assert_eq!(out.to_vec().unwrap(), want.to_vec().unwrap(), "{schedule:?}");
        }
    }
}

/// Attention over a graph whose `β` is learned, and its features: an AGNN's layer without dense products, which are
/// another library's.
struct Attention {
    stream: Stream,
    scores: SddmmPlan,
    softmax: RowSoftmax,
    forward: SpmmPlan,
    transposed: SpmmPlan,
    z: DeviceMatrix<f32>,
    /// `Z` of length 1, the output, gradients of the output and of `Z`, and `∂T·X`.
    between: [DeviceMatrix<f32>; 5],
    inverse_norms: DeviceBuffer<f32>,
    /// Attention, and gradients of it and of scores.
    of_entries: [DeviceBuffer<f32>; 3],
    /// `β`, which is the second, and gradients.
    betas: [DeviceMatrix<f32>; 2],
    moments: [Moments; 2],
    loss: CrossEntropy,
    sums: ColumnSums,
    adam: CountedAdam,
}

impl Attention {
    fn new(device: &Device) -> Self {
        let a = Network::graph();
        let (transposed, order) = (a.transpose().unwrap(), a.transpose_order().unwrap());
        let zeros = || DeviceMatrix::zeros(device, N, F).unwrap();
        let entries = || DeviceBuffer::alloc_zeroed(device, a.nnz()).unwrap();
        let (z, betas) = (upload(device, N, F, 1), [upload(device, 1, 2, 3), upload(device, 1, 2, 0)]);
        let labels: Vec<u32> = (0..NODES).map(|row| row % CLASSES).collect();
        let adam = Adam { learning_rate: 0.05, ..Adam::default() };
        let attention = Self {
            stream: Stream::new(device).unwrap(),
            scores: Sddmm::builder(&a).inner(F).build(device).unwrap(),
            softmax: RowSoftmax::new(&a, device).unwrap(),
            forward: Spmm::builder(&a).width(F).values_from_device().build(device).unwrap(),
            transposed: Spmm::builder(&transposed)
                .value_order(&order)
                .width(F)
                .values_from_device()
                .build(device)
                .unwrap(),
            between: std::array::from_fn(|_| zeros()),
            inverse_norms: DeviceBuffer::alloc_zeroed(device, N).unwrap(),
            of_entries: std::array::from_fn(|_| entries()),
            moments: [&z, &betas[0]].map(|parameter| Moments::of(parameter).unwrap()),
            z,
            betas,
            loss: CrossEntropy::new(device, F, &labels, &[0.125; N]).unwrap(),
            sums: ColumnSums::new(device, F).unwrap(),
            adam: CountedAdam::new(device, adam).unwrap(),
        };
        device.synchronize().unwrap();
        attention
    }

    /// Queues forward and backward pass, and a step of Adam.
    fn step(&mut self) -> Result<(), Error> {
        let Self { stream: on, scores, softmax, forward, transposed, z, between, inverse_norms, .. } = self;
        let [x, output, of_output, of_z, u] = between;
        let [attention, of_attention, of_scores] = &mut self.of_entries;
        let [betas, of_betas] = &mut self.betas;
        // SAFETY: nothing but this stream uses the layer before it is waited for.
        unsafe {
            let beta = betas.buffer().view().lent().get(1..2).unwrap();
            normalize_rows_on(on, z.view().lent(), x.view_mut().lent(), inverse_norms.view_mut().lent())?;
            scores.run_into_on(on, 1.0, [x.view().lent(); 2], attention.view_mut().lent())?;
            softmax.forward_in_place_on(on, beta, attention.view_mut().lent())?;
            forward.replace_values_on(on, attention.view().lent())?;
            forward.run_into_on(on, 1.0, z.view().lent(), 0.0, output.view_mut().lent())?;
            self.loss.run_on(on, output.view().lent(), of_output.view_mut().lent())?;
            transposed.replace_values_on(on, attention.view().lent())?;
            transposed.run_into_on(on, 1.0, of_output.view().lent(), 0.0, of_z.view_mut().lent())?;
            let pair = [of_output.view().lent(), z.view().lent()];
            scores.run_into_on(on, 1.0, pair, of_attention.view_mut().lent())?;
            let inputs = [attention.view().lent(), of_attention.view().lent()];
            softmax.backward_on(on, 1.0, inputs, of_scores.view_mut().lent())?;
            forward.replace_values_on(on, of_scores.view().lent())?;
            transposed.replace_values_on(on, of_scores.view().lent())?;
            forward.run_into_on(on, 1.0, x.view().lent(), 0.0, u.view_mut().lent())?;
            self.sums.dot_on(on, [x.view().lent(), u.view().lent()], (of_betas.view_mut().lent(), 1))?;
            transposed.run_into_on(on, 1.0, x.view().lent(), 1.0, u.view_mut().lent())?;
            let normalized = (x.view().lent(), inverse_norms.view().lent());
            normalize_rows_backward_on(on, beta, normalized, u.view().lent(), of_z.view_mut().lent())?;
            let [of_features, of_beta] = &mut self.moments;
            let mut step = self.adam.begin_on(on)?;
            step.update(z.view_mut().lent(), of_z.view().lent(), of_features)?;
            step.update(betas.view_mut().lent(), of_betas.view().lent(), of_beta)?;
        }
        Ok(())
    }

    /// All parameters, and the loss.
    fn bits(&self) -> Vec<u32> {
        self.stream.synchronize().unwrap();
        let mut found = vec![self.loss.outcome().unwrap().loss];
        found.extend(
            [&self.z, &self.betas[0]].into_iter().flat_map(|parameter| parameter.download().unwrap()),
        );
        found.into_iter().map(f32::to_bits).collect()
    }
}

#[test]
fn launches_of_a_captured_step_with_a_learned_factor_have_the_bits_of_steps() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        let (mut eager, mut captured) = (Attention::new(&device), Attention::new(&device));
        (0..7).for_each(|_| eager.step().unwrap());
        captured.step().unwrap(); // makes what is made once
        let (first, beta) = (captured.bits(), captured.betas[0].download().unwrap()[1]);
        let queue = std::sync::Arc::clone(captured.stream.shared_queue().unwrap());
        queue.begin_capture();
        captured.step().unwrap();
        let graph = queue.end_capture();
        assert_eq!(captured.bits(), first, "nothing is done yet");
        (0..6).for_each(|_| graph().unwrap());
        assert!(captured.bits() == eager.bits(), "{schedule:?}");
        assert_ne!(captured.betas[0].download().unwrap()[1], beta, "it is learned");
    }
}

#[test]
fn plans_of_matrices_on_the_device_are_not_made_in_a_capture() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let a = DeviceCsr::from_host(&device, &Csr::<f32>::identity(40).unwrap()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let queue = stream.queue().unwrap();
    let spmm = [Algorithm::RowSplit, Algorithm::SegmentGroup, Algorithm::MergePath, Algorithm::ShortRows];
    let spmm = spmm.map(|algorithm| Spmm::builder(&a).algorithm(algorithm));
    let sddmm =
        [SddmmAlgorithm::Entries, SddmmAlgorithm::Groups, SddmmAlgorithm::Tiles, SddmmAlgorithm::Hybrid];
    let sddmm = sddmm.map(|algorithm| Sddmm::builder(&a).precision(Precision::F16).algorithm(algorithm));
    let refused = "reading a matrix";
    queue.begin_capture();
    for builder in &spmm {
        assert_captured(builder.build_on(&stream), refused);
    }
    for builder in &sddmm {
        assert_captured(builder.build_on(&stream), refused);
    }
    assert_captured(RowSoftmax::new_on(&a, &stream), refused);
    let graph = queue.end_capture();
    graph().unwrap();
    // What was recorded would have been refused with the stream's next work.
    for builder in &sddmm {
        assert_eq!(builder.build_on(&stream).unwrap().nnz(), 40);
    }
    stream.synchronize().unwrap();
}
