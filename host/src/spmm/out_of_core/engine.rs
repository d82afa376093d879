//! The loop of a product: blocks of `A` come, are multiplied by a slice of `B`, and the blocks of `C` go.
//!
//! Each pipe has a stream, in which all that happens to its blocks is in order; while one pipe's block is multiplied
//! the next one's comes and the last one's result goes. Slices of `B` come in streams of their own, which wait for the
//! products with what was there before; pipes wait for all of a slice.

use std::ops::Range;
use std::sync::Arc;

use windrow_kernels::Factor;
use windrow_kernels::output::OutputType;

use super::arrange::{PIPES, pitch};
use super::host_side::{InPlace, Sink, Source};
use crate::device::{CopyWay, Device, DeviceBuffer, HostAddress, PinnedBuffer, Queue, RowCopy, Stream};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::plan::{Budget, On};
use crate::spmm::gpu::GpuPlan;
use crate::spmm::operands::{Finish, Operands};

/// Pieces under way at a time.
pub(super) const FEEDERS: usize = 3;
/// Shorter pieces of rows are brought together on the host, page-locked or not: the copy engine takes as long for one
/// as for four times as much.
const LEAST_ROW_BYTES: usize = 64;

/// What is under way at a time.
pub(super) struct Pipe {
    pub(super) stream: Stream,
    /// Room for a block of `A` that does not stay.
    pub(super) a: Arc<DeviceBuffer<u8>>,
    /// The block that is there, or on its way.
    pub(super) holds: Option<usize>,
    pub(super) c: DeviceBuffer<u8>,
    /// Lent to the plans of the pipe's blocks.
    pub(super) workspace: DeviceBuffer<u8>,
}

/// Brings pieces of `B`.
pub(super) struct Feeder {
    pub(super) stream: Stream,
    pub(super) piece: PinnedBuffer<u8>,
}

/// Some rows of `A`.
pub(super) struct Block {
    pub(super) rows: Range<usize>,
    pub(super) pipe: usize,
    pub(super) plan: GpuPlan,
    /// What is copied to the pipe before each product; none for a block that stays on the device.
    pub(super) content: Option<PinnedBuffer<u8>>,
}

/// A matrix in blocks, and what its products need.
pub(super) struct Engine {
    // First: their plans use memory of the pipes.
    pub(super) blocks: Vec<Block>,
    pub(super) pipes: Vec<Pipe>,
    pub(super) feeders: Vec<Feeder>,
    /// Room for slices of `B`.
    pub(super) slices: Vec<DeviceBuffer<u8>>,
    /// Blocks of `C` on the host: one for each pipe, and one that is stored.
    pub(super) results: Vec<PinnedBuffer<u8>>,
    /// Bytes of the blocks that stay on the device.
    pub(super) resident_bytes: u64,
    /// Whether the next slice meets the blocks from the last to the first: what pipes hold then is met first, and does
    /// not come again.
    pub(super) backwards: bool,
    pub(super) device: Device,
    pub(super) cols: usize,
    /// Columns of a slice.
    pub(super) slice: usize,
    /// Bytes of an element of `B`.
    pub(super) element_bytes: u64,
}

/// What a product does.
pub(super) struct Product<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) sink: &'a mut dyn Sink,
    pub(super) alpha: Factor,
    pub(super) beta: Factor,
    /// Whether `C` is read, β being no zero.
    pub(super) reads_c: bool,
    pub(super) c_type: OutputType,
    /// Bytes of an element of `C` on the device.
    pub(super) c_bytes: u64,
    /// Columns of `B` and `C`.
    pub(super) width: usize,
}

/// Waits for these streams when it goes, unless that was done, whatever happened: nothing uses the host's memory after
/// that.
struct Settled(Vec<Arc<dyn Queue>>);

impl Settled {
    fn wait(&mut self) -> Result<(), DeviceError> {
        std::mem::take(&mut self.0).iter().map(|queue| queue.synchronize()).fold(Ok(()), Result::and)
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        let _ = self.wait(); // an error was told already
    }
}

/// A slice of `B` on its way.
struct Coming {
    cols: Range<usize>,
    /// Which room it goes to.
    room: usize,
    /// Rows that were sent.
    sent: usize,
    /// Pieces that were sent.
    pieces: usize,
}

/// A block whose result is on its way.
#[derive(Clone)]
struct Going {
    rows: Range<usize>,
    cols: Range<usize>,
    /// Which of the [`results`](Engine::results) it goes to; none where it goes to its place.
    result: Option<usize>,
}

impl Engine {
    /// Does a product, and waits for it.
    ///
    /// # Errors
    /// Those of the device. What is in `C` then is of no use.
    pub(super) fn run(&mut self, product: &mut Product<'_>) -> Result<(), PlanError> {
        let streams =
            self.pipes.iter().map(|pipe| &pipe.stream).chain(self.feeders.iter().map(|f| &f.stream));
        let mut settled = Settled(streams.filter_map(Stream::shared_queue).cloned().collect());
        let (source_at, sink_at) = (product.source.in_place(), product.sink.in_place());
        let mut running =
            Running { engine: self, product, source_at, sink_at, going: [const { None }; PIPES] };
        let outcome = running.slices().and_then(|()| Ok(settled.wait()?));
        if outcome.is_err() {
            self.pipes.iter_mut().for_each(|pipe| pipe.holds = None); // who knows what came
        }
        outcome
    }

    /// Bytes of blocks that come for a slice, one way and the other together: those that pipes hold do not.
    pub(super) fn bytes_there_and_back(&self) -> u64 {
        let streamed = || self.blocks.iter().filter_map(|b| Some((b.pipe, wide(b.content.as_ref()?.len()))));
        let of_pipe = |pipe: usize| streamed().filter(move |(of, _)| *of == pipe).map(|(_, bytes)| bytes);
        let held = (0..PIPES).filter_map(|pipe| Some(of_pipe(pipe).next()? + of_pipe(pipe).last()?));
        2 * streamed().map(|(_, bytes)| bytes).sum::<u64>() - held.sum::<u64>()
    }
}

/// A product under way.
struct Running<'e, 'p, 'a> {
    engine: &'e mut Engine,
    product: &'p mut Product<'a>,
    source_at: Option<InPlace>,
    sink_at: Option<InPlace>,
    /// The block of each pipe whose result was not stored yet.
    going: [Option<Going>; PIPES],
}

impl Running<'_, '_, '_> {
    fn slices(&mut self) -> Result<(), PlanError> {
        let (width, slice) = (self.product.width, self.engine.slice);
        let rooms = self.engine.slices.len();
        let columns = |at: usize| at * slice..width.min((at + 1) * slice);
        let count = width.div_ceil(slice);
        let mut next = Some(self.begin(columns(0), 0)?);
        for at in 0..count {
            let mut coming = match next.take() {
                Some(coming) => coming,
                None => self.begin(columns(at), at % rooms)?,
            };
            self.send(&mut coming, self.engine.cols)?;
            self.arrived()?;
            if rooms > 1 && at + 1 < count {
                next = Some(self.begin(columns(at + 1), (at + 1) % rooms)?);
            }
            let blocks = self.engine.blocks.len();
            for block in 0..blocks {
                let met = if self.engine.backwards { blocks - 1 - block } else { block };
                self.multiply(met, &coming)?;
                if let Some(coming) = &mut next {
                    self.send(coming, self.engine.cols * (block + 1) / blocks)?;
                }
            }
            self.engine.backwards = !self.engine.backwards;
        }
        (0..PIPES).try_for_each(|pipe| self.finish(pipe))
    }

    /// A slice that comes after all products that were asked for so far.
    fn begin(&self, cols: Range<usize>, room: usize) -> Result<Coming, DeviceError> {
        for (feeder, pipe) in
            self.engine.feeders.iter().flat_map(|f| self.engine.pipes.iter().map(move |p| (f, p)))
        {
            if let (Some(feeder), Some(pipe)) = (feeder.stream.queue(), pipe.stream.queue()) {
                feeder.wait_for(pipe.fence())?;
            }
        }
        Ok(Coming { cols, room, sent: 0, pieces: 0 })
    }

    /// Sends rows of a slice, unless they were.
    fn send(&mut self, coming: &mut Coming, rows: usize) -> Result<(), DeviceError> {
        let Engine { feeders, slices, cols: all, element_bytes, .. } = &mut *self.engine;
        let Some(room) = slices.get(coming.room).map(DeviceBuffer::address) else { return Ok(()) };
        let bytes = index(*element_bytes);
        let (row_bytes, device_pitch) =
            (coming.cols.len() * bytes, index(pitch(coming.cols.len(), *element_bytes)));
        let in_place = self.source_at.filter(|at| row_bytes >= LEAST_ROW_BYTES || at.pitch == row_bytes);
        while coming.sent < rows {
            let feeder = &mut feeders[coming.pieces % FEEDERS];
            let Some(queue) = feeder.stream.queue() else { return Ok(()) };
            let device = room + wide(coming.sent * device_pitch);
            let (host, host_pitch, row_bytes, count) = match in_place {
                // All at once: nothing is left for the host to do.
                Some(at) => {
                    let first = coming.sent * at.pitch + coming.cols.start * bytes;
                    // SAFETY: within the matrix, which has these rows and columns.
                    let host = HostAddress(unsafe { at.address.0.add(first) });
                    (host, at.pitch, row_bytes, *all - coming.sent)
                }
                None => {
                    queue.synchronize()?; // what was in the piece has gone
                    let count = (feeder.piece.len() / device_pitch.max(1)).clamp(1, *all - coming.sent);
                    let piece = &mut feeder.piece[..count * device_pitch];
                    self.product.source.pack(coming.sent..coming.sent + count, coming.cols.clone(), piece);
                    (feeder.piece.address(), device_pitch, device_pitch, count)
                }
            };
            let copy = RowCopy { host, host_pitch, device, device_pitch, rows: count, row_bytes };
            // SAFETY: the room has that many rows of a slice, none wider; pipes read it after `arrived`, and have read
            // what was there before: `begin`. The host's memory is `B`, which is borrowed until the run has settled, or
            // the feeder's, which waits before it writes again.
            unsafe { queue.copy_rows(CopyWay::ToDevice, copy)? };
            queue.mark()?;
            coming.sent += count;
            coming.pieces += 1;
        }
        Ok(())
    }

    /// Has all pipes go on after what feeders were asked for.
    fn arrived(&self) -> Result<(), DeviceError> {
        for (pipe, feeder) in
            self.engine.pipes.iter().flat_map(|p| self.engine.feeders.iter().map(move |f| (p, f)))
        {
            if let (Some(pipe), Some(feeder)) = (pipe.stream.queue(), feeder.stream.queue()) {
                pipe.wait_for(feeder.fence())?;
            }
        }
        Ok(())
    }

    /// Has a block multiplied by a slice, after the last block of its pipe, whose result is stored meanwhile.
    fn multiply(&mut self, block: usize, slice: &Coming) -> Result<(), PlanError> {
        let pipe = self.engine.blocks[block].pipe;
        let before = self.take(pipe)?;
        let is_used =
            |result| self.going.iter().chain([&before]).flatten().any(|going| going.result == Some(result));
        let result = match self.sink_at {
            Some(_) => None,
            None => (0..self.engine.results.len()).find(|&result| !is_used(result)),
        };
        let going = Going { rows: self.engine.blocks[block].rows.clone(), cols: slice.cols.clone(), result };
        self.queue(block, slice.room, &going)?;
        self.going[pipe] = Some(going);
        before.iter().for_each(|before| self.store(before));
        Ok(())
    }

    /// Queues a block's copies and its product.
    fn queue(&mut self, block: usize, room: usize, going: &Going) -> Result<(), PlanError> {
        let Engine { blocks, pipes, slices, results, device, element_bytes, .. } = &mut *self.engine;
        let Product { sink, alpha, beta, reads_c, c_type, c_bytes, .. } = &mut *self.product;
        let Block { pipe, plan, content, .. } = &mut blocks[block];
        let pipe = &mut pipes[*pipe];
        let on = On::of(&pipe.stream, device, false)?;
        if let Some(content) = content.as_mut().filter(|_| pipe.holds != Some(block)) {
            let bytes = content.len();
            let (host, device) = (content.address(), pipe.a.address());
            let copy =
                RowCopy { host, host_pitch: bytes, device, device_pitch: bytes, rows: 1, row_bytes: bytes };
            // SAFETY: the block fits the pipe's room, which the products of this stream alone read; its content is
            // never written.
            unsafe { on.queue.copy_rows(CopyWay::ToDevice, copy)? };
            pipe.holds = Some(block);
        }
        let columns = going.cols.len();
        let (b_pitch, c_pitch) = (pitch(columns, *element_bytes), pitch(columns, *c_bytes));
        let (rows, device_pitch) = (going.rows.len(), index(c_pitch));
        let c = pipe.c.address();
        let copy = match (self.sink_at, going.result) {
            (Some(at), _) => {
                let first = going.rows.start * at.pitch + going.cols.start * index(*c_bytes);
                // SAFETY: within `C`, which has these rows and columns.
                let host = HostAddress(unsafe { at.address.0.add(first) });
                let row_bytes = columns * index(*c_bytes);
                RowCopy { host, host_pitch: at.pitch, device: c, device_pitch, rows, row_bytes }
            }
            (None, result) => {
                let result = &mut results[result.unwrap_or(0)];
                if *reads_c {
                    let to = &mut result[..rows * device_pitch];
                    sink.load(going.rows.clone(), going.cols.clone(), to);
                }
                let host = result.address();
                RowCopy {
                    host,
                    host_pitch: device_pitch,
                    device: c,
                    device_pitch,
                    rows,
                    row_bytes: device_pitch,
                }
            }
        };
        if *reads_c {
            // SAFETY: the rows fit the pipe's room for `C`; on the host they are `C`'s own, borrowed until the run has
            // settled, or a result that nobody else uses before `store`.
            unsafe { on.queue.copy_rows(CopyWay::ToDevice, copy)? };
        }
        let operands = Operands {
            b: slices[room].address(),
            ldb: narrow(index(b_pitch / *element_bytes)),
            column_major: false,
            second: None,
            reads_vectors: true,
            c,
            ldc: narrow(index(c_pitch / *c_bytes)),
            n: narrow(columns),
            finish: Finish::linear(*alpha, *beta, *c_type),
        };
        // SAFETY: the slice is there, and is not written before this is done; the block's arrays are where it was laid
        // out; the pipe's workspace and its room for `C` are used in this stream alone.
        unsafe { plan.run(&on, operands, Budget::UNLIMITED)? };
        // SAFETY: as for the copy before.
        unsafe { on.queue.copy_rows(CopyWay::ToHost, copy)? };
        Ok(())
    }

    /// Waits for a pipe; what its last block leaves to store.
    fn take(&mut self, pipe: usize) -> Result<Option<Going>, DeviceError> {
        if self.going[pipe].is_some() {
            self.engine.pipes[pipe].stream.synchronize()?;
        }
        Ok(self.going[pipe].take())
    }

    fn finish(&mut self, pipe: usize) -> Result<(), PlanError> {
        let going = self.take(pipe)?;
        going.iter().for_each(|going| self.store(going));
        Ok(())
    }

    /// Brings a result that has come to its place, unless it came there.
    fn store(&mut self, going: &Going) {
        let Going { rows, cols, result: Some(result) } = going else { return };
        let bytes = rows.len() * index(pitch(cols.len(), self.product.c_bytes));
        let from = &self.engine.results[*result][..bytes];
        self.product.sink.store(rows.clone(), cols.clone(), from);
    }
}
