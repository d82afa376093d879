//! The algorithm [`SegmentGroup`](crate::Algorithm::SegmentGroup): CSR as it is, work divided as a point of Sgap's
//! space says. The slices of a tensor are divided in the same way. Its kernels are [`windrow_kernels::segment_group`].

mod cut;
mod received;

use windrow_formats::memory::{try_collect, try_with_room};
use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::segment_group::{MttkrpParams, NonzeroGroupsParams, RowGroupsParams};
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use self::cut::{Cut, Starts, WORD};
pub(in crate::spmm) use self::received::lay_out_received;
pub(crate) use self::received::{ReceivedGroups, made_on_host};
use super::read_array;
use crate::device::{ArrayMemory, DeviceBuffer};
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, wide};
use crate::options::Determinism;
use crate::parallelism::{AtomicParallelism, GroupLaunch, IllegalPoint};
use crate::plan::{ArraySize, Bits, Blocks, GivenValues, Launcher, push};
use crate::spmm::layout::Context;
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots,
};
use crate::spmm::points::Division;
use crate::spmm::sums::wide_first;

/// Threads of the largest grid: many times as many as a GPU holds, and few enough to count in 32 bits.
const MOST_AT_ONCE: u64 = 1 << 24;
/// Columns of one launch: a slice may be one column, and a grid has 65,535 of them.
const MAX_GROUP_COLUMNS: u32 = 1 << 15;

/// The whole matrix, divided so.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
    Division { point, launch, .. }: Division,
) -> Result<LaidOut<'a>, SpmmError> {
    launch.check(point)?;
    let a = context.a;
    let rows = RowEntries { offsets: a.row_offsets(), columns: a.col_indices() };
    let options = context.options;
    let (layout, cut) =
        GroupsLayout::of_rows(rows, point, launch, options.determinism, options.precision.dtype())?;
    let facts = LayoutFacts {
        scalar_rows: wide(a.rows()),
        scalar_entries: wide(a.nnz()),
        split: wide(cut.rows.len()),
        split_rows: wide(cut.rows.len()),
        parallelism: Some(described(point, launch)),
        ..LayoutFacts::default()
    };
    Ok(LaidOut::one(layout, cut, facts))
}

/// Of whole rows, those whose sums several groups of threads add up in any order: all, or none.
fn added_rows(
    rows: usize,
    point: AtomicParallelism,
    determinism: Determinism,
) -> Result<CutRows, OutOfMemory> {
    let added = determinism == Determinism::Fast
        && point.threads_per_row().is_some_and(|threads| point.reduction() < threads);
    let rows = try_collect(
        (0..if added { narrow(rows) } else { 0 }).map(|row| [row, row, 1, 1]),
        "rows that are cut",
    )?;
    Ok(CutRows { slot_rows: wide(rows.len()), rows, ..CutRows::default() })
}

/// Rows of entries: where each begins, and the columns, which may come in any order, and several times.
#[derive(Clone, Copy)]
pub(crate) struct RowEntries<'a> {
    pub(crate) offsets: &'a [u64],
    pub(crate) columns: &'a [u32],
}

/// Rows of entries divided as a point says, before upload.
pub(crate) struct GroupsLayout {
    division: GroupDivision,
    work: Work<Vec<u32>, Vec<[u32; 2]>>,
    col_indices: Vec<u32>,
}

/// How so many rows and entries are divided.
#[derive(Clone, Copy)]
struct GroupDivision {
    point: AtomicParallelism,
    launch: GroupLaunch,
    rows: u32,
    nnz: u32,
    dtype: Dtype,
}

/// The arrays of a family.
enum Work<A, B> {
    Rows { row_offsets: A },
    Nonzeros { starts: B, rows: Option<A>, slots: A, empty_rows: A },
}

impl GroupsLayout {
    /// The arrays for rows of entries, and the rows that are cut. For fewer than 2³² entries and rows.
    pub(crate) fn of_rows(
        RowEntries { offsets, columns }: RowEntries<'_>,
        point: AtomicParallelism,
        launch: GroupLaunch,
        determinism: Determinism,
        dtype: Dtype,
    ) -> Result<(Self, CutRows), OutOfMemory> {
        let (rows, nnz) = (narrow(offsets.len().saturating_sub(1)), narrow(columns.len()));
        let (work, cut) = match point.nonzeros_per_thread() {
            Some(each) => {
                let starts = Starts::new(offsets)?;
                let cut = Cut::new(&starts, each * point.reduction(), nnz, determinism)?;
                let rows = (!starts.empty.is_empty()).then_some(starts.rows);
                let work =
                    Work::Nonzeros { starts: starts.words, rows, slots: cut.slots, empty_rows: starts.empty };
                let (rows, slot_rows) = (wide_first(cut.split_rows)?, u64::from(cut.count));
                (work, CutRows { rows, slot_rows, ..CutRows::default() })
            }
            None => {
                let row_offsets = offsets.iter().map(|&offset| narrow(index(offset)));
                let row_offsets = try_collect(row_offsets, "row_offsets")?;
                (Work::Rows { row_offsets }, added_rows(index(u64::from(rows)), point, determinism)?)
            }
        };
        let division = GroupDivision { point, launch, rows, nnz, dtype };
        Ok((Self { division, work, col_indices: padded_indices(columns)? }, cut))
    }

    /// Uploads the division, the columns and the values; a failed allocation is an error.
    fn upload_with(self, memory: ArrayMemory<'_>, values: &Bits) -> Result<GroupsPart, DeviceError> {
        let array = |words: &[u32], name| memory.array(words, name);
        let work = match &self.work {
            Work::Rows { row_offsets } => Work::Rows { row_offsets: array(row_offsets, "row_offsets")? },
            Work::Nonzeros { starts, rows, slots, empty_rows } => Work::Nonzeros {
                starts: memory.array(starts, "row_starts")?,
                rows: rows.as_ref().map(|rows| array(rows, "rows")).transpose()?,
                slots: array(slots, "slots")?,
                empty_rows: array(empty_rows, "empty_rows")?,
            },
        };
        Ok(GroupsPart {
            division: self.division,
            work,
            col_indices: array(&self.col_indices, "col_indices")?,
            values: memory.array(&padded(values)?, "values")?,
        })
    }
}

/// A division that becomes the part of another product than SpMM, with more arrays.
pub(crate) trait Groups: Layout {
    /// [`Layout::upload`], of the division as it is.
    fn upload_groups(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<GroupsPart, DeviceError>;
}

impl Groups for GroupsLayout {
    fn upload_groups(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<GroupsPart, DeviceError> {
        (*self).upload_with(memory, values.bits()?)
    }
}

impl Layout for GroupsLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        let words = |array: &Vec<u32>| 4 * wide(array.len());
        match &self.work {
            Work::Rows { row_offsets } => push(sizes, "row_offsets", words(row_offsets)),
            Work::Nonzeros { starts, rows, slots, empty_rows } => {
                push(sizes, "row_starts", 8 * wide(starts.len()));
                push(sizes, "rows", rows.as_ref().map_or(0, words));
                push(sizes, "slots", words(slots));
                push(sizes, "empty_rows", words(empty_rows));
            }
        }
        push(sizes, "col_indices", words(&self.col_indices));
        push(sizes, "values", wide(self.col_indices.len()) * u64::from(self.division.dtype.bytes()));
    }

    fn placement(&self) -> Placement {
        Placement::InOrder(index(u64::from(self.division.nnz)))
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        Ok(Box::new(self.upload_groups(memory, values)?))
    }
}

/// Indices of entries, as many as kernels read: with zeros behind.
pub(crate) fn padded_indices(indices: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
    let mut padded = try_with_room(indices.len().next_multiple_of(WORD), "col_indices")?;
    padded.extend_from_slice(indices);
    padded.resize(indices.len().next_multiple_of(WORD), 0);
    Ok(padded)
}

/// Values and zeros behind, as many as there are columns of entries.
fn padded(values: &Bits) -> Result<Vec<u8>, OutOfMemory> {
    let bytes = values.bytes();
    let len = bytes.len().next_multiple_of(WORD * values.dtype().bytes() as usize);
    let mut padded = try_with_room(len, "values")?;
    padded.extend_from_slice(bytes);
    padded.resize(len, 0);
    Ok(padded)
}

/// Rows of entries in device memory, and how they are divided.
pub(crate) struct GroupsPart {
    division: GroupDivision,
    work: Work<DeviceBuffer<u32>, DeviceBuffer<[u32; 2]>>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
}

impl GroupsPart {
    /// The point that divides the entries.
    pub(crate) fn point(&self) -> AtomicParallelism {
        self.division.point
    }

    /// Type of the values.
    pub(crate) fn dtype(&self) -> Dtype {
        self.division.dtype
    }

    /// [`Part::launch`], the operands with a second factor or none, as the entry has it; rows are not divided with one.
    ///
    /// # Safety
    /// As there; `second_indices` are live memory too: for each entry, padded as [`padded_indices`] does, a row that
    /// the second factor has.
    pub(crate) unsafe fn launch_factors(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
        second_indices: Option<GlobalPtr<u32>>,
    ) -> Result<(), DeviceError> {
        let DenseOperands { dense, second, .. } = *operands;
        let GroupDivision { point, launch, rows: row_count, nnz, dtype } = self.division;
        let columns = point.columns_per_thread();
        let lanes = launch.lanes(point, dense.n());
        let alignment = u64::from(columns * dtype.bytes());
        let aligned = |address: u64, ld: u32| address.is_multiple_of(alignment) && ld.is_multiple_of(columns);
        let vectors = u32::from(
            operands.reads_vectors
                && aligned(dense.b.address(), dense.ldb)
                && second.is_none_or(|second| aligned(second.address, second.ld)),
        );
        let slices = u64::from(dense.n().div_ceil(lanes * columns));
        let blocks = |units: u64, threads: u64| {
            let block_threads = u64::from(launch.block_threads);
            let all = (threads * u64::from(lanes)).div_ceil(block_threads);
            // Threads walk on where there are fewer than work; a number of a unit beyond the last must not wrap.
            let most = MOST_AT_ONCE.min(u64::from(u32::MAX).saturating_sub(units)) / block_threads;
            [(all >> launch.workers_log2.unsigned_abs()).clamp(1, most.max(1)), slices]
        };
        let pointer = |array: &DeviceBuffer<u32>| match array.is_empty() {
            true => GlobalPtr::NULL,
            false => array.pointer(),
        };
        match &self.work {
            Work::Rows { row_offsets } => {
                let threads = point.threads_per_row().unwrap_or(1);
                let rows_each = point.rows_per_thread().unwrap_or(1);
                let params = RowGroupsParams {
                    dense,
                    row_offsets: row_offsets.pointer(),
                    col_indices: pointer(&self.col_indices),
                    values: self.values.pointer().cast(),
                    rows: row_count,
                    rows_each,
                    threads_log2: threads.ilog2(),
                    reduction_log2: point.reduction().ilog2(),
                    lanes_log2: lanes.ilog2(),
                    vectors,
                };
                let units = u64::from(row_count.div_ceil(rows_each));
                let grid = blocks(units, units * u64::from(threads));
                // SAFETY: the arrays are those of a valid CSR matrix and live as long as the plan; the rest is the
                // caller's promise.
                unsafe { stream.start_grid(entry, Blocks { grid, threads: launch.block_threads }, &params) }
            }
            Work::Nonzeros { starts, rows, slots, empty_rows } => {
                let each = point.nonzeros_per_thread().unwrap_or(1);
                let groups = nnz.div_ceil(each * point.reduction());
                let params = NonzeroGroupsParams {
                    dense,
                    col_indices: pointer(&self.col_indices),
                    values: self.values.pointer().cast(),
                    starts: starts.pointer(),
                    rows: rows.as_ref().map_or(GlobalPtr::NULL, DeviceBuffer::pointer),
                    slots: pointer(slots),
                    empty_rows: pointer(empty_rows),
                    nnz,
                    empty_count: narrow(empty_rows.len()),
                    each,
                    groups,
                    reduction_log2: point.reduction().ilog2(),
                    lanes_log2: lanes.ilog2(),
                    vectors,
                    reserved: 0,
                };
                let (groups, empty) = (u64::from(groups), wide(empty_rows.len()));
                let grid = blocks(groups.max(empty), empty.max(groups * u64::from(point.reduction())));
                let shape = Blocks { grid, threads: launch.block_threads };
                // SAFETY: as above; starts and slots were made of the offsets. Indices of a second factor are the
                // caller's promise.
                unsafe {
                    match second.zip(second_indices) {
                        None => stream.start_grid(entry, shape, &params),
                        Some((factor, second_indices)) => {
                            let params = MttkrpParams {
                                groups: params,
                                second_indices,
                                second: GlobalPtr::from_address(factor.address),
                                ld_second: factor.ld,
                                reserved: 0,
                            };
                            stream.start_grid(entry, shape, &params)
                        }
                    }
                }
            }
        }
    }
}

impl Part for GroupsPart {
    fn name(&self) -> &'static str {
        "segment-group"
    }

    fn entry(&self, _: Operation) -> Option<&'static Entry> {
        let GroupDivision { point, dtype, .. } = self.division;
        let columns = point.columns_per_thread();
        windrow_kernels::entry(match point.nonzeros_per_thread() {
            Some(each) => Variant::NonzeroGroups { dtype, at_once: each.min(4), columns },
            None => Variant::RowGroups { dtype, columns },
        })
    }

    fn most_columns(&self) -> u32 {
        MAX_GROUP_COLUMNS
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise about the operands; there are no indices of a second factor.
        unsafe { self.launch_factors(stream, entry, operands, None) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.values.copy_from_slice(&padded(values)?)
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        ValueSlots::InOrder { out: self.values.pointer().cast(), count: index(u64::from(self.division.nnz)) }
    }

    fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<Option<String>, IllegalPoint> {
        launch.check(self.division.point)?;
        self.division.launch = launch;
        Ok(Some(described(self.division.point, launch)))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = match &self.work {
            Work::Rows { row_offsets } => vec![read_array("row_offsets", row_offsets)?],
            Work::Nonzeros { starts, rows, slots, empty_rows } => {
                let mut arrays = vec![read_array("row_starts", starts)?];
                if let Some(rows) = rows {
                    arrays.push(read_array("rows", rows)?);
                }
                arrays.extend([read_array("slots", slots)?, read_array("empty_rows", empty_rows)?]);
                arrays
            }
        };
        arrays.extend([read_array("col_indices", &self.col_indices)?, read_array("values", &self.values)?]);
        Ok(arrays)
    }
}

/// A point and its launch, `<groupSz, blockSz, tileSz, workerDimR>`, as reports have them.
pub(crate) fn described(point: AtomicParallelism, launch: GroupLaunch) -> String {
    format!("{point}, <{}, {launch}>", point.reduction())
}
