//! What runs on a stream of the caller's, and what little but takes new values: for what is promised of all.

use half::f16;
use windrow::{
    Activation, Algorithm, Device, DeviceBuffer, DeviceCoo3, DeviceCsr, DeviceMatrix, Element, Epilogue,
    Mttkrp, Precision, RowSoftmax, Sddmm, SddmmAlgorithm, SddmmForm, SddmmOptions, SddmmPlan, Spmm,
    SpmmOptions, SpmmPlan, Stream, Ttm, Value, with_element,
};
use windrow_testkit::Values;

use crate::subjects::{
    AggregateSubject, AttentionSubject, BASE, COLS, Family, Outcome, ROWS, Subject, TILES, bits, hybrid,
    matrix, reals, tensor, upload, words,
};

const WIDTH: usize = 9;
const INNER: usize = 8;

/// A product with a bias, on a stream that it was prepared for, with values that were replaced on it.
struct ProductOnStream {
    stream: Stream,
    plan: SpmmPlan,
    values: Vec<f32>,
}

impl ProductOnStream {
    fn make(device: &Device, options: SpmmOptions) -> Outcome<Box<dyn Subject>> {
        let a = matrix(Values::Reals);
        let plan = Spmm::builder(&a).options(options).values_from_device().build(device)?;
        let stream = Stream::new(device)?;
        plan.prepare_on(&stream, WIDTH, true)?;
        Ok(Box::new(Self { stream, plan, values: a.values().to_vec() }))
    }
}

impl Subject for ProductOnStream {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.stream.device();
        let (b, bias) = (reals(COLS * WIDTH, 7), reals(WIDTH, 8));
        with_element!(self.plan.precision(), T => {
            let sums = |values: &[f32]| -> Vec<_> {
                values.iter().map(|&x| <T as Element>::Sum::from_f32(x)).collect()
            };
            let values = DeviceBuffer::from_slice(device, &sums(&self.values))?;
            self.plan.replace_values_on(&self.stream, &values)?;
            let b = upload::<T>(device, &b, COLS, WIDTH)?;
            let bias = DeviceBuffer::from_slice(device, &sums(&bias))?;
            let bias = bias.view();
            let run = Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
            let mut c = DeviceMatrix::<<T as Element>::Sum>::zeros(device, ROWS, WIDTH)?;
            self.plan.run_fused_into_on(&self.stream, &run, &b, &mut c)?;
            Ok(words(&c.download()?).to_vec())
        })
    }
}

/// Sampled products in f32 and by way of a stage in f16, with factors that were replaced on the stream.
struct SampledOnStream {
    stream: Stream,
    plan: SddmmPlan,
}

fn sampled(device: &Device, algorithm: SddmmAlgorithm) -> Outcome<SddmmPlan> {
    let a = matrix(Values::Reals);
    let builder = Sddmm::builder(&a).inner(INNER).algorithm(algorithm).precision(Precision::F32);
    Ok(builder.form(SddmmForm::Scale).build(device)?)
}

/// `X` and `Y` of [`sampled`].
fn factors(device: &Device) -> Outcome<[DeviceMatrix<f32>; 2]> {
    let matrix = |rows: usize, seed| upload::<f32>(device, &reals(rows * INNER, seed), rows, INNER);
    Ok([matrix(ROWS, 1)?, matrix(COLS, 2)?])
}

impl Subject for SampledOnStream {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.stream.device();
        let nnz = self.plan.report().nnz;
        let scale = DeviceBuffer::from_slice(device, &reals(nnz, 4))?;
        self.plan.replace_values_on(&self.stream, &scale)?;
        let [x, y] = factors(device)?;
        let mut wide = DeviceBuffer::<f32>::alloc_zeroed(device, nnz)?;
        self.plan.run_into_on(&self.stream, 1.0, [x.view(), y.view()], &mut wide)?;
        let mut narrow = DeviceBuffer::<f16>::alloc_zeroed(device, nnz)?;
        self.plan.run_into_on(&self.stream, 1.0, [x.view(), y.view()], &mut narrow)?;
        let mut found = bits(&wide.to_vec()?);
        found.extend(narrow.to_vec()?.iter().map(|x| u32::from(x.to_bits())));
        Ok(found)
    }
}

struct SoftmaxOnStream {
    stream: Stream,
    softmax: RowSoftmax,
    nnz: usize,
}

impl Subject for SoftmaxOnStream {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.stream.device();
        let mut scores = DeviceBuffer::from_slice(device, &reals(self.nnz, 3))?;
        let mut out = DeviceBuffer::alloc_zeroed(device, self.nnz)?;
        self.softmax.forward_on(&self.stream, 0.5, &scores, &mut out)?;
        self.softmax.forward_in_place_on(&self.stream, 0.5, &mut scores)?;
        let mut gradient = DeviceBuffer::alloc_zeroed(device, self.nnz)?;
        self.softmax.backward_on(&self.stream, 0.5, [out.view(), scores.view()], &mut gradient)?;
        Ok([bits(&out.to_vec()?), bits(&scores.to_vec()?), bits(&gradient.to_vec()?)].concat())
    }
}

/// The arrays of a matrix, of which each run checks, makes a plan and a product.
struct OnDevice {
    stream: Stream,
    options: SpmmOptions,
    offsets: DeviceBuffer<i64>,
    columns: DeviceBuffer<i32>,
    values: DeviceBuffer<f32>,
}

impl OnDevice {
    fn make(device: &Device, options: SpmmOptions) -> Outcome<Box<dyn Subject>> {
        Ok(Box::new(Self::new(device, options)?))
    }

    fn new(device: &Device, options: SpmmOptions) -> Outcome<Self> {
        let a = matrix(Values::Reals);
        let offsets: Vec<_> = a.row_offsets().iter().map(|&x| i64::try_from(x)).collect::<Result<_, _>>()?;
        let columns: Vec<_> = a.col_indices().iter().map(|&x| i32::try_from(x)).collect::<Result<_, _>>()?;
        Ok(Self {
            stream: Stream::new(device)?,
            options,
            offsets: DeviceBuffer::from_slice(device, &offsets)?,
            columns: DeviceBuffer::from_slice(device, &columns)?,
            values: DeviceBuffer::from_slice(device, a.values())?,
        })
    }
}

/// The same arrays, multiplied without a plan in each run.
struct WithoutPlan(OnDevice);

impl Subject for WithoutPlan {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let OnDevice { stream, offsets, columns, values, .. } = &self.0;
        let a = DeviceCsr::new(ROWS, COLS, offsets, columns, values)?;
        let b = upload::<f32>(stream.device(), &reals(COLS * WIDTH, 7), COLS, WIDTH)?;
        let mut c = DeviceMatrix::<f32>::zeros(stream.device(), ROWS, WIDTH)?;
        Spmm::builder(&a).run_once_on(stream, 1.0, &b, 0.0, &mut c)?;
        Ok(bits(&c.download()?))
    }
}

impl Subject for OnDevice {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.stream.device();
        let a = DeviceCsr::new(ROWS, COLS, &self.offsets, &self.columns, &self.values)?;
        let plan = Spmm::builder(&a).options(self.options).build_on(&self.stream)?;
        let b = reals(COLS * WIDTH, 7);
        with_element!(plan.precision(), T => {
            let b = upload::<T>(device, &b, COLS, WIDTH)?;
            let mut c = DeviceMatrix::<<T as Element>::Sum>::zeros(device, ROWS, WIDTH)?;
            let [zero, one] = [0.0, 1.0].map(<T as Element>::Sum::from_f32);
            plan.run_into_on(&self.stream, one, &b, zero, &mut c)?;
            Ok(words(&c.download()?).to_vec())
        })
    }
}

/// The arrays of a pattern, of which each run makes a plan of sampled products and a softmax over rows, and runs both.
struct SampledOnDevice {
    stream: Stream,
    options: SddmmOptions,
    offsets: DeviceBuffer<i64>,
    columns: DeviceBuffer<i32>,
}

impl SampledOnDevice {
    fn make(device: &Device, algorithm: SddmmAlgorithm, precision: Precision) -> Outcome<Box<dyn Subject>> {
        let a = matrix(Values::Reals);
        let offsets: Vec<_> = a.row_offsets().iter().map(|&x| i64::try_from(x)).collect::<Result<_, _>>()?;
        let columns: Vec<_> = a.col_indices().iter().map(|&x| i32::try_from(x)).collect::<Result<_, _>>()?;
        let tile_threshold = Some(9);
        Ok(Box::new(Self {
            stream: Stream::new(device)?,
            options: SddmmOptions {
                algorithm,
                precision,
                tile_threshold,
                inner: 8,
                ..SddmmOptions::default()
            },
            offsets: DeviceBuffer::from_slice(device, &offsets)?,
            columns: DeviceBuffer::from_slice(device, &columns)?,
        }))
    }
}

impl Subject for SampledOnDevice {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let device = self.stream.device();
        let a = DeviceCsr::pattern(ROWS, COLS, &self.offsets, &self.columns)?;
        let plan = Sddmm::builder(&a).options(self.options.clone()).build_on(&self.stream)?;
        let softmax = RowSoftmax::new_on(&a, &self.stream)?;
        let (x, y) = (reals(ROWS * 8, 1), reals(COLS * 8, 2));
        with_element!(plan.precision(), T => {
            let [x, y] = [upload::<T>(device, &x, ROWS, 8)?, upload(device, &y, COLS, 8)?];
            let mut out = DeviceBuffer::<f32>::alloc_zeroed(device, a.nnz())?;
            let mut sums = DeviceBuffer::<<T as Element>::Sum>::alloc_zeroed(device, a.nnz())?;
            let one = <T as Element>::Sum::from_f32(1.0);
            plan.run_into_on(&self.stream, one, [x.view(), y.view()], &mut sums)?;
            let sums: Vec<f32> = sums.to_vec()?.iter().map(|x| f32::from_f64(x.to_f64())).collect();
            let scores = DeviceBuffer::from_slice(device, &sums)?;
            softmax.forward_on(&self.stream, 0.5, &scores, &mut out)?;
            Ok([bits(&sums), bits(&out.to_vec()?)].concat())
        })
    }
}

/// The arrays of a tensor, of which each run makes plans of MTTKRP and TTM, and runs both.
struct TensorOnDevice {
    stream: Stream,
    dims: [usize; 3],
    coordinates: [DeviceBuffer<i64>; 3],
    values: DeviceBuffer<f32>,
}

impl TensorOnDevice {
    fn make(device: &Device) -> Outcome<Box<dyn Subject>> {
        let list = tensor()?.to_coo()?;
        let of_mode = |mode: usize| -> Outcome<DeviceBuffer<i64>> {
            let of_mode: Vec<_> = list.indices(mode).iter().map(|&i| i64::from(i)).collect();
            Ok(DeviceBuffer::from_slice(device, &of_mode)?)
        };
        Ok(Box::new(Self {
            stream: Stream::new(device)?,
            dims: list.dims(),
            coordinates: [of_mode(0)?, of_mode(1)?, of_mode(2)?],
            values: DeviceBuffer::from_slice(device, list.values())?,
        }))
    }
}

impl Subject for TensorOnDevice {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let a = DeviceCoo3::new(self.dims, self.coordinates.each_ref(), &self.values)?;
        let factors = self.dims.map(|dim| reals(dim * WIDTH, 7));
        let mttkrp = Mttkrp::builder(&a).mode_order([1, 2, 0]).width(WIDTH).build_on(&self.stream)?;
        let mut found = bits(&mttkrp.run(&factors[2], &factors[0])?);
        let ttm = Ttm::builder(&a).mode_order([2, 0, 1]).width(WIDTH).build_on(&self.stream)?;
        found.extend(bits(&ttm.run(&factors[1])?));
        Ok(found)
    }
}

/// Values from the host and from the device, one after the other, and a product of operands that stay.
struct NewValues {
    device: Device,
    plan: SpmmPlan,
    values: Vec<f32>,
    b: DeviceMatrix<f16>,
    c: DeviceMatrix<f32>,
}

impl Subject for NewValues {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let doubled: Vec<f32> = self.values.iter().map(|x| 2.0 * x).collect();
        self.plan.replace_values_from(&DeviceBuffer::from_slice(&self.device, &doubled)?)?;
        self.plan.run_into(1.0, &self.b, 0.0, &mut self.c)?;
        let mut found = bits(&self.c.download()?);
        self.plan.replace_values(&self.values)?;
        self.plan.run_into(1.0, &self.b, 0.0, &mut self.c)?;
        found.extend(bits(&self.c.download()?));
        Ok(found)
    }
}

struct NewFactors {
    plan: SddmmPlan,
    operands: [DeviceMatrix<f32>; 2],
    out: DeviceBuffer<f32>,
}

impl Subject for NewFactors {
    fn run(&mut self) -> Outcome<Vec<u32>> {
        let [x, y] = &self.operands;
        let scale = reals(self.out.len(), 5);
        self.plan.replace_values_from(&DeviceBuffer::from_slice(x.device(), &scale)?)?;
        self.plan.run_into(1.0, x, y, &mut self.out)?;
        let mut found = bits(&self.out.to_vec()?);
        self.plan.replace_values(&reals(self.out.len(), 6))?;
        self.plan.run_into(1.0, x, y, &mut self.out)?;
        found.extend(bits(&self.out.to_vec()?));
        Ok(found)
    }
}

pub(crate) const STREAMS: &[Family] = &[
    Family::other("SpMM row-split on a stream, prepared", |device| ProductOnStream::make(device, BASE)),
    Family::other("SpMM tiles on a stream, prepared", |device| ProductOnStream::make(device, TILES)),
    Family::other("SpMM hybrid on a stream, prepared", |device| ProductOnStream::make(device, hybrid()?)),
    Family::other("SpMM row-split of a matrix on the device", |device| OnDevice::make(device, BASE)),
    Family::other("SpMM tiles of a matrix on the device", |device| OnDevice::make(device, TILES)),
    Family::other("SpMM segment groups of a matrix on the device", |device| {
        let parallelism = Some("{<4 nnz, 1 col>, 4}".parse()?);
        OnDevice::make(device, SpmmOptions { algorithm: Algorithm::SegmentGroup, parallelism, ..BASE })
    }),
    Family::other("SpMM merge path of a matrix on the device", |device| {
        OnDevice::make(device, SpmmOptions { algorithm: Algorithm::MergePath, ..BASE })
    }),
    Family::other("SpMM without a plan", |device| Ok(Box::new(WithoutPlan(OnDevice::new(device, BASE)?)))),
    Family::other("SDDMM entries and softmax of a pattern on the device", |device| {
        SampledOnDevice::make(device, SddmmAlgorithm::Entries, Precision::F32)
    }),
    Family::other("SDDMM groups and softmax of a pattern on the device", |device| {
        SampledOnDevice::make(device, SddmmAlgorithm::Groups, Precision::F32)
    }),
    Family::other("SDDMM tiles and softmax of a pattern on the device", |device| {
        SampledOnDevice::make(device, SddmmAlgorithm::Tiles, Precision::F16)
    }),
    Family::other("SDDMM hybrid and softmax of a pattern on the device", |device| {
        SampledOnDevice::make(device, SddmmAlgorithm::Hybrid, Precision::F16)
    }),
    Family::other("MTTKRP and TTM of a tensor on the device", TensorOnDevice::make),
    Family::other("SDDMM on a stream", |device| {
        let plan = sampled(device, SddmmAlgorithm::Auto)?;
        Ok(Box::new(SampledOnStream { stream: Stream::new(device)?, plan }))
    }),
    Family::other("row softmax on a stream", |device| {
        let a = matrix(Values::Reals);
        let softmax = RowSoftmax::new(&a, device)?;
        Ok(Box::new(SoftmaxOnStream { stream: Stream::new(device)?, softmax, nnz: a.nnz() }))
    }),
    Family::other("attention on a stream", |device| AttentionSubject::make(device, Stream::new(device)?)),
    Family::other("reductions on a stream", |device| AggregateSubject::make(device, Stream::new(device)?)),
    Family::other("SpMM, new values", |device| {
        let a = matrix(Values::Reals);
        let plan = Spmm::builder(&a).options(hybrid()?).values_from_device().build(device)?;
        let b = upload(device, &reals(COLS * WIDTH, 7), COLS, WIDTH)?;
        let c = DeviceMatrix::zeros(device, ROWS, WIDTH)?;
        Ok(Box::new(NewValues { device: device.clone(), plan, values: a.values().to_vec(), b, c }))
    }),
    Family::other("SDDMM, new values", |device| {
        let plan = sampled(device, SddmmAlgorithm::Entries)?;
        let out = DeviceBuffer::alloc_zeroed(device, plan.report().nnz)?;
        Ok(Box::new(NewFactors { plan, operands: factors(device)?, out }))
    }),
];
