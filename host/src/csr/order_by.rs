//! The order of entries by several indices, such as row and column, or the three of a tensor.

use windrow_kernels::Variant;
use windrow_kernels::csr::TransposeEntriesParams;
use windrow_simt::GlobalPtr;

use super::receive::entry_of;
use crate::device::Queue;
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::start;
use crate::sort::Sort;
use crate::spmm::Scratch;

/// An index of each entry, by which they are sorted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) indices: GlobalPtr<u32>,
    /// Words from one to the next, of which the first is the index: 2 at most for the index that weighs least.
    pub(crate) words: u32,
    /// Low bits by which it is sorted, those of all indices that are in range.
    pub(crate) bits: u32,
}

/// Entries sorted by their indices; those of one place stay in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordered {
    /// Which entry comes at each place.
    pub(crate) order: GlobalPtr<u32>,
    /// The index that weighs most, in that order.
    pub(crate) sorted: GlobalPtr<u32>,
}

impl Ordered {
    /// Words of memory that [`by`](Self::by) takes, but for the ends of arrays.
    pub(crate) fn words(len: usize, bits: impl IntoIterator<Item = u32>) -> u64 {
        4 * wide(len) + memory_words(len, bits)
    }

    /// Queues as many stable sorts as there are keys, from the one that weighs least to the one that weighs most.
    /// Arrays live as long as `scratch`.
    ///
    /// # Safety
    /// Each key has `len` indices of any value, in memory that lives until the work is done.
    pub(crate) unsafe fn by<const N: usize>(
        scratch: &Scratch,
        own: &dyn Queue,
        keys: [Key; N],
        len: usize,
    ) -> Result<Self, DeviceError> {
        const WHAT: &str = "entries to be sorted";
        let array = || scratch.array::<u32>(len, WHAT);
        let (brought, sorted, mut order, mut next) = (array()?, array()?, GlobalPtr::NULL, array()?);
        let mut free = array()?;
        let memory = scratch.array(index(memory_words(len, keys.map(|key| key.bits))), WHAT)?;
        for (at, Key { indices, words, bits }) in keys.into_iter().enumerate() {
            let is_first = at == 0;
            debug_assert!(is_first || words == 1, "{indices:?} are not brought into an order");
            let bring = TransposeEntriesParams {
                order,
                columns: GlobalPtr::NULL,
                rows: indices,
                values: GlobalPtr::NULL,
                out_offsets: GlobalPtr::NULL,
                out_rows: brought,
                out_values: GlobalPtr::NULL,
                entries: narrow(len),
                cols: 0,
                value_bytes: 4,
                reserved: 0,
            };
            let sort = Sort {
                keys: if is_first { indices } else { brought },
                key_words: words,
                payloads: order,
                out_keys: sorted,
                keys_wanted: at + 1 == N,
                out_payloads: next,
                len: narrow(len),
                bits,
            };
            // SAFETY: the caller's promise; the order is one of all entries, and each sort has the memory to itself, as
            // one comes after the other.
            unsafe {
                if !is_first {
                    start(own, entry_of(Variant::TransposeEntries)?, wide(len), 1, &bring)?;
                }
                sort.queue(own, memory)?;
            }
            order = next;
            std::mem::swap(&mut next, &mut free);
        }
        Ok(Self { order, sorted })
    }
}

/// Words of the largest of the sorts.
fn memory_words(len: usize, bits: impl IntoIterator<Item = u32>) -> u64 {
    bits.into_iter().map(|bits| Sort::memory_words(narrow(len), bits)).max().unwrap_or(0)
}
