//! Products with N:M weights in f32, on CUDA cores.

use windrow_formats::VectorNm;
use windrow_kernels::nm::NmCudaCoresParams;
use windrow_preprocess::nm::Blocks;

use super::kernels::Launch;
use super::parts::launch;
use super::tiles::Choice;
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::DeviceError;
use crate::num::{narrow, wide};

/// Weights cut and laid out for one instance of the kernel.
pub(super) struct Layout {
    pub(super) choice: Choice,
    blocks: Blocks,
    /// (blocks, stages, slots + strips · depth)
    lists: Vec<u32>,
    /// (blocks, stages, depth, columns)
    weights: Vec<f32>,
}

impl Layout {
    /// Lays out `values`, those of the weights.
    pub(super) fn new<V: Sync>(weights: &VectorNm<V>, values: &[f32], choice: Choice) -> Self {
        let blocks = Blocks::new(weights, choice.shape);
        let slot_bytes = choice.tile.slot_bytes();
        let mut lists = Vec::new();
        let of_stage = choice.shape.strips() * blocks.depth();
        for block in 0..blocks.blocks() {
            for stage in 0..blocks.stages() {
                lists.extend(blocks.rows(block, stage));
                let picks = &blocks.pick_lists()[(block * blocks.stages() + stage) * of_stage..][..of_stage];
                lists.extend(picks.iter().map(|&slot| u32::from(slot) * slot_bytes));
            }
        }
        let weights = blocks.arrange(values);
        Self { choice, blocks, lists, weights }
    }

    /// Bytes of the arrays.
    pub(super) fn bytes(&self) -> [(&'static str, u64); 2] {
        [("weights", 4 * wide(self.weights.len())), ("lists", 4 * wide(self.lists.len()))]
    }
}

/// The weights in device memory.
pub(super) struct CudaCoresNm {
    pub(super) choice: Choice,
    blocks: usize,
    stages: u32,
    slots: u32,
    depth: u32,
    weights: DeviceBuffer<f32>,
    lists: DeviceBuffer<u32>,
}

impl CudaCoresNm {
    /// Uploads a layout.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(device: &Device, layout: &Layout) -> Result<Self, DeviceError> {
        let Layout { choice, blocks, lists, weights } = layout;
        Ok(Self {
            choice: *choice,
            blocks: blocks.blocks(),
            stages: narrow(blocks.stages()),
            slots: narrow(blocks.slots()),
            depth: narrow(blocks.depth()),
            weights: DeviceBuffer::named(device, weights, "weights")?,
            lists: DeviceBuffer::named(device, lists, "lists")?,
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
    pub(super) unsafe fn launch(&self, machine: &dyn Machine, run: &Launch) -> Result<(), DeviceError> {
        let params = NmCudaCoresParams {
            output: run.output,
            part_elements: run.part_elements,
            a: run.a.a.cast(),
            weights: self.weights.pointer(),
            lists: self.lists.pointer(),
            row_vectors: run.a.ld / 4,
            slots: self.slots,
            depth: self.depth,
            stages: self.stages,
            stages_per_part: self.stages.div_ceil(1 << run.parts_log2),
            parts_log2: run.parts_log2,
        };
        let rows = u64::from(run.output.m.div_ceil(self.choice.tile.rows)) << run.parts_log2;
        // SAFETY: rows and picks are those of `Blocks`, whose shape was chosen for this entry and its shared memory; the
        // rest is the caller's promise.
        unsafe { launch(machine, self.choice.entry, [rows, wide(self.blocks)], &params) }
    }
}
