//! Products of matrices on the device without a plan.

use half::{bf16, f16};
use windrow::internal::kernel_without_plan;
use windrow::{
    Algorithm, Csr, Device, DeviceBuffer, DeviceCsr, DeviceKind, DeviceMatrix, Element, Index, Precision,
    Spmm, SpmmError, Value,
};
use windrow_testkit::{
    Case, Comparison, Operands, PADDING_MARK, Pattern, SplitMix64, UNIT_FMA, Values, assert_matches,
};

use crate::common::{
    Layout, by_turns, devices, every_case, kernel_devices, place, relaid, report_missing_gpu,
};
use crate::device_csr::{of_i32, of_i64};

/// Runs a case of which `B` is rounded, its matrix in one of three forms, and compares all of `C`.
#[track_caller]
fn run<B: Element, C: Element<Sum = B::Sum> + windrow_testkit::Output>(
    device: &Device,
    case: &Case,
    layout: Layout,
    form: usize,
) -> Comparison {
    let (m, k, n) = (case.m(), case.k(), case.n);
    let [alpha, beta] = [case.alpha, case.beta].map(<B::Sum as Value>::from_f32);
    let (ldb, ldc) = match layout {
        Layout::Aligned => (n.next_multiple_of(16 / size_of::<B>()), n.next_multiple_of(16 / size_of::<C>())),
        _ => (case.ldb, case.ldc),
    };
    let b = place::<B>(device, (&case.b, k, n, case.ldb), ldb, f32::NAN);
    let mut c = place::<C>(device, (&case.c, m, n, case.ldc), ldc, PADDING_MARK);
    let once = |a: &DeviceCsr<'_, f32>, c: &mut DeviceMatrix<C>| {
        let builder = Spmm::builder(a).precision(precision_of::<B>());
        let ran = builder.run_once_on(&device.stream(), alpha, &b, beta, c);
        ran.unwrap_or_else(|error| panic!("{} on {device}, {layout:?}: {error}", case.name));
    };
    match form {
        0 => once(&DeviceCsr::from_host(device, &case.a).unwrap(), &mut c),
        1 => once(&of_i32(device, &case.a).matrix(), &mut c),
        _ => once(&of_i64(device, &case.a).matrix(), &mut c),
    }
    let got = c.buffer().to_vec().unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name));
    // Values are not rounded, and products of them and a narrower B are: the bound of f32 covers that.
    let unit = if size_of::<B::Sum>() == 8 { 2.0 * UNIT_FMA * UNIT_FMA / 32.0 } else { UNIT_FMA };
    let comparison = assert_matches(&relaid(case, ldc), &got, ldc, unit);
    if n > 0 && m > 0 {
        let mark = C::from_f32(PADDING_MARK);
        assert!(got[(m - 1) * ldc + n..].iter().all(|&x| x == mark), "{}: written past C", case.name);
    }
    comparison
}

fn precision_of<B: Element>() -> Precision {
    Precision::ALL.into_iter().find(|precision| precision.element() == B::NAME).unwrap()
}

/// The case as a product without a plan takes it: values as they are, but on the CPU, which makes a plan; `B` rounded,
/// and a `C` that can be.
fn rounded<B: Value, C: Value>(device: &Device, case: &Case) -> Case {
    let c = case.with_c_rounded_to::<C>().c;
    let rounded = case.rounded_to::<B>();
    let a = if device.kind() == DeviceKind::Cpu { &rounded.a } else { &case.a };
    Case { a: a.clone(), c, ..rounded }
}

#[track_caller]
fn check<B: Element, C: Element<Sum = B::Sum> + windrow_testkit::Output>() {
    let cases = every_case(0);
    let layouts = [Layout::AsGiven, Layout::Aligned];
    let what = format!("no plan, {} to {}", B::NAME, C::NAME);
    by_turns(&what, 2 * cases.len(), |device, turn, ran| {
        let (case, layout) = (rounded::<B, C>(device, &cases[turn / 2]), layouts[turn % 2]);
        let vectors = layout == Layout::Aligned || (case.ldb * size_of::<B>()).is_multiple_of(16);
        let n = u32::try_from(case.n).unwrap();
        let kernel = kernel_without_plan(precision_of::<B>(), n, vectors).unwrap();
        ran.note(device, turn, [(kernel.name, vectors)]);
        run::<B, C>(device, &case, layout, turn % 3)
    });
}

#[test]
fn every_case_in_f32() {
    check::<f32, f32>();
}

#[test]
fn every_case_in_f16() {
    check::<f16, f32>();
}

#[test]
fn every_case_in_bf16() {
    check::<bf16, f32>();
}

#[test]
fn every_case_in_f64() {
    check::<f64, f64>();
}

#[test]
fn every_case_to_narrow_results() {
    check::<f16, f16>();
    check::<f32, bf16>();
}

/// Rows that go on in many blocks, in a few and in the next one, among empty ones.
fn long_rows() -> Pattern {
    let lengths = [3, 6000, 0, 0, 127, 1, 128, 129, 700, 0, 2, 255, 64, 0];
    let empty = std::iter::repeat_n(0, 400);
    let lengths = lengths.into_iter().chain(empty).chain([300, 0, 1]);
    Pattern::from_lengths(6000, lengths, &mut SplitMix64::new(0x10))
}

#[test]
fn rows_go_on_from_block_to_block() {
    let pattern = long_rows();
    let widths = [1, 4, 9, 33, 64, 128, 136];
    by_turns("no plan, long rows", widths.len() * 4, |device, turn, _| {
        let n = widths[turn / 4];
        let (padding, values) = [(0, Values::Integers), (3, Values::Reals)][turn % 2];
        let operands = Operands { n, padding, scalars: (-2.0, 0.5), values, poison: false };
        let case = Case::from_pattern("long rows", &pattern, operands, &mut SplitMix64::new(n as u64));
        match turn % 4 {
            0 | 1 => run::<f32, f32>(device, &case, Layout::AsGiven, turn % 3),
            2 => run::<f16, f32>(device, &rounded::<f16, f32>(device, &case), Layout::Aligned, turn % 3),
            _ => run::<f64, f64>(device, &case, Layout::Aligned, turn % 3),
        }
    });
}

/// A row that goes on in more blocks than one warp adds up, whatever the number of multiprocessors, beside short ones.
#[test]
fn the_longest_row_is_added_up_by_a_block() {
    let lengths = [2, 70_000, 3, 0, 1];
    let pattern = Pattern::from_lengths(70_000, lengths, &mut SplitMix64::new(0x11));
    let widths = [1, 6, 36];
    by_turns("no plan, the longest row", widths.len() * 2, |device, turn, _| {
        let n = widths[turn / 2];
        let values = [Values::Integers, Values::Reals][turn % 2];
        let operands = Operands { n, padding: 0, scalars: (1.0, 0.0), values, poison: false };
        let case = Case::from_pattern("the longest row", &pattern, operands, &mut SplitMix64::new(n as u64));
        match turn % 2 {
            0 => run::<f32, f32>(device, &case, Layout::Aligned, turn % 3),
            _ => run::<f64, f64>(device, &case, Layout::AsGiven, turn % 3),
        }
    });
}

#[test]
fn the_bits_are_the_same_in_every_run() {
    let a = long_rows().with_values(Values::Reals, &mut SplitMix64::new(7));
    let mut rng = SplitMix64::new(8);
    let b: Vec<f32> = (0..a.cols() * 40).map(|_| rng.real()).collect();
    let mut bits: Option<Vec<u32>> = None;
    for device in devices() {
        if device.kind() == DeviceKind::Cpu {
            continue;
        }
        let b = place::<f32>(&device, (&b, a.cols(), 40, 40), 40, 0.0);
        for _ in 0..2 {
            let mut c = DeviceMatrix::<f32>::zeros(&device, a.rows(), 40).unwrap();
            let a = of_i64(&device, &a);
            Spmm::builder(&a.matrix()).run_once_on(&device.stream(), 1.0, &b, 0.0, &mut c).unwrap();
            let found: Vec<u32> = c.download().unwrap().into_iter().map(f32::to_bits).collect();
            // Blocks are divided by the number of multiprocessors, which the emulator has its own of.
            match (&bits, device.kind()) {
                (Some(bits), DeviceKind::Emulator) => assert!(*bits == found, "on {device}"),
                _ => bits = Some(found),
            }
        }
    }
    report_missing_gpu("bits of products without a plan", 1);
}

/// The product of ones with a matrix of these arrays, `columns` wide.
fn of_arrays<O: Index, C: Index, V: Value>(
    device: &Device,
    (offsets, columns): (&[O], &[C]),
    values: Option<&[V]>,
    cols: usize,
) -> Vec<f32> {
    let offsets_there = DeviceBuffer::from_slice(device, offsets).unwrap();
    let columns_there = DeviceBuffer::from_slice(device, columns).unwrap();
    let b = place::<f32>(device, (&vec![1.0; 3 * cols], cols, 3, 3), 4, f32::NAN);
    let mut c = DeviceMatrix::<f32>::zeros(device, offsets.len() - 1, 3).unwrap();
    let on = device.stream();
    match values {
        None => {
            let a = DeviceCsr::pattern(offsets.len() - 1, cols, &offsets_there, &columns_there).unwrap();
            Spmm::builder(&a).run_once_on(&on, 1.0, &b, 0.0, &mut c).unwrap();
        }
        Some(values) => {
            let values = DeviceBuffer::from_slice(device, values).unwrap();
            let rows = offsets.len() - 1;
            let a = DeviceCsr::new(rows, cols, &offsets_there, &columns_there, &values).unwrap();
            Spmm::builder(&a).run_once_on(&on, 1.0, &b, 0.0, &mut c).unwrap();
        }
    }
    c.download().unwrap()
}

#[test]
fn values_of_every_type_and_of_none() {
    let (offsets, columns) = ([0i64, 2, 2, 3], [0i64, 2, 1]);
    let want = |x: f32, y: f32| [[x; 3], [0.0; 3], [y; 3]].concat();
    for device in devices() {
        let none = of_arrays::<_, _, f32>(&device, (&offsets, &columns), None, 3);
        assert_eq!(none, want(2.0, 1.0), "{device}");
        let f32s = of_arrays(&device, (&offsets, &columns), Some(&[1.5f32, 2.0, -4.0]), 3);
        let f64s = of_arrays(&device, (&offsets, &columns), Some(&[1.5f64, 2.0, -4.0]), 3);
        let f16s = of_arrays(&device, (&offsets, &columns), Some(&[1.5, 2.0, -4.0].map(f16::from_f32)), 3);
        let bf16s = of_arrays(&device, (&offsets, &columns), Some(&[1.5, 2.0, -4.0].map(bf16::from_f32)), 3);
        for found in [f32s, f64s, f16s, bf16s] {
            assert_eq!(found, want(3.5, -4.0), "{device}");
        }
    }
    report_missing_gpu("values of products without a plan", 1);
}

#[test]
fn columns_need_not_ascend() {
    for device in kernel_devices(0) {
        let found =
            of_arrays(&device, (&[0i32, 4, 5], &[3i64, 1, 1, 0, 2]), Some(&[1.0f32, 2.0, 4.0, 8.0, 16.0]), 4);
        assert_eq!(found, [[15.0; 3], [16.0; 3]].concat(), "{device}");
    }
    report_missing_gpu("unsorted columns", 1);
}

#[test]
fn wrong_matrices_make_everything_nan() {
    let long: Vec<i64> = (0..=3000).map(|row| row * 5).collect();
    let with = |at: usize, wrong: i64| {
        let mut offsets = long.clone();
        offsets[at] = wrong;
        offsets
    };
    let columns: Vec<i64> = (0..15_000).map(|i| i % 5).collect();
    let wrong_column = |at: usize, wrong: i64| {
        let mut columns = columns.clone();
        columns[at] = wrong;
        columns
    };
    let wrong_offsets = [
        with(0, 1),
        with(0, -1),
        with(1, -7),
        with(700, 3490),
        with(700, 3506),
        with(1500, 1 << 40),
        with(1500, 0),
        with(1500, 15_000),
        with(3000, 14_999),
        with(3000, 15_001),
        vec![0; 3001],
        vec![15_000; 3001],
        (0..=3000).rev().map(|row| row * 5).collect(),
        (0..=3000).map(|row| row * 7919 % 15_001).collect(),
    ];
    let wrong_columns = [
        wrong_column(0, 5),
        wrong_column(7777, -1),
        wrong_column(7777, 1 << 32),
        wrong_column(14_999, i64::MAX),
    ];
    for (turn, offsets) in wrong_offsets.iter().enumerate() {
        for device in kernel_devices(turn) {
            let found = of_arrays::<_, _, f32>(&device, (offsets, &columns), None, 5);
            assert!(found.iter().all(|x| x.is_nan()), "offsets {turn} on {device}");
        }
    }
    for (turn, columns) in wrong_columns.iter().enumerate() {
        for device in kernel_devices(turn) {
            let found = of_arrays::<_, _, f32>(&device, (&long, columns), None, 5);
            assert!(found.iter().all(|x| x.is_nan()), "columns {turn} on {device}");
        }
    }
    for device in kernel_devices(1) {
        let found = of_arrays::<_, _, f32>(&device, (&long, &columns), None, 5);
        assert!(found.iter().all(|&x| x == 5.0), "nothing stays wrong on {device}");
    }
    report_missing_gpu("wrong matrices without a plan", wrong_offsets.len() + wrong_columns.len() + 1);
}

#[test]
fn what_is_asked_for_is_planned() {
    for device in devices() {
        let arrays = of_i32(&device, &Csr::<f32>::identity(5).unwrap());
        let a = arrays.matrix();
        let b = place::<f32>(&device, (&[1.0, 2.0, 3.0, 4.0, 5.0], 5, 1, 1), 1, f32::NAN);
        let mut c = DeviceMatrix::<f32>::zeros(&device, 5, 1).unwrap();
        let on = device.stream();
        let asked = Spmm::builder(&a).algorithm(Algorithm::RowSplit);
        asked.run_once_on(&on, 1.0, &b, 0.0, &mut c).unwrap();
        assert_eq!(c.download().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0], "{device}");
        // With a plan there are the plan's errors.
        let error = Spmm::builder(&a).algorithm(Algorithm::TileStream).precision(Precision::F32);
        let error = error.run_once_on(&on, 1.0, &b, 0.0, &mut c);
        assert!(matches!(error, Err(SpmmError::Unsupported { .. })), "{device}: {error:?}");
        let wide = DeviceMatrix::<f32>::zeros(&device, 4, 1).unwrap();
        let error = Spmm::builder(&a).run_once_on(&on, 1.0, &wide, 0.0, &mut c).unwrap_err();
        assert_eq!(error.to_string(), "A has 5 columns but B has 4 rows; they must be equal");
        let halves = DeviceMatrix::<f16>::zeros(&device, 5, 1).unwrap();
        let error = Spmm::builder(&a).run_once_on(&on, 1.0, &halves, 0.0, &mut c).unwrap_err();
        assert!(error.to_string().contains("f16"), "{error}");
    }
    report_missing_gpu("products that are planned", 1);
}
