//! Orders of work that callers make or bring.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Weak};

use super::Device;
use super::event::Event;
use super::queue::{Queue, Urgency};
use crate::error::DeviceError;

/// An order of work on a [`Device`]: what is asked of one stream happens in this order, and beside the work of other
/// streams. A cheap handle; clones are the same stream.
///
/// Every device has [one of its own](Device::stream), in which every call without `_on` in its name is done. More are
/// [made](Self::new), or [borrowed](Self::from_raw) from other libraries.
///
/// # Order between streams
/// windrow's own memory, that of a [`DeviceMatrix`](crate::DeviceMatrix), a [`DeviceBuffer`](crate::DeviceBuffer) or a
/// plan, may be used on any stream without further thought:
/// - a run on another stream than the device's own begins after all that the own stream was asked for so far, if
///   one of its operands is windrow's memory, and the own stream goes on after the run. So a download that follows
///   brings the result. The GPU waits, the host does not;
/// - values that were replaced on one stream are there for runs on any other, and are not written before runs that were
///   asked for earlier, on whatever stream, have read the old ones;
/// - memory is freed after the work that was queued with it;
/// - every stream has a workspace of its own in a plan, made by the first run there: products of one plan on several
///   streams do not wait for each other;
/// - what else keeps memory for its operations, such as [`training::ColumnSums`](crate::training::ColumnSums), has it
///   once: the next operation waits for the one before, if that was on another stream.
///
/// Memory that a caller lends, by [`DeviceView::from_raw`](crate::DeviceView::from_raw) and its like, is the caller's
/// to order: nothing is inserted for it, and a run on nothing but such memory waits for no other stream, unless the
/// plan's values are being written there.
///
/// # Graphs
/// Runs on a stream other than the device's own may be captured into a CUDA graph, and so may the operations of
/// [`training`](crate::training): a whole step of a network. What a run would make first, a workspace or a stage, and
/// the compiling of its kernels, cannot be captured and is an error then; a run before the capture with operands of the
/// same shapes and alignment makes all of it, or [`SpmmPlan::prepare_on`](crate::SpmmPlan::prepare_on). Captured runs
/// take borrowed operands only, windrow's [lent](crate::DeviceView::lent): of a graph that is launched some time the
/// device's own stream knows nothing. A graph uses the plan's memory and the stream's workspace in it: launch it in
/// this stream, or in order with it, and neither replace the plan's values outside of it nor drop the plan before its
/// last launch is done. Replacements may be part of it:
/// [`SpmmPlan::replace_values_on`](crate::SpmmPlan::replace_values_on). The same goes for what else keeps memory for
/// its operations.
///
/// # Examples
/// ```
/// use windrow::{Csr, DenseRef, Device, DeviceMatrix, Spmm, Stream};
///
/// let device = Device::best()?;
/// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).width(2).build(&device)?;
/// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
/// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 2)?;
/// let stream = Stream::new(&device)?;
/// plan.run_into_on(&stream, 2.0, &b, 0.0, &mut c)?;
/// assert_eq!(c.download()?, [2.0, 4.0, 6.0, 8.0]); // after the run
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    device: Device,
    /// None on the CPU, where work is done when a call returns.
    queue: Option<Arc<dyn Queue>>,
    /// Shared by the handles of a stream that was made here: when it is gone, nobody asks for more.
    handles: Option<Arc<()>>,
    /// What lives as long as the stream is used: another library's handle of it.
    kept: Option<Arc<dyn Send + Sync>>,
}

impl Device {
    /// The stream of every call without `_on` in its name.
    #[must_use]
    pub fn stream(&self) -> Stream {
        let queue = self.machine().map(|machine| Arc::clone(machine.own()));
        Stream { device: self.clone(), queue, handles: None, kept: None }
    }
}

impl Stream {
    /// A new stream. It is destroyed when the last of its handles is gone, and the plans that have a workspace for it,
    /// after its work. It does not wait for CUDA's legacy default stream, nor that one for it.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        let queue = device.machine().map(|machine| machine.create(Urgency::Usual)).transpose()?;
        Ok(Self { device: device.clone(), queue, handles: Some(Arc::new(())), kept: None })
    }

    /// A stream of another library, a `CUstream` or `cudaStream_t`, which is never destroyed here. 0 and 1
    /// (`CU_STREAM_LEGACY`) are the legacy default stream. The same handle is the same stream, however often it is
    /// brought: its workspaces in plans stay.
    ///
    /// # Errors
    /// - [`DeviceError::OtherDevice`] for a stream of another context than the device's primary one, the one that the
    ///   CUDA runtime, and with it PyTorch, uses;
    /// - [`DeviceError::NotAvailable`] for `CU_STREAM_PER_THREAD` (2), which is another stream in every thread, and on
    ///   devices other than GPUs;
    /// - [`DeviceError::Driver`].
    ///
    /// # Safety
    /// The handle is 0, 1, 2 or that of a stream that lives as long as this handle and its clones. After that it may be
    /// destroyed, with work under way or not; but a stream that gets the same handle is not captured while that work is
    /// under way.
    pub unsafe fn from_raw(device: &Device, cu_stream: *mut c_void) -> Result<Self, DeviceError> {
        let Some(machine) = device.machine() else {
            let (operation, remedy) = ("queue work in a CUDA stream", "a CUDA device");
            return Err(DeviceError::NotAvailable { device: device.to_string(), operation, remedy });
        };
        // SAFETY: the caller's promise.
        let queue = unsafe { machine.borrow(cu_stream.expose_provenance())? };
        Ok(Self { device: device.clone(), queue: Some(queue), handles: None, kept: None })
    }

    /// A queue of the device's machine as a stream. Who makes it may have made the queue for itself.
    #[cfg(feature = "dist")]
    pub(crate) fn of_queue(device: &Device, queue: Arc<dyn Queue>) -> Self {
        Self { device: device.clone(), queue: Some(queue), handles: None, kept: None }
    }

    /// The same stream, whose handles keep something alive.
    #[cfg(feature = "cudarc")]
    pub(crate) fn keeping(self, kept: Arc<dyn Send + Sync>) -> Self {
        Self { kept: Some(kept), ..self }
    }

    /// The device that the work is done on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until all work asked of this stream so far is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if some of that work failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.queue().map_or(Ok(()), Queue::synchronize)
    }

    /// Sets a mark behind all work asked of this stream so far, for [`Event::elapsed_us`].
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    pub fn record(&self) -> Result<Event, DeviceError> {
        self.queue().map_or_else(|| Ok(Event::now()), Queue::record)
    }

    /// What other libraries take for this stream, a `CUstream`; none on other devices. It is valid as long as a handle
    /// lives; who captures it into a graph keeps to [what is said there](Self#graphs).
    #[must_use]
    pub fn raw(&self) -> Option<*mut c_void> {
        self.queue().and_then(Queue::raw).map(std::ptr::with_exposed_provenance_mut)
    }

    pub(crate) fn queue(&self) -> Option<&dyn Queue> {
        self.queue.as_deref()
    }

    pub(crate) fn shared_queue(&self) -> Option<&Arc<dyn Queue>> {
        self.queue.as_ref()
    }

    /// What is gone when nobody can ask for more; none for streams of which that is never known.
    pub(crate) fn handles(&self) -> Option<Weak<()>> {
        self.handles.as_ref().map(Arc::downgrade)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.queue().map_or(0, Queue::key);
        let kept = if self.kept.is_some() { ", another library's" } else { "" };
        write!(f, "Stream({number} on {}{kept})", self.device)
    }
}
