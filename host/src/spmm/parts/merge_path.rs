//! The algorithm [`MergePath`](crate::Algorithm::MergePath): CSR as it is, rows merged by path. Its kernel is
//! [`windrow_kernels::spmm::merge_path`].

mod path;
mod received;

use std::borrow::Cow;

use windrow_formats::memory::try_with_room;
use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::spmm::merge_path::{MergePathParams, THREADS};
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use self::path::{Cuts, Path};
pub(in crate::spmm) use self::received::{fits_kernels, lay_out_received};
use super::read_array;
use super::row_split::SHORTEST_PIECE;
use crate::device::{ArrayMemory, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::wide;
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, push};
use crate::spmm::layout::Context;
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots,
};
use crate::spmm::sums::wide_first;

/// Entries that kernels read at once.
const VECTOR: usize = 4;
/// Columns of one launch: each is one of a grid's slow axis, which has 65,535.
const MOST_COLUMNS: u32 = 1 << 15;

/// Steps of a thread that there are kernels for, and the blocks on each multiprocessor from which on a matrix has so
/// many: with fewer, threads have fewer steps, so that there are more blocks, each of which is sooner done.
const STEPS: [(u32, u64); 3] = [(15, 4), (7, 2), (3, 0)];
/// No shorter row is cut, and no row into shorter pieces: adding pieces is a launch of its own, and takes about as
/// long as a block for so many entries.
const LONGEST: u64 = 1 << 14;
/// Entries of the longest piece that may be asked for: positions in it, and half as many more, are counted in 32 bits.
const LONGEST_PIECE: u64 = 1 << 30;
/// So many rows of the longest kind on each multiprocessor would have all entries: one block is about a quarter of the
/// work that a multiprocessor can have under way.
const ROWS_PER_MULTIPROCESSOR: u64 = 4;

/// The whole matrix, its path cut into shares of blocks.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
) -> Result<LaidOut<'a>, OutOfMemory> {
    let (a, options) = (context.a, context.options);
    let cuts = cuts(a.rows(), a.nnz(), options, context.device.multiprocessors());
    let mut path = Path::cut(a.row_offsets(), cuts, options.determinism)?;
    let facts = LayoutFacts {
        scalar_rows: wide(a.rows()),
        scalar_entries: wide(a.nnz()),
        split: wide(path.split_rows.len()),
        split_rows: wide(path.split_rows.len()),
        ..LayoutFacts::default()
    };
    let rows = wide_first(std::mem::take(&mut path.split_rows))?;
    let cut = CutRows { rows, slot_rows: u64::from(path.slots), ..CutRows::default() };
    let kind = Kind { dtype: options.precision.dtype(), steps: cuts.steps };
    Ok(LaidOut::one(PathLayout { path, kind, col_indices: a.col_indices() }, cut, facts))
}

/// Where the path of so many rows and entries is cut: as asked for, or as suits the device.
fn cuts(rows: usize, nnz: usize, options: &SpmmOptions, multiprocessors: u32) -> Cuts {
    let multiprocessors = u64::from(multiprocessors.max(1));
    let all = wide(rows) + wide(nnz);
    let preferred =
        |&(steps, blocks): &(u32, u64)| all >= blocks * multiprocessors * u64::from(THREADS * steps);
    // The steps of a thread and one are the entries that it reads at once.
    let asked = options.parallelism.and_then(|point| point.nonzeros_per_thread());
    let of_asked = |&(steps, _): &(u32, u64)| asked.is_some_and(|each| each > steps);
    let least = STEPS[STEPS.len() - 1];
    let found = match asked {
        Some(_) => STEPS.iter().find(|kind| of_asked(kind)),
        None => STEPS.iter().find(|kind| preferred(kind)),
    };
    let (steps, _) = found.copied().unwrap_or(least);
    let longest = LONGEST.max(wide(nnz) / (ROWS_PER_MULTIPROCESSOR * multiprocessors));
    match options.row_division.piece_entries {
        Some(piece) => {
            let piece = u64::from(piece).clamp(u64::from(SHORTEST_PIECE), LONGEST_PIECE);
            Cuts { steps, longest: piece + piece / 2, piece }
        }
        None => Cuts { steps, longest, piece: longest / 2 },
    }
}

/// What decides the entry.
#[derive(Debug, Clone, Copy)]
struct Kind {
    dtype: Dtype,
    /// Steps of a thread.
    steps: u32,
}

/// A path that is cut, before upload.
struct PathLayout<'a> {
    path: Path,
    kind: Kind,
    col_indices: &'a [u32],
}

impl Layout for PathLayout<'_> {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        let entries = wide(self.col_indices.len().next_multiple_of(VECTOR));
        push(sizes, "shares", 16 * wide(self.path.shares.len()));
        push(sizes, "steps", 4 * wide(self.path.steps.len()));
        push(sizes, "col_indices", 4 * entries);
        push(sizes, "values", entries * u64::from(self.kind.dtype.bytes()));
    }

    fn placement(&self) -> Placement {
        Placement::InOrder(self.col_indices.len())
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let Self { path, kind, col_indices } = *self;
        Ok(Box::new(PathPart {
            shares: memory.array(&path.shares, "shares")?,
            long_count: path.long_count,
            steps: memory.array(&path.steps, "steps")?,
            col_indices: memory.array(&padded(col_indices, VECTOR)?, "col_indices")?,
            values: memory.array(&padded_values(values.bits()?)?, "values")?,
            nnz: col_indices.len(),
            kind,
        }))
    }
}

/// The elements, and zeros behind up to a multiple.
fn padded<T: Copy + Default>(elements: &[T], multiple: usize) -> Result<Cow<'_, [T]>, OutOfMemory> {
    let len = elements.len().next_multiple_of(multiple);
    if len == elements.len() {
        return Ok(Cow::Borrowed(elements));
    }
    let mut padded = try_with_room(len, "padded entries")?;
    padded.extend_from_slice(elements);
    padded.resize(len, T::default());
    Ok(Cow::Owned(padded))
}

fn padded_values(values: &Bits) -> Result<Cow<'_, [u8]>, OutOfMemory> {
    padded(values.bytes(), VECTOR * values.dtype().bytes() as usize)
}

/// The arrays in device memory.
struct PathPart {
    shares: DeviceBuffer<[u32; 4]>,
    long_count: u32,
    steps: DeviceBuffer<u32>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
    nnz: usize,
    kind: Kind,
}

impl Part for PathPart {
    fn name(&self) -> &'static str {
        "merge-path"
    }

    fn entry(&self, _: Operation) -> Option<&'static Entry> {
        let Kind { dtype, steps } = self.kind;
        windrow_kernels::entry(Variant::MergePath { dtype, steps })
    }

    fn most_columns(&self) -> u32 {
        MOST_COLUMNS
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        let params = MergePathParams {
            dense: operands.dense,
            shares: self.shares.pointer(),
            steps: if self.steps.is_empty() { GlobalPtr::NULL } else { self.steps.pointer() },
            col_indices: if self.nnz == 0 { GlobalPtr::NULL } else { self.col_indices.pointer() },
            values: if self.nnz == 0 { GlobalPtr::NULL } else { self.values.pointer().cast() },
            long_count: self.long_count,
            reserved: 0,
        };
        // SAFETY: the arrays were made of a valid CSR matrix by `Path::cut`, which keeps the obligations, and belong
        // to the plan, which frees them after the machine's work; the dense operands are the caller's promise.
        unsafe { stream.start(entry, wide(self.shares.len()), params.dense.n(), &params) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.values.copy_from_slice(&padded_values(values)?)
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        ValueSlots::InOrder { out: self.values.pointer().cast(), count: self.nnz }
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            read_array("shares", &self.shares)?,
            read_array("steps", &self.steps)?,
            read_array("col_indices", &self.col_indices)?,
            read_array("values", &self.values)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use windrow_kernels::F32;
    use windrow_kernels::spmm::merge_path::MergePath;

    use super::*;
    use crate::options::RowDivision;

    #[test]
    fn steps_follow_the_size_unless_they_are_asked_for() {
        let open = SpmmOptions::default();
        let steps = |rows, nnz, options: &SpmmOptions| cuts(rows, nnz, options, 132).steps;
        assert_eq!(steps(230_927, 7_713_552, &open), 15, "COLLAB");
        assert_eq!(steps(36_692, 367_662, &open), 7, "email-Enron");
        assert_eq!(steps(17_758, 126_150, &open), 3, "memplus");
        assert_eq!(steps(0, 0, &open), 3);
        for (point, expected) in
            [("{<4 nnz, 1 col>, 32}", 3), ("{<8 nnz, 1 col>, 32}", 7), ("{<16 nnz, 1 col>, 32}", 15)]
        {
            let asked = SpmmOptions { parallelism: Some(point.parse().unwrap()), ..SpmmOptions::default() };
            assert_eq!(steps(10, 10, &asked), expected, "{point}");
        }
        let two = SpmmOptions { parallelism: Some("{<2 nnz, 1 col>, 2}".parse().unwrap()), ..open };
        assert_eq!(steps(10, 10_000_000, &two), 3, "as few as there are");
        assert_eq!([MergePath::<F32, 1>::P, MergePath::<F32, 2>::P, MergePath::<F32, 4>::P], [3, 7, 15]);
        for (steps, _) in STEPS {
            assert!(windrow_kernels::entry(Variant::MergePath { dtype: Dtype::F32, steps }).is_some());
        }
    }

    #[test]
    fn rows_are_cut_where_one_would_outlast_the_rest() {
        let open = SpmmOptions::default();
        let limits = |nnz, options: &SpmmOptions| {
            let Cuts { longest, piece, .. } = cuts(10, nnz, options, 10);
            (longest, piece)
        };
        assert_eq!(limits(1000, &open), (1 << 14, 1 << 13));
        assert_eq!(limits(8_000_000, &open), (200_000, 100_000));
        let row_division = RowDivision { piece_entries: Some(100), ..RowDivision::default() };
        assert_eq!(limits(1000, &SpmmOptions { row_division, ..open }), (150, 100));
        let row_division = RowDivision { piece_entries: Some(u32::MAX), ..RowDivision::default() };
        assert_eq!(limits(1000, &SpmmOptions { row_division, ..open }), (3 << 29, 1 << 30));
    }
}
