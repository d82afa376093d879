//! Vector-wise N:M weights in the memory of a device, windrow's or the caller's.

use std::fmt;

use windrow_formats::memory::try_copy;
use windrow_formats::{NmPattern, Value, VectorNm};

use crate::device::{Device, DeviceBuffer, Stream};
use crate::error::PlanError;
use crate::plan::{On, check_device, check_dimensions, check_lengths};
use crate::view::{DeviceSlice, DeviceView, Held};

/// Weights with vector-wise N:M sparsity in the memory of a [`Device`], in the layout of [`VectorNm`]: for `w` kept
/// rows and `q` vectors of a row, `w × n` values and `w × q` indices of one byte, both row-major.
///
/// Made of arrays that are there already, of another library for example, with values of f32, f16, bf16 or f64. A plan
/// of [`NmSpmm`](super::NmSpmm) is made of it [where it is](super::NmSpmmBuilder::build_on): the values are not copied
/// to the host, only the indices, which the host checks and lays out.
///
/// Indices are below the rows of their group and strictly ascend in each vector of a group. Every use checks that, and
/// tells the first one that is wrong; no wrong weights are ever multiplied.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceBuffer, DeviceVectorNm, NmPattern, NmSpmm};
///
/// let device = Device::best()?;
/// // 4 × 2, of every two rows one in each column. On a GPU these may be arrays of another library: see `from_raw`.
/// let values = DeviceBuffer::from_slice(&device, &[1.0f32, 2.0, 4.0, 3.0])?;
/// let indices = DeviceBuffer::from_slice(&device, &[0u8, 1, 1, 0])?;
/// let weights = DeviceVectorNm::new(4, 2, NmPattern::new(1, 2, 1)?, &values, &indices)?;
///
/// let plan = NmSpmm::builder(&weights).build_on(&device.stream())?;
/// assert_eq!(plan.run(&[5.0, 6.0, 7.0, 8.0])?, [37.0, 33.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceVectorNm<'a, V: Value> {
    device: Device,
    rows: usize,
    cols: usize,
    pattern: NmPattern,
    values: Held<'a, V>,
    indices: Held<'a, u8>,
    /// The indices as a check found them: nothing changes the arrays after it.
    known: Option<VectorNm<()>>,
}

/// Where the arrays of weights are, for [`DeviceVectorNm::from_raw`]: `CUdeviceptr`s of memory in the device's primary
/// context, or ordinary addresses on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NmAddresses {
    /// Kept values, row after row, each as long as a row of the weights.
    pub values: u64,
    /// Position in its group of each vector that is kept, row after row.
    pub indices: u64,
}

impl<'a, V: Value> DeviceVectorNm<'a, V> {
    /// The `rows × cols` weights with these arrays, of which the lengths are checked.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`] unless both are on the device of the values;
    /// - [`PlanError::Format`]:
    ///   [`FormatError::DimensionTooLarge`](windrow_formats::FormatError::DimensionTooLarge) for 2³² rows or columns,
    ///   [`FormatError::LengthMismatch`](windrow_formats::FormatError::LengthMismatch) unless there are `w·n` values
    ///   and `w·q` indices.
    pub fn new(
        rows: usize,
        cols: usize,
        pattern: NmPattern,
        values: impl Into<DeviceSlice<'a, V>>,
        indices: impl Into<DeviceSlice<'a, u8>>,
    ) -> Result<Self, PlanError> {
        let (values, indices) = (values.into(), indices.into());
        check_dimensions([("rows", rows), ("columns", cols)])?;
        let device = values.device().clone();
        check_device("the array of indices", indices.device(), &device)?;
        let [expected_values, expected_indices] = lengths(rows, cols, pattern);
        check_lengths([
            ("values", values.len(), expected_values, "one for each kept row and column"),
            ("indices", indices.len(), expected_indices, "one for each kept row and vector"),
        ])?;
        let (values, indices) = (values.into(), indices.into());
        Ok(Self { device, rows, cols, pattern, values, indices, known: None })
    }

    /// The `rows × cols` weights whose arrays are at these addresses: with `w` [kept rows](NmPattern::kept_rows) and
    /// `q` [vectors](NmPattern::vectors), `w·cols` values, and `w·q` indices.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and of [`DeviceView::from_raw`](crate::DeviceView::from_raw) for each of the
    /// arrays: values are aligned to their size, indices need no alignment.
    ///
    /// # Safety
    /// For as long as the weights live both arrays are allocated and initialised, and nothing writes the indices: what
    /// is made of weights that were [checked](Self::checked) is not checked again. Nothing writes the values while a
    /// plan is made. What writes or frees the arrays before or after that is
    /// [ordered](crate::Stream#order-between-streams) with the streams on which the weights are used. On the CPU the
    /// addresses are of exposed provenance.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceVectorNm, NmAddresses, NmPattern};
    ///
    /// let (values, indices) = ([2.0f32, 3.0], [0u8, 1]);
    /// let addresses = NmAddresses {
    ///     values: values.as_ptr().expose_provenance() as u64,
    ///     indices: indices.as_ptr().expose_provenance() as u64,
    /// };
    /// let (device, pattern) = (Device::cpu(), NmPattern::new(1, 2, 1)?);
    /// // SAFETY: the arrays have as many elements, and nothing writes them.
    /// let weights = unsafe { DeviceVectorNm::<f32>::from_raw(&device, (4, 1), pattern, addresses)? };
    /// assert_eq!(weights.to_host(&device.stream())?.to_dense()?, [2.0, 0.0, 0.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn from_raw(
        device: &'a Device,
        (rows, cols): (usize, usize),
        pattern: NmPattern,
        NmAddresses { values, indices }: NmAddresses,
    ) -> Result<Self, PlanError> {
        let [value_count, index_count] = lengths(rows, cols, pattern);
        // SAFETY: the caller's promise.
        unsafe {
            let values = DeviceSlice::<V>::from_raw(device, values, value_count)?;
            Self::new(rows, cols, pattern, values, DeviceSlice::<u8>::from_raw(device, indices, index_count)?)
        }
    }

    /// Checks all indices now, on the host, in the order of a stream: else the making of each plan does.
    ///
    /// # Cost
    /// A copy of the indices, which stays.
    ///
    /// # Errors
    /// - [`PlanError::Format`] with the first index that is wrong, in the order of the groups:
    ///   [`FormatError::NmIndexRange`](windrow_formats::FormatError::NmIndexRange),
    ///   [`FormatError::NmIndexOrder`](windrow_formats::FormatError::NmIndexOrder);
    /// - [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Device`]: [`DeviceError::Captured`](crate::DeviceError::Captured) for a stream that is captured.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceBuffer, DeviceVectorNm, NmPattern};
    ///
    /// let device = Device::best()?;
    /// let values = DeviceBuffer::from_slice(&device, &[1.0f32; 4])?;
    /// let indices = DeviceBuffer::from_slice(&device, &[1u8, 1])?;
    /// let weights = DeviceVectorNm::new(4, 2, NmPattern::new(2, 4, 2)?, &values, &indices)?;
    /// let error = weights.checked(&device.stream()).unwrap_err().to_string();
    /// assert!(error.starts_with("kept row 1, vector 0: index 1"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checked(mut self, on: &Stream) -> Result<Self, PlanError> {
        self.known = Some(self.places(on)?);
        Ok(self)
    }

    /// A copy in host memory, after the work that the stream was asked for before; the indices are checked.
    ///
    /// # Errors
    /// Those of [`checked`](Self::checked).
    pub fn to_host(&self, on: &Stream) -> Result<VectorNm<V>, PlanError> {
        Ok(self.places(on)?.with_values(self.values().to_host()?)?)
    }

    /// The device whose memory they are in.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// `k`: rows of the weights, those that are not kept too.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// `n`: columns of the weights.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// `N`, `M` and `L`.
    #[must_use]
    pub fn pattern(&self) -> NmPattern {
        self.pattern
    }

    /// The kept values, wherever they are from.
    pub(super) fn values(&self) -> DeviceSlice<'_, V> {
        self.values.slice()
    }

    /// The kept values as a matrix, a row for each kept row.
    pub(super) fn rows_of_values(&self) -> DeviceView<'_, V> {
        DeviceView::of_rows(self.values(), self.cols)
    }

    /// The indices, checked, on the host; after the work that the stream was asked for before.
    pub(super) fn places(&self, on: &Stream) -> Result<VectorNm<()>, PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        if self.device.machine().is_some() {
            On::of(on, &self.device, false)?.before_own()?;
        }
        let (rows, cols, pattern) = (self.rows, self.cols, self.pattern);
        let indices = match &self.known {
            Some(known) => try_copy(known.indices(), "indices")?,
            None => self.indices.slice().to_host()?,
        };
        Ok(VectorNm::try_from_indices(rows, cols, pattern, indices)?)
    }
}

impl<V: Value> DeviceVectorNm<'static, V> {
    /// A copy of weights in the memory of a device.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceVectorNm, NmPattern, VectorNm};
    ///
    /// let device = Device::best()?;
    /// let weights = VectorNm::from_dense(&[2.0f32, 0.0, 0.0, 3.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
    /// assert_eq!(DeviceVectorNm::from_host(&device, &weights)?.to_host(&device.stream())?, weights);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_host(device: &Device, weights: &VectorNm<V>) -> Result<Self, PlanError> {
        let values = DeviceBuffer::named(device, weights.values(), "values")?.into();
        let indices = DeviceBuffer::named(device, weights.indices(), "indices")?.into();
        let (rows, cols, pattern) = (weights.rows(), weights.cols(), weights.pattern());
        Ok(Self { device: device.clone(), rows, cols, pattern, values, indices, known: None })
    }
}

/// Values and indices of weights.
fn lengths(rows: usize, cols: usize, pattern: NmPattern) -> [usize; 2] {
    let kept = pattern.kept_rows(rows);
    [kept.saturating_mul(cols), kept.saturating_mul(pattern.vectors(cols))]
}

impl<V: Value> fmt::Debug for DeviceVectorNm<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, rows, cols, pattern, .. } = self;
        write!(f, "DeviceVectorNm<{}>({rows} × {cols}, {pattern}, on {device})", V::NAME)
    }
}
