//! The algorithm [`SegmentGroup`](crate::Algorithm::SegmentGroup): CSR as it is, work divided as a point of Sgap's space
//! says. The slices of a tensor are divided in the same way.

use windrow_formats::{Csr, Value};
use windrow_kernels::dense::Dense;
use windrow_kernels::segment_group::{MttkrpParams, NonzeroGroupsParams, RowGroupsParams};
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use super::parts::push;
use super::plan::{Body, SpmmPlan};
use super::report::ArraySize;
use super::values::{Bits, Values};
use crate::device::{Device, DeviceBuffer, Machine, Prepared};
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, wide};
use crate::options::Determinism;
use crate::parallelism::{AtomicParallelism, GroupLaunch};

/// Threads of the largest grid: many times as many as a GPU holds, and few enough to count in 32 bits.
const MOST_AT_ONCE: u64 = 1 << 24;
/// Columns of one launch: a slice may be one column, and a grid has 65,535 of them.
pub(crate) const MAX_GROUP_COLUMNS: u32 = 1 << 15;

/// Entries of a word of starts; arrays of entries are padded to a multiple of it.
const WORD: usize = 32;

/// What the launches of a plan divide, before upload.
pub(crate) struct GroupsHost {
    pub(super) point: AtomicParallelism,
    pub(super) launch: GroupLaunch,
    work: Work<Vec<u32>, Vec<[u32; 2]>>,
    col_indices: Vec<u32>,
    /// Rows whose partial sums are added: `[row, first_slot, count, stride]`.
    pub(crate) split_rows: Vec<[u32; 4]>,
    pub(crate) slots: u64,
    rows: u32,
    nnz: u32,
    value_bytes: u32,
}

/// The arrays of a family.
enum Work<A, B> {
    Rows { row_offsets: A },
    Nonzeros { starts: B, rows: Option<A>, slots: A, empty_rows: A },
}

impl GroupsHost {
    /// The arrays for a point. A matrix of fewer than 2³² entries and rows.
    pub(super) fn new<V: Value>(
        a: &Csr<V>,
        (point, launch): (AtomicParallelism, GroupLaunch),
        determinism: Determinism,
        dtype: Dtype,
    ) -> Self {
        Self::of_rows((a.row_offsets(), a.col_indices()), (point, launch), determinism, dtype)
    }

    /// The same for rows of entries with these offsets and columns, which may come in any order, and several times.
    pub(crate) fn of_rows(
        (offsets, columns): (&[u64], &[u32]),
        (point, launch): (AtomicParallelism, GroupLaunch),
        determinism: Determinism,
        dtype: Dtype,
    ) -> Self {
        let (rows, nnz) = (narrow(offsets.len().saturating_sub(1)), narrow(columns.len()));
        let (work, split_rows, slots) = match point.nonzeros_per_thread() {
            Some(each) => {
                let starts = Starts::new(offsets);
                let cut = Cut::new(&starts, (each * point.reduction(), nnz), determinism);
                let rows = (!starts.empty.is_empty()).then_some(starts.rows);
                let work =
                    Work::Nonzeros { starts: starts.words, rows, slots: cut.slots, empty_rows: starts.empty };
                (work, cut.split_rows, u64::from(cut.count))
            }
            None => {
                let row_offsets = offsets.iter().map(|&offset| narrow(index(offset))).collect();
                let cut = determinism == Determinism::Fast
                    && point.threads_per_row().is_some_and(|threads| point.reduction() < threads);
                let all = || (0..rows).map(|row| [row, row, 1, 1]).collect();
                let split_rows: Vec<_> = if cut { all() } else { Vec::new() };
                let slots = wide(split_rows.len());
                (Work::Rows { row_offsets }, split_rows, slots)
            }
        };
        let col_indices = padded_indices(columns);
        Self { point, launch, work, col_indices, split_rows, slots, rows, nnz, value_bytes: dtype.bytes() }
    }

    pub(crate) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
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
        push(sizes, "values", wide(self.col_indices.len()) * u64::from(self.value_bytes));
    }

    pub(crate) fn upload<V: Value>(
        self,
        device: &Device,
        values: &Values<'_, V>,
    ) -> Result<GroupsPart, DeviceError> {
        let array = |words: &[u32], name| DeviceBuffer::named(device, words, name);
        let work = match &self.work {
            Work::Rows { row_offsets } => Work::Rows { row_offsets: array(row_offsets, "row_offsets")? },
            Work::Nonzeros { starts, rows, slots, empty_rows } => Work::Nonzeros {
                starts: DeviceBuffer::named(device, starts, "row_starts")?,
                rows: rows.as_ref().map(|rows| array(rows, "rows")).transpose()?,
                slots: array(slots, "slots")?,
                empty_rows: array(empty_rows, "empty_rows")?,
            },
        };
        Ok(GroupsPart {
            point: self.point,
            launch: self.launch,
            work,
            col_indices: array(&self.col_indices, "col_indices")?,
            values: DeviceBuffer::named(device, &padded(values.bits()), "values")?,
            rows: self.rows,
            nnz: self.nnz,
            dtype: values.bits().dtype(),
        })
    }
}

/// Indices of entries, as many as kernels read: with zeros behind.
pub(crate) fn padded_indices(indices: &[u32]) -> Vec<u32> {
    let mut padded = Vec::with_capacity(indices.len().next_multiple_of(WORD));
    padded.extend_from_slice(indices);
    padded.resize(indices.len().next_multiple_of(WORD), 0);
    padded
}

/// Values and zeros behind, as many as there are columns of entries.
fn padded(values: &Bits) -> Vec<u8> {
    let bytes = values.bytes();
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(WORD * values.dtype().bytes() as usize), 0);
    padded
}

/// Where rows start among the entries.
struct Starts {
    /// For each 32 entries: which of them start a row, and how many starts there are before; and none behind.
    words: Vec<[u32; 2]>,
    /// Rows with entries, and rows without.
    rows: Vec<u32>,
    empty: Vec<u32>,
}

impl Starts {
    fn new(offsets: &[u64]) -> Self {
        let nnz = index(offsets.last().copied().unwrap_or(0));
        let mut words = vec![[0_u32; 2]; nnz.div_ceil(WORD) + 1];
        let (mut rows, mut empty) = (Vec::new(), Vec::new());
        for (row, ends) in offsets.windows(2).enumerate() {
            if ends[0] == ends[1] {
                empty.push(narrow(row));
            } else {
                let start = index(ends[0]);
                words[start / WORD][0] |= 1 << (start % WORD);
                rows.push(narrow(row));
            }
        }
        let mut before = 0;
        for word in &mut words {
            word[1] = before;
            before += word[0].count_ones();
        }
        Self { words, rows, empty }
    }

    fn starts_at(&self, entry: u32) -> bool {
        let entry = index(u64::from(entry));
        self.words[entry / WORD][0] >> (entry % WORD) & 1 != 0
    }

    /// The row of an entry.
    fn row_of(&self, entry: u32) -> u32 {
        let at = index(u64::from(entry));
        let [bits, before] = self.words[at / WORD];
        let upto = bits & u32::MAX >> (WORD - 1 - at % WORD);
        self.rows[index(u64::from(before + upto.count_ones() - 1))]
    }

    /// Starts among entries `from..to`.
    fn any_between(&self, from: u32, to: u32) -> bool {
        from < to && (self.starts_at(from) || self.row_of(from) != self.row_of(to - 1))
    }
}

/// Rows that lie in more than one group of entries.
struct Cut {
    /// For each group the slot of its first piece.
    slots: Vec<u32>,
    split_rows: Vec<[u32; 4]>,
    /// Slots.
    count: u32,
}

impl Cut {
    /// Each piece has a slot of its own, or each row.
    fn new(starts: &Starts, (group, nnz): (u32, u32), determinism: Determinism) -> Self {
        let mut slots = Vec::with_capacity(index(u64::from(nnz.div_ceil(group))));
        let (mut split_rows, mut count): (Vec<[u32; 4]>, u32) = (Vec::new(), 0);
        let shared = determinism == Determinism::Fast;
        let mut begin = 0;
        while begin < nnz {
            let end = begin.saturating_add(group).min(nnz);
            let continues = !starts.starts_at(begin); // a row of the group before
            slots.push(if shared { count.saturating_sub(u32::from(continues)) } else { count });
            if continues && !shared {
                if let Some(last) = split_rows.last_mut() {
                    last[2] += 1;
                }
                count += 1;
            }
            let cut_here = end < nnz && !starts.starts_at(end);
            let begins_here = starts.any_between(begin + u32::from(continues), end);
            if cut_here && begins_here {
                split_rows.push([starts.row_of(end - 1), count, 1, 1]);
                count += 1;
            }
            begin = end;
        }
        Self { slots, split_rows, count }
    }
}

/// The second factor of the entries of a tensor, in device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecondFactor {
    /// Row for each entry, of [`padded_indices`].
    pub(crate) indices: GlobalPtr<u32>,
    /// The matrix, at the first column of a launch.
    pub(crate) matrix: u64,
    /// Its leading dimension, in elements.
    pub(crate) ld: u32,
}

/// The arrays in device memory.
pub(crate) struct GroupsPart {
    pub(super) point: AtomicParallelism,
    pub(super) launch: GroupLaunch,
    work: Work<DeviceBuffer<u32>, DeviceBuffer<[u32; 2]>>,
    col_indices: DeviceBuffer<u32>,
    pub(super) values: DeviceBuffer<u8>,
    rows: u32,
    nnz: u32,
    dtype: Dtype,
}

impl GroupsPart {
    /// The entry for the point.
    pub(super) fn entry(&self) -> Option<&'static Entry> {
        let (dtype, columns) = (self.dtype, self.point.columns_per_thread());
        windrow_kernels::entry(match self.point.nonzeros_per_thread() {
            Some(each) => Variant::NonzeroGroups { dtype, at_once: each.min(4), columns },
            None => Variant::RowGroups { dtype, columns },
        })
    }

    /// Entries of the matrix.
    pub(super) fn len(&self) -> usize {
        index(u64::from(self.nnz))
    }

    /// Uploads new values.
    pub(crate) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.values.copy_from_slice(&padded(values))
    }

    /// Queues the launch.
    ///
    /// # Safety
    /// The dense operands keep their obligations; the workspace has the slots of [`GroupsHost::slots`].
    pub(super) unsafe fn launch(
        &self,
        machine: &dyn Machine,
        entry: &'static Entry,
        dense: Dense,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_factors(machine, entry, dense, None) }
    }

    /// [`launch`](Self::launch) with a second factor or none, as the entry has it; rows are not divided with one.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch); the second factor has the columns of `dense`, and the rows that its indices name.
    pub(crate) unsafe fn launch_factors(
        &self,
        machine: &dyn Machine,
        entry: &'static Entry,
        dense: Dense,
        second: Option<SecondFactor>,
    ) -> Result<(), DeviceError> {
        let Self { point, launch, .. } = self;
        let columns = point.columns_per_thread();
        let lanes = launch.lanes(*point, dense.n);
        let alignment = u64::from(columns * self.dtype.bytes());
        let aligned = |address: u64, ld: u32| address.is_multiple_of(alignment) && ld.is_multiple_of(columns);
        let vectors = u32::from(
            aligned(dense.b.address(), dense.ldb)
                && second.is_none_or(|second| aligned(second.matrix, second.ld)),
        );
        let slices = u64::from(dense.n.div_ceil(lanes * columns));
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
                    rows: self.rows,
                    rows_each,
                    threads_log2: threads.ilog2(),
                    reduction_log2: point.reduction().ilog2(),
                    lanes_log2: lanes.ilog2(),
                    vectors,
                };
                let units = u64::from(self.rows.div_ceil(rows_each));
                let grid = blocks(units, units * u64::from(threads));
                // SAFETY: the arrays are those of a valid CSR matrix and live as long as the plan; the rest is the
                // caller's promise.
                unsafe { start(machine, entry, launch.block_threads, grid, &params) }
            }
            Work::Nonzeros { starts, rows, slots, empty_rows } => {
                let each = point.nonzeros_per_thread().unwrap_or(1);
                let groups = self.nnz.div_ceil(each * point.reduction());
                let params = NonzeroGroupsParams {
                    dense,
                    col_indices: pointer(&self.col_indices),
                    values: self.values.pointer().cast(),
                    starts: starts.pointer(),
                    rows: rows.as_ref().map_or(GlobalPtr::NULL, DeviceBuffer::pointer),
                    slots: pointer(slots),
                    empty_rows: pointer(empty_rows),
                    nnz: self.nnz,
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
                // SAFETY: as above; starts and slots were made of the offsets.
                unsafe {
                    match second {
                        None => start(machine, entry, launch.block_threads, grid, &params),
                        Some(SecondFactor { indices, matrix, ld }) => {
                            let params = MttkrpParams {
                                groups: params,
                                second_indices: indices,
                                second: GlobalPtr::from_address(matrix),
                                ld_second: ld,
                                reserved: 0,
                            };
                            start(machine, entry, launch.block_threads, grid, &params)
                        }
                    }
                }
            }
        }
    }
}

impl SpmmPlan {
    /// Another launch of the same segment groups; whether the plan has any.
    ///
    /// # Errors
    /// [`SpmmError::IllegalPoint`] for a launch that is none of the plan's point.
    #[doc(hidden)]
    pub fn set_group_launch(&mut self, launch: GroupLaunch) -> Result<bool, SpmmError> {
        let Body::Gpu(plan) = &mut self.body else { return Ok(false) };
        let Some(part) = &mut plan.groups else { return Ok(false) };
        launch.check(part.point)?;
        part.launch = launch;
        self.report.parallelism = Some(described(part.point, launch));
        Ok(true)
    }
}

/// A point and its launch, `<groupSz, blockSz, tileSz, workerDimR>`, as reports have them.
pub(super) fn described(point: AtomicParallelism, launch: GroupLaunch) -> String {
    format!("{point}, <{}, {launch}>", point.reduction())
}

/// Starts an entry with blocks of so many threads.
///
/// # Safety
/// As for [`Prepared::new`], with blocks of this size.
unsafe fn start<P: bytemuck::Pod>(
    machine: &dyn Machine,
    entry: &'static Entry,
    block_threads: u32,
    grid: [u64; 2],
    params: &P,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's promise.
    match unsafe { Prepared::new(entry, grid, params) }? {
        Some(prepared) => machine.launch(&prepared.with_threads(block_threads)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_name_the_rows_of_entries() {
        let offsets = [0, 0, 3, 35, 35, 70];
        let starts = Starts::new(&offsets);
        assert_eq!(starts.words, [[0b1001, 0], [0b1000, 2], [0, 3], [0, 3]]);
        assert_eq!((starts.rows.as_slice(), starts.empty.as_slice()), (&[1, 2, 4][..], &[0, 3][..]));
        for (entry, row) in [(0, 1), (2, 1), (3, 2), (31, 2), (32, 2), (34, 2), (35, 4), (69, 4)] {
            assert_eq!(starts.row_of(entry), row, "entry {entry}");
        }
        assert!(starts.any_between(1, 4) && !starts.any_between(1, 3) && !starts.any_between(4, 4));
        assert_eq!(Starts::new(&[0]).words, [[0, 0]]);
    }

    #[test]
    fn pieces_of_cut_rows_have_slots_in_order() {
        // Rows of 3, 10, 1, 2 entries in groups of 4: row 1 is in groups 0 to 3.
        let starts = Starts::new(&[0, 3, 13, 14, 16]);
        let own = Cut::new(&starts, (4, 16), Determinism::RunToRun);
        assert_eq!((own.slots.as_slice(), own.count), (&[0, 1, 2, 3][..], 4));
        assert_eq!(own.split_rows, [[1, 0, 4, 1]]);
        let shared = Cut::new(&starts, (4, 16), Determinism::Fast);
        assert_eq!((shared.slots.as_slice(), shared.count), (&[0, 0, 0, 0][..], 1));
        assert_eq!(shared.split_rows, [[1, 0, 1, 1]]);
        // Two cut rows in one group.
        let starts = Starts::new(&[0, 6, 12]);
        let own = Cut::new(&starts, (4, 12), Determinism::RunToRun);
        assert_eq!(own.slots, [0, 1, 3]);
        assert_eq!(own.split_rows, [[0, 0, 2, 1], [1, 2, 2, 1]]);
        assert_eq!(Cut::new(&starts, (4, 12), Determinism::Fast).slots, [0, 0, 1]);
        assert!(Cut::new(&starts, (6, 12), Determinism::RunToRun).split_rows.is_empty());
    }
}
