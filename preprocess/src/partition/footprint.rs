//! Bytes of a matrix in the formats that RSH-SpMM compares.

use windrow_formats::{Csr, RsTile, Structure, TILE_COLS};

/// Tiles that one thread block of the balanced layout takes.
const BLOCK_TILES: u64 = 32;

/// Bytes of a matrix in one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// The format, as tables name it.
    pub format: &'static str,
    /// Bytes of everything but values: what says where values are.
    pub metadata_bytes: u64,
    /// Bytes of the values, one for each entry in every format.
    pub value_bytes: u64,
}

impl Footprint {
    /// Bytes of metadata and values together.
    pub fn total_bytes(&self) -> u64 {
        self.metadata_bytes + self.value_bytes
    }
}

/// Bytes of `csr` in the seven formats of Figure 13 of RSH-SpMM: COO, CSR, RS-Tile, ME-TCF and `BitTCF`, the last two
/// plain and balanced.
///
/// With `w` windows of 8 consecutive rows, `t` tiles and `b = ⌈t / 32⌉` thread blocks, the arrays counted are:
///
/// | format | metadata |
/// | --- | --- |
/// | `COO` | a row and a column of 4 bytes for each entry |
/// | `CSR` | what [`Csr`] holds: row offsets of 8 bytes, columns of 4 |
/// | `RS-Tile` | all arrays of `rs_tile`, its residual's included, that are not values |
/// | `ME-TCF` | first tile of each window (4 · (w + 1)), first entry of each tile (4 · (t + 1)), 8 columns (32 · t) for each tile, the place in its tile of each entry (1 byte) |
/// | `ME-TCF balanced` | the same, the window of each tile (4 · t), the first tile of each thread block (4 · (b + 1)) |
/// | `BitTCF` | first tile of each window (4 · (w + 1)), first value of each tile (4 · (t + 1)), 8 columns (32 · t) and a bitmap (8 · t) for each tile |
/// | `BitTCF balanced` | the same, the window of each tile (4 · t), the first tile of each thread block (4 · (b + 1)) |
///
/// `ME-TCF` is laid out like the format of DTC-SpMM of that name, `BitTCF` like that of Acc-SpMM: a bitmap says where a
/// tile's entries are, in place of a byte for each. Both in tiles of 8 × 8, which is RS-Tile's; DTC-SpMM's own are
/// 16 × 8. The arrays that balancing adds are those that the RSH-SpMM paper names: a map of rows and block offsets.
/// RS-Tile has none: a plan deals its windows
/// out to warps, with 8 bytes for each of these. `rs_tile` is `csr` in tiles and residual.
///
/// # Cost
/// One parallel pass over the entries, to count the tiles of windows of consecutive rows.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, RowAssignment, RsTile};
/// use windrow_preprocess::partition::footprint;
///
/// let a = Csr::from_dense(8, 8, &[1.0f32; 64])?;
/// let sizes = footprint(&a, &RsTile::from_csr(&a, &RowAssignment::all_tile(8)?)?);
/// assert_eq!((sizes[0].format, sizes[0].metadata_bytes, sizes[0].value_bytes), ("COO", 512, 256));
/// assert_eq!((sizes[3].format, sizes[3].metadata_bytes), ("ME-TCF", 112)); // one tile of 64 entries
/// assert_eq!((sizes[5].format, sizes[5].metadata_bytes), ("BitTCF", 56));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn footprint<V: Sync>(csr: &Csr<V>, rs_tile: &RsTile<V>) -> [Footprint; 7] {
    const INDEX: u64 = size_of::<u32>() as u64;
    const BITMAP: u64 = size_of::<u64>() as u64;
    /// The place of an entry in its tile: below 64.
    const PLACE: u64 = size_of::<u8>() as u64;

    let structure = Structure::of(csr);
    let nnz = csr.nnz() as u64;
    let value_bytes = nnz * size_of::<V>() as u64;
    let of = |format, metadata_bytes| Footprint { format, metadata_bytes, value_bytes };
    let real = |format, sizes: &windrow_formats::ByteSizes| {
        let values = ["values", "residual_values"].iter().filter_map(|name| sizes.get(name)).sum::<u64>();
        Footprint { format, metadata_bytes: sizes.total() - values, value_bytes: values }
    };
    let (windows, tiles) = (structure.windows as u64, structure.tiles);
    let condensed = INDEX * (windows + 1) + INDEX * (tiles + 1) + INDEX * TILE_COLS as u64 * tiles;
    let (me_tcf, bit_tcf) = (condensed + PLACE * nnz, condensed + BITMAP * tiles);
    let balance = INDEX * tiles + INDEX * (tiles.div_ceil(BLOCK_TILES) + 1);
    [
        of("COO", 2 * INDEX * nnz),
        real("CSR", &csr.byte_sizes()),
        real("RS-Tile", &rs_tile.byte_sizes()),
        of("ME-TCF", me_tcf),
        of("ME-TCF balanced", me_tcf + balance),
        of("BitTCF", bit_tcf),
        of("BitTCF balanced", bit_tcf + balance),
    ]
}
