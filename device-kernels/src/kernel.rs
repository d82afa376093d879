//! What every kernel declares about itself, and its row in the table of entry points.

use bytemuck::Pod;
use windrow_simt::Simt;

use crate::element::Dtype;
use crate::nm::NmTile;

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

/// What distinguishes the entry points: the key by which the host picks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// [`crate::row_split`].
    RowSplit {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Lanes across the width; each covers one 16-byte vector of `B`, or one element.
        lanes: u32,
        /// Nonzeros of one row handled side by side.
        ways: u32,
        /// Whether `B` is read in 16-byte vectors (else element by element, for any alignment).
        vectors: bool,
    },
    /// [`crate::short_rows`].
    ShortRows {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// As for `RowSplit`.
        lanes: u32,
        /// As for `RowSplit`.
        vectors: bool,
    },
    /// [`crate::tile_stream`].
    TileStream {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Columns of `C` per warp.
        features: u32,
        /// As for `RowSplit`.
        vectors: bool,
        /// Whether records hold only the values of entries.
        packed: bool,
    },
    /// [`crate::segment_group::RowGroups`].
    RowGroups {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Columns of a thread.
        columns: u32,
    },
    /// [`crate::segment_group::NonzeroGroups`].
    NonzeroGroups {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Entries that a thread reads at once.
        at_once: u32,
        /// Columns of a thread.
        columns: u32,
    },
    /// [`crate::matricized_rows`].
    MatricizedRows {
        /// Whether `B` is column-major.
        column_major: bool,
        /// As for `RowSplit`.
        vectors: bool,
    },
    /// [`crate::segment_group::Mttkrp`].
    Mttkrp {
        /// Type of the tensor's values and of the factors.
        dtype: Dtype,
        /// As for `NonzeroGroups`.
        at_once: u32,
        /// As for `NonzeroGroups`.
        columns: u32,
    },
    /// [`crate::atomic_entries`].
    AtomicEntries {
        /// Dense matrices that an entry is multiplied by.
        factors: u32,
    },
    /// [`crate::sddmm::SddmmTiles`].
    SddmmTiles {
        /// Type of `X` and `Y`.
        dtype: Dtype,
        /// Times 64 bytes of a row in flight.
        chunks: u32,
        /// As for `RowSplit`.
        vectors: bool,
        /// Whether an entry's position is found by scanning, for comparison.
        scans: bool,
    },
    /// [`crate::sddmm::SddmmEntries`].
    SddmmEntries {
        /// Type of `X` and `Y`.
        dtype: Dtype,
        /// As for `RowSplit`.
        vectors: bool,
    },
    /// [`crate::sddmm::SddmmGroups`].
    SddmmGroups {
        /// Type of `X` and `Y`.
        dtype: Dtype,
        /// As for `RowSplit`.
        vectors: bool,
    },
    /// [`crate::row_softmax::RowSoftmax`].
    RowSoftmax {
        /// Whether a row is a block's work, not that of eight lanes.
        long: bool,
    },
    /// [`crate::row_softmax::RowSoftmaxGrad`].
    RowSoftmaxGrad {
        /// As for `RowSoftmax`.
        long: bool,
    },
    /// [`crate::nm::NmCudaCores`].
    NmCudaCores {
        /// What a block computes.
        tile: NmTile,
        /// Stages that are in shared memory at a time.
        buffers: u32,
        /// Whether they come by bulk copies.
        bulk: bool,
    },
    /// [`crate::nm::NmTensorCores`].
    NmTensorCores {
        /// Type of the activations and weights.
        dtype: Dtype,
        /// What a block computes.
        tile: NmTile,
        /// Slots of a stage.
        slots: u32,
    },
    /// [`crate::nm::NmCombine`].
    NmCombine,
    /// [`crate::nm::NmStage`].
    NmStage {
        /// The type that becomes f32; none for elements of 16 bits that stay as they are.
        widened: Option<Dtype>,
        /// Whether activations are read in 16-byte vectors.
        vectors: bool,
    },
    /// [`crate::place_values`].
    PlaceValues,
    /// [`crate::training::Pointwise`].
    Pointwise,
    /// [`crate::training::CrossEntropy`].
    CrossEntropy,
    /// [`crate::training::NormalizeRows`].
    NormalizeRows,
    /// [`crate::training::NormalizeRowsGrad`].
    NormalizeRowsGrad,
    /// [`crate::training::ColumnSums`].
    ColumnSums,
    /// [`crate::training::Adam`].
    Adam,
    /// [`crate::combine`].
    Combine,
    /// [`crate::scan::Scan`].
    Scan,
    /// [`crate::scan::ScanAdd`].
    ScanAdd,
    /// [`crate::preprocess::RowLengths`].
    RowLengths,
    /// [`crate::preprocess::PlaceRows`].
    PlaceRows,
    /// [`crate::preprocess::MergeColumns`].
    MergeColumns,
    /// [`crate::preprocess::ListVectors`].
    ListVectors,
    /// [`crate::preprocess::TileSteps`].
    TileSteps,
    /// [`crate::preprocess::DistributeVectors`].
    DistributeVectors,
    /// [`crate::preprocess::DistributeEntries`].
    DistributeEntries,
    /// [`crate::preprocess::KeepEntries`].
    KeepEntries,
    /// [`crate::preprocess::PlaceWindows`].
    PlaceWindows,
    /// [`crate::preprocess::GatherValues`].
    GatherValues {
        /// Bytes of a value.
        value_bytes: u32,
    },
    /// [`crate::preprocess::TileRecords`].
    TileRecords {
        /// Bytes of a value.
        value_bytes: u32,
    },
    /// [`crate::check`].
    Check {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
    },
    /// [`crate::gather_probe`].
    GatherProbe,
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
