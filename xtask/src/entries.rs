//! The kernels' own table of entry points, as the tasks use it.

use windrow_kernels::Arch;

/// What the tasks need to know of one entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntrySpec {
    /// Symbol in the PTX.
    pub name: String,
    /// Stem of the kernel's source file in `device-kernels/src`.
    pub kernel: String,
    /// Stem of the PTX file that holds it, in the folders of `device-kernels/ptx`.
    pub module: String,
    /// Threads of a block; becomes `.maxntid`.
    pub block_threads: u32,
    /// Size of the one parameter, a `repr(C)` struct.
    pub params_bytes: usize,
    /// First architecture that the entry runs on.
    pub arch: Arch,
    /// Blocks that must fit on one multiprocessor; becomes `.minnctapersm` unless it is 0.
    pub min_blocks: u32,
    /// The same in the texts for compute capability 9.0 and later.
    pub min_blocks_from_sm90: u32,
}

/// Every entry of `windrow_kernels::ENTRIES`, in its order.
pub(crate) fn all() -> Vec<EntrySpec> {
    windrow_kernels::ENTRIES
        .iter()
        .map(|entry| EntrySpec {
            name: entry.name.to_owned(),
            kernel: entry.kernel.to_owned(),
            module: entry.module.to_owned(),
            block_threads: entry.block_threads,
            params_bytes: entry.params_bytes,
            arch: entry.arch,
            min_blocks: entry.min_blocks,
            min_blocks_from_sm90: entry.min_blocks_from_sm90,
        })
        .collect()
}

#[cfg(test)]
impl EntrySpec {
    /// An entry for tests of what looks at entries: one of many like it.
    pub(crate) fn sample(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kernel: name.to_owned(),
            module: name.to_owned(),
            block_threads: 128,
            params_bytes: 24,
            arch: Arch::Sm80,
            min_blocks: 0,
            min_blocks_from_sm90: 0,
        }
    }
}
