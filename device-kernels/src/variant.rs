//! The keys by which the host picks an entry point.

use crate::element::Dtype;

/// What distinguishes the entry points: the key by which the host picks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// [`crate::spmm::row_split`].
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
    /// [`crate::spmm::short_rows`].
    ShortRows {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// As for `RowSplit`.
        lanes: u32,
        /// As for `RowSplit`.
        vectors: bool,
    },
    /// [`crate::spmm::tile_stream`].
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
    /// [`crate::spmm::segment_group::RowGroups`].
    RowGroups {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Columns of a thread.
        columns: u32,
    },
    /// [`crate::spmm::segment_group::NonzeroGroups`].
    NonzeroGroups {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Entries that a thread reads at once.
        at_once: u32,
        /// Columns of a thread.
        columns: u32,
    },
    /// [`crate::spmm::matricized_rows`].
    MatricizedRows {
        /// Whether `B` is column-major.
        column_major: bool,
        /// As for `RowSplit`.
        vectors: bool,
    },
    /// [`crate::spmm::merge_path`].
    MergePath {
        /// Type of `A`'s values and of `B`.
        dtype: Dtype,
        /// Steps of a thread.
        steps: u32,
    },
    /// [`crate::spmm::segment_group::Mttkrp`].
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
    PlaceValues {
        /// Bytes of a value as it is given.
        value_bytes: u32,
    },
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
    /// [`crate::spmm::combine`].
    Combine {
        /// Bytes of a sum.
        sum_bytes: u32,
    },
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

/// The part of `C` that a block of an N:M product computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NmTile {
    /// Rows of `C`.
    pub rows: u32,
    /// Columns of `C`.
    pub columns: u32,
    /// Columns that share one list of picks.
    pub strip: u32,
}
