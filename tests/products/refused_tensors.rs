//! Tensors on the device that are refused, by what is wrong with them and where.

use windrow::{
    Coo3, Coo3Addresses, Device, DeviceBuffer, DeviceCoo3, EmulatorSchedule, FormatError, Mttkrp, PlanError,
    Precision, SpmmError, TensorError, Ttm,
};

use crate::common::{devices, report_missing_gpu};

/// Every way to use such a tensor tells the same.
#[test]
fn coordinates_out_of_range_are_refused() {
    fn error(device: &Device, coordinates: [&[i64]; 3]) -> PlanError {
        let arrays = coordinates.map(|of_mode| DeviceBuffer::from_slice(device, of_mode).unwrap());
        let list = || DeviceCoo3::pattern([5, 7, 4], arrays.each_ref()).unwrap();
        let checked = list().checked(&device.stream()).unwrap_err();
        for order in [[0, 1, 2], [2, 1, 0]] {
            assert_eq!(list().to_csf(order, &device.stream()).unwrap_err(), checked);
            let built = Mttkrp::builder(&list()).mode_order(order).build_on(&device.stream()).unwrap_err();
            assert!(
                matches!(built, TensorError::Plan(ref same) if *same == checked),
                "{built} and {checked}"
            );
            let built = Ttm::builder(&list()).mode_order(order).build_on(&device.stream()).unwrap_err();
            assert!(matches!(built, SpmmError::Plan(ref same) if *same == checked), "{built} and {checked}");
        }
        assert_eq!(list().to_host(&device.stream()).unwrap_err(), checked);
        checked
    }
    let wrong = |entry, mode, coordinate| {
        let dim = [5, 7, 4][mode];
        PlanError::Format(FormatError::CoordinateOutOfRange { entry, mode, coordinate, dim })
    };
    for device in devices() {
        let cases: [([&[i64]; 3], PlanError); 5] = [
            ([&[0, 5, 4], &[6, 6, 0], &[3, 0, 0]], wrong(1, 0, 5)),
            ([&[0, 1, 4], &[6, 6, 7], &[3, 0, 4]], wrong(2, 1, 7)),
            ([&[0, 1, 9], &[6, 9, 0], &[9, 0, 0]], wrong(0, 2, 9)),
            ([&[0, 1, 4], &[6, -1, 0], &[3, 0, 0]], wrong(1, 1, u64::MAX)),
            ([&[0, 1, 4], &[6, 0, 0], &[3, 0, 1 << 32]], wrong(2, 2, 1 << 32)),
        ];
        for (coordinates, want) in cases {
            assert_eq!(error(&device, coordinates), want, "{coordinates:?} on {device}");
        }
        // Of many wrong ones the first, in whatever block and warp.
        let of_mode: Vec<i64> = (0..900).map(|entry| if entry < 613 { entry % 4 } else { 4 }).collect();
        assert_eq!(error(&device, [&of_mode; 3]), wrong(613, 2, 4), "on {device}");
    }
    report_missing_gpu("wrong tensors on the device", 6);
}

/// A negative coordinate of 32 bits is as far out of range as one of 64.
#[test]
fn negative_coordinates_of_32_bits() {
    for device in devices() {
        let i = DeviceBuffer::from_slice(&device, &[0i32, -1]).unwrap();
        let error = DeviceCoo3::pattern([3, 3, 3], [&i; 3]).unwrap().checked(&device.stream()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "entry 1: coordinate 4294967295 of mode 0 is not below 3",
            "on {device}"
        );
    }
    report_missing_gpu("negative coordinates on the device", 1);
}

#[test]
fn arrays_that_do_not_fit_together_are_refused() {
    let (cpu, other) = (Device::cpu(), Device::emulator(EmulatorSchedule::InOrder));
    let one = DeviceBuffer::from_slice(&cpu, &[0i32]).unwrap();
    let two = DeviceBuffer::from_slice(&cpu, &[0i32, 1]).unwrap();
    let values = DeviceBuffer::from_slice(&cpu, &[1.0f32, 2.0]).unwrap();
    let error = DeviceCoo3::new([1, 1, 1], [&one; 3], &values).unwrap_err();
    assert_eq!(
        error.to_string(),
        "values has 2 elements but 1 are needed, one for each coordinate of a mode"
    );
    let error = DeviceCoo3::pattern([2, 2, 2], [&two, &two, &one]).unwrap_err();
    assert_eq!(error.to_string(), "indices of mode 2 has 1 elements but 2 are needed, as of mode 0");
    let error = DeviceCoo3::pattern([1, 1 << 32, 1], [&one; 3]).unwrap_err();
    assert_eq!(error, FormatError::ModeTooLarge { mode: 1, found: 1 << 32 }.into());
    let elsewhere = DeviceBuffer::from_slice(&other, &[0i32]).unwrap();
    let error = DeviceCoo3::pattern([1, 1, 1], [&one, &elsewhere, &one]).unwrap_err();
    assert!(matches!(error, PlanError::WrongDevice { operand: "an array of coordinates", .. }), "{error}");
    let elsewhere = DeviceBuffer::from_slice(&other, &[0.0f32]).unwrap();
    let error = DeviceCoo3::new([1, 1, 1], [&one; 3], &elsewhere).unwrap_err();
    assert!(matches!(error, PlanError::WrongDevice { operand: "the array of values", .. }), "{error}");
    // Addresses are those of PyTorch, and may be anything.
    let fits = [0i64; 2].as_ptr().expose_provenance() as u64;
    let of = |coordinates, values| {
        let addresses = Coo3Addresses { coordinates, values };
        // SAFETY: nothing is read: the addresses are refused.
        unsafe { DeviceCoo3::<f32>::from_raw::<i64>(&cpu, [1, 1, 1], 1, addresses) }.unwrap_err()
    };
    for (coordinates, values) in [([0, fits, fits], fits), ([fits, fits, 0], fits), ([fits; 3], 0)] {
        let error = of(coordinates, values);
        assert!(matches!(error, PlanError::NotDeviceMemory { address: 0, .. }), "{error}");
    }
    let error = of([fits, fits + 4, fits], fits);
    assert!(matches!(error, PlanError::Misaligned { align: 8, .. }), "{error}");
    let error = of([fits; 3], fits + 2);
    assert!(matches!(error, PlanError::Misaligned { align: 4, .. }), "{error}");
}

/// Streams of other devices, orders that are none, and options that have no plan, on the CPU and the emulator.
#[test]
fn plans_that_there_are_not() {
    let a = Coo3::from_entries([2, 2, 2], [([0, 1, 0], 3.0f32), ([1, 1, 1], 4.0)]).unwrap();
    let other = Device::emulator(EmulatorSchedule::InOrder);
    for device in devices() {
        let list = DeviceCoo3::from_host(&device, &a).unwrap();
        let stream = device.stream();
        let is_stream = |error: &PlanError| {
            assert!(matches!(error, PlanError::WrongDevice { operand: "the stream", .. }), "{error}");
        };
        let fibers = list.to_csf([0, 1, 2], &stream).unwrap();
        is_stream(&list.to_csf([0, 1, 2], &other.stream()).unwrap_err());
        is_stream(&list.to_host(&other.stream()).unwrap_err());
        is_stream(&fibers.to_host(&other.stream()).unwrap_err());
        is_stream(&DeviceCoo3::from_host(&device, &a).unwrap().checked(&other.stream()).unwrap_err());
        match Mttkrp::builder(&list).build_on(&other.stream()).unwrap_err() {
            TensorError::Plan(error) => is_stream(&error),
            error => panic!("{error}"),
        }
        match Ttm::builder(&fibers).build_on(&other.stream()).unwrap_err() {
            SpmmError::Plan(error) => is_stream(&error),
            error => panic!("{error}"),
        }
        let error = list.to_csf([0, 1, 1], &stream).unwrap_err();
        assert_eq!(error, FormatError::ModeOrder { found: [0, 1, 1] }.into());
        let error = Mttkrp::builder(&list).mode_order([0, 1, 3]).build_on(&stream).unwrap_err();
        assert_eq!(error.to_string(), "[0, 1, 3] is no order of three modes; give 0, 1 and 2, each once");
        let error = Mttkrp::builder(&list).precision(Precision::Bf16).build_on(&stream).unwrap_err();
        assert_eq!(error, TensorError::Unsupported { precision: Precision::Bf16 });
        let error = Mttkrp::builder(&fibers).parallelism("{<1 row, 1 col>, 1}".parse().unwrap());
        let error = error.build_on(&stream).unwrap_err();
        assert!(matches!(error, TensorError::IllegalPoint(_)), "{error}");
        let error = Mttkrp::builder(&list).memory_limit(10).build_on(&stream).unwrap_err();
        assert!(matches!(error, TensorError::Plan(PlanError::MemoryLimit { .. })), "{error}");
    }
    report_missing_gpu("tensors on the device without a plan", 1);
}
