//! Products of all families on other streams than the device's own, as `streams.rs` has them of SpMM: the same bits, in
//! the right order, whatever is dropped meanwhile.

use std::any::Any;

use windrow::training::round_into;
use windrow::{
    Activation, ActivationLayout, Algorithm, Coo3, Csf3, Csr, DenseRef, Determinism, Device, DeviceBuffer,
    DeviceKind, DeviceMatrix, DeviceSlice, DeviceView, DeviceViewMut, Element, EmulatorSchedule, Epilogue,
    Mttkrp, NmError, NmPattern, NmSpmm, NmSpmmPlan, PlanError, Precision, Spmm, Stream, TensorError, Ttm,
    Value, f16, prune_magnitude,
};
use windrow_testkit::SplitMix64;

use crate::common::{devices, kernel_devices, report_missing_gpu};

/// Columns of the results: no multiple of anything.
const N: usize = 35;

/// A plan, and how it is run.
struct Family<'a> {
    name: &'static str,
    device: &'a Device,
    rows: usize,
    run: Box<Run<'a>>,
}

/// Runs on a stream, with operands of a number, lent or not, into a result; returns what may be dropped then.
type Run<'a> = dyn Fn(&Stream, usize, bool, DeviceViewMut<'_, f32>) -> Box<dyn Any> + Send + Sync + 'a;

impl Family<'_> {
    /// The result in windrow's memory: made, written and read at once, each by the stream that does it.
    fn bits(&self, stream: &Stream, number: usize) -> Vec<u32> {
        let mut c = DeviceMatrix::<f32>::zeros(self.device, self.rows, N).unwrap();
        let operands = (self.run)(stream, number, false, c.view_mut());
        let found = bits(&c); // before what is freed is waited for
        drop(operands);
        drop((self.run)(stream, number, false, c.view_mut()));
        let again = DeviceMatrix::<f32>::zeros(self.device, self.rows, N).unwrap(); // may get the operands' memory
        assert!(again.download().unwrap().iter().all(|&x| x == 0.0));
        assert!(bits(&c) == found, "{} on {}, again", self.name, self.device);
        found
    }
}

fn bits(c: &DeviceMatrix<f32>) -> Vec<u32> {
    c.download().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Small integers that `number` tells apart.
fn integers<T: Value>(len: usize, number: usize) -> Vec<T> {
    (0..len).map(|i| T::from_f32(((i * 7 + number * 13) % 11) as f32 - 5.0)).collect()
}

fn operand<T: Element>(device: &Device, rows: usize, cols: usize, number: usize) -> DeviceMatrix<T> {
    let data = integers::<T>(rows * cols, number);
    DeviceMatrix::upload(device, DenseRef::packed(&data, rows, cols).unwrap()).unwrap()
}

/// One that a kernel of the own stream makes: it may be there only when that is waited for. Comes with what it is made
/// of, whose being freed would have it made.
fn computed<T: Element<Sum = f32>>(
    device: &Device,
    (rows, cols): (usize, usize),
    number: usize,
    lent: bool,
) -> (DeviceMatrix<T>, DeviceMatrix<f32>) {
    let source = operand::<f32>(device, rows, cols, number);
    let mut made = DeviceMatrix::<T>::zeros(device, rows, cols).unwrap();
    round_into(1.0, &source, &mut made).unwrap();
    if lent {
        device.synchronize().unwrap();
    }
    (made, source)
}

/// A view of a matrix, lent or not.
///
/// # Safety
/// If it is lent, the caller orders its uses.
unsafe fn viewed<T: Element>(matrix: &DeviceMatrix<T>, lent: bool) -> DeviceView<'_, T> {
    // SAFETY: the caller's promise.
    if lent { unsafe { matrix.view().lent() } } else { matrix.view() }
}

/// Waits for a stream whose operands are about to be dropped, if they were lent.
fn settle(stream: &Stream, lent: bool) {
    if lent {
        stream.synchronize().unwrap();
    }
}

fn weights(k: usize) -> windrow::VectorNm<f32> {
    let mut rng = SplitMix64::new(0x17);
    let dense: Vec<f32> = (0..k * N).map(|_| rng.integer()).collect();
    prune_magnitude(&dense, k, N, NmPattern::new(2, 4, 5).unwrap()).unwrap()
}

fn nm_plan(device: &Device, layout: ActivationLayout, rows: usize) -> NmSpmmPlan {
    NmSpmm::builder(&weights(96)).rows(rows).layout(layout).build(device).unwrap()
}

/// Activations that are transposed on their way, with bias and activation, or read as they are.
fn nm(device: &Device, layout: ActivationLayout) -> Family<'_> {
    let (m, k) = (12, 96);
    let plan = nm_plan(device, layout, m);
    let bias = DeviceBuffer::from_slice(device, &integers::<f32>(N, 3)).unwrap();
    let run = move |stream: &Stream, number: usize, lent: bool, c: DeviceViewMut<'_, f32>| {
        let (rows, cols) = if layout == ActivationLayout::KMajor { (k, m) } else { (m, k) };
        let a = computed::<f32>(device, (rows, cols), number, lent);
        // SAFETY: what is lent is waited for below.
        let (view, bias) =
            unsafe { (viewed(&a.0, lent), if lent { bias.view().lent() } else { bias.view() }) };
        let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
        plan.run_into_on(stream, &run, view, c).unwrap();
        settle(stream, lent);
        Box::new(a) as Box<dyn Any>
    };
    let name = if layout == ActivationLayout::KMajor { "N:M, k-major" } else { "N:M, row-major" };
    Family { name, device, rows: m, run: Box::new(run) }
}

/// A tensor with a long slice among short ones.
fn tensor() -> Csf3<f32> {
    let mut rng = SplitMix64::new(0x3a);
    let entry = |i: u32| {
        let slice = if i.is_multiple_of(3) { 4 } else { i % 9 };
        ([slice, (i * 7) % 13, (i * 5 + i / 13) % 11], rng.integer())
    };
    let entries: std::collections::BTreeMap<_, _> = (0..300).map(entry).collect();
    Coo3::from_entries([9, 13, 11], entries).unwrap().to_csf([0, 1, 2]).unwrap()
}

fn mttkrp(device: &Device) -> Family<'_> {
    let plan = Mttkrp::builder(&tensor()).width(N).build(device).unwrap();
    let run = move |stream: &Stream, number: usize, lent: bool, y: DeviceViewMut<'_, f32>| {
        let b = computed::<f32>(device, (13, N), number, lent);
        let c = computed::<f32>(device, (11, N), number + 1, lent);
        // SAFETY: what is lent is waited for below.
        let factors = unsafe { [viewed(&b.0, lent), viewed(&c.0, lent)] };
        plan.run_into_on(stream, 1.0, factors, 0.0, y).unwrap();
        settle(stream, lent);
        Box::new((b, c)) as Box<dyn Any>
    };
    Family { name: "MTTKRP", device, rows: 9, run: Box::new(run) }
}

fn ttm(device: &Device) -> Family<'_> {
    let plan = Ttm::builder(&tensor()).width(N).build(device).unwrap();
    let rows = plan.fibers();
    let run = move |stream: &Stream, number: usize, lent: bool, y: DeviceViewMut<'_, f32>| {
        let b = computed::<f32>(device, (11, N), number, lent);
        // SAFETY: what is lent is waited for below.
        plan.run_into_on(stream, 1.0, unsafe { viewed(&b.0, lent) }, 0.0, y).unwrap();
        settle(stream, lent);
        Box::new(b) as Box<dyn Any>
    };
    Family { name: "TTM", device, rows, run: Box::new(run) }
}

fn sparse() -> Csr<f32> {
    let offsets = (0..=20).map(|row| if row > 7 { 9 * row + 31 } else { 9 * row }).collect();
    let columns = (0..20u32).flat_map(|row| 0..if row == 7 { 40 } else { 9 }).collect();
    Csr::try_from_parts(20, 60, offsets, columns, integers(20 * 9 + 31, 2)).unwrap()
}

fn column_major(device: &Device) -> Family<'_> {
    let a = sparse();
    let builder = Spmm::builder(&a).width(N).precision(Precision::F16);
    let plan = builder.algorithm(Algorithm::MatricizedRows).build(device).unwrap();
    let run = move |stream: &Stream, number: usize, lent: bool, c: DeviceViewMut<'_, f32>| {
        let b = computed::<f16>(device, (N, 60), number, lent);
        // SAFETY: what is lent is waited for below.
        plan.run_column_major_into_on(stream, 1.0, unsafe { viewed(&b.0, lent) }, 0.0, c).unwrap();
        settle(stream, lent);
        Box::new(b) as Box<dyn Any>
    };
    Family { name: "column-major SpMM", device, rows: 20, run: Box::new(run) }
}

fn families(device: &Device) -> [Family<'_>; 5] {
    let by_layout = |layout| nm(device, layout);
    [
        by_layout(ActivationLayout::RowMajor),
        by_layout(ActivationLayout::KMajor),
        mttkrp(device),
        ttm(device),
        column_major(device),
    ]
}

#[test]
fn products_on_two_streams_at_once_have_the_bits_of_one() {
    for device in devices() {
        for family in families(&device) {
            let own = device.stream();
            let want: Vec<_> = (0..4).map(|number| family.bits(&own, number)).collect();
            assert!(want.windows(2).all(|pair| pair[0] != pair[1]), "operands differ");
            let (family, device) = (&family, &device);
            let found: Vec<Vec<_>> = std::thread::scope(|scope| {
                let thread = |turn: usize| {
                    scope.spawn(move || {
                        let stream = Stream::new(device).unwrap();
                        let mut results = vec![Vec::new(); 4];
                        for i in 0..4 {
                            let number = (i + turn) % 4;
                            results[number] = family.bits(&stream, number);
                        }
                        results
                    })
                };
                let threads = [thread(0), thread(2), thread(1)];
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(found.iter().all(|found| *found == want), "{} on {device}", family.name);
        }
    }
    report_missing_gpu("products of all families on several streams", 5);
}

/// With memory that is lent, nothing is inserted: the result is there when its stream is done, and on the emulator not
/// before, under those schedules that put it off.
#[test]
fn lent_memory_is_the_callers_to_order() {
    let (mut early, mut late) = (0, 0);
    for device in devices() {
        for family in families(&device) {
            let want = family.bits(&device.stream(), 2);
            let stream = Stream::new(&device).unwrap();
            // The first run waits for the plan's arrays; what comes then waits for nothing.
            for number in [1, 2] {
                let mut c = DeviceMatrix::<f32>::zeros(&device, family.rows, N).unwrap();
                device.synchronize().unwrap();
                // SAFETY: used again only after the stream is waited for.
                let to = unsafe { c.view_mut().lent() };
                drop((family.run)(&stream, number, true, to));
                stream.synchronize().unwrap();
                if number == 2 {
                    assert!(bits(&c) == want, "{} on {device}", family.name);
                }
            }
        }
        // What was asked of the stream is seen before it is waited for, or not.
        let plan = nm_plan(&device, ActivationLayout::RowMajor, 12);
        let a = operand::<f32>(&device, 12, 96, 2);
        let mut c = DeviceMatrix::<f32>::zeros(&device, 12, N).unwrap();
        let stream = Stream::new(&device).unwrap();
        device.synchronize().unwrap();
        // SAFETY: used again only after the stream is waited for, but for a look at `c` on the emulator, which has
        // nothing undefined.
        let (from, to) = unsafe { (a.view().lent(), c.view_mut().lent()) };
        plan.run_into_on(&stream, &Epilogue::default(), from, to).unwrap();
        if device.kind() == DeviceKind::Emulator {
            match bits(&c).iter().all(|&bit| bit == 0) {
                true => late += 1,
                false => early += 1,
            }
        }
        drop(plan); // with work under way
        stream.synchronize().unwrap();
        assert!(bits(&c).iter().any(|&bit| bit != 0));
    }
    if late + early > 0 {
        assert_eq!((early, late), (2, 2), "half of the schedules put other streams off");
    }
}

/// Values of tensors that are replaced on one stream between runs on others.
#[test]
fn values_of_tensors_are_replaced_on_whatever_stream() {
    let tensor = tensor();
    let nnz = tensor.nnz();
    for device in devices() {
        let mut mttkrp = Mttkrp::builder(&tensor).width(N).build(&device).unwrap();
        let mut ttm = Ttm::builder(&tensor).width(N).build(&device).unwrap();
        let (b, c) = (operand::<f32>(&device, 13, N, 1), operand::<f32>(&device, 11, N, 2));
        let sets: Vec<Vec<f32>> = (0..4).map(|number| integers(nnz, number + 5)).collect();
        let want: Vec<_> = sets
            .iter()
            .map(|set| {
                let mut y = DeviceMatrix::<f32>::zeros(&device, 9, N).unwrap();
                let mut z = DeviceMatrix::<f32>::zeros(&device, ttm.fibers(), N).unwrap();
                mttkrp.replace_values(set).unwrap();
                mttkrp.run_into(1.0, [&b, &c], 0.0, &mut y).unwrap();
                ttm.replace_values(set).unwrap();
                ttm.run_into(1.0, &c, 0.0, &mut z).unwrap();
                (bits(&y), bits(&z))
            })
            .collect();
        let on_device: Vec<_> =
            sets.iter().map(|set| DeviceBuffer::from_slice(&device, set).unwrap()).collect();
        let [one, two, own] = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap(), device.stream()];
        let mut results: Vec<_> = (0..4)
            .map(|_| {
                let zeros = |rows| DeviceMatrix::<f32>::zeros(&device, rows, N).unwrap();
                (zeros(9), zeros(ttm.fibers()))
            })
            .collect();
        device.synchronize().unwrap();
        for (i, (written, read)) in
            [(&one, &two), (&two, &one), (&own, &two), (&one, &own)].into_iter().enumerate()
        {
            mttkrp.replace_values_on(written, &on_device[i]).unwrap();
            ttm.replace_values_on(written, &on_device[i]).unwrap();
            let (y, z) = &mut results[i];
            // SAFETY: all is used again only after all streams are waited for.
            unsafe {
                let factors = [b.view().lent(), c.view().lent()];
                mttkrp.run_into_on(read, 1.0, factors, 0.0, y.view_mut().lent()).unwrap();
                ttm.run_into_on(read, 1.0, c.view().lent(), 0.0, z.view_mut().lent()).unwrap();
            }
        }
        [&one, &two, &own].into_iter().for_each(|stream| stream.synchronize().unwrap());
        for (i, (y, z)) in results.iter().enumerate() {
            assert!((bits(y), bits(z)) == want[i], "set {i} on {device}");
        }
        let error = mttkrp.replace_values_on(&one, &DeviceBuffer::from_slice(&device, &[1.0f64]).unwrap());
        assert!(matches!(error, Err(TensorError::Plan(PlanError::ElementType { found: "f64", .. }))));
        let error = mttkrp.replace_values_on(&one, &DeviceBuffer::from_slice(&device, &[1.0f32]).unwrap());
        assert!(matches!(error, Err(TensorError::Plan(PlanError::ValueCount { found: 1, .. }))));
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    for device in devices() {
        let elsewhere = match device.kind() {
            DeviceKind::Cpu => Device::emulator(EmulatorSchedule::InOrder),
            _ => Device::cpu(),
        };
        let (stream, foreign) = (Stream::new(&device).unwrap(), Stream::new(&elsewhere).unwrap());
        let plan = nm_plan(&device, ActivationLayout::RowMajor, 12);
        let (a, mut c) = (operand::<f32>(&device, 12, 96, 0), operand::<f32>(&device, 12, N, 0));
        let run = Epilogue::default();
        let error = plan.run_into_on(&foreign, &run, &a, &mut c).unwrap_err();
        assert!(error.to_string().starts_with("the stream is on "), "{error}");
        let tensors = Mttkrp::builder(&tensor()).width(N).build(&device).unwrap();
        let (b, d) = (operand::<f32>(&device, 13, N, 0), operand::<f32>(&device, 11, N, 0));
        let mut y = operand::<f32>(&device, 9, N, 0);
        let error = tensors.run_into_on(&foreign, 1.0, [b.view(), d.view()], 0.0, &mut y).unwrap_err();
        assert!(error.to_string().starts_with("the stream is on "), "{error}");
        // One array for all: where results overlap operands nothing is run.
        let wide = operand::<f32>(&device, 13, 100, 0);
        let address = match wide.host() {
            Some(host) => host.data().as_ptr().expose_provenance() as u64,
            None => wide.buffer().address(),
        };
        // SAFETY: the rows are those of `wide`, of which nothing is written.
        let (view, written, bias) = unsafe {
            (
                |rows, cols| DeviceView::<f32>::from_raw(&device, address, rows, cols, 100).unwrap(),
                |rows, cols| DeviceViewMut::<f32>::from_raw(&device, address, rows, cols, 100).unwrap(),
                DeviceSlice::<f32>::from_raw(&device, address, N).unwrap(),
            )
        };
        let error = plan.run_into_on(&stream, &run, view(12, 96), written(12, N)).unwrap_err();
        assert!(
            matches!(error, NmError::Plan(PlanError::Overlap { output: "C", operand: "A", .. })),
            "{error}"
        );
        let biased = Epilogue { bias: Some(&bias), ..run };
        let error = plan.run_into_on(&stream, &biased, &a, written(12, N)).unwrap_err();
        assert!(error.to_string().contains("overlaps the bias at"), "{error}");
        for (factors, name) in [([view(13, N), d.view()], "B"), ([b.view(), view(11, N)], "C")] {
            let error = tensors.run_into_on(&stream, 1.0, factors, 0.0, written(9, N)).unwrap_err();
            assert!(error.to_string().contains(&format!("overlaps {name} at")), "{error}");
        }
    }
}

/// Workspaces of other streams count against the limit of a plan with N:M weights and of one for a tensor, and those of
/// streams that are gone make room.
#[test]
fn a_workspace_for_a_stream_counts() {
    for device in kernel_devices(1) {
        let probe = nm_plan(&device, ActivationLayout::RowMajor, 12);
        let report = probe.report();
        let staged: u64 =
            report.arrays.iter().filter(|array| array.name != "weights").map(|array| array.bytes).sum();
        let (weights, limit) = (weights(96), report.device_bytes + 2 * staged);
        let builder = NmSpmm::builder(&weights).rows(12).memory_limit(limit);
        let plan = builder.build(&device).unwrap();
        let a = operand::<f32>(&device, 12, 96, 0);
        let mut c = DeviceMatrix::<f32>::zeros(&device, 12, N).unwrap();
        let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
        let run = Epilogue::default();
        for stream in &streams[..2] {
            plan.run_into_on(stream, &run, &a, &mut c).unwrap();
        }
        let error = plan.run_into_on(&streams[2], &run, &a, &mut c).unwrap_err();
        let expected = format!("the plan needs {} bytes on the device, the limit is {limit}", limit + staged);
        assert!(error.to_string().starts_with(&expected), "{error}");
        let [one, ..] = streams;
        drop(one);
        plan.run_into_on(&Stream::new(&device).unwrap(), &run, &a, &mut c).unwrap();

        let tensor = tensor();
        let builder = Mttkrp::builder(&tensor).width(N).determinism(Determinism::RunToRun);
        let probe = builder.build(&device).unwrap();
        let (needs, workspace) = (probe.report().device_bytes, probe.report().workspace_bytes);
        assert!(workspace > 0, "slices are cut");
        let plan = builder.memory_limit(needs).build(&device).unwrap();
        let (b, d) = (operand::<f32>(&device, 13, N, 0), operand::<f32>(&device, 11, N, 0));
        let mut y = DeviceMatrix::<f32>::zeros(&device, 9, N).unwrap();
        plan.run_into(1.0, [&b, &d], 0.0, &mut y).unwrap();
        let stream = Stream::new(&device).unwrap();
        let error = plan.run_into_on(&stream, 1.0, [b.view(), d.view()], 0.0, &mut y).unwrap_err();
        assert!(error.to_string().contains(&format!("needs {} bytes", needs + workspace)), "{error}");
    }
}

/// Activations whose memory ends with the last element: not read beyond it.
#[test]
fn the_last_row_of_lent_activations_is_read_to_its_end_only() {
    for device in kernel_devices(2) {
        for layout in [ActivationLayout::RowMajor, ActivationLayout::KMajor] {
            let (m, k) = (6, 94);
            let plan = NmSpmm::builder(&weights(k)).rows(m).layout(layout).build(&device).unwrap();
            let (rows, cols) = if layout == ActivationLayout::KMajor { (k, m) } else { (m, k - 2) };
            let (rows, cols) =
                if layout == ActivationLayout::KMajor { (rows, cols) } else { (rows, cols + 2) };
            let ld = cols.next_multiple_of(8) + 8;
            let data = integers::<f32>((rows - 1) * ld + cols, 1);
            let a = DeviceBuffer::from_slice(&device, &data).unwrap();
            let packed: Vec<f32> = (0..rows).flat_map(|r| data[r * ld..][..cols].to_vec()).collect();
            let want = plan.run(&packed).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(&device, m, N).unwrap();
            // SAFETY: the view is of the buffer's elements, all of them, which are not written.
            let view = unsafe { DeviceView::<f32>::from_raw(&device, a.address(), rows, cols, ld).unwrap() };
            plan.run_into_on(&device.stream(), &Epilogue::default(), view, &mut c).unwrap();
            assert_eq!(c.download().unwrap(), want, "{layout:?} on {device}");
        }
    }
}
