//! Panels of rows, as kernels share them: [`row_panels`](crate::spmm::row_panels) for products with a dense matrix,
//! [`sddmm::panels`](crate::sddmm::panels) for sampled ones.
//!
//! A *panel* is [`PANEL_ROWS`] rows. Its distinct columns, ascending, are cut into *chunks*, whose rows of the dense
//! operand come to shared memory once for the whole panel, each to a *slot*. Four rows are a *bundle*; a *vector* is
//! what a bundle has in one column, one to four entries. A chunk has *names*, which say what must be brought for it,
//! and a *record*, which says what is to be done with that.

/// Rows of a panel.
pub const PANEL_ROWS: u32 = 64;
/// Rows of a bundle, of which a column has one vector.
pub const BUNDLE_ROWS: u32 = 4;
/// Warps of a block.
pub const PANEL_WARPS: u32 = 8;
/// Bundles of a warp.
pub const WARP_BUNDLES: u32 = PANEL_ROWS / BUNDLE_ROWS / PANEL_WARPS;

/// Words of the names of a chunk of so many slots: its columns, and the beginning and the length of its record, padded.
#[must_use]
pub const fn name_words(slots: u32) -> u32 {
    slots + 4
}
