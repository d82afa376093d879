//! What a library for dense products must be able to do for plans to run it.

use windrow_kernels::output::OutputType;

use super::queue::Queue;
use crate::error::DeviceError;
use crate::options::Precision;

/// `C[m×n] ← α·A[m×k]·B[k×n] + β·C`, all row-major; addresses are of device memory, leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DenseProduct {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    /// Type of `A` and `B`, and how they are multiplied; sums are f32.
    pub(crate) precision: Precision,
    pub(crate) a: u64,
    pub(crate) lda: u32,
    /// Whether `A` lies as k × m instead.
    pub(crate) a_transposed: bool,
    pub(crate) b: u64,
    pub(crate) ldb: u32,
    pub(crate) c: u64,
    pub(crate) ldc: u32,
    /// Type of `C`: that of the sums, or that of the operands.
    pub(crate) output: OutputType,
    pub(crate) alpha: f32,
    /// If it is 0, `C` is not read.
    pub(crate) beta: f32,
    /// Memory for the library's own use until the work is done: its address, aligned to 256 bytes, and its bytes.
    pub(crate) scratch: (u64, u64),
}

/// A library that multiplies dense matrices on one machine.
pub(crate) trait DenseLibrary: Send + Sync {
    /// Its name and version, such as `cuBLAS 12.8.4`.
    fn name(&self) -> &str;

    /// Queues a product. Nothing is allocated for it, so that it may be captured into a graph, and with the same
    /// scratch memory the same product has the same bits.
    ///
    /// # Errors
    /// [`DeviceError::Library`] if the library refuses.
    ///
    /// # Safety
    /// The operands are live memory of the machine until the work is done, of these shapes and types, and nothing else
    /// uses `C` and the scratch memory meanwhile. `queue` is one of the machine's.
    unsafe fn multiply(&self, queue: &dyn Queue, product: &DenseProduct) -> Result<(), DeviceError>;
}
