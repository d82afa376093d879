//! CUDA graphs: work that is captured once and launched again and again.

use cudarc::driver::{result, sys};
use windrow::interop::cuda_handles;
use windrow::{Device, DeviceKind, Stream};

use super::Result;

/// Work of one stream, ready to be launched there.
#[derive(Debug)]
pub(crate) struct Graph {
    stream: Stream,
    launchable: sys::CUgraphExec,
}

/// Whether a device has graphs.
///
/// # Errors
/// If it has none.
pub(crate) fn check(device: &Device) -> Result<()> {
    match device.kind() {
        DeviceKind::Cuda => Ok(()),
        _ => Err(format!(
            "--graph needs a GPU, and this is {device}: leave it away, or name a GPU by --device"
        )
        .into()),
    }
}

impl Graph {
    /// Captures what `work` asks of the stream, which is not done yet.
    ///
    /// # Errors
    /// If the device is no GPU, the work fails, or the driver refuses.
    pub(crate) fn capture(stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<Self> {
        check(stream.device())?;
        cuda_handles(stream.device())?; // makes the context current
        let raw: sys::CUstream = stream.raw().ok_or("the stream is none of CUDA")?.cast();
        // SAFETY: the stream lives as long as its handle, and only this thread uses it; a graph is destroyed once, when
        // nothing uses it any more.
        unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            result::stream::begin_capture(raw, mode)?;
            let worked = work();
            let graph = result::stream::end_capture(raw);
            worked?; // what went wrong first
            let graph = graph?;
            let mut launchable: sys::CUgraphExec = std::ptr::null_mut();
            let made = sys::cuGraphInstantiateWithFlags(&raw mut launchable, graph, 0).result();
            let destroyed = sys::cuGraphDestroy(graph).result();
            made.and(destroyed)?;
            Ok(Self { stream: stream.clone(), launchable })
        }
    }

    /// Queues the work once more, in the stream that it was captured in.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Safety
    /// All memory that the work uses lives until it is done, and is used by nothing else meanwhile.
    pub(crate) unsafe fn launch(&self) -> Result<()> {
        let raw: sys::CUstream = self.stream.raw().ok_or("the stream is none of CUDA")?.cast();
        // SAFETY: the graph and its stream live; the rest is the caller's promise.
        Ok(unsafe { sys::cuGraphLaunch(self.launchable, raw) }.result()?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if cuda_handles(self.stream.device()).is_ok() {
            // SAFETY: made by `capture`, destroyed only here; the driver keeps what is under way. Errors have nobody to
            // go to.
            let _ = unsafe { sys::cuGraphExecDestroy(self.launchable) }.result();
        }
    }
}
