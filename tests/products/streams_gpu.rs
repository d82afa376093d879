//! Streams, memory and graphs that another library made, on a GPU only: cudarc stands for the other library.

use std::ffi::c_void;

use cudarc::driver::{result, sys};
use windrow::interop::cuda_handles;
use windrow::{
    Activation, Algorithm, DenseRef, Device, DeviceError, DeviceMatrix, DeviceSlice, DeviceView,
    DeviceViewMut, Epilogue, PlanError, Precision, Schedule, SpmmPlan, Stream,
};
use windrow_testkit::{Case, Operands, Pattern, SplitMix64, Values};

use crate::common::{Setup, gpu, report_missing_gpu};
use crate::example::agnn::{Agnn, AgnnBySteps};
use crate::example::data::{Task, TaskOptions};
use crate::example::gat::Gat;
use crate::example::gcn::Gcn;
use crate::example::graph_transformer::GraphTransformer;
use crate::example::lane::Lane;
use crate::example::model::{Model, Shape};
use crate::example::train::Training;
use crate::gnn::{communities, tools};

const N: usize = 70;

fn case() -> Case {
    let mut rng = SplitMix64::new(0x6b0);
    let lengths = [90, 2, 0, 30, 1, 1, 8, 70, 3, 12, 0, 5].repeat(40);
    let pattern = Pattern::from_lengths(90, lengths, &mut rng);
    let operands =
        Operands { n: N, padding: 0, scalars: (1.0, 0.0), values: Values::Integers, poison: false };
    Case::from_pattern("streams on a GPU", &pattern, operands, &mut rng)
}

/// Plans with a workspace, and with launches beside each other.
fn setups() -> [Setup; 3] {
    [
        Setup::new(Algorithm::RowSplit, Precision::F32).told(|o| o.row_division.piece_entries = Some(32)),
        Setup::new(Algorithm::TileStream, Precision::Tf32).told(|o| o.workers = Some(20)),
        Setup::new(Algorithm::Hybrid, Precision::Tf32).told(|o| o.schedule = Schedule::MultiStream),
    ]
}

/// Memory and a stream that windrow knows nothing of.
struct Foreign {
    stream: sys::CUstream,
    b: u64,
    c: u64,
    bias: u64,
    data: Vec<f32>,
    rows: usize,
}

impl Foreign {
    /// The device's context is current.
    fn new(case: &Case) -> Self {
        let data: Vec<f32> = (0..case.k() * N).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
        let rows = case.m();
        // SAFETY: a context is current; the arrays are as large as what is copied to them.
        unsafe {
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
            let [b, c, bias] = [data.len(), rows * N, N].map(|len| result::malloc_sync(4 * len).unwrap());
            result::memcpy_htod_sync(b, &data).unwrap();
            result::memcpy_htod_sync(bias, &[1.5f32; N]).unwrap();
            Self { stream, b, c, bias, data, rows }
        }
    }

    fn stream(&self, device: &Device) -> Stream {
        // SAFETY: it lives as long as `self`, which the tests keep.
        unsafe { Stream::from_raw(device, self.stream.cast()).unwrap() }
    }

    /// Queues a product with a bias, or without.
    fn run(&self, plan: &SpmmPlan, stream: &Stream, fused: bool) {
        let (device, k) = (plan.device(), self.data.len() / N);
        // SAFETY: arrays of these sizes, used in the order of the stream.
        let (b, c, bias) = unsafe {
            (
                DeviceView::<f32>::from_raw(device, self.b, k, N, N).unwrap(),
                DeviceViewMut::<f32>::from_raw(device, self.c, self.rows, N, N).unwrap(),
                DeviceSlice::<f32>::from_raw(device, self.bias, N).unwrap(),
            )
        };
        match fused {
            true => {
                let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
                plan.run_fused_into_on(stream, &run, b, c).unwrap();
            }
            false => plan.run_into_on(stream, 1.0, b, 0.0, c).unwrap(),
        }
    }

    /// Fills `C` with something else, in the order of the stream.
    fn spoil(&self) {
        // SAFETY: the array is as large.
        unsafe { result::memset_d8_async(self.c, 0xff, 4 * self.rows * N, self.stream).unwrap() };
    }

    /// `C`, when the stream is done.
    fn result(&self) -> Vec<f32> {
        let mut c = vec![0.0f32; self.rows * N];
        // SAFETY: the array is as large, and `c` lives until the stream is done.
        unsafe {
            result::memcpy_dtoh_async(&mut c, self.c, self.stream).unwrap();
            result::stream::synchronize(self.stream).unwrap();
        }
        c
    }

    /// Gives all back, work under way or not.
    fn release(self) {
        // SAFETY: made by `new`, and not used any more; freeing waits for the work.
        unsafe {
            result::stream::destroy(self.stream).unwrap();
            for array in [self.b, self.c, self.bias] {
                result::free_sync(array).unwrap();
            }
        }
    }
}

/// What a plan makes of the same operands in windrow's memory.
fn want(plan: &SpmmPlan, foreign: &Foreign, fused: bool) -> Vec<f32> {
    let device = plan.device();
    let b = DenseRef::packed(&foreign.data, foreign.data.len() / N, N).unwrap();
    let b = DeviceMatrix::upload(device, b).unwrap();
    let mut c = DeviceMatrix::<f32>::with_ld(device, foreign.rows, N, N).unwrap();
    let bias = windrow::DeviceBuffer::from_slice(device, &[1.5f32; N]).unwrap();
    let bias = fused.then_some(&bias);
    let activation = if fused { Activation::Relu } else { Activation::Identity };
    plan.run_fused_into(&Epilogue { bias, activation, ..Epilogue::default() }, &b, &mut c).unwrap();
    c.download().unwrap()
}

#[test]
fn products_in_streams_and_memory_of_another_library() {
    let Some(device) = gpu() else { return report_missing_gpu("streams of another library", 3) };
    cuda_handles(&device).unwrap();
    let case = case();
    for setup in setups() {
        let plan = setup.plan(&device, &case);
        let foreign = Foreign::new(&case);
        let stream = foreign.stream(&device);
        assert_eq!(stream.raw(), Some(foreign.stream.cast()));
        for fused in [false, true, false] {
            let want = want(&plan, &foreign, fused);
            foreign.spoil();
            foreign.run(&plan, &stream, fused);
            assert!(foreign.result() == want, "{setup:?}, fused {fused}");
        }
        // Work is under way, and everybody leaves.
        let again = foreign.stream(&device);
        assert_eq!(format!("{again:?}"), format!("{stream:?}"), "the same handle is the same stream");
        foreign.run(&plan, &again, true);
        drop((stream, again, plan));
        foreign.release();
    }
}

#[test]
fn windrows_memory_in_streams_of_another_library() {
    let Some(device) = gpu() else { return report_missing_gpu("windrow's memory in other streams", 3) };
    let handles = cuda_handles(&device).unwrap().unwrap();
    let case = case();
    let plan = setups()[1].plan(&device, &case);
    let foreign = Foreign::new(&case);
    let b = DenseRef::packed(&foreign.data, case.k(), N).unwrap();
    let want = want(&plan, &foreign, false);
    // SAFETY: the legacy default stream and the device's own live as long as the device.
    let raw = |handle: *mut c_void| unsafe { Stream::from_raw(&device, handle) };
    let legacy = raw(std::ptr::without_provenance_mut(1)).unwrap();
    let own = raw(handles.stream).unwrap();
    assert_eq!(own.raw(), Some(handles.stream));
    for stream in [foreign.stream(&device), raw(std::ptr::null_mut()).unwrap(), legacy, own] {
        for _ in 0..20 {
            let b = DeviceMatrix::upload(&device, b).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(&device, case.m(), N).unwrap();
            plan.run_into_on(&stream, 1.0, &b, 0.0, &mut c).unwrap();
            drop(b);
            assert!(c.download().unwrap() == want, "{stream:?}");
        }
    }
    let per_thread = raw(std::ptr::without_provenance_mut(2)).map(|_| ()).unwrap_err();
    assert!(matches!(per_thread, DeviceError::NotAvailable { .. }), "{per_thread}");
    drop(plan);
    foreign.release();
}

#[test]
fn captured_products_are_done_when_their_graph_is_launched() {
    let Some(device) = gpu() else { return report_missing_gpu("graphs", 6) };
    cuda_handles(&device).unwrap();
    let case = case();
    for setup in setups() {
        for fused in [false, true] {
            let plan = setup.plan(&device, &case);
            let foreign = Foreign::new(&case);
            let stream = foreign.stream(&device);
            let want = want(&plan, &foreign, fused);
            plan.prepare_on(&stream, N, fused).unwrap();
            foreign.spoil();
            // SAFETY: the stream lives; it is captured by this thread alone.
            unsafe {
                let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
                result::stream::begin_capture(foreign.stream, mode).unwrap();
            }
            foreign.run(&plan, &stream, fused);
            // SAFETY: the graph is that of the capture; plan and arrays live until its launches are done.
            unsafe {
                let graph = result::stream::end_capture(foreign.stream).unwrap();
                let mut launchable: sys::CUgraphExec = std::ptr::null_mut();
                sys::cuGraphInstantiateWithFlags(&raw mut launchable, graph, 0).result().unwrap();
                assert!(foreign.result() != want, "nothing is done yet");
                for _ in 0..3 {
                    foreign.spoil();
                    sys::cuGraphLaunch(launchable, foreign.stream).result().unwrap();
                    assert!(foreign.result() == want, "{setup:?}, fused {fused}");
                }
                sys::cuGraphExecDestroy(launchable).result().unwrap();
                sys::cuGraphDestroy(graph).result().unwrap();
            }
            drop(plan);
            foreign.release();
        }
    }
}

/// Loss and parameters after twelve steps, of which ten are launches of a captured one or are not.
fn trained<M: Model>(model: M, task: &Task, device: &Device, captured: bool) -> Vec<u32> {
    let mut training = Training::new(model, task, device, 0.01).unwrap();
    training.run(2, |_, _| Ok(())).unwrap(); // makes what is made once
    match captured {
        true => {
            let step = training.capture().unwrap();
            training.run_captured(10, &step).unwrap();
        }
        false => {
            training.run(10, |_, _| Ok(())).unwrap();
        }
    }
    let mut found = vec![training.outcome().unwrap().loss];
    let parameters = training.model.parameters();
    found.extend(parameters.into_iter().flat_map(|parameter| parameter.value.download().unwrap()));
    found.into_iter().map(f32::to_bits).collect()
}

/// A step of each model of five layers, forward, backward and Adam: captured once, launched ten times.
#[test]
fn ten_launches_of_a_captured_step_have_the_bits_of_ten_steps() {
    let Some(device) = gpu() else { return report_missing_gpu("captured steps of models", 10) };
    let graph = communities(1200, 40, 12);
    let task = Task::new(&graph, TaskOptions { width: 16, classes: 6, noise: 2.0, seed: 5 }).unwrap();
    for precision in [Precision::F32, Precision::F16] {
        let shape = Shape { widths: vec![16, 24, 24, 24, 24, 6], precision, heads: 1, seed: 3 };
        let gcn = |lane: Lane, captured: bool| {
            let model = Gcn::new(&graph, &task, &shape, tools(lane)?).unwrap();
            Some(trained(model, &task, &device, captured))
        };
        let agnn = |lane: Lane, captured: bool| {
            let model = Agnn::new(&graph, &task, &shape, tools(lane)?).unwrap();
            Some(trained(model, &task, &device, captured))
        };
        let by_steps = |lane: Lane, captured: bool| {
            let model = AgnnBySteps::new(&graph, &task, &shape, tools(lane)?).unwrap();
            Some(trained(model, &task, &device, captured))
        };
        let headed = Shape { heads: 4, ..shape.clone() };
        let gat = |lane: Lane, captured: bool| {
            let model = Gat::new(&graph, &task, &headed, tools(lane)?).unwrap();
            Some(trained(model, &task, &device, captured))
        };
        let transformer = |lane: Lane, captured: bool| {
            let model = GraphTransformer::new(&graph, &task, &headed, tools(lane)?).unwrap();
            Some(trained(model, &task, &device, captured))
        };
        /// Trains a model on a lane, captured or not: its parameters' bits.
        type Train<'a> = &'a dyn Fn(Lane, bool) -> Option<Vec<u32>>;
        let models: [(&str, Train<'_>); 5] = [
            ("GCN", &gcn),
            ("AGNN", &agnn),
            ("AGNN by steps", &by_steps),
            ("GAT", &gat),
            ("graph transformer", &transformer),
        ];
        for (name, train) in models {
            // SAFETY: `Training` waits for its work before it is gone, and after each epoch.
            let alone = || unsafe { Lane::alone(&device).unwrap() };
            let eager = train(alone(), false);
            assert!(train(alone(), true) == eager, "{name} captured, in {precision}");
            assert!(train(Lane::own(&device), false) == eager, "{name} on the own stream, in {precision}");
        }
    }
}

#[test]
fn what_would_spoil_a_capture_is_refused_and_the_capture_goes_on() {
    let Some(device) = gpu() else { return report_missing_gpu("refusals of captures", 1) };
    cuda_handles(&device).unwrap();
    let case = case();
    let plan = setups()[0].plan(&device, &case);
    let foreign = Foreign::new(&case);
    let stream = foreign.stream(&device);
    let (b, mut c) = (
        DeviceMatrix::<f32>::zeros(&device, case.k(), N).unwrap(),
        DeviceMatrix::<f32>::zeros(&device, case.m(), N).unwrap(),
    );
    for prepared in [false, true] {
        // SAFETY: the stream lives; it is captured by this thread alone.
        unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            result::stream::begin_capture(foreign.stream, mode).unwrap();
        }
        let error = plan.run_into_on(&stream, 1.0, &b, 0.0, &mut c).unwrap_err();
        assert!(error.to_string().starts_with("the stream is captured into a graph"), "{error}");
        if prepared {
            foreign.run(&plan, &stream, false);
        }
        // SAFETY: as above; the graph is not used.
        unsafe {
            let graph = result::stream::end_capture(foreign.stream).unwrap();
            sys::cuGraphDestroy(graph).result().unwrap();
        }
        plan.prepare_on(&stream, N, false).unwrap();
    }
    drop(plan);
    foreign.release();
}

#[test]
fn memory_of_the_host_is_refused() {
    let Some(device) = gpu() else { return report_missing_gpu("addresses of the host", 2) };
    cuda_handles(&device).unwrap();
    let local = vec![0.0f32; 64];
    // SAFETY: a context is current; freed below.
    let pinned = unsafe { result::malloc_host(256, 0).unwrap() };
    for (address, found) in [
        (local.as_ptr().addr() as u64, "no memory that the driver knows"),
        (pinned.addr() as u64, "host memory"),
    ] {
        // SAFETY: it is refused.
        let refused = unsafe { DeviceView::<f32>::from_raw(&device, address, 8, 8, 8) }.map(|_| ());
        match refused {
            Err(PlanError::NotDeviceMemory { found: said, .. }) => assert_eq!(said, found),
            other => panic!("{found}: {other:?}"),
        }
    }
    // SAFETY: allocated above, not used any more.
    unsafe { result::free_host(pinned).unwrap() };
}
