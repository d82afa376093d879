//! Which kernel: the entry for a launch, and the algorithm for a matrix. Pure functions.

use windrow_formats::Structure;
use windrow_kernels::row_split::IN_FLIGHT;
use windrow_kernels::{Dtype, ENTRIES, Entry, Variant};

use super::geometry::division;
use super::tiles::Form;
use crate::num::real;
use crate::options::{Algorithm, TileValues};

/// What decides the entry of a launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    pub(crate) dtype: Dtype,
    /// Columns of this launch.
    pub(crate) n: u32,
    /// Whether rows of `B` begin at multiples of 16 bytes.
    pub(crate) vectors: bool,
    /// Mean entries of a segment.
    pub(crate) mean_len: f64,
    /// Widest slice of `B` that a gather may work on at a time, in columns, if the entries leave a choice.
    pub(crate) widest_slice: u32,
    /// Whether the records of tiles are packed.
    pub(crate) packed: bool,
}

/// Work beside the gathers that a lane group of a CUDA-core kernel has per entry and slice, in bytes of a
/// gather: it reads an index and a value and computes an address.
const ENTRY_OVERHEAD_BYTES: u32 = 16;
/// The same for a step of a tile stream: fragments, columns, window. Packed, it is less, and it is decoded.
const STEP_OVERHEAD_BYTES: u32 = 368;
/// Columns gathered per step of a tile stream.
const STEP_COLUMNS: u32 = 16;
/// Rows of `B` are read in no narrower pieces than a cache line, if they are as wide.
const LINE_BYTES: u32 = 128;

/// Bytes per entry that a slicing costs, idle lanes counted as busy ones: they occupy the same issue slots.
fn slicing_cost(entry: &Entry, dtype: Dtype, n: u32) -> u64 {
    let slice = division(entry).slice;
    let slices = u64::from(n.div_ceil(slice).max(1));
    slices * u64::from(slice * dtype.bytes() + ENTRY_OVERHEAD_BYTES)
}

/// Whether a slice is as wide as a cache line, or all of `n`.
fn reads_whole_lines(entry: &Entry, dtype: Dtype, n: u32) -> bool {
    let slice = division(entry).slice;
    slice >= n || slice * dtype.bytes() >= LINE_BYTES
}

/// The row-split entry: the slicing that wastes least, no wider than asked, and several ways where segments are long
/// enough to keep the loads of each in flight.
pub(crate) fn row_split(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors, mean_len, widest_slice, .. } = demand;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::RowSplit { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    };
    let ways = |entry: &Entry| match entry.variant {
        Variant::RowSplit { ways, .. } => ways,
        _ => 1,
    };
    let fills = |entry: &Entry| mean_len >= f64::from(ways(entry)) * real(IN_FLIGHT as u64);
    let candidates = || ENTRIES.iter().filter(of_family).filter(|entry| ways(entry) == 1 || fills(entry));
    candidates()
        .filter(|entry| reads_whole_lines(entry, dtype, n))
        .min_by_key(|entry| {
            let slice = division(entry).slice;
            let too_wide = if slice > widest_slice { slice } else { 0 };
            (too_wide, slicing_cost(entry, dtype, n), std::cmp::Reverse(ways(entry)))
        })
        .or_else(|| candidates().max_by_key(|entry| division(entry).slice))
}

/// The short-row entry: the slicing that wastes least.
pub(crate) fn short_rows(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors, .. } = demand;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::ShortRows { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    };
    let candidates = || ENTRIES.iter().filter(of_family);
    candidates()
        .filter(|entry| reads_whole_lines(entry, dtype, n))
        .min_by_key(|entry| slicing_cost(entry, dtype, n))
        .or_else(|| candidates().max_by_key(|entry| division(entry).slice))
}

/// The tile-stream entry: the slicing that wastes least, of a step's bytes, among those that are not too wide.
pub(crate) fn tile_stream(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors, widest_slice, packed, .. } = demand;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::TileStream { dtype: d, vectors: v, packed: p, .. }
            if d == dtype && v == vectors && p == packed)
    };
    ENTRIES.iter().filter(of_family).min_by_key(|entry| {
        let slice = division(entry).slice;
        let step_bytes = STEP_COLUMNS * slice * dtype.bytes() + STEP_OVERHEAD_BYTES;
        let cost = u64::from(n.div_ceil(slice).max(1)) * u64::from(step_bytes);
        (slice > widest_slice, if slice > widest_slice { u64::from(slice) } else { cost })
    })
}

/// Mean entries of a step, of 128 that there is room for, up to which its values are packed.
///
/// Packed, the values of a step take 2 bytes an entry in f16 instead of 256, and about 30 instructions more to find
/// them. The record is streamed beside 16 gathered rows of `B`, so that both are small against the gathers of a wide
/// product: a bound on the safe side, to be settled by measurement.
const PACKED_ENTRIES_A_STEP: f64 = 48.0;

/// The form in which records hold the values of tiles, for `entries` entries in `steps` steps, and why.
pub(crate) fn packs_values(asked: TileValues, entries: u64, steps: u64) -> (Form, String) {
    let mean = real(entries) / real(steps.max(1));
    match asked {
        TileValues::Dense => (Form::Dense, "as asked".to_owned()),
        TileValues::Packed => (Form::Packed, "as asked".to_owned()),
        TileValues::Auto if mean > PACKED_ENTRIES_A_STEP => {
            (Form::Dense, format!("{mean:.1} entries a step, more than {PACKED_ENTRIES_A_STEP}"))
        }
        TileValues::Auto => {
            (Form::Packed, format!("{mean:.1} entries a step, at most {PACKED_ENTRIES_A_STEP}"))
        }
    }
}

/// The algorithm for a matrix with this structure in a precision that Tensor Cores multiply, and why.
///
/// On an H200 the tile stream is ahead of row-split, or within a few per cent, on every matrix tried: a gathered row of `B` is
/// used once for each row of the window that wants it, 8 short rows are worked on at a time, and long ones are
/// balanced by construction. Row-split is left with what has no tiles or would not survive them.
///
/// `non_finite` counts the values that are infinite or not a number.
pub(crate) fn algorithm(structure: &Structure, non_finite: u64) -> (Algorithm, String) {
    if structure.nnz == 0 {
        return (Algorithm::RowSplit, "the matrix has no entries".to_owned());
    }
    if non_finite > 0 {
        let why = format!(
            "{non_finite} values are not finite in the precision: tiles would compute every window that holds one again"
        );
        return (Algorithm::RowSplit, why);
    }
    let why = format!(
        "{:.2} entries per gathered row of B, {:.1} a row, {} in the longest: tiles gather least and are balanced",
        structure.nnz_per_vector(),
        structure.row_lengths.mean,
        structure.row_lengths.max
    );
    (Algorithm::TileStream, why)
}

#[cfg(test)]
mod tests {
    use windrow_formats::Csr;

    use super::*;

    fn demand(dtype: Dtype, n: u32, vectors: bool, mean_len: f64) -> Demand {
        Demand { dtype, n, vectors, mean_len, widest_slice: u32::MAX, packed: false }
    }

    #[test]
    fn row_split_follows_width_alignment_and_length() {
        for (dtype, n, vectors, mean, name) in [
            (Dtype::F16, 128, true, 4.0, "spmm_row_split_f16_l16w1"),
            (Dtype::F16, 128, true, 40.0, "spmm_row_split_f16_l16w2"),
            (Dtype::F16, 256, true, 4.0, "spmm_row_split_f16_l32w1"),
            (Dtype::F16, 64, true, 4.0, "spmm_row_split_f16_l8w1"),
            (Dtype::F16, 64, true, 16.0, "spmm_row_split_f16_l8w4"),
            (Dtype::F16, 32, true, 100.0, "spmm_row_split_f16_l4w8"),
            (Dtype::F16, 1, true, 1.0, "spmm_row_split_f16_l4w1"),
            (Dtype::F16, 128, false, 40.0, "spmm_row_split_f16_elements"),
            (Dtype::F32, 128, true, 4.0, "spmm_row_split_f32_l32w1"),
            (Dtype::F32, 32, true, 4.0, "spmm_row_split_f32_l8w1"),
            (Dtype::F32, 7, false, 4.0, "spmm_row_split_f32_elements"),
        ] {
            let entry = row_split(demand(dtype, n, vectors, mean)).unwrap();
            assert_eq!(entry.name, name, "{dtype:?}, n = {n}, vectors {vectors}, mean {mean}");
        }
    }

    #[test]
    fn there_is_an_entry_for_every_demand() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32, Dtype::F32] {
            for n in [1, 7, 31, 33, 64, 130, 257, 4097, 1 << 20] {
                for (vectors, mean) in [(true, 0.0), (true, 1e6), (false, 10.0)] {
                    let demand = demand(dtype, n, vectors, mean);
                    for entry in [row_split(demand).unwrap(), short_rows(demand).unwrap()] {
                        assert!(
                            entry.name.contains(if vectors { "_l" } else { "_elements" }),
                            "{}",
                            entry.name
                        );
                    }
                    for packed in [false, true] {
                        let entry = tile_stream(Demand { packed, ..demand });
                        assert_eq!(entry.is_some(), dtype != Dtype::F32);
                        assert!(entry.is_none_or(|entry| entry.name.ends_with("_packed") == packed));
                    }
                }
            }
        }
    }

    #[test]
    fn tile_stream_takes_the_slices_that_fit() {
        for (n, name) in [(64, "64"), (65, "128"), (128, "128"), (130, "64"), (192, "64"), (256, "128")] {
            let entry = tile_stream(demand(Dtype::F16, n, true, 0.0)).unwrap();
            assert_eq!(entry.name, format!("spmm_tile_stream_f16_{name}"), "n = {n}");
            let packed = Demand { packed: true, ..demand(Dtype::F16, n, true, 0.0) };
            assert_eq!(tile_stream(packed).unwrap().name, format!("spmm_tile_stream_f16_{name}_packed"));
        }
    }

    #[test]
    fn values_are_packed_where_steps_have_few_entries() {
        let form = |asked, entries| packs_values(asked, entries, 10).0;
        assert_eq!(form(TileValues::Auto, 480), Form::Packed);
        assert_eq!(form(TileValues::Auto, 481), Form::Dense);
        assert_eq!((form(TileValues::Dense, 1), form(TileValues::Packed, 1280)), (Form::Dense, Form::Packed));
        assert_eq!(packs_values(TileValues::Auto, 0, 0).0, Form::Packed);
        assert_eq!(packs_values(TileValues::Auto, 165, 10).1, "16.5 entries a step, at most 48");
    }

    #[test]
    fn slices_are_no_wider_than_asked() {
        let narrow = Demand { widest_slice: 64, ..demand(Dtype::F16, 128, true, 0.0) };
        assert_eq!(tile_stream(narrow).unwrap().name, "spmm_tile_stream_f16_64");
        let rows = Demand { widest_slice: 64, ..demand(Dtype::F32, 512, true, 4.0) };
        assert_eq!(row_split(rows).unwrap().name, "spmm_row_split_f32_l16w1");
        let narrower = Demand { widest_slice: 1, ..narrow };
        assert_eq!(
            tile_stream(narrower).unwrap().name,
            "spmm_tile_stream_f16_64",
            "there is no narrower one"
        );
    }

    #[test]
    fn auto_takes_tiles_where_they_are_right() {
        let choose = |csr: &Csr<f32>, non_finite| algorithm(&Structure::of(csr), non_finite).0;
        let identity = Csr::identity(64).unwrap();
        assert_eq!(choose(&identity, 0), Algorithm::TileStream);
        assert_eq!(choose(&identity, 1), Algorithm::RowSplit, "values that are not finite");
        assert_eq!(choose(&Csr::zeros(5, 5).unwrap(), 0), Algorithm::RowSplit);
    }
}
