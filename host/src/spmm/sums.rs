//! What was cut, and how its partial sums are added.

use windrow_kernels::Entry;
use windrow_kernels::combine::{Combine, CombineParams};
use windrow_kernels::dense::Dense;
use windrow_simt::GlobalPtr;

use super::part::CutRows;
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::start;

/// What was cut, whose partial sums are added, and the workspace that holds them.
pub(crate) struct SplitPart {
    /// `[row, first_slot, count, stride]`: the rows of cut windows, then cut rows.
    rows: DeviceBuffer<[u32; 4]>,
    /// Those of cut windows.
    pub(super) windows: SplitRows,
    /// The others.
    pub(crate) cut_rows: SplitRows,
    /// Rows of `capacity` f32.
    pub(crate) partial: DeviceBuffer<f32>,
}

impl SplitPart {
    /// Lists of [`wide_first`], and a workspace of so many columns.
    pub(super) fn upload(
        device: &Device,
        CutRows { windows, rows: cut_rows, slot_rows }: &CutRows,
        columns: u32,
    ) -> Result<Self, DeviceError> {
        let workspace = index(slot_rows * u64::from(columns));
        Ok(Self {
            rows: DeviceBuffer::named(device, &[windows.as_slice(), cut_rows].concat(), "split_rows")?,
            windows: SplitRows::of(0, windows),
            cut_rows: SplitRows::of(windows.len(), cut_rows),
            // Zeroed once: sums are read four columns at a time, beyond the last that kernels may have written.
            partial: DeviceBuffer::zeroed(device, workspace, "workspace")?,
        })
    }

    /// All lists.
    pub(super) fn rows(&self) -> &DeviceBuffer<[u32; 4]> {
        &self.rows
    }

    /// Where the list of these rows begins.
    fn list(&self, rows: SplitRows) -> GlobalPtr<[u32; 4]> {
        self.rows.pointer().at(rows.first)
    }

    /// Adds up the partial sums of some rows by `entry`, the one of [`Combine`].
    ///
    /// # Safety
    /// The dense operands keep their obligations; the slots of the rows were written earlier in the stream, and so
    /// was what sums are added to.
    pub(crate) unsafe fn launch(
        &self,
        machine: &dyn Machine,
        entry: &'static Entry,
        dense: Dense,
        rows: SplitRows,
    ) -> Result<(), DeviceError> {
        let params =
            CombineParams { dense, rows: self.list(rows), row_count: rows.count, wide_count: rows.wide };
        let blocks = Combine::blocks(params.row_count, params.wide_count);
        // SAFETY: the caller's promise; the list is that of the plan that these rows were cut for.
        unsafe { start(machine, entry, u64::from(blocks), dense.n, &params) }
    }

    /// Zeroes the workspace, after the work queued before.
    pub(crate) fn clear(&self) -> Result<(), DeviceError> {
        self.partial.clear()
    }
}

/// Rows whose partial sums one launch adds, those with many partials first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitRows {
    first: u32,
    pub(super) count: u32,
    /// How many of them have more than [`Combine::NARROW`].
    pub(super) wide: u32,
}

impl SplitRows {
    fn of(first: usize, rows: &[[u32; 4]]) -> Self {
        Self { first: narrow(first), count: narrow(rows.len()), wide: narrow(rows.partition_point(is_wide)) }
    }
}

/// An f32 stand-in for columns of an f16 `C` of which launches add to rows that others wrote: sums are rounded once.
pub(super) struct WideC {
    /// Every row of `C`, of `columns` f32.
    pub(super) c: DeviceBuffer<f32>,
    /// `[row, row, 1, 1]`: what makes [`Combine`] round them.
    pub(super) rows: DeviceBuffer<[u32; 4]>,
    /// Columns at a time.
    pub(super) columns: u32,
}

impl WideC {
    /// Columns of an f16 `C` that are summed in f32 at a time, where that takes more than one launch: a line of an f16
    /// `B`, for which there is room in any workspace.
    const COLUMNS: u32 = 64;

    /// Bytes of the two arrays for so many rows of `C`.
    pub(super) fn bytes(rows: usize) -> [u64; 2] {
        [4 * wide(rows) * u64::from(Self::COLUMNS), 16 * wide(rows)]
    }

    pub(super) fn alloc(device: &Device, rows: usize) -> Result<Self, DeviceError> {
        let columns = Self::COLUMNS;
        let listed: Vec<[u32; 4]> = (0..narrow(rows)).map(|row| [row, row, 1, 1]).collect();
        Ok(Self {
            c: DeviceBuffer::zeroed(device, rows * columns as usize, "wide_c")?,
            rows: DeviceBuffer::named(device, &listed, "wide_c_rows")?,
            columns,
        })
    }
}

/// Whether a split row has so many partials that a block adds them.
fn is_wide(row: &[u32; 4]) -> bool {
    row[2] > Combine::NARROW
}

/// The rows to combine, those with many partials in front.
pub(crate) fn wide_first(mut rows: Vec<[u32; 4]>) -> Vec<[u32; 4]> {
    rows.sort_by_key(|row| !is_wide(row));
    rows
}
