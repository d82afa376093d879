//! What follows from the tile of an N:M product's block: the memory that it takes, how many stages at a time, and how
//! it stores its sums.

use crate::variant::{NmRows, NmTile};

impl NmTile {
    /// Strips of a block.
    #[must_use]
    pub const fn strips(self) -> u32 {
        self.columns / self.strip
    }

    /// What the depth of a stage is a multiple of: eight, so that fewer instructions are none of the products', but
    /// four where strips are so narrow that eight kept rows may come from more than shared memory has room for.
    #[must_use]
    pub const fn depth_multiple(self) -> u32 {
        if self.strip >= 16 { 8 } else { 4 }
    }

    /// Words of a stage's record: rows, weights and picks.
    #[must_use]
    pub const fn record_words(self, slots: u32, depth: u32) -> u32 {
        slots + (self.columns + self.strips()) * depth
    }

    /// Shared memory that stages of `slots` slots and `depth` kept rows take, in bytes: two of them, and the counter of
    /// bulk copies.
    #[must_use]
    pub const fn shared_bytes(self, slots: u32, depth: u32) -> u32 {
        2 * self.stage_bytes(slots, depth) + Self::COUNTER_BYTES
    }

    /// Stages that a block of [warpgroups](super::Warpgroups) takes at a time: two, where activations are not picked,
    /// of tiles so small that the products of one are over too soon.
    #[must_use]
    pub const fn stages_at_once(self, rows: NmRows) -> u32 {
        if matches!(rows, NmRows::All) && self.rows * self.columns <= 128 * 128 { 2 } else { 1 }
    }

    /// Whether a tile of [warpgroups](super::Warpgroups) stores elements of 16 bits in whole rows, where nothing but
    /// `α·sum` is to be computed: with more sums threads have no registers for it.
    #[must_use]
    pub const fn stores_whole_rows(self) -> bool {
        self.rows * self.columns < 192 * 256
    }

    /// Bytes that the counter of bulk copies takes, at the end of shared memory.
    pub(super) const COUNTER_BYTES: u32 = 16;

    /// Bytes of a row of the slab of `A`.
    #[must_use]
    pub const fn slot_bytes(self) -> u32 {
        4 * self.rows
    }

    /// Bytes of a stage: `slots` rows of `A` and one of zeros, and a record.
    pub(super) const fn stage_bytes(self, slots: u32, depth: u32) -> u32 {
        (slots + 1) * self.slot_bytes() + 4 * self.record_words(slots, depth)
    }
}
