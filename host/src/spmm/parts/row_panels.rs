//! The algorithm [`RowPanels`](crate::Algorithm::RowPanels): panels of rows, whose rows of `B` go through shared
//! memory. Its kernel is [`windrow_kernels::row_panels`].

use windrow_formats::{Csr, Value};
use windrow_kernels::row_panels::RowPanelsParams;
use windrow_kernels::{Entry, Variant};

use super::read_array;
use crate::device::{ArrayMemory, DeviceBuffer};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};
use crate::options::Determinism;
use crate::panels::pieces::{BLOCKS_PER_MULTIPROCESSOR, Cut, PIECES_PER_MULTIPROCESSOR, Pieces};
use crate::panels::values::ValuePanels;
use crate::panels::{NoPanels, Panels};
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, MAX_INDEX, push};
use crate::spmm::decide::too_large;
use crate::spmm::layout::Context;
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots,
};
use crate::spmm::sums::wide_first;

/// Columns of a slice, for each of which there is a kernel.
const SLICES: [u32; 4] = [32, 64, 128, 256];
/// The slice of the kernel for rows of any alignment.
const ANY_ALIGNMENT: u32 = 128;
/// Chunks that a block needs at least for wide slices: with fewer, narrow ones leave fewer pieces to add up.
const LEAST_CHUNKS: u64 = 8;

/// The whole matrix in panels.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
) -> Result<LaidOut<'a>, SpmmError> {
    let (a, options) = (context.a, context.options);
    let made = ValuePanels::of(a.pattern()).map_err(|error| match error {
        NoPanels::OutOfMemory(error) => SpmmError::from(error),
        NoPanels::TooLarge(words) => too_large("words of the records of panels", words, MAX_INDEX),
    })?;
    let multiprocessors = u64::from(context.device.multiprocessors().max(1));
    let blocks = BLOCKS_PER_MULTIPROCESSOR * multiprocessors;
    let columns = narrow(options.width.min(1 << 20));
    let asked = options.row_division.slice_columns;
    let widest = asked.unwrap_or_else(|| widest_slice(wide(made.panels.work.len()), columns, blocks));
    let slices = u64::from(columns.div_ceil(slice(columns, widest)).max(1));
    let cut = match options.row_division.piece_entries {
        Some(most) => Cut::Entries(most),
        None => Cut::Blocks((PIECES_PER_MULTIPROCESSOR * multiprocessors).div_ceil(slices)),
    };
    let pieces = Pieces::of(&made.panels, cut, options.determinism == Determinism::Fast)?;
    if pieces.slots > MAX_INDEX {
        return Err(too_large("rows of sums of pieces", pieces.slots, MAX_INDEX));
    }
    let facts = LayoutFacts {
        scalar_rows: wide(a.rows()),
        scalar_entries: wide(a.nnz()),
        segments: wide(pieces.pieces.len()),
        panels: made.panels.counts,
        split: pieces.split,
        split_rows: wide(pieces.split_rows.len()),
        ..LayoutFacts::default()
    };
    let cut = CutRows { rows: wide_first(pieces.split_rows)?, slot_rows: pieces.slots, ..CutRows::default() };
    Ok(LaidOut::one(PanelsLayout { made, pieces: pieces.pieces, widest }, cut, facts))
}

/// The widest slice that pays for so many chunks, on so many blocks.
fn widest_slice(chunks: u64, columns: u32, blocks: u64) -> u32 {
    let pays = |slice: &&u32| chunks * u64::from(columns.div_ceil(**slice)) >= LEAST_CHUNKS * blocks;
    // One slice alone of the widest took up to 1.08 of the time of two.
    let candidates = if columns > SLICES[3] { &SLICES[2..] } else { &SLICES[2..3] };
    candidates.iter().rev().find(pays).copied().unwrap_or(SLICES[1])
}

/// The slice of a product of so many columns: all of them, or the widest.
fn slice(columns: u32, widest: u32) -> u32 {
    SLICES.into_iter().find(|&slice| slice >= columns.min(widest)).unwrap_or(SLICES[3])
}

/// Panels and their pieces, before upload.
struct PanelsLayout {
    made: ValuePanels,
    pieces: Vec<[u32; 4]>,
    widest: u32,
}

impl Layout for PanelsLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        let Panels { rows, names, .. } = &self.made.panels;
        push(sizes, "pieces", 16 * wide(self.pieces.len()));
        push(sizes, "rows", 16 * wide(rows.len()));
        push(sizes, "names", 4 * wide(names.len()));
        push(sizes, "records", 4 * wide(self.made.record_words()));
    }

    fn host_bytes(&self) -> u64 {
        self.made.host_bytes()
    }

    fn placement(&self) -> Placement {
        Placement::Scattered
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let Panels { rows, names, .. } = &self.made.panels;
        Ok(Box::new(PanelsPart {
            pieces: memory.array(&self.pieces, "pieces")?,
            rows: memory.array(rows, "rows")?,
            names: memory.array(names, "names")?,
            records: memory.array(&self.made.records_with(values.bits()?)?, "records")?,
            widest: self.widest,
            made: self.made.for_values(),
        }))
    }
}

/// The arrays in device memory.
struct PanelsPart {
    pieces: DeviceBuffer<[u32; 4]>,
    rows: DeviceBuffer<[u32; 4]>,
    names: DeviceBuffer<u32>,
    records: DeviceBuffer<u32>,
    /// Columns of the widest slice.
    widest: u32,
    /// What lays out new values.
    made: ValuePanels,
}

impl Part for PanelsPart {
    fn name(&self) -> &'static str {
        "row-panels"
    }

    fn entry(&self, Operation { n, vectors, .. }: Operation) -> Option<&'static Entry> {
        let slice = if vectors { slice(n, self.widest) } else { ANY_ALIGNMENT };
        windrow_kernels::entry(Variant::RowPanels { slice, vectors })
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        let params = RowPanelsParams {
            dense: operands.dense,
            pieces: self.pieces.pointer(),
            rows: self.rows.pointer(),
            names: self.names.pointer(),
            records: self.records.pointer().cast(),
        };
        // SAFETY: the arrays were made of a valid CSR matrix by `Panels` and `Pieces`, which keep the obligations, and
        // belong to the plan, which frees them after the machine's work; the dense operands and the workspace are the
        // caller's promise.
        unsafe { stream.start(entry, wide(self.pieces.len()), params.dense.n(), &params) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.records.copy_from_slice(&self.made.records_with(values)?)
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        ValueSlots::Scattered {
            out: self.records.pointer(),
            elements: wide(self.made.record_words()),
            places: Box::new(|_, _| self.made.places()),
        }
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            read_array("pieces", &self.pieces)?,
            read_array("rows", &self.rows)?,
            read_array("names", &self.names)?,
            read_array("records", &self.records)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_as_wide_as_the_product_and_narrower_where_chunks_are_few() {
        assert_eq!(
            [1, 32, 33, 64, 65, 128, 129, 500].map(|n| slice(n, 256)),
            [32, 32, 64, 64, 128, 128, 256, 256]
        );
        assert_eq!([33, 128, 500].map(|n| slice(n, 64)), [64; 3]);
        assert_eq!([33, 500].map(|n| slice(n, 32)), [32; 2]);
        assert_eq!(slice(500, 4096), 256);
        assert_eq!([256, 257, 512].map(|n| widest_slice(10_000, n, 396)), [128, 256, 256]);
        assert_eq!(widest_slice(1_000, 512, 396), 128);
        assert_eq!(widest_slice(1_000, 128, 396), 64);
    }
}
