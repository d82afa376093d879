//! Blocks of rows: cut, laid out as plans, each in the memory of its pipe or in its own.

use std::ops::Range;
use std::sync::Arc;

use windrow_formats::{Csr, Permutation, Value};

use super::arrange::{Arrangement, PIPES, pitch};
use super::engine::{Block, Engine, FEEDERS, Feeder, Pipe};
use crate::device::{ArrayMemory, BlockLayout, Device, DeviceBuffer, Machine, PinnedBuffer, Stream};
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, wide};
use crate::plan::{ArraySize, On, StageClock, Values, check_memory};
use crate::predict::weigh::vectors_of;
use crate::profile::Profile;
use crate::spmm::build::{Gpu, Ready, plan_shape};
use crate::spmm::builder::SpmmBuilder;
use crate::spmm::decide::{Facts, decide};
use crate::spmm::gpu::GpuPlan;
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::Operation;
use crate::view::DeviceSliceMut;

/// What an array of a block takes beyond its elements, at most, and arrays of a block.
pub(super) const BLOCK_OVERHEAD: u64 = 4 * 512;

/// What the two parts of a workspace take beyond their sums, at most.
const WORKSPACE_OVERHEAD: u64 = 2 * 256;

/// Bytes of a row with so many entries: as many segments as it may be cut into, columns and values.
pub(super) fn row_bytes(entries: u64, element_bytes: u64) -> u64 {
    16 * (1 + entries / 32) + entries * (4 + element_bytes)
}

/// What blocks are made with.
pub(super) struct Making<'a, V: Value> {
    pub(super) builder: &'a SpmmBuilder<'a, Csr<V>>,
    pub(super) device: &'a Device,
    pub(super) machine: &'a dyn Machine,
    pub(super) profile: &'a Profile,
    pub(super) arrangement: &'a Arrangement,
    pub(super) options: SpmmOptions,
    /// `A` on the device, about.
    pub(super) a_bytes: u64,
}

/// Where a block goes.
struct Place<'a> {
    rows: Range<usize>,
    /// Which of the pipes it has.
    number: usize,
    pipe: &'a Pipe,
    /// Bytes that it may have for itself.
    room: u64,
}

/// A block, or that it is larger than the room for one.
enum Made {
    Block(Box<Block>, u64),
    TooLarge(u64),
}

impl<V: Value> Making<'_, V> {
    /// Makes room, and all blocks.
    pub(super) fn engine(&self, clock: &mut StageClock) -> Result<Engine, SpmmError> {
        let Self { builder, device, arrangement, .. } = self;
        let (unit, element_bytes) = (index(arrangement.unit), u64::from(self.options.precision.bytes()));
        let b_pitch = index(pitch(arrangement.slice, element_bytes));
        let room = |what| DeviceBuffer::<u8>::zeroed(device, unit, what);
        let pipe = |_| {
            Ok(Pipe {
                stream: Stream::new(device)?,
                a: Arc::new(room("a block of A")?),
                holds: None,
                c: room("a block of C")?,
                workspace: room("workspace")?,
            })
        };
        let b_bytes = builder.a.cols() * b_pitch;
        let feeder = |_| {
            let piece = PinnedBuffer::zeroed(device, b_bytes.min(index(arrangement.piece).max(b_pitch)))?;
            Ok(Feeder { stream: Stream::new(device)?, piece })
        };
        let slice = |_| DeviceBuffer::zeroed(device, b_bytes, "a slice of B");
        let mut engine = Engine {
            blocks: Vec::new(),
            pipes: (0..PIPES).map(pipe).collect::<Result<_, DeviceError>>()?,
            feeders: (0..FEEDERS).map(feeder).collect::<Result<_, DeviceError>>()?,
            slices: (0..arrangement.buffers).map(slice).collect::<Result<_, _>>()?,
            results: (0..=PIPES).map(|_| PinnedBuffer::zeroed(device, unit)).collect::<Result<_, _>>()?,
            resident_bytes: 0,
            backwards: false,
            device: (*device).clone(),
            cols: builder.a.cols(),
            slice: arrangement.slice,
            element_bytes,
        };
        clock.end("room");
        let total = builder.a.nnz().max(1) as f64;
        let a_bytes = self.a_bytes as f64;
        let share = arrangement.resident_bytes as f64 / a_bytes.max(1.0);
        let mut left = self.ranges();
        left.reverse();
        let mut seen = 0;
        while let Some(rows) = left.pop() {
            let entries = builder.a.row_offsets()[rows.end] - builder.a.row_offsets()[rows.start];
            // Blocks that stay lie among those that are streamed: while one is multiplied another comes.
            let due = share * a_bytes * (seen + entries) as f64 / total;
            let stays = share >= 1.0 || (engine.resident_bytes as f64) < due;
            let room = if stays { arrangement.resident_bytes - engine.resident_bytes } else { 0 };
            match self.block(rows.clone(), &engine, room)? {
                Made::Block(block, resident) => {
                    engine.resident_bytes += resident;
                    engine.blocks.push(*block);
                    seen += entries;
                }
                Made::TooLarge(bytes) if rows.len() < 2 => {
                    let remedy = "raise the limit, or split the matrix by rows and multiply the pieces";
                    let array = ArraySize { name: "a block of one row", bytes };
                    check_memory(&[array], Some(arrangement.unit), remedy)?;
                }
                Made::TooLarge(_) => {
                    let middle = rows.start + rows.len() / 2;
                    left.push(middle..rows.end);
                    left.push(rows.start..middle);
                }
            }
        }
        clock.end("blocks");
        Ok(engine)
    }

    /// Rows whose entries, and whose rows of a slice of `C`, should fit a block.
    fn ranges(&self) -> Vec<Range<usize>> {
        let a = self.builder.a;
        let Arrangement { slice, unit, .. } = *self.arrangement;
        let bytes = u64::from(self.options.precision.bytes());
        let sums = pitch(slice, u64::from(self.options.precision.dtype().sum_bytes()));
        let most_rows = index(unit / sums.max(1)).max(1);
        let room = unit.saturating_sub(BLOCK_OVERHEAD).max(1);
        let mut ranges = Vec::new();
        let mut start = 0;
        let mut taken = 0;
        for row in 0..a.rows() {
            let own = 16 + wide(a.row_len(row)) * (4 + bytes);
            if row > start && (taken + own > room || row - start >= most_rows) {
                ranges.push(start..row);
                (start, taken) = (row, 0);
            }
            taken += own;
        }
        if start < a.rows() {
            ranges.push(start..a.rows());
        }
        ranges
    }

    /// A block of some rows, which stays on the device if it fits `room`, and what it takes there then.
    fn block(&self, rows: Range<usize>, engine: &Engine, room: u64) -> Result<Made, SpmmError> {
        let Self { builder, device, machine, profile, options, .. } = self;
        let a = builder.a.row_block(rows.clone())?;
        let order = self.order_of(&rows)?;
        let mut of_block = builder.for_matrix(&a).options(*options);
        of_block.order = order.as_ref();
        let values = Values::new(options.precision, a.values());
        let own_order = order.is_none() && options.reorder.is_none();
        let facts = Facts::of(a.pattern(), values.exceptions, true, own_order);
        let decision = decide(&facts, options, profile, &mut || Ok(vectors_of(&a)?))?;
        let gpu = Gpu { device, machine: *machine, profile, facts: &facts };
        let pipe = engine.blocks.len() % PIPES;
        of_block.laid_out(gpu, decision, &mut StageClock::start(), |ready, _| {
            self.placed(ready, &values, Place { rows, number: pipe, pipe: &engine.pipes[pipe], room })
        })
    }

    /// The order within a block that an order of all rows is.
    fn order_of(&self, rows: &Range<usize>) -> Result<Option<Permutation>, SpmmError> {
        let Some(order) = self.builder.order else { return Ok(None) };
        let mut own: Vec<u32> = (0..narrow(rows.len())).collect();
        own.sort_unstable_by_key(|&row| order.to_new(rows.start + row as usize));
        Ok(Some(Permutation::try_from_new_to_old(own)?))
    }

    /// A block that is laid out, in the memory of its pipe or in its own.
    fn placed(
        &self,
        Ready { decision, laid, .. }: Ready<'_>,
        values: &Values<'_, V>,
        Place { rows, number, pipe, room }: Place<'_>,
    ) -> Result<Made, SpmmError> {
        let unit = self.arrangement.unit;
        let shape = plan_shape(&self.options, decision.way, rows.len());
        let bytes = BlockLayout::bytes(laid.arrays().iter().map(|array| array.bytes));
        let (_, workspace) = GpuPlan::sizes(&laid, shape);
        let largest = bytes.max(workspace + WORKSPACE_OVERHEAD);
        if largest > unit {
            return Ok(Made::TooLarge(largest));
        }
        let stays = bytes <= room;
        let block = match stays {
            true => Arc::new(DeviceBuffer::alloc(self.device, index(bytes), "a block of A")?),
            false => Arc::clone(&pipe.a),
        };
        let layout = BlockLayout::new(&block);
        let (plan, _) = GpuPlan::upload(ArrayMemory::Block(&layout), values, laid, shape)?;
        let n = narrow(self.arrangement.slice);
        plan.load(self.machine, Operation { n, vectors: true, column_major: false })?;
        let content = layout.into_content();
        let content = match stays {
            true => {
                // SAFETY: the content was measured as it was laid out, and the block is no smaller; the content is
                // ordinary memory.
                unsafe { self.machine.queue_upload(block.address(), &content)? };
                None
            }
            false => Some(PinnedBuffer::from_slice(self.device, &content)?),
        };
        let on = On::of(&pipe.stream, self.device, false)?;
        let len = index(plan.workspace_bytes(false));
        // SAFETY: the first of the pipe's workspace, which has a unit, and lives as long as the block's plan.
        let memory = unsafe { DeviceSliceMut::from_raw(self.device, pipe.workspace.address(), len)? };
        // SAFETY: only this pipe's plans use it, all of them in its stream.
        unsafe { plan.set_workspace(&on, &memory)? };
        let resident = if stays { bytes } else { 0 };
        Ok(Made::Block(Box::new(Block { rows, pipe: number, plan, content }), resident))
    }
}
