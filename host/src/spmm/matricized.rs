//! The algorithm [`MatricizedRows`](crate::Algorithm::MatricizedRows): CSR as it is, rows dealt out to warps.

use rayon::prelude::*;
use windrow_formats::{Csr, Value};
use windrow_kernels::dense::Dense;
use windrow_kernels::matricized_rows::{APART, KEEPS, MatricizedRowsParams, ROW_WARPS, WARPS_LOG2_AT};
use windrow_kernels::{Entry, NO_ROW, Variant};
use windrow_preprocess::balance::{NO_SLOT, RowWarps, WarpShare, row_warps};
use windrow_simt::GlobalPtr;

use super::build::Draft;
use super::builder::SpmmBuilder;
use super::gpu::start;
use super::layout::HostParts;
use super::parts::push;
use super::report::ArraySize;
use super::sums::wide_first;
use super::values::{Bits, Values};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::options::Determinism;

/// Blocks that a multiprocessor has room for, by their registers.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 3;

/// What the warps of a plan do, before upload.
pub(super) struct MatricizedHost<'a> {
    /// A record for each warp, whole blocks.
    warps: Vec<[u32; 4]>,
    col_indices: &'a [u32],
    /// Rows whose partial sums are added: `[row, first_slot, count, stride]`.
    pub(super) split_rows: Vec<[u32; 4]>,
    pub(super) slots: u64,
    /// MMAs of a product of the plan's width.
    pub(super) mma_count: u64,
}

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// Matricised rows: shares of warps, over the CSR arrays as they are.
    pub(super) fn lay_out_matricized(&self, draft: &mut Draft) -> HostParts<'a> {
        let mut matricized = MatricizedHost::new(self.a, self.width, self.determinism);
        draft.report.mma_count = matricized.mma_count;
        draft.report.split_rows = wide(matricized.split_rows.len());
        draft.report.split = draft.report.split_rows;
        draft.clock.end("balance");
        HostParts {
            split_rows: wide_first(std::mem::take(&mut matricized.split_rows)),
            slot_rows: matricized.slots,
            matricized: Some(matricized),
            ..HostParts::default()
        }
    }
}

impl<'a> MatricizedHost<'a> {
    /// The arrays for products of `width` columns.
    pub(super) fn new<V: Value>(a: &'a Csr<V>, width: usize, determinism: Determinism) -> Self {
        let mut dealt = row_warps(a.row_offsets());
        if determinism == Determinism::Fast {
            dealt.share_slots();
        }
        Self {
            warps: records(&dealt),
            col_indices: a.col_indices(),
            slots: u64::from(dealt.slots),
            mma_count: dealt.mma_count(wide(width)),
            split_rows: dealt.split_rows,
        }
    }

    pub(super) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "warps", 16 * wide(self.warps.len()));
        push(sizes, "col_indices", 4 * wide(self.col_indices.len()));
        push(sizes, "values", 2 * wide(self.col_indices.len()));
    }

    pub(super) fn upload<V: Value>(
        self,
        device: &Device,
        values: &Values<'_, V>,
    ) -> Result<MatricizedPart, DeviceError> {
        Ok(MatricizedPart {
            warps: DeviceBuffer::named(device, &self.warps, "warps")?,
            col_indices: DeviceBuffer::named(device, self.col_indices, "col_indices")?,
            values: DeviceBuffer::named(device, values.bits().bytes(), "values")?,
            blocks: BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors().max(1),
        })
    }
}

/// What kernels read of the shares: blocks of eight, of which the last is filled with warps that have nothing to do.
fn records(dealt: &RowWarps) -> Vec<[u32; 4]> {
    let absent = WarpShare { row: NO_ROW, slot: NO_SLOT, first: 0, entries: 0, warps: 1, warp: 0 };
    let blocks = dealt.warps.par_chunks(ROW_WARPS as usize);
    blocks
        .flat_map_iter(|block| {
            // Rows with more warps come first.
            let apart = if block[0].warps == 1 { APART } else { 0 };
            (0..ROW_WARPS as usize).map(move |at| {
                let share = block.get(at).copied().unwrap_or(absent);
                let (target, keeps) = match share.slot {
                    NO_SLOT => (share.row, 0),
                    slot => (slot, KEEPS),
                };
                let place = share.warp | share.warps.ilog2() << WARPS_LOG2_AT | apart | keeps;
                [target, share.first, share.entries, place]
            })
        })
        .collect()
}

/// The arrays in device memory.
pub(super) struct MatricizedPart {
    warps: DeviceBuffer<[u32; 4]>,
    col_indices: DeviceBuffer<u32>,
    pub(super) values: DeviceBuffer<u8>,
    /// Blocks that the device holds, of one slice.
    blocks: u32,
}

impl MatricizedPart {
    /// The entry for a `B` in one layout or the other, whose rows are aligned to 16 bytes or not.
    pub(super) fn entry(column_major: bool, vectors: bool) -> Option<&'static Entry> {
        windrow_kernels::entry(Variant::MatricizedRows { column_major, vectors: vectors && !column_major })
    }

    /// Entries of the matrix.
    pub(super) fn len(&self) -> usize {
        self.col_indices.len()
    }

    /// Uploads new values.
    pub(super) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.values.copy_from_slice(values.bytes())
    }

    /// Queues the launch.
    ///
    /// # Safety
    /// The dense operands keep their obligations, and `ldb` goes from column to column if the entry is for column-major
    /// operands; the workspace has the slots of [`MatricizedHost::slots`].
    pub(super) unsafe fn launch(
        &self,
        machine: &dyn Machine,
        entry: &'static Entry,
        dense: Dense,
    ) -> Result<(), DeviceError> {
        let params = MatricizedRowsParams {
            dense,
            warps: self.warps.pointer(),
            col_indices: if self.len() == 0 { GlobalPtr::NULL } else { self.col_indices.pointer() },
            values: if self.len() == 0 { GlobalPtr::NULL } else { self.values.pointer().cast() },
            count: narrow(self.warps.len() / ROW_WARPS as usize),
            reserved: 0,
        };
        // SAFETY: the arrays were made of a valid CSR matrix by `row_warps`, which keeps the obligations, and belong to the
        // plan, which frees them after the machine's work; the rest is the caller's promise.
        unsafe { start(machine, entry, u64::from(params.count.min(self.blocks)), dense.n, &params) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_whole_blocks() {
        // Eight warps, four, two, one, then rows apart.
        let lens = [3, 40, 20, 12, 0, 5, 5, 5, 5, 5, 5, 5];
        let offsets = lens.iter().fold(vec![0_u64], |mut offsets, len| {
            offsets.push(offsets[offsets.len() - 1] + len);
            offsets
        });
        let dealt = row_warps(&offsets);
        let records = records(&dealt);
        assert_eq!(records.len(), 24);
        assert!(records[..16].iter().all(|record| record[3] & APART == 0));
        assert!(records[16..].iter().all(|record| record[3] & APART != 0));
        let last = dealt.warps.len();
        assert!(records[last..].iter().all(|record| (record[0], record[2]) == (NO_ROW, 0)) && last < 24);
        assert_eq!(records[0], [1, 3, 40, 3 << WARPS_LOG2_AT]);
        assert_eq!(records[9], [2, 43, 20, 1 | 2 << WARPS_LOG2_AT]);
        // A row that is cut.
        let cut = super::records(&row_warps(&[0, 500]));
        assert_eq!(cut[0], [0, 0, 256, KEEPS | 3 << WARPS_LOG2_AT]);
        assert_eq!(cut[15], [1, 256, 244, KEEPS | 7 | 3 << WARPS_LOG2_AT]);
        assert!(super::records(&row_warps(&[0])).is_empty());
    }
}
