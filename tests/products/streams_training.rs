//! The operations of training, and whole steps of models, on other streams than the device's own.

use windrow::training::{
    Adam, ColumnSums, CountedAdam, CrossEntropy, Moments, add_bias_on, add_bias_relu_on,
    normalize_rows_backward_on, normalize_rows_on, relu_backward_on, relu_on, round_into_on,
};
use windrow::{
    DenseRef, Device, DeviceBuffer, DeviceMatrix, EmulatorSchedule, PlanError, Precision, Stream,
    TrainingError, f16,
};
use windrow_testkit::SplitMix64;

use crate::common::{devices, report_missing_gpu};
use crate::example::agnn::Agnn;
use crate::example::data::{Task, TaskOptions};
use crate::example::gat::Gat;
use crate::example::gcn::Gcn;
use crate::example::graph_transformer::GraphTransformer;
use crate::example::lane::Lane;
use crate::example::model::{Model, Shape};
use crate::example::train::Training;
use crate::gnn::{communities, tools};

const ROWS: usize = 37;
const COLS: usize = 9;
/// The same, as labels have them.
const ROW_COUNT: u32 = 37;
const CLASSES: u32 = 9;

fn random(device: &Device, rows: usize, seed: u64) -> DeviceMatrix<f32> {
    let mut rng = SplitMix64::new(seed);
    let data: Vec<f32> = (0..rows * COLS).map(|_| rng.real()).collect();
    DeviceMatrix::upload(device, DenseRef::packed(&data, rows, COLS).unwrap()).unwrap()
}

fn bits(found: impl IntoIterator<Item = f32>) -> Vec<u32> {
    found.into_iter().map(f32::to_bits).collect()
}

/// Every operation, each on the next of the streams and on what the one before wrote.
fn chain(device: &Device, streams: &[Stream]) -> Vec<u32> {
    let mut turns = streams.iter().cycle();
    let mut next = || turns.next().unwrap();
    let zeros = |rows| DeviceMatrix::<f32>::zeros(device, rows, COLS).unwrap();
    let labels: Vec<u32> = (0..ROW_COUNT).map(|row| row % CLASSES).collect();
    let mut loss = CrossEntropy::new(device, COLS, &labels, &[0.25; ROWS]).unwrap();
    let mut sums = ColumnSums::new(device, COLS).unwrap();
    let adam = Adam { learning_rate: 0.1, ..Adam::default() };
    let mut counted = CountedAdam::new(device, adam).unwrap();
    let (mut x, bias) = (random(device, ROWS, 1), random(device, 1, 2));
    let mut parameters = [random(device, 1, 3), random(device, 1, 3)];
    let mut moments = [Moments::of(&parameters[0]).unwrap(), Moments::of(&parameters[0]).unwrap()];
    let mut found = Vec::new();
    for round in 0..3 {
        let (mut y, mut gradient) = (zeros(ROWS), zeros(ROWS));
        let mut norms = DeviceBuffer::<f32>::alloc_zeroed(device, ROWS).unwrap();
        let mut narrow = DeviceMatrix::<f16>::zeros(device, ROWS, COLS).unwrap();
        add_bias_on(next(), &mut x, &bias).unwrap();
        add_bias_relu_on(next(), &mut x, &bias).unwrap();
        normalize_rows_on(next(), &x, &mut y, &mut norms).unwrap();
        relu_on(next(), &mut y).unwrap();
        loss.run_on(next(), &y, &mut gradient).unwrap();
        loss.run_on(next(), &x, &mut gradient).unwrap(); // what the run before left is overwritten after it
        relu_backward_on(next(), &mut gradient, &x).unwrap();
        let normalized = (y.view(), norms.view());
        normalize_rows_backward_on(next(), 0.5, normalized, &gradient, &mut x).unwrap();
        round_into_on(next(), 3.0, &x, &mut narrow).unwrap();
        let mut of_bias = zeros(1); // which the own stream is asked for only now
        sums.sum_on(next(), &gradient, &mut of_bias).unwrap();
        sums.dot_on(next(), [x.view(), y.view()], (of_bias.view_mut(), 2)).unwrap();
        let [one, two] = &mut parameters;
        let [of_one, of_two] = &mut moments;
        adam.step_on(next(), &mut *one, &of_bias, of_one).unwrap();
        let mut step = counted.begin_on(next()).unwrap();
        step.update(&mut *two, &of_bias, of_two).unwrap();
        if round == 1 {
            found.push(loss.outcome().unwrap().loss);
        }
        drop((y, norms));
        let again = zeros(ROWS); // may get their memory
        assert!(again.download().unwrap().iter().all(|&x| x == 0.0));
        found.extend(narrow.download().unwrap().into_iter().map(f16::to_f32));
        found.extend(of_bias.download().unwrap());
        found.extend(gradient.download().unwrap());
    }
    let [one, two] = parameters.map(|parameter| parameter.download().unwrap());
    assert_eq!(bits(one.clone()), bits(two), "whoever counts the steps, on {device}");
    assert_eq!((moments[0].steps(), moments[1].steps(), counted.steps().unwrap()), (3, 0, 3));
    let outcome = loss.outcome().unwrap();
    found.extend([outcome.loss, outcome.right_weighted as f32]);
    found.extend(one);
    found.extend(x.download().unwrap());
    bits(found)
}

#[test]
fn operations_on_any_streams_have_the_bits_of_the_own_one() {
    for device in devices() {
        let own = device.stream();
        let [one, two] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let want = chain(&device, std::slice::from_ref(&own));
        for streams in [
            vec![one.clone()],
            vec![own.clone(), one.clone()],
            vec![one.clone(), own.clone()],
            vec![one.clone(), two.clone()],
            vec![two, own, one],
        ] {
            assert!(chain(&device, &streams) == want, "{streams:?}");
        }
    }
    report_missing_gpu("operations of training on streams", 5);
}

/// Operands that are lent, and memory that values keep for themselves, which goes from stream to stream: sums whose
/// parts another stream still adds, means that it still changes, numbers of a step that it still looks up.
#[test]
fn what_values_keep_is_in_order_between_streams() {
    for device in devices() {
        let x: Vec<_> = (0..4).map(|i| random(&device, ROWS, 10 + i)).collect();
        let labels: Vec<u32> = (0..ROW_COUNT).map(|row| row % CLASSES).collect();
        let adam = Adam { learning_rate: 0.1, ..Adam::default() };
        let run = |streams: [&Stream; 2]| {
            let mut sums = ColumnSums::new(&device, COLS).unwrap();
            let mut loss = CrossEntropy::new(&device, COLS, &labels, &[0.25; ROWS]).unwrap();
            let mut counted = CountedAdam::new(&device, adam).unwrap();
            let parameter = || DeviceMatrix::<f32>::zeros(&device, ROWS, COLS).unwrap();
            // Those of one moment or counter that are changed on different streams are different, else the caller would
            // have to order them.
            let mut parameters: Vec<_> = (0..8).map(|_| parameter()).collect();
            let mut moments = [Moments::of(&x[0]).unwrap(), Moments::of(&x[0]).unwrap()];
            let mut outs: Vec<_> =
                (0..4).map(|_| DeviceMatrix::<f32>::zeros(&device, 1, COLS).unwrap()).collect();
            let mut gradients: Vec<_> = (0..4).map(|_| parameter()).collect();
            let mut losses = Vec::new();
            device.synchronize().unwrap();
            for i in 0..4 {
                let stream = streams[i % 2];
                // SAFETY: all is used again only after both streams are waited for; no two operations write the same.
                unsafe {
                    sums.sum_on(stream, x[i].view().lent(), outs[i].view_mut().lent()).unwrap();
                    loss.run_on(stream, x[i].view().lent(), gradients[i].view_mut().lent()).unwrap();
                    let (gradient, [of_one, of_two]) = (x[i].view().lent(), &mut moments);
                    let (one, two) = parameters.split_at_mut(4);
                    adam.step_on(stream, one[i].view_mut().lent(), gradient, of_one).unwrap();
                    let mut step = counted.begin_on(stream).unwrap();
                    step.update(two[i].view_mut().lent(), gradient, of_two).unwrap();
                }
            }
            losses.push(loss.outcome().unwrap().loss);
            streams.into_iter().for_each(|stream| stream.synchronize().unwrap());
            let matrices = outs.iter().chain(&gradients).chain(&parameters);
            losses.extend(matrices.flat_map(|matrix| matrix.download().unwrap()));
            bits(losses)
        };
        let own = device.stream();
        let [one, two] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let want = run([&own, &own]);
        for streams in [[&one, &one], [&one, &two], [&own, &one], [&one, &own]] {
            assert!(run(streams) == want, "{streams:?}");
        }
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    for device in devices() {
        let elsewhere = match device.kind() {
            windrow::DeviceKind::Cpu => Device::emulator(EmulatorSchedule::InOrder),
            _ => Device::cpu(),
        };
        let (stream, foreign) = (Stream::new(&device).unwrap(), Stream::new(&elsewhere).unwrap());
        let (mut x, bias, mut sum) = (random(&device, ROWS, 1), random(&device, 1, 2), random(&device, 1, 2));
        let mut counted = CountedAdam::new(&device, Adam::default()).unwrap();
        let mut sums = ColumnSums::new(&device, COLS).unwrap();
        let mut moments = Moments::of(&bias).unwrap();
        for error in [
            relu_on(&foreign, &mut x).unwrap_err(),
            add_bias_on(&foreign, &mut x, &bias).unwrap_err(),
            sums.sum_on(&foreign, &x, &mut sum).unwrap_err(),
            counted.begin_on(&foreign).map(|_| ()).unwrap_err(),
            Adam::default().step_on(&foreign, &mut sum, &bias, &mut moments).unwrap_err(),
        ] {
            assert!(error.to_string().starts_with("the stream is on "), "{error}");
        }
        assert_eq!(counted.steps().unwrap(), 0);
        // The bias in the matrix, and whatever else is in one array.
        let address = match x.host_mut() {
            Some(mut host) => host.data_mut().as_mut_ptr().expose_provenance() as u64,
            None => x.buffer().address(),
        };
        let ld = x.ld();
        // SAFETY: the rows are those of `x`, of which nothing is read or written: what overlaps is refused.
        unsafe {
            let read = |rows| windrow::DeviceView::<f32>::from_raw(&device, address, rows, COLS, ld).unwrap();
            let written =
                |rows| windrow::DeviceViewMut::<f32>::from_raw(&device, address, rows, COLS, ld).unwrap();
            let overlap = |outcome: Result<(), TrainingError>, names: [&str; 2]| match outcome {
                Err(TrainingError::Plan(PlanError::Overlap { output, operand, .. })) => {
                    assert_eq!([output, operand], names, "on {device}");
                }
                other => panic!("{names:?} on {device}: {other:?}"),
            };
            overlap(add_bias_on(&stream, written(ROWS), read(1)), ["the matrix", "the bias"]);
            overlap(
                relu_backward_on(&stream, written(ROWS), read(ROWS)),
                ["the gradient", "the result of ReLU"],
            );
            overlap(
                round_into_on(&stream, 1.0, read(ROWS), written(ROWS)),
                ["the rounded matrix", "the matrix"],
            );
            overlap(sums.sum_on(&stream, read(ROWS), written(1)), ["the sums", "the matrix"]);
            let step = Adam::default().step_on(&stream, written(1), read(1), &mut moments);
            overlap(step, ["the parameter", "the gradient"]);
        }
        assert_eq!(moments.steps(), 0);
        let slow = Adam { beta2: 1.0 - 1e-7, ..Adam::default() };
        let refused = CountedAdam::new(&device, slow).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("take a smaller beta"), "{refused}");
        let error = CountedAdam::after(&device, Adam::default(), 5).unwrap().steps().unwrap();
        assert_eq!(error, 5);
    }
}

/// Steps are numbered as far as the numbers differ, and go on with the last.
#[test]
fn counted_steps_go_on_where_numbers_stay_the_same() {
    let quick = Adam { beta1: 0.5, beta2: 0.75, learning_rate: 0.1, ..Adam::default() };
    for device in devices() {
        let gradient = random(&device, 1, 4);
        let mut parameters = [random(&device, 1, 3), random(&device, 1, 3), random(&device, 1, 3)];
        let mut moments = [(); 3].map(|()| Moments::of(&gradient).unwrap());
        let mut counted = CountedAdam::new(&device, quick).unwrap();
        let stream = Stream::new(&device).unwrap();
        for _ in 0..100 {
            quick.step(&mut parameters[0], &gradient, &mut moments[0]).unwrap();
            counted
                .begin_on(&stream)
                .unwrap()
                .update(&mut parameters[1], &gradient, &mut moments[1])
                .unwrap();
            let steps = counted.steps().unwrap();
            // A training that is taken up again.
            let mut again = CountedAdam::after(&device, quick, steps - 1).unwrap();
            again.begin_on(&stream).unwrap().update(&mut parameters[2], &gradient, &mut moments[2]).unwrap();
            if moments[0].steps() < 50 {
                assert_eq!(steps, moments[0].steps());
            }
        }
        let last = counted.steps().unwrap();
        assert!((50..70).contains(&last), "0.75⁶⁰ is 2⁻²⁵: {last}");
        let [want, found, again] = parameters.map(|parameter| bits(parameter.download().unwrap()));
        assert!(found == want && again == want, "on {device}");
    }
}

/// Parameters and losses of a few epochs of a model of five layers.
fn train<M: Model>(
    lane: Lane,
    (task, epochs): (&Task, usize),
    make: impl FnOnce(crate::example::model::Tools) -> M,
) -> Option<Vec<u32>> {
    let device = lane.stream.device().clone();
    let mut training = Training::new(make(tools(lane)?), task, &device, 0.01).unwrap();
    let mut found = Vec::new();
    for _ in 0..epochs {
        training.epoch().unwrap();
        found.push(training.outcome().unwrap().loss);
    }
    training.synchronize().unwrap();
    let parameters = training.model.parameters();
    found.extend(parameters.into_iter().flat_map(|parameter| parameter.value.download().unwrap()));
    Some(bits(found))
}

/// Forward, backward and Adam of five layers: on the device's own stream, on another one that windrow orders with that,
/// and on one that is the model's alone, where the device counts Adam's steps.
#[test]
fn a_step_of_five_layers_has_the_same_bits_on_any_stream() {
    let graph = communities(60, 10, 3);
    let options = TaskOptions { width: 6, classes: 3, noise: 1.0, seed: 4 };
    let task = Task::new(&graph, options).unwrap();
    let epochs = 2;
    for device in devices() {
        for precision in [Precision::F32, Precision::F16] {
            let shape = Shape { widths: vec![6, 9, 9, 9, 9, 3], precision, heads: 1, seed: 9 };
            let headed = Shape { heads: 3, ..shape.clone() };
            let on_streams = |name: &str, trained: &dyn Fn(Lane) -> Option<Vec<u32>>| {
                let want = trained(Lane::own(&device));
                assert_eq!(
                    trained(Lane::beside(&device).unwrap()),
                    want,
                    "{name} in {precision} on {device}"
                );
                // SAFETY: `Training` waits for its work before it is gone, and `train` before it looks at anything.
                let alone = unsafe { Lane::alone(&device).unwrap() };
                assert_eq!(trained(alone), want, "{name} alone in {precision} on {device}");
            };
            let data = (&task, epochs);
            on_streams("GCN", &|lane| train(lane, data, |t| Gcn::new(&graph, &task, &shape, t).unwrap()));
            on_streams("AGNN", &|lane| train(lane, data, |t| Agnn::new(&graph, &task, &shape, t).unwrap()));
            if precision == Precision::F32 {
                continue;
            }
            on_streams("GAT", &|lane| train(lane, data, |t| Gat::new(&graph, &task, &headed, t).unwrap()));
            on_streams("graph transformer", &|lane| {
                train(lane, data, |t| GraphTransformer::new(&graph, &task, &headed, t).unwrap())
            });
        }
    }
    report_missing_gpu("steps of models on streams", 6);
}

#[test]
fn graphs_are_refused_where_there_are_none() {
    let graph = communities(30, 10, 2);
    let task = Task::new(&graph, TaskOptions { width: 5, classes: 3, noise: 1.0, seed: 4 }).unwrap();
    let shape = Shape { widths: vec![5, 3], precision: Precision::F32, heads: 1, seed: 9 };
    let device = Device::cpu();
    // SAFETY: as above.
    let lane = || unsafe { Lane::alone(&device).unwrap() };
    let model = Gcn::new(&graph, &task, &shape, tools(lane()).unwrap()).unwrap();
    let error = Training::new(model, &task, &device, 0.01).unwrap().capture().map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("--graph needs a GPU, and this is cpu"), "{error}");
    let model = Agnn::new(&graph, &task, &shape, tools(lane()).unwrap()).unwrap();
    let error = Training::new(model, &task, &device, 0.01).unwrap().capture().map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("--graph needs a GPU, and this is cpu"), "{error}");
}
