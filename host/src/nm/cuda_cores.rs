//! Products with N:M weights in f32, on CUDA cores.

use windrow_formats::memory::try_filled;
use windrow_formats::{OutOfMemory, VectorNm};
use windrow_kernels::nm::NmCudaCoresParams;
use windrow_preprocess::nm::{Blocks, NO_ROW};

use super::launch::Launch;
use super::parts::launch;
use super::tiles::Choice;
use crate::cpu::each_chunk;
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{narrow, wide};

/// Weights cut and laid out for one instance of the kernel.
pub(super) struct Layout {
    pub(super) choice: Choice,
    blocks: Blocks,
    /// (blocks, stages, rows + weights + picks), and rows behind.
    records: Vec<u32>,
}

impl Layout {
    /// Lays out `values`, those of the weights.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: &[f32],
        choice: Choice,
    ) -> Result<Self, OutOfMemory> {
        let blocks = Blocks::new(weights, choice.shape)?;
        let slot_bytes = choice.tile.slot_bytes();
        let arranged = blocks.arrange(values)?;
        let (rows, picks) = (blocks.slots(), choice.shape.strips() * blocks.depth());
        let of_weights = choice.shape.block_columns * blocks.depth();
        let record = rows + of_weights + picks;
        // Behind the last stage there are rows, too, of which none is one.
        let stages = blocks.stages();
        let mut records =
            try_filled(blocks.blocks() * stages * record + rows, NO_ROW, "weights as kernels read them")?;
        each_chunk(&mut records[..blocks.blocks() * stages * record], record, &|at, record| {
            let (of_rows, rest) = record.split_at_mut(rows);
            let (words, of_picks) = rest.split_at_mut(of_weights);
            of_rows.copy_from_slice(blocks.rows(at / stages, at % stages));
            for (word, weight) in words.iter_mut().zip(&arranged[at * of_weights..]) {
                *word = weight.to_bits();
            }
            for (pick, &slot) in of_picks.iter_mut().zip(&blocks.pick_lists()[at * picks..]) {
                *pick = u32::from(slot) * slot_bytes;
            }
        });
        Ok(Self { choice, blocks, records })
    }

    /// Bytes of the arrays.
    pub(super) fn bytes(&self) -> [(&'static str, u64); 1] {
        [("weights", 4 * wide(self.records.len()))]
    }
}

/// The weights in device memory.
pub(super) struct CudaCoresNm {
    pub(super) choice: Choice,
    blocks: usize,
    stages: u32,
    slots: u32,
    depth: u32,
    records: DeviceBuffer<u32>,
}

impl CudaCoresNm {
    /// Uploads a layout.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(device: &Device, layout: &Layout) -> Result<Self, DeviceError> {
        let Layout { choice, blocks, records } = layout;
        Ok(Self {
            choice: *choice,
            blocks: blocks.blocks(),
            stages: narrow(blocks.stages()),
            slots: narrow(blocks.slots()),
            depth: narrow(blocks.depth()),
            records: DeviceBuffer::named(device, records, "weights")?,
        })
    }

    /// Queues the kernel.
    ///
    /// # Errors
    /// [`DeviceError`].
    ///
    /// # Safety
    /// Activations are f32, readable up to their leading dimension; the output, of all parts, is writable. Weights and
    /// memory of the run live until the machine has done the work.
    pub(super) unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        let params = NmCudaCoresParams {
            output: run.output,
            part_elements: run.part_elements,
            a: run.a.a.cast(),
            records: self.records.pointer(),
            row_vectors: run.a.ld / 4,
            slots: self.slots,
            depth: self.depth,
            stages: self.stages,
            stages_per_part: self.stages.div_ceil(1 << run.parts_log2),
            parts_log2: run.parts_log2,
        };
        let rows = u64::from(run.output.m.div_ceil(self.choice.tile.rows)) << run.parts_log2;
        // SAFETY: rows and picks are those of `Blocks`, whose shape was chosen for this entry and its shared memory;
        // the rest is the caller's promise.
        unsafe { launch(queue, self.choice.entry, [rows, wide(self.blocks)], &params) }
    }
}
