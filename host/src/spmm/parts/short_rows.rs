//! The algorithm [`ShortRows`](crate::Algorithm::ShortRows): rows grouped by length, without a row pointer, and the
//! rows without entries. Its kernel is [`windrow_kernels::short_rows`].

use windrow_formats::memory::{make_room, try_collect, try_copy};
use windrow_formats::{Bucket, Csr, OutOfMemory, Residual, Value};
use windrow_kernels::short_rows::ShortRowsParams;
use windrow_kernels::{Dtype, ENTRIES, Entry, Variant};
use windrow_preprocess::balance::short_row_blocks;

use super::read_array;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, division, push, short_row_groups};
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::part::{DenseOperands, Layout, Operation, Part, Placement, ValueSlots};
use crate::spmm::select::{Demand, reads_whole_lines, slicing_cost};

/// Rows of equal length, and rows without entries, before upload.
pub(in crate::spmm) struct ShortRowsLayout {
    /// `[first_row, row_count, first_entry, len]`.
    blocks: Vec<[u32; 4]>,
    rows: Vec<u32>,
    col_indices: Vec<u32>,
    /// CSR entry of each value.
    sources: Vec<u32>,
    dtype: Dtype,
}

impl ShortRowsLayout {
    /// The rows `empty`, as a bucket of length 0, before those of `residual`, whose entries are the CSR entries
    /// `sources`.
    pub(in crate::spmm) fn new<V: Value>(
        context: &Context<'_, Csr<V>>,
        empty: Vec<u32>,
        residual: &Residual<V>,
        sources: &[u64],
    ) -> Result<Self, OutOfMemory> {
        let rows_per_block = entry_for(context).map_or(1, short_row_groups);
        let first = narrow(empty.len());
        let mut buckets = vec![Bucket { len: 0, first_row: 0, rows: first, first_entry: 0 }];
        let shifted = |bucket: &Bucket| Bucket { first_row: bucket.first_row + first, ..*bucket };
        buckets.extend(residual.buckets().iter().map(shifted));
        let mut rows = empty;
        make_room(&mut rows, residual.rows().len(), "short_rows")?;
        rows.extend_from_slice(residual.rows());
        let mut blocks = short_row_blocks(&buckets, rows_per_block)?;
        // Blocks of different lengths that lie close together in the matrix read the same rows of `B`: side by
        // side, these are read from memory once.
        blocks.sort_unstable_by_key(|block| rows[block[0] as usize]);
        let sources = sources.iter().map(|&entry| narrow(index(entry)));
        Ok(Self {
            blocks,
            rows,
            col_indices: try_copy(residual.col_indices(), "short_row_cols")?,
            sources: try_collect(sources, "sources of short rows")?,
            dtype: context.options.precision.dtype(),
        })
    }

    /// Blocks of the launch.
    pub(in crate::spmm) fn blocks(&self) -> u64 {
        wide(self.blocks.len())
    }
}

/// The entry for an aligned product.
pub(in crate::spmm) fn entry_for<A: Matrix>(context: &Context<'_, A>) -> Option<&'static Entry> {
    select(context.demand())
}

/// The entry with the slicing that wastes least.
fn select(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors } = demand;
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

impl Layout for ShortRowsLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "short_row_blocks", 16 * wide(self.blocks.len()));
        push(sizes, "short_rows", 4 * wide(self.rows.len()));
        push(sizes, "short_row_cols", 4 * wide(self.col_indices.len()));
        push(sizes, "short_row_values", wide(self.sources.len()) * u64::from(self.dtype.bytes()));
    }

    fn host_bytes(&self) -> u64 {
        4 * wide(self.sources.len())
    }

    fn placement(&self) -> Placement {
        Placement::Gathered(self.sources.len())
    }

    fn upload(
        self: Box<Self>,
        device: &Device,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let values = values.bits()?.gather(&self.sources)?;
        Ok(Box::new(ShortRowsPart {
            blocks: DeviceBuffer::named(device, &self.blocks, "short_row_blocks")?,
            rows: DeviceBuffer::named(device, &self.rows, "short_rows")?,
            col_indices: DeviceBuffer::named(device, &self.col_indices, "short_row_cols")?,
            values: DeviceBuffer::named(device, values.bytes(), "short_row_values")?,
            sources: self.sources,
            dtype: self.dtype,
        }))
    }
}

/// Rows of equal length, and rows without entries, in device memory.
struct ShortRowsPart {
    blocks: DeviceBuffer<[u32; 4]>,
    rows: DeviceBuffer<u32>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
    sources: Vec<u32>,
    dtype: Dtype,
}

impl Part for ShortRowsPart {
    fn name(&self) -> &'static str {
        "short-rows"
    }

    fn entry(&self, operation: Operation) -> Option<&'static Entry> {
        select(Demand::of(self.dtype, operation))
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        let params = ShortRowsParams {
            dense: operands.dense,
            blocks: self.blocks.pointer(),
            rows: self.rows.pointer(),
            col_indices: self.col_indices.pointer(),
            values: self.values.pointer().cast(),
        };
        // SAFETY: the blocks were made of a residual's buckets by `short_row_blocks`, which keeps the obligations; the
        // arrays belong to the plan, which frees them after the machine's work; the dense operands are the caller's
        // promise.
        unsafe { stream.start(entry, wide(self.blocks.len()), params.dense.n(), &params) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.values.copy_from_slice(values.gather(&self.sources)?.bytes())
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        ValueSlots::Gathered { out: self.values.pointer().cast(), sources: &self.sources }
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            read_array("short_row_blocks", &self.blocks)?,
            read_array("short_rows", &self.rows)?,
            read_array("short_row_cols", &self.col_indices)?,
            read_array("short_row_values", &self.values)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_entry_for_every_demand() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32, Dtype::F32] {
            for n in [1, 7, 31, 33, 64, 130, 257, 4097, 1 << 20] {
                for vectors in [true, false] {
                    let entry = select(Demand { dtype, n, vectors }).unwrap();
                    assert!(entry.name.contains(if vectors { "_l" } else { "_elements" }), "{}", entry.name);
                }
            }
        }
    }
}
