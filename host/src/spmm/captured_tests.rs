//! Runs that are captured into a graph, as far as the emulator has graphs: what is queued is recorded, and done when
//! the graph is launched.

use windrow_formats::Csr;

use crate::{
    Activation, Algorithm, DenseRef, Device, DeviceBuffer, DeviceError, DeviceMatrix, DeviceView,
    DeviceViewMut, EmulatorSchedule, Epilogue, PlanError, Precision, Preprocessing, Spmm, SpmmError,
    SpmmPlan, Stream,
};

const N: usize = 70;

/// Rows that are cut.
fn plan(device: &Device) -> SpmmPlan {
    let offsets = (0..=8).map(|row| 600 * row).collect();
    let columns = (0..8).flat_map(|_| 0..600).collect();
    let a = Csr::try_from_parts(8, 600, offsets, columns, vec![1.0f32; 8 * 600]).unwrap();
    let builder = Spmm::builder(&a).width(N).algorithm(Algorithm::RowSplit).precision(Precision::F32);
    builder.build(device).unwrap()
}

fn upload(device: &Device, rows: usize, x: f32) -> DeviceMatrix<f32> {
    let data = vec![x; rows * N];
    DeviceMatrix::upload(device, DenseRef::packed(&data, rows, N).unwrap()).unwrap()
}

/// The matrices as if somebody else had allocated them.
///
/// # Safety
/// They are used again after the work only.
unsafe fn lent<'a>(
    device: &'a Device,
    b: &DeviceMatrix<f32>,
    c: &DeviceMatrix<f32>,
) -> (DeviceView<'a, f32>, DeviceViewMut<'a, f32>) {
    // SAFETY: the matrices have these elements.
    unsafe {
        (
            DeviceView::from_raw(device, b.buffer().address(), b.rows(), N, b.ld()).unwrap(),
            DeviceViewMut::from_raw(device, c.buffer().address(), c.rows(), N, c.ld()).unwrap(),
        )
    }
}

#[track_caller]
fn assert_captured(outcome: Result<(), SpmmError>, what: &str) {
    match outcome {
        Err(SpmmError::Plan(PlanError::Device(error @ DeviceError::Captured { .. }))) => {
            assert!(error.to_string().contains(what), "{error}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_captured_run_is_done_when_its_graph_is_launched() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        let plan = plan(&device);
        let (mut b, c) = (upload(&device, 600, 1.0), upload(&device, 8, 7.0));
        let stream = Stream::new(&device).unwrap();
        let queue = stream.queue().unwrap();
        plan.prepare_on(&stream, N, false).unwrap();
        queue.begin_capture();
        // SAFETY: what is launched is waited for below.
        let (from, to) = unsafe { lent(&device, &b, &c) };
        plan.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
        let graph = queue.end_capture();
        assert_eq!(c.download().unwrap(), [7.0; 8 * N], "nothing is done yet");
        for x in [2.0f32, 3.0] {
            b.copy_from(DenseRef::packed(&[x; 600 * N], 600, N).unwrap()).unwrap();
            graph().unwrap();
            stream.synchronize().unwrap();
            assert_eq!(c.download().unwrap(), [600.0 * x; 8 * N]);
        }
    }
}

#[test]
fn what_cannot_be_captured_is_refused_before_anything_is_queued() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let mut plan = plan(&device);
    let (b, mut c) = (upload(&device, 600, 1.0), upload(&device, 8, 7.0));
    let bias = DeviceBuffer::from_slice(&device, &[1.0f32; N]).unwrap();
    let values = DeviceBuffer::from_slice(&device, &[2.0f32; 8 * 600]).unwrap();
    let stream = Stream::new(&device).unwrap();
    let queue = stream.queue().unwrap();
    // SAFETY: used again only after the work.
    let lent = |c: &DeviceMatrix<f32>| unsafe { lent(&device, &b, c) };
    // SAFETY: the bias lives longer than the work.
    let bias = unsafe { crate::DeviceSlice::<f32>::from_raw(&device, bias.address(), N).unwrap() };
    let fused = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };

    queue.begin_capture();
    let (from, to) = lent(&c);
    assert_captured(plan.run_into_on(&stream, 1.0, from, 0.0, to), "the making of a workspace");
    assert_captured(plan.prepare_on(&stream, N, false), "what a plan prepares");
    drop(queue.end_capture());

    plan.prepare_on(&stream, N, false).unwrap();
    queue.begin_capture();
    assert_captured(plan.run_into_on(&stream, 1.0, &b, 0.0, &mut c), "operands in windrow's memory");
    let (from, to) = lent(&c);
    assert_captured(plan.run_fused_into_on(&stream, &fused, from, to), "the making of a stage");
    assert_captured(plan.replace_values_on(&stream, &values), "the making of an array");
    drop(queue.end_capture());

    plan.prepare_on(&stream, N, true).unwrap();
    plan.replace_values_from(&values).unwrap();
    queue.begin_capture();
    let (from, to) = lent(&c);
    assert_captured(plan.run_into_on(&stream, 1.0, from, 0.0, to), "values that were written outside");
    drop(queue.end_capture());

    let (from, to) = lent(&c);
    plan.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
    queue.begin_capture();
    let (from, to) = lent(&c);
    plan.run_fused_into_on(&stream, &fused, from, to).unwrap();
    let graph = queue.end_capture();
    graph().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(c.download().unwrap(), [1201.0; 8 * N]);
}

/// A matrix with rows of several lengths, and plans that keep its values in every way, each told that new ones come.
fn plans_for_values(device: &Device) -> (usize, Vec<SpmmPlan>) {
    let lengths = [3u64, 0, 70, 1, 9, 16, 40, 2, 5, 0, 33, 8];
    let mut offsets = vec![0];
    let mut columns = Vec::new();
    for len in lengths {
        columns.extend((0..len).map(|i| u32::try_from(i).unwrap()));
        offsets.push(columns.len() as u64);
    }
    let nnz = columns.len();
    let a = Csr::try_from_parts(lengths.len(), 70, offsets, columns, vec![1.0f32; nnz]).unwrap();
    let builder = || Spmm::builder(&a).width(N).values_from_device();
    let tiles = || builder().algorithm(Algorithm::TileStream).precision(Precision::Tf32);
    let builders = [
        builder().algorithm(Algorithm::RowSplit),
        builder().algorithm(Algorithm::ShortRows),
        tiles().preprocessing(Preprocessing::Cpu),
        tiles().preprocessing(Preprocessing::Gpu),
        tiles().algorithm(Algorithm::Hybrid).preprocessing(Preprocessing::Gpu),
    ];
    (nnz, builders.iter().map(|builder| builder.build(device).unwrap()).collect())
}

#[test]
fn captured_values_are_those_of_the_moment_of_the_launch() {
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        let (nnz, plans) = plans_for_values(&device);
        let (_, mut others) = plans_for_values(&device);
        let (b, c) = (upload(&device, 70, 1.0), upload(&device, 12, 7.0));
        let mut values = DeviceBuffer::from_slice(&device, &vec![0.0f32; nnz]).unwrap();
        for (mut plan, other) in plans.into_iter().zip(&mut others) {
            let stream = Stream::new(&device).unwrap();
            let queue = stream.queue().unwrap();
            plan.prepare_on(&stream, N, false).unwrap();
            device.synchronize().unwrap();
            queue.begin_capture();
            // SAFETY: what is launched is waited for below.
            let (lent_values, (from, to)) = unsafe { (values.view().lent(), lent(&device, &b, &c)) };
            assert_captured(plan.replace_values_on(&stream, &values), "operands in windrow's memory");
            plan.replace_values_on(&stream, lent_values).unwrap();
            plan.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
            let graph = queue.end_capture();
            for x in [2u32, 5] {
                let new: Vec<f32> = (0..).map(|i: u32| ((i * x) % 7) as f32 - 3.0).take(nnz).collect();
                values.copy_from_slice(&new).unwrap();
                graph().unwrap();
                stream.synchronize().unwrap();
                other.replace_values(&new).unwrap();
                let want = other.run(&vec![1.0f32; 70 * N]).unwrap();
                assert_eq!(c.download().unwrap(), want, "{plan:?} under {schedule:?}");
            }
        }
    }
}

#[test]
fn values_that_were_written_on_a_stream_are_there_for_its_graphs() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let mut plan = plan(&device);
    let (b, c) = (upload(&device, 600, 1.0), upload(&device, 8, 7.0));
    let values = DeviceBuffer::from_slice(&device, &[2.0f32; 8 * 600]).unwrap();
    let (stream, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let queue = stream.queue().unwrap();
    // SAFETY: used again only after the work.
    let views = || unsafe { (values.view().lent(), lent(&device, &b, &c)) };
    plan.replace_values_on(&other, &values).unwrap(); // makes the array
    plan.prepare_on(&stream, N, false).unwrap();
    plan.replace_values_on(&other, &values).unwrap();
    queue.begin_capture();
    assert_captured(plan.replace_values_on(&stream, views().0), "values that were written outside");
    drop(queue.end_capture());
    // What was written there is done: a graph need not wait for it.
    device.synchronize().unwrap();
    queue.begin_capture();
    plan.replace_values_on(&stream, views().0).unwrap();
    let (from, to) = views().1;
    plan.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
    drop(queue.end_capture());
    plan.replace_values_on(&stream, &values).unwrap();
    queue.begin_capture();
    let (again, (from, to)) = views();
    plan.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
    plan.replace_values_on(&stream, again).unwrap();
    let graph = queue.end_capture();
    graph().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(c.download().unwrap(), [1200.0; 8 * N]);
}
