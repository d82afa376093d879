//! Softmax over rows on a machine that runs kernels.

use std::cmp::Reverse;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_with_room;
use windrow_kernels::row_softmax::{MOST_SHORT, RowSoftmaxGradParams, RowSoftmaxParams, SHORT_STEP};
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{narrow, wide};
use crate::plan::start;
use crate::spmm::read_array;

/// The rows with entries, each in one of two parts.
pub(super) struct GpuRows {
    parts: Vec<Part>,
}

/// Rows for one pair of entries.
struct Part {
    rows: DeviceBuffer<[u32; 2]>,
    /// Found once: looking for them takes the CPU longer than preparing the launch.
    forward: Option<&'static Entry>,
    backward: Option<&'static Entry>,
}

/// First position and end of each row with entries: of those for a block each, and of those for eight lanes each.
///
/// Long rows come in falling length, so that the last blocks to begin are not the longest. Short rows come in falling
/// number of steps, so that the rows of a warp take about as many, else in the order of the matrix.
pub(super) fn divide(row_offsets: &[u64]) -> Result<[Vec<[u32; 2]>; 2], OutOfMemory> {
    let len = |&[begin, end]: &[u32; 2]| end - begin;
    let ends = |pair: &[u64]| [pair[0], pair[1]].map(|at| narrow(crate::num::index(at)));
    let rows = row_offsets.windows(2).map(ends).filter(|row| len(row) > 0);
    let listed = |is_long: bool| {
        let rows = rows.clone().filter(|row| (len(row) > MOST_SHORT) == is_long);
        let mut list = try_with_room(rows.clone().count(), "rows with entries")?;
        list.extend(rows);
        Ok(list)
    };
    let (mut long, mut short) = (listed(true)?, listed(false)?);
    // Stable sorts would take memory; no two rows begin at one position.
    longest_first(&mut long);
    short.sort_unstable_by_key(|row| (Reverse(len(row).div_ceil(SHORT_STEP)), row[0]));
    Ok([long, short])
}

/// Sorts rows by falling length, those of equal length in the order of the matrix.
pub(super) fn longest_first(rows: &mut [[u32; 2]]) {
    rows.sort_unstable_by_key(|&[begin, end]| (Reverse(end - begin), begin));
}

impl GpuRows {
    /// Divides the rows and uploads them. The caller has compared the number of entries with the kernels' limit.
    pub(super) fn new(row_offsets: &[u64], device: &Device) -> Result<Self, PlanError> {
        let [long, short] = divide(row_offsets)?;
        let long = DeviceBuffer::named(device, &long, "long_rows")?;
        Ok(Self::of_parts(long, DeviceBuffer::named(device, &short, "short_rows")?))
    }

    /// Of rows that are on the device: long ones, and short ones.
    pub(super) fn of_parts(long: DeviceBuffer<[u32; 2]>, short: DeviceBuffer<[u32; 2]>) -> Self {
        let mut parts = Vec::new();
        for (rows, is_long) in [(long, true), (short, false)] {
            if !rows.is_empty() {
                parts.push(Part {
                    rows,
                    forward: windrow_kernels::entry(Variant::RowSoftmax { long: is_long }),
                    backward: windrow_kernels::entry(Variant::RowSoftmaxGrad { long: is_long }),
                });
            }
        }
        Self { parts }
    }

    /// The rows of each part, read back.
    pub(super) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        self.parts.iter().map(|part| read_array("rows", &part.rows)).collect()
    }

    /// All kernels that it has.
    pub(super) fn entries(&self) -> impl Iterator<Item = &'static Entry> {
        self.parts.iter().flat_map(|part| [part.forward, part.backward]).flatten()
    }

    /// Queues `out ← softmax(scale·scores)`, with another factor on the device unless that is null.
    ///
    /// # Safety
    /// The factor is null, or live memory of the plan's device until the work is done that nothing writes meanwhile.
    /// `scores` and `out` are live memory of the plan's device until the work is done, an f32 for each entry; nothing
    /// else touches `out` meanwhile, nothing writes `scores`. They may be the same.
    pub(super) unsafe fn forward(
        &self,
        queue: &dyn Queue,
        (scale, factor): (f32, GlobalPtr<f32>),
        scores: GlobalPtr<f32>,
        out: GlobalPtr<f32>,
    ) -> Result<(), DeviceError> {
        for part in &self.parts {
            let entry = part.forward.ok_or(DeviceError::MissingEntry { name: "row_softmax" })?;
            let (rows, row_count) = (part.rows.pointer(), narrow(part.rows.len()));
            let params = RowSoftmaxParams { rows, scores, out, factor, row_count, scale };
            // SAFETY: the rows were taken from the offsets of a valid CSR, none is in both parts, and they belong to
            // the plan, which frees them after the machine's work; the other arrays are the caller's promise.
            unsafe { start(queue, entry, wide(part.rows.len()), 1, &params)? };
        }
        Ok(())
    }

    /// Queues `out ← scale · p · (g − Σ p·g)` for `[p, g]`.
    ///
    /// # Safety
    /// As for [`forward`](Self::forward), but that `out` overlaps neither input.
    pub(super) unsafe fn backward(
        &self,
        queue: &dyn Queue,
        (scale, factor): (f32, GlobalPtr<f32>),
        [probabilities, gradient]: [GlobalPtr<f32>; 2],
        out: GlobalPtr<f32>,
    ) -> Result<(), DeviceError> {
        for part in &self.parts {
            let entry = part.backward.ok_or(DeviceError::MissingEntry { name: "row_softmax_grad" })?;
            let (rows, row_count) = (part.rows.pointer(), narrow(part.rows.len()));
            let params =
                RowSoftmaxGradParams { rows, probabilities, gradient, out, factor, row_count, scale };
            // SAFETY: the arrays have an element for each position of the rows and live until the work is done.
            unsafe { start(queue, entry, wide(part.rows.len()), 1, &params)? };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_by_length_and_empty_ones_left_out() {
        let lengths = [3u64, 0, 513, 512, 64, 65, 0, 2000, 1];
        let mut row_offsets = vec![0];
        row_offsets.extend(lengths.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        }));
        let [long, short] = divide(&row_offsets).unwrap();
        let lens = |rows: &[[u32; 2]]| rows.iter().map(|[begin, end]| end - begin).collect::<Vec<_>>();
        assert_eq!(lens(&long), [2000, 513]);
        assert_eq!(lens(&short), [512, 65, 3, 64, 1], "eight steps, two, one");
        assert_eq!(short[4], [3157, 3158]);
        assert_eq!(divide(&[0]), Ok([vec![], vec![]]));
    }

    #[test]
    fn both_parts_have_entries() {
        for long in [false, true] {
            for variant in [Variant::RowSoftmax { long }, Variant::RowSoftmaxGrad { long }] {
                assert!(windrow_kernels::entry(variant).is_some(), "{variant:?}");
            }
        }
    }
}
