//! What the record of a chunk looks like: its words, and how many there are.

use crate::panels::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, name_words};

/// Columns of a chunk, each of which has a slot of shared memory for its row of `B`.
pub const SLOTS: u32 = 32;
/// Words of a chunk's names.
pub const NAME_WORDS: u32 = name_words(SLOTS);
pub(super) const NAME_BYTES: u32 = 4 * NAME_WORDS;
/// Bits of a [`vector_word`] in front of the slot, so that it is the byte of a row of the widest slice.
pub(super) const SLOT_AT: u32 = 10;
/// Words at the beginning of a record: a [`bounds_word`] for each warp.
pub const HEAD_WORDS: u32 = PANEL_WARPS;
/// Bits of a number of pairs.
pub(super) const BOUND_BITS: u32 = 10;
/// A chunk has no more pairs of vectors: one vector for each bundle and slot.
pub const MAX_PAIRS: u32 = PANEL_ROWS / BUNDLE_ROWS * SLOTS / 2;
/// Bytes of the longest record.
pub(super) const RECORD_BYTES: u32 = 4 * record_words(MAX_PAIRS);

/// What a record says to a warp: its first bundle has the pairs `begin..middle` of the record, its second
/// `middle..end`, neither of them none.
#[must_use]
pub const fn bounds_word([begin, middle, end]: [u32; 3]) -> u32 {
    begin | middle << BOUND_BITS | end << (2 * BOUND_BITS)
}

/// What a record says of a vector: its column's slot, and a bit for each row of its bundle that has an entry there.
#[must_use]
pub const fn vector_word(slot: u32, mask: u32) -> u32 {
    slot << SLOT_AT | mask
}

/// First word of the values in a record of so many pairs: behind the head and a [`vector_word`] for each vector.
#[must_use]
pub const fn values_at(pairs: u32) -> u32 {
    (HEAD_WORDS + 2 * pairs).next_multiple_of(4)
}

/// Words of a record of so many pairs, whole vectors of 16 bytes.
#[must_use]
pub const fn record_words(pairs: u32) -> u32 {
    values_at(pairs) + 2 * BUNDLE_ROWS * pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_what_their_words_say() {
        assert_eq!(bounds_word([3, 200, MAX_PAIRS]) >> (2 * BOUND_BITS), MAX_PAIRS);
        assert_eq!(bounds_word([3, 200, 256]), 3 | 200 << 10 | 256 << 20);
        assert_eq!(vector_word(31, 0b1010), 31 << 10 | 10);
        // The head, one pair's words and padding, its values.
        assert_eq!((values_at(1), record_words(1)), (12, 20));
        assert_eq!((values_at(2), record_words(2)), (12, 28));
        assert_eq!((record_words(0), record_words(MAX_PAIRS)), (8, 2568));
    }
}
