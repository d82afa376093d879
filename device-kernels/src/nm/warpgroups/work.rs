//! What a product on sparse Tensor Cores has to do: tiles, their parts, and where sums go.

use bytemuck::{Pod, Zeroable};
use windrow_simt::GlobalPtr;

#[cfg(doc)]
use super::{sparse_metadata_at, sparse_value_index};
use crate::output::Output;

/// What a product on sparse Tensor Cores has to do, however its activations come.
///
/// # Obligations
/// - `weights` is 16-byte aligned: for each tile of columns and stage the values of its `BN / 64` runs of columns
///   ([`sparse_value_index`]), then their metadata ([`sparse_metadata_at`]). What is beyond the columns or the rows of
///   `W` has zeros for values, and metadata of two places in order;
/// - `stages`, `m_tiles`, `n_tiles` and `span` are at least one;
/// - the stages of a tile are divided into `1 << parts_log2` parts, of which none is empty: there are as many stages,
///   and their product is below 2³². Part `i` writes the output `i · part_elements` elements further on; with more than
///   one, that is an f32. An *item* is a part of a tile, the parts of a tile after each other; there are `items`, below
///   2³², and the grid has as many blocks at most.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct WarpgroupWork {
    /// The result, and what becomes of sums on their way to it; or the partial sums of part 0.
    pub output: Output,
    /// Elements of the output from one part to the next.
    pub part_elements: u64,
    /// What is kept of the weights.
    pub weights: GlobalPtr<u32>,
    /// Stages of the product: `⌈k / 64⌉`, or as many as the order of the rows takes.
    pub stages: u32,
    /// Tiles along the rows of `C`.
    pub m_tiles: u32,
    /// Tiles along the columns of `C`.
    pub n_tiles: u32,
    /// Tiles of columns that are taken side by side for each tile of rows.
    pub span: u32,
    /// Logarithm of the number of parts.
    pub parts_log2: u32,
    /// Items of the whole grid.
    pub items: u32,
}

impl WarpgroupWork {
    /// The part that an item is.
    #[inline(always)]
    pub(super) fn part(&self, item: u32) -> u32 {
        item & ((1 << self.parts_log2) - 1)
    }

    /// The first stage of an item, and how many it has: parts differ by one at most.
    #[inline(always)]
    pub(super) fn stages_of(&self, item: u32) -> (u32, u32) {
        let part = self.part(item);
        let begin = (part * self.stages) >> self.parts_log2;
        (begin, (((part + 1) * self.stages) >> self.parts_log2) - begin)
    }

    /// The tile's number among those of columns, and of rows: some tiles of columns are taken side by side for each
    /// tile of rows, so that blocks at work share both.
    #[inline(always)]
    pub(super) fn place(&self, tile: u32) -> (u32, u32) {
        // None of these is zero; a division that could fail would have to say so.
        let divided = |x: u32, by: u32| {
            let whole = x.checked_div(by).unwrap_or(0);
            (whole, x - whole * by)
        };
        let (span, within) = divided(tile, self.span * self.m_tiles);
        let wide = self.span.min(self.n_tiles - span * self.span);
        let (m_tile, of_span) = divided(within, wide);
        (span * self.span + of_span, m_tile)
    }
}
