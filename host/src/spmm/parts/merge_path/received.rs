//! The path of a matrix that is on the device, cut into shares by kernels.

use windrow_kernels::Variant;
use windrow_kernels::paths::{CHUNK_ROWS, PathsParams};
use windrow_kernels::spmm::merge_path::THREADS;
use windrow_simt::GlobalPtr;

use super::path::{Cuts, Path};
use super::{Kind, PathPart, VECTOR, cuts};
use crate::csr::Received;
use crate::device::{ArrayMemory, Device, DeviceBuffer};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};
use crate::options::Determinism;
use crate::plan::{ArraySize, GivenValues, push};
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::{CutRows, LaidOut, Layout, LayoutFacts, Part, Placement};
use crate::spmm::preprocess::Scratch;
use crate::spmm::sums::wide_first;

/// Rows that kernels can mark, twice over.
const MOST_ROWS: usize = 1 << 30;

/// Whether kernels cut the path of so many rows.
pub(in crate::spmm) fn fits_kernels(rows: usize) -> bool {
    (1..=MOST_ROWS).contains(&rows)
}

/// The whole matrix, which is on the device and [fits](fits_kernels).
pub(in crate::spmm) fn lay_out_received(
    options: &SpmmOptions,
    device: &Device,
    mut a: Received,
) -> Result<LaidOut<'static>, SpmmError> {
    let cuts = cuts(a.rows, a.nnz, options, device.multiprocessors());
    let (shares, mut path) = Shares::cut(device, &a, cuts, options.determinism)?;
    let facts = LayoutFacts {
        scalar_rows: wide(a.rows),
        scalar_entries: wide(a.nnz),
        split: wide(path.split_rows.len()),
        split_rows: wide(path.split_rows.len()),
        ..LayoutFacts::default()
    };
    let rows = wide_first(std::mem::take(&mut path.split_rows))?;
    let cut = CutRows { rows, slot_rows: u64::from(path.slots), ..CutRows::default() };
    let kind = Kind { dtype: options.precision.dtype(), steps: cuts.steps };
    // Kernels read no further than whole vectors.
    let entries = a.nnz.next_multiple_of(VECTOR);
    a.col_indices.truncate(entries);
    a.values.truncate(entries * a.dtype.bytes() as usize);
    Ok(LaidOut::one(ReceivedPath { shares, kind, a }, cut, facts))
}

/// The shares of a path in device memory.
struct Shares {
    shares: DeviceBuffer<[u32; 4]>,
    long_count: u32,
    steps: DeviceBuffer<u32>,
}

impl Shares {
    /// The path of a matrix with rows; what the host has cut of it, the rows with more steps than a block, is the
    /// second part of what is returned.
    fn cut(
        device: &Device,
        a: &Received,
        cuts: Cuts,
        determinism: Determinism,
    ) -> Result<(Self, Path), SpmmError> {
        let (chunks, block_steps) = (a.rows.div_ceil(CHUNK_ROWS as usize), THREADS * cuts.steps);
        let exits = chunks * block_steps as usize;
        let bytes = 4 * (wide(3 * a.rows) + wide(exits) + wide(chunks));
        // The ends of arrays, and sums of scans.
        let scratch = Scratch::new(device, bytes + bytes / 128 + (1 << 13))?;
        let mut params = PathsParams {
            row_offsets: a.row_offsets.pointer(),
            next: scratch.array(a.rows, "rows behind shares")?,
            exits: scratch.array(exits, "exits of chunks")?,
            entered: scratch.array(chunks, "first rows of chunks")?,
            marks: scratch.array(2 * a.rows + 1, "rows that begin shares")?,
            long_rows: GlobalPtr::NULL,
            shares: GlobalPtr::NULL,
            steps: GlobalPtr::NULL,
            rows: narrow(a.rows),
            steps_each: cuts.steps,
            block_steps,
            long_count: 0,
            share_count: 0,
            reserved: 0,
        };
        // SAFETY: the offsets were checked, there are rows, and not too many; the arrays have the lengths that the
        // kernels ask for, sums may take the place of what is added up.
        let [count, long] = unsafe {
            scratch.launch(Variant::NextShares, wide(a.rows), &params)?;
            scratch.launch(Variant::ChainShares, 1, &params)?;
            scratch.launch(Variant::MarkShares, wide(a.rows), &params)?;
            scratch.scan(params.marks, 2 * params.rows, false, params.marks)?;
            let count = scratch.read(params.marks.at(params.rows), 1)?;
            // Only a row with so many entries has more steps than a block.
            let both = match a.record.longest >= u64::from(block_steps) {
                true => scratch.read(params.marks.at(2 * params.rows), 1)?,
                false => Vec::new(),
            };
            let count = count.first().copied().unwrap_or_default();
            [count, both.first().map_or(0, |both| both - count)]
        };
        let mut path = Path::default();
        if long > 0 {
            let listed = DeviceBuffer::<[u32; 4]>::alloc(device, long as usize, "long rows")?;
            let params = PathsParams { long_rows: listed.pointer(), ..params };
            // SAFETY: as above; there is room for the rows that were counted.
            unsafe { scratch.launch(Variant::ListShares, wide(a.rows), &params)? };
            let listed = listed.to_vec()?;
            let rows = listed.iter().map(|&[row, begin, end, _]| (row, u64::from(begin)..u64::from(end)));
            path.cut_long(rows, cuts, determinism)?;
        }
        params.long_count = path.long_count;
        params.share_count = count;
        let shares = DeviceBuffer::<[u32; 4]>::alloc(device, path.shares.len() + count as usize, "shares")?;
        let steps = DeviceBuffer::alloc(device, (count * THREADS) as usize, "steps")?;
        (params.shares, params.steps) = (shares.pointer(), steps.pointer());
        // SAFETY: as above; there is room for the shares that were counted, behind those of long rows, which are in a
        // vector.
        unsafe {
            scratch.write(params.shares, &path.shares)?;
            scratch.launch(Variant::ListShares, wide(a.rows), &params)?;
            scratch.launch(Variant::FillSteps, u64::from(count), &params)?;
        }
        Ok((Self { shares, long_count: path.long_count, steps }, path))
    }
}

/// A path that is cut, of a matrix that is on the device.
struct ReceivedPath {
    shares: Shares,
    kind: Kind,
    a: Received,
}

impl Layout for ReceivedPath {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "shares", self.shares.shares.bytes());
        push(sizes, "steps", self.shares.steps.bytes());
        push(sizes, "col_indices", self.a.col_indices.bytes());
        push(sizes, "values", self.a.values.bytes());
    }

    fn placement(&self) -> Placement {
        Placement::InOrder(self.a.nnz)
    }

    fn upload(
        self: Box<Self>,
        _: ArrayMemory<'_>,
        _: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let Self { shares: Shares { shares, long_count, steps }, kind, a } = *self;
        let Received { col_indices, values, nnz, .. } = a;
        Ok(Box::new(PathPart { shares, long_count, steps, col_indices, values, nnz, kind }))
    }
}
