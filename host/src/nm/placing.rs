//! Kept values that are on the device, put where a kernel reads them.

use half::{bf16, f16};
use windrow_formats::{OutOfMemory, Value, VectorNm};
use windrow_kernels::nm::NmWeightsParams;
use windrow_kernels::place_values::code;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{gcd, index, narrow, wide};
use crate::options::Precision;
use crate::plan::{Bits, start};
use crate::view::DeviceSlice;

/// Name of the arrays that say where new values go, which products do not read.
pub(super) const PLACES: &str = "weight_places";

/// Where the kept values of weights are, rounded on the host to a plan's precision or to be rounded on the device.
#[derive(Clone, Copy)]
pub(super) enum GivenBits<'a> {
    OnHost(&'a Bits),
    OnDevice(DeviceValues, Dtype),
}

/// The same as f32.
#[derive(Clone, Copy)]
pub(super) enum GivenNumbers<'a> {
    OnHost(&'a [f32]),
    OnDevice(DeviceValues),
}

/// Kept values in the memory of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceValues {
    address: u64,
    given: Dtype,
    /// Columns of the weights.
    columns: u32,
    /// Elements from one kept row to the next.
    ld: u32,
    /// What they are rounded to.
    precision: Dtype,
}

impl DeviceValues {
    /// Values of weights with so many columns, at `address`, `ld` elements from row to row; none if kernels do not read
    /// values of this type.
    pub(super) fn new<V: Value>(
        address: u64,
        (columns, ld): (usize, u32),
        precision: Precision,
    ) -> Option<Self> {
        let given = given::<V>()?;
        Some(Self { address, given, columns: narrow(columns), ld, precision: precision.dtype() })
    }

    /// Values whose rows follow each other without gaps.
    pub(super) fn packed<V: Value>(
        values: &DeviceSlice<'_, V>,
        columns: usize,
        precision: Precision,
    ) -> Option<Self> {
        Self::new::<V>(values.address(), (columns, narrow(columns)), precision)
    }
}

/// The type of values as kernels are given it.
pub(super) fn given<V: Value>() -> Option<Dtype> {
    use std::any::TypeId;
    let is = |other: TypeId| TypeId::of::<V>() == other;
    match () {
        () if is(TypeId::of::<f32>()) => Some(Dtype::F32),
        () if is(TypeId::of::<f16>()) => Some(Dtype::F16),
        () if is(TypeId::of::<bf16>()) => Some(Dtype::Bf16),
        () => None,
    }
}

/// What of the kept values goes where, before upload: see [`NmWeightsParams`].
pub(super) struct Placement {
    pub(super) given: DeviceValues,
    /// (chunks, strips, depth): kept rows.
    pub(super) kept: Vec<u32>,
    /// Place, times 2¹⁶, and column of each element of a chunk.
    pub(super) places: Vec<u32>,
    /// Words that are no weights.
    pub(super) others: Vec<u32>,
    pub(super) chunks: usize,
    pub(super) chunks_per_group: usize,
    pub(super) group_columns: usize,
    pub(super) strips: usize,
    pub(super) strip: usize,
    pub(super) depth: usize,
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) tail: usize,
    /// Type of the weights.
    pub(super) dtype: Dtype,
}

/// Columns that lie in one vector, wherever a run of them begins, of which tiles of so many columns consist.
pub(super) fn strip<V>(weights: &VectorNm<V>, tile_columns: usize) -> usize {
    match weights.pattern().l() {
        l if l < weights.cols() => gcd(l, tile_columns),
        _ => tile_columns,
    }
}

impl Placement {
    /// Bytes of what is made.
    pub(super) fn out_bytes(&self) -> u64 {
        let words = self.chunks * (self.before + self.after) + self.tail;
        4 * wide(words) + wide(self.chunks * self.places.len()) * u64::from(self.dtype.bytes())
    }

    /// Bytes that stay on the device for new values.
    pub(super) fn kept_bytes(&self) -> u64 {
        4 * wide(self.kept.len() + self.places.len() + 1)
    }

    /// The weights, and what puts others in their places.
    pub(super) fn upload(&self, device: &Device) -> Result<(DeviceBuffer<u8>, Placed), DeviceError> {
        let out = DeviceBuffer::<u8>::alloc(device, index(self.out_bytes()), "weights")?;
        let kept = DeviceBuffer::named(device, &self.kept, PLACES)?;
        let places = DeviceBuffer::named(device, &self.places, PLACES)?;
        let overflowed = DeviceBuffer::<u32>::zeroed(device, 1, PLACES)?;
        let others = DeviceBuffer::named(device, &self.others, "lists of weights")?;
        let params = NmWeightsParams {
            values: GlobalPtr::NULL,
            kept: kept.pointer(),
            places: places.pointer(),
            others: others.pointer(),
            out: out.pointer().cast(),
            overflowed: overflowed.pointer(),
            columns: self.given.columns,
            chunks: narrow(self.chunks),
            elements: narrow(self.places.len()),
            chunks_per_group: narrow(self.chunks_per_group.max(1)),
            group_columns: narrow(self.group_columns),
            strips: narrow(self.strips),
            strip: narrow(self.strip),
            depth: narrow(self.depth),
            before: narrow(self.before),
            after: narrow(self.after),
            tail: narrow(self.tail),
            given: 0,
            dtype: code(self.dtype),
            precision: 0,
            ld_values: 0,
            padding: 0,
        };
        // The lists are freed after this launch; later ones leave what is made of them.
        let later = NmWeightsParams { others: GlobalPtr::NULL, ..params };
        let placed = Placed { _kept: kept, _places: places, overflowed, params: later };
        let queue = device.machine().ok_or(DeviceError::NoDriver)?.own();
        // SAFETY: the values were promised to live until the plan is made, in the order of the own stream, which was
        // told to come after them.
        unsafe { placed.queue(&**queue, self.given, (&out, params))? };
        Ok((out, placed))
    }
}

/// Weights as a kernel reads them, before upload.
pub(super) enum LaidOut {
    OnHost(Bits),
    /// To be made of values that are on the device.
    Placed(Placement),
}

/// The order in which a layout has elements of any type.
pub(super) trait Arrange {
    /// `given`, kept rows × columns, in that order; zeros where nothing is kept.
    fn arrange<T: Copy + Default + Send + Sync>(&self, given: &[T]) -> Result<Vec<T>, OutOfMemory>;

    /// Which kept value is where, of values on the device.
    fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory>;
}

impl LaidOut {
    /// Weights of any type.
    pub(super) fn new(values: GivenBits<'_>, order: &impl Arrange) -> Result<Self, OutOfMemory> {
        Ok(match values {
            GivenBits::OnHost(bits) => Self::OnHost(match bits {
                Bits::F16(bits) => Bits::F16(order.arrange(bits)?),
                Bits::Bf16(bits) => Bits::Bf16(order.arrange(bits)?),
                Bits::F32(bits) => Bits::F32(order.arrange(bits)?),
                Bits::Tf32(bits) => Bits::Tf32(order.arrange(bits)?),
                Bits::F64(bits) => Bits::F64(order.arrange(bits)?),
            }),
            GivenBits::OnDevice(given, dtype) => Self::Placed(order.placement(given, dtype)?),
        })
    }

    /// Weights of 16 bits each, which [`arrange`](Arrange::arrange) or what else there is beside them takes; none of
    /// other types.
    pub(super) fn of_halves(
        values: GivenBits<'_>,
        arrange: impl Fn(&[u16]) -> Result<Vec<u16>, OutOfMemory>,
        place: impl Fn(DeviceValues, Dtype) -> Result<Placement, OutOfMemory>,
    ) -> Result<Option<Self>, OutOfMemory> {
        Ok(match values {
            GivenBits::OnHost(Bits::F16(halves)) => Some(Self::OnHost(Bits::F16(arrange(halves)?))),
            GivenBits::OnHost(Bits::Bf16(halves)) => Some(Self::OnHost(Bits::Bf16(arrange(halves)?))),
            GivenBits::OnHost(Bits::F32(_) | Bits::Tf32(_) | Bits::F64(_)) => None,
            GivenBits::OnDevice(given, dtype) => Some(Self::Placed(place(given, dtype)?)),
        })
    }

    /// Bytes of the weights.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::OnHost(bits) => wide(bits.bytes().len()),
            Self::Placed(placement) => placement.out_bytes(),
        }
    }

    /// Names and bytes of the weights, and of what stays with them for new values.
    pub(super) fn arrays(&self) -> Vec<(&'static str, u64)> {
        let kept = self.kept_bytes().map(|kept| (PLACES, kept));
        [("weights", self.bytes())].into_iter().chain(kept).collect()
    }

    /// Bytes that stay on the device for new values, if any may come from there.
    pub(super) fn kept_bytes(&self) -> Option<u64> {
        match self {
            Self::OnHost(_) => None,
            Self::Placed(placement) => Some(placement.kept_bytes()),
        }
    }

    /// The weights, and what puts others in their places if that is known.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(&self, device: &Device) -> Result<(DeviceBuffer<u8>, Option<Placed>), DeviceError> {
        match self {
            Self::OnHost(bits) => Ok((DeviceBuffer::named(device, bits.bytes(), "weights")?, None)),
            Self::Placed(placement) => {
                let (weights, placed) = placement.upload(device)?;
                Ok((weights, Some(placed)))
            }
        }
    }
}

/// What puts values in their places, in device memory.
pub(super) struct Placed {
    _kept: DeviceBuffer<u32>,
    _places: DeviceBuffer<u32>,
    overflowed: DeviceBuffer<u32>,
    /// Without what becomes of the arrays above.
    params: NmWeightsParams,
}

impl Placed {
    /// The kernel that does it.
    pub(super) fn entry(&self) -> Result<&'static Entry, DeviceError> {
        let name = "a kernel that places weights";
        windrow_kernels::entry(Variant::NmWeights).ok_or(DeviceError::MissingEntry { name })
    }

    /// Puts new values in the places of the old, and leaves what else is there.
    ///
    /// # Safety
    /// There is a live value for each kept row and column until the work is done; `weights` are those that were made
    /// with this.
    pub(super) unsafe fn place(
        &self,
        queue: &dyn Queue,
        values: DeviceValues,
        weights: &DeviceBuffer<u8>,
    ) -> Result<(), DeviceError> {
        self.overflowed.clear_in(queue)?;
        // SAFETY: the caller's promise.
        unsafe { self.queue(queue, values, (weights, self.params)) }
    }

    /// Starts the kernel.
    ///
    /// # Safety
    /// As for [`place`](Self::place).
    unsafe fn queue(
        &self,
        queue: &dyn Queue,
        values: DeviceValues,
        (weights, params): (&DeviceBuffer<u8>, NmWeightsParams),
    ) -> Result<(), DeviceError> {
        debug_assert_eq!(values.columns, params.columns, "columns of the same weights");
        let params = NmWeightsParams {
            values: GlobalPtr::from_address(values.address),
            out: weights.pointer().cast(),
            given: code(values.given),
            precision: code(values.precision),
            ld_values: values.ld,
            ..params
        };
        // SAFETY: the caller's promise about the values; the lists are those of one layout, and kept with it.
        unsafe { start(queue, self.entry()?, u64::from(params.chunks) + 1, 1, &params) }
    }

    /// Finite values given last that are infinite. Waits for them.
    pub(super) fn overflowed(&self) -> Result<u64, DeviceError> {
        Ok(self.overflowed.to_vec()?.first().map_or(0, |&count| u64::from(count)))
    }
}
