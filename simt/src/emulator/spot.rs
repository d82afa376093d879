//! Which call of which thread: what every report names.

use std::fmt;
use std::panic::Location;

/// An operation of [`Simt`](crate::Simt) that the emulator checks. `Display` is the method's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the method of the same name of the trait `Simt`")]
pub enum Operation {
    Load,
    LoadReadonly,
    LoadReadonlyOnce,
    Store,
    StoreStreaming,
    ReduceAddF32,
    ReduceAddF64,
    AtomicAddU32,
    ReduceMaxU64,
    LoadShared,
    StoreShared,
    CopyAsync16,
    CopyAsyncCommit,
    CopyAsyncWait,
    CopyBulkBegin,
    CopyBulk,
    CopyBulkCommit,
    CopyBulkWait,
    CopyBulkFence,
    SyncBlock,
    SyncWarp,
    SyncWarpgroup,
    Shuffle,
    ShuffleXor,
    ShuffleUp,
    ShuffleDown,
    Ballot,
    LoadMatrixX4,
    LoadMatrixX4Trans,
    StoreMatrixX4Trans,
    MmaM16n8k16F16,
    MmaM16n8k16Bf16,
    MmaSparseM16n8k32F16,
    MmaSparseM16n8k32Bf16,
    MmaM16n8k8F16,
    MmaM16n8k8Bf16,
    MmaM16n8k8Tf32,
    PermuteBytes,
    CopyBulkBox,
    WarpgroupFence,
    WarpgroupMmaSparseF16,
    WarpgroupMmaSparseBf16,
    WarpgroupMmaF16,
    WarpgroupMmaBf16,
    WarpgroupCommit,
    WarpgroupWait,
    WarpgroupFinish,
}

impl Operation {
    /// Name of the [`Simt`](crate::Simt) method, and of the type where that has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::LoadReadonly => "load_readonly",
            Self::LoadReadonlyOnce => "load_readonly_once",
            Self::Store => "store",
            Self::StoreStreaming => "store_streaming",
            Self::ReduceAddF32 => "reduce_add_f32",
            Self::ReduceAddF64 => "reduce_add_f64",
            Self::AtomicAddU32 => "atomic_add_u32",
            Self::ReduceMaxU64 => "reduce_max_u64",
            Self::LoadShared => "load_shared",
            Self::StoreShared => "store_shared",
            Self::CopyAsync16 => "copy_async_16",
            Self::CopyAsyncCommit => "copy_async_commit",
            Self::CopyAsyncWait => "copy_async_wait",
            Self::CopyBulkBegin => "copy_bulk_begin",
            Self::CopyBulk => "copy_bulk",
            Self::CopyBulkCommit => "copy_bulk_commit",
            Self::CopyBulkWait => "copy_bulk_wait",
            Self::CopyBulkFence => "copy_bulk_fence",
            Self::SyncBlock => "sync_block",
            Self::SyncWarp => "sync_warp",
            Self::SyncWarpgroup => "sync_warpgroup",
            Self::Shuffle => "shuffle",
            Self::ShuffleXor => "shuffle_xor",
            Self::ShuffleUp => "shuffle_up",
            Self::ShuffleDown => "shuffle_down",
            Self::Ballot => "ballot",
            Self::LoadMatrixX4 => "load_matrix_x4",
            Self::LoadMatrixX4Trans => "load_matrix_x4_trans",
            Self::StoreMatrixX4Trans => "store_matrix_x4_trans",
            Self::MmaM16n8k16F16 => "mma_m16n8k16_f16",
            Self::MmaM16n8k16Bf16 => "mma_m16n8k16_bf16",
            Self::MmaSparseM16n8k32F16 => "mma_sparse_m16n8k32_f16",
            Self::MmaSparseM16n8k32Bf16 => "mma_sparse_m16n8k32_bf16",
            Self::MmaM16n8k8F16 => "mma_m16n8k8_f16",
            Self::MmaM16n8k8Bf16 => "mma_m16n8k8_bf16",
            Self::MmaM16n8k8Tf32 => "mma_m16n8k8_tf32",
            Self::PermuteBytes => "permute_bytes",
            Self::CopyBulkBox => "copy_bulk_box",
            Self::WarpgroupFence => "warpgroup_fence",
            Self::WarpgroupMmaSparseF16 => "warpgroup_mma_sparse_f16",
            Self::WarpgroupMmaSparseBf16 => "warpgroup_mma_sparse_bf16",
            Self::WarpgroupMmaF16 => "warpgroup_mma_f16",
            Self::WarpgroupMmaBf16 => "warpgroup_mma_bf16",
            Self::WarpgroupCommit => "warpgroup_commit",
            Self::WarpgroupWait => "warpgroup_wait",
            Self::WarpgroupFinish => "warpgroup_finish",
        }
    }
}

impl Operation {
    /// Whether all lanes of a warp read or write what one of them gives the address of.
    pub(super) const fn is_by_warp(self) -> bool {
        matches!(self, Self::LoadMatrixX4 | Self::LoadMatrixX4Trans | Self::StoreMatrixX4Trans)
            || self.is_by_warpgroup()
    }

    /// Whether a whole warpgroup waits for it.
    pub(super) const fn waits_for_warpgroup(self) -> bool {
        matches!(self, Self::SyncWarpgroup) || self.is_by_warpgroup()
    }

    /// Whether a whole warpgroup waits for it, and reads.
    pub(super) const fn is_by_warpgroup(self) -> bool {
        matches!(
            self,
            Self::WarpgroupMmaSparseF16
                | Self::WarpgroupMmaSparseBf16
                | Self::WarpgroupMmaF16
                | Self::WarpgroupMmaBf16
        )
    }

    /// Whether what it writes to shared memory needs a fence before the copy engine's proxy sees it: that of bulk
    /// copies and of products of a warpgroup.
    pub(super) const fn is_generic(self) -> bool {
        matches!(self, Self::StoreShared | Self::StoreMatrixX4Trans | Self::CopyAsync16)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One operation of one thread: `store by thread 3 of block (0, 0) at kernel.rs:12`, or, for a matrix load or store,
/// `load_matrix_x4 with the address of thread 3 of …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The method that the thread called.
    pub operation: Operation,
    /// `(x, y)` of the block in the grid.
    pub block: [u32; 2],
    /// The thread's number in its block.
    pub thread: u32,
    /// The call in the kernel's source.
    pub location: &'static Location<'static>,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, block: [x, y], thread, location } = self;
        // A matrix load or store is by the whole warp; each lane contributes the address of one row.
        let by = match operation {
            operation if operation.is_by_warpgroup() => "by the warpgroup of",
            operation if operation.is_by_warp() => "with the address of",
            _ => "by",
        };
        write!(f, "{operation} {by} thread {thread} of block ({x}, {y}) at {}", Line(location))
    }
}

/// A call site as `file:line`.
pub(super) struct Line<'a>(pub(super) &'a Location<'static>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.file(), self.0.line())
    }
}
