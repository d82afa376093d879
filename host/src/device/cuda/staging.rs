//! Large uploads by way of pinned memory.
//!
//! The driver copies from ordinary memory through pinned buffers of its own, with one thread: some 10 GB/s, a
//! fraction of what the bus carries. Here all threads fill a few buffers in turn while the copy engine empties the
//! others.

use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::probe::Called;
use crate::error::DeviceError;
use crate::num::wide;

/// Bytes from which on an upload is staged.
pub(super) const LEAST_BYTES: usize = 1 << 20;
/// Bytes of a buffer.
const BUFFER_BYTES: usize = 4 << 20;
/// Buffers: some to fill, some on their way.
const BUFFERS: usize = 4;
/// Bytes that a thread copies at a time.
const TASK_BYTES: usize = 256 << 10;

/// A pinned buffer, and the event behind the last copy from it.
struct Buffer {
    memory: *mut u8,
    emptied: sys::CUevent,
}

/// The buffers of a device. Released by [`Staging::release`], not by `Drop`: that needs the context.
pub(super) struct Staging {
    buffers: Vec<Buffer>,
}

// SAFETY: the buffers belong to this value alone, and the driver's handles may be used from any thread.
unsafe impl Send for Staging {}

impl Staging {
    /// Allocates the buffers. The context is current.
    pub(super) fn new() -> Result<Self, DeviceError> {
        let mut staging = Self { buffers: Vec::with_capacity(BUFFERS) };
        for _ in 0..BUFFERS {
            if let Err(error) = staging.add_buffer() {
                staging.release();
                return Err(error);
            }
        }
        Ok(staging)
    }

    fn add_buffer(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the context is current; freed by `release`.
        let memory = unsafe { result::malloc_host(BUFFER_BYTES, 0) }.called("cuMemHostAlloc")?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        match result::event::create(flags).called("cuEventCreate") {
            Ok(emptied) => self.buffers.push(Buffer { memory: memory.cast(), emptied }),
            Err(error) => {
                // SAFETY: just allocated, not used.
                let _ = unsafe { result::free_host(memory) };
                return Err(error);
            }
        }
        Ok(())
    }

    /// Queues the copy of `from` to device address `to`; returns when all of it has been read.
    ///
    /// # Safety
    /// `to` has room for it, in the context that `bind` makes current, which `stream` belongs to; every call is for the
    /// same stream.
    pub(super) unsafe fn upload(
        &mut self,
        stream: sys::CUstream,
        bind: &dyn Fn() -> Result<(), DeviceError>,
        to: u64,
        from: &[u8],
    ) -> Result<(), DeviceError> {
        for (chunk, (at, buffer)) in
            from.chunks(BUFFER_BYTES).zip((0..).step_by(BUFFER_BYTES).zip(self.buffers.iter().cycle()))
        {
            // SAFETY: an event that was never recorded counts as complete. After it nothing reads the buffer, which has
            // `BUFFER_BYTES` bytes, no fewer than the chunk, and is borrowed with `self`.
            let pinned = unsafe {
                result::event::synchronize(buffer.emptied).called("cuEventSynchronize")?;
                std::slice::from_raw_parts_mut(buffer.memory, chunk.len())
            };
            let tasks = pinned.par_chunks_mut(TASK_BYTES).zip(chunk.par_chunks(TASK_BYTES));
            tasks.for_each(|(to, from)| to.copy_from_slice(from));
            bind()?; // this thread may have done work for another device meanwhile
            // SAFETY: the caller's promise; the buffer is not written again before the event has passed.
            unsafe {
                result::memcpy_htod_async(to + wide(at), pinned, stream).called("cuMemcpyHtoDAsync")?;
                result::event::record(buffer.emptied, stream).called("cuEventRecord")?;
            }
        }
        Ok(())
    }

    /// Frees the buffers, whose copies are done. The context is current.
    pub(super) fn release(&mut self) {
        for buffer in self.buffers.drain(..) {
            // SAFETY: made by `add_buffer`, given up only here. Errors have nobody to go to.
            unsafe {
                let _ = result::event::destroy(buffer.emptied);
                let _ = result::free_host(buffer.memory.cast());
            }
        }
    }
}
