//! The kernels' own table of entry points, as the tasks use it.

/// What the tasks need to know of one entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntrySpec {
    /// Symbol in the PTX.
    pub name: String,
    /// Stem of the kernel's source file in `device-kernels/src`.
    pub kernel: String,
    /// Threads of a block; becomes `.maxntid`.
    pub block_threads: u32,
    /// Size of the one parameter, a `repr(C)` struct.
    pub params_bytes: usize,
    /// Oldest architecture that the entry runs on (80 means `sm_80`).
    pub min_sm: u32,
    /// Blocks that must fit on one multiprocessor; becomes `.minnctapersm` unless it is 0.
    pub min_blocks: u32,
}

/// Every entry of `windrow_kernels::ENTRIES`, in its order.
pub(crate) fn all() -> Vec<EntrySpec> {
    windrow_kernels::ENTRIES
        .iter()
        .map(|entry| EntrySpec {
            name: entry.name.to_owned(),
            kernel: entry.kernel.to_owned(),
            block_threads: entry.block_threads,
            params_bytes: entry.params_bytes,
            min_sm: entry.min_sm,
            min_blocks: entry.min_blocks,
        })
        .collect()
}
