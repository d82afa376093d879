//! Which kernel: the entry for a launch, and the algorithm for a matrix. Pure functions.

use windrow_formats::Structure;
use windrow_kernels::row_split::IN_FLIGHT;
use windrow_kernels::{Dtype, ENTRIES, Entry, Variant};

use super::geometry::division;
use crate::num::real;
use crate::options::Algorithm;

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
}

/// Work beside the gathers that a lane group of a CUDA-core kernel has per entry and slice, in bytes of a
/// gather: it reads an index and a value and computes an address.
const ENTRY_OVERHEAD_BYTES: u32 = 16;
/// The same for a step of a tile stream: fragments, columns, window.
const STEP_OVERHEAD_BYTES: u32 = 340;
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

/// The row-split entry: the slicing that wastes least, and several ways where segments are long enough to
/// keep the loads of each in flight.
pub(crate) fn row_split(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors, mean_len } = demand;
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
        .min_by_key(|entry| (slicing_cost(entry, dtype, n), std::cmp::Reverse(ways(entry))))
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

/// The tile-stream entry: the slicing that wastes least, of a step's bytes.
pub(crate) fn tile_stream(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors, .. } = demand;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::TileStream { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    };
    ENTRIES.iter().filter(of_family).min_by_key(|entry| {
        let slice = division(entry).slice;
        let step_bytes = STEP_COLUMNS * slice * dtype.bytes() + STEP_OVERHEAD_BYTES;
        u64::from(n.div_ceil(slice).max(1)) * u64::from(step_bytes)
    })
}

/// Gather rate of the row-split kernel, in bytes per second. With [`TILE_RATE`] the calibration of
/// [`Algorithm::Auto`]: only their quotient decides. Measured on an H200.
const ROW_RATE: f64 = 8.1e12;
/// Gather rate of the tile-stream kernel, in bytes per second. The quotient puts the border at 1.05 entries per
/// column vector.
const TILE_RATE: f64 = 7.7e12;
/// A matrix is skewed if its longest row has this many times the entries of the mean row, and at least
/// [`SKEWED_ROW`]: row-split cuts such rows, but a stream of tiles is balanced by construction and stays ahead.
const SKEW: f64 = 32.0;
/// Entries that the longest row of a skewed matrix has at least.
const SKEWED_ROW: usize = 512;

/// The algorithm for a matrix with this structure, and why.
///
/// The model counts the bytes of `B` that are gathered per column of the width: each entry's for row-split,
/// each column vector's for tile-stream, divided by the rate that each reaches.
///
/// `non_finite` counts the values that are infinite or not a number.
///
/// `structure` is that of a matrix in f16; without one the precision is f32, for which there is one algorithm.
pub(crate) fn algorithm(structure: Option<&Structure>, non_finite: u64) -> (Algorithm, String) {
    let Some(structure) = structure else {
        return (Algorithm::RowSplit, "f32 is multiplied on CUDA cores".to_owned());
    };
    if structure.nnz == 0 {
        return (Algorithm::RowSplit, "the matrix has no entries".to_owned());
    }
    if non_finite > 0 {
        let why = format!(
            "{non_finite} values are not finite in f16: tiles would compute every window that holds one again"
        );
        return (Algorithm::RowSplit, why);
    }
    let per_vector = structure.nnz_per_vector();
    let border = ROW_RATE / TILE_RATE;
    let lengths = structure.row_lengths;
    if per_vector > border {
        let why =
            format!("{per_vector:.2} entries per column vector, above {border:.2}: tiles gather fewer bytes");
        return (Algorithm::TileStream, why);
    }
    if lengths.max >= SKEWED_ROW && real(lengths.max as u64) > SKEW * lengths.mean {
        let why = format!(
            "the longest row has {} entries, the mean row {:.1}: a stream of tiles is balanced by construction",
            lengths.max, lengths.mean
        );
        return (Algorithm::TileStream, why);
    }
    let why = format!(
        "{per_vector:.2} entries per column vector, not above {border:.2}: tiles would save no bytes"
    );
    (Algorithm::RowSplit, why)
}

#[cfg(test)]
mod tests {
    use windrow_formats::Csr;

    use super::*;

    fn demand(dtype: Dtype, n: u32, vectors: bool, mean_len: f64) -> Demand {
        Demand { dtype, n, vectors, mean_len }
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
        for dtype in [Dtype::F16, Dtype::F32] {
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
                    assert_eq!(tile_stream(demand).is_some(), dtype == Dtype::F16);
                }
            }
        }
    }

    #[test]
    fn tile_stream_takes_the_slices_that_fit() {
        for (n, name) in [(64, "64"), (65, "128"), (128, "128"), (130, "64"), (192, "64"), (256, "128")] {
            let entry = tile_stream(demand(Dtype::F16, n, true, 0.0)).unwrap();
            assert_eq!(entry.name, format!("spmm_tile_stream_f16_{name}"), "n = {n}");
        }
    }

    #[test]
    fn auto_follows_reuse_and_skew() {
        let dense = Csr::from_dense(16, 16, &[1.0f32; 256]).unwrap();
        let dense = Structure::of(&dense);
        assert_eq!(algorithm(None, 0).0, Algorithm::RowSplit);
        assert_eq!(algorithm(Some(&dense), 0).0, Algorithm::TileStream);
        assert_eq!(algorithm(Some(&dense), 1).0, Algorithm::RowSplit);
        let diagonal = Structure::of(&Csr::<f32>::identity(64).unwrap());
        assert_eq!(algorithm(Some(&diagonal), 0).0, Algorithm::RowSplit);
        // One row of 1000 over rows of at most one entry: no reuse, but a skew.
        let columns: Vec<u32> = (0..1000).chain(0..999).collect();
        let offsets = std::iter::once(0).chain((0..1000).map(|r| 1000 + r)).collect();
        let skewed = Csr::try_from_parts(1000, 1000, offsets, columns, vec![1.0f32; 1999]).unwrap();
        let (chosen, why) = algorithm(Some(&Structure::of(&skewed)), 0);
        assert_eq!(chosen, Algorithm::TileStream, "{why}");
        let empty = Structure::of(&Csr::<f32>::zeros(5, 5).unwrap());
        assert_eq!(algorithm(Some(&empty), 0).0, Algorithm::RowSplit);
    }
}
