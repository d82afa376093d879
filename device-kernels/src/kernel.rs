//! What every kernel declares about itself, and its row in the table of entry points.

use bytemuck::Pod;
use windrow_simt::Simt;

use crate::arch::Arch;
use crate::variant::Variant;

/// A kernel instance: one entry point of the PTX.
pub trait Kernel {
    /// The one argument of the entry, passed by value.
    type Params: Pod;
    /// The file under `src/` that holds the kernel, without its extension.
    const FILE: &'static str;
    /// Which member of its family this is.
    const VARIANT: Variant;
    /// Threads per block; fixed, and told to `ptxas` as `.maxntid`.
    const BLOCK_THREADS: u32;
    /// Dynamic shared memory per block, in bytes.
    const SHARED_BYTES: u32 = 0;
    /// Blocks per SM that registers must leave room for (`.minnctapersm`); 0 leaves it to `ptxas`.
    const MIN_BLOCKS: u32 = 0;
    /// The same in the texts for [`Arch::Sm90`] and later, whose compiler makes do with fewer registers.
    const MIN_BLOCKS_FROM_SM90: u32 = Self::MIN_BLOCKS;
    /// Units of work that a block takes: segments, warps' shares, rows or elements. 1 where the host counts blocks.
    const UNITS_PER_BLOCK: u32 = 1;
    /// Columns of `C` for one value of the grid's slow axis.
    const COLUMNS_PER_BLOCK: u32 = 1;
    /// The first architecture that has the instructions.
    const ARCH: Arch = Arch::Sm80;

    /// One thread's work.
    ///
    /// # Safety
    /// `params` must satisfy what its struct documents, for this grid; all threads of the grid run
    /// it with the same `params`.
    unsafe fn run<S: Simt>(s: &S, params: &Self::Params);
}

/// What entries are for: what a program may leave out as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Products of a sparse and a dense matrix.
    Spmm,
    /// Sampled products of two dense matrices.
    Sddmm,
    /// Softmax over the rows of a sparse matrix.
    Softmax,
    /// Attention over the entries of a sparse matrix.
    Attention,
    /// Reductions over the rows of a sparse matrix.
    Aggregate,
    /// Products of sparse tensors that are not an SpMM.
    Tensor,
    /// Products with vector-wise N:M weights.
    Nm,
    /// Dense operations of training.
    Training,
    /// Laying a matrix out.
    Preprocess,
    /// Comparing a product with its reference.
    Check,
    /// Measuring how fast a GPU gathers rows.
    Probe,
}

impl Family {
    /// Every family, in the order of this enum.
    pub const ALL: [Self; 11] = [
        Self::Spmm,
        Self::Sddmm,
        Self::Softmax,
        Self::Attention,
        Self::Aggregate,
        Self::Tensor,
        Self::Nm,
        Self::Training,
        Self::Preprocess,
        Self::Check,
        Self::Probe,
    ];

    /// Whether this build carries the PTX of its entries, which is a matter of the crate's features.
    #[must_use]
    pub const fn is_carried(self) -> bool {
        cfg!(feature = "cuda")
            && match self {
                Self::Nm => cfg!(feature = "nm"),
                Self::Tensor => cfg!(feature = "tensor"),
                Self::Training => cfg!(feature = "training"),
                _ => true,
            }
    }

    /// Its name, with which the names of its modules begin.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spmm => "spmm",
            Self::Sddmm => "sddmm",
            Self::Softmax => "softmax",
            Self::Attention => "attention",
            Self::Aggregate => "aggregate",
            Self::Tensor => "tensor",
            Self::Nm => "nm",
            Self::Training => "training",
            Self::Preprocess => "preprocess",
            Self::Check => "check",
            Self::Probe => "probe",
        }
    }
}

/// One entry point, as the host and the build see it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name in the PTX.
    pub name: &'static str,
    /// What it is for.
    pub family: Family,
    /// The file of PTX that holds it, without its extension, in the folder of each architecture that
    /// [holds](Arch::holds) it: what a driver compiles when the entry is first used.
    pub module: &'static str,
    /// File under `src/` that holds the kernel, without its extension.
    pub kernel: &'static str,
    /// Key by which [`entry`](crate::entry) finds it.
    pub variant: Variant,
    /// Threads of a block, all that the kernel is compiled for.
    pub block_threads: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Bytes of the parameter struct.
    pub params_bytes: usize,
    /// The parameter struct itself: by a function, for compilers of the GPU target that cannot name a type in a
    /// constant.
    pub params: fn() -> core::any::TypeId,
    /// Blocks per SM that registers must leave room for; 0 for no demand.
    pub min_blocks: u32,
    /// The same in the texts for [`Arch::Sm90`] and later.
    pub min_blocks_from_sm90: u32,
    /// Units of work that a block takes.
    pub units_per_block: u32,
    /// Columns of `C` for one value of the grid's slow axis.
    pub columns_per_block: u32,
    /// The first architecture that has the instructions.
    pub arch: Arch,
}

impl Entry {
    /// The row of kernel `K`.
    #[must_use]
    pub const fn of<K: Kernel>(name: &'static str, family: Family, module: &'static str) -> Self {
        Self {
            name,
            family,
            module,
            kernel: K::FILE,
            variant: K::VARIANT,
            block_threads: K::BLOCK_THREADS,
            shared_bytes: K::SHARED_BYTES,
            params_bytes: size_of::<K::Params>(),
            params: core::any::TypeId::of::<K::Params>,
            min_blocks: K::MIN_BLOCKS,
            min_blocks_from_sm90: K::MIN_BLOCKS_FROM_SM90,
            units_per_block: K::UNITS_PER_BLOCK,
            columns_per_block: K::COLUMNS_PER_BLOCK,
            arch: K::ARCH,
        }
    }
}
