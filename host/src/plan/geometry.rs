//! Grids of launches: pure arithmetic on sizes and on the entry's own constants.

use windrow_kernels::check::Check;
use windrow_kernels::combine::Combine;
use windrow_kernels::place_values::PlaceValues;
use windrow_kernels::row_softmax::{EightLanes, Group};
use windrow_kernels::training::{ColumnSums, CrossEntropy, Extent, NormalizeRows};
use windrow_kernels::{Entry, F16, Variant};
use windrow_simt::WARP;

/// How an entry divides its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    /// Segments, workers, rows or blocks that one block of the grid handles.
    pub(crate) units_per_block: u32,
    /// Columns of `C` for one value of the grid's slow axis.
    pub(crate) slice: u32,
}

/// The division of an entry. One that takes no dense operands (the probe) has one unit a block.
pub(crate) fn division(entry: &Entry) -> Division {
    let columns_per_lane =
        |dtype: windrow_kernels::Dtype, vectors| if vectors { 16 / dtype.bytes() } else { 1 };
    let (units_per_block, slice) = match entry.variant {
        Variant::RowSplit { dtype, lanes, ways, vectors } => {
            (entry.block_threads / (lanes * ways), lanes * columns_per_lane(dtype, vectors))
        }
        // A descriptor of the host's is a block, whatever the number of its rows.
        Variant::ShortRows { dtype, lanes, vectors } => (1, lanes * columns_per_lane(dtype, vectors)),
        Variant::TileStream { features, .. } => (entry.block_threads / WARP, features),
        Variant::SddmmTiles { .. } => (entry.block_threads / WARP, 1),
        Variant::SddmmEntries { .. } => (entry.block_threads / windrow_kernels::sddmm::BATCH, 1),
        // Threads.
        Variant::SddmmGroups { .. } => (entry.block_threads, 1),
        Variant::RowSoftmax { long } | Variant::RowSoftmaxGrad { long } => match long {
            true => (1, 1),
            false => (entry.block_threads / EightLanes::THREADS, 1),
        },
        Variant::PlaceValues => (PlaceValues::PER_BLOCK, 1),
        // Threads of an extent.
        Variant::Pointwise | Variant::Adam => (Extent::BLOCK_THREADS, 1),
        Variant::CrossEntropy => (CrossEntropy::ROWS, 1),
        Variant::NormalizeRows | Variant::NormalizeRowsGrad => (NormalizeRows::ROWS, 1),
        // Chunks of rows.
        Variant::ColumnSums => (1, ColumnSums::SLICE),
        // `Combine::blocks` counts the blocks.
        Variant::Combine => (1, Combine::SLICE),
        // Blocks, as many as the device holds.
        Variant::MatricizedRows { .. } => (1, windrow_kernels::matricized_rows::SLICE),
        // The same for both element types.
        Variant::Check { .. } => (Check::<F16>::ROWS_PER_BLOCK, Check::<F16>::SLICE),
        Variant::Scan | Variant::ScanAdd => (windrow_kernels::scan::SCAN_BLOCK, 1),
        Variant::RowLengths
        | Variant::PlaceRows
        | Variant::MergeColumns
        | Variant::ListVectors
        | Variant::DistributeEntries
        | Variant::KeepEntries
        | Variant::PlaceWindows
        | Variant::GatherValues { .. } => (entry.block_threads, 1),
        // A window is a block's.
        Variant::DistributeVectors => (1, 1),
        Variant::TileSteps => (windrow_kernels::preprocess::TileSteps::STEPS, 1),
        Variant::TileRecords { .. } => (entry.block_threads / WARP, 1),
        Variant::GatherProbe => (1, 1),
        // Their plans count blocks themselves.
        Variant::RowGroups { .. }
        | Variant::NonzeroGroups { .. }
        | Variant::Mttkrp { .. }
        | Variant::AtomicEntries { .. }
        | Variant::NmCudaCores { .. }
        | Variant::NmTensorCores { .. }
        | Variant::NmCombine
        | Variant::NmStage { .. } => (1, 1),
    };
    Division { units_per_block, slice }
}

/// Blocks along the two axes for `units` units of work over `n` columns.
pub(crate) fn grid(entry: &Entry, units: u64, n: u32) -> [u64; 2] {
    let Division { units_per_block, slice } = division(entry);
    [units.div_ceil(u64::from(units_per_block)), u64::from(n.div_ceil(slice))]
}

/// Rows that a block of a short-row entry handles side by side.
pub(crate) fn short_row_groups(entry: &Entry) -> u32 {
    match entry.variant {
        Variant::ShortRows { lanes, .. } => entry.block_threads / lanes,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use windrow_kernels::tile_stream::{Bulk, ByElement, TileStream};
    use windrow_kernels::{Dtype, ENTRIES, F32, entry};

    use super::*;

    fn tile_entry(features: u32, vectors: bool) -> &'static Entry {
        entry(Variant::TileStream { dtype: Dtype::F16, features, vectors, packed: false }).unwrap()
    }

    #[test]
    fn divisions_are_the_kernels_own() {
        let [wide, narrow, elements] =
            [(128, true), (64, true), (64, false)].map(|(f, v)| division(tile_entry(f, v)));
        let expected = |units_per_block, slice| Division { units_per_block, slice };
        assert_eq!(
            wide,
            expected(TileStream::<F16, Bulk, 2, 3>::WARPS, TileStream::<F16, Bulk, 2, 3>::FEATURES)
        );
        assert_eq!(
            narrow,
            expected(TileStream::<F16, Bulk, 1, 3>::WARPS, TileStream::<F16, Bulk, 1, 3>::FEATURES)
        );
        assert_eq!(elements.slice, TileStream::<F16, ByElement, 1, 2>::FEATURES);
        assert_eq!(Check::<F16>::ROWS_PER_BLOCK, Check::<F32>::ROWS_PER_BLOCK);
        assert_eq!(Check::<F16>::SLICE, Check::<F32>::SLICE);
        let row_split = |dtype, lanes, ways, vectors| {
            division(entry(Variant::RowSplit { dtype, lanes, ways, vectors }).unwrap())
        };
        assert_eq!(row_split(Dtype::F16, 8, 4, true), expected(8, 64));
        assert_eq!(row_split(Dtype::F32, 32, 1, true), expected(8, 128));
        assert_eq!(row_split(Dtype::F32, 32, 1, false), expected(8, 32));
    }

    #[test]
    fn grids_cover_units_and_columns() {
        for entry in ENTRIES {
            let Division { units_per_block, slice } = division(entry);
            assert!(units_per_block >= 1 && slice >= 1, "{}", entry.name);
            for units in [0u64, 1, 31, 32, 33, 1 << 32] {
                for n in [0, 1, 63, 64, 65, 4097] {
                    let [x, y] = grid(entry, units, n);
                    assert!(x * u64::from(units_per_block) >= units && y * u64::from(slice) >= u64::from(n));
                    assert!(x.saturating_sub(1) * u64::from(units_per_block) <= units);
                    assert_eq!((x == 0, y == 0), (units == 0, n == 0));
                }
            }
        }
    }
}
