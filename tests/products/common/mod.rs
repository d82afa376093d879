//! What all tests of products share: the devices to run on, and one way to run a case.

pub(crate) mod page;
mod turns;

pub(crate) use turns::{all_cases, by_turns, takes_turn};
use turns::{by_some_turns, has_layout};

use std::sync::OnceLock;

use half::{bf16, f16};
use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, Csr, Device, DeviceBuffer, DeviceKind, DeviceMatrix, Element, EmulatorSchedule, GroupLaunch,
    Permutation, Precision, Schedule, Spmm, SpmmOptions, SpmmPlan, TileValues, Value,
};
use windrow_testkit::{
    Case, Comparison, PADDING_MARK, UNIT_FMA, UNIT_MMA, assert_matches, edge_cases, non_finite_cases,
    random_case, shape_cases, value_cases,
};

/// Set where a GPU must be there: then a missing one fails instead of being counted as skipped.
const REQUIRE_GPU: &str = "WINDROW_REQUIRE_GPU";

/// Set where only the GPU is of interest: under a sanitizer of GPU programs, which slows the host's down, too, and
/// finds nothing in the emulator.
const GPU_ONLY: &str = "WINDROW_GPU_ONLY";

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}

/// The GPU, or `None` where none is needed. All tests of a program have the same: opening one compiles all kernels,
/// which takes a sanitizer longer than the tests.
///
/// # Panics
/// If there is a GPU that cannot be used, or none where one must be.
pub(crate) fn gpu() -> Option<Device> {
    static GPU: OnceLock<Option<Device>> = OnceLock::new();
    GPU.get_or_init(open_gpu).clone()
}

fn open_gpu() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        Err(error) if is_set(REQUIRE_GPU) => panic!("{REQUIRE_GPU}=1, but: {error}"),
        Err(error) if is_set(GPU_ONLY) => panic!("{GPU_ONLY}=1, but: {error}"),
        Err(windrow::DeviceError::NoDriver | windrow::DeviceError::NoSuchDevice { .. }) => None,
        Err(error) => panic!("there is a GPU that cannot be used: {error}"),
    }
}

/// Every device that products are tested on: the CPU, the emulator under each schedule, the GPU if there is one.
pub(crate) fn devices() -> Vec<Device> {
    let mut devices = Vec::new();
    if !is_set(GPU_ONLY) {
        devices.push(Device::cpu());
        devices.extend(EmulatorSchedule::STANDARD.map(Device::emulator));
    }
    devices.extend(gpu());
    devices
}

/// The emulator under one of its schedules, by turns, and the GPU if there is one: for cases that are too many to run
/// under each.
pub(crate) fn kernel_devices(turn: usize) -> Vec<Device> {
    let mut devices = devices();
    devices.retain(|device| device.kind() != DeviceKind::Cpu && turns::has_schedule(device, turn));
    devices
}

/// Every table of cases, and so many from seeds.
pub(crate) fn every_case(random: u64) -> Vec<Case> {
    let tables = edge_cases().into_iter().chain(shape_cases()).chain(value_cases()).chain(non_finite_cases());
    tables.chain((0..random).map(random_case)).collect()
}

/// Plans with these options take new values from the host, and from the device.
pub(crate) fn replaces_values(options: SpmmOptions) {
    let a = Csr::from_dense(3, 3, &[1.0f32, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 5.0]).unwrap();
    for device in kernel_devices(2) {
        let builder = Spmm::builder(&a).options(SpmmOptions { width: 1, ..options });
        let mut plan = builder.values_from_device().build(&device).unwrap();
        assert_eq!(plan.run(&[1.0, 10.0, 100.0]).unwrap(), [21.0, 300.0, 504.0]);
        plan.replace_values(&[5.0f32, 4.0, 3.0, 2.0, 1.0]).unwrap();
        assert_eq!(plan.run(&[1.0, 10.0, 100.0]).unwrap(), [45.0, 300.0, 102.0]);
        let values = DeviceBuffer::from_slice(&device, &[1.0f32, 1.0, 1.0, 1.0, 2.0]).unwrap();
        plan.replace_values_from(&values).unwrap();
        assert_eq!(plan.run(&[1.0, 10.0, 100.0]).unwrap(), [11.0, 100.0, 201.0]);
    }
}

/// Says how many cases did not run for want of a GPU.
pub(crate) fn report_missing_gpu(what: &str, cases: usize) {
    if gpu().is_none() {
        windrow_testkit::announce_skip(what, cases, "no GPU");
    }
}

/// What is tested: a kind of plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// What the plan is told, but for the width.
    pub(crate) options: SpmmOptions,
    /// The width that the plan is made for; that of the case unless set.
    pub(crate) width: Option<usize>,
    /// Whether rows are worked on in another order.
    pub(crate) reversed: bool,
    /// The type of `C`, if it is not that of the sums: f16 or bf16.
    pub(crate) narrow: Option<Precision>,
}

impl Setup {
    /// An algorithm with as little as possible left to be chosen; a hybrid has the rows of at most three entries in its
    /// residual.
    pub(crate) const fn new(algorithm: Algorithm, precision: Precision) -> Self {
        let options = SpmmOptions {
            algorithm,
            precision,
            partition: Some(PartitionRule::ShortRows { max_entries: 3 }),
            tile_values: TileValues::Dense,
            schedule: Schedule::Sequential,
            group_launch: Some(GroupLaunch { block_threads: 64, tile_columns: None, workers_log2: 0 }),
            ..SpmmOptions::DEFAULT
        };
        Self { options, width: None, reversed: false, narrow: None }
    }

    /// The same, its plan told something else.
    pub(crate) fn told(mut self, tell: impl FnOnce(&mut SpmmOptions)) -> Self {
        tell(&mut self.options);
        self
    }

    /// The unit roundoff that the bound is computed with.
    pub(crate) fn unit(self, device: &Device) -> f64 {
        let tensor_cores = matches!(
            self.options.algorithm,
            Algorithm::TileStream | Algorithm::Hybrid | Algorithm::MatricizedRows | Algorithm::Auto
        );
        let on_cpu = device.kind() == DeviceKind::Cpu;
        match self.options.precision {
            // Inputs are f32, and their products exact; the reference is f64, too, and rounds as often.
            Precision::F64 => 2.0 * UNIT_FMA * UNIT_FMA / 32.0,
            Precision::F32 => UNIT_FMA,
            _ if tensor_cores && !on_cpu => UNIT_MMA,
            _ => UNIT_FMA,
        }
    }

    pub(crate) fn plan(self, device: &Device, case: &Case) -> SpmmPlan {
        let rows = u32::try_from(case.a.rows()).unwrap();
        let reversed = Permutation::try_from_new_to_old((0..rows).rev().collect()).unwrap();
        let options = SpmmOptions { width: self.width.unwrap_or(case.n), ..self.options };
        let mut builder = Spmm::builder(&case.a).options(options);
        if self.reversed {
            builder = builder.order(&reversed);
        }
        builder.build(device).unwrap_or_else(|error| panic!("{}: {error}", case.name))
    }
}

/// A hybrid divided by column vectors: `least` of 8 entries make a vector of tiles.
pub(crate) fn column_vectors(least: usize) -> Option<PartitionRule> {
    Some(PartitionRule::ColumnVectors { threshold: VectorThreshold::ALL[least - 1] })
}

/// Where the rows of the operands begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Layout {
    /// With the case's own leading dimensions, whatever their alignment.
    AsGiven,
    /// At multiples of 16 bytes, so that kernels read vectors.
    Aligned,
    /// `B` column by column, with padding.
    ColumnMajor,
}

/// How a case compared, and the names of the kernels that its plan has.
type Ran = (Comparison, Vec<&'static str>);

/// `data`, `rows × cols` with leading dimension `ld`, in device memory with leading dimension `new_ld` and
/// `padding` between the rows and after the last.
pub(crate) fn place<T: Value>(
    device: &Device,
    (data, rows, cols, ld): (&[f32], usize, usize, usize),
    new_ld: usize,
    padding: f32,
) -> DeviceMatrix<T> {
    let mut placed = vec![T::from_f32(padding); rows * new_ld];
    for r in 0..rows {
        for c in 0..cols {
            placed[r * new_ld + c] = T::from_f32(data[r * ld + c]);
        }
    }
    let buffer = DeviceBuffer::from_slice(device, &placed).unwrap();
    DeviceMatrix::from_buffer(buffer, rows, cols, new_ld).unwrap()
}

/// Runs a case through `run_into` and compares all of `C`, padding included.
///
/// # Panics
/// If anything fails or differs.
#[track_caller]
pub(crate) fn run_case(setup: Setup, device: &Device, case: &Case, layout: Layout) -> Comparison {
    run_case_naming_entries(setup, device, case, layout).0
}

/// [`run_case`], and which kernels the plan has.
#[track_caller]
fn run_case_naming_entries(setup: Setup, device: &Device, case: &Case, layout: Layout) -> Ran {
    // The reference starts from the C that the product finds.
    let case = &match setup.narrow {
        None => case.clone(),
        Some(Precision::F16) => case.with_c_rounded_to::<f16>(),
        Some(_) => case.with_c_rounded_to::<bf16>(),
    };
    match setup.options.precision {
        Precision::F32 => run_with::<f32>(setup, device, (case, case.clone()), layout),
        Precision::F64 => run_typed::<f64, f64>(setup, device, (case, case), layout),
        // Where it is left to the plan, f32 may serve, which rounds nothing.
        Precision::Tf32 if setup.plan(device, case).precision() == Precision::F32 => {
            run_with::<f32>(setup, device, (case, case.clone()), layout)
        }
        Precision::Tf32 => run_with::<f32>(setup, device, (case, case.rounded_to_tf32()), layout),
        Precision::F16 => run_with::<f16>(setup, device, (case, case.rounded_to::<f16>()), layout),
        Precision::Bf16 => run_with::<bf16>(setup, device, (case, case.rounded_to::<bf16>()), layout),
    }
}

/// Runs a case as it is given, and compares with it as it is rounded.
#[track_caller]
fn run_with<B: Element<Sum = f32>>(
    setup: Setup,
    device: &Device,
    (given, rounded): (&Case, Case),
    layout: Layout,
) -> Ran {
    // The type of C is not the precision's.
    let rounded = Case { c: given.c.clone(), ..rounded };
    match setup.narrow {
        None => run_typed::<B, f32>(setup, device, (given, &rounded), layout),
        Some(Precision::F16) => run_typed::<B, f16>(setup, device, (given, &rounded), layout),
        Some(_) => run_typed::<B, bf16>(setup, device, (given, &rounded), layout),
    }
}

#[track_caller]
fn run_typed<B: Element, C: Element<Sum = B::Sum> + windrow_testkit::Output>(
    setup: Setup,
    device: &Device,
    (case, rounded): (&Case, &Case),
    layout: Layout,
) -> Ran {
    let (m, k, n) = (case.m(), case.k(), case.n);
    let [alpha, beta] = [case.alpha, case.beta].map(<B::Sum as Value>::from_f32);
    let (ldb, ldc) = match layout {
        Layout::AsGiven => (case.ldb, case.ldc),
        Layout::ColumnMajor => (k + 3, case.ldc),
        Layout::Aligned => (n.next_multiple_of(16 / size_of::<B>()), n.next_multiple_of(16 / size_of::<C>())),
    };
    let plan = setup.plan(device, case);
    let mut c = place::<C>(device, (&case.c, m, n, case.ldc), ldc, PADDING_MARK);
    let run = match layout {
        Layout::ColumnMajor => {
            let columns: Vec<f32> =
                (0..n).flat_map(|j| (0..k).map(move |i| case.b[i * case.ldb + j])).collect();
            let b = place::<B>(device, (&columns, n, k, k), ldb, f32::NAN);
            plan.run_column_major_into(alpha, &b, beta, &mut c)
        }
        Layout::AsGiven | Layout::Aligned => {
            let b = place::<B>(device, (&case.b, k, n, case.ldb), ldb, f32::NAN);
            plan.run_into(alpha, &b, beta, &mut c)
        }
    };
    run.unwrap_or_else(|error| panic!("{} on {device}, {layout:?}: {error}\n{}", case.name, plan.report()));
    let got = c.buffer().to_vec().unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name));
    // With the case's leading dimension replaced, `assert_matches` checks the padding of this one.
    let case = relaid(rounded, ldc);
    let comparison = assert_matches(&case, &got, ldc, setup.unit(device));
    if n > 0 && m > 0 {
        let mark = C::from_f32(PADDING_MARK);
        assert!(got[(m - 1) * ldc + n..].iter().all(|&x| x == mark), "{}: written past C", case.name);
    }
    (comparison, plan.report().entries.clone())
}

/// The case with `C` at another leading dimension.
pub(crate) fn relaid(case: &Case, ldc: usize) -> Case {
    let mut c = Vec::new();
    for (r, row) in case.packed_c().chunks(case.n.max(1)).enumerate() {
        c.resize(r * ldc, PADDING_MARK);
        c.extend_from_slice(row);
    }
    Case { c, ldc, ..case.clone() }
}

/// Runs every case, on the GPU in both layouts, elsewhere in one, and on the emulator under its schedules by turns; and
/// prints what ran. Every kernel runs under every schedule.
///
/// # Panics
/// If a case fails, or no case ran on a device.
#[track_caller]
pub(crate) fn check(setup: Setup, cases: &[Case]) {
    let SpmmOptions { algorithm, precision, .. } = setup.options;
    let what = format!(
        "{algorithm} {precision}{}",
        setup.narrow.map_or(String::new(), |narrow| format!(" to {narrow}"))
    );
    check_in(&what, setup, cases, &[Layout::AsGiven, Layout::Aligned]);
}

/// [`check`] in these layouts.
///
/// # Panics
/// As [`check`].
#[track_caller]
pub(crate) fn check_in(what: &str, setup: Setup, cases: &[Case], layouts: &[Layout]) {
    let other_layout = |device: &Device, turn: usize| {
        let one_of_two = layouts.len() < 2 || has_layout(device, turn / layouts.len(), turn % layouts.len());
        (!one_of_two).then_some("in the other layout")
    };
    by_some_turns(what, cases.len() * layouts.len(), other_layout, |device, turn, ran| {
        let (case, layout) = (&cases[turn / layouts.len()], layouts[turn % layouts.len()]);
        let (comparison, entries) = run_case_naming_entries(setup, device, case, layout);
        ran.note(device, turn, entries.into_iter().map(|entry| (entry, layout == Layout::Aligned)));
        comparison
    });
}
