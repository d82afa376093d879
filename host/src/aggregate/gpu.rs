//! A plan of reductions on a machine that runs kernels.

use windrow_kernels::aggregate::{
    AGGREGATE_ENTRIES_LOG2, AGGREGATE_WARPS, AggregateJoinParams, AggregateParams, MessageCode,
};
use windrow_kernels::output::OutputType;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::{GlobalPtr, WARP};

use super::options::{AggregateOptions, Message, Reduce};
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Blocks, Launcher, OfStream, On, PREPARE, PerStream, WorkspaceMemory, taken_over};
use crate::row_lists::{DeviceRows, side_by_side_log2, warp_rows_log2};

/// Columns that the lanes of an entry read together for the gradient of the values.
const SLOPE_COLUMNS: u32 = 32;

/// What a launch is of.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    Forward,
    /// The gradient of `X`.
    Backward,
    /// The gradient of the values.
    Slopes,
}

/// A dense matrix as kernels take it.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) address: GlobalPtr<u32>,
    pub(super) ld: u32,
}

impl Rows {
    pub(super) const NONE: Self = Self { address: GlobalPtr::NULL, ld: 0 };
}

/// The operands of a launch as kernels take them.
#[derive(Clone, Copy)]
pub(super) struct KernelOperands {
    /// What is gathered: `X`, or the gradient of the result for that of `X`.
    pub(super) x: Rows,
    /// The gradient of the result, for that of the values.
    pub(super) gradient: Rows,
    pub(super) out: Rows,
    pub(super) out_type: OutputType,
    /// Null for the plan's.
    pub(super) values: GlobalPtr<f32>,
    pub(super) winners: GlobalPtr<u32>,
    /// Whether rows that are read begin at multiples of 16 bytes and have a multiple of that.
    pub(super) aligned: bool,
}

pub(super) struct GpuAggregate {
    pub(super) device: Device,
    pub(super) dtype: Dtype,
    pub(super) options: AggregateOptions,
    pub(super) rows: DeviceRows,
    /// Of the transpose, and where its entries are in the matrix, for gradients.
    pub(super) columns: Option<(DeviceRows, DeviceBuffer<u32>)>,
    /// The matrix's, if they matter.
    pub(super) values: DeviceBuffer<f32>,
    /// Bytes of what pieces leave, on each stream.
    pub(super) partial_bytes: u64,
    pub(super) partial: PerStream<Option<WorkspaceMemory>>,
}

/// Warps that a multiprocessor has at work, about.
const WARPS_AT_WORK: u64 = 16;
/// Logarithm of the fewest lanes that columns are divided for.
const LEAST_LANES_LOG2: u32 = 3;

/// How the lanes of a warp share the columns.
#[derive(Debug, PartialEq)]
struct Share {
    /// Logarithm of the lanes of a group.
    lanes_log2: u32,
    /// Values of the grid's slow axis.
    count: u64,
}

impl Share {
    /// For so many columns, of which a lane has `of_lane`: a group has all of them if a warp has lanes for them, unless
    /// so many warps of such groups leave multiprocessors idle; then it has half as many, and so on.
    fn of(columns: usize, of_lane: u32, warps: u64, multiprocessors: u32) -> Self {
        let lanes = wide(columns).div_ceil(u64::from(of_lane)).max(1);
        let shares = lanes.div_ceil(u64::from(WARP));
        let mut lanes_log2 = lanes.div_ceil(shares).next_power_of_two().ilog2();
        let count = |lanes_log2: u32| lanes.div_ceil(1 << lanes_log2);
        while lanes_log2 > LEAST_LANES_LOG2
            && warps * count(lanes_log2) < WARPS_AT_WORK * u64::from(multiprocessors)
        {
            lanes_log2 -= 1;
        }
        Self { lanes_log2, count: count(lanes_log2) }
    }
}

/// Bytes of what pieces leave, for so many slots of rows, and of columns for gradients.
pub(super) fn partial_bytes(options: &AggregateOptions, [rows, columns]: [u32; 2]) -> u64 {
    // With each number goes its winner.
    let of_row = if options.reduce.picks() { 2 } else { 1 };
    4 * wide(options.columns) * (of_row * u64::from(rows)).max(u64::from(columns))
}

impl GpuAggregate {
    /// The kernel of a pass.
    fn entry(&self, pass: Pass, aligned: bool) -> Result<&'static Entry, DeviceError> {
        let (dtype, vectors) = (self.dtype, aligned);
        let picks = self.options.reduce.picks() && pass == Pass::Forward;
        let variant = match pass {
            Pass::Forward | Pass::Backward => {
                Variant::Aggregate { picks, backward: pass == Pass::Backward, dtype, vectors }
            }
            Pass::Slopes => Variant::AggregateSlopes { dtype, vectors, width: SLOPE_COLUMNS },
        };
        windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "aggregate" })
    }

    /// Name of the kernel for aligned operands.
    pub(super) fn name(&self) -> Result<&'static str, DeviceError> {
        Ok(self.entry(Pass::Forward, true)?.name)
    }

    /// Memory for what pieces leave, unless no row is cut.
    pub(super) fn make_partial(&self) -> Result<Option<WorkspaceMemory>, DeviceError> {
        match self.partial_bytes {
            0 => Ok(None),
            bytes => WorkspaceMemory::alloc(&self.device, index(bytes), "partial results").map(Some),
        }
    }

    fn join() -> Result<&'static Entry, DeviceError> {
        windrow_kernels::entry(Variant::AggregateJoin)
            .ok_or(DeviceError::MissingEntry { name: "aggregate_join" })
    }

    /// Makes and compiles what runs and gradients need on a stream, and waits until it is there.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] on a stream that is captured; those of the device.
    pub(super) fn prepare(&self, on: &On<'_>) -> Result<(), PlanError> {
        let passes: &[Pass] = match self.columns {
            Some(_) => &[Pass::Forward, Pass::Backward, Pass::Slopes],
            None => &[Pass::Forward],
        };
        for (&pass, aligned) in passes.iter().flat_map(|pass| [true, false].map(|aligned| (pass, aligned))) {
            on.machine.load(self.entry(pass, aligned)?)?;
        }
        on.machine.load(Self::join()?)?;
        self.partial.prepare(on, |left| taken_over(left, || self.make_partial()), |_| Ok(()))
    }

    /// Queues passes, one after the other.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what cannot be part of a graph; those of the device.
    ///
    /// # Safety
    /// The operands are live memory of the plan's device until the work is done, of the shapes that the plan was made
    /// for; nothing else touches what is written meanwhile, nothing writes the others. `aligned` is as they are.
    pub(super) unsafe fn run(&self, on: &On<'_>, passes: &[(Pass, KernelOperands)]) -> Result<(), PlanError> {
        let mut entries = vec![Self::join()?];
        for (pass, operands) in passes {
            entries.push(self.entry(*pass, operands.aligned)?);
        }
        let needs_partial = self.partial_bytes > 0;
        let make = |left: &mut dyn Iterator<Item = Option<WorkspaceMemory>>| {
            taken_over(left, || self.make_partial())
        };
        let complete = |state: &mut OfStream<Option<WorkspaceMemory>>, captured: bool| {
            if captured {
                on.check_loaded(entries.iter().copied())?;
            }
            if state.held.is_none() && needs_partial {
                if captured {
                    let what = "the making of a workspace";
                    return Err(DeviceError::Captured { what, remedy: PREPARE }.into());
                }
                state.held = self.make_partial()?;
            }
            Ok(())
        };
        let queue = |queue: &dyn Queue, partial: &mut Option<WorkspaceMemory>| {
            for (pass, operands) in passes {
                // SAFETY: the caller's promise; the workspace is lent for this run, and has room for all slots.
                unsafe { self.queue_pass(queue, *pass, operands, partial.as_ref())? };
            }
            Ok(())
        };
        self.partial.run(on, make, complete, queue)
    }

    /// Queues the launches of a pass.
    ///
    /// # Safety
    /// As for [`run`](Self::run); no other run uses the workspace until all of this one is queued.
    unsafe fn queue_pass(
        &self,
        queue: &dyn Queue,
        pass: Pass,
        operands: &KernelOperands,
        partial: Option<&WorkspaceMemory>,
    ) -> Result<(), DeviceError> {
        let entry = self.entry(pass, operands.aligned)?;
        let (rows, positions) = match (pass, &self.columns) {
            (Pass::Backward, Some((columns, positions))) => (columns, positions.pointer()),
            _ => (&self.rows, GlobalPtr::NULL),
        };
        let AggregateOptions { reduce, message, columns, .. } = self.options;
        let values = match message.has_values() {
            true if operands.values == GlobalPtr::NULL => self.values.pointer(),
            true => operands.values,
            false => GlobalPtr::NULL,
        };
        let of_lane = if operands.aligned { 16 / self.dtype.bytes() } else { 1 };
        let warps = u64::from(AGGREGATE_WARPS) * wide(rows.pieces.len()) + u64::from(rows.rows);
        let share = Share::of(columns, of_lane, warps, self.device.multiprocessors());
        let params = AggregateParams {
            x: operands.x.address,
            gradient: operands.gradient.address,
            out: operands.out.address,
            values,
            winners: operands.winners,
            offsets: rows.offsets.pointer(),
            entries: rows.entries.pointer(),
            positions,
            lengths: if reduce == Reduce::Mean { self.rows.offsets.pointer() } else { GlobalPtr::NULL },
            pieces: rows.pieces.pointer(),
            partial: partial.map_or(GlobalPtr::NULL, |partial| partial.pointer().cast()),
            ldx: operands.x.ld,
            ldg: operands.gradient.ld,
            ldo: operands.out.ld,
            columns: narrow(columns),
            piece_count: narrow(rows.pieces.len()),
            rows: rows.rows,
            longest: rows.longest,
            warp_rows_log2: match pass {
                Pass::Slopes => warp_rows_log2(entry, rows.entries.len(), rows.rows),
                Pass::Forward | Pass::Backward => {
                    let groups_log2 = WARP.ilog2() - share.lanes_log2;
                    side_by_side_log2([groups_log2, AGGREGATE_ENTRIES_LOG2], rows.entries.len(), rows.rows)
                }
            },
            slot_count: rows.slots,
            reserved: 0,
            out_type: operands.out_type.code(),
            message: match message {
                Message::Copy => MessageCode::Copy,
                Message::Mul => MessageCode::Mul,
                Message::Add => MessageCode::Add,
            } as u32,
            sign: if reduce == Reduce::Min && pass == Pass::Forward { -1.0 } else { 1.0 },
            lanes_log2: share.lanes_log2,
        };
        let launcher = Launcher::main(queue);
        // The gradient of the values has a sum over all columns for each entry.
        let grid = [u64::from(params.blocks()), if pass == Pass::Slopes { 1 } else { share.count }];
        // SAFETY: rows and pieces were made of a valid CSR and its transpose by `Division`, which keeps the
        // obligations, and belong to the plan, which frees them after the machine's work; the operands are the caller's
        // promise, and the entry is the one for their alignment.
        unsafe { launcher.start_grid(entry, Blocks { grid, threads: entry.block_threads }, &params)? };
        if rows.cut.is_empty() || pass == Pass::Slopes {
            return Ok(());
        }
        let join = Self::join()?;
        let params = AggregateJoinParams {
            aggregate: params,
            cut: rows.cut.pointer(),
            picks: u32::from(reduce.picks() && pass == Pass::Forward),
            backward: u32::from(pass == Pass::Backward),
        };
        let grid = [wide(rows.cut.len()), 1];
        // SAFETY: as above; every slot was written by the launch before.
        unsafe { launcher.start_grid(join, Blocks { grid, threads: join.block_threads }, &params) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_all_columns_unless_that_leaves_multiprocessors_idle() {
        let share = |columns, of_lane, warps| Share::of(columns, of_lane, warps, 132);
        let of = |lanes_log2, count| Share { lanes_log2, count };
        assert_eq!(share(128, 4, 40_000), of(5, 1));
        assert_eq!(share(128, 8, 40_000), of(4, 1));
        assert_eq!(share(40, 4, 40_000), of(4, 1));
        assert_eq!(share(264, 8, 40_000), of(5, 2));
        assert_eq!(share(3, 1, 40_000), of(2, 1));
        assert_eq!(share(0, 1, 40_000), of(0, 1));
        // 2112 warps are at work.
        assert_eq!(share(128, 4, 2000), of(4, 2));
        assert_eq!(share(128, 4, 600), of(3, 4));
        assert_eq!(share(32, 8, 1), of(2, 1));
    }
}
