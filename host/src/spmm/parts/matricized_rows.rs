//! The algorithm [`MatricizedRows`](crate::Algorithm::MatricizedRows): CSR as it is, rows dealt out to warps. Its
//! kernel is [`windrow_kernels::matricized_rows`].

use rayon::prelude::*;
use windrow_formats::memory::try_par_collect;
use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::matricized_rows::{APART, KEEPS, MatricizedRowsParams, ROW_WARPS, WARPS_LOG2_AT};
use windrow_kernels::{Entry, NO_ROW, Variant};
use windrow_preprocess::balance::{NO_SLOT, RowWarps, WarpShare, row_warps};
use windrow_simt::GlobalPtr;

use super::read_array;
use crate::device::{ArrayMemory, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::options::Determinism;
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, push};
use crate::spmm::layout::Context;
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots,
};
use crate::spmm::sums::wide_first;

/// Blocks that a multiprocessor has room for, by their registers.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 3;

/// The whole matrix, its rows dealt out to warps.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
) -> Result<LaidOut<'a>, OutOfMemory> {
    let a = context.a;
    let mut dealt = row_warps(a.row_offsets())?;
    if context.options.determinism == Determinism::Fast {
        dealt.share_slots()?;
    }
    let layout = MatricizedLayout { warps: records(&dealt)?, col_indices: a.col_indices() };
    let facts = LayoutFacts {
        scalar_rows: wide(a.rows()),
        scalar_entries: wide(a.nnz()),
        split: wide(dealt.split_rows.len()),
        split_rows: wide(dealt.split_rows.len()),
        mma_count: dealt.mma_count(wide(context.options.width)),
        ..LayoutFacts::default()
    };
    let slot_rows = u64::from(dealt.slots);
    let cut = CutRows { rows: wide_first(dealt.split_rows)?, slot_rows, ..CutRows::default() };
    Ok(LaidOut::one(layout, cut, facts))
}

/// What the warps of a plan do, before upload.
struct MatricizedLayout<'a> {
    /// A record for each warp, whole blocks.
    warps: Vec<[u32; 4]>,
    col_indices: &'a [u32],
}

impl Layout for MatricizedLayout<'_> {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "warps", 16 * wide(self.warps.len()));
        push(sizes, "col_indices", 4 * wide(self.col_indices.len()));
        push(sizes, "values", 2 * wide(self.col_indices.len()));
    }

    fn placement(&self) -> Placement {
        Placement::InOrder(self.col_indices.len())
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        Ok(Box::new(MatricizedPart {
            warps: memory.array(&self.warps, "warps")?,
            col_indices: memory.array(self.col_indices, "col_indices")?,
            values: memory.array(values.bits()?.bytes(), "values")?,
            blocks: BLOCKS_PER_MULTIPROCESSOR * memory.device().multiprocessors().max(1),
        }))
    }
}

/// What kernels read of the shares: blocks of eight, of which the last is filled with warps that have nothing to do.
fn records(dealt: &RowWarps) -> Result<Vec<[u32; 4]>, OutOfMemory> {
    let absent = WarpShare { row: NO_ROW, slot: NO_SLOT, first: 0, entries: 0, warps: 1, warp: 0 };
    let count = dealt.warps.len().next_multiple_of(ROW_WARPS as usize);
    let record = |at: usize| {
        let share = dealt.warps.get(at).copied().unwrap_or(absent);
        // Rows with more warps come first.
        let of_block = dealt.warps[at - at % ROW_WARPS as usize].warps;
        let apart = if of_block == 1 { APART } else { 0 };
        let (target, keeps) = match share.slot {
            NO_SLOT => (share.row, 0),
            slot => (slot, KEEPS),
        };
        let place = share.warp | share.warps.ilog2() << WARPS_LOG2_AT | apart | keeps;
        [target, share.first, share.entries, place]
    };
    try_par_collect((0..count).into_par_iter().map(record), "warps")
}

/// The arrays in device memory.
struct MatricizedPart {
    warps: DeviceBuffer<[u32; 4]>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
    /// Blocks that the device holds, of one slice.
    blocks: u32,
}

impl Part for MatricizedPart {
    fn name(&self) -> &'static str {
        "matricized-rows"
    }

    fn entry(&self, Operation { vectors, column_major, .. }: Operation) -> Option<&'static Entry> {
        windrow_kernels::entry(Variant::MatricizedRows { column_major, vectors: vectors && !column_major })
    }

    fn on_tensor_cores(&self) -> bool {
        true
    }

    fn takes_column_major(&self) -> bool {
        true
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        let empty = self.col_indices.is_empty();
        let params = MatricizedRowsParams {
            dense: operands.dense,
            warps: self.warps.pointer(),
            col_indices: if empty { GlobalPtr::NULL } else { self.col_indices.pointer() },
            values: if empty { GlobalPtr::NULL } else { self.values.pointer().cast() },
            count: narrow(self.warps.len() / ROW_WARPS as usize),
            reserved: 0,
        };
        // SAFETY: the arrays were made of a valid CSR matrix by `row_warps`, which keeps the obligations, and belong
        // to the plan, which frees them after the machine's work; the dense operands are the caller's promise, `ldb`
        // going from column to column where the entry is one for column-major operands.
        unsafe { stream.start(entry, u64::from(params.count.min(self.blocks)), params.dense.n(), &params) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.values.copy_from_slice(values.bytes())
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        ValueSlots::InOrder { out: self.values.pointer().cast(), count: self.col_indices.len() }
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            read_array("warps", &self.warps)?,
            read_array("col_indices", &self.col_indices)?,
            read_array("values", &self.values)?,
        ])
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
        let dealt = row_warps(&offsets).unwrap();
        let records = records(&dealt).unwrap();
        assert_eq!(records.len(), 24);
        assert!(records[..16].iter().all(|record| record[3] & APART == 0));
        assert!(records[16..].iter().all(|record| record[3] & APART != 0));
        let last = dealt.warps.len();
        assert!(records[last..].iter().all(|record| (record[0], record[2]) == (NO_ROW, 0)) && last < 24);
        assert_eq!(records[0], [1, 3, 40, 3 << WARPS_LOG2_AT]);
        assert_eq!(records[9], [2, 43, 20, 1 | 2 << WARPS_LOG2_AT]);
        // A row that is cut.
        let cut = super::records(&row_warps(&[0, 500]).unwrap()).unwrap();
        assert_eq!(cut[0], [0, 0, 256, KEEPS | 3 << WARPS_LOG2_AT]);
        assert_eq!(cut[15], [1, 256, 244, KEEPS | 7 | 3 << WARPS_LOG2_AT]);
        assert!(super::records(&row_warps(&[0]).unwrap()).unwrap().is_empty());
    }
}
