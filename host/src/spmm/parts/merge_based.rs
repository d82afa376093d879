//! Products without a plan, by merge-based SpMM: the one launcher here that is no part of a plan. Its kernels are
//! [`windrow_kernels::merge_based`].

use windrow_formats::Value;
use windrow_kernels::merge_based::{MOST_SPAN, MergeBasedParams};
use windrow_kernels::{Dtype, Entry, Variant};

use crate::csr::DeviceCsr;
use crate::device::{DeviceBuffer, Queue, SharedBlock};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::options::Precision;
use crate::plan::{MAX_BLOCK_COLUMNS, start};
use crate::spmm::operands::{Operands, Workspace};
use crate::spmm::select::{Demand, least_waste};

/// Fewest items of a block: with fewer, the search for them takes longer than what is done with them.
const LEAST_SPAN: u64 = 128;
/// Blocks that a multiprocessor is given, where there are enough items: somewhat more than run there at once. Of 4, 8,
/// 16, 32 and 64 it was the quickest on an H200 for ten products in the geometric mean.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 8;

/// A product without a plan: its matrix, and a workspace.
pub(in crate::spmm) struct Once {
    params: MergeBasedParams,
    dtype: Dtype,
    precision: Precision,
    faults: DeviceBuffer<u32>,
    partial: DeviceBuffer<u8>,
    _carried: DeviceBuffer<[u32; 2]>,
}

impl Once {
    pub(in crate::spmm) fn of<V: Value>(
        a: &DeviceCsr<'_, V>,
        operands: Operands,
        precision: Precision,
    ) -> Result<Self, DeviceError> {
        let device = a.device();
        let items = wide(a.rows()) + wide(a.nnz());
        let wanted = BLOCKS_PER_MULTIPROCESSOR * u64::from(device.multiprocessors().max(1));
        let span = items.div_ceil(wanted).clamp(LEAST_SPAN, u64::from(MOST_SPAN));
        let blocks = index(items.div_ceil(span));
        let columns = operands.n.min(MAX_BLOCK_COLUMNS).next_multiple_of(4) as usize;
        let dtype = product_dtype(precision);
        let partial_bytes = 2 * blocks * columns * dtype.sum_bytes() as usize;
        let sizes = [8 * blocks, size_of::<u32>(), partial_bytes];
        let mut memory = SharedBlock::new(device, sizes.map(wide), "the workspace of a product")?;
        let carried = memory.part(device, blocks, "rows between blocks")?;
        let faults = memory.part(device, 1, "a count of faults")?;
        let partial = memory.part(device, partial_bytes, "partial sums")?;
        let mut params = a.merge_based_params();
        (params.carried, params.faults) = (carried.pointer(), faults.pointer());
        (params.span, params.blocks) = (narrow(index(span)), narrow(blocks));
        Ok(Self { params, dtype, precision, faults, partial, _carried: carried })
    }

    /// Queues the product, in blocks of columns.
    ///
    /// # Safety
    /// `operands` are live memory of the device until the work is done: `b` is k × n, `c` m × n, of the types that
    /// were checked; nothing else touches `c` meanwhile, nothing writes `b`.
    pub(in crate::spmm) unsafe fn queue(
        &self,
        queue: &dyn Queue,
        operands: Operands,
    ) -> Result<(), DeviceError> {
        if self.params.read.rows == 0 {
            return Ok(());
        }
        self.faults.clear_in(queue)?;
        let sums = entry_of(Variant::CarriedRows { sum_bytes: self.dtype.sum_bytes() })?;
        let mut first = 0;
        while first < operands.n {
            let n = MAX_BLOCK_COLUMNS.min(operands.n - first);
            let workspace = Workspace {
                partial: self.partial.pointer().cast(),
                columns: n.next_multiple_of(4),
                accumulate: false,
            };
            let block = operands.columns(first, n, self.precision, workspace);
            let vectors = block.are_vectors(self.precision);
            let dtype = self.dtype;
            let product = select(Demand { dtype, n, vectors }).ok_or(NO_ENTRY)?;
            let mut params = MergeBasedParams { dense: block.dense, ..self.params };
            params.dense.out.m = self.params.read.rows;
            // SAFETY: the arrays of the matrix have the lengths that were checked when it was made; the workspace has
            // two rows of so many columns for each block, and lives until the work is done; the operands are the
            // caller's promise.
            unsafe {
                start(queue, product, u64::from(params.blocks), n, &params)?;
                start(queue, sums, u64::from(params.blocks), n, &params)?;
            }
            first += n;
        }
        Ok(())
    }
}

const NO_ENTRY: DeviceError = DeviceError::MissingEntry { name: "a kernel of products without a plan" };

fn entry_of(variant: Variant) -> Result<&'static Entry, DeviceError> {
    windrow_kernels::entry(variant).ok_or(NO_ENTRY)
}

/// Does what [`internal::kernel_without_plan`](crate::internal::kernel_without_plan) promises.
pub(crate) fn kernel(precision: Precision, n: u32, vectors: bool) -> Option<&'static Entry> {
    select(Demand { dtype: product_dtype(precision), n, vectors })
}

/// The type of `B` as the kernels take it: Tensor Cores have no part in this, and nothing is rounded for them.
fn product_dtype(precision: Precision) -> Dtype {
    match precision.dtype() {
        Dtype::Tf32 => Dtype::F32,
        other => other,
    }
}

/// The entry with the slicing that wastes least.
fn select(Demand { dtype, n, vectors }: Demand) -> Option<&'static Entry> {
    least_waste(dtype, n, |entry| {
        matches!(entry.variant,
        Variant::MergeBased { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_follows_width_and_alignment() {
        for (dtype, n, vectors, name) in [
            (Dtype::F32, 128, true, "spmm_merge_based_f32_l32"),
            (Dtype::F32, 64, true, "spmm_merge_based_f32_l16"),
            (Dtype::F32, 4, true, "spmm_merge_based_f32_l8"),
            (Dtype::F16, 32, true, "spmm_merge_based_f16_l4"),
            (Dtype::Bf16, 512, true, "spmm_merge_based_bf16_l32"),
            (Dtype::F64, 128, true, "spmm_merge_based_f64_l32"),
            (Dtype::F32, 1, false, "spmm_merge_based_f32_elements_l1"),
            (Dtype::F64, 7, false, "spmm_merge_based_f64_elements_l8"),
            (Dtype::F16, 4097, false, "spmm_merge_based_f16_elements_l32"),
        ] {
            assert_eq!(select(Demand { dtype, n, vectors }).unwrap().name, name, "{dtype:?}, n = {n}");
        }
    }
}
