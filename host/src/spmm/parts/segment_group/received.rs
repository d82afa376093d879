//! Segment groups of a matrix that is on the device.

use windrow_kernels::Variant;
use windrow_kernels::groups::{GroupsParams, WORD};
use windrow_kernels::preprocess::RowLengthsParams;
use windrow_simt::GlobalPtr;

use super::{GroupDivision, Groups, GroupsPart, Work, added_rows, described};
use crate::csr::Received;
use crate::device::{ArrayMemory, Device, DeviceBuffer};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};
use crate::options::Determinism;
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::plan::{ArraySize, GivenValues, push};
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::{CutList, CutRows, LaidOut, Layout, LayoutFacts, Part, Placement};
use crate::spmm::points::Division;
use crate::spmm::preprocess::Scratch;

/// Groups that the kernels count, three times over.
const MOST_GROUPS: u64 = 1 << 30;

/// Why entries that are on the device are divided on the host, if they are.
pub(crate) fn made_on_host(nnz: usize, point: AtomicParallelism) -> Option<&'static str> {
    match point.nonzeros_per_thread() {
        Some(_) if nnz == 0 => Some("it has no entries"),
        Some(each) if wide(nnz).div_ceil(u64::from(each * point.reduction())) > MOST_GROUPS => {
            Some("it has 2³⁰ groups of entries")
        }
        _ => None,
    }
}

/// The whole matrix, which is on the device, in a division that is not [made on the host](made_on_host).
pub(in crate::spmm) fn lay_out_received(
    options: &SpmmOptions,
    Division { point, launch, .. }: Division,
    device: &Device,
    a: Received,
) -> Result<LaidOut<'static>, SpmmError> {
    launch.check(point)?;
    let (rows, nnz) = (a.rows, a.nnz);
    let (layout, cut) = ReceivedGroups::of_rows(device, a, point, launch, options.determinism)?;
    let split = cut.row_count();
    let facts = LayoutFacts {
        scalar_rows: wide(rows),
        scalar_entries: wide(nnz),
        split,
        split_rows: split,
        parallelism: Some(described(point, launch)),
        ..LayoutFacts::default()
    };
    Ok(LaidOut::one(layout, cut, facts))
}

/// The arrays of a division on the device.
type DeviceWork = Work<DeviceBuffer<u32>, DeviceBuffer<[u32; 2]>>;

/// Groups of so many entries, and the rows that lie in more than one, of a matrix with entries.
fn nonzeros(
    device: &Device,
    a: &Received,
    group: u32,
    determinism: Determinism,
) -> Result<(DeviceWork, CutRows), DeviceError> {
    let (rows, empty) = (a.rows, a.record.empty_rows as usize);
    let (filled, groups) = (rows - empty, a.nnz.div_ceil(group as usize));
    let bytes = 4 * (wide(4 * rows) + wide(3 * groups));
    // The ends of arrays, and sums of scans.
    let scratch = Scratch::new(device, bytes + bytes / 128 + (1 << 13))?;
    let starts = DeviceBuffer::<[u32; 2]>::alloc(device, a.nnz.div_ceil(WORD as usize) + 1, "row_starts")?;
    let kept = match empty {
        0 => None,
        _ => Some(DeviceBuffer::<u32>::alloc(device, filled, "rows")?),
    };
    let empty_rows = DeviceBuffer::<u32>::alloc(device, empty, "empty_rows")?;
    let slots = DeviceBuffer::<u32>::alloc(device, groups, "slots")?;
    let mut params = GroupsParams {
        row_offsets: a.row_offsets.pointer(),
        ranks: scratch.array(rows + 1, "ranks of rows")?,
        filled_rows: match &kept {
            Some(rows) => rows.pointer(),
            None => scratch.array(filled, "rows with entries")?,
        },
        filled_starts: scratch.array(filled, "starts of rows")?,
        empty_rows: empty_rows.pointer(),
        words: starts.pointer(),
        counts: scratch.array(3 * groups + 1, "pieces of groups")?,
        slots: slots.pointer(),
        split_rows: GlobalPtr::NULL,
        rows: narrow(rows),
        entries: narrow(a.nnz),
        filled: narrow(filled),
        group,
        shared: u32::from(determinism == Determinism::Fast),
        reserved: 0,
    };
    let lengths = scratch.array(rows, "lengths of rows")?;
    let of_rows = RowLengthsParams {
        rows: GlobalPtr::NULL,
        row_offsets: params.row_offsets,
        lengths,
        count: params.rows,
        reserved: 0,
    };
    let count = narrow(groups);
    // SAFETY: the offsets were checked, and there are entries, in few enough groups; the arrays have the lengths that
    // the kernels ask for, sums may take the place of what is added up.
    let [pieces, cut, wide_rows] = unsafe {
        scratch.launch(Variant::RowLengths, wide(rows), &of_rows)?;
        scratch.scan(lengths, params.rows, true, params.ranks)?;
        scratch.launch(Variant::ListRows, wide(rows), &params)?;
        scratch.launch(Variant::StartWords, wide(starts.len()), &params)?;
        scratch.launch(Variant::CountPieces, wide(groups), &params)?;
        scratch.scan(params.counts, 3 * count, false, params.counts)?;
        let upto = |end: u32| -> Result<u32, DeviceError> {
            Ok(scratch.read(params.counts.at(end), 1)?.first().copied().unwrap_or_default())
        };
        let (pieces, all_cut) = (upto(count)?, upto(2 * count)?);
        [pieces, all_cut - pieces, upto(3 * count)? - all_cut]
    };
    let list = DeviceBuffer::<[u32; 4]>::alloc(device, cut as usize, "split_rows")?;
    params.split_rows = list.pointer();
    // SAFETY: as above; there is room for the rows that were counted.
    unsafe { scratch.launch(Variant::ListGroupPieces, wide(groups), &params)? };
    let on_device = (cut > 0).then_some(CutList { rows: list, wide: wide_rows });
    let cut = CutRows { on_device, slot_rows: u64::from(pieces), ..CutRows::default() };
    Ok((Work::Nonzeros { starts, rows: kept, slots, empty_rows }, cut))
}

/// Rows of entries on the device that are divided: what [`GroupsLayout`](super::GroupsLayout) is of those on the host.
pub(crate) struct ReceivedGroups {
    division: GroupDivision,
    work: DeviceWork,
    a: Received,
}

impl ReceivedGroups {
    /// The arrays for rows of entries, whose columns may come in any order and several times, and the rows that are
    /// cut; for a division that is not [made on the host](made_on_host).
    pub(crate) fn of_rows(
        device: &Device,
        mut a: Received,
        point: AtomicParallelism,
        launch: GroupLaunch,
        determinism: Determinism,
    ) -> Result<(Self, CutRows), DeviceError> {
        let (work, cut) = match point.nonzeros_per_thread() {
            None => {
                let nothing = DeviceBuffer::alloc(device, 0, "row_offsets")?;
                let row_offsets = std::mem::replace(&mut a.row_offsets, nothing);
                (Work::Rows { row_offsets }, added_rows(a.rows, point, determinism)?)
            }
            Some(each) => nonzeros(device, &a, each * point.reduction(), determinism)?,
        };
        let (rows, nnz, dtype) = (narrow(a.rows), narrow(a.nnz), a.dtype);
        Ok((Self { division: GroupDivision { point, launch, rows, nnz, dtype }, work, a }, cut))
    }
}

impl Groups for ReceivedGroups {
    fn upload_groups(
        self: Box<Self>,
        _: ArrayMemory<'_>,
        _: &dyn GivenValues,
    ) -> Result<GroupsPart, DeviceError> {
        let Self { division, work, a: Received { col_indices, values, .. } } = *self;
        Ok(GroupsPart { division, work, col_indices, values })
    }
}

impl Layout for ReceivedGroups {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        match &self.work {
            Work::Rows { row_offsets } => push(sizes, "row_offsets", row_offsets.bytes()),
            Work::Nonzeros { starts, rows, slots, empty_rows } => {
                push(sizes, "row_starts", starts.bytes());
                push(sizes, "rows", rows.as_ref().map_or(0, DeviceBuffer::bytes));
                push(sizes, "slots", slots.bytes());
                push(sizes, "empty_rows", empty_rows.bytes());
            }
        }
        push(sizes, "col_indices", self.a.col_indices.bytes());
        push(sizes, "values", self.a.values.bytes());
    }

    fn placement(&self) -> Placement {
        Placement::InOrder(self.a.nnz)
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        Ok(Box::new(self.upload_groups(memory, values)?))
    }
}
