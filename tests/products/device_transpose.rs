//! Transposes and canonical form of matrices that are on the device: the arrays of the host, bit for bit.

use half::{bf16, f16};
use windrow::{
    Algorithm, Csr, CsrAddresses, Device, DeviceBuffer, DeviceCsr, DeviceKind, DeviceSlice, DeviceSliceMut,
    EmulatorSchedule, Fault, FormatError, Index, PlanError, Precision, Spmm, SpmmOptions, Stream, Transposed,
    Value,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, report_missing_gpu};
use crate::preprocessing::{matrices, same_arrays};

/// Arrays as somebody has them, in any order, and what the host makes of them.
#[derive(Debug, Clone)]
struct Given<V: Value> {
    shape: (usize, usize),
    offsets: Vec<u64>,
    columns: Vec<u32>,
    values: Vec<V>,
}

impl<V: Value> Given<V> {
    fn of(a: &Csr<V>) -> Self {
        let (offsets, columns) = (a.row_offsets().to_vec(), a.col_indices().to_vec());
        Self { shape: (a.rows(), a.cols()), offsets, columns, values: a.values().to_vec() }
    }

    /// Rows of up to `most` entries of any columns, in any order.
    fn random((rows, cols): (usize, usize), most: usize, rng: &mut SplitMix64) -> Self {
        let (mut offsets, mut columns) = (vec![0], Vec::new());
        for _ in 0..rows {
            let length = if rng.below(4) == 0 { 0 } else { rng.below(most + 1) };
            columns.extend((0..length).map(|_| u32::try_from(rng.below(cols)).unwrap()));
            offsets.push(columns.len() as u64);
        }
        let values = columns.iter().map(|_| V::from_f64(rng.below(2000) as f64 / 128.0 - 7.5)).collect();
        Self { shape: (rows, cols), offsets, columns, values }
    }

    fn canonical(&self) -> Csr<V> {
        let Self { shape: (rows, cols), offsets, columns, values } = self.clone();
        Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap()
    }

    /// On a device, with indices of some types.
    fn upload<O: Index, C: Index>(
        &self,
        device: &Device,
        offset: fn(u64) -> O,
        column: fn(u32) -> C,
    ) -> Uploaded<O, C, V> {
        let offsets: Vec<O> = self.offsets.iter().map(|&x| offset(x)).collect();
        let columns: Vec<C> = self.columns.iter().map(|&x| column(x)).collect();
        Uploaded {
            shape: self.shape,
            offsets: DeviceBuffer::from_slice(device, &offsets).unwrap(),
            columns: DeviceBuffer::from_slice(device, &columns).unwrap(),
            values: DeviceBuffer::from_slice(device, &self.values).unwrap(),
        }
    }

    fn i32(&self, device: &Device) -> Uploaded<i32, i32, V> {
        self.upload(device, |x| i32::try_from(x).unwrap(), |x| i32::try_from(x).unwrap())
    }

    fn i64(&self, device: &Device) -> Uploaded<i64, i64, V> {
        self.upload(device, |x| i64::try_from(x).unwrap(), i64::from)
    }
}

struct Uploaded<O: Index, C: Index, V: Value> {
    shape: (usize, usize),
    offsets: DeviceBuffer<O>,
    columns: DeviceBuffer<C>,
    values: DeviceBuffer<V>,
}

impl<O: Index, C: Index, V: Value> Uploaded<O, C, V> {
    fn matrix(&self) -> DeviceCsr<'_, V> {
        let (rows, cols) = self.shape;
        DeviceCsr::new(rows, cols, &self.offsets, &self.columns, &self.values).unwrap()
    }
}

#[track_caller]
fn same_transpose<V: Value>(what: &str, got: &Transposed<V>, a: &Csr<V>, stream: &Stream) {
    let want = a.transpose().unwrap();
    assert!(got.matrix().to_host(stream).unwrap().bitwise_eq(&want), "{what}: another transpose");
    assert_eq!(got.order().to_vec().unwrap(), a.transpose_order().unwrap().new_to_old(), "{what}");
}

/// Each matrix in its turn as windrow's own, and with indices of 32 and of 64 bits, checked and not.
#[track_caller]
fn check_transpose<V: Value>(what: &str, device: &Device, a: &Csr<V>, turn: usize) {
    let (stream, given) = (Stream::new(device).unwrap(), Given::of(a));
    let what = format!("{what} on {device}, turn {}", turn % 4);
    let got = match turn % 4 {
        0 => DeviceCsr::from_host(device, a).unwrap().transposed(&stream),
        1 => given.i64(device).matrix().transposed(&stream),
        2 => given.i32(device).matrix().transposed(&device.stream()),
        _ => given.i64(device).matrix().checked(&stream).unwrap().transposed(&stream),
    };
    same_transpose(&what, &got.unwrap_or_else(|error| panic!("{what}: {error}")), a, &stream);
}

/// Two tiles of a sort and a part of a third, by digits of one pass and of two.
fn larger() -> Vec<(&'static str, Csr<f32>)> {
    let mut rng = SplitMix64::new(0x7a11);
    let mut made = |rows: usize, cols: usize, most: usize| {
        let lengths: Vec<usize> = (0..rows).map(|_| rng.below(most + 1)).collect();
        Pattern::from_lengths(cols, lengths, &mut rng).with_values(Values::Reals, &mut rng)
    };
    vec![("few columns", made(700, 40, 25)), ("many columns", made(900, 3000, 20))]
}

/// Promise, results: the transpose of a matrix on the device has the arrays of the host's, and so has its order.
#[test]
fn transposes_are_those_of_the_host() {
    let all = matrices();
    for (turn, (name, a)) in all.iter().enumerate() {
        for (i, device) in devices().iter().enumerate() {
            check_transpose(name, device, a, turn + i);
        }
    }
    for (name, a) in larger() {
        for (i, device) in devices().iter().enumerate() {
            check_transpose(name, device, &a, i);
        }
    }
    report_missing_gpu("transposes on the device", all.len() + 2);
}

fn typed<V: Value>(a: &Csr<f32>) -> Csr<V> {
    a.with_values(a.values().iter().map(|&x| V::from_f64(f64::from(x))).collect()).unwrap()
}

#[test]
fn transposes_of_values_of_any_type_and_none() {
    let (_, a) = &matrices()[10];
    for (i, device) in devices().iter().enumerate() {
        check_transpose("f64", device, &typed::<f64>(a), i);
        check_transpose("f16", device, &typed::<f16>(a), i + 1);
        check_transpose("bf16", device, &typed::<bf16>(a), i + 2);
        let (stream, uploaded) = (device.stream(), Given::of(a).i32(device));
        let pattern = DeviceCsr::pattern(a.rows(), a.cols(), &uploaded.offsets, &uploaded.columns).unwrap();
        let ones = a.with_values(vec![1.0f32; a.nnz()]).unwrap();
        same_transpose("no values", &pattern.transposed(&stream).unwrap(), &ones, &stream);
    }
    report_missing_gpu("transposes of other types", 4);
}

/// Promise, results: a plan of a transpose made on the device holds what the plan of the host's transpose does, and
/// takes values in the order of the matrix without another transposition.
#[test]
fn plans_of_transposes_take_values_in_the_order_of_the_matrix() {
    let (_, a) = &matrices()[13];
    let (at, order) = (a.transpose().unwrap(), a.transpose_order().unwrap());
    let new: Vec<f32> = (0..a.nnz()).map(|i| 0.5 + (i % 50) as f32).collect();
    let tiles = SpmmOptions {
        algorithm: Algorithm::TileStream,
        precision: Precision::F16,
        width: 40,
        ..SpmmOptions::default()
    };
    for device in devices() {
        let stream = Stream::new(&device).unwrap();
        let uploaded = Given::of(a).i64(&device);
        let transposed = uploaded.matrix().transposed(&stream).unwrap();
        let values = DeviceBuffer::from_slice(&device, &new).unwrap();
        let mut brought = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
        transposed.values_on(&stream, &values, &mut brought).unwrap();
        assert_eq!(brought.to_vec().unwrap(), order.apply(&new), "on {device}");
        let wide = DeviceBuffer::from_slice(&device, &new.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())
            .unwrap();
        let mut wide_brought = DeviceBuffer::<f64>::alloc_zeroed(&device, a.nnz()).unwrap();
        transposed.values_on(&device.stream(), &wide, &mut wide_brought).unwrap();
        assert!(
            wide_brought.to_vec().unwrap().iter().zip(order.apply(&new)).all(|(&x, y)| x == f64::from(y))
        );
        if device.kind() == DeviceKind::Cpu {
            continue;
        }
        for options in
            [SpmmOptions { width: 4, algorithm: Algorithm::RowSplit, ..SpmmOptions::default() }, tiles]
        {
            let what = format!("{options:?} on {device}");
            let mut want = Spmm::builder(&at).options(options).value_order(&order).build(&device).unwrap();
            let mut got = Spmm::builder(transposed.matrix()).options(options).build_on(&stream).unwrap();
            same_arrays(&what, &want, &got);
            assert_eq!(got.report().preprocessing_reason, "the matrix is there", "{what}");
            want.replace_values(&new).unwrap();
            got.replace_values_on(&stream, &brought).unwrap();
            same_arrays(&what, &want, &got);
        }
    }
    report_missing_gpu("plans of transposes", 2);
}

#[track_caller]
fn check_canonical<V: Value>(what: &str, device: &Device, given: &Given<V>, turn: usize) {
    let (stream, want) = (Stream::new(device).unwrap(), given.canonical());
    let got = match turn % 2 {
        0 => given.i64(device).matrix().canonical(&stream),
        _ => given.i32(device).matrix().canonical(&device.stream()),
    };
    let got = got.unwrap_or_else(|error| panic!("{what} on {device}: {error}")).to_host(&stream).unwrap();
    assert!(got.bitwise_eq(&want), "{what} on {device}: another canonical form");
}

/// Promise, results: entries of a matrix on the device in any order, and several of one place, become what the host
/// makes of them, sums bit for bit.
#[test]
fn canonical_form_is_that_of_the_host() {
    let mut rng = SplitMix64::new(0xca0);
    for (i, device) in devices().iter().enumerate() {
        let small = Given::<f32>::random((30, 9), 12, &mut rng);
        check_canonical("f32", device, &small, i);
        check_canonical("f64", device, &Given::<f64>::random((12, 5), 30, &mut rng), i);
        check_canonical("f16", device, &Given::<f16>::random((40, 30), 25, &mut rng), i + 1);
        check_canonical("bf16", device, &Given::<bf16>::random((5, 2), 60, &mut rng), i);
        check_canonical("one place", device, &Given::<f32>::random((1, 1), 300, &mut rng), i);
        check_canonical("two passes", device, &Given::<f32>::random((700, 900), 3, &mut rng), i);
        check_canonical("many tiles", device, &Given::<f32>::random((20, 40), 900, &mut rng), i);
        for (turn, (name, a)) in matrices().iter().enumerate() {
            check_canonical(name, device, &Given::of(a), turn);
        }
        // Entries without values are counted.
        let ones = Given { values: vec![1.0f32; small.values.len()], ..small };
        let (uploaded, stream) = (ones.i32(device), device.stream());
        let pattern = DeviceCsr::pattern(30, 9, &uploaded.offsets, &uploaded.columns).unwrap();
        let got = pattern.canonical(&stream).unwrap().to_host(&stream).unwrap();
        assert!(got.bitwise_eq(&ones.canonical()), "no values on {device}");
    }
    report_missing_gpu("canonical form on the device", 8 + matrices().len());
}

/// A hundred patterns: canonical form, and the transpose of that.
#[test]
fn random_patterns() {
    let (mut rng, devices) = (SplitMix64::new(100), devices());
    for case in 0..100 {
        let shape = (1 + rng.below(40), 1 + rng.below(if case % 3 == 0 { 2000 } else { 30 }));
        let given = Given::<f32>::random(shape, 1 + rng.below(20), &mut rng);
        let device = &devices[case % devices.len()];
        check_canonical("random", device, &given, case);
        check_transpose("random", device, &given.canonical(), case / devices.len());
    }
    report_missing_gpu("random patterns on the device", 100);
}

#[test]
fn what_is_wrong_is_told_by_row_and_place() {
    for device in devices() {
        let stream = device.stream();
        let refuse = |offsets: &[i64], columns: &[i64], canonical: bool| {
            let offsets = DeviceBuffer::from_slice(&device, offsets).unwrap();
            let columns = DeviceBuffer::from_slice(&device, columns).unwrap();
            let a = DeviceCsr::pattern(offsets.len() - 1, 4, &offsets, &columns).unwrap();
            let error = match canonical {
                true => a.canonical(&stream).map(|_| ()),
                false => a.transposed(&stream).map(|_| ()),
            };
            match error.unwrap_err() {
                PlanError::Format(error) => error,
                other => panic!("{other}"),
            }
        };
        for canonical in [true, false] {
            let told = |offsets: &[i64], columns: &[i64]| refuse(offsets, columns, canonical);
            assert!(matches!(told(&[1, 1], &[0]), FormatError::FirstOffset { found: 1 }));
            assert!(matches!(told(&[0, 2, 1, 2], &[0, 1]), FormatError::OffsetsDecrease { row: 1, .. }));
            assert!(matches!(told(&[0, 1], &[0, 1]), FormatError::LastOffset { found: 1, entries: 2 }));
            assert!(matches!(told(&[0], &[0]), FormatError::LastOffset { found: 0, entries: 1 }));
            let far = told(&[0, 1, 3], &[3, 2, 1 << 40]);
            assert!(
                matches!(far, FormatError::ColumnOutOfRange { row: 1, entry: 2, column, cols: 4 } if column == 1 << 40),
                "{far}"
            );
            assert!(matches!(told(&[0, 1], &[-1]), FormatError::ColumnOutOfRange { row: 0, entry: 0, .. }));
        }
        assert!(matches!(refuse(&[0, 2], &[1, 0], false), FormatError::ColumnsNotAscending { row: 0, .. }));
        let a = DeviceCsr::from_host(&device, &Csr::<f32>::identity(3).unwrap()).unwrap();
        let other = Device::cpu().stream();
        if device.stream().device().to_string() != other.device().to_string() {
            assert!(matches!(a.transposed(&other).unwrap_err(), PlanError::WrongDevice { .. }));
            assert!(matches!(a.canonical(&other).unwrap_err(), PlanError::WrongDevice { .. }));
        }
        let at = a.transposed(&stream).unwrap();
        let values = DeviceBuffer::from_slice(&device, &[1.0f32; 3]).unwrap();
        let mut fewer = DeviceBuffer::<f32>::alloc_zeroed(&device, 2).unwrap();
        let error = at.values_on(&stream, &values, &mut fewer).unwrap_err();
        assert!(matches!(error, PlanError::ValueCount { found: 2, expected: 3, .. }), "{error}");
    }
    report_missing_gpu("refused transposes", 13);
}

/// Memory of another's, which nothing of windrow's frees.
#[test]
fn arrays_may_be_borrowed() {
    let (_, a) = &matrices()[10];
    let given = Given::of(a);
    for device in devices() {
        let (stream, uploaded) = (Stream::new(&device).unwrap(), given.i64(&device));
        let addresses = CsrAddresses {
            offsets: uploaded.offsets.address(),
            columns: uploaded.columns.address(),
            values: uploaded.values.address(),
        };
        // SAFETY: arrays of these lengths, which live to the end of the turn.
        let matrix =
            unsafe { DeviceCsr::<f32>::from_raw::<i64, i64>(&device, given.shape, a.nnz(), addresses) };
        let transposed = matrix.unwrap().transposed(&stream).unwrap();
        same_transpose("borrowed", &transposed, a, &stream);
        let to = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
        // SAFETY: as above; the work is waited for.
        let (from, into) = unsafe {
            (
                DeviceSlice::<f32>::from_raw(&device, addresses.values, a.nnz()).unwrap(),
                DeviceSliceMut::<f32>::from_raw(&device, to.address(), a.nnz()).unwrap(),
            )
        };
        transposed.values_on(&stream, from, into).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(to.to_vec().unwrap(), a.transpose().unwrap().values(), "on {device}");
        assert!(uploaded.matrix().to_host(&stream).unwrap().bitwise_eq(a), "on {device}");
    }
    report_missing_gpu("borrowed transposes", 1);
}

/// A transpose, its order, and values that were brought to that.
type Found = (Csr<f32>, Vec<u32>, Vec<f32>);

/// Whichever call to a device fails, for want of memory or otherwise: there is an error, nothing is left on the device,
/// and what it does next is right.
#[test]
fn a_fault_at_any_call_is_an_error_and_leaves_nothing() {
    let mut rng = SplitMix64::new(0xfa);
    let given = Given::<f32>::random((20, 600), 12, &mut rng);
    let a = given.canonical();
    let (want, order) = (a.transpose().unwrap(), a.transpose_order().unwrap());
    let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
    let whole = || -> Result<Found, PlanError> {
        let stream = Stream::new(&device)?;
        let offsets: Vec<u32> = given.offsets.iter().map(|&x| u32::try_from(x).unwrap()).collect();
        let offsets = DeviceBuffer::from_slice(&device, &offsets)?;
        let columns = DeviceBuffer::from_slice(&device, &given.columns)?;
        let values = DeviceBuffer::from_slice(&device, &given.values)?;
        let matrix = DeviceCsr::new(given.shape.0, given.shape.1, &offsets, &columns, &values)?;
        let canonical = matrix.canonical(&stream)?;
        let transposed = canonical.transposed(&stream)?;
        let ones = DeviceBuffer::from_slice(&device, &vec![1.0f32; a.nnz()])?;
        let mut brought = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz())?;
        transposed.values_on(&stream, &ones, &mut brought)?;
        Ok((transposed.matrix().to_host(&stream)?, transposed.order().to_vec()?, brought.to_vec()?))
    };
    let is_right = |(transpose, found, brought): &Found| {
        transpose.bitwise_eq(&want) && found == order.new_to_old() && brought.iter().all(|&x| x == 1.0)
    };
    assert!(is_right(&whole().unwrap()));
    let before = faults.calls();
    assert!(is_right(&whole().unwrap()));
    let calls = faults.calls() - before;
    assert!(calls > 40, "{calls} calls");
    let mut refused = 0;
    for fault in [Fault::Refused, Fault::Late, Fault::Sticky] {
        for at in 0..calls {
            faults.plan(at, fault);
            let outcome = whole();
            let what = format!("call {at} ({:?}), {fault:?}", faults.clear());
            match outcome {
                Ok(found) => assert!(is_right(&found), "{what}: another result"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("a fault that was asked for") || text.contains("do not fit"),
                        "{what}: {text}"
                    );
                    refused += 1;
                }
            }
            assert_eq!(faults.allocated(), (0, 0), "{what}");
        }
        assert!(is_right(&whole().unwrap()), "after all {fault:?}");
    }
    assert!(refused > 2 * calls, "{refused} of {calls} in three ways");
}
