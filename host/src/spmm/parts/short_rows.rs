//! The algorithm [`ShortRows`](crate::Algorithm::ShortRows): rows grouped by length, without a row pointer, and the
//! rows without entries. Its kernel is [`windrow_kernels::short_rows`].

use std::sync::Arc;

use windrow_formats::memory::{make_room, try_collect, try_copy};
use windrow_formats::{Bucket, Csr, OutOfMemory, Residual, Value};
use windrow_kernels::short_rows::ShortRowsParams;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_preprocess::balance::short_row_blocks;

use super::read_array;
use crate::device::{ArrayMemory, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, RoundedValues, push, short_row_groups};
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::part::{DenseOperands, Layout, Operation, Part, Placement, ValueSlots};
use crate::spmm::preprocess::{RestSources, ShortRows};
use crate::spmm::select::{Demand, least_waste};

/// Rows of equal length, and rows without entries, before upload.
pub(in crate::spmm) struct ShortRowsLayout {
    arrays: Arrays,
    dtype: Dtype,
}

/// Where the arrays are.
enum Arrays {
    OnHost(HostRows),
    OnDevice(ShortRows),
}

/// Arrays on the host.
struct HostRows {
    /// `[first_row, row_count, first_entry, len]`.
    blocks: Vec<[u32; 4]>,
    rows: Vec<u32>,
    col_indices: Vec<u32>,
    /// CSR entry of each value.
    sources: Vec<u32>,
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
        let made = HostRows {
            blocks,
            rows,
            col_indices: try_copy(residual.col_indices(), "short_row_cols")?,
            sources: try_collect(sources, "sources of short rows")?,
        };
        Ok(Self { arrays: Arrays::OnHost(made), dtype: context.options.precision.dtype() })
    }

    /// Rows that kernels have divided from others.
    pub(in crate::spmm) fn on_device<A: Matrix>(context: &Context<'_, A>, made: ShortRows) -> Self {
        Self { arrays: Arrays::OnDevice(made), dtype: context.options.precision.dtype() }
    }

    /// Blocks of the launch.
    pub(in crate::spmm) fn blocks(&self) -> u64 {
        wide(match &self.arrays {
            Arrays::OnHost(made) => made.blocks.len(),
            Arrays::OnDevice(made) => made.blocks.len(),
        })
    }

    /// Numbers of rows and of entries.
    fn counts(&self) -> (usize, usize) {
        match &self.arrays {
            Arrays::OnHost(made) => (made.rows.len(), made.sources.len()),
            Arrays::OnDevice(made) => (made.rows.len(), made.entries.len()),
        }
    }
}

/// The entry for an aligned product.
pub(in crate::spmm) fn entry_for<A: Matrix>(context: &Context<'_, A>) -> Option<&'static Entry> {
    select(context.demand())
}

/// The entry with the slicing that wastes least.
fn select(demand: Demand) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors } = demand;
    least_waste(dtype, n, |entry| {
        matches!(entry.variant,
        Variant::ShortRows { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    })
}

impl Layout for ShortRowsLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        let (rows, entries) = self.counts();
        push(sizes, "short_row_blocks", 16 * self.blocks());
        push(sizes, "short_rows", 4 * wide(rows));
        push(sizes, "short_row_cols", 4 * wide(entries));
        push(sizes, "short_row_values", wide(entries) * u64::from(self.dtype.bytes()));
        if let Arrays::OnDevice(made) = &self.arrays {
            push(sizes, "short_row_sources", made.entries.kept_bytes());
        }
    }

    fn host_bytes(&self) -> u64 {
        match &self.arrays {
            Arrays::OnHost(made) => 4 * wide(made.sources.len()),
            Arrays::OnDevice(_) => 0,
        }
    }

    fn placement(&self) -> Placement {
        match &self.arrays {
            Arrays::OnHost(made) => Placement::Gathered(made.sources.len()),
            Arrays::OnDevice(_) => Placement::OnDevice,
        }
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let dtype = self.dtype;
        Ok(Box::new(match self.arrays {
            Arrays::OnHost(made) => {
                let values = values.bits()?.gather(&made.sources)?;
                ShortRowsPart {
                    blocks: memory.array(&made.blocks, "short_row_blocks")?,
                    rows: memory.array(&made.rows, "short_rows")?,
                    col_indices: memory.array(&made.col_indices, "short_row_cols")?,
                    values: memory.array(values.bytes(), "short_row_values")?,
                    sources: ShortSources::OnHost(made.sources),
                    dtype,
                }
            }
            Arrays::OnDevice(ShortRows { blocks, rows, entries }) => {
                let (col_indices, values, sources) = entries.with_values(values.unplaced()?)?;
                let sources = ShortSources::OnDevice(sources);
                ShortRowsPart { blocks, rows, col_indices, values, sources, dtype }
            }
        }))
    }
}

/// CSR entry of each value.
enum ShortSources {
    OnHost(Vec<u32>),
    OnDevice(RestSources),
}

/// Rows of equal length, and rows without entries, in device memory.
struct ShortRowsPart {
    blocks: DeviceBuffer<[u32; 4]>,
    rows: DeviceBuffer<u32>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
    sources: ShortSources,
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
        match &self.sources {
            ShortSources::OnHost(sources) => self.values.copy_from_slice(values.gather(sources)?.bytes()),
            ShortSources::OnDevice(sources) => sources.replace(values.unplaced(), &self.values),
        }
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        match &self.sources {
            ShortSources::OnHost(sources) => {
                ValueSlots::Gathered { out: self.values.pointer().cast(), sources }
            }
            ShortSources::OnDevice(_) => ValueSlots::OnDevice,
        }
    }

    unsafe fn replace_from(&self, queue: &Arc<dyn Queue>, values: RoundedValues) -> Result<(), DeviceError> {
        match &self.sources {
            // SAFETY: the caller's promise: values of all entries, live until the work is done.
            ShortSources::OnDevice(sources) => unsafe { sources.replace_from(queue, values, &self.values) },
            ShortSources::OnHost(_) => Ok(()),
        }
    }

    fn replacing(&self, dtype: Dtype) -> Option<&'static Entry> {
        let own = matches!(self.sources, ShortSources::OnDevice(_));
        own.then(|| windrow_kernels::entry(Variant::GatherValues { value_bytes: dtype.bytes() })).flatten()
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
