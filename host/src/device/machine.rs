//! What a device must be able to do for plans to run on it, and the one way to start a kernel.

use std::any::TypeId;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use windrow_kernels::Entry;
use windrow_simt::{BoxedMatrix, TensorMap};

use super::dense_library::DenseLibrary;
use super::kind::{DeviceKind, KernelModule};
#[cfg(feature = "dist")]
use super::link::{Link, LinkId};
use super::queue::{Queue, Urgency};
use crate::error::DeviceError;

/// Blocks along the fast axis of a grid.
const MAX_GRID_X: u64 = (1 << 31) - 1;
/// Blocks along the slow axis of a grid.
const MAX_GRID_Y: u64 = 65_535;

/// What is known of a device when it is opened.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) kind: DeviceKind,
    pub(crate) name: String,
    /// As a selector spells it: `cpu`, `cuda:0`.
    pub(crate) selector: String,
    pub(crate) compute_capability: Option<(u32, u32)>,
    pub(crate) multiprocessors: u32,
    /// Highest clock of its multiprocessors, in Hz, where the driver tells.
    pub(crate) clock_hz: Option<f64>,
    /// Bytes that its memory moves in a second at most, where the driver tells.
    pub(crate) memory_rate: Option<f64>,
    pub(crate) l2_bytes: Option<u64>,
    pub(crate) memory_total: Option<u64>,
    pub(crate) driver_version: Option<(u32, u32)>,
}

/// Where an address lies.
#[cfg_attr(
    not(any(feature = "cuda", feature = "emulator")),
    allow(dead_code, reason = "no machine has memory")
)]
#[derive(Debug)]
pub(crate) enum Lies {
    /// In memory that the machine's kernels may use, which ends there.
    Here { end: u64 },
    /// Somewhere else, in words.
    Elsewhere(String),
}

/// A device with memory of its own, on which kernels run: a GPU, or the emulator of one.
///
/// It has a [`Queue`] of its own, in whose order copies to and from the host are done, too; these wait.
pub(crate) trait Machine: Send + Sync {
    /// `bytes > 0` bytes of any content, aligned to 256 bytes.
    fn alloc(&self, bytes: u64, what: &'static str) -> Result<u64, DeviceError>;

    /// Returns memory, after the work that its own queue was asked for so far, and that of others up to their marks.
    ///
    /// # Safety
    /// `address` came from [`alloc`](Self::alloc) of this machine, and nothing uses it from now on.
    unsafe fn free(&self, address: u64);

    /// Copies from the host, after the work that the machine's own queue was asked for so far.
    ///
    /// # Safety
    /// The destination lies inside one live allocation of this machine.
    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError>;

    /// [`upload`](Self::upload) without waiting: the copy may still be under way when it returns, but `from` is not
    /// needed any more.
    ///
    /// # Safety
    /// As for [`upload`](Self::upload), and `from` is ordinary memory, not page-locked.
    unsafe fn queue_upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.upload(to, from) }
    }

    /// Copies to the host, after the work that the machine's own queue was asked for so far.
    ///
    /// # Safety
    /// The source lies inside one live allocation of this machine.
    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError>;

    /// `bytes > 0` bytes of host memory that the machine copies from and to by itself, page-locked on a GPU: zeros,
    /// aligned to 64 bytes.
    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DeviceError>;

    /// Gives it back.
    ///
    /// # Safety
    /// It came from [`alloc_pinned`](Self::alloc_pinned) of this machine for as many bytes, and no copy from or to it
    /// is under way.
    unsafe fn free_pinned(&self, address: NonNull<u8>, bytes: usize);

    /// Whether host memory is page-locked, so that [`Queue::copy_rows`] does not wait for what lies there.
    fn is_pinned(&self, address: *const u8) -> Result<bool, DeviceError>;

    /// The machine's own queue.
    fn own(&self) -> &Arc<dyn Queue>;

    /// Another queue. When the last handle is dropped, its work is waited for.
    fn create(&self, urgency: Urgency) -> Result<Arc<dyn Queue>, DeviceError>;

    /// The queue of a `CUstream` of somebody else's, the same one for the same stream; the machine's own for its own.
    ///
    /// # Safety
    /// The stream exists for as long as something is asked of the queue; after that only its fence is used.
    unsafe fn borrow(&self, raw: usize) -> Result<Arc<dyn Queue>, DeviceError>;

    /// Where an address lies, as far as anybody knows.
    fn memory_at(&self, address: u64) -> Result<Lies, DeviceError>;

    /// Whether there is such a kernel for this machine and its driver.
    fn has(&self, entry: &'static Entry) -> bool;

    /// What tells the copy engine of a matrix.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if the matrix is none that it copies.
    fn tensor_map(&self, matrix: &BoxedMatrix) -> Result<TensorMap, DeviceError>;

    /// Whether the kernel can be started without its being compiled first.
    fn is_loaded(&self, entry: &'static Entry) -> bool;

    /// Has the driver compile the kernel now, unless it has, so that no run waits for that.
    fn load(&self, entry: &'static Entry) -> Result<(), DeviceError>;

    /// Blocks of the entry that are resident on one multiprocessor at a time.
    fn resident_blocks(&self, entry: &'static Entry) -> Result<u32, DeviceError>;

    /// Multiprocessors of the machine.
    fn multiprocessors(&self) -> u32;

    /// Free memory in bytes; `None` where there is no limit to tell.
    fn memory_free(&self) -> Result<Option<u64>, DeviceError>;

    /// The modules of kernels that were compiled so far, where a driver compiles them.
    fn kernel_modules(&self) -> Vec<KernelModule> {
        Vec::new()
    }

    /// Compiles those that were not yet.
    fn load_kernels(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What multiplies dense matrices on this machine, loaded by the first who asks.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence.
    fn dense_library(&self) -> Result<Arc<dyn DenseLibrary>, String> {
        Err("cuBLAS is for CUDA devices alone".to_owned())
    }

    /// What tells the device from every other one, in any process; none of an emulator.
    #[cfg(feature = "dist")]
    fn uuid(&self) -> Option<String> {
        None
    }

    /// Name and version of what brings messages from such machines to others.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence.
    #[cfg(feature = "dist")]
    fn link_name(&self) -> Result<String, String>;

    /// What a new group is joined by.
    ///
    /// # Errors
    /// [`DeviceError::Library`].
    #[cfg(feature = "dist")]
    fn new_link_id(&self) -> Result<LinkId, DeviceError>;

    /// Joins a group as the rank `rank` of `ranks`; waits until all of them have.
    ///
    /// # Errors
    /// [`DeviceError::Library`].
    #[cfg(feature = "dist")]
    fn join(&self, id: LinkId, ranks: usize, rank: usize) -> Result<Box<dyn Link>, DeviceError>;

    /// `CUcontext` and `CUstream` as addresses, for a CUDA device; the context is made current.
    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError>;
}

/// A launch that has been justified: an entry, its grid and its parameters.
#[cfg_attr(
    not(any(feature = "cuda", feature = "emulator")),
    allow(dead_code, reason = "no machine takes it up")
)]
#[derive(Clone)]
pub(crate) struct Prepared {
    entry: &'static Entry,
    block_threads: u32,
    grid: [u32; 2],
    params: ParamBytes,
}

/// Parameters of an entry, as bytes with the alignment that the driver copies them from.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct ParamBytes {
    bytes: [u8; Self::CAPACITY],
}

impl ParamBytes {
    /// More than any entry's params; checked when a launch is prepared.
    const CAPACITY: usize = 384;
}

#[cfg_attr(
    not(any(feature = "cuda", feature = "emulator")),
    allow(dead_code, reason = "no machine takes it up")
)]
impl Prepared {
    /// A launch of `entry` over `grid` blocks; `None` if the grid has no block at all.
    ///
    /// # Errors
    /// [`DeviceError::Grid`] for more blocks than a GPU takes.
    ///
    /// # Panics
    /// If `P` is not the entry's parameter struct.
    ///
    /// # Safety
    /// `params` keeps the obligations that its documentation lists, for this grid: every pointer is to live
    /// memory of the machine that will run it, which stays allocated until the launch has finished (machines
    /// order `free` after it), and is shared with other launches only as the obligations allow.
    pub(crate) unsafe fn new<P: Pod>(
        entry: &'static Entry,
        grid: [u64; 2],
        params: &P,
    ) -> Result<Option<Self>, DeviceError> {
        let [x, y] = grid;
        if x == 0 || y == 0 {
            return Ok(None);
        }
        if x > MAX_GRID_X || y > MAX_GRID_Y {
            return Err(DeviceError::Grid { kernel: entry.name, x, y });
        }
        let from = bytemuck::bytes_of(params);
        assert!((entry.params)() == TypeId::of::<P>(), "{} takes another parameter struct", entry.name);
        let mut params = ParamBytes { bytes: [0; ParamBytes::CAPACITY] };
        params.bytes[..from.len()].copy_from_slice(from);
        let narrow = |blocks| u32::try_from(blocks).unwrap_or(u32::MAX);
        Ok(Some(Self { entry, block_threads: entry.block_threads, grid: [narrow(x), narrow(y)], params }))
    }

    pub(crate) fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// The launch with blocks of so many threads, no more than the entry's: for entries that take any number.
    pub(crate) fn with_threads(self, block_threads: u32) -> Self {
        Self { block_threads: block_threads.min(self.entry.block_threads), ..self }
    }

    pub(crate) fn block_threads(&self) -> u32 {
        self.block_threads
    }

    pub(crate) fn grid(&self) -> [u32; 2] {
        self.grid
    }

    pub(crate) fn params(&self) -> &[u8] {
        &self.params.bytes[..self.entry.params_bytes]
    }
}

const _: () = {
    let mut i = 0;
    while i < windrow_kernels::ENTRIES.len() {
        assert!(
            windrow_kernels::ENTRIES[i].params_bytes <= ParamBytes::CAPACITY,
            "raise ParamBytes::CAPACITY"
        );
        i += 1;
    }
};

#[cfg(test)]
mod tests {
    use windrow_kernels::combine::CombineParams;

    use super::*;

    fn prepare(grid: [u64; 2]) -> Result<Option<Prepared>, DeviceError> {
        prepare_with::<CombineParams>(grid)
    }

    /// A launch of `spmm_combine` with params that are zeros.
    fn prepare_with<P: Pod>(grid: [u64; 2]) -> Result<Option<Prepared>, DeviceError> {
        let entry = windrow_kernels::entry(windrow_kernels::Variant::Combine { sum_bytes: 4 }).unwrap();
        // SAFETY: never launched.
        unsafe { Prepared::new(entry, grid, &P::zeroed()) }
    }

    #[test]
    fn grids_are_checked() {
        assert!(prepare([0, 1]).unwrap().is_none());
        assert!(prepare([1, 0]).unwrap().is_none());
        assert_eq!(prepare([MAX_GRID_X, MAX_GRID_Y]).unwrap().unwrap().grid(), [2_147_483_647, 65_535]);
        for grid in [[MAX_GRID_X + 1, 1], [1, MAX_GRID_Y + 1], [u64::MAX, u64::MAX]] {
            assert!(matches!(prepare(grid), Err(DeviceError::Grid { .. })), "{grid:?}");
        }
    }

    #[test]
    fn params_arrive_whole() {
        let prepared = prepare([1, 1]).unwrap().unwrap();
        assert_eq!(prepared.params().len(), prepared.entry().params_bytes);
    }

    #[test]
    #[should_panic(expected = "spmm_combine takes another parameter struct")]
    fn params_of_the_same_size_are_told_apart() {
        let _ = prepare_with::<[u8; size_of::<CombineParams>()]>([1, 1]);
    }
}
