//! A plan of each family, and of each kind within it, with what it takes to run it: for what is promised of all.

use std::error::Error;

use half::f16;
use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::training::{Adam, ColumnSums, CrossEntropy, Moments, add_bias_relu, round_into};
use windrow::{
    Aggregate, AggregateBackward, AggregateGradients, AggregateOperands, AggregatePlan, Algorithm,
    AttentionBackward, AttentionGradients, AttentionOperands, AttentionPlan, Coo3, Csf3, Csr, DenseRef,
    Determinism, Device, DeviceBuffer, DeviceMatrix, Element, GraphAttention, Message, Mttkrp, MttkrpPlan,
    Precision, Preprocessing, Reduce, RowSoftmax, Schedule, Sddmm, SddmmAlgorithm, SddmmForm, SddmmPlan,
    Spmm, SpmmOptions, SpmmPlan, Stream, TilePipeline, TileValues, Ttm, TtmPlan, Value, with_element,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::nm_subjects::{NmGradientSubject, NmSubject};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// What is made once, and then run several times.
pub(crate) trait Subject {
    /// Operands to the device, products, results back: always the same bits.
    fn run(&mut self) -> Outcome<Vec<u32>>;
}

/// A family, or a kind of plan of one.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    plan: Plan,
}

/// What is told of a plan; the rest is the same for all of its family.
enum Plan {
    Spmm(SpmmOptions),
    Sddmm(SddmmAlgorithm, Precision),
    Nm(Precision, Option<&'static str>),
    Other(fn(&Device) -> Outcome<Box<dyn Subject>>),
}

impl Family {
    const fn spmm(name: &'static str, options: SpmmOptions) -> Self {
        Self { name, plan: Plan::Spmm(options) }
    }

    const fn sddmm(name: &'static str, algorithm: SddmmAlgorithm, precision: Precision) -> Self {
        Self { name, plan: Plan::Sddmm(algorithm, precision) }
    }

    /// What is chosen, or a kernel where the device runs it.
    const fn nm(name: &'static str, precision: Precision, kernel: Option<&'static str>) -> Self {
        Self { name, plan: Plan::Nm(precision, kernel) }
    }

    pub(crate) const fn other(name: &'static str, make: fn(&Device) -> Outcome<Box<dyn Subject>>) -> Self {
        Self { name, plan: Plan::Other(make) }
    }

    pub(crate) fn make(&self, device: &Device) -> Outcome<Box<dyn Subject>> {
        match &self.plan {
            Plan::Spmm(options) => SpmmSubject::make(device, *options, Preprocessing::Cpu),
            Plan::Sddmm(algorithm, precision) => SddmmSubject::make(device, *algorithm, *precision),
            Plan::Nm(precision, kernel) => NmSubject::make(device, *precision, *kernel),
            Plan::Other(make) => make(device),
        }
    }
}

pub(crate) const ROWS: usize = 41;
pub(crate) const COLS: usize = 400;

fn numbers(values: Values, count: usize, seed: u64) -> Vec<f32> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| values.next(&mut rng)).collect()
}

/// Numbers whose sums are rounded, so that another order of additions has other bits.
pub(crate) fn reals(count: usize, seed: u64) -> Vec<f32> {
    numbers(Values::Reals, count, seed)
}

/// Rows of all sorts: none, short, alike, and one that is cut.
pub(crate) fn matrix(values: Values) -> Csr<f32> {
    let lengths = (0..ROWS).map(|row| if row == 20 { 390 } else { [0, 3, 9, 1, 17, 30][row % 6] });
    let mut rng = SplitMix64::new(5);
    Pattern::from_lengths(COLS, lengths, &mut rng).with_values(values, &mut rng)
}

pub(crate) fn upload<T: Element>(
    device: &Device,
    data: &[f32],
    rows: usize,
    cols: usize,
) -> Outcome<DeviceMatrix<T>> {
    let data: Vec<T> = data.iter().map(|&x| T::from_f32(x)).collect();
    Ok(DeviceMatrix::upload(device, DenseRef::packed(&data, rows, cols)?)?)
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    words(values).to_vec()
}

/// Of an f64 two.
pub(crate) fn words<T: Element>(values: &[T]) -> &[u32] {
    bytemuck::cast_slice(values)
}

struct SpmmSubject {
    device: Device,
    plan: SpmmPlan,
    numbers: Values,
    values: Vec<f32>,
}

impl SpmmSubject {
    fn make(device: &Device, options: SpmmOptions, place: Preprocessing) -> Outcome<Box<dyn Subject>> {
        let numbers = match options.determinism {
            Determinism::Fast => Values::Integers, // whose sums are exact in any order
            _ => Values::Reals,
        };
        Self::of(device, options, place, numbers)
    }

    fn of(
        device: &Device,
        options: SpmmOptions,
        place: Preprocessing,
        numbers: Values,
    ) -> Outcome<Box<dyn Subject>> {
        let a = matrix(numbers);
        let builder = Spmm::builder(&a).options(options).preprocessing(place).values_from_device();
        let plan = builder.build(device)?;
        Ok(Box::new(Self { device: device.clone(), plan, numbers, values: a.values().to_vec() }))
    }

    fn product(&self) -> Outcome<Vec<u32>> {
        const WIDTH: usize = 9;
        let b = numbers(self.numbers, COLS * WIDTH, 7);
        with_element!(self.plan.precision(), T => {
            let b = upload::<T>(&self.device, &b, COLS, WIDTH)?;
            let mut c = DeviceMatrix::<<T as Element>::Sum>::zeros(&self.device, ROWS, WIDTH)?;
            let [zero, one] = [0.0, 1.0].map(<T as Element>::Sum::from_f32);
            self.plan.run_into(one, &b, zero, &mut c)?;
            self.device.synchronize()?;
            Ok(words(&c.download()?).to_vec())
        })
    }
}

impl Subject for SpmmSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let doubled: Vec<f32> = self.values.iter().map(|x| 2.0 * x).collect();
        self.plan.replace_values(&doubled)?;
        let mut found = self.product()?;
        with_element!(self.plan.precision(), T => {
            let values: Vec<_> = self.values.iter().map(|&x| <T as Element>::Sum::from_f32(x)).collect();
            self.plan.replace_values_from(&DeviceBuffer::from_slice(&self.device, &values)?)?;
        });
        found.extend(self.product()?);
        Ok(found)
    }
}

pub(crate) const BASE: SpmmOptions = SpmmOptions {
    algorithm: Algorithm::RowSplit,
    precision: Precision::F32,
    width: 9,
    tile_values: TileValues::Dense,
    schedule: Schedule::Sequential,
    ..SpmmOptions::DEFAULT
};

pub(crate) const TILES: SpmmOptions =
    SpmmOptions { algorithm: Algorithm::TileStream, precision: Precision::F16, ..BASE };

/// A plan that adds in any order numbers whose sums are rounded.
pub(crate) fn any_order(device: &Device, options: SpmmOptions) -> Outcome<Box<dyn Subject>> {
    let options = SpmmOptions { determinism: Determinism::Fast, ..options };
    SpmmSubject::of(device, options, Preprocessing::Cpu, Values::Reals)
}

pub(crate) fn hybrid() -> Outcome<SpmmOptions> {
    let partition = PartitionRule::ColumnVectors { threshold: VectorThreshold::try_new(0.25)? };
    Ok(SpmmOptions {
        algorithm: Algorithm::Hybrid,
        partition: Some(partition),
        schedule: Schedule::MultiStream,
        ..TILES
    })
}

struct SddmmSubject {
    device: Device,
    plan: SddmmPlan,
}

impl SddmmSubject {
    fn make(device: &Device, algorithm: SddmmAlgorithm, precision: Precision) -> Outcome<Box<dyn Subject>> {
        let a = matrix(Values::Reals);
        let builder = Sddmm::builder(&a).inner(8).algorithm(algorithm).precision(precision);
        let plan = builder.form(SddmmForm::Scale).build(device)?;
        Ok(Box::new(Self { device: device.clone(), plan }))
    }
}

impl Subject for SddmmSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let (x, y) = (reals(ROWS * 8, 1), reals(COLS * 8, 2));
        with_element!(self.plan.report().precision, T => {
            let [x, y] = [upload::<T>(&self.device, &x, ROWS, 8)?, upload(&self.device, &y, COLS, 8)?];
            let mut out = DeviceBuffer::<<T as Element>::Sum>::alloc_zeroed(&self.device, self.plan.report().nnz)?;
            self.plan.run_into(<T as Element>::Sum::from_f32(1.0), &x, &y, &mut out)?;
            Ok(words(&out.to_vec()?).to_vec())
        })
    }
}

struct SoftmaxSubject {
    softmax: RowSoftmax,
    nnz: usize,
}

impl Subject for SoftmaxSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.softmax.device().clone();
        let scores = DeviceBuffer::from_slice(&device, &reals(self.nnz, 3))?;
        let mut out = DeviceBuffer::alloc_zeroed(&device, self.nnz)?;
        self.softmax.forward(0.5, &scores, &mut out)?;
        let mut gradient = DeviceBuffer::alloc_zeroed(&device, self.nnz)?;
        self.softmax.backward(0.5, &out, &scores, &mut gradient)?;
        Ok([bits(&out.to_vec()?), bits(&gradient.to_vec()?)].concat())
    }
}

/// Attention of two heads and its gradients: over windows on Tensor Cores and over rows, long ones cut.
pub(crate) struct AttentionSubject {
    stream: Stream,
    plans: [AttentionPlan; 2],
}

impl AttentionSubject {
    pub(crate) fn make(device: &Device, stream: Stream) -> Outcome<Box<dyn Subject>> {
        let a = matrix(Values::Reals);
        let plan = |precision| {
            GraphAttention::builder(&a).heads(2).columns(8).precision(precision).gradients(true).build(device)
        };
        Ok(Box::new(Self { stream, plans: [plan(Precision::F16)?, plan(Precision::F32)?] }))
    }

    fn both<T: Element<Sum = f32>>(&self, plan: &AttentionPlan) -> Outcome<Vec<u32>> {
        let device = plan.device();
        let (q, k) = (reals(ROWS * 16, 3), reals(COLS * 16, 4));
        let q = upload::<T>(device, &q, ROWS, 16)?;
        let (k, v) =
            (upload::<T>(device, &k, COLS, 16)?, upload::<T>(device, &reals(COLS * 16, 5), COLS, 16)?);
        let mut states = DeviceBuffer::<f32>::alloc_zeroed(device, 4 * ROWS)?;
        let mut out = DeviceMatrix::<f32>::zeros(device, ROWS, 16)?;
        let operands = || AttentionOperands::new(&q, &k, &v);
        plan.forward_on(&self.stream, 0.5, operands().states(&mut states), &mut out)?;
        let blank = |rows| DeviceMatrix::<f32>::zeros(device, rows, 16);
        let (mut of_q, mut of_k, mut of_v) = (blank(ROWS)?, blank(COLS)?, blank(COLS)?);
        let given = AttentionBackward::new(operands(), &states, &out, &q);
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
        plan.backward_on(&self.stream, 0.5, given, found)?;
        let gradients = [of_q.download()?, of_k.download()?, of_v.download()?].concat();
        Ok([bits(&out.download()?), bits(&states.to_vec()?), bits(&gradients)].concat())
    }
}

impl Subject for AttentionSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let [narrow, wide] = &self.plans;
        Ok([self.both::<f16>(narrow)?, self.both::<f32>(wide)?].concat())
    }
}

/// A maximum, and the gradients of what it came from.
pub(crate) struct AggregateSubject {
    stream: Stream,
    plan: AggregatePlan,
}

impl AggregateSubject {
    pub(crate) fn make(device: &Device, stream: Stream) -> Outcome<Box<dyn Subject>> {
        let a = matrix(Values::Reals);
        let builder = Aggregate::builder(&a).reduce(Reduce::Max).message(Message::Mul).columns(8);
        Ok(Box::new(Self { stream, plan: builder.gradients(true).build(device)? }))
    }
}

impl Subject for AggregateSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.plan.device();
        let x = upload::<f32>(device, &reals(COLS * 8, 4), COLS, 8)?;
        let gradient = upload::<f32>(device, &reals(ROWS * 8, 5), ROWS, 8)?;
        let mut winners = DeviceBuffer::<u32>::alloc_zeroed(device, ROWS * 8)?;
        let mut out = DeviceMatrix::<f32>::zeros(device, ROWS, 8)?;
        let operands = AggregateOperands::new(&x).winners(&mut winners);
        self.plan.forward_on(&self.stream, operands, &mut out)?;
        let mut of_x = DeviceMatrix::<f32>::zeros(device, COLS, 8)?;
        let mut of_values = DeviceBuffer::<f32>::alloc_zeroed(device, self.plan.report().nnz)?;
        let given = AggregateBackward::new(AggregateOperands::new(&x), &gradient).winners(&winners);
        let found = AggregateGradients::new(&mut of_x).values(&mut of_values);
        self.plan.backward_on(&self.stream, given, found)?;
        let numbers = [out.download()?, of_x.download()?, of_values.to_vec()?].concat();
        Ok([bits(&numbers), winners.to_vec()?].concat())
    }
}

pub(crate) fn tensor() -> Outcome<Csf3<f32>> {
    let mut rng = SplitMix64::new(23);
    let entries = (0..300)
        .map(|_| {
            ([rng.below(9), rng.below(12), rng.below(15)].map(|i| u32::try_from(i).unwrap()), rng.real())
        })
        .collect::<Vec<_>>();
    Ok(Csf3::try_from_coo(&Coo3::from_entries([9, 12, 15], entries)?, [0, 1, 2])?)
}

struct MttkrpSubject(MttkrpPlan);

impl Subject for MttkrpSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        Ok(bits(&self.0.run(&reals(12 * 8, 1), &reals(15 * 8, 2))?))
    }
}

/// An MTTKRP that adds in any order.
pub(crate) fn tensor_in_any_order(device: &Device, precision: Precision) -> Outcome<Box<dyn Subject>> {
    let tensor = tensor()?;
    let builder = Mttkrp::builder(&tensor).width(8).precision(precision).determinism(Determinism::Fast);
    Ok(Box::new(MttkrpSubject(builder.build(device)?)))
}

struct TtmSubject(TtmPlan);

impl Subject for TtmSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        Ok(bits(&self.0.run(&reals(15 * 8, 4))?))
    }
}

/// A step of training: everything is made again, but for the moments, which a step that failed must not have moved on.
struct TrainingSubject {
    device: Device,
    steps: u32,
    parameter: DeviceMatrix<f32>,
    moments: Moments,
}

impl Subject for TrainingSubject {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = &self.device;
        let mut x = upload::<f32>(device, &reals(24 * 6, 1), 24, 6)?;
        add_bias_relu(&mut x, &upload(device, &reals(6, 2), 1, 6)?)?;
        let labels: Vec<u32> = (0..24).map(|row| row % 6).collect();
        let mut loss = CrossEntropy::new(device, 6, &labels, &[1.0; 24])?;
        let mut gradient = DeviceMatrix::zeros(device, 24, 6)?;
        loss.run(&x, &mut gradient)?;
        let mut sums = DeviceMatrix::zeros(device, 1, 6)?;
        ColumnSums::new(device, 6)?.sum(&gradient, &mut sums)?;
        let mut rounded = DeviceMatrix::<f16>::zeros(device, 24, 6)?;
        round_into(1.0, &x, &mut rounded)?;
        let steps = self.moments.steps();
        if let Err(error) = Adam::default().step(&mut self.parameter, &sums, &mut self.moments) {
            assert_eq!(self.moments.steps(), steps, "a step that failed was counted");
            return Err(error.into());
        }
        self.steps += 1;
        let mut found = bits(&gradient.download()?);
        found.extend(bits(&sums.download()?));
        found.extend(rounded.download()?.iter().map(|x| u32::from(x.to_bits())));
        found.push(loss.outcome()?.loss.to_bits());
        Ok(found)
    }
}

pub(crate) const FAMILIES: &[Family] = &[
    Family::spmm("SpMM row-split", BASE),
    Family::spmm("SpMM row-split, any order", SpmmOptions { determinism: Determinism::Fast, ..BASE }),
    Family::spmm("SpMM short rows", SpmmOptions { algorithm: Algorithm::ShortRows, ..BASE }),
    Family::spmm("SpMM segment groups", SpmmOptions { algorithm: Algorithm::SegmentGroup, ..BASE }),
    Family::spmm("SpMM merge path", SpmmOptions { algorithm: Algorithm::MergePath, ..BASE }),
    Family::spmm("SpMM row panels", SpmmOptions { algorithm: Algorithm::RowPanels, ..BASE }),
    Family::spmm("SpMM matricised rows", SpmmOptions { algorithm: Algorithm::MatricizedRows, ..TILES }),
    Family::spmm("SpMM tiles", TILES),
    Family::spmm("SpMM tiles, packed", SpmmOptions { tile_values: TileValues::Packed, ..TILES }),
    Family::other("SpMM hybrid on two streams", |device| {
        SpmmSubject::make(device, hybrid()?, Preprocessing::Cpu)
    }),
    Family::other("SpMM hybrid made on the device", |device| {
        SpmmSubject::make(device, hybrid()?, Preprocessing::Gpu)
    }),
    Family::sddmm("SDDMM entries", SddmmAlgorithm::Entries, Precision::F32),
    Family::sddmm("SDDMM groups", SddmmAlgorithm::Groups, Precision::F32),
    Family::sddmm("SDDMM panels", SddmmAlgorithm::RowPanels, Precision::F32),
    Family::sddmm("SDDMM tiles", SddmmAlgorithm::Tiles, Precision::F16),
    Family::sddmm("SDDMM hybrid", SddmmAlgorithm::Hybrid, Precision::F16),
    Family::other("row softmax", |device| {
        let a = matrix(Values::Reals);
        Ok(Box::new(SoftmaxSubject { softmax: RowSoftmax::new(&a, device)?, nnz: a.nnz() }))
    }),
    Family::other("SpMM out of core", crate::out_of_core::subject),
    Family::other("attention", |device| AttentionSubject::make(device, device.stream())),
    Family::other("reductions", |device| AggregateSubject::make(device, device.stream())),
    Family::nm("N:M f32", Precision::F32, None),
    Family::nm("N:M f16", Precision::F16, None),
    Family::nm("N:M f16, in stages", Precision::F16, Some("nm_sparse_f16_64x128")),
    Family::other("N:M gradients", |device| NmGradientSubject::make(device, device.stream())),
    Family::other("MTTKRP", |device| {
        Ok(Box::new(MttkrpSubject(Mttkrp::builder(&tensor()?).width(8).build(device)?)))
    }),
    Family::other("TTM", |device| Ok(Box::new(TtmSubject(Ttm::builder(&tensor()?).width(8).build(device)?)))),
    Family::other("training", |device| {
        let parameter = upload::<f32>(device, &reals(6, 9), 1, 6)?;
        let moments = Moments::of(&parameter)?;
        Ok(Box::new(TrainingSubject { device: device.clone(), steps: 0, parameter, moments }))
    }),
];

/// [`FAMILIES`] in other precisions, by other kernels: for what costs less than a fault at every call.
pub(crate) const MODES: &[Family] = &[
    Family::spmm("SpMM row-split f64", SpmmOptions { precision: Precision::F64, ..BASE }),
    Family::spmm(
        "SpMM short rows f16",
        SpmmOptions { algorithm: Algorithm::ShortRows, precision: Precision::F16, ..BASE },
    ),
    Family::spmm(
        "SpMM segment groups f64",
        SpmmOptions { algorithm: Algorithm::SegmentGroup, precision: Precision::F64, ..BASE },
    ),
    Family::spmm(
        "SpMM merge path bf16",
        SpmmOptions { algorithm: Algorithm::MergePath, precision: Precision::Bf16, ..BASE },
    ),
    Family::spmm("SpMM tiles tf32", SpmmOptions { precision: Precision::Tf32, ..TILES }),
    Family::spmm("SpMM tiles, bitmaps", SpmmOptions { tile_values: TileValues::Bitmap, ..TILES }),
    Family::spmm("SpMM tiles, registers", SpmmOptions { tile_pipeline: TilePipeline::Registers, ..TILES }),
    Family::other("SpMM hybrid bf16, one stream", |device| {
        let options = SpmmOptions {
            precision: Precision::Bf16,
            schedule: Schedule::Sequential,
            tile_values: TileValues::Packed,
            ..hybrid()?
        };
        SpmmSubject::make(device, options, Preprocessing::Cpu)
    }),
    Family::sddmm("SDDMM tiles tf32", SddmmAlgorithm::Tiles, Precision::Tf32),
    Family::sddmm("SDDMM groups f64", SddmmAlgorithm::Groups, Precision::F64),
    Family::nm("N:M tf32", Precision::Tf32, None),
    Family::nm("N:M bf16", Precision::Bf16, None),
    Family::other("MTTKRP f16", |device| {
        let tensor = tensor()?;
        let builder = Mttkrp::builder(&tensor).width(8).precision(Precision::F16);
        Ok(Box::new(MttkrpSubject(builder.build(device)?)))
    }),
    Family::other("TTM f16", |device| {
        let tensor = tensor()?;
        let builder = Ttm::builder(&tensor).width(8).precision(Precision::F16);
        Ok(Box::new(TtmSubject(builder.build(device)?)))
    }),
];
