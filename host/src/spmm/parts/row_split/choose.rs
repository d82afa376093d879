//! Where rows are cut, and which kernel takes their segments. Pure functions.

use std::cmp::Reverse;

use windrow_kernels::row_split::IN_FLIGHT;
use windrow_kernels::{ENTRIES, Entry, Variant};

use crate::num::{index, narrow, real, wide};
use crate::plan::division;
use crate::spmm::select::{Demand, reads_whole_lines, slicing_cost};

/// No row is cut into shorter pieces than this: a piece's sum is written and read once more.
pub(in crate::spmm) const SHORTEST_PIECE: u32 = 32;
/// So many pieces of the longest kind would occupy a multiprocessor for the whole product. One lane group
/// takes about as long for such a piece as an eighth of it, so the longest row does not outlast the rest,
/// and the workspace depends on the device, not on the matrix.
const PIECES_PER_MULTIPROCESSOR: u32 = 96;

/// With so many rows for each multiprocessor, the rows alone occupy the device.
const ROWS_PER_MULTIPROCESSOR: u32 = 32;
/// No row is cut for being longer than the others by less than this: adding its pieces is a launch of its own.
const SHORTEST_CUT: u32 = 96;

/// What decides where rows are cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowCounts {
    pub(super) rows: u64,
    pub(super) nnz: u64,
    /// Entries of the longest row.
    pub(super) longest: u64,
}

impl RowCounts {
    pub(super) fn of(row_offsets: &[u64]) -> Self {
        Self {
            rows: wide(row_offsets.len()).saturating_sub(1),
            nnz: row_offsets.last().copied().unwrap_or(0),
            longest: row_offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0),
        }
    }
}

/// Entries from which on a row is cut, and entries of its longest piece.
///
/// Rows that are alike need no cutting if there are enough of them; on an H200, cutting them cost bcsstk16
/// 24 %, not cutting unlike ones email-Enron 100 %.
pub(super) fn cut_lengths(RowCounts { rows, nnz, longest }: RowCounts, multiprocessors: u32) -> (u32, u32) {
    let alike = longest <= u64::from(SHORTEST_CUT).max(2 * nnz / rows.max(1));
    let piece = piece_len(nnz, multiprocessors);
    if alike && rows >= u64::from(ROWS_PER_MULTIPROCESSOR) * u64::from(multiprocessors) {
        return (u32::MAX, piece);
    }
    // A row that is barely longer than a piece is better left whole than cut into halves.
    (piece.saturating_add(piece / 2), piece)
}

/// Entries of the longest piece of a row that is cut, for `nnz` entries on so many multiprocessors.
fn piece_len(nnz: u64, multiprocessors: u32) -> u32 {
    let pieces = u64::from(PIECES_PER_MULTIPROCESSOR) * u64::from(multiprocessors.max(1));
    narrow(index(nnz.div_ceil(pieces).max(u64::from(SHORTEST_PIECE))))
}

/// What of the segments decides the entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentShape {
    /// Mean entries of a segment.
    pub(super) mean_len: f64,
    /// Whether several groups of lanes share a segment; as the mean length says, unless told.
    pub(super) several_ways: Option<bool>,
    /// Widest slice of `B` that is worked on at a time, in columns.
    pub(super) widest_slice: u32,
}

/// The entry with the slicing that wastes least, no wider than asked, and several ways where segments are long enough
/// to keep the loads of each in flight.
pub(super) fn select(demand: Demand, shape: SegmentShape) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors } = demand;
    let SegmentShape { mean_len, several_ways, widest_slice } = shape;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::RowSplit { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    };
    let ways = |entry: &Entry| match entry.variant {
        Variant::RowSplit { ways, .. } => ways,
        _ => 1,
    };
    let fills = |entry: &Entry| {
        several_ways.unwrap_or_else(|| mean_len >= f64::from(ways(entry)) * real(IN_FLIGHT as u64))
    };
    let candidates = || ENTRIES.iter().filter(of_family).filter(|entry| ways(entry) == 1 || fills(entry));
    candidates()
        .filter(|entry| reads_whole_lines(entry, dtype, n))
        .min_by_key(|entry| {
            let slice = division(entry).slice;
            let too_wide = if slice > widest_slice { slice } else { 0 };
            (too_wide, slicing_cost(entry, dtype, n), Reverse(ways(entry)))
        })
        .or_else(|| candidates().max_by_key(|entry| division(entry).slice))
}

#[cfg(test)]
mod tests {
    use windrow_kernels::Dtype;

    use super::*;

    fn offsets(lengths: &[u64]) -> RowCounts {
        let offsets = lengths.iter().fold(vec![0], |mut offsets, len| {
            offsets.push(offsets[offsets.len() - 1] + len);
            offsets
        });
        RowCounts::of(&offsets)
    }

    #[test]
    fn many_rows_alike_stay_whole() {
        assert_eq!(cut_lengths(offsets(&[60; 128]), 4), (u32::MAX, SHORTEST_PIECE));
    }

    #[test]
    fn few_rows_and_unlike_rows_are_cut() {
        let cut = (SHORTEST_PIECE + SHORTEST_PIECE / 2, SHORTEST_PIECE);
        assert_eq!(cut_lengths(offsets(&[60; 127]), 4), cut);
        let mut lengths = [4; 128];
        lengths[5] = 97;
        assert_eq!(cut_lengths(offsets(&lengths), 4), cut);
        lengths[5] = 96;
        assert_eq!(cut_lengths(offsets(&lengths), 4).0, u32::MAX);
    }

    #[test]
    fn a_larger_matrix_has_longer_pieces() {
        let nnz = 1000 * u64::from(PIECES_PER_MULTIPROCESSOR) * 4;
        assert_eq!(cut_lengths(RowCounts::of(&[0, nnz]), 4), (1500, 1000));
        assert_eq!(cut_lengths(RowCounts::of(&[0]), 4).1, SHORTEST_PIECE);
    }

    fn shape(mean_len: f64) -> SegmentShape {
        SegmentShape { mean_len, several_ways: None, widest_slice: u32::MAX }
    }

    #[test]
    fn the_entry_follows_width_alignment_and_length() {
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
            let entry = select(Demand { dtype, n, vectors }, shape(mean)).unwrap();
            assert_eq!(entry.name, name, "{dtype:?}, n = {n}, vectors {vectors}, mean {mean}");
        }
    }

    #[test]
    fn slices_and_ways_are_those_asked_for() {
        let demand = Demand { dtype: Dtype::F32, n: 512, vectors: true };
        let narrow = SegmentShape { widest_slice: 64, ..shape(4.0) };
        assert_eq!(select(demand, narrow).unwrap().name, "spmm_row_split_f32_l16w1");
        let demand = Demand { dtype: Dtype::F16, n: 64, vectors: true };
        let ways = |several_ways| SegmentShape { several_ways: Some(several_ways), ..shape(16.0) };
        assert_eq!(select(demand, ways(false)).unwrap().name, "spmm_row_split_f16_l8w1");
        assert_eq!(
            select(demand, SegmentShape { mean_len: 1.0, ..ways(true) }).unwrap().name,
            "spmm_row_split_f16_l8w4"
        );
    }

    #[test]
    fn there_is_an_entry_for_every_demand() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32, Dtype::F32] {
            for n in [1, 7, 31, 33, 64, 130, 257, 4097, 1 << 20] {
                for (vectors, mean) in [(true, 0.0), (true, 1e6), (false, 10.0)] {
                    let entry = select(Demand { dtype, n, vectors }, shape(mean)).unwrap();
                    assert!(entry.name.contains(if vectors { "_l" } else { "_elements" }), "{}", entry.name);
                }
            }
        }
    }
}
