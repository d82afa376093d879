//! A product of a matrix on the device without a plan.

use windrow_formats::Value;
use windrow_kernels::merge_based::{MOST_SPAN, MergeBasedParams};
use windrow_kernels::{Dtype, Entry, Variant};

use super::builder::SpmmBuilder;
use super::fit::Fit;
use super::operands::{Operands, Workspace};
use super::select::{Demand, least_waste};
use crate::activation::Epilogue;
use crate::csr::DeviceCsr;
use crate::device::{DeviceBuffer, Queue, SharedBlock, Stream};
use crate::element::Element;
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, wide};
use crate::options::{Algorithm, Precision};
use crate::plan::{MAX_BLOCK_COLUMNS, MAX_INDEX, On, start};
use crate::view::{DeviceView, DeviceViewMut};

/// Fewest items of a block: with fewer, the search for them takes longer than what is done with them.
const LEAST_SPAN: u64 = 128;
/// Blocks that a multiprocessor is given, where there are enough items.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 16;

impl<V: Value> SpmmBuilder<'_, DeviceCsr<'_, V>> {
    /// `C ← α·A·B + β·C` once, without a plan: for a matrix that is new with every product.
    ///
    /// On a GPU two kernels are queued, which read the matrix as it is, 32 or 64 bits, whatever the type of its values;
    /// nothing is copied, nobody waits, and of memory there is a workspace, less than two sums for each column of `C`
    /// and 128 entries or rows. The result is the same in every run. Values are not rounded to the precision: they are
    /// multiplied as they are given, in the type of the sums, f64 ones rounded to that.
    ///
    /// Columns need neither ascend nor be distinct. A matrix that is wrong otherwise, whose offsets decrease or end
    /// elsewhere than at the last entry, or a column of which is beyond the matrix, **makes all of `C` NaN**; nothing
    /// else is read or written, and nobody is told, because nobody waits. [`DeviceCsr::checked`] tells what is wrong.
    ///
    /// With an algorithm, an order or a memory limit among the options, of a matrix with 2³² − 1024 rows and entries or
    /// more, on the CPU, and for values that kernels do not read, this is [`build_on`](Self::build_on) for one run, and
    /// [`run_into_on`](super::SpmmPlan::run_into_on), with their demands, their rounding of values and their errors.
    ///
    /// After *Design Principles for Sparse Matrix Multiplication on the GPU* (Yang, Buluç and Owens, Euro-Par 2018).
    ///
    /// # Shapes
    /// - `b`: k × n, of the precision of the options (for tf32: f32);
    /// - `c`: m × n, f32, f16 or bf16; f64 in that precision; not read if β = 0.
    ///
    /// # Errors
    /// - those of [`run_into_on`](super::SpmmPlan::run_into_on) for operands that do not fit;
    /// - [`DeviceError::Captured`] on a stream that is captured: make a plan before the capture;
    /// - [`PlanError::Device`](crate::PlanError::Device), [`DeviceError::OutOfMemory`] for the workspace.
    ///
    /// # Examples
    /// ```
    /// use windrow::{DenseRef, Device, DeviceBuffer, DeviceCsr, DeviceMatrix, Spmm};
    ///
    /// let device = Device::best()?;
    /// let offsets = DeviceBuffer::from_slice(&device, &[0i64, 2, 3])?;
    /// let columns = DeviceBuffer::from_slice(&device, &[0i64, 2, 1])?;
    /// let values = DeviceBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0])?;
    /// let a = DeviceCsr::new(2, 3, &offsets, &columns, &values)?;
    /// let b = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32, 10.0, 100.0], 3, 1)?)?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, 2, 1)?;
    /// Spmm::builder(&a).run_once_on(&device.stream(), 1.0, &b, 0.0, &mut c)?;
    /// assert_eq!(c.download()?, [201.0, 30.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::too_many_arguments, reason = "those of `SpmmPlan::run_into_on`")]
    pub fn run_once_on<'b, B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        alpha: B::Sum,
        b: impl Into<DeviceView<'b, B>>,
        beta: B::Sum,
        c: impl Into<DeviceViewMut<'b, C>>,
    ) -> Result<(), SpmmError> {
        let (a, b, c) = (self.a, b.into(), c.into());
        let run = Epilogue::linear(alpha, beta);
        let (device, precision) = (a.device(), self.options.precision);
        let fit = Fit { device, precision, rows: a.rows(), cols: a.cols() };
        fit.check_views(on, &run, (b, (b.rows(), b.cols())), &c)?;
        if !self.needs_no_plan() {
            let plan = self.clone().width(b.cols()).expected_runs(1).build_on(on)?;
            return plan.run_into_on(on, alpha, b, beta, c);
        }
        let on = On::of(on, device, true)?;
        if on.is_captured()? {
            let (what, remedy) =
                ("the workspace of a product without a plan", "make a plan before the capture");
            return Err(DeviceError::Captured { what, remedy }.into());
        }
        let operands = Operands::of(&run, b, b.cols(), &c)?;
        let once = Once::of(a, operands, precision)?;
        // SAFETY: devices, types, shapes and overlap were checked; the views and the matrix live as long as this call,
        // and what is queued ends before their memory is freed, as those promised who made them.
        on.run([], |queue| unsafe { once.queue(queue, operands) })?;
        Ok(())
    }

    /// Whether the kernels that make nothing beforehand do what the options ask for.
    fn needs_no_plan(&self) -> bool {
        let options = &self.options;
        let a = self.a;
        let is_asked = options.algorithm != Algorithm::Auto
            || self.order.is_some()
            || options.reorder.is_some()
            || options.memory_limit.is_some();
        let fits = wide(a.rows()).saturating_add(wide(a.nnz())) <= MAX_INDEX;
        a.device().machine().is_some() && !is_asked && fits && a.is_read_by_kernels()
    }
}

/// A product without a plan: its matrix, and a workspace.
struct Once {
    params: MergeBasedParams,
    dtype: Dtype,
    precision: Precision,
    faults: DeviceBuffer<u32>,
    partial: DeviceBuffer<u8>,
    _carried: DeviceBuffer<[u32; 2]>,
}

impl Once {
    fn of<V: Value>(
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
    unsafe fn queue(&self, queue: &dyn Queue, operands: Operands) -> Result<(), DeviceError> {
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

/// What [`internal::kernel_without_plan`](crate::internal::kernel_without_plan) promises.
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
