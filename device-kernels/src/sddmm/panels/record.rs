//! What the record of a chunk looks like: its words, and how many there are.

use crate::panels::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, name_words};

/// Columns of a chunk, each of which has a slot of shared memory for its row of `Y`.
pub const SLOTS: u32 = 64;
/// Words of a chunk's names.
pub const NAME_WORDS: u32 = name_words(SLOTS);
pub(super) const NAME_BYTES: u32 = 4 * NAME_WORDS;
/// Vectors of a batch, which a warp works on together.
pub const BATCH_VECTORS: u32 = 8;
/// Words of a batch: a byte for the slot of each vector; a mask, whose bit `4v + r` says whether row `r` of the bundle
/// has an entry in the column of vector `v`; one of padding.
pub const BATCH_WORDS: u32 = 4;
/// Words in front of the positions.
pub(super) const FIRSTS_AT: u32 = PANEL_WARPS;
/// Words at the beginning of a record: a [`batches_word`] for each warp, then for each row of the panel, bundle by
/// bundle, the position of the first of its entries in the chunk; the others follow in the order of their columns.
pub const HEAD_WORDS: u32 = FIRSTS_AT + PANEL_ROWS;
/// Bits of each number in a [`batches_word`].
pub(super) const COUNT_BITS: u32 = 8;
/// A chunk has no more batches: one vector for each bundle and slot.
pub const MAX_BATCHES: u32 = PANEL_ROWS / BUNDLE_ROWS * SLOTS / BATCH_VECTORS;
/// Bytes of the longest record.
pub(super) const RECORD_BYTES: u32 = 4 * record_words(MAX_BATCHES);

/// What a record says to a warp: its first bundle has its vectors from batch `begin` on, its second from the batch
/// behind them on; each has so many halves of batches, maybe none.
#[must_use]
pub const fn batches_word(begin: u32, halves: [u32; 2]) -> u32 {
    begin | halves[0] << COUNT_BITS | halves[1] << (2 * COUNT_BITS)
}

/// Words of a record of so many batches, whole vectors of 16 bytes.
#[must_use]
pub const fn record_words(batches: u32) -> u32 {
    HEAD_WORDS + BATCH_WORDS * batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_what_their_words_say() {
        const { assert!(MAX_BATCHES < 1 << COUNT_BITS && SLOTS <= 1 << 8, "numbers fit in their bits") }
        const { assert!(HEAD_WORDS.is_multiple_of(BATCH_WORDS), "a batch begins at a multiple of its bytes") }
        assert_eq!(batches_word(120, [15, 16]), 120 | 15 << 8 | 16 << 16);
        assert_eq!((record_words(0), record_words(MAX_BATCHES)), (72, 584));
    }
}
