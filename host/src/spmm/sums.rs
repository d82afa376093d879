//! What was cut, and how its partial sums are added.

use windrow_kernels::combine::Combine;
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{narrow, wide};

/// What was cut, whose partial sums are added, and the workspace that holds them.
pub(super) struct SplitPart {
    /// `[row, first_slot, count, stride]`: the rows of cut windows, then cut rows.
    rows: DeviceBuffer<[u32; 4]>,
    /// Those of cut windows.
    pub(super) windows: SplitRows,
    /// The others.
    pub(super) cut_rows: SplitRows,
    /// Rows of `capacity` f32.
    pub(super) partial: DeviceBuffer<f32>,
}

impl SplitPart {
    /// Lists of [`wide_first`], and `workspace` elements.
    pub(super) fn upload(
        device: &Device,
        windows: &[[u32; 4]],
        cut_rows: &[[u32; 4]],
        workspace: usize,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            rows: DeviceBuffer::named(device, &[windows, cut_rows].concat(), "split_rows")?,
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
    pub(super) fn list(&self, rows: SplitRows) -> GlobalPtr<[u32; 4]> {
        self.rows.pointer().at(rows.first)
    }

    /// Zeroes the workspace, after the work queued before.
    pub(super) fn clear(&self) -> Result<(), DeviceError> {
        self.partial.clear()
    }
}

/// Rows whose partial sums one launch adds, those with many partials first.
#[derive(Debug, Clone, Copy)]
pub(super) struct SplitRows {
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
    /// Columns at a time, a multiple of 8.
    pub(super) columns: u32,
}

impl WideC {
    /// Bytes of the two arrays for so many rows of `C`.
    pub(super) fn bytes(rows: usize, columns: u32) -> [u64; 2] {
        [4 * wide(rows) * u64::from(columns), 16 * wide(rows)]
    }

    pub(super) fn alloc(device: &Device, rows: usize, columns: u32) -> Result<Self, DeviceError> {
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
pub(super) fn wide_first(mut rows: Vec<[u32; 4]>) -> Vec<[u32; 4]> {
    rows.sort_by_key(|row| !is_wide(row));
    rows
}
