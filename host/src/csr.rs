//! Sparse matrices in the memory of a device, windrow's or the caller's.

mod canonical;
mod fault;
mod indices;
mod order_by;
mod receive;
mod spread;
#[cfg(all(test, feature = "emulator"))]
mod tests;
mod transpose;
mod transposition;

use std::fmt;

use windrow_formats::{Csr, Value};
use windrow_kernels::csr::CsrRecord;

pub(crate) use indices::HeldIndices;
pub use indices::{DeviceIndices, Index};
pub(crate) use order_by::{Key, Ordered};
pub(crate) use receive::{Received, Wanted, given};
pub(crate) use spread::{CutAt, SpreadSegments};
pub use transpose::Transposed;

use crate::device::{Device, DeviceBuffer, Stream};
use crate::error::PlanError;
use crate::num::{narrow, wide};
use crate::plan::{On, check_device, check_dimensions, check_lengths};
use crate::view::{DeviceSlice, Held};

/// A CSR matrix in the memory of a [`Device`]: row `r` has its entries at `offsets[r] .. offsets[r + 1]` of columns and
/// values.
///
/// Made of arrays that are there already, PyTorch's `crow_indices`, `col_indices` and `values` for example, with
/// offsets and columns of 32 or 64 bits and values of f32, f64, f16 or bf16, or none: then all are 1. Plans of
/// [`Spmm`](crate::Spmm) and [`Sddmm`](crate::Sddmm) and a [`RowSoftmax`](crate::RowSoftmax) are made of it where it
/// is: kernels check it, count what decides, and lay it out; the matrix is not copied to the host.
///
/// Offsets ascend from 0 to the number of entries, columns strictly ascend in each row. Every use checks that, and
/// tells the first row and entry that are wrong; no wrong matrix is ever multiplied.
///
/// # Examples
/// ```
/// use windrow::{Device, DeviceBuffer, DeviceCsr, Spmm};
///
/// let device = Device::best()?;
/// // On a GPU these may be arrays of another library: see `from_raw`.
/// let offsets = DeviceBuffer::from_slice(&device, &[0i64, 2, 3])?;
/// let columns = DeviceBuffer::from_slice(&device, &[0i64, 2, 1])?;
/// let values = DeviceBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0])?;
/// let a = DeviceCsr::new(2, 3, &offsets, &columns, &values)?;
///
/// let plan = Spmm::builder(&a).width(1).build_on(&device.stream())?;
/// assert_eq!(plan.run(&[1.0, 10.0, 100.0])?, [201.0, 30.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceCsr<'a, V: Value> {
    device: Device,
    rows: usize,
    cols: usize,
    nnz: usize,
    offsets: HeldIndices<'a>,
    columns: HeldIndices<'a>,
    /// None: they are 1.
    values: Option<Held<'a, V>>,
    /// What a check found, if there was one: nothing changes the arrays after it.
    known: Option<Known>,
}

/// Where the arrays of a matrix are, for [`DeviceCsr::from_raw`]: `CUdeviceptr`s of memory in the device's primary
/// context, or ordinary addresses on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsrAddresses {
    /// Where the entries of each row begin, and behind the last row.
    pub offsets: u64,
    /// Column of each entry, row after row.
    pub columns: u64,
    /// Value of each entry, in the same order.
    pub values: u64,
}

/// What is known of a matrix in canonical form.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) record: CsrRecord,
    /// Whether the distinct columns of the rows in the middle were counted.
    pub(crate) columns_counted: bool,
}

/// What a matrix of windrow's is made of.
pub(crate) struct OwnedCsr<V: Value> {
    pub(crate) offsets: DeviceBuffer<u64>,
    pub(crate) columns: DeviceBuffer<u32>,
    /// None: they are 1.
    pub(crate) values: Option<DeviceBuffer<V>>,
}

/// The arrays of a matrix, wherever they are from.
#[derive(Clone, Copy)]
struct Arrays<'a, V: Value> {
    offsets: DeviceIndices<'a>,
    columns: DeviceIndices<'a>,
    /// None: they are 1.
    values: Option<DeviceSlice<'a, V>>,
}

impl<'a, V: Value> DeviceCsr<'a, V> {
    /// The `rows × cols` matrix with these arrays, of which the lengths are checked.
    ///
    /// # Errors
    /// - [`PlanError::WrongDevice`] unless all are on the device of the offsets;
    /// - [`PlanError::Format`]:
    ///   [`FormatError::DimensionTooLarge`](windrow_formats::FormatError::DimensionTooLarge) for 2³² rows or columns,
    ///   [`FormatError::LengthMismatch`](windrow_formats::FormatError::LengthMismatch) unless there is an offset more
    ///   than there are rows, and a value for each column.
    pub fn new(
        rows: usize,
        cols: usize,
        offsets: impl Into<DeviceIndices<'a>>,
        columns: impl Into<DeviceIndices<'a>>,
        values: impl Into<DeviceSlice<'a, V>>,
    ) -> Result<Self, PlanError> {
        let values = Some(values.into());
        Self::of_arrays(rows, cols, Arrays { offsets: offsets.into(), columns: columns.into(), values })
    }

    /// The `rows × cols` matrix with `nnz` entries whose arrays are at these addresses: `rows + 1` offsets of type `O`,
    /// `nnz` columns of type `C`, and `nnz` values.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and of [`DeviceView::from_raw`](crate::DeviceView::from_raw) for each of the
    /// arrays.
    ///
    /// # Safety
    /// For as long as the matrix lives the three arrays are allocated and initialised, and nothing writes them: what is
    /// made of a matrix that was [checked](Self::checked) is not checked again. What writes or frees them before or
    /// after that is [ordered](crate::Stream#order-between-streams) with the streams on which the matrix is used. On
    /// the CPU the addresses are of exposed provenance.
    ///
    /// # Examples
    /// ```
    /// use windrow::{CsrAddresses, Device, DeviceCsr};
    ///
    /// let (offsets, columns, values) = ([0i32, 1, 2], [1i32, 0], [2.0f32, 3.0]);
    /// let addresses = CsrAddresses {
    ///     offsets: offsets.as_ptr().expose_provenance() as u64,
    ///     columns: columns.as_ptr().expose_provenance() as u64,
    ///     values: values.as_ptr().expose_provenance() as u64,
    /// };
    /// let device = Device::cpu();
    /// // SAFETY: the arrays have as many elements, and nothing writes them.
    /// let a = unsafe { DeviceCsr::<f32>::from_raw::<i32, i32>(&device, (2, 2), 2, addresses)? };
    /// assert_eq!(a.to_host(&device.stream())?.values(), [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn from_raw<O: Index, C: Index>(
        device: &'a Device,
        (rows, cols): (usize, usize),
        nnz: usize,
        CsrAddresses { offsets, columns, values }: CsrAddresses,
    ) -> Result<Self, PlanError> {
        let offset_count = rows.saturating_add(1);
        // SAFETY: the caller's promise.
        unsafe {
            let offsets = DeviceSlice::<O>::from_raw(device, offsets, offset_count)?;
            let columns = DeviceSlice::<C>::from_raw(device, columns, nnz)?;
            Self::new(rows, cols, offsets, columns, DeviceSlice::<V>::from_raw(device, values, nnz)?)
        }
    }

    fn of_arrays(rows: usize, cols: usize, arrays: Arrays<'a, V>) -> Result<Self, PlanError> {
        check_dimensions([("rows", rows), ("columns", cols)])?;
        let Arrays { offsets, columns, values } = arrays;
        let (device, nnz) = (offsets.device().clone(), columns.len());
        check_device("the array of columns", columns.device(), &device)?;
        if let Some(values) = &values {
            check_device("the array of values", values.device(), &device)?;
        }
        let of_values = values.as_ref().map_or(nnz, DeviceSlice::len);
        check_lengths([
            ("row_offsets", offsets.len(), rows + 1, "one more than there are rows"),
            ("values", of_values, nnz, "one for each column index"),
        ])?;
        let (offsets, columns, values) = (offsets.into(), columns.into(), values.map(Held::from));
        Ok(Self { device, rows, cols, nnz, offsets, columns, values, known: None })
    }

    /// Checks the whole matrix now, in the order of a stream, and waits for the outcome: else the making of a plan
    /// does. Of a matrix that was checked a plan for [few products](crate::SpmmBuilder::expected_runs) is made without
    /// waiting for the device.
    ///
    /// # Cost
    /// Two kernels, which read all but the values.
    ///
    /// # Errors
    /// - [`PlanError::Format`] with the first row and entry that are wrong:
    ///   [`FormatError::FirstOffset`](windrow_formats::FormatError::FirstOffset),
    ///   [`FormatError::OffsetsDecrease`](windrow_formats::FormatError::OffsetsDecrease),
    ///   [`FormatError::LastOffset`](windrow_formats::FormatError::LastOffset),
    ///   [`FormatError::ColumnOutOfRange`](windrow_formats::FormatError::ColumnOutOfRange),
    ///   [`FormatError::ColumnsNotAscending`](windrow_formats::FormatError::ColumnsNotAscending);
    /// - [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Device`]: [`DeviceError::Captured`](crate::DeviceError::Captured) for a stream that is captured.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceBuffer, DeviceCsr};
    ///
    /// let device = Device::best()?;
    /// let offsets = DeviceBuffer::from_slice(&device, &[0i32, 2])?;
    /// let columns = DeviceBuffer::from_slice(&device, &[3i32, 1])?;
    /// let error = DeviceCsr::pattern(1, 4, &offsets, &columns)?.checked(&device.stream()).unwrap_err();
    /// assert!(error.to_string().starts_with("row 0, entry 1: column 1 follows column 3"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checked(mut self, on: &Stream) -> Result<Self, PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        match self.device.machine() {
            Some(_) if self.fits_kernels() => {
                self.known = Some(self.find_out(&On::of(on, &self.device, false)?)?);
            }
            _ => self.fault(on)?.map_or(Ok(()), Err)?,
        }
        Ok(self)
    }

    /// A copy in host memory, after the work that the stream was asked for before; the canonical form is checked.
    ///
    /// # Errors
    /// Those of [`checked`](Self::checked).
    pub fn to_host(&self, on: &Stream) -> Result<Csr<V>, PlanError> {
        self.download(on)
    }

    /// The device whose memory it is in.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Rows of the matrix, those without entries too.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: what all of its column indices are below.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of entries, stored zeros included.
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    fn arrays(&self) -> Arrays<'_, V> {
        Arrays {
            offsets: self.offsets.view(),
            columns: self.columns.view(),
            values: self.values.as_ref().map(Held::slice),
        }
    }
}

impl<'a> DeviceCsr<'a, f32> {
    /// The `rows × cols` matrix with these offsets and columns whose values are all 1: the adjacency of a graph.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn pattern(
        rows: usize,
        cols: usize,
        offsets: impl Into<DeviceIndices<'a>>,
        columns: impl Into<DeviceIndices<'a>>,
    ) -> Result<Self, PlanError> {
        let (offsets, columns) = (offsets.into(), columns.into());
        Self::of_arrays(rows, cols, Arrays { offsets, columns, values: None })
    }
}

impl<V: Value> DeviceCsr<'static, V> {
    /// A matrix of windrow's own arrays, in canonical form, and what is known of it.
    pub(crate) fn of_owned(
        (rows, cols): (usize, usize),
        OwnedCsr { offsets, columns, values }: OwnedCsr<V>,
        known: Option<Known>,
    ) -> Self {
        Self {
            device: offsets.device().clone(),
            rows,
            cols,
            nnz: columns.len(),
            offsets: offsets.into(),
            columns: columns.into(),
            values: values.map(Held::from),
            known,
        }
    }

    /// A copy of a matrix in the memory of a device.
    ///
    /// # Errors
    /// [`PlanError::Device`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceCsr};
    ///
    /// let (device, a) = (Device::best()?, Csr::<f32>::identity(3)?);
    /// assert_eq!(DeviceCsr::from_host(&device, &a)?.to_host(&device.stream())?, a);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_host(device: &Device, a: &Csr<V>) -> Result<Self, PlanError> {
        let arrays = OwnedCsr {
            offsets: DeviceBuffer::named(device, a.row_offsets(), "row_offsets")?,
            columns: DeviceBuffer::named(device, a.col_indices(), "col_indices")?,
            values: Some(DeviceBuffer::named(device, a.values(), "values")?),
        };
        let lengths = || (0..a.rows()).map(|row| a.row_len(row));
        let record = CsrRecord {
            longest: wide(lengths().max().unwrap_or(0)),
            empty_rows: narrow(lengths().filter(|&length| length == 0).count()),
            ..CsrRecord::default()
        };
        let known = Some(Known { record, columns_counted: false });
        Ok(Self::of_owned((a.rows(), a.cols()), arrays, known))
    }
}

impl<V: Value> fmt::Debug for DeviceCsr<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, rows, cols, nnz, .. } = self;
        write!(f, "DeviceCsr<{}>({rows} × {cols}, {nnz} entries on {device})", V::NAME)
    }
}
