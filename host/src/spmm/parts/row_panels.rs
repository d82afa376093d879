//! The algorithm [`RowPanels`](crate::Algorithm::RowPanels): panels of rows, whose rows of `B` go through shared
//! memory. Its kernel is [`windrow_kernels::row_panels`].

use std::sync::Arc;

use windrow_formats::{Csr, Value};
use windrow_kernels::panels::ValueRecordsParams;
use windrow_kernels::row_panels::RowPanelsParams;
use windrow_kernels::{Dtype, Entry, Variant};

use super::read_array;
use crate::device::{ArrayMemory, DeviceBuffer, Queue};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};
use crate::options::Determinism;
use crate::panels::pieces::{Cut, Pieces, Places};
use crate::panels::values::ValuePanels;
use crate::panels::{NoPanels, Panels};
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, MAX_INDEX, RoundedValues, StageClock, push};
use crate::spmm::decide::too_large;
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, PLACES, Part, Placement, ValueSlots,
};
use crate::spmm::preprocess::{DevicePanels, MOST_PANEL_ITEMS, Place, ValuePlaces, WrittenPanels};
use crate::spmm::sums::wide_first;

/// Columns of a slice, for each of which there is a kernel.
const SLICES: [u32; 4] = [32, 64, 128, 256];
/// The slice of the kernel for rows of any alignment.
const ANY_ALIGNMENT: u32 = 128;
/// Chunks that a multiprocessor needs at least for wide slices: with fewer, narrow ones leave fewer pieces to add up.
const LEAST_CHUNKS: u64 = 24;

/// The whole matrix in panels, laid out on the GPU or on the host.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    clock: &mut StageClock,
) -> Result<LaidOut<'a>, SpmmError> {
    Place::of(context, None, MOST_PANEL_ITEMS).lay_out(
        clock,
        |clock| lay_out_by_kernels(context, clock),
        |clock| {
            let made = ValuePanels::of(context.a.pattern()).map_err(|error| match error {
                NoPanels::OutOfMemory(error) => SpmmError::from(error),
                NoPanels::TooLarge(words) => too_large("words of the records of panels", words, MAX_INDEX),
            })?;
            clock.end("panels");
            cut(context, Made::OnHost(made))
        },
    )
}

/// The whole matrix in panels, laid out on the GPU. None for more words of records than kernels count.
pub(in crate::spmm) fn lay_out_by_kernels<'a, A: Matrix>(
    context: &Context<'_, A>,
    clock: &mut StageClock,
) -> Result<Option<LaidOut<'a>>, SpmmError> {
    let Some(made) = DevicePanels::new(context.device, context.a)? else { return Ok(None) };
    clock.end("panels");
    cut(context, Made::OnDevice(Box::new(made))).map(Some)
}

/// Why kernels lay out no panels of so many rows and entries, if they do not.
pub(in crate::spmm) fn made_on_host(rows: usize, nnz: usize) -> Option<&'static str> {
    match nnz {
        0 => Some("it has no entries"),
        _ if rows.max(nnz) > MOST_PANEL_ITEMS => Some("it has more than 2²⁹ rows or entries"),
        _ => None,
    }
}

/// Panels cut into pieces.
fn cut<'a, A: Matrix>(context: &Context<'_, A>, made: Made) -> Result<LaidOut<'a>, SpmmError> {
    let (a, options, panels) = (context.a, context.options, made.panels());
    let multiprocessors = context.device.multiprocessors().max(1);
    let columns = narrow(options.width.min(1 << 20));
    let asked = options.row_division.slice_columns;
    let chunks = wide(panels.work.len());
    let widest = asked.unwrap_or_else(|| widest_slice(chunks, columns, multiprocessors));
    let slice = slice(columns, widest);
    let slices = u64::from(columns.div_ceil(slice).max(1));
    let cut = match options.row_division.piece_entries {
        Some(most) => Cut::Entries(most),
        None => Cut::Places(Places::of(multiprocessors, slice, slices)),
    };
    let pieces = Pieces::of(panels, cut, options.determinism == Determinism::Fast)?;
    if pieces.slots > MAX_INDEX {
        return Err(too_large("rows of sums of pieces", pieces.slots, MAX_INDEX));
    }
    let facts = LayoutFacts {
        scalar_rows: wide(a.rows()),
        scalar_entries: wide(a.nnz()),
        segments: wide(pieces.pieces.len()),
        panels: panels.counts,
        split: pieces.split,
        split_rows: wide(pieces.split_rows.len()),
        ..LayoutFacts::default()
    };
    let cut = CutRows { rows: wide_first(pieces.split_rows)?, slot_rows: pieces.slots, ..CutRows::default() };
    Ok(LaidOut::one(PanelsLayout { made, pieces: pieces.pieces, widest }, cut, facts))
}

/// The widest slice that pays for so many chunks, on so many multiprocessors.
fn widest_slice(chunks: u64, columns: u32, multiprocessors: u32) -> u32 {
    let pays = |slice: &&u32| {
        chunks * u64::from(columns.div_ceil(**slice)) >= LEAST_CHUNKS * u64::from(multiprocessors)
    };
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
    made: Made,
    pieces: Vec<[u32; 4]>,
    widest: u32,
}

/// Where panels were laid out.
enum Made {
    OnHost(ValuePanels),
    /// In device memory, but for what pieces are cut from.
    OnDevice(Box<DevicePanels<ValueRecordsParams>>),
}

impl Made {
    fn panels(&self) -> &Panels {
        match self {
            Self::OnHost(made) => &made.panels,
            Self::OnDevice(made) => &made.panels,
        }
    }
}

impl Layout for PanelsLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        let (names, record_words) = match &self.made {
            Made::OnHost(made) => (made.panels.names.len(), made.record_words()),
            Made::OnDevice(made) => (made.names.len(), made.record_words),
        };
        push(sizes, "pieces", 16 * wide(self.pieces.len()));
        push(sizes, "rows", 16 * wide(self.made.panels().rows.len()));
        push(sizes, "names", 4 * wide(names));
        push(sizes, "records", 4 * wide(record_words));
        if let Made::OnDevice(made) = &self.made {
            push(sizes, PLACES, made.place_bytes());
        }
    }

    fn host_bytes(&self) -> u64 {
        match &self.made {
            Made::OnHost(made) => made.host_bytes(),
            Made::OnDevice(_) => 0,
        }
    }

    fn placement(&self) -> Placement {
        match self.made {
            Made::OnHost(_) => Placement::Scattered,
            Made::OnDevice(_) => Placement::OnDevice,
        }
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let Self { made, pieces, widest } = *self;
        let pieces = memory.array(&pieces, "pieces")?;
        Ok(Box::new(match made {
            Made::OnHost(made) => PanelsPart {
                pieces,
                rows: memory.array(&made.panels.rows, "rows")?,
                names: memory.array(&made.panels.names, "names")?,
                records: memory.array(&made.records_with(values.bits()?)?, "records")?,
                widest,
                places: ValuesAt::OnHost(made.for_values()),
            },
            Made::OnDevice(made) => {
                let (written, places) = made.with_values(values.unplaced()?)?;
                let WrittenPanels { rows, names, records } = written;
                PanelsPart { pieces, rows, names, records, widest, places: ValuesAt::OnDevice(places) }
            }
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
    places: ValuesAt,
}

/// What says where each value goes.
enum ValuesAt {
    OnHost(ValuePanels),
    OnDevice(ValuePlaces),
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
        match &self.places {
            ValuesAt::OnHost(made) => self.records.copy_from_slice(&made.records_with(values)?),
            ValuesAt::OnDevice(places) => places.replace(values.unplaced(), &self.records),
        }
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        match &self.places {
            ValuesAt::OnHost(made) => ValueSlots::Scattered {
                out: self.records.pointer(),
                elements: wide(made.record_words()),
                places: Box::new(|_, _| made.places()),
            },
            ValuesAt::OnDevice(_) => ValueSlots::OnDevice,
        }
    }

    unsafe fn replace_from(&self, queue: &Arc<dyn Queue>, values: RoundedValues) -> Result<(), DeviceError> {
        match &self.places {
            // SAFETY: the caller's promise: values of all entries, live until the work is done.
            ValuesAt::OnDevice(places) => unsafe { places.replace_from(queue, values, &self.records) },
            ValuesAt::OnHost(_) => Ok(()),
        }
    }

    fn replacing(&self, _: Dtype) -> Option<&'static Entry> {
        matches!(self.places, ValuesAt::OnDevice(_)).then(ValuePlaces::entry).flatten()
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
        assert_eq!([256, 257, 512].map(|n| widest_slice(10_000, n, 132)), [128, 256, 256]);
        assert_eq!(widest_slice(1_000, 512, 132), 128);
        assert_eq!(widest_slice(1_000, 128, 132), 64);
    }
}
