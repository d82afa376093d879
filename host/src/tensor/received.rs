//! The slices of a tensor that is on the device, as MTTKRP divides them: what [`Slices`](super::slices::Slices) are on
//! the host.

use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::csr::{CsrRecord, ExpandRowsParams};
use windrow_kernels::tensors::SliceOffsetsParams;

use super::csf::DeviceCsf3;
use crate::csr::{Known, Received, Wanted};
use crate::device::DeviceBuffer;
use crate::error::PlanError;
use crate::num::{narrow, wide};
use crate::options::Precision;
use crate::plan::On;
use crate::spmm::Scratch;

/// The entries of a tensor in the order of its fibers.
pub(super) struct ReceivedSlices {
    /// The slices of the roots' mode as rows, empty ones too; a column is the index of an entry's fiber.
    pub(super) rows: Received,
    /// Index of each entry's leaf, and zeros behind, as many as there are columns.
    pub(super) leaves: DeviceBuffer<u32>,
}

impl<V: Value> DeviceCsf3<V> {
    /// The slices of fibers that [can be received](crate::DeviceCsr::cannot_be_received), with values rounded.
    pub(super) fn slices(&self, on: &On<'_>, precision: Precision) -> Result<ReceivedSlices, PlanError> {
        // Fibers are windrow's own, and nobody asks how long they are.
        let known = Some(Known { record: CsrRecord::default(), columns_counted: false });
        let wanted =
            Wanted { precision, pattern: false, unpadded: false, columns: false, exceptions: false, known };
        let Received { row_offsets: fiber_offsets, col_indices: leaves, values, dtype, nnz, .. } =
            self.rows.receive(on, wanted)?;
        let (device, facts) = (self.device(), self.facts());
        let [slices, cols, _] = facts.dims;
        let row_offsets = DeviceBuffer::alloc(device, slices + 1, "slice_offsets")?;
        let fibers = DeviceBuffer::zeroed(device, leaves.len(), "fiber_indices")?;
        let of_slices = SliceOffsetsParams {
            root_indices: self.root_indices.pointer(),
            root_offsets: self.root_offsets.pointer(),
            fiber_offsets: fiber_offsets.pointer(),
            out: row_offsets.pointer(),
            roots: narrow(self.roots()),
            slices: narrow(slices),
        };
        let of_entries = ExpandRowsParams {
            offsets: fiber_offsets.pointer(),
            labels: self.fiber_indices.pointer(),
            out: fibers.pointer(),
            rows: narrow(self.fibers()),
            entries: narrow(nnz),
            wide_offsets: 0,
            reserved: 0,
        };
        let scratch = Scratch::new(device, 0)?;
        // SAFETY: the arrays are those of a valid tensor with entries; there is an offset for each slice and one more,
        // and an index for each entry.
        unsafe {
            scratch.launch(Variant::SliceOffsets, wide(slices) + 1, &of_slices)?;
            scratch.launch(Variant::ExpandRows, wide(nnz), &of_entries)?;
        }
        let record = CsrRecord { empty_rows: narrow(slices - self.roots()), ..CsrRecord::default() };
        let rows = Received {
            rows: slices,
            cols,
            nnz,
            dtype,
            row_offsets,
            col_indices: fibers,
            values,
            record,
            unread: None,
        };
        Ok(ReceivedSlices { rows, leaves })
    }
}
