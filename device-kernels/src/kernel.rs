//! What every kernel declares about itself, and its row in the table of entry points.

use bytemuck::Pod;
use windrow_simt::Simt;

use crate::variant::Variant;

/// A kernel instance: one entry point of the PTX.
pub trait Kernel {
    /// The one argument of the entry, passed by value.
    type Params: Pod;
    /// The module under `src/` that holds the kernel.
    const FILE: &'static str;
    /// Which member of its family this is.
    const VARIANT: Variant;
    /// Threads per block; fixed, and told to `ptxas` as `.maxntid`.
    const BLOCK_THREADS: u32;
    /// Dynamic shared memory per block, in bytes.
    const SHARED_BYTES: u32 = 0;
    /// Blocks per SM that registers must leave room for (`.minnctapersm`); 0 leaves it to `ptxas`.
    const MIN_BLOCKS: u32 = 0;
    /// Lowest compute capability that has the instructions, as `10·major + minor`.
    const MIN_SM: u32 = 80;

    /// One thread's work.
    ///
    /// # Safety
    /// `params` must satisfy what its struct documents, for this grid; all threads of the grid run
    /// it with the same `params`.
    unsafe fn run<S: Simt>(s: &S, params: &Self::Params);
}

/// One entry point, as the host and the build see it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name in the PTX.
    pub name: &'static str,
    /// Module under `src/` that holds the kernel.
    pub kernel: &'static str,
    /// Key for [`entry`](crate::entry).
    pub variant: Variant,
    /// Threads per block.
    pub block_threads: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Bytes of the parameter struct.
    pub params_bytes: usize,
    /// Blocks per SM that registers must leave room for; 0 for no demand.
    pub min_blocks: u32,
    /// Lowest compute capability, as `10·major + minor`.
    pub min_sm: u32,
}

impl Entry {
    /// The row of kernel `K`.
    #[must_use]
    pub const fn of<K: Kernel>(name: &'static str) -> Self {
        Self {
            name,
            kernel: K::FILE,
            variant: K::VARIANT,
            block_threads: K::BLOCK_THREADS,
            shared_bytes: K::SHARED_BYTES,
            params_bytes: size_of::<K::Params>(),
            min_blocks: K::MIN_BLOCKS,
            min_sm: K::MIN_SM,
        }
    }
}
