//! A plan on a machine that runs kernels: a GPU, or the emulator, through the same code.

use std::sync::{Mutex, PoisonError};

use windrow_kernels::combine::{Combine, CombineParams};
use windrow_kernels::dense::Dense;
use windrow_kernels::row_split::RowSplitParams;
use windrow_kernels::short_rows::ShortRowsParams;
use windrow_kernels::tile_stream::TileStreamParams;
use windrow_kernels::{Entry, Variant};
use windrow_simt::GlobalPtr;

use super::geometry::grid;
use super::groups::{GroupsPart, MAX_GROUP_COLUMNS};
use super::matricized::MatricizedPart;
use super::parts::{Lookup, RowSplitPart, ShortRowsPart, TilesPart};
use super::places::Places;
use super::select::{self, Demand};
use super::sums::{SplitPart, SplitRows, WideC};
use super::tiles::Form;
use super::values::Bits;
use crate::device::{Machine, Prepared};
use crate::error::{DeviceError, SpmmError};
use crate::num::wide;
use crate::options::{Determinism, Precision};

/// Columns of one launch if nothing is cut: far from the limits of a grid, and a multiple of every slice.
pub(super) const MAX_BLOCK_COLUMNS: u32 = 1 << 20;

/// The parts of a plan in device memory. Every row of `C` is written by exactly one part; segments may add to rows that
/// tiles have written.
pub(super) struct GpuPlan {
    pub(super) precision: Precision,
    pub(super) determinism: Determinism,
    /// Widest slice of `B` for tiles to work on at a time, in columns, if there is a choice.
    pub(super) widest_slice: u32,
    pub(super) row_split: Option<RowSplitPart>,
    pub(super) short_rows: Option<ShortRowsPart>,
    pub(super) groups: Option<GroupsPart>,
    pub(super) matricized: Option<MatricizedPart>,
    pub(super) tiles: Option<TilesPart>,
    pub(super) split: Option<SplitPart>,
    /// Where there are rows with entries in tiles and in segments.
    pub(super) wide_c: Option<WideC>,
    /// Whether CUDA cores work beside the tile stream: no row is then written by one and added to by the other.
    pub(super) beside: bool,
    /// Where new values from the device go; made when they first come, unless asked for before.
    pub(super) places: Option<Places>,
    /// Columns of the workspace, a multiple of 8.
    pub(super) capacity: u32,
    /// Held while the launches of a run are queued: they share the workspace.
    pub(super) queue: Mutex<Queue>,
}

/// What a run leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whether sums of a run may be left in the workspace: one that failed half-way leaves it so.
    unfinished: bool,
    /// The entries of the last launches, and what they are for: finding them among all
    /// entries takes the CPU longer than preparing the launches.
    last: Option<(Operation, Chosen)>,
}

/// What decides the entries of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    /// Columns.
    pub(super) n: u32,
    /// Whether rows of `B`, or columns of a column-major one, are aligned to 16 bytes.
    pub(super) vectors: bool,
    pub(super) column_major: bool,
}

/// The dense operands of a run: addresses, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub(super) b: u64,
    pub(super) ldb: u32,
    /// Whether columns of `B` are contiguous, `ldb` elements from one to the next.
    pub(super) column_major: bool,
    pub(super) c: u64,
    pub(super) ldc: u32,
    pub(super) n: u32,
    pub(super) alpha: f32,
    pub(super) beta: f32,
    pub(super) c_is_half: bool,
}

/// The entries of one launch sequence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chosen {
    pub(super) row_split: Option<&'static Entry>,
    pub(super) short_rows: Option<&'static Entry>,
    pub(super) groups: Option<&'static Entry>,
    pub(super) matricized: Option<&'static Entry>,
    pub(super) tiles: Option<&'static Entry>,
    /// For the sums of what was cut.
    pub(super) combine: Option<&'static Entry>,
    /// For an f16 `C` of a plan that sums it in an f32 matrix.
    rounding: Option<&'static Entry>,
}

impl Chosen {
    pub(super) fn names(&self) -> Vec<&'static str> {
        let all = [self.row_split, self.short_rows, self.groups, self.matricized, self.tiles, self.combine];
        all.into_iter().flatten().map(|entry| entry.name).collect()
    }
}

impl GpuPlan {
    /// The entries for so many columns of a `B` laid out so.
    pub(super) fn choose(&self, Operation { n, vectors, column_major }: Operation) -> Chosen {
        let mean_len = self.row_split.as_ref().map_or(0.0, |part| part.mean_len);
        let packed = self.tiles.as_ref().is_some_and(|part| part.lookup.form() == Form::Packed);
        let (dtype, widest_slice) = (self.precision.dtype(), self.widest_slice);
        let demand = Demand { dtype, n, vectors, mean_len, widest_slice, packed };
        let of_rows = |part: &RowSplitPart| Demand { widest_slice: part.widest_slice, ..demand };
        Chosen {
            row_split: self.row_split.as_ref().and_then(|part| select::row_split(of_rows(part))),
            short_rows: self.short_rows.as_ref().and_then(|_| select::short_rows(demand)),
            groups: self.groups.as_ref().and_then(GroupsPart::entry),
            matricized: self.matricized.as_ref().and_then(|_| MatricizedPart::entry(column_major, vectors)),
            tiles: self.tiles.as_ref().and_then(|_| select::tile_stream(demand)),
            combine: self.split.as_ref().and_then(|_| windrow_kernels::entry(Variant::Combine)),
            rounding: self.wide_c.as_ref().and_then(|_| windrow_kernels::entry(Variant::Combine)),
        }
    }

    /// Queues `C ← α·A·B + β·C`, in blocks of columns.
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `b` is k×n, `c` m×n, of the
    /// plan's element type and of the type `c_is_half` tells, with all rows readable up to `ldb`; nothing
    /// else touches `c` meanwhile, nothing writes `b`.
    pub(super) unsafe fn run(&self, machine: &dyn Machine, operands: Operands) -> Result<(), SpmmError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Determinism::Fast, Some(split)) = (queue.unfinished, self.determinism, &self.split) {
            split.clear()?; // what is accumulated must begin at zero
        }
        queue.unfinished = true;
        let wide_c = self.wide_c.as_ref().filter(|_| operands.c_is_half);
        let block = match wide_c {
            Some(wide_c) => wide_c.columns,
            None if self.split.is_some() => self.capacity,
            None if self.groups.is_some() => MAX_GROUP_COLUMNS,
            None => MAX_BLOCK_COLUMNS,
        };
        let mut first = 0;
        while first < operands.n {
            let dense = self.dense(&operands, first, block.min(operands.n - first));
            // SAFETY: the caller's promise, for these columns of it.
            unsafe {
                match wide_c {
                    Some(wide_c) => self.launch_widened(machine, dense, wide_c, &mut queue)?,
                    None => self.launch_parts(machine, (dense, operands.column_major), &mut queue)?,
                }
            }
            first += dense.n;
        }
        queue.unfinished = false;
        Ok(())
    }

    /// Columns `first..first + n` of the operands.
    fn dense(&self, operands: &Operands, first: u32, n: u32) -> Dense {
        let c_bytes = if operands.c_is_half { 2 } else { 4 };
        let c = operands.c + u64::from(first) * c_bytes;
        let step = if operands.column_major { operands.ldb } else { 1 };
        let b = u64::from(first) * u64::from(step) * u64::from(self.precision.bytes());
        Dense {
            b: GlobalPtr::from_address(operands.b + b),
            c: GlobalPtr::from_address(c),
            partial: self.split.as_ref().map_or(GlobalPtr::NULL, |split| split.partial.pointer()),
            n,
            ldb: operands.ldb,
            ldc: operands.ldc,
            ld_partial: self.capacity,
            alpha: operands.alpha,
            beta: operands.beta,
            c_is_half: u32::from(operands.c_is_half),
            c_vectors: u32::from(c.is_multiple_of(4 * c_bytes) && operands.ldc.is_multiple_of(4)),
            accumulate: u32::from(self.determinism == Determinism::Fast),
            reserved: 0,
        }
    }

    /// Launches the parts, then the sums of what was cut.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that `dense` names.
    unsafe fn launch_parts(
        &self,
        machine: &dyn Machine,
        (dense, column_major): (Dense, bool),
        queue: &mut Queue,
    ) -> Result<(), DeviceError> {
        let bytes = u64::from(self.precision.bytes());
        let vectors =
            dense.b.address().is_multiple_of(16) && (u64::from(dense.ldb) * bytes).is_multiple_of(16);
        let operation = Operation { n: dense.n, vectors, column_major };
        let chosen = match queue.last {
            Some((last, chosen)) if last == operation => chosen,
            _ => queue.last.insert((operation, self.choose(operation))).1,
        };
        let segments_add = !self.beside && self.tiles.is_some();
        if self.beside {
            machine.fork()?;
        }
        // SAFETY: the caller's promise. What runs beside the tiles touches neither their rows of `C` nor their slots.
        let launched = unsafe {
            let lane = if self.beside { Lane::Beside } else { Lane::Main };
            self.launch_short_rows(machine, lane, dense, chosen)
                .and_then(|()| match segments_add {
                    true => Ok(()),
                    false => self.launch_segments(machine, lane, dense, chosen),
                })
                .and_then(|()| match (&self.groups, chosen.groups) {
                    (Some(part), Some(entry)) => part.launch(machine, entry, dense),
                    _ => Ok(()),
                })
                .and_then(|()| match (&self.matricized, chosen.matricized) {
                    (Some(part), Some(entry)) => part.launch(machine, entry, dense),
                    _ => Ok(()),
                })
                .and_then(|()| self.launch_tiles(machine, dense, chosen))
        };
        if self.beside {
            machine.join()?;
        }
        launched?;
        // SAFETY: the slots were written by the launches before, and so were the rows of `C` to which segments and sums
        // add: those of windows by the first of these.
        unsafe {
            self.launch_sums(machine, dense, chosen.combine, |split| split.windows)?;
            if segments_add {
                self.launch_segments(machine, Lane::Main, dense, chosen)?;
            }
            self.launch_sums(machine, dense, chosen.combine, |split| split.cut_rows)
        }
    }

    /// Launches the rows of equal length.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that `dense` names.
    unsafe fn launch_short_rows(
        &self,
        machine: &dyn Machine,
        lane: Lane,
        dense: Dense,
        chosen: Chosen,
    ) -> Result<(), DeviceError> {
        let (Some(part), Some(entry)) = (&self.short_rows, chosen.short_rows) else { return Ok(()) };
        let params = ShortRowsParams {
            dense,
            blocks: part.blocks.pointer(),
            rows: part.rows.pointer(),
            col_indices: part.col_indices.pointer(),
            values: part.values.pointer().cast(),
        };
        // SAFETY: the arrays belong to the plan, which frees them after the machine's work; the blocks were made of a
        // residual's buckets by `short_row_blocks`, which keeps the obligations; the dense operands are the
        // caller's promise, their alignment was looked at when the entry was chosen.
        unsafe { start_in((machine, lane), entry, wide(part.blocks.len()), dense.n, &params) }
    }

    /// Launches the tile stream.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that `dense` names.
    unsafe fn launch_tiles(
        &self,
        machine: &dyn Machine,
        dense: Dense,
        chosen: Chosen,
    ) -> Result<(), DeviceError> {
        let (Some(part), Some(entry)) = (&self.tiles, chosen.tiles) else { return Ok(()) };
        let (bitmaps, record_starts) = match &part.lookup {
            Lookup::Bitmaps(bitmaps) => (bitmaps.pointer(), GlobalPtr::NULL),
            Lookup::RecordStarts(starts) => (GlobalPtr::NULL, starts.pointer()),
        };
        let params = TileStreamParams {
            dense,
            workers: part.workers.pointer(),
            step_cols: part.step_cols.pointer(),
            records: part.records.pointer().cast(),
            bitmaps,
            record_starts,
            worker_count: crate::num::narrow(part.workers.len()),
            reserved: 0,
        };
        // SAFETY: as above; the steps were made of a valid RS-Tile, and dealt out by `deal_steps`; the workspace
        // has a row of `capacity` elements for each row of a slot, and the caller keeps other runs off it.
        unsafe { start(machine, entry, wide(part.workers.len()), dense.n, &params) }
    }

    /// Launches the segments of rows.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that `dense` names; rows to which segments add were written by launches
    /// before.
    unsafe fn launch_segments(
        &self,
        machine: &dyn Machine,
        lane: Lane,
        dense: Dense,
        chosen: Chosen,
    ) -> Result<(), DeviceError> {
        let (Some(part), Some(entry)) = (&self.row_split, chosen.row_split) else { return Ok(()) };
        let params = RowSplitParams {
            dense,
            segments: part.segments.pointer(),
            col_indices: part.col_indices.pointer(),
            values: part.values.pointer().cast(),
            segment_count: crate::num::narrow(part.segments.len()),
            reserved: 0,
        };
        // SAFETY: the arrays were made of a valid CSR by `row_segments`, which keeps the obligations, and belong to the
        // plan, which frees them after the machine's work; the dense operands are the caller's promise, their alignment
        // was looked at when the entry was chosen; the workspace has a row of `capacity` elements for each slot, and the
        // caller keeps other runs off it.
        unsafe { start_in((machine, lane), entry, wide(part.segments.len()), dense.n, &params) }
    }

    /// Adds up the partial sums of some rows.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that `dense` names; their slots were written earlier in the stream,
    /// and so was what sums are added to.
    unsafe fn launch_sums(
        &self,
        machine: &dyn Machine,
        dense: Dense,
        entry: Option<&'static Entry>,
        of: impl Fn(&SplitPart) -> SplitRows,
    ) -> Result<(), DeviceError> {
        let (Some(split), Some(entry)) = (&self.split, entry) else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { split.launch(machine, entry, dense, of(split)) }
    }

    /// Launches the parts for an f32 matrix in place of an f16 `C`, then rounds their sums.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the columns that `dense` names, no more than `wide_c` has.
    unsafe fn launch_widened(
        &self,
        machine: &dyn Machine,
        dense: Dense,
        wide_c: &WideC,
        queue: &mut Queue,
    ) -> Result<(), DeviceError> {
        let (c, columns) = (wide_c.c.pointer(), wide_c.columns);
        let sums =
            Dense { c: c.cast(), ldc: columns, alpha: 1.0, beta: 0.0, c_is_half: 0, c_vectors: 1, ..dense };
        // SAFETY: the matrix has the rows of `C` and these columns, and `queue` keeps other runs off it.
        unsafe { self.launch_parts(machine, (sums, false), queue)? };
        let Some(entry) = queue.last.and_then(|(_, chosen)| chosen.rounding) else { return Ok(()) };
        let params = CombineParams {
            dense: Dense { partial: c, ld_partial: columns, accumulate: 0, ..dense },
            rows: wide_c.rows.pointer(),
            row_count: crate::num::narrow(wide_c.rows.len()),
            wide_count: 0,
        };
        let blocks = Combine::blocks(params.row_count, params.wide_count);
        // SAFETY: every row of the matrix was written by the launches before; each row of `C` is listed once.
        unsafe { start(machine, entry, u64::from(blocks), dense.n, &params) }
    }

    /// New values in CSR order, for the same pattern. Work queued before still uses the old ones.
    pub(super) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        if let Some(part) = &mut self.row_split {
            part.replace_values(values)?;
        }
        if let Some(part) = &mut self.short_rows {
            part.values.copy_from_slice(values.gather(&part.sources).bytes())?;
        }
        if let Some(part) = &mut self.groups {
            part.replace_values(values)?;
        }
        if let Some(part) = &mut self.matricized {
            part.replace_values(values)?;
        }
        if let Some(part) = &mut self.tiles {
            part.replace_values(values)?;
        }
        Ok(())
    }

    /// Whether Tensor Cores take part, whose rounding is not that of a fused multiply-add.
    pub(super) fn uses_tensor_cores(&self) -> bool {
        self.tiles.is_some() || self.matricized.is_some()
    }
}

/// Which of a machine's launches one is ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// All others.
    Main,
    /// Those before a fork and after a join.
    Beside,
}

/// Starts an entry over `units` units of work and `n` columns.
///
/// # Safety
/// As for [`Prepared::new`].
pub(crate) unsafe fn start<P: bytemuck::Pod>(
    machine: &dyn Machine,
    entry: &'static Entry,
    units: u64,
    n: u32,
    params: &P,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's promise.
    unsafe { start_in((machine, Lane::Main), entry, units, n, params) }
}

/// [`start`] in a lane.
///
/// # Safety
/// As for [`Prepared::new`].
pub(crate) unsafe fn start_in<P: bytemuck::Pod>(
    (machine, lane): (&dyn Machine, Lane),
    entry: &'static Entry,
    units: u64,
    n: u32,
    params: &P,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's promise; the grid is the entry's for this work.
    match (unsafe { Prepared::new(entry, grid(entry, units, n), params) }?, lane) {
        (Some(prepared), Lane::Main) => machine.launch(&prepared),
        (Some(prepared), Lane::Beside) => machine.launch_beside(&prepared),
        (None, _) => Ok(()),
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use windrow_formats::Csr;

    use super::*;
    use crate::device::{Device, DeviceBuffer};
    use crate::spmm::plan::Body;
    use crate::{Algorithm, DenseRef, DeviceMatrix, EmulatorSchedule, Spmm};

    /// Sixteen rows of 2400 ones, all cut.
    fn cut_rows() -> Csr<f32> {
        let offsets = (0..=16).map(|row| 2400 * row).collect();
        let columns = (0..16).flat_map(|_| 0..2400).collect();
        Csr::try_from_parts(16, 2400, offsets, columns, vec![1.0; 16 * 2400]).unwrap()
    }

    #[test]
    fn sums_of_a_failed_run_are_not_added_to_the_next() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let ones = [1.0f32; 2400];
        let b = DeviceMatrix::upload(&device, DenseRef::packed(&ones, 2400, 1).unwrap()).unwrap();
        for (algorithm, precision) in
            [(Algorithm::RowSplit, Precision::F32), (Algorithm::TileStream, Precision::Tf32)]
        {
            let plan = Spmm::builder(&cut_rows())
                .width(1)
                .algorithm(algorithm)
                .precision(precision)
                .determinism(Determinism::Fast)
                .workers(20)
                .build(&device)
                .unwrap();
            let Body::Gpu(parts) = &plan.body else { panic!("the emulator runs kernels") };
            let partial = || parts.split.as_ref().expect("rows are cut").partial.to_vec().unwrap();
            let lost = DeviceBuffer::<f32>::alloc_zeroed(&device, 16).unwrap().address();
            let operands = Operands {
                b: b.buffer().address(),
                ldb: crate::num::narrow(b.ld()),
                column_major: false,
                c: lost,
                ldc: 1,
                n: 1,
                alpha: 1.0,
                beta: 0.0,
                c_is_half: false,
            };
            // SAFETY: `c` was freed, which the emulator reports; nothing is undefined there.
            unsafe { parts.run(device.machine().unwrap(), operands) }.unwrap_err();
            assert!(partial().iter().any(|&sum| sum != 0.0), "{algorithm}: sums are left");
            for _ in 0..2 {
                assert_eq!(plan.run(&ones).unwrap(), [2400.0; 16], "{algorithm}");
                assert!(partial().iter().all(|&sum| sum == 0.0), "{algorithm}: all were taken");
            }
        }
    }
}
