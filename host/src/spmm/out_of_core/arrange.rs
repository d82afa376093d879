//! How a product goes through memory that does not hold its operands.

use crate::error::PlanError;
use crate::num::{index, wide};
use crate::plan::{ArraySize, check_memory, push};

/// Blocks under way at a time: one comes, one is multiplied, the result of one goes, and one waits, so that none of the
/// three has to.
pub(super) const PIPES: usize = 4;
/// Arrays of a pipe: a block of `A`, one of `C`, and a workspace.
const PIPE_ARRAYS: u64 = 3 * PIPES as u64;
/// Bytes of one of them, at most: at the rate of the bus some 0.6 ms, against which a launch is nothing.
const MOST_UNIT: u64 = 32 << 20;
/// Bytes of one of them, at least.
const LEAST_UNIT: u64 = 4 << 10;
/// What share of the limit one of them is, where that is less: all twelve leave `B` seven tenths.
const UNIT_SHARE: u64 = 40;
/// Columns of a slice are a multiple of this, if there are as many.
const SLICE_STEP: usize = 8;
/// A row of a slice has a multiple of so many bytes, the first that it has as many of: what warps read together, what
/// the copy engine takes at a time.
const ROW_STEPS: [u64; 2] = [256, 64];
/// Rows of fewer bytes are taken to cost more a byte on the device, those of half as many a quarter more: a guess.
/// Rows of 256 and of 1024 bytes were measured, and cost the same.
const WIDE_ROW_BYTES: f64 = 256.0;
/// Bytes of a piece of `B` that the host brings into order while the one before it is on its way.
const PIECE_BYTES: u64 = 16 << 20;
/// Bytes between rows in device memory are a multiple of this.
const ROW_ALIGN: u64 = 16;

/// What the bus carries in a second, each way, while it carries as much the other: PCI Express 5.0 with sixteen lanes,
/// measured between an H200 and page-locked memory; one way alone 55 GB.
pub(super) const BUS_RATE: f64 = 49e9;
/// Rows that lie apart are copied at that rate from so many bytes on; shorter ones take as long.
const FULL_ROW_BYTES: f64 = 160.0;
/// What a block costs the host, in seconds: a guess.
const BLOCK_SECONDS: f64 = 2e-5;
/// What a second pass over `A` costs on the device, in bytes a second: its memory's rate.
const DEVICE_RATE: f64 = 3e12;

/// Bytes of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) rows: u64,
    pub(super) cols: u64,
    pub(super) width: usize,
    /// An element of `B`, as which those of `C` are counted, and a sum, of which `C` has no larger ones.
    pub(super) element_bytes: u64,
    pub(super) sum_bytes: u64,
    /// `A` on the device.
    pub(super) a_bytes: u64,
    /// What a row of it takes at most, laid out as a block of its own.
    pub(super) longest_row: u64,
    /// What each block has on the device whether it stays there or not, all together.
    pub(super) kept_bytes: u64,
    /// How long the product takes on the device, if all of it is there.
    pub(super) seconds: f64,
}

/// How a product goes through device memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrangement {
    /// Columns of a slice of `B`, all but the last.
    pub(super) slice: usize,
    /// Slices of `B` on the device: one, or one that is multiplied and one that comes.
    pub(super) buffers: u64,
    /// Bytes of each array of a pipe.
    pub(super) unit: u64,
    /// Bytes of a piece of `B` that the host brings into order at a time, if a row has no more.
    pub(super) piece: u64,
    /// Bytes for blocks of `A` that stay on the device.
    pub(super) resident_bytes: u64,
    /// How long a product takes, as predicted.
    pub(super) seconds: f64,
}

/// Bytes from row to row of so many columns in device memory.
pub(super) fn pitch(columns: usize, element_bytes: u64) -> u64 {
    (wide(columns) * element_bytes).next_multiple_of(ROW_ALIGN)
}

impl Sizes {
    /// Slices of a product.
    pub(super) fn slices(&self, arrangement: &Arrangement) -> u64 {
        wide(self.width.div_ceil(arrangement.slice)).max(1)
    }

    /// Bytes of so many rows of a dense operand.
    pub(super) fn dense_bytes(&self, rows: u64) -> u64 {
        (rows * self.element_bytes).saturating_mul(wide(self.width))
    }

    /// The arrangement that is predicted to be quickest.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if none fits.
    pub(super) fn arrange(&self, limit: u64) -> Result<Arrangement, PlanError> {
        let unit = (limit / UNIT_SHARE).clamp(LEAST_UNIT, MOST_UNIT).max(self.longest_row);
        let mut best: Option<Arrangement> = None;
        let mut last = None;
        let steps = ROW_STEPS.map(|bytes| index(bytes / self.element_bytes));
        for slices in 1..=self.width.max(1).div_ceil(SLICE_STEP) {
            let columns = self.width.div_ceil(slices);
            let step = steps.into_iter().find(|&step| columns >= step).unwrap_or(SLICE_STEP);
            let slice = match slices {
                1 => self.width.max(1),
                _ => columns.next_multiple_of(step).min(self.width),
            };
            if last.replace(slice) == Some(slice) {
                continue;
            }
            for buffers in 1..=if slices == 1 { 1 } else { 2 } {
                let found = self.with(slice, buffers, unit, limit);
                best = match (best, found) {
                    (Some(best), Some(found)) if found.seconds < best.seconds => Some(found),
                    (None, found) => found,
                    (best, _) => best,
                };
            }
        }
        if let Some(best) = best {
            return Ok(best);
        }
        // The least that there is, and what is missing for it.
        let slice = self.width.clamp(1, SLICE_STEP);
        let least =
            Arrangement { slice, buffers: 1, unit, piece: PIECE_BYTES, resident_bytes: 0, seconds: 0.0 };
        let remedy = "raise the limit, or split the matrix by rows or columns and multiply the pieces";
        check_memory(&self.arrays(&least), Some(limit), remedy)?;
        Ok(least)
    }

    /// The arrays of an arrangement on the device.
    pub(super) fn arrays(&self, arrangement: &Arrangement) -> Vec<ArraySize> {
        let Arrangement { slice, buffers, unit, resident_bytes, .. } = *arrangement;
        let of_pipes = unit * wide(PIPES);
        let mut arrays = Vec::new();
        push(&mut arrays, "slices of B", buffers * self.cols * pitch(slice, self.element_bytes));
        push(&mut arrays, "blocks of A under way", of_pipes);
        push(&mut arrays, "blocks of C under way", of_pipes);
        push(&mut arrays, "workspaces", of_pipes);
        push(&mut arrays, "lists of blocks", self.kept_bytes);
        push(&mut arrays, "resident blocks of A", resident_bytes);
        arrays
    }

    /// The arrangement with such slices, if it fits.
    fn with(&self, slice: usize, buffers: u64, unit: u64, limit: u64) -> Option<Arrangement> {
        if pitch(slice, self.sum_bytes) > unit {
            return None;
        }
        let b = (buffers * self.cols).checked_mul(pitch(slice, self.element_bytes))?;
        let needed = (PIPE_ARRAYS * unit).checked_add(b)?.checked_add(self.kept_bytes)?;
        let resident_bytes = limit.checked_sub(needed)?;
        let slices = self.width.div_ceil(slice).max(1) as f64;
        let bytes_of_slice = (wide(slice) * self.element_bytes) as f64;
        let rate =
            if slices > 1.0 { BUS_RATE * (bytes_of_slice / FULL_ROW_BYTES).min(1.0) } else { BUS_RATE };
        let [b_seconds, c_seconds] = [self.cols, self.rows].map(|rows| self.dense_bytes(rows) as f64 / rate);
        // The last blocks of a slice are the first of the next.
        let streamed = self.a_bytes.saturating_sub(resident_bytes).saturating_sub(wide(PIPES) * unit);
        let a_seconds = slices * streamed as f64 / BUS_RATE;
        let blocks = (self.a_bytes / unit).max(self.rows * pitch(slice, self.sum_bytes) / unit) as f64;
        let narrow = (WIDE_ROW_BYTES / bytes_of_slice - 1.0).max(0.0);
        let on_device = self.seconds * (1.0 + 0.25 * narrow)
            + (slices - 1.0) * self.a_bytes as f64 / DEVICE_RATE
            + slices * blocks * BLOCK_SECONDS;
        // Of B, what nothing goes on beside, and what comes beside products.
        let (before, beside) = match buffers {
            1 => (b_seconds, 0.0),
            _ => (b_seconds / slices, b_seconds * (1.0 - 1.0 / slices)),
        };
        let seconds = before + on_device.max(a_seconds + beside).max(c_seconds);
        Some(Arrangement { slice, buffers, unit, piece: PIECE_BYTES, resident_bytes, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of 1 M rows and 100 M entries, in f16.
    const GRAPH: Sizes = Sizes {
        rows: 1_000_000,
        cols: 1_000_000,
        width: 128,
        element_bytes: 2,
        sum_bytes: 4,
        a_bytes: 616_000_000,
        longest_row: 10_000,
        kept_bytes: 0,
        seconds: 6e-3,
    };

    fn total(sizes: &Sizes, found: &Arrangement) -> u64 {
        sizes.arrays(found).iter().map(|array| array.bytes).sum()
    }

    #[test]
    fn what_fits_is_within_the_limit() {
        for limit in [100 << 20, 300 << 20, 1 << 30, 4 << 30, 100 << 30] {
            let found = GRAPH.arrange(limit).unwrap();
            assert!(total(&GRAPH, &found) <= limit, "{limit}: {found:?}");
            assert!(found.slice <= 128 && (found.slice == 128 || found.slice.is_multiple_of(8)), "{found:?}");
        }
    }

    #[test]
    fn more_memory_is_never_slower() {
        let limits = (0..40).map(|step| (100_u64 << 20) + step * (60 << 20));
        let times: Vec<f64> = limits.map(|limit| GRAPH.arrange(limit).unwrap().seconds).collect();
        // Pipes grow with the limit, so that a little more of it may leave a little less for A.
        assert!(times.windows(2).all(|pair| pair[1] <= pair[0] * 1.05), "{times:?}");
        assert!(times[0] > 2.0 * times[39]);
    }

    #[test]
    fn all_of_a_stays_where_there_is_room() {
        let wide = Sizes { width: 512, seconds: 24e-3, ..GRAPH };
        let found = wide.arrange(4 << 30).unwrap();
        assert!(found.resident_bytes >= GRAPH.a_bytes);
        // What comes and goes is B and C: some of B comes beside the product.
        assert!(found.buffers == 2 && found.slice < 512, "{found:?}");
        let narrow = GRAPH.arrange(160 << 20).unwrap();
        assert!(narrow.resident_bytes < GRAPH.a_bytes / 4 && narrow.slice < 64, "{narrow:?}");
    }

    #[test]
    fn a_product_on_the_device_that_outlasts_the_bus_hides_b() {
        let slow = Sizes { seconds: 1.0, width: 512, ..GRAPH };
        let found = slow.arrange(2 << 30).unwrap();
        // Rows of 256 bytes are as good as longer ones, and a quarter of B comes before anything is multiplied.
        assert_eq!((found.buffers, found.slice), (2, 128));
        assert!(found.seconds < 1.0 + 12e-3, "{found:?}");
    }

    #[test]
    fn too_little_is_an_error_with_what_is_missing() {
        let error = GRAPH.arrange(20 << 20).unwrap_err();
        let PlanError::MemoryLimit { needed, limit, largest, .. } = error else { panic!("{error}") };
        assert_eq!((limit, largest), (20 << 20, "slices of B"));
        assert!(needed > limit);
        let long = Sizes { longest_row: 1 << 30, ..GRAPH };
        assert!(matches!(long.arrange(2 << 30), Err(PlanError::MemoryLimit { .. })));
        let empty = Sizes { rows: 0, cols: 0, width: 0, a_bytes: 0, longest_row: 0, ..GRAPH };
        assert_eq!(empty.arrange(1 << 20).unwrap().slice, 1);
    }
}
