//! Products with N:M weights in f32, on CUDA cores.

use std::sync::{Mutex, PoisonError};

use windrow_formats::VectorNm;
use windrow_kernels::nm::{NmCudaCoresParams, Output};
use windrow_preprocess::nm::Blocks;

use super::operands::Operands;
use super::parts::{Shared, launch};
use super::tiles::{Capacity, Choice, Sizes, parts_log2};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, wide};

/// Weights cut and laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
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
    choice: Choice,
    sizes: Sizes,
    capacity: Capacity,
    blocks: usize,
    stages: usize,
    slots: u32,
    depth: u32,
    weights: DeviceBuffer<f32>,
    lists: DeviceBuffer<u32>,
    /// Held while the launches of a run are queued.
    shared: Mutex<Shared>,
}

impl CudaCoresNm {
    /// Elements of the partial sums of a product of these sizes.
    pub(super) fn partial_elements(choice: &Choice, sizes: Sizes, capacity: Capacity) -> u64 {
        Shared::partial_elements(sizes, parts_log2(choice, sizes, capacity))
    }

    /// Uploads a layout.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(
        device: &Device,
        layout: &Layout,
        (sizes, capacity): (Sizes, Capacity),
        shared: Shared,
    ) -> Result<Self, DeviceError> {
        let Layout { choice, blocks, lists, weights } = layout;
        Ok(Self {
            choice: *choice,
            sizes,
            capacity,
            blocks: blocks.blocks(),
            stages: blocks.stages(),
            slots: narrow(blocks.slots()),
            depth: narrow(blocks.depth()),
            weights: DeviceBuffer::named(device, weights, "weights")?,
            lists: DeviceBuffer::named(device, lists, "lists")?,
            shared: Mutex::new(shared),
        })
    }

    /// Entry points that a run of as many rows as the plan was made for launches, without those that bring activations.
    pub(super) fn entries(&self) -> Vec<&'static str> {
        Shared::entries(self.choice.entry, parts_log2(&self.choice, self.sizes, self.capacity))
    }

    /// Queues `C ← act(α·A·W + β·C + bias)`.
    ///
    /// # Errors
    /// [`DeviceError`]; [`SpmmError::TooLarge`] for activations of 64 GiB.
    ///
    /// # Safety
    /// As for `GpuNm::run`; `output` is the operands' side of `C`.
    pub(super) unsafe fn run(
        &self,
        machine: &dyn Machine,
        operands: &Operands,
        output: Output,
    ) -> Result<(), SpmmError> {
        let sizes = Sizes { m: operands.m, ..self.sizes };
        if sizes.m == 0 || sizes.n == 0 {
            return Ok(());
        }
        let log2 = parts_log2(&self.choice, sizes, self.capacity);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let log2 = shared.affordable(sizes, log2);
        // SAFETY: the caller's promise; the lock is held until all is queued.
        let a = unsafe { shared.bring(machine, operands)? };
        let (of_kernel, part_elements) = shared.output(output, log2)?;
        let params = NmCudaCoresParams {
            output: of_kernel,
            part_elements,
            a: a.a.cast(),
            weights: self.weights.pointer(),
            lists: self.lists.pointer(),
            row_vectors: a.ld / 4,
            slots: self.slots,
            depth: self.depth,
            stages: narrow(self.stages),
            stages_per_part: narrow(self.stages.div_ceil(1 << log2)),
            parts_log2: log2,
        };
        let rows = u64::from(sizes.m).div_ceil(u64::from(self.choice.tile.rows));
        // SAFETY: rows and picks are those of `Blocks`, whose shape was chosen for this entry and its shared memory;
        // activations are aligned and readable up to their leading dimension; `C` is the caller's promise. What the
        // plan owns is freed after the machine's work, and the lock keeps other runs off what they share.
        unsafe {
            launch(machine, self.choice.entry, [rows << log2, wide(self.blocks)], &params)?;
            shared.combine(machine, output, part_elements, log2)?;
        }
        Ok(())
    }
}
