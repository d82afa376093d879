//! A plan of reductions on a machine that runs kernels.

use windrow_kernels::aggregate::{AggregateJoinParams, AggregateParams, MessageCode};
use windrow_kernels::output::OutputType;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use super::options::{AggregateOptions, Message, Reduce};
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Blocks, Launcher, OfStream, On, PREPARE, PerStream, WorkspaceMemory, taken_over};
use crate::row_lists::DeviceRows;

/// Columns of a value of the grid's slow axis: few, so that several groups of a warp have entries under way.
const WIDTH: u32 = 32;

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

/// Columns that a slot has room for.
fn slot_columns(options: &AggregateOptions) -> usize {
    options.columns.next_multiple_of(WIDTH as usize)
}

/// Bytes of what pieces leave, for so many slots of rows, and of columns for gradients.
pub(super) fn partial_bytes(options: &AggregateOptions, [rows, columns]: [u32; 2]) -> u64 {
    // With each number goes its winner.
    let of_row = if options.reduce.picks() { 2 } else { 1 };
    4 * wide(slot_columns(options)) * (of_row * u64::from(rows)).max(u64::from(columns))
}

impl GpuAggregate {
    /// The kernel of a pass.
    fn entry(&self, pass: Pass, aligned: bool) -> Result<&'static Entry, DeviceError> {
        let (dtype, vectors, width) = (self.dtype, aligned, WIDTH);
        let picks = self.options.reduce.picks() && pass == Pass::Forward;
        let variant = match pass {
            Pass::Forward | Pass::Backward => {
                Variant::Aggregate { picks, backward: pass == Pass::Backward, dtype, vectors, width }
            }
            Pass::Slopes => Variant::AggregateSlopes { dtype, vectors, width },
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
            warp_rows_log2: rows.warp_rows_log2(entry),
            slot_count: rows.slots,
            slot_columns: narrow(slot_columns(&self.options)),
            out_type: operands.out_type.code(),
            message: match message {
                Message::Copy => MessageCode::Copy,
                Message::Mul => MessageCode::Mul,
                Message::Add => MessageCode::Add,
            } as u32,
            sign: if reduce == Reduce::Min && pass == Pass::Forward { -1.0 } else { 1.0 },
            reserved: 0,
        };
        let launcher = Launcher::main(queue);
        let shares = if pass == Pass::Slopes { 1 } else { wide(columns).div_ceil(u64::from(WIDTH)) };
        let grid = [u64::from(params.blocks()), shares];
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
