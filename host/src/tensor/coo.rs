//! Tensors as lists of coordinates in the memory of a device, windrow's or the caller's.

use std::fmt;

use windrow_formats::memory::{try_collect, try_filled};
use windrow_formats::{Coo3, FormatError, Value, mode_dimensions};
use windrow_kernels::Variant;
use windrow_kernels::tensors::{Coo3Record, ReadCoo3Params};
use windrow_simt::GlobalPtr;

use crate::csr::{DeviceIndices, HeldIndices, Index};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{On, check_device, check_lengths};
use crate::spmm::Scratch;
use crate::view::{DeviceSlice, Held};

/// A tensor of three modes, `I × J × K`, in the memory of a [`Device`], as a list of coordinates in any order,
/// duplicates allowed: what [`Coo3`] is in host memory.
///
/// Made of arrays that are there already, an array of coordinates for each mode, of 32 or 64 bits, and values of f32,
/// f64, f16 or bf16, or none: then all are 1. The `indices` of PyTorch's sparse COO tensors, of shape 3 × nnz, are such
/// arrays one after the other. Plans of [`Mttkrp`](crate::Mttkrp) and [`Ttm`](crate::Ttm) are made of it where it is,
/// for any order of the modes: kernels check it, sort it, and lay its fibers out; it is not copied to the host.
///
/// Coordinates are below the dimension of their mode. Every use checks that, and tells the first entry that is wrong
/// and its mode; no wrong tensor is ever multiplied.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceBuffer, DeviceCoo3, Mttkrp};
///
/// let device = Device::best()?;
/// // 2 × 3 × 2. On a GPU these may be arrays of another library: see `from_raw`.
/// let i = DeviceBuffer::from_slice(&device, &[1i64, 0, 1])?;
/// let j = DeviceBuffer::from_slice(&device, &[2i64, 0, 0])?;
/// let k = DeviceBuffer::from_slice(&device, &[0i64, 1, 1])?;
/// let values = DeviceBuffer::from_slice(&device, &[4.0f32, 1.0, 2.0])?;
/// let a = DeviceCoo3::new([2, 3, 2], [&i, &j, &k], &values)?;
///
/// let plan = Mttkrp::builder(&a).width(2).build_on(&device.stream())?;
/// let (b, c) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 1.0, 10.0, 100.0]); // 3 × 2, 2 × 2
/// assert_eq!(plan.run(&b, &c)?, [10.0, 200.0, 40.0, 424.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceCoo3<'a, V: Value> {
    pub(super) device: Device,
    pub(super) dims: [usize; 3],
    pub(super) nnz: usize,
    coordinates: [HeldIndices<'a>; 3],
    /// None: they are 1.
    values: Option<Held<'a, V>>,
}

/// Where the arrays of a tensor are, for [`DeviceCoo3::from_raw`]: `CUdeviceptr`s of memory in the device's primary
/// context, or ordinary addresses on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coo3Addresses {
    /// Coordinate of each entry, mode by mode.
    pub coordinates: [u64; 3],
    /// Value of each entry, in the same order.
    pub values: u64,
}

impl<'a, V: Value> DeviceCoo3<'a, V> {
    /// The `dims[0] × dims[1] × dims[2]` tensor with entry `e` at the coordinates `e` of each mode, as many for each;
    /// those of different types are made [`DeviceIndices`] first.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`] unless all are on the device of the first coordinates;
    /// - [`PlanError::Format`]: [`FormatError::ModeTooLarge`] for a dimension of 2³², [`FormatError::LengthMismatch`]
    ///   unless there are as many coordinates of each mode, and a value for each.
    pub fn new(
        dims: [usize; 3],
        coordinates: [impl Into<DeviceIndices<'a>>; 3],
        values: impl Into<DeviceSlice<'a, V>>,
    ) -> Result<Self, PlanError> {
        Self::of_arrays(dims, coordinates.map(Into::into), Some(values.into()))
    }

    /// The tensor with `nnz` entries whose arrays are at these addresses: `nnz` coordinates of type `I` for each mode,
    /// and `nnz` values.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and of [`DeviceView::from_raw`](crate::DeviceView::from_raw) for each of the
    /// arrays.
    ///
    /// # Safety
    /// For as long as the tensor lives the four arrays are allocated and initialised. Nothing writes them while
    /// something is made of the tensor. What writes or frees them before or after that is
    /// [ordered](crate::Stream#order-between-streams) with the streams on which the tensor is used. On the CPU the
    /// addresses are of exposed provenance.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3Addresses, Device, DeviceCoo3};
    ///
    /// let (indices, values) = ([1i64, 0, 2, 0, 0, 1], [2.0f32, 3.0]); // 3 × nnz, as PyTorch has them
    /// let at = |mode: usize| indices[2 * mode..].as_ptr().expose_provenance() as u64;
    /// let addresses = Coo3Addresses {
    ///     coordinates: [at(0), at(1), at(2)],
    ///     values: values.as_ptr().expose_provenance() as u64,
    /// };
    /// let device = Device::cpu();
    /// // SAFETY: the arrays have as many elements, and nothing writes them.
    /// let a = unsafe { DeviceCoo3::<f32>::from_raw::<i64>(&device, [2, 3, 2], 2, addresses)? };
    /// assert!(a.to_host(&device.stream())?.entries().eq([([1, 2, 0], 2.0), ([0, 0, 1], 3.0)]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn from_raw<I: Index>(
        device: &'a Device,
        dims: [usize; 3],
        nnz: usize,
        Coo3Addresses { coordinates: [i, j, k], values }: Coo3Addresses,
    ) -> Result<Self, PlanError> {
        // SAFETY: the caller's promise.
        unsafe {
            let of_mode = |address| DeviceSlice::<I>::from_raw(device, address, nnz);
            let coordinates = [of_mode(i)?, of_mode(j)?, of_mode(k)?];
            Self::new(dims, coordinates, DeviceSlice::<V>::from_raw(device, values, nnz)?)
        }
    }

    fn of_arrays(
        dims: [usize; 3],
        coordinates: [DeviceIndices<'a>; 3],
        values: Option<DeviceSlice<'a, V>>,
    ) -> Result<Self, PlanError> {
        mode_dimensions(dims)?;
        let [first, others @ ..] = &coordinates;
        let (device, nnz) = (first.device().clone(), first.len());
        for of_mode in others {
            check_device("an array of coordinates", of_mode.device(), &device)?;
        }
        let names = ["indices of mode 1", "indices of mode 2"];
        let of_modes =
            names.into_iter().zip(others).map(|(name, of_mode)| (name, of_mode.len(), nnz, "as of mode 0"));
        check_lengths(of_modes)?;
        if let Some(values) = &values {
            check_device("the array of values", values.device(), &device)?;
            check_lengths([("values", values.len(), nnz, "one for each coordinate of a mode")])?;
        }
        let (coordinates, values) = (coordinates.map(HeldIndices::from), values.map(Held::from));
        Ok(Self { device, dims, nnz, coordinates, values })
    }

    /// Checks all coordinates now, in the order of a stream, and waits for the outcome: else the making of a plan does.
    ///
    /// # Cost
    /// A kernel, which reads the coordinates.
    ///
    /// # Errors
    /// - [`PlanError::Format`]: [`FormatError::CoordinateOutOfRange`] with the first entry that is wrong, and the first
    ///   of its modes that is;
    /// - [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Device`]: [`DeviceError::Captured`] for a stream that is captured.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceBuffer, DeviceCoo3};
    ///
    /// let device = Device::best()?;
    /// let (i, j) = ([0i32, 1], [2i32, 3]);
    /// let [i, j] = [DeviceBuffer::from_slice(&device, &i)?, DeviceBuffer::from_slice(&device, &j)?];
    /// let error = DeviceCoo3::pattern([2, 3, 2], [&i, &j, &i])?.checked(&device.stream()).unwrap_err();
    /// assert_eq!(error.to_string(), "entry 1: coordinate 3 of mode 1 is not below 3");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checked(self, on: &Stream) -> Result<Self, PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        match self.device.machine() {
            Some(_) if self.made_on_host().is_none() => {
                let (on, scratch) = (On::of(on, &self.device, false)?, Scratch::new(&self.device, 0)?);
                let record = DeviceBuffer::zeroed(&self.device, 1, "a record of a tensor")?;
                on.before_own()?;
                self.read(&scratch, [GlobalPtr::NULL; 3], &record)?;
                on.after_own()?;
                self.found(&record)?;
            }
            _ => drop(self.coordinates_on_host(on)?),
        }
        Ok(self)
    }

    /// A copy in host memory, after the work that the stream was asked for before; the coordinates are checked.
    ///
    /// # Errors
    /// Those of [`checked`](Self::checked).
    pub fn to_host(&self, on: &Stream) -> Result<Coo3<V>, PlanError> {
        let coordinates = self.coordinates_on_host(on)?;
        let values = match self.values() {
            Some(values) => values.to_host()?,
            None => try_filled(self.nnz, V::ONE, "values")?,
        };
        Ok(Coo3::try_new(self.dims, coordinates, values)?)
    }

    /// The device whose memory it is in.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Dimensions `I`, `J`, `K`.
    #[must_use]
    pub fn dims(&self) -> [usize; 3] {
        self.dims
    }

    /// Number of entries, duplicates counted each time.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The coordinates of each mode, wherever they are from.
    pub(super) fn coordinates(&self) -> [DeviceIndices<'_>; 3] {
        self.coordinates.each_ref().map(HeldIndices::view)
    }

    /// The values, wherever they are from; none if they are 1.
    pub(super) fn values(&self) -> Option<DeviceSlice<'_, V>> {
        self.values.as_ref().map(Held::slice)
    }

    /// Queues the kernel that checks the coordinates and brings them to 32 bits, after what writes them.
    pub(super) fn read(
        &self,
        scratch: &Scratch,
        narrowed: [GlobalPtr<u32>; 3],
        record: &DeviceBuffer<Coo3Record>,
    ) -> Result<(), DeviceError> {
        let coordinates = self.coordinates();
        let params = ReadCoo3Params {
            coordinates: coordinates.map(|of_mode| GlobalPtr::from_address(of_mode.address())),
            narrowed,
            record: record.pointer(),
            dims: self.dims.map(narrow),
            wide: (0..3).map(|mode| u32::from(coordinates[mode].is_wide()) << mode).sum(),
            entries: narrow(self.nnz),
            reserved: 0,
        };
        // SAFETY: there are as many coordinates of each mode, as was checked when the tensor was made, in memory that
        // lives as long as it does and is written by nothing that is not ordered with the stream; the others are memory
        // of the caller's for as many, and the record is zero.
        unsafe { scratch.launch(Variant::ReadCoo3, wide(self.nnz), &params) }
    }

    /// What a record says, of a tensor all of whose coordinates are in range. Waits for it.
    pub(super) fn found(&self, record: &DeviceBuffer<Coo3Record>) -> Result<Coo3Record, PlanError> {
        let found = record.to_vec()?.first().copied().unwrap_or_default();
        let Some((entry, mode)) = found.first_wrong() else { return Ok(found) };
        let (entry, mode) = (index(entry), index(mode));
        let coordinate = self.coordinates()[mode].get(entry..entry + 1);
        let coordinate = coordinate.map_or(Ok(Vec::new()), DeviceIndices::to_host)?;
        match coordinate[..] {
            [coordinate] if coordinate >= wide(self.dims[mode]) => {
                Err(self.out_of_range((entry, mode), coordinate))
            }
            _ => Err(PlanError::MatrixChanged),
        }
    }

    fn out_of_range(&self, (entry, mode): (usize, usize), coordinate: u64) -> PlanError {
        FormatError::CoordinateOutOfRange { entry, mode, coordinate, dim: self.dims[mode] }.into()
    }

    /// The coordinates on the host, after the work that the stream was asked for before, if all are in range.
    fn coordinates_on_host(&self, on: &Stream) -> Result<[Vec<u32>; 3], PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        if self.device.machine().is_some() {
            On::of(on, &self.device, false)?.before_own()?;
        }
        let [i, j, k] = self.coordinates();
        let found = [i.to_host()?, j.to_host()?, k.to_host()?];
        let modes = found.iter().zip(self.dims).enumerate();
        let wrong = modes.filter_map(|(mode, (of_mode, dim))| {
            let entry = of_mode.iter().position(|&coordinate| coordinate >= wide(dim))?;
            Some((entry, mode))
        });
        if let Some((entry, mode)) = wrong.min() {
            return Err(self.out_of_range((entry, mode), found[mode][entry]));
        }
        let narrowed = |of_mode: &[u64]| {
            let narrowed = of_mode.iter().map(|&coordinate| u32::try_from(coordinate).unwrap_or(u32::MAX));
            try_collect(narrowed, "coordinates")
        };
        let [i, j, k] = &found;
        Ok([narrowed(i)?, narrowed(j)?, narrowed(k)?])
    }
}

impl<'a> DeviceCoo3<'a, f32> {
    /// The tensor with these coordinates whose values are all 1; those of one place add up to how many there are.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn pattern(
        dims: [usize; 3],
        coordinates: [impl Into<DeviceIndices<'a>>; 3],
    ) -> Result<Self, PlanError> {
        Self::of_arrays(dims, coordinates.map(Into::into), None)
    }
}

impl<V: Value> DeviceCoo3<'static, V> {
    /// A copy of a tensor in the memory of a device.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Coo3, Device, DeviceCoo3};
    ///
    /// let (device, a) = (Device::best()?, Coo3::from_entries([2, 3, 2], [([1, 2, 0], 4.0f32)])?);
    /// assert_eq!(DeviceCoo3::from_host(&device, &a)?.to_host(&device.stream())?, a);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_host(device: &Device, a: &Coo3<V>) -> Result<Self, PlanError> {
        let of_mode = |mode| DeviceBuffer::named(device, a.indices(mode), "coordinates");
        let coordinates = [of_mode(0)?.into(), of_mode(1)?.into(), of_mode(2)?.into()];
        let values = Some(DeviceBuffer::named(device, a.values(), "values")?.into());
        Ok(Self { device: device.clone(), dims: a.dims(), nnz: a.nnz(), coordinates, values })
    }
}

impl<V: Value> fmt::Debug for DeviceCoo3<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, dims: [i, j, k], nnz, .. } = self;
        write!(f, "DeviceCoo3<{}>({i} × {j} × {k}, {nnz} entries on {device})", V::NAME)
    }
}
