//! Panels of rows of sampled products, on CUDA cores in f32. Their kernel is [`windrow_kernels::sddmm::SddmmPanels`].

use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::panels::PositionRecordsParams;
use windrow_kernels::sddmm::{Sampled, SddmmPanelsParams};
use windrow_kernels::{Entry, Variant};

use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError, SddmmError};
use crate::num::{narrow, wide};
use crate::panels::pieces::{Cut, Places, pieces_without_sums};
use crate::panels::positions::{position_panels, records};
use crate::panels::{NoPanels, Panels};
use crate::plan::{ArraySize, MAX_INDEX, push, start};
use crate::predict::PanelCounts;
use crate::spmm::{DevicePanels, WrittenPanels, read_array};

/// Columns of the inner dimension at a time, for each of which there is a kernel; the last goes on with the next.
const SLICES: [u32; 5] = [16, 32, 64, 128, 256];

/// The slice of so long an inner dimension.
pub(crate) fn slice_of(inner: u64) -> u32 {
    SLICES.into_iter().find(|&slice| inner <= u64::from(slice)).unwrap_or(SLICES[SLICES.len() - 1])
}

/// Panels and their pieces, before upload.
#[derive(Default)]
pub(super) struct LaidOutPanels {
    panels: Panels,
    /// `[panel, begin, end, _]` of those that have entries.
    pieces: Vec<[u32; 4]>,
}

impl LaidOutPanels {
    /// The panels of a pattern, cut for a device and for so long an inner dimension.
    pub(super) fn of(a: &Pattern, device: &Device, inner: usize) -> Result<Self, SddmmError> {
        let panels = position_panels(a).map_err(|error| match error {
            NoPanels::OutOfMemory(error) => SddmmError::from(error),
            NoPanels::TooLarge(found) => {
                let (what, remedy) = ("words of the records of panels", "split the pattern by rows");
                PlanError::TooLarge { what, found, limit: MAX_INDEX, remedy }.into()
            }
        })?;
        let pieces = pieces_of(&panels, device, inner)?;
        Ok(Self { panels, pieces })
    }

    pub(super) fn counts(&self) -> PanelArrays {
        PanelArrays::of(&self.panels, &self.pieces, [self.panels.names.len(), self.panels.record_words()])
    }

    /// The part of a plan, if there are entries.
    pub(super) fn upload(&self, device: &Device) -> Result<Option<PanelsPart>, SddmmError> {
        if self.pieces.is_empty() {
            return Ok(None);
        }
        Ok(Some(PanelsPart {
            pieces: DeviceBuffer::named(device, &self.pieces, "pieces")?,
            rows: DeviceBuffer::named(device, &self.panels.rows, "rows")?,
            names: DeviceBuffer::named(device, &self.panels.names, "names")?,
            records: DeviceBuffer::named(device, &records(&self.panels)?, "records")?,
            kernels: PanelsPart::kernels()?,
        }))
    }
}

/// The pieces of panels on a device, for so long an inner dimension.
fn pieces_of(panels: &Panels, device: &Device, inner: usize) -> Result<Vec<[u32; 4]>, OutOfMemory> {
    let columns = narrow(inner.min(1 << 20));
    pieces_without_sums(panels, Cut::Places(Places::of(device.multiprocessors(), columns, 1)))
}

/// Panels that kernels lay out, and their pieces, before there is memory for the records.
pub(super) struct PanelsThere {
    made: DevicePanels<PositionRecordsParams>,
    pieces: Vec<[u32; 4]>,
}

impl PanelsThere {
    pub(super) fn of(
        made: DevicePanels<PositionRecordsParams>,
        device: &Device,
        inner: usize,
    ) -> Result<Self, OutOfMemory> {
        let pieces = pieces_of(&made.panels, device, inner)?;
        Ok(Self { made, pieces })
    }

    pub(super) fn counts(&self) -> PanelArrays {
        let made = &self.made;
        PanelArrays::of(&made.panels, &self.pieces, [made.names.len(), made.record_words])
    }

    /// The part of a plan of a pattern with entries.
    pub(super) fn upload(self, device: &Device) -> Result<PanelsPart, DeviceError> {
        let pieces = DeviceBuffer::named(device, &self.pieces, "pieces")?;
        let WrittenPanels { rows, names, records } = self.made.written()?;
        Ok(PanelsPart { pieces, rows, names, records, kernels: PanelsPart::kernels()? })
    }
}

/// How much panels have, before there is memory for them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PanelArrays {
    pieces: usize,
    bundles: usize,
    names: usize,
    records: usize,
    pub(super) counts: PanelCounts,
}

impl PanelArrays {
    /// Of panels with so many words of names and of records, wherever these are.
    fn of(panels: &Panels, pieces: &[[u32; 4]], [names, records]: [usize; 2]) -> Self {
        Self { pieces: pieces.len(), bundles: panels.rows.len(), names, records, counts: panels.counts }
    }

    pub(super) fn push_sizes(&self, sizes: &mut Vec<ArraySize>) {
        if self.pieces > 0 {
            push(sizes, "pieces", 16 * wide(self.pieces));
            push(sizes, "rows", 16 * wide(self.bundles));
            push(sizes, "names", 4 * wide(self.names));
            push(sizes, "records", 4 * wide(self.records));
        }
    }
}

/// Panels in device memory.
pub(super) struct PanelsPart {
    pieces: DeviceBuffer<[u32; 4]>,
    rows: DeviceBuffer<[u32; 4]>,
    names: DeviceBuffer<u32>,
    records: DeviceBuffer<u32>,
    /// One for each of [`SLICES`], then the one for rows of any alignment.
    kernels: [&'static Entry; 6],
}

impl PanelsPart {
    fn kernels() -> Result<[&'static Entry; 6], DeviceError> {
        let entry = |slice, vectors| {
            let variant = Variant::SddmmPanels { slice, vectors };
            windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "sddmm_panels" })
        };
        let mut kernels = [entry(256, false)?; 6];
        for (place, slice) in kernels.iter_mut().zip(SLICES) {
            *place = entry(slice, true)?;
        }
        Ok(kernels)
    }

    /// The kernel for so long an inner dimension; those that read vectors take whole ones.
    pub(super) fn kernel(&self, inner: u64, vectors: bool) -> &'static Entry {
        let takes = |slice: &u32| vectors && inner.is_multiple_of(4) && *slice == slice_of(inner);
        self.kernels[SLICES.iter().position(takes).unwrap_or(SLICES.len())]
    }

    /// Queues the part of a product.
    ///
    /// # Safety
    /// The operands that `sampled` names are live memory until the work is done, of the pattern's sizes, and aligned to
    /// vectors if `vectors`; nobody else writes the result.
    pub(super) unsafe fn launch(
        &self,
        queue: &dyn Queue,
        sampled: Sampled,
        vectors: bool,
    ) -> Result<(), DeviceError> {
        let params = SddmmPanelsParams {
            sampled,
            pieces: self.pieces.pointer(),
            rows: self.rows.pointer().cast(),
            names: self.names.pointer(),
            records: self.records.pointer().cast(),
        };
        let entry = self.kernel(u64::from(sampled.inner), vectors);
        // SAFETY: the arrays were made of a valid CSR by `position_panels` and `Pieces`, which keep the obligations,
        // and belong to the plan, which frees them after the machine's work; the kernel is the one for this inner
        // dimension; the operands are the caller's promise.
        unsafe { start(queue, entry, wide(self.pieces.len()), 1, &params) }
    }

    pub(super) fn read_arrays(&self) -> Result<[(&'static str, Vec<u8>); 4], DeviceError> {
        Ok([
            read_array("pieces", &self.pieces)?,
            read_array("rows", &self.rows)?,
            read_array("names", &self.names)?,
            read_array("records", &self.records)?,
        ])
    }
}
