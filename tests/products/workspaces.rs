//! Workspaces of streams in a caller's memory.

use windrow::{
    Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, EmulatorSchedule, Epilogue, PlanError, Sddmm,
    SpmmError, Stream, f16,
};

use crate::streams::{N, bits, case, operand, setups, zeros};

/// Workspaces in a caller's memory: the same bits, windrow's is given back, and what does not suit is refused.
#[test]
fn a_caller_gives_the_workspace_of_a_stream() {
    let case = case();
    let a = &case.a;
    for schedule in EmulatorSchedule::STANDARD {
        let (device, faults) = Device::emulator_with_faults(schedule);
        for setup in setups() {
            let plan = setup.plan(&device, &case);
            let b = operand(&device, &case, 1);
            let bias = DeviceBuffer::from_slice(&device, &[1.0f32; N]).unwrap();
            let bias = bias.view();
            let runs = [
                Epilogue::default(),
                Epilogue { bias: Some(&bias), ..Epilogue::default() },
                Epilogue::default(),
            ];
            let results = |stream: &Stream| {
                let result = |run: &Epilogue<'_, f32, DeviceSlice<'_, f32>>| {
                    let mut c = zeros(&device, &case);
                    plan.run_fused_into_on(stream, run, &b, &mut c).unwrap();
                    bits(&c)
                };
                runs.iter().map(result).collect::<Vec<_>>()
            };
            let (own, one, two) =
                (device.stream(), Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
            let want = results(&own);
            assert!(results(&one) == want, "{setup:?}"); // with memory of windrow's, which goes
            let needed = [false, true].map(|staged| plan.workspace_bytes(staged));
            assert!(needed[0] <= needed[1] && needed[1] > 0, "{needed:?}");
            let held = faults.allocated().1;
            for (stream, bytes) in
                [(&one, needed[1]), (&two, needed[1]), (&own, needed[1]), (&two, needed[0])]
            {
                let mut scratch =
                    DeviceBuffer::from_slice(&device, &vec![0xffu8; usize::try_from(bytes).unwrap()])
                        .unwrap();
                // SAFETY: the stream is waited for, and has another workspace, before the memory is dropped.
                unsafe { plan.set_workspace(stream, &mut scratch).unwrap() };
                assert!(results(stream) == want, "{setup:?} with {bytes} bytes");
                assert!(results(stream) == want, "{setup:?} with {bytes} bytes again");
                stream.synchronize().unwrap();
                assert!(bytes == 0 || scratch.to_vec().unwrap().iter().any(|&byte| byte != 0xff), "not used");
                let mut last = DeviceBuffer::<u8>::alloc_zeroed(&device, scratch.len()).unwrap();
                // SAFETY: the plan runs no more on this stream before it has another or is dropped.
                unsafe { plan.set_workspace(stream, &mut last).unwrap() };
            }
            let list = 16 * a.rows() as u64; // of rows, beside a stage
            let left = faults.allocated().1;
            assert!(left <= held + 2 * list, "{setup:?}: {left} bytes where there were {held}");
            drop(plan);
        }
        // Too little, at an odd place, elsewhere.
        let plan = setups()[0].plan(&device, &case);
        let needed = plan.workspace_bytes(false);
        assert!(needed > 0, "rows are cut");
        let mut scratch =
            DeviceBuffer::<u8>::alloc_zeroed(&device, usize::try_from(needed).unwrap() + 16).unwrap();
        let address = scratch.address();
        let stream = Stream::new(&device).unwrap();
        for (skip, bytes) in [(0, needed - 1), (16, needed)] {
            let len = usize::try_from(bytes).unwrap();
            // SAFETY: the bytes are the buffer's, and refused.
            let refused = unsafe {
                let memory = DeviceSliceMut::<u8>::from_raw(&device, address + skip, len).unwrap();
                plan.set_workspace(&stream, memory)
            };
            let want = PlanError::Workspace { address: address + skip, found: bytes, needed, align: 256 };
            assert_eq!(refused, Err(SpmmError::Plan(want)));
        }
        let foreign = Stream::new(&Device::cpu()).unwrap();
        // SAFETY: refused.
        let error = unsafe { plan.set_workspace(&foreign, &mut scratch).unwrap_err() };
        assert!(error.to_string().starts_with("the stream is on cpu"), "{error}");
        let mut host = DeviceBuffer::<u8>::alloc_zeroed(&Device::cpu(), 1 << 16).unwrap();
        // SAFETY: refused.
        let error = unsafe { plan.set_workspace(&stream, &mut host).unwrap_err() };
        assert!(error.to_string().starts_with("the workspace is on cpu"), "{error}");
    }
    let plan = setups()[0].plan(&Device::cpu(), &case);
    assert_eq!(plan.workspace_bytes(true), 0);
}

/// The same for sampled products, whose results of 16 bits go by way of a stage; prepared, nothing is made any more.
#[test]
fn a_caller_gives_the_stage_of_sampled_products() {
    let case = case();
    let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
    let plan = Sddmm::builder(&case.a).inner(20).build(&device).unwrap();
    let x = operand(&device, &case, 1);
    let mut out = DeviceBuffer::<f16>::alloc_zeroed(&device, case.a.nnz()).unwrap();
    let (one, two) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    plan.run_into_on(&one, 0.25, [x.view(), x.view()], &mut out).unwrap();
    let want = out.to_vec().unwrap();
    let needed = plan.workspace_bytes();
    assert_eq!(needed, (4 * case.a.nnz() as u64).next_multiple_of(256));
    let mut scratch = DeviceBuffer::<u8>::alloc_zeroed(&device, usize::try_from(needed).unwrap()).unwrap();
    let before = faults.allocated();
    // SAFETY: used for nothing else, and dropped after the plan.
    unsafe { plan.set_workspace(&one, &mut scratch).unwrap() };
    assert_eq!(faults.allocated(), (before.0 - 1, before.1 - 4 * case.a.nnz() as u64), "windrow's is gone");
    let mut again = DeviceBuffer::<f16>::alloc_zeroed(&device, case.a.nnz()).unwrap();
    plan.run_into_on(&one, 0.25, [x.view(), x.view()], &mut again).unwrap();
    assert_eq!(again.to_vec().unwrap(), want);
    assert!(scratch.to_vec().unwrap().iter().any(|&byte| byte != 0), "not used");
    plan.prepare_on::<f32>(&two, 20).unwrap();
    let before = faults.allocated();
    plan.prepare_on::<f16>(&two, 20).unwrap();
    assert_eq!(faults.allocated().0, before.0 + 1);
    plan.run_into_on(&two, 0.25, [x.view(), x.view()], &mut again).unwrap();
    assert_eq!((faults.allocated().0, again.to_vec().unwrap()), (before.0 + 1, want));
    // SAFETY: refused.
    let error = unsafe {
        let short = DeviceSliceMut::<u8>::from_raw(&device, scratch.address(), 8).unwrap();
        plan.set_workspace(&two, short).unwrap_err()
    };
    assert!(error.to_string().contains("has 8 bytes at"), "{error}");
    drop(plan);
}
