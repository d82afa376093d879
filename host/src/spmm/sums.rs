//! What was cut, and how its partial sums are added.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_concat, try_with_room};
use windrow_kernels::Entry;
use windrow_kernels::combine::{Combine, CombineParams};
use windrow_kernels::dense::Dense;
use windrow_simt::GlobalPtr;

use super::gpu::PlanShape;
use super::part::{CutList, CutRows};
use crate::device::{ArrayMemory, Device, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::options::Precision;
use crate::plan::{ArraySize, WorkspaceMemory, push, start};

/// What was cut, whose partial sums are added.
pub(crate) struct SplitPart {
    /// `[row, first_slot, count, stride]`: the rows of cut windows, then cut rows.
    rows: DeviceBuffer<[u32; 4]>,
    /// Those of cut windows.
    pub(super) windows: SplitRows,
    /// Those of rows outside of tiles.
    pub(crate) cut_rows: SplitRows,
    /// Bytes of a workspace, which holds rows of `capacity` sums.
    pub(super) workspace_bytes: usize,
}

impl SplitPart {
    /// Lists of [`wide_first`], for workspaces of so many columns of sums.
    pub(super) fn upload(
        memory: ArrayMemory<'_>,
        CutRows { windows, rows: cut_rows, slot_rows, on_device }: CutRows,
        columns: u32,
        precision: Precision,
    ) -> Result<Self, DeviceError> {
        let sum_bytes = u64::from(precision.dtype().sum_bytes());
        let workspace = index(slot_rows * u64::from(columns) * sum_bytes);
        if let Some(CutList { rows, wide }) = on_device {
            let first = windows.len();
            let cut_rows = SplitRows { first: narrow(first), count: narrow(rows.len() - first), wide };
            let windows = SplitRows::of(0, &windows);
            return Ok(Self { rows, windows, cut_rows, workspace_bytes: workspace });
        }
        Ok(Self {
            rows: memory.array(&try_concat(&[&windows, &cut_rows], "split_rows")?, "split_rows")?,
            windows: SplitRows::of(0, &windows),
            cut_rows: SplitRows::of(windows.len(), &cut_rows),
            workspace_bytes: workspace,
        })
    }

    /// The lists of windows and of rows, one array.
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
        queue: &dyn Queue,
        entry: &'static Entry,
        dense: Dense,
        rows: SplitRows,
    ) -> Result<(), DeviceError> {
        let params =
            CombineParams { dense, rows: self.list(rows), row_count: rows.count, wide_count: rows.wide };
        let blocks = Combine::<f32>::blocks(params.row_count, params.wide_count);
        // SAFETY: the caller's promise; the list is that of the plan that these rows were cut for.
        unsafe { start(queue, entry, u64::from(blocks), dense.n(), &params) }
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

/// A stand-in for some columns of `C`, in the type of the sums, for what is done to a sum once only: rounding it where
/// several launches add to it, and giving it a bias and an activation.
pub(super) struct WideC {
    /// Every row of `C`, of `columns` sums.
    pub(super) c: WorkspaceMemory,
    /// `[row, row, 1, 1]`: what makes [`Combine`] take them.
    pub(super) rows: DeviceBuffer<[u32; 4]>,
}

/// A [`WideC`], as launches take it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wide {
    pub(super) c: GlobalPtr<u32>,
    pub(super) rows: GlobalPtr<[u32; 4]>,
    pub(super) row_count: u32,
    pub(super) columns: u32,
}

impl WideC {
    /// Columns of a `C` that are summed at a time: a line of an f16 `B`, for which there is room in any workspace.
    pub(super) const COLUMNS: u32 = 64;

    pub(super) fn parts(&self) -> Wide {
        let (c, rows) = (self.c.pointer(), self.rows.pointer());
        Wide { c, rows, row_count: narrow(self.rows.len()), columns: Self::COLUMNS }
    }

    /// The two arrays for so many rows of `C`.
    pub(super) fn sizes(rows: usize, precision: Precision) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "wide_c", wide(rows) * u64::from(Self::row_bytes(precision)));
        push(&mut sizes, "wide_c_rows", 16 * wide(rows));
        sizes
    }

    fn row_bytes(precision: Precision) -> u32 {
        precision.dtype().sum_bytes() * Self::COLUMNS
    }

    /// Bytes of the sums.
    pub(super) fn sum_bytes(PlanShape { rows, precision, .. }: PlanShape) -> u64 {
        wide(rows) * u64::from(Self::row_bytes(precision))
    }

    /// Bytes that windrow allocated.
    pub(super) fn bytes(&self) -> u64 {
        self.c.owned_bytes() + self.rows.bytes()
    }

    /// The list of so many rows.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn rows(device: &Device, rows: usize) -> Result<DeviceBuffer<[u32; 4]>, DeviceError> {
        let listed = try_collect((0..narrow(rows)).map(|row| [row, row, 1, 1]), "wide_c_rows")?;
        DeviceBuffer::named(device, &listed, "wide_c_rows")
    }

    pub(super) fn alloc(device: &Device, rows: usize, precision: Precision) -> Result<Self, DeviceError> {
        let bytes = rows * Self::row_bytes(precision) as usize;
        Ok(Self { c: WorkspaceMemory::zeroed(device, bytes, "wide_c")?, rows: Self::rows(device, rows)? })
    }
}

/// Whether a split row has so many partials that a block adds them.
fn is_wide(row: &[u32; 4]) -> bool {
    row[2] > Combine::<f32>::NARROW
}

/// The rows to combine, those with many partials in front.
pub(crate) fn wide_first(rows: Vec<[u32; 4]>) -> Result<Vec<[u32; 4]>, OutOfMemory> {
    if rows.is_sorted_by_key(|row| !is_wide(row)) {
        return Ok(rows);
    }
    let mut sorted = try_with_room(rows.len(), "split_rows")?;
    sorted.extend(rows.iter().filter(|row| is_wide(row)));
    sorted.extend(rows.iter().filter(|row| !is_wide(row)));
    Ok(sorted)
}
