//! Tensors that are on the device: the fibers, the plans and the products of the same tensor on the host, bit for bit.

use half::{bf16, f16};
use windrow::internal::{mttkrp_arrays, ttm_arrays};
use windrow::{
    Algorithm, Coo3, Coo3Addresses, Csf3, Csr, DenseRef, Device, DeviceBuffer, DeviceCoo3, DeviceCsf3,
    DeviceIndices, DeviceKind, DeviceMatrix, DeviceView, DeviceViewMut, GroupLaunch, Index, Mttkrp,
    MttkrpPlan, Precision, Preprocessing, Spmm, Stream, Ttm, Value, with_element,
};
use windrow_testkit::{SplitMix64, tensor_cases};

use crate::common::{devices, gpu, kernel_devices, report_missing_gpu};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The tensors of all tests of products, in another order of their entries, and lists in which most places come again
/// and again, far from each other.
fn tensors() -> Vec<(String, Coo3<f32>)> {
    let mut rng = SplitMix64::new(0xc003);
    let mut tensors: Vec<_> = tensor_cases()
        .into_iter()
        .map(|case| {
            let mut entries: Vec<_> = case.tensor.entries().collect();
            for end in (1..entries.len()).rev() {
                entries.swap(end, rng.below(end + 1));
            }
            (case.name, Coo3::from_entries(case.tensor.dims(), entries).unwrap())
        })
        .collect();
    for (name, dims, draws) in [("repeated", [7, 5, 6], 700), ("one place", [9, 1, 300], 40)] {
        let entries = (0..draws).map(|_| {
            let index = if name == "one place" { [4, 0, 299] } else { dims.map(|dim| rng.below(dim)) };
            (index.map(|index| u32::try_from(index).unwrap()), rng.real())
        });
        tensors.push((name.to_owned(), Coo3::from_entries(dims, entries.collect::<Vec<_>>()).unwrap()));
    }
    tensors
}

/// The same places with values of another type, each rounded.
fn typed<V: Value>(a: &Coo3<f32>) -> Coo3<V> {
    Coo3::from_entries(a.dims(), a.entries().map(|(index, value)| (index, V::from_f32(value)))).unwrap()
}

/// The arrays of a tensor on a device.
struct Arrays<I: Index, V: Value> {
    dims: [usize; 3],
    coordinates: [DeviceBuffer<I>; 3],
    values: DeviceBuffer<V>,
}

impl<I: Index + TryFrom<u32>, V: Value> Arrays<I, V> {
    fn upload(device: &Device, a: &Coo3<V>) -> Self {
        let coordinates = [0, 1, 2].map(|mode| {
            let of_mode: Vec<I> = a.indices(mode).iter().map(|&i| I::try_from(i).ok().unwrap()).collect();
            DeviceBuffer::from_slice(device, &of_mode).unwrap()
        });
        Self { dims: a.dims(), coordinates, values: DeviceBuffer::from_slice(device, a.values()).unwrap() }
    }

    fn tensor(&self) -> DeviceCoo3<'_, V> {
        DeviceCoo3::new(self.dims, self.coordinates.each_ref(), &self.values).unwrap()
    }
}

/// Compares all arrays, values by their bits.
#[track_caller]
fn same_fibers<V: Value>(what: &str, got: &Csf3<V>, want: &Csf3<V>) {
    assert_eq!((got.dims(), got.mode_order()), (want.dims(), want.mode_order()), "{what}");
    assert_eq!(
        (got.root_indices(), got.root_offsets()),
        (want.root_indices(), want.root_offsets()),
        "{what}"
    );
    assert_eq!(got.fiber_indices(), want.fiber_indices(), "{what}");
    assert_eq!(got.fiber_offsets(), want.fiber_offsets(), "{what}");
    assert_eq!(got.leaf_indices(), want.leaf_indices(), "{what}");
    let bits = |a: &Csf3<V>| bytemuck::cast_slice::<V, u8>(a.values()).to_vec();
    assert!(bits(got) == bits(want), "values of {what}");
}

#[track_caller]
fn check_fibers<V: Value>(what: &str, list: &DeviceCoo3<'_, V>, host: &Coo3<V>, order: [usize; 3]) {
    let stream = list.device().stream();
    let what = format!("{what}, {order:?}, {list:?}");
    let want = host.to_csf(order).unwrap();
    let got = list.to_csf(order, &stream).unwrap_or_else(|error| panic!("{what}: {error}"));
    let counts = |fibers: usize, roots, nnz, summed| (fibers, roots, nnz, summed);
    assert_eq!(
        counts(got.fibers(), got.roots(), got.nnz(), got.summed_duplicates()),
        counts(want.fibers(), want.roots(), want.nnz(), want.summed_duplicates()),
        "{what}"
    );
    same_fibers(&what, &got.to_host(&stream).unwrap(), &want);
}

/// Promise, results: the coordinates of a tensor on the device in any order, and several of one place, become the
/// fibers that the host makes of them, sums bit for bit.
#[test]
fn fibers_are_those_of_the_host() {
    // In every order of the modes, with coordinates of 32 and of 64 bits by turns.
    let tensors = tensors();
    for (at, (name, host)) in tensors.iter().enumerate() {
        for (turn, order) in ORDERS.into_iter().enumerate() {
            for device in kernel_devices(at + turn) {
                match (at + turn / 2) % 2 {
                    0 => check_fibers(name, &Arrays::<i32, _>::upload(&device, host).tensor(), host, order),
                    _ => check_fibers(name, &Arrays::<i64, _>::upload(&device, host).tensor(), host, order),
                }
            }
        }
    }
    report_missing_gpu("fibers of tensors on the device", tensors.len() * ORDERS.len());
}

/// Under every schedule and on the CPU: sums of duplicates in each type, and the number of entries of each place where
/// there are no values; coordinates of which only one mode has 64 bits.
#[test]
fn values_and_coordinates_of_any_type() {
    fn check<V: Value>(device: &Device, host: &Coo3<f32>) {
        let typed = typed::<V>(host);
        check_fibers(V::NAME, &Arrays::<u32, V>::upload(device, &typed).tensor(), &typed, [1, 0, 2]);
        check_fibers(V::NAME, &DeviceCoo3::from_host(device, &typed).unwrap(), &typed, [2, 1, 0]);
    }
    let (_, host) = tensors().pop().unwrap();
    let repeated = &tensors().into_iter().rev().nth(1).unwrap().1;
    for device in devices() {
        for host in [&host, repeated] {
            check::<f32>(&device, host);
            check::<f64>(&device, host);
            check::<f16>(&device, host);
            check::<bf16>(&device, host);
        }
        let ones = Coo3::from_entries(repeated.dims(), repeated.entries().map(|(index, _)| (index, 1.0f32)));
        let arrays = Arrays::<u64, f32>::upload(&device, repeated);
        let [i, j, _] = &arrays.coordinates;
        let narrow = DeviceBuffer::from_slice(&device, repeated.indices(2)).unwrap();
        let coordinates: [DeviceIndices<'_>; 3] = [i.into(), j.into(), (&narrow).into()];
        let list = DeviceCoo3::pattern(repeated.dims(), coordinates).unwrap();
        check_fibers("pattern", &list, &ones.unwrap(), [2, 0, 1]);
    }
    report_missing_gpu("values of tensors on the device", 9);
}

/// More entries than a tile of the sort, of modes with more bits than a digit of it.
#[test]
fn more_entries_than_a_sort_takes_at_once() {
    let mut rng = SplitMix64::new(3);
    let dims = [70_000, 3, 1 << 20];
    let entries: Vec<_> = (0..9000)
        .map(|_| (dims.map(|dim: usize| u32::try_from(rng.below(dim) / 64 * 64).unwrap()), rng.real()))
        .map(|([i, j, k], value)| ([i / 4096 * 4096, j, k / 65_536 * 65_536], value))
        .collect();
    let host = Coo3::from_entries(dims, entries).unwrap();
    let device = gpu().unwrap_or_else(|| kernel_devices(0).remove(0));
    check_fibers("large", &Arrays::<i64, _>::upload(&device, &host).tensor(), &host, [2, 0, 1]);
    report_missing_gpu("larger tensors on the device", 1);
}

#[track_caller]
fn same_arrays(what: &str, got: &[(&str, Vec<u8>)], want: &[(&str, Vec<u8>)]) {
    for ((name, got), (_, want)) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len(), "bytes of {name}: {what}");
        let differs = want.iter().zip(got).position(|(want, got)| want != got);
        assert_eq!(differs, None, "first byte of {name} that differs: {what}");
    }
    assert_eq!(got.len(), want.len(), "{what}");
}

/// Columns of products, and the scalars.
const WIDTH: usize = 5;

/// Numbers for a factor.
fn factor<T: Value>(rows: usize, seed: usize) -> Vec<T> {
    (0..rows * WIDTH).map(|i| T::from_f32(((i * 7 + seed) % 23) as f32 / 8.0 - 1.0)).collect()
}

/// What a plan makes of made-up factors of its type, in bits.
fn product(plan: &MttkrpPlan) -> Vec<u8> {
    let [_, b, c] = plan.dims();
    with_element!(plan.precision(), T => {
        bytemuck::cast_slice(&plan.run(&factor::<T>(b, 1), &factor::<T>(c, 2)).unwrap()).to_vec()
    })
}

/// Facts of a report that do not depend on where the plan was made, and that it was made on the device.
#[track_caller]
fn same_plan(what: &str, got: &MttkrpPlan, want: &MttkrpPlan, on_gpu: bool) {
    same_arrays(what, &mttkrp_arrays(got).unwrap(), &mttkrp_arrays(want).unwrap());
    let facts = |plan: &MttkrpPlan| {
        let r = plan.report().clone();
        let counts = (r.dims, r.mode_order, r.nnz, r.fibers, r.empty_slices, r.split_slices);
        (counts, r.parallelism, r.entries, r.arrays, r.device_bytes, r.workspace_bytes)
    };
    assert_eq!(facts(got), facts(want), "{what}");
    let expected = if on_gpu { Preprocessing::Gpu } else { Preprocessing::Cpu };
    assert_eq!(got.report().preprocessing, expected, "{what}: {}", got.report());
    assert_eq!(product(got), product(want), "{what}");
}

/// Promise, results: plans of MTTKRP and TTM of a tensor on the device hold the arrays of the host's plans, and give
/// the same bits.
#[test]
fn mttkrp_plans_are_those_of_the_host() {
    // For every mode, by points that cut slices into many pieces and few.
    let tensors = tensors();
    let launch = GroupLaunch { block_threads: 64, tile_columns: None, workers_log2: 0 };
    for (at, (name, host)) in tensors.iter().enumerate() {
        for (turn, order) in ORDERS.into_iter().step_by(2).enumerate() {
            for device in kernel_devices(at + turn) {
                let fibers = host.to_csf(order).unwrap();
                let list = Arrays::<i64, f32>::upload(&device, host);
                let list = list.tensor();
                let of_host = Mttkrp::builder(&fibers).width(WIDTH).group_launch(launch);
                let of_device = Mttkrp::builder(&list).mode_order(order).width(WIDTH).group_launch(launch);
                let points = ["{<1 nnz, 4 col>, 4}", "{<8 nnz, 1 col>, 32}"];
                let point = points[(at + turn) % 2].parse().unwrap();
                for precision in [Precision::F32, Precision::F16, Precision::F64] {
                    let (of_host, of_device) =
                        (of_host.clone().precision(precision), of_device.clone().precision(precision));
                    let what = format!("{name}, {order:?}, {precision} on {device}");
                    let want = of_host.parallelism(point).build(&device).unwrap();
                    let got = of_device.parallelism(point).build_on(&device.stream()).unwrap();
                    same_plan(&what, &got, &want, host.nnz() > 0);
                }
            }
        }
    }
    report_missing_gpu("MTTKRP of tensors on the device", tensors.len() * 9);
}

/// Values of every type in every precision, on every device.
#[test]
fn mttkrp_rounds_values_as_the_host_does() {
    fn check<V: Value>(device: &Device, host: &Coo3<f32>) {
        let host = typed::<V>(host);
        let fibers = host.to_csf([1, 0, 2]).unwrap();
        let on_device = DeviceCsf3::from_host(device, &fibers).unwrap();
        for precision in [Precision::F32, Precision::F16, Precision::F64] {
            let what = format!("{} in {precision} on {device}", V::NAME);
            let want = Mttkrp::builder(&fibers).width(WIDTH).precision(precision).build(device).unwrap();
            let of_device = Mttkrp::builder(&on_device).width(WIDTH).precision(precision);
            let got = of_device.build_on(&device.stream()).unwrap();
            same_plan(&what, &got, &want, device.kind() != DeviceKind::Cpu);
        }
    }
    let (_, host) = tensors().into_iter().rev().nth(1).unwrap();
    for device in devices() {
        check::<f32>(&device, &host);
        check::<f16>(&device, &host);
        check::<bf16>(&device, &host);
        check::<f64>(&device, &host);
    }
    report_missing_gpu("MTTKRP of values on the device", 12);
}

/// Promise, results: plans of MTTKRP and TTM of a tensor on the device hold the arrays of the host's plans, and give
/// the same bits.
#[test]
fn ttm_plans_are_those_of_the_host() {
    // By segment groups, and by other algorithms.
    let tensors = tensors();
    let algorithms = [Algorithm::Auto, Algorithm::RowSplit, Algorithm::MergePath, Algorithm::TileStream];
    for (at, (name, host)) in tensors.iter().enumerate() {
        for (turn, order) in ORDERS.into_iter().skip(1).step_by(2).enumerate() {
            let algorithm = algorithms[(at + turn) % algorithms.len()];
            let precision = if algorithm == Algorithm::TileStream { Precision::F16 } else { Precision::F32 };
            for device in kernel_devices(at + turn) {
                let fibers = host.to_csf(order).unwrap();
                let list = Arrays::<i32, f32>::upload(&device, host);
                let list = list.tensor();
                let what = format!("{name}, {order:?}, {algorithm} on {device}");
                let of_host = Ttm::builder(&fibers).width(WIDTH).algorithm(algorithm).precision(precision);
                let want = of_host.build(&device).unwrap();
                let of_device = Ttm::builder(&list).mode_order(order).width(WIDTH).algorithm(algorithm);
                let got = of_device.precision(precision).build_on(&device.stream()).unwrap();
                same_arrays(&what, &ttm_arrays(&got).unwrap(), &ttm_arrays(&want).unwrap());
                assert_eq!((got.fibers(), got.report().nnz), (want.fibers(), want.report().nnz), "{what}");
                with_element!(precision, T => {
                    let b = factor::<T>(fibers.dims()[order[2]], 3);
                    let run = |plan: &windrow::TtmPlan| plan.run(&b).unwrap();
                    let bits = |y: &[T]| bytemuck::cast_slice::<T, u8>(y).to_vec();
                    assert_eq!(bits(&run(&got)), bits(&run(&want)), "{what}");
                });
            }
        }
    }
    report_missing_gpu("TTM of tensors on the device", tensors.len() * 3);
}

/// New values in the order of the fibers, from the host and from the device, in plans that were made there.
#[test]
fn plans_take_new_values() {
    let (_, host) = tensors().into_iter().rev().nth(1).unwrap();
    let order = [1, 2, 0];
    let fibers = host.to_csf(order).unwrap();
    let new: Vec<f32> = (0..fibers.nnz()).map(|i| (i % 31) as f32 / 4.0 - 3.0).collect();
    let replaced = fibers.with_values(new.clone()).unwrap();
    let b = factor::<f32>(host.dims()[order[2]], 4);
    for device in devices() {
        let stream = Stream::new(&device).unwrap();
        let list = DeviceCoo3::from_host(&device, &host).unwrap();
        let on_device = DeviceBuffer::from_slice(&device, &new).unwrap();
        let want = product(&Mttkrp::builder(&replaced).width(WIDTH).build(&device).unwrap());
        let mut mttkrp = Mttkrp::builder(&list).mode_order(order).width(WIDTH).build_on(&stream).unwrap();
        let old = product(&mttkrp);
        mttkrp.replace_values_on(&stream, &on_device).unwrap();
        assert_eq!(product(&mttkrp), want, "on {device}");
        mttkrp.replace_values(fibers.values()).unwrap();
        assert_eq!(product(&mttkrp), old, "on {device}");
        let want = Ttm::builder(&replaced).width(WIDTH).build(&device).unwrap().run(&b).unwrap();
        let mut ttm = Ttm::builder(&list).mode_order(order).width(WIDTH).build_on(&stream).unwrap();
        let old = ttm.run(&b).unwrap();
        ttm.replace_values_on(&stream, &on_device).unwrap();
        assert_eq!(ttm.run(&b).unwrap(), want, "on {device}");
        ttm.replace_values(fibers.values()).unwrap();
        assert_eq!(ttm.run(&b).unwrap(), old, "on {device}");
    }
    report_missing_gpu("new values of tensors on the device", 1);
}

/// Another stream runs the plan that was made in its order, and verification agrees.
#[test]
fn plans_run_on_the_stream_that_made_them() {
    let (_, host) = tensors().into_iter().rev().nth(1).unwrap();
    let fibers = host.to_csf([0, 1, 2]).unwrap();
    let [rows, b, c] = host.dims();
    for device in devices() {
        let stream = Stream::new(&device).unwrap();
        let list = DeviceCoo3::from_host(&device, &host).unwrap();
        let plan = Mttkrp::builder(&list.checked(&stream).unwrap()).width(WIDTH).build_on(&stream).unwrap();
        let upload = |rows, seed| {
            let data = factor::<f32>(rows, seed);
            DeviceMatrix::upload(&device, DenseRef::packed(&data, rows, WIDTH).unwrap()).unwrap()
        };
        let factors = [upload(b, 1), upload(c, 2)];
        let mut y = DeviceMatrix::<f32>::zeros(&device, rows, WIDTH).unwrap();
        plan.run_into_on(&stream, 1.0, factors.each_ref().map(DeviceMatrix::view), 0.0, &mut y).unwrap();
        let verification = plan.verify(&fibers, factors.each_ref(), &y).unwrap();
        assert!(verification.passed(), "{verification} on {device}");
    }
    report_missing_gpu("tensors on another stream", 1);
}

/// Arrays that another library writes and overwrites in the order of a stream: plans are made of what was there when
/// they were asked for, whoever runs first.
#[test]
fn what_is_written_later_in_the_stream_does_not_reach_a_plan() {
    let (_, host) = tensors().into_iter().rev().nth(1).unwrap();
    let (nnz, fibers) = (host.nnz(), host.to_csf([0, 1, 2]).unwrap());
    let copy = Csr::<f32>::identity(nnz).unwrap();
    for device in kernel_devices(3) {
        let want = product(&Mttkrp::builder(&fibers).width(WIDTH).build(&device).unwrap());
        let stream = Stream::new(&device).unwrap();
        let arrays = Arrays::<i64, f32>::upload(&device, &host);
        let target = DeviceBuffer::<f32>::alloc_zeroed(&device, nnz).unwrap();
        let zeros = DeviceBuffer::<f32>::alloc_zeroed(&device, nnz).unwrap();
        let copy = Spmm::builder(&copy).width(1).build(&device).unwrap();
        device.synchronize().unwrap();
        // Borrowed, so that windrow orders nothing but what a stream orders.
        let write = |from: &DeviceBuffer<f32>| {
            // SAFETY: both have so many elements, and live to the end of the test.
            let (from, to) = unsafe {
                (
                    DeviceView::<f32>::from_raw(&device, from.address(), nnz, 1, 1).unwrap(),
                    DeviceViewMut::<f32>::from_raw(&device, target.address(), nnz, 1, 1).unwrap(),
                )
            };
            copy.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
        };
        write(&arrays.values);
        let coordinates = arrays.coordinates.each_ref().map(DeviceBuffer::address);
        let addresses = Coo3Addresses { coordinates, values: target.address() };
        // SAFETY: arrays of these lengths, which are written in the order of the stream alone.
        let list = unsafe { DeviceCoo3::<f32>::from_raw::<i64>(&device, host.dims(), nnz, addresses) };
        let plan = Mttkrp::builder(&list.unwrap()).width(WIDTH).build_on(&stream).unwrap();
        write(&zeros);
        assert_eq!(product(&plan), want, "on {device}");
        stream.synchronize().unwrap();
    }
    report_missing_gpu("tensors that are overwritten", 1);
}
