//! Which kernel of an algorithm: what a launch asks of an entry, and what a slicing of its width costs. Pure functions.

use windrow_kernels::{Dtype, ENTRIES, Entry};

use super::part::Operation;
use crate::plan::division;

/// What a launch asks of an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    pub(super) dtype: Dtype,
    /// Columns of this launch.
    pub(super) n: u32,
    /// Whether rows of `B` begin at multiples of 16 bytes.
    pub(super) vectors: bool,
}

impl Demand {
    /// With operands that are aligned.
    pub(super) fn aligned(dtype: Dtype, n: u32) -> Self {
        Self { dtype, n, vectors: true }
    }

    pub(super) fn of(dtype: Dtype, Operation { n, vectors, .. }: Operation) -> Self {
        Self { dtype, n, vectors }
    }
}

/// Work beside the gathers that a lane group of a CUDA-core kernel has per entry and slice, in bytes of a
/// gather: it reads an index and a value and computes an address.
const ENTRY_OVERHEAD_BYTES: u32 = 16;
/// Rows of `B` are read in no narrower pieces than a cache line, if they are as wide.
pub(super) const LINE_BYTES: u32 = 128;

/// Bytes per entry that a slicing costs, idle lanes counted as busy ones: they occupy the same issue slots.
pub(super) fn slicing_cost(entry: &Entry, dtype: Dtype, n: u32) -> u64 {
    let slice = division(entry).slice;
    let slices = u64::from(n.div_ceil(slice).max(1));
    slices * u64::from(slice * dtype.bytes() + ENTRY_OVERHEAD_BYTES)
}

/// Whether a slice is as wide as a cache line, or all of `n`.
pub(super) fn reads_whole_lines(entry: &Entry, dtype: Dtype, n: u32) -> bool {
    let slice = division(entry).slice;
    slice >= n || slice * dtype.bytes() >= LINE_BYTES
}

/// The entry of a family with the slicing that wastes least, if there is one that reads whole lines, else the widest.
pub(super) fn least_waste(dtype: Dtype, n: u32, is_one: impl Fn(&Entry) -> bool) -> Option<&'static Entry> {
    let candidates = || ENTRIES.iter().filter(|entry| is_one(entry));
    candidates()
        .filter(|entry| reads_whole_lines(entry, dtype, n))
        .min_by_key(|entry| slicing_cost(entry, dtype, n))
        .or_else(|| candidates().max_by_key(|entry| division(entry).slice))
}
