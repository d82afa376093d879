//! Matrices and arrays in the memory of a device, windrow's or the caller's.

mod borrowed;
mod held;
mod lent;
mod pitched;
mod place;
mod slice;

use std::fmt;

use windrow_formats::Value;

pub(crate) use held::Held;
pub(crate) use pitched::Pitched;
pub use slice::{DeviceSlice, DeviceSliceMut};

use crate::dense::{DenseMut, DenseRef};
use crate::device::Device;
use crate::error::{DeviceError, PlanError};
use crate::matrix::{DeviceMatrix, elements};
use place::{Place, PlaceMut};

/// A row-major matrix in the memory of a [`Device`], which may be read: row `r` is elements `r·ld .. r·ld + cols`.
///
/// Made of a [`DeviceMatrix`], or of memory that another library has allocated.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, DeviceView, DeviceViewMut, Spmm};
///
/// // On a GPU these would be addresses of tensors that are there already; on the CPU any memory does.
/// let (device, b, mut c) = (Device::cpu(), [1.0f32, 2.0, 3.0, 4.0], [0.0f32; 4]);
/// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(2).build(&device)?;
/// let at = |address: *const f32| address.expose_provenance() as u64;
/// // SAFETY: both arrays have four elements, and nothing else uses them while the views live.
/// let (from, to) = unsafe {
///     (
///         DeviceView::<f32>::from_raw(&device, at(b.as_ptr()), 2, 2, 2)?,
///         DeviceViewMut::<f32>::from_raw(&device, at(c.as_mut_ptr()), 2, 2, 2)?,
///     )
/// };
/// plan.run_into_on(&device.stream(), 1.0, from, 0.0, to)?;
/// assert_eq!(c, b);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceView<'a, T: Value> {
    device: &'a Device,
    place: Place<'a, T>,
    shape: Shape,
}

/// A row-major matrix in the memory of a [`Device`], which may be written: [`DeviceView`] otherwise. Elements between
/// `cols` and `ld` are never touched.
pub struct DeviceViewMut<'a, T: Value> {
    device: &'a Device,
    place: PlaceMut<'a, T>,
    shape: Shape,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    cols: usize,
    ld: usize,
    /// Elements from the first on that may be read: some behind the last row may be missing.
    readable: usize,
    /// Whether it is windrow's memory.
    owned: bool,
}

impl Shape {
    /// Elements to the end of the last row.
    fn span(&self) -> usize {
        span(self.rows, self.cols, self.ld)
    }
}

fn span(rows: usize, cols: usize, ld: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * ld + cols }
}

impl<'a, T: Value> DeviceView<'a, T> {
    /// The `rows × cols` matrix at `address` with `ld` elements from row to row: a `CUdeviceptr` of memory in the
    /// device's primary context, or an ordinary address on the CPU.
    ///
    /// What the driver knows of the memory is checked; it takes it about a microsecond.
    ///
    /// # Errors
    /// - [`PlanError::LeadingDimension`] if `ld < cols`, [`PlanError::TooLarge`] if there are more elements than can be
    ///   counted;
    /// - [`PlanError::Misaligned`] if the address is no multiple of an element's alignment;
    /// - [`PlanError::NotDeviceMemory`] for 0, memory of the host or of another device;
    /// - [`PlanError::BeyondMemory`] if the last row ends behind the memory.
    ///
    /// A matrix without elements may be anywhere.
    ///
    /// # Safety
    /// For as long as the view lives, and until the work that was queued with it is done: the memory is allocated,
    /// holds initialised elements, and nothing writes it that is not [ordered](crate::Stream#order-between-streams)
    /// with that work. On the CPU the address is of exposed provenance.
    pub unsafe fn from_raw(
        device: &'a Device,
        address: u64,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, PlanError> {
        let shape = Shape::borrowed::<T>(device, address, (rows, cols), ld)?;
        // SAFETY: the caller's promise, of memory that was just checked.
        let place = unsafe { borrowed::place(device, address, shape.span()) };
        Ok(Self { device, place, shape })
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Columns of the matrix: elements of a row, without padding.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.shape.cols
    }

    /// Elements from the start of a row to the start of the next.
    #[must_use]
    pub fn ld(&self) -> usize {
        self.shape.ld
    }

    /// Address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.place.address()
    }

    /// The device whose memory it is in.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// Whether it is windrow's memory, which the device's own stream uses, too.
    pub(crate) fn is_owned(&self) -> bool {
        self.shape.owned
    }

    /// Whether kernels may read all rows to the end of the 16 bytes that their last column is in, if rows begin at
    /// multiples of that: all of them are memory, and none of them is of the output.
    pub(crate) fn reads_vectors(&self, output: Pitched) -> bool {
        let Shape { cols, ld, readable, .. } = self.shape;
        let cols = cols.next_multiple_of((16 / size_of::<T>()).max(1)).min(ld);
        let read = Shape { cols, ..self.shape };
        read.span() <= readable && !Pitched::of::<T>(self.address(), read).overlaps(output)
    }

    /// The bytes of all rows.
    pub(crate) fn bytes(&self) -> Pitched {
        Pitched::of::<T>(self.address(), self.shape)
    }

    /// The matrix, if it is in host memory.
    pub(crate) fn host(&self) -> Option<DenseRef<'a, T>> {
        let Shape { rows, cols, ld, .. } = self.shape;
        match self.place {
            Place::Host(elements) => DenseRef::try_new(elements, rows, cols, ld).ok(),
            Place::Device(_) => None,
        }
    }

    /// As many rows of `cols` elements as an array has, one after the other.
    pub(crate) fn of_rows(elements: DeviceSlice<'a, T>, cols: usize) -> Self {
        let readable = elements.len();
        let (device, place, owned) = elements.parts();
        let shape = Shape { rows: readable.checked_div(cols).unwrap_or(0), cols, ld: cols, readable, owned };
        Self { device, place, shape }
    }

    /// A copy on the host, rows without padding, after all work that the device's own stream was asked for.
    pub(crate) fn to_host(self) -> Result<Vec<T>, DeviceError> {
        let Shape { rows, cols, ld, owned, .. } = self.shape;
        let span = DeviceSlice::of_span(self.device, self.place, self.shape.span(), owned);
        let mut elements = span.to_host()?;
        if ld != cols && !elements.is_empty() {
            for r in 1..rows {
                elements.copy_within(r * ld..r * ld + cols, r * cols);
            }
        }
        elements.truncate(rows * cols);
        Ok(elements)
    }
}

impl<'a, T: Value> DeviceViewMut<'a, T> {
    /// [`DeviceView::from_raw`] of a matrix that may be written.
    ///
    /// # Errors
    /// Those of [`DeviceView::from_raw`].
    ///
    /// # Safety
    /// As for [`DeviceView::from_raw`]; and nothing else uses the elements, those between `cols` and `ld` excepted,
    /// that is not ordered with the work.
    pub unsafe fn from_raw(
        device: &'a Device,
        address: u64,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, PlanError> {
        let shape = Shape::borrowed::<T>(device, address, (rows, cols), ld)?;
        // SAFETY: the caller's promise, of memory that was just checked.
        let place = unsafe { borrowed::place_mut(device, address, shape.span()) };
        Ok(Self { device, place, shape })
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Columns of the matrix: elements of a row, without padding.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.shape.cols
    }

    /// Elements from the start of a row to the start of the next.
    #[must_use]
    pub fn ld(&self) -> usize {
        self.shape.ld
    }

    /// Address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.place.read_only().address()
    }

    /// The device whose memory it is in.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// The same matrix for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> DeviceViewMut<'_, T> {
        DeviceViewMut { device: self.device, place: self.place.reborrow(), shape: self.shape }
    }

    /// The same matrix, read only.
    #[must_use]
    pub fn as_view(&self) -> DeviceView<'_, T> {
        DeviceView { device: self.device, place: self.place.read_only(), shape: self.shape }
    }

    /// Whether it is windrow's memory, which the device's own stream uses, too.
    pub(crate) fn is_owned(&self) -> bool {
        self.shape.owned
    }

    /// The bytes of all rows.
    pub(crate) fn bytes(&self) -> Pitched {
        Pitched::of::<T>(self.address(), self.shape)
    }

    /// The matrix, if it is in host memory.
    pub(crate) fn into_host(self) -> Option<DenseMut<'a, T>> {
        let Shape { rows, cols, ld, .. } = self.shape;
        match self.place {
            PlaceMut::Host(elements) => DenseMut::try_new(elements, rows, cols, ld).ok(),
            PlaceMut::Device(_) => None,
        }
    }
}

impl Shape {
    /// Of windrow's memory, with all rows up to their leading dimension.
    fn owned<T: Value>(matrix: &DeviceMatrix<T>) -> Self {
        let (rows, cols, ld) = (matrix.rows(), matrix.cols(), matrix.ld());
        Self { rows, cols, ld, readable: rows * ld, owned: true }
    }

    /// Of memory at `address`, after looking at it.
    fn borrowed<T: Value>(
        device: &Device,
        address: u64,
        (rows, cols): (usize, usize),
        ld: usize,
    ) -> Result<Self, PlanError> {
        let most = elements(rows, cols, ld)?;
        let readable = borrowed::check::<T>(device, address, span(rows, cols, ld), most)?;
        Ok(Self { rows, cols, ld, readable, owned: false })
    }
}

impl<T: Value> Clone for DeviceView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Value> Copy for DeviceView<'_, T> {}

impl<'a, T: Value> From<&'a DeviceMatrix<T>> for DeviceView<'a, T> {
    fn from(matrix: &'a DeviceMatrix<T>) -> Self {
        let buffer = matrix.buffer();
        Self { device: buffer.device(), place: Place::of(buffer), shape: Shape::owned(matrix) }
    }
}

impl<'a, T: Value> From<&'a mut DeviceMatrix<T>> for DeviceViewMut<'a, T> {
    fn from(matrix: &'a mut DeviceMatrix<T>) -> Self {
        let shape = Shape::owned(matrix);
        let (device, place) = PlaceMut::of(matrix.buffer_mut());
        Self { device, place, shape }
    }
}

impl<'a, T: Value> From<&'a mut DeviceViewMut<'_, T>> for DeviceViewMut<'a, T> {
    fn from(view: &'a mut DeviceViewMut<'_, T>) -> Self {
        view.reborrow()
    }
}

impl<T: Value> DeviceMatrix<T> {
    /// The matrix, for calls that take memory of any origin.
    #[must_use]
    pub fn view(&self) -> DeviceView<'_, T> {
        self.into()
    }

    /// The matrix, for calls that write memory of any origin.
    #[must_use]
    pub fn view_mut(&mut self) -> DeviceViewMut<'_, T> {
        self.into()
    }
}

impl<T: Value> fmt::Debug for DeviceView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Shape { rows, cols, ld, .. }, address) = (self.shape, self.address());
        write!(f, "DeviceView<{}>({rows} × {cols}, ld {ld}, at {address:#x} on {})", T::NAME, self.device)
    }
}

impl<T: Value> fmt::Debug for DeviceViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Shape { rows, cols, ld, .. }, address) = (self.shape, self.address());
        write!(f, "DeviceViewMut<{}>({rows} × {cols}, ld {ld}, at {address:#x} on {})", T::NAME, self.device)
    }
}

#[cfg(test)]
mod tests;
