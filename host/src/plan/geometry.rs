//! Grids of launches: pure arithmetic on sizes and on the entry's own constants.

use std::ops::Range;

use windrow_formats::WINDOW_ROWS;
use windrow_kernels::{Entry, Variant};

use crate::device::Device;

/// Warps of a tile stream that a multiprocessor works on at the same time.
const WARPS_AT_ONCE: usize = 16;

/// How an entry divides its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    /// Segments, workers, rows or blocks that one block of the grid handles.
    pub(crate) units_per_block: u32,
    /// Columns of `C` for one value of the grid's slow axis.
    pub(crate) slice: u32,
}

/// The division of an entry: the kernel's own constants.
pub(crate) fn division(entry: &Entry) -> Division {
    Division { units_per_block: entry.units_per_block, slice: entry.columns_per_block }
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

/// Rows that a device works on at the same time.
pub(crate) fn rows_at_once(device: &Device) -> usize {
    device.multiprocessors() as usize * WARPS_AT_ONCE * WINDOW_ROWS
}

/// So many successive rows in the middle of a matrix.
pub(crate) fn middle(rows: usize, at_once: usize) -> Range<usize> {
    let first = rows.saturating_sub(at_once) / 2;
    first..rows.min(first + at_once)
}

#[cfg(test)]
mod tests {
    use windrow_kernels::check::Check;
    use windrow_kernels::combine::Combine;
    use windrow_kernels::tile_stream::{Bulk, ByElement, Form, Pipeline, TileStream};
    use windrow_kernels::{Dtype, ENTRIES, F16, entry};

    use super::*;

    fn tile_entry(features: u32, vectors: bool) -> &'static Entry {
        let pipeline = Pipeline::ThreeStages;
        entry(Variant::TileStream { dtype: Dtype::F16, features, vectors, form: Form::Dense, pipeline })
            .unwrap()
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
        let check = division(entry(Variant::Check { dtype: Dtype::F32 }).unwrap());
        assert_eq!(check, expected(Check::<F16>::ROWS_PER_BLOCK, Check::<F16>::SLICE));
        assert_eq!(
            division(entry(Variant::Combine { sum_bytes: 4 }).unwrap()),
            expected(1, Combine::<f32>::SLICE)
        );
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
