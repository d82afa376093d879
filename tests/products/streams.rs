//! Products on other streams than the device's own: the same bits, in the right order, whatever is dropped meanwhile.
//!
//! The emulator puts the work of some streams off for as long as nothing asks for it, under half of its schedules that
//! of the device's own and under the rest that of all others: an order that nobody keeps shows as old numbers, or as an
//! access to memory that was freed.

use windrow::{
    Activation, Algorithm, Device, DeviceBuffer, DeviceKind, DeviceMatrix, DeviceSlice, DeviceView,
    DeviceViewMut, EmulatorSchedule, Epilogue, Fault, PlanError, Precision, RowSoftmax, Schedule, Sddmm,
    SddmmForm, Spmm, SpmmError, Stream, f16,
};
use windrow_testkit::{Case, Operands, Pattern, SplitMix64, Values};

use crate::common::{Setup, devices, kernel_devices, report_missing_gpu};

/// Columns of `B`: more than a stage has, and no multiple of anything.
pub(crate) const N: usize = 70;

/// Plans with workspaces, with parts beside each other, and with a stage.
pub(crate) fn setups() -> [Setup; 4] {
    let hybrid = Setup::new(Algorithm::Hybrid, Precision::Tf32);
    [
        Setup::new(Algorithm::RowSplit, Precision::F32).told(|o| o.row_division.piece_entries = Some(32)),
        Setup::new(Algorithm::TileStream, Precision::Tf32).told(|o| o.workers = Some(20)),
        hybrid.told(|o| o.schedule = Schedule::MultiStream),
        Setup { reversed: true, ..hybrid },
    ]
}

/// Rows long enough to be cut beside short ones, square so that results can be operands.
pub(crate) fn case() -> Case {
    let mut rng = SplitMix64::new(0x57e4);
    let mut lengths = [90, 2, 0, 30, 1, 1, 8, 70, 3, 12, 0, 5].repeat(8);
    lengths.truncate(90);
    let pattern = Pattern::from_lengths(90, lengths, &mut rng);
    let operands =
        Operands { n: N, padding: 0, scalars: (1.0, 0.0), values: Values::Integers, poison: false };
    Case::from_pattern("streams", &pattern, operands, &mut rng)
}

/// `B` of small integers that `number` tells apart.
pub(crate) fn operand(device: &Device, case: &Case, number: usize) -> DeviceMatrix<f32> {
    let data: Vec<f32> = (0..case.k() * N).map(|i| ((i * 7 + number * 13) % 11) as f32 - 5.0).collect();
    DeviceMatrix::upload(device, windrow::DenseRef::packed(&data, case.k(), N).unwrap()).unwrap()
}

pub(crate) fn zeros(device: &Device, case: &Case) -> DeviceMatrix<f32> {
    DeviceMatrix::zeros(device, case.m(), N).unwrap()
}

pub(crate) fn bits(c: &DeviceMatrix<f32>) -> Vec<u32> {
    c.download().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn products_on_two_streams_at_once_have_the_bits_of_one() {
    let case = case();
    for device in devices() {
        for setup in setups() {
            let plan = setup.plan(&device, &case);
            let operands: Vec<_> = (0..4).map(|number| operand(&device, &case, number)).collect();
            let want: Vec<_> = operands
                .iter()
                .map(|b| {
                    let mut c = zeros(&device, &case);
                    plan.run_into(1.0, b, 0.0, &mut c).unwrap();
                    bits(&c)
                })
                .collect();
            let (plan, operands, device, case) = (&plan, &operands, &device, &case);
            let found: Vec<Vec<_>> = std::thread::scope(|scope| {
                let thread = |turn: usize| {
                    scope.spawn(move || {
                        let stream = Stream::new(device).unwrap();
                        let mut results: Vec<_> = (0..4).map(|_| zeros(device, case)).collect();
                        for i in 0..4 {
                            let i = (i + turn) % 4;
                            plan.run_into_on(&stream, 1.0, &operands[i], 0.0, &mut results[i]).unwrap();
                        }
                        results.iter().map(bits).collect()
                    })
                };
                let threads = [thread(0), thread(2), thread(1)];
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(found.iter().all(|found| *found == want), "{setup:?} on {device}");
        }
    }
    report_missing_gpu("products on several streams", setups().len());
}

/// A chain through both streams and back, with a bias and a stage on the way: each product reads what the one before
/// wrote.
#[test]
fn windrows_memory_is_ordered_with_the_own_stream_both_ways() {
    let case = case();
    for device in devices() {
        let setup = setups()[1];
        let plan = setup.plan(&device, &case);
        let bias = DeviceBuffer::from_slice(&device, &[2.0f32; N]).unwrap();
        let chain = |one: &Stream, two: &Stream| {
            let mut stages: Vec<_> = (0..4).map(|_| zeros(&device, &case)).collect();
            let bias = bias.view();
            let fused = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
            let b = operand(&device, &case, 1);
            let own = device.stream();
            for (at, stream) in [(0, &own), (1, one), (2, two), (3, &own)] {
                let (before, rest) = stages.split_at_mut(at);
                let from = before.last().unwrap_or(&b);
                plan.run_fused_into_on(stream, &fused, from, &mut rest[0]).unwrap();
            }
            drop(b); // after the work that uses it
            let again = zeros(&device, &case); // may get the memory
            assert!(bits(&again).iter().all(|&bit| bit == 0));
            stages.iter().map(bits).collect::<Vec<_>>()
        };
        let own = device.stream();
        let want = chain(&own, &own);
        let (one, two) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
        assert!(chain(&one, &two) == want, "{device}");
        assert!(chain(&one, &own) == want, "{device}");
    }
}

/// Views of the memory of two matrices, as if another library had allocated it.
///
/// # Safety
/// The work that is queued with the views is ordered with all other uses of the matrices by the caller.
unsafe fn lent<'a>(
    device: &'a Device,
    b: &DeviceMatrix<f32>,
    c: &mut DeviceMatrix<f32>,
) -> (DeviceView<'a, f32>, DeviceViewMut<'a, f32>) {
    // The CPU takes addresses whose provenance is exposed.
    let address = |matrix: &DeviceMatrix<f32>| match matrix.host() {
        Some(host) => host.data().as_ptr().expose_provenance() as u64,
        None => matrix.buffer().address(),
    };
    let to = match c.host_mut() {
        Some(mut host) => host.data_mut().as_mut_ptr().expose_provenance() as u64,
        None => c.buffer().address(),
    };
    // SAFETY: the matrices are live, of these shapes.
    unsafe {
        (
            DeviceView::from_raw(device, address(b), b.rows(), b.cols(), b.ld()).unwrap(),
            DeviceViewMut::from_raw(device, to, c.rows(), c.cols(), c.ld()).unwrap(),
        )
    }
}

/// With memory that is lent, nothing is inserted: the result is there when its stream is done, and on the emulator not
/// before, under those schedules that put it off. The plan may be dropped with the work still queued.
#[test]
fn lent_memory_is_the_callers_to_order() {
    let (case, mut early, mut late) = (case(), 0, 0);
    for device in devices() {
        for setup in setups() {
            let plan = setup.plan(&device, &case);
            let b = operand(&device, &case, 2);
            let (mut want, mut c) = (zeros(&device, &case), zeros(&device, &case));
            plan.run_into(1.0, &b, 0.0, &mut want).unwrap();
            let want = bits(&want);
            let stream = Stream::new(&device).unwrap();
            device.synchronize().unwrap();
            // SAFETY: both are used again only after the stream is waited for, but for a look at `c` on the emulator,
            // which has nothing undefined.
            let (from, to) = unsafe { lent(&device, &b, &mut c) };
            plan.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
            if device.kind() == DeviceKind::Emulator {
                match bits(&c) == want {
                    true => early += 1,
                    false => late += 1,
                }
            }
            drop(plan);
            stream.synchronize().unwrap();
            assert!(bits(&c) == want, "{setup:?} on {device}");
        }
    }
    if late + early > 0 {
        assert_eq!((early, late), (8, 8), "half of the schedules put other streams off");
    }
}

/// A plan's values are read by runs on any stream and written on any: each run has those that were given before it.
#[test]
fn values_are_replaced_between_runs_on_whatever_stream() {
    let case = case();
    let nnz = case.a.nnz();
    let values =
        |number: usize| (0..nnz).map(|i| ((i * 3 + number * 5) % 7) as f32 - 3.0).collect::<Vec<_>>();
    for device in devices() {
        for setup in setups() {
            let mut plan = setup.plan(&device, &case);
            let b = operand(&device, &case, 3);
            let sets: Vec<_> = (0..5).map(values).collect();
            let want: Vec<_> = sets
                .iter()
                .map(|set| {
                    let mut c = zeros(&device, &case);
                    plan.replace_values(set).unwrap();
                    plan.run_into(1.0, &b, 0.0, &mut c).unwrap();
                    bits(&c)
                })
                .collect();
            let on_device: Vec<_> =
                sets.iter().map(|set| DeviceBuffer::from_slice(&device, set).unwrap()).collect();
            let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
            let [one, two, own] = [&streams[0], &streams[1], &device.stream()];
            let mut results: Vec<_> = (0..5).map(|_| zeros(&device, &case)).collect();
            device.synchronize().unwrap();
            plan.replace_values(&sets[3]).unwrap();
            for (i, (written, read)) in
                [(one, two), (two, one), (own, two), (one, own), (two, one)].into_iter().enumerate()
            {
                match i {
                    2 => plan.replace_values(&sets[i]).unwrap(),
                    _ => plan.replace_values_on(written, &on_device[i]).unwrap(),
                }
                // SAFETY: both are used again only after all streams are waited for.
                let (from, to) = unsafe { lent(&device, &b, &mut results[i]) };
                plan.run_into_on(read, 1.0, from, 0.0, to).unwrap();
            }
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
            for (i, c) in results.iter().enumerate() {
                assert!(bits(c) == want[i], "{setup:?}, set {i}, on {device}");
            }
        }
    }
}

/// Attention over a graph, forward and backward, each step asked of the same stream or of another than the one before:
/// sampled products, results of 16 bits by way of a stage, softmax, values replaced, and a product with them.
#[test]
fn attention_on_a_stream_has_the_bits_of_the_own_one() {
    let case = case();
    let (a, inner) = (&case.a, 20);
    for device in devices() {
        let numbers = |len: usize, number: usize| -> Vec<f32> {
            (0..len).map(|i| ((i * 5 + number * 3) % 13) as f32 / 4.0 - 1.5).collect()
        };
        let matrix = |rows: usize, number: usize| {
            let data = numbers(rows * inner, number);
            DeviceMatrix::upload(&device, windrow::DenseRef::packed(&data, rows, inner).unwrap()).unwrap()
        };
        let array = |number| DeviceBuffer::from_slice(&device, &numbers(a.nnz(), number)).unwrap();
        let mut sampled = Sddmm::builder(a)
            .inner(inner)
            .form(SddmmForm::Scale)
            .precision(Precision::F32)
            .build(&device)
            .unwrap();
        let softmax = RowSoftmax::new(a, &device).unwrap();
        let mut product = Spmm::builder(a).width(N).values_from_device().build(&device).unwrap();
        let mut chain = |streams: &[Stream]| {
            let mut turns = streams.iter().cycle();
            let mut next = || turns.next().unwrap();
            let (x, y, b) = (matrix(a.rows(), 1), matrix(a.cols(), 2), operand(&device, &case, 3));
            let (scale, gradient) = (array(4), array(5));
            let mut weights = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
            let mut narrow = DeviceBuffer::<f16>::alloc_zeroed(&device, a.nnz()).unwrap();
            let mut found = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
            let mut c = zeros(&device, &case);
            sampled.replace_values_on(next(), &scale).unwrap();
            sampled.run_into_on(next(), 1.0, [x.view(), y.view()], &mut weights).unwrap();
            sampled.run_into_on(next(), 1.0, [x.view(), y.view()], &mut narrow).unwrap();
            softmax.forward_on(next(), 0.25, &weights, &mut found).unwrap();
            softmax.forward_in_place_on(next(), 0.25, &mut weights).unwrap();
            product.replace_values_on(next(), &weights).unwrap();
            product.run_into_on(next(), 1.0, &b, 0.0, &mut c).unwrap();
            assert!(found.to_vec().unwrap() == weights.to_vec().unwrap(), "in place or not, on {device}");
            softmax.backward_on(next(), 0.25, [weights.view(), gradient.view()], &mut found).unwrap();
            // Freeing memory waits for more than reading it does.
            let all = [found.to_vec().unwrap(), weights.to_vec().unwrap(), c.download().unwrap()].concat();
            drop((x, y, b, scale, gradient));
            (all.into_iter().map(f32::to_bits).collect::<Vec<_>>(), narrow.to_vec().unwrap())
        };
        let own = device.stream();
        let want = chain(std::slice::from_ref(&own));
        let [one, two] = [(); 2].map(|()| Stream::new(&device).unwrap());
        for streams in [
            vec![one.clone()],
            vec![own.clone(), one.clone()],
            vec![one.clone(), own.clone()],
            vec![one.clone(), two.clone(), own.clone()],
            vec![two, own, one],
        ] {
            assert!(chain(&streams) == want, "{streams:?}");
        }
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let case = case();
    for device in devices() {
        let setup = setups()[0];
        let plan = setup.plan(&device, &case);
        let (b, mut c) = (operand(&device, &case, 0), zeros(&device, &case));
        let elsewhere = match device.kind() {
            DeviceKind::Cpu => Device::emulator(EmulatorSchedule::InOrder),
            _ => Device::cpu(),
        };
        let stream = Stream::new(&elsewhere).unwrap();
        let error = plan.run_into_on(&stream, 1.0, &b, 0.0, &mut c).unwrap_err();
        assert!(error.to_string().starts_with("the stream is on "), "{error}");
        // C where B is, or beside it in rows of one matrix.
        let n = 3;
        let wide = zeros(&device, &case);
        let address = match wide.host() {
            Some(host) => host.data().as_ptr().expose_provenance() as u64,
            None => wide.buffer().address(),
        };
        let stream = Stream::new(&device).unwrap();
        for (column, refused) in [(0, true), (2, true), (3, false), (8, false)] {
            if device.kind() == DeviceKind::Cpu && !refused {
                continue; // views of host memory that another writes must not live at once
            }
            // SAFETY: the rows are those of `wide`, which nothing else uses; where they overlap nothing is run.
            let (from, to) = unsafe {
                (
                    DeviceView::<f32>::from_raw(&device, address, case.k(), n, wide.ld()).unwrap(),
                    DeviceViewMut::<f32>::from_raw(&device, address + 4 * column, case.m(), n, wide.ld())
                        .unwrap(),
                )
            };
            let ran = plan.run_into_on(&stream, 1.0, from, 0.0, to);
            stream.synchronize().unwrap();
            match (refused, ran) {
                (true, Err(SpmmError::Plan(PlanError::Overlap { output: "C", operand: "B", .. })))
                | (false, Ok(())) => {}
                (_, other) => panic!("column {column} on {device}: {other:?}"),
            }
        }
        // The bias in C.
        // SAFETY: as above.
        let bias = unsafe { DeviceSlice::<f32>::from_raw(&device, address, N).unwrap() };
        let run = Epilogue { bias: Some(&bias), ..Epilogue::default() };
        // SAFETY: as above.
        let to = unsafe { DeviceViewMut::<f32>::from_raw(&device, address, case.m(), N, wide.ld()).unwrap() };
        let error = plan.run_fused_into_on(&stream, &run, &b, to).unwrap_err();
        assert!(error.to_string().contains("overlaps the bias at"), "{error}");
    }
}

#[test]
fn a_workspace_for_a_stream_counts() {
    let case = case();
    for device in kernel_devices(0) {
        let setup = setups()[0];
        let probe = setup.plan(&device, &case);
        let (needs, workspace) = (probe.report().device_bytes, probe.report().workspace_bytes);
        assert!(workspace > 0, "rows are cut");
        let (b, mut c) = (operand(&device, &case, 0), zeros(&device, &case));
        let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
        let plan = setup.told(|o| o.memory_limit = Some(needs + 2 * workspace)).plan(&device, &case);
        for stream in &streams[..2] {
            plan.run_into_on(stream, 1.0, &b, 0.0, &mut c).unwrap();
        }
        let error = plan.run_into_on(&streams[2], 1.0, &b, 0.0, &mut c).unwrap_err();
        let expected = format!(
            "the plan needs {} bytes on the device, the limit is {}",
            needs + 3 * workspace,
            needs + 2 * workspace
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(error.to_string().ends_with("raise the limit, or run the plan on fewer streams"), "{error}");
        // The workspace of a stream that is gone makes room.
        let [one, ..] = streams;
        drop(one);
        plan.run_into_on(&Stream::new(&device).unwrap(), 1.0, &b, 0.0, &mut c).unwrap();
    }
}

/// Promise, faults: whichever call fails of a run on another stream, there is an error, and the next run is right.
#[test]
fn a_run_on_a_stream_outlives_faults() {
    let case = case();
    for schedule in EmulatorSchedule::STANDARD {
        let (device, faults) = Device::emulator_with_faults(schedule);
        let plan = setups()[2].plan(&device, &case);
        let b = operand(&device, &case, 0);
        let stream = Stream::new(&device).unwrap();
        let run = || {
            let mut c = DeviceMatrix::<f32>::zeros(&device, case.m(), N)?;
            let bias = DeviceBuffer::from_slice(&device, &[1.0f32; N])?;
            let bias = bias.view();
            let run = Epilogue { bias: Some(&bias), ..Epilogue::default() };
            plan.run_fused_into_on(&stream, &run, &b, &mut c)?;
            Ok::<_, windrow::Error>(c.download()?)
        };
        let right = run().unwrap();
        let (held, before) = (faults.allocated(), faults.calls());
        assert!(run().unwrap() == right, "not the same bits");
        let calls = faults.calls() - before;
        let mut refused = 0;
        for fault in [Fault::Refused, Fault::Late] {
            for at in 0..calls {
                faults.plan(at, fault);
                let outcome = run();
                let failed = faults.clear();
                assert!(!failed.is_empty(), "call {at} of {calls} is not reached");
                match outcome {
                    Ok(found) => assert!(found == right, "{failed:?}, {fault:?}"),
                    Err(_) => refused += 1,
                }
                assert!(run().unwrap() == right, "after {failed:?}, {fault:?}");
                assert_eq!(faults.allocated(), held, "after {failed:?}, {fault:?}");
            }
        }
        assert!(calls > 8 && refused > calls, "{refused} of twice {calls}");
        drop(b);
        drop(plan);
        assert_eq!(faults.allocated(), (0, 0), "left on the device");
    }
}

/// Elements of 16 bits whose memory ends with the last column: not read beyond it.
#[test]
fn the_last_row_of_lent_memory_is_read_to_its_end_only() {
    for device in kernel_devices(1) {
        let a = windrow::Csr::<f32>::identity(5).unwrap();
        for algorithm in
            [Algorithm::RowSplit, Algorithm::TileStream, Algorithm::ShortRows, Algorithm::MatricizedRows]
        {
            let plan = Spmm::builder(&a)
                .width(3)
                .precision(Precision::F16)
                .algorithm(algorithm)
                .build(&device)
                .unwrap();
            let (n, ld) = (3, 8);
            let data: Vec<f16> = (0..4 * ld + n).map(|i| f16::from_f32(i as f32)).collect();
            let b = DeviceBuffer::from_slice(&device, &data).unwrap();
            let mut c = DeviceMatrix::<f32>::zeros(&device, 5, n).unwrap();
            // SAFETY: the view is of the buffer's elements, all of them, which are not written.
            let view = unsafe { DeviceView::<f16>::from_raw(&device, b.address(), 5, n, ld).unwrap() };
            plan.run_into_on(&device.stream(), 1.0, view, 0.0, &mut c).unwrap();
            let want: Vec<f32> = (0..5).flat_map(|r| (0..n).map(move |j| (r * ld + j) as f32)).collect();
            assert_eq!(c.download().unwrap(), want, "{algorithm} on {device}");
        }
    }
}
