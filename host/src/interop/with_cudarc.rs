//! `cudarc`: its streams and its memory in windrow's calls, and windrow's memory in its own.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, SyncOnDrop,
};
use windrow_formats::Value;

use crate::device::{Device, DeviceBuffer, Queue, Stream};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;
use crate::plan::On;
use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut};

/// A stream of `cudarc`, for windrow's calls and for cudarc's memory in them.
///
/// Slices are borrowed as operands by [`view`](Self::view) and its like. While such a value lives, they are ordered as
/// windrow's own memory is, on [whatever stream](Stream#order-between-streams): what cudarc was asked to do with them
/// before comes before, and what it is asked for when the value is gone comes after. The GPU waits, not the host.
/// Values that are leaked are not ordered with what comes after them.
///
/// # Examples
/// ```
/// use cudarc::driver::CudaContext;
/// use windrow::interop::CudarcStream;
/// use windrow::{Csr, Device, Spmm};
///
/// let Ok(device) = Device::cuda(0) else { return Ok(()) }; // no GPU
/// let (a, cuda) = (Csr::<f32>::identity(2)?, CudaContext::new(0)?.new_stream()?);
/// let plan = Spmm::builder(&a).width(2).build(&device)?;
/// let b = cuda.clone_htod(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let mut c = cuda.alloc_zeros::<f32>(4)?;
///
/// let on = CudarcStream::new(&device, &cuda)?;
/// plan.run_into_on(on.stream(), 2.0, &on.view(&b, 2, 2, 2)?, 0.0, &mut on.view_mut(&mut c, 2, 2, 2)?)?;
/// assert_eq!(cuda.clone_dtoh(&c)?, [2.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CudarcStream {
    device: Device,
    stream: Stream,
    cuda: Arc<CudaStream>,
}

/// What a [`Stream`] made of cudarc's keeps: that stream, whose work is waited for before it may be gone.
struct Kept {
    queue: Arc<dyn Queue>,
    /// Not read: it lives.
    _cuda: Arc<CudaStream>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A stream that is captured may not be waited for. Errors have nobody to go to: later calls tell them.
        if self.queue.is_captured().is_ok_and(|captured| !captured) {
            let _ = self.queue.synchronize();
        }
    }
}

impl CudarcStream {
    /// For work of a device in this stream, which lives as long as any handle of the [`Stream`] made of it. When the
    /// last is dropped, the work of the stream is waited for.
    ///
    /// # Errors
    /// - [`DeviceError::OtherDevice`] unless the stream's context is the device's primary one, as of
    ///   [`CudaContext::new`] with its number;
    /// - those of [`Stream::from_raw`].
    pub fn new(device: &Device, cuda: &Arc<CudaStream>) -> Result<Self, DeviceError> {
        check_context(device, "the stream", cuda.context())?;
        // SAFETY: the handle is that of a stream that lives as long as what is kept; its work is waited for before
        // another may get the same handle.
        let stream = unsafe { Stream::from_raw(device, cuda.cu_stream().cast())? };
        let stream = match stream.shared_queue() {
            Some(queue) => {
                let kept = Kept { queue: Arc::clone(queue), _cuda: Arc::clone(cuda) };
                stream.keeping(Arc::new(kept))
            }
            None => stream,
        };
        Ok(Self { device: device.clone(), stream, cuda: Arc::clone(cuda) })
    }

    /// The stream, for calls whose names end in `_on`.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The same stream, as cudarc knows it.
    #[must_use]
    pub fn cuda(&self) -> &Arc<CudaStream> {
        &self.cuda
    }

    /// The `rows × cols` matrix at the beginning of a [`CudaSlice`] or a view of one, with `ld` elements from row to
    /// row.
    ///
    /// # Errors
    /// - [`PlanError::BeyondMemory`] if the slice ends before the last row does; [`PlanError::LeadingDimension`] if
    ///   `ld < cols`;
    /// - [`PlanError::Device`]: [`DeviceError::OtherDevice`] for memory of another context than the stream's,
    ///   [`DeviceError::Captured`] if the stream is captured: see [`DeviceView::from_raw`].
    pub fn view<'a, T: Value>(
        &'a self,
        memory: &'a impl DevicePtr<T>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<CudarcView<'a, T>, PlanError> {
        self.check(memory.stream())?;
        let len = memory.len();
        let (address, sync) = memory.device_ptr(&self.cuda);
        check_end::<T>(address, len, (rows, cols, ld))?;
        let order = Order::begin(self, sync)?;
        // SAFETY: the slice has the elements, by the count, and is borrowed while the view lives; `order` has all work
        // with it after what wrote it, and what comes later after that work.
        let view = unsafe { DeviceView::from_raw(&self.device, address, rows, cols, ld)? };
        Ok(CudarcView { view: view.ordered(), _order: order })
    }

    /// [`view`](Self::view) of a matrix that may be written.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub fn view_mut<'a, T: Value>(
        &'a self,
        memory: &'a mut impl DevicePtrMut<T>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<CudarcViewMut<'a, T>, PlanError> {
        self.check(memory.stream())?;
        let len = memory.len();
        let (address, sync) = memory.device_ptr_mut(&self.cuda);
        check_end::<T>(address, len, (rows, cols, ld))?;
        let order = Order::begin(self, sync)?;
        // SAFETY: as for `view`; the slice is borrowed for itself.
        let view = unsafe { DeviceViewMut::from_raw(&self.device, address, rows, cols, ld)? };
        Ok(CudarcViewMut { view: view.ordered(), _order: order })
    }

    /// The elements of a [`CudaSlice`] or a view of one.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub fn slice<'a, T: Pod>(
        &'a self,
        memory: &'a impl DevicePtr<T>,
    ) -> Result<CudarcSlice<'a, T>, PlanError> {
        self.check(memory.stream())?;
        let len = memory.len();
        let (address, sync) = memory.device_ptr(&self.cuda);
        let order = Order::begin(self, sync)?;
        // SAFETY: as for `view`.
        let slice = unsafe { DeviceSlice::from_raw(&self.device, address, len)? };
        Ok(CudarcSlice { slice: slice.ordered(), _order: order })
    }

    /// [`slice`](Self::slice) of elements that may be written.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub fn slice_mut<'a, T: Pod>(
        &'a self,
        memory: &'a mut impl DevicePtrMut<T>,
    ) -> Result<CudarcSliceMut<'a, T>, PlanError> {
        self.check(memory.stream())?;
        let len = memory.len();
        let (address, sync) = memory.device_ptr_mut(&self.cuda);
        let order = Order::begin(self, sync)?;
        // SAFETY: as for `view_mut`.
        let slice = unsafe { DeviceSliceMut::from_raw(&self.device, address, len)? };
        Ok(CudarcSliceMut { slice: slice.ordered(), _order: order })
    }

    /// windrow's memory for cudarc's calls, in the order of this stream: after all that windrow was asked to do with
    /// it, and before all that it is asked for when the value is gone.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] for a buffer of another device, [`DeviceError::Captured`] if the stream is
    /// captured.
    ///
    /// # Panics
    /// cudarc does if the driver refuses an event.
    pub fn lend<'a, T: Pod>(
        &'a self,
        buffer: &'a mut DeviceBuffer<T>,
    ) -> Result<CudarcMemory<'a, T>, DeviceError> {
        if !buffer.device().is_same(&self.device) {
            let (found, expected) = (buffer.device().to_string(), self.device.to_string());
            return Err(DeviceError::OtherDevice { what: "the buffer", found, expected });
        }
        self.check_uncaptured()?;
        on(self)?.after_own()?;
        // SAFETY: live memory of so many initialised elements, borrowed for itself; `CudarcMemory` gives nobody what
        // could free it.
        let slice = unsafe { self.cuda.upgrade_device_ptr(buffer.address(), buffer.len()) };
        Ok(CudarcMemory { slice: ManuallyDrop::new(slice), of: self })
    }

    fn check(&self, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
        check_context(&self.device, "the memory", stream.context())?;
        self.check_uncaptured()
    }

    /// Before anything is inserted in the order of the stream.
    fn check_uncaptured(&self) -> Result<(), DeviceError> {
        let (what, remedy) = (
            "the order between windrow's work and cudarc's",
            "take the memory by `from_raw`, or before the capture and `lent`, and order the graph's launches yourself",
        );
        match self.stream.queue().map_or(Ok(false), Queue::is_captured)? {
            true => Err(DeviceError::Captured { what, remedy }),
            false => Ok(()),
        }
    }
}

/// Has cudarc queue work in a stream of windrow's.
///
/// # Errors
/// - [`DeviceError::OtherDevice`] unless the context is the primary one of the stream's device;
/// - [`DeviceError::NotAvailable`] for a stream of another device than a GPU.
///
/// # Safety
/// A handle of the stream lives as long as the result, its clones, and all cudarc memory that was made with them.
/// cudarc does not order the work of its other streams with this one as it does with those it has made.
pub unsafe fn cudarc_stream(
    stream: &Stream,
    context: &Arc<CudaContext>,
) -> Result<Arc<CudaStream>, DeviceError> {
    let Some(raw) = stream.raw() else {
        let (device, operation, remedy) =
            (stream.device().to_string(), "queue cudarc's work", "a CUDA device");
        return Err(DeviceError::NotAvailable { device, operation, remedy });
    };
    check_context(stream.device(), "cudarc's context", context)?;
    // SAFETY: a stream of this context that lives on, by the caller's promise.
    Ok(unsafe { context.wrap_borrowed_stream(raw.cast()) })
}

/// # Errors
/// [`DeviceError::OtherDevice`] unless the context is the device's primary one.
fn check_context(device: &Device, what: &'static str, context: &Arc<CudaContext>) -> Result<(), DeviceError> {
    let Some((primary, _)) = device.machine().map_or(Ok(None), crate::device::Machine::raw_cuda)? else {
        let (operation, remedy) = ("share memory and streams with cudarc", "a CUDA device");
        return Err(DeviceError::NotAvailable { device: device.to_string(), operation, remedy });
    };
    if context.cu_ctx().addr() == primary {
        return Ok(());
    }
    let found = format!("another CUDA context, of GPU {}", context.ordinal());
    Err(DeviceError::OtherDevice { what, found, expected: format!("the primary context of {device}") })
}

/// Whether a slice of `len` elements has the last row.
///
/// # Errors
/// [`PlanError::BeyondMemory`].
fn check_end<T>(address: u64, len: usize, (rows, cols, ld): (usize, usize, usize)) -> Result<(), PlanError> {
    let span = || (rows - 1).checked_mul(ld)?.checked_add(cols);
    let needed = if rows == 0 || cols == 0 { Some(0) } else { span() };
    if needed.is_some_and(|needed| needed <= len) {
        return Ok(());
    }
    let bytes = |elements: usize| wide(elements).saturating_mul(wide(size_of::<T>()));
    let (needed, end) = (bytes(needed.unwrap_or(usize::MAX)), address + bytes(len));
    Err(PlanError::BeyondMemory { address, bytes: needed, end })
}

fn on(of: &CudarcStream) -> Result<On<'_>, DeviceError> {
    On::of(&of.stream, &of.device, true).map_err(|error| match error {
        PlanError::Device(error) => error,
        // Not reached: the stream is the device's.
        _ => DeviceError::NotAvailable {
            device: of.device.to_string(),
            operation: "order work with cudarc's",
            remedy: "a CUDA device",
        },
    })
}

/// A loan of cudarc's memory: while it lives, work on the device's own stream comes after what cudarc was asked for
/// before, and what cudarc is asked for afterwards comes after all work that the own stream goes on after.
struct Order<'a> {
    of: &'a CudarcStream,
    /// Has cudarc note what was queued, when it is dropped.
    _sync: SyncOnDrop<'a>,
}

impl<'a> Order<'a> {
    fn begin(of: &'a CudarcStream, sync: SyncOnDrop<'a>) -> Result<Self, DeviceError> {
        on(of)?.before_own()?;
        Ok(Self { of, _sync: sync })
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        if on(self.of).and_then(|on| on.after_own()).is_err() {
            let _ = self.of.device.synchronize(); // nobody to tell: what failed is told by later calls
        }
    }
}

/// A matrix in cudarc's memory, borrowed by [`CudarcStream::view`]: becomes a [`DeviceView`].
pub struct CudarcView<'a, T: Value> {
    view: DeviceView<'a, T>,
    _order: Order<'a>,
}

/// A matrix in cudarc's memory that may be written: becomes a [`DeviceViewMut`].
pub struct CudarcViewMut<'a, T: Value> {
    view: DeviceViewMut<'a, T>,
    _order: Order<'a>,
}

/// An array in cudarc's memory, borrowed by [`CudarcStream::slice`]: becomes a [`DeviceSlice`].
pub struct CudarcSlice<'a, T: Pod> {
    slice: DeviceSlice<'a, T>,
    _order: Order<'a>,
}

/// An array in cudarc's memory that may be written: becomes a [`DeviceSliceMut`].
pub struct CudarcSliceMut<'a, T: Pod> {
    slice: DeviceSliceMut<'a, T>,
    _order: Order<'a>,
}

/// windrow's memory in cudarc's hands, by [`CudarcStream::lend`]: what its kernels and copies take.
pub struct CudarcMemory<'a, T: Pod> {
    /// Never dropped, for that would free the memory: it is leaked.
    slice: ManuallyDrop<CudaSlice<T>>,
    of: &'a CudarcStream,
}

impl<T: Pod> CudarcMemory<'_, T> {
    /// The elements, to be read.
    #[must_use]
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// The elements, to be written.
    #[must_use]
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }
}

impl<T: Pod> Drop for CudarcMemory<'_, T> {
    fn drop(&mut self) {
        // SAFETY: nothing uses the field after this.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        slice.leak(); // the stream goes on after all that cudarc did with it; the memory stays windrow's
        let ordered = on(self.of).and_then(|on| on.before_own());
        if ordered.is_err() {
            let _ = self.of.stream.synchronize(); // nobody to tell: what failed is told by later calls
        }
    }
}

impl<'a, T: Value> From<&'a CudarcView<'_, T>> for DeviceView<'a, T> {
    fn from(of: &'a CudarcView<'_, T>) -> Self {
        of.view
    }
}

impl<'a, T: Value> From<&'a mut CudarcViewMut<'_, T>> for DeviceViewMut<'a, T> {
    fn from(of: &'a mut CudarcViewMut<'_, T>) -> Self {
        of.view.reborrow()
    }
}

impl<'a, T: Pod> From<&'a CudarcSlice<'_, T>> for DeviceSlice<'a, T> {
    fn from(of: &'a CudarcSlice<'_, T>) -> Self {
        of.slice
    }
}

impl<'a, T: Pod> From<&'a mut CudarcSliceMut<'_, T>> for DeviceSliceMut<'a, T> {
    fn from(of: &'a mut CudarcSliceMut<'_, T>) -> Self {
        (&mut of.slice).into()
    }
}

impl<T: Value> fmt::Debug for CudarcView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cudarc's {:?}", self.view)
    }
}

impl<T: Value> fmt::Debug for CudarcViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cudarc's {:?}", self.view)
    }
}

impl<T: Pod> fmt::Debug for CudarcSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudarcSlice({} elements at {:#x})", self.slice.len(), self.slice.address())
    }
}

impl<T: Pod> fmt::Debug for CudarcSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudarcSliceMut({} elements at {:#x})", self.slice.len(), self.slice.address())
    }
}

impl<T: Pod> fmt::Debug for CudarcMemory<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudarcMemory({} elements)", self.slice.len())
    }
}
