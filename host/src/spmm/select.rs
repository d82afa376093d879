//! Which kernel: the entry for a launch, and the algorithm for a matrix. Pure functions.

use windrow_kernels::row_split::IN_FLIGHT;
use windrow_kernels::tile_stream::TEAM;
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
pub(crate) const LINE_BYTES: u32 = 128;

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

/// Mean steps of a worker below which a width of one wide slice is divided into narrow ones: the time is latency,
/// which more warps hide better.
///
/// On an H200 at width 128 that took 0.91 to 0.96 of the time for bcsstk16, `helsinki_road`, memplus, PROTEINS and
/// pubmed (0.6 to 4.5 steps); 1.03 to 1.05 for email-Enron and p2p-Gnutella31 (9.4 and 7.5).
const NARROW_STEPS: f64 = 5.0;

/// The widest slice that a stream of `windows` windows of `steps` steps in all should have for this demand, in
/// columns, if `workers` warps would work on it as demanded. Fewer windows than teams are shared by the warps of a
/// block each, and wide slices are as quick.
pub(crate) fn widest_for_few_steps(demand: Demand, windows: u64, steps: u64, workers: u32) -> u32 {
    let narrow = LINE_BYTES / demand.dtype.bytes();
    let one_wide = tile_stream(demand).is_some_and(|entry| division(entry).slice >= demand.n);
    let few = real(steps) < NARROW_STEPS * f64::from(workers) && windows >= u64::from(workers / TEAM);
    if few && one_wide && demand.n > narrow { narrow } else { demand.widest_slice }
}

/// What decides whether the values of tiles are packed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packing {
    pub(crate) entries: u64,
    pub(crate) steps: u64,
    pub(crate) workers: u32,
    /// Whether a worker has but one slice of 128 bytes of each row of `B`.
    pub(crate) narrow: bool,
    /// Bytes of `B`.
    pub(crate) b_bytes: u64,
}

/// Mean entries of a step, of 128 that there is room for, up to which its values are packed: beyond, they are hardly
/// fewer bytes than all places.
///
/// On an H200, f16, packed values took 0.75 to 0.96 of the time (uniform200k most) where this and the next three hold,
/// but for pruned4096 (1.03 at width 128), and 0.93 to 1.18 of it elsewhere.
const PACKED_ENTRIES: f64 = 48.0;
/// Mean steps of a worker from which on they are packed: the first records are found by one more load, which
/// few steps do not make up for.
const PACKED_STEPS: f64 = 6.0;
/// The same of workers with one slice: a step has less data to the instructions that decode its values.
const PACKED_STEPS_NARROW: f64 = 8.0;
/// Bytes of `B` below which such workers are limited by their instructions, not by what they gather.
const PACKED_B_BYTES_NARROW: u64 = 4 << 20;

/// The form in which records hold the values of tiles, and why.
pub(crate) fn packs_values(asked: TileValues, packing: Packing) -> (Form, String) {
    let Packing { entries, steps, workers, narrow, b_bytes } = packing;
    let per_step = real(entries) / real(steps.max(1));
    let per_worker = real(steps) / f64::from(workers.max(1));
    let least_steps = if narrow { PACKED_STEPS_NARROW } else { PACKED_STEPS };
    match asked {
        TileValues::Dense => (Form::Dense, "as asked".to_owned()),
        TileValues::Packed => (Form::Packed, "as asked".to_owned()),
        TileValues::Auto if per_step > PACKED_ENTRIES => {
            (Form::Dense, format!("{per_step:.1} entries a step, more than {PACKED_ENTRIES}"))
        }
        TileValues::Auto if per_worker < least_steps => {
            (Form::Dense, format!("{per_worker:.1} steps a warp, fewer than {least_steps}"))
        }
        TileValues::Auto if narrow && b_bytes < PACKED_B_BYTES_NARROW => {
            (Form::Dense, "B is small and its rows are narrow: instructions limit, not bytes".to_owned())
        }
        TileValues::Auto => {
            (Form::Packed, format!("{per_step:.1} entries a step, {per_worker:.1} steps a warp"))
        }
    }
}

/// The algorithm for a matrix of so many entries in a precision that Tensor Cores multiply, and why.
///
/// On an H200 the tile stream is ahead of row-split, or within a few per cent, on every matrix tried: a gathered row of `B` is
/// used once for each row of the window that wants it, 8 short rows are worked on at a time, and long ones are
/// balanced by construction. Row-split is left with what has no tiles or would not survive them.
///
/// `non_finite` counts the values that are infinite or not a number.
pub(crate) fn algorithm(entries: u64, non_finite: u64) -> (Algorithm, String) {
    if entries == 0 {
        return (Algorithm::RowSplit, "the matrix has no entries".to_owned());
    }
    if non_finite > 0 {
        let why = format!(
            "{non_finite} values are not finite in the precision: tiles would compute every window that holds one again"
        );
        return (Algorithm::RowSplit, why);
    }
    // How many rows share a gathered one, the report says where it counts the gathers.
    let why = "a gathered row of B serves all rows of a window, and windows are dealt out evenly";
    (Algorithm::TileStream, why.to_owned())
}

#[cfg(test)]
mod tests {

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
        let wide = Packing { entries: 480, steps: 10, workers: 1, narrow: false, b_bytes: 1 };
        let narrow = Packing { entries: 80, narrow: true, workers: 10, steps: 80, b_bytes: 4 << 20 };
        let form = |packing| packs_values(TileValues::Auto, packing).0;
        assert_eq!(form(wide), Form::Packed);
        assert_eq!(form(Packing { entries: 481, ..wide }), Form::Dense);
        assert_eq!(form(Packing { workers: 2, ..wide }), Form::Dense, "5 steps each");
        assert_eq!(form(narrow), Form::Packed);
        assert_eq!(form(Packing { steps: 79, ..narrow }), Form::Dense);
        assert_eq!(form(Packing { b_bytes: (4 << 20) - 1, ..narrow }), Form::Dense);
        assert_eq!(form(Packing { entries: 0, steps: 0, ..wide }), Form::Dense);
        assert_eq!(packs_values(TileValues::Dense, wide).0, Form::Dense);
        assert_eq!(packs_values(TileValues::Packed, Packing { entries: 1280, ..wide }).0, Form::Packed);
        let why = packs_values(TileValues::Auto, Packing { entries: 165, ..wide }).1;
        assert_eq!(why, "16.5 entries a step, 10.0 steps a warp");
    }

    #[test]
    fn few_steps_are_divided_into_narrow_slices() {
        let widest =
            |n, windows, steps| widest_for_few_steps(demand(Dtype::F16, n, true, 0.0), windows, steps, 100);
        assert_eq!(widest(128, 25, 499), 64);
        assert_eq!(widest(128, 25, 500), u32::MAX, "5 steps each");
        assert_eq!(widest(128, 24, 499), u32::MAX, "fewer windows than teams");
        assert_eq!(widest(64, 25, 499), u32::MAX, "narrow by itself");
        assert_eq!(widest(256, 25, 499), u32::MAX, "two wide slices");
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
        assert_eq!(algorithm(64, 0).0, Algorithm::TileStream);
        assert_eq!(algorithm(64, 1).0, Algorithm::RowSplit, "values that are not finite");
        assert_eq!(algorithm(0, 0).0, Algorithm::RowSplit);
    }
}
