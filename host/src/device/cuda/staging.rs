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
struct Buffer<E> {
    memory: *mut u8,
    emptied: E,
}

/// The buffers of a device. Released by [`Staging::release`], not by `Drop`: that needs the context.
pub(super) struct Staging {
    buffers: Vec<Buffer<sys::CUevent>>,
    /// Whether a copy may be under way of which no event tells: the buffers are not filled again.
    lost: bool,
}

// SAFETY: the buffers belong to this value alone, and the driver's handles may be used from any thread.
unsafe impl Send for Staging {}

impl Staging {
    /// Allocates the buffers. The context is current.
    pub(super) fn new() -> Result<Self, DeviceError> {
        let mut staging = Self { buffers: Vec::with_capacity(BUFFERS), lost: false };
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

    /// Whether the buffers may be filled.
    pub(super) fn is_usable(&self) -> bool {
        !self.lost
    }

    /// Queues copies of `from` in the stream. When it returns, `from` is not needed any more; the copies may still be
    /// under way.
    ///
    /// # Safety
    /// The destination lies inside one live allocation; `bind` makes the context of the buffers current, which the
    /// stream is of.
    pub(super) unsafe fn upload(
        &mut self,
        stream: sys::CUstream,
        bind: &dyn Fn() -> Result<(), DeviceError>,
        to: u64,
        from: &[u8],
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise; the buffers have `BUFFER_BYTES` bytes and are borrowed with `self`.
        unsafe { copy(&Driver { stream, bind }, (&self.buffers, &mut self.lost), to, from) }
    }

    /// Gives everything back. The context is current, and no copy is under way.
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

/// What copies from pinned memory, in the order of one stream.
trait CopyEngine {
    type Event;

    /// Waits for the copies before the event's last mark; for none, if it was never marked.
    fn wait_for(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Queues a copy.
    ///
    /// # Safety
    /// The destination lies inside one live allocation; `pinned` is not written before the copy is over.
    unsafe fn copy(&self, to: u64, pinned: &[u8]) -> Result<(), DeviceError>;

    /// Marks the place behind all that was queued.
    fn mark(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Waits for all that was queued.
    fn wait(&self) -> Result<(), DeviceError>;
}

/// The driver's copies, in the stream of its device.
struct Driver<'a> {
    stream: sys::CUstream,
    bind: &'a dyn Fn() -> Result<(), DeviceError>,
}

impl CopyEngine for Driver<'_> {
    type Event = sys::CUevent;

    fn wait_for(&self, event: &sys::CUevent) -> Result<(), DeviceError> {
        // SAFETY: the event is live; one that was never recorded counts as complete.
        unsafe { result::event::synchronize(*event) }.called("cuEventSynchronize")
    }

    unsafe fn copy(&self, to: u64, pinned: &[u8]) -> Result<(), DeviceError> {
        (self.bind)()?; // this thread may have done work for another device meanwhile
        // SAFETY: the caller's promise; the context is current.
        unsafe { result::memcpy_htod_async(to, pinned, self.stream) }.called("cuMemcpyHtoDAsync")
    }

    fn mark(&self, event: &sys::CUevent) -> Result<(), DeviceError> {
        // SAFETY: event and stream are of the current context and live.
        unsafe { result::event::record(*event, self.stream) }.called("cuEventRecord")
    }

    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is of the current context and lives.
        unsafe { result::stream::synchronize(self.stream) }.called("cuStreamSynchronize")
    }
}

/// Fills the buffers in turn, each when the copy before from it is over.
///
/// Where a copy was queued and its mark fails, no event would tell when the buffer may be filled again. So the whole
/// queue is waited for; if that fails, too, the buffers are `lost`.
///
/// # Safety
/// The destination lies inside one live allocation; each buffer has [`BUFFER_BYTES`] bytes, which nothing else uses,
/// and none is lost.
unsafe fn copy<E: CopyEngine>(
    engine: &E,
    (buffers, lost): (&[Buffer<E::Event>], &mut bool),
    to: u64,
    from: &[u8],
) -> Result<(), DeviceError> {
    for (chunk, (at, buffer)) in
        from.chunks(BUFFER_BYTES).zip((0..).step_by(BUFFER_BYTES).zip(buffers.iter().cycle()))
    {
        engine.wait_for(&buffer.emptied)?;
        // SAFETY: nothing reads the buffer any more; it has no fewer bytes than the chunk.
        let pinned = unsafe { std::slice::from_raw_parts_mut(buffer.memory, chunk.len()) };
        let tasks = pinned.par_chunks_mut(TASK_BYTES).zip(chunk.par_chunks(TASK_BYTES));
        tasks.for_each(|(to, from)| to.copy_from_slice(from));
        // SAFETY: the caller's promise; the buffer is not written again before its event has passed.
        unsafe { engine.copy(to + wide(at), pinned)? };
        if let Err(error) = engine.mark(&buffer.emptied) {
            *lost = engine.wait().is_err();
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Copies as late as it may, and fails where it is told to.
    #[derive(Default)]
    struct Late {
        memory: RefCell<Vec<u8>>,
        queue: RefCell<Vec<(usize, *const u8, usize)>>,
        done: Cell<usize>,
        marks_before_one_fails: Cell<Option<usize>>,
        waits_fail: Cell<bool>,
    }

    fn failed() -> DeviceError {
        DeviceError::Driver { call: "a test", name: String::new(), message: String::new() }
    }

    impl Late {
        /// Makes the copies up to this one, counted from the first of all.
        fn run(&self, to: usize) {
            let queue = self.queue.borrow();
            for &(to, from, len) in queue.iter().take(to).skip(self.done.get()) {
                // SAFETY: a buffer of the test, which outlives the engine.
                let from = unsafe { std::slice::from_raw_parts(from, len) };
                self.memory.borrow_mut()[to..][..len].copy_from_slice(from);
            }
            self.done.set(self.done.get().max(to));
        }
    }

    impl CopyEngine for Late {
        /// How many copies had been queued at the mark.
        type Event = Cell<usize>;

        fn wait_for(&self, event: &Cell<usize>) -> Result<(), DeviceError> {
            self.run(event.get());
            Ok(())
        }

        unsafe fn copy(&self, to: u64, pinned: &[u8]) -> Result<(), DeviceError> {
            self.queue.borrow_mut().push((crate::num::index(to), pinned.as_ptr(), pinned.len()));
            Ok(())
        }

        fn mark(&self, event: &Cell<usize>) -> Result<(), DeviceError> {
            match self.marks_before_one_fails.get() {
                Some(0) => {
                    self.marks_before_one_fails.set(None);
                    return Err(failed());
                }
                Some(left) => self.marks_before_one_fails.set(Some(left - 1)),
                None => {}
            }
            event.set(self.queue.borrow().len());
            Ok(())
        }

        fn wait(&self) -> Result<(), DeviceError> {
            if self.waits_fail.get() {
                return Err(failed());
            }
            let queued = self.queue.borrow().len();
            self.run(queued);
            Ok(())
        }
    }

    fn data(seed: usize, len: usize) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(31) >> 3).wrapping_add(seed).to_le_bytes()[0]).collect()
    }

    #[test]
    fn copies_are_those_of_what_was_given_though_marks_fail() {
        const LEN: usize = 5 * BUFFER_BYTES + 77;
        let mut memory = vec![vec![0u8; BUFFER_BYTES]; BUFFERS];
        for fail_at in [None, Some(0), Some(3), Some(5)] {
            let engine = Late::default();
            *engine.memory.borrow_mut() = vec![0; 2 * LEN];
            engine.marks_before_one_fails.set(fail_at);
            let buffers: Vec<_> = memory
                .iter_mut()
                .map(|buffer| Buffer { memory: buffer.as_mut_ptr(), emptied: Cell::new(0) })
                .collect();
            let (first, second, mut lost) = (data(1, LEN), data(2, LEN), false);
            // SAFETY: there is room for both, the buffers are the test's own.
            let outcome = unsafe { copy(&engine, (&buffers, &mut lost), 0, &first) };
            assert_eq!(outcome.is_err(), fail_at.is_some());
            assert!(!lost);
            // SAFETY: as above.
            unsafe { copy(&engine, (&buffers, &mut lost), LEN as u64, &second).unwrap() };
            engine.wait().unwrap();
            let found = engine.memory.borrow();
            let whole = fail_at.map_or(LEN, |marks| ((marks + 1) * BUFFER_BYTES).min(LEN));
            assert!(found[..whole] == first[..whole], "{fail_at:?}: what was queued before");
            assert!(found[LEN..] == second[..], "{fail_at:?}: what came after");
        }
    }

    #[test]
    fn buffers_are_lost_where_nothing_tells_when_they_are_free() {
        let mut memory = vec![0u8; BUFFER_BYTES];
        let engine = Late::default();
        engine.memory.borrow_mut().resize(100, 0);
        engine.marks_before_one_fails.set(Some(0));
        engine.waits_fail.set(true);
        let buffers = [Buffer { memory: memory.as_mut_ptr(), emptied: Cell::new(0) }];
        let mut lost = false;
        // SAFETY: as above.
        let outcome = unsafe { copy(&engine, (&buffers, &mut lost), 0, &data(1, 100)) };
        assert!(outcome.is_err() && lost);
    }
}
