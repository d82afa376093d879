//! Products with N:M weights on Tensor Cores.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use windrow_formats::VectorNm;
use windrow_kernels::nm::{NmTensorCoresParams, Output, STEPS, WARP_COLUMNS};
use windrow_preprocess::nm::{Banked, Blocks};

use super::fragments::{Choice, Form, parts_log2};
use super::operands::Operands;
use super::parts::{Shared, launch};
use super::tiles::{Capacity, Sizes};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::error::{DeviceError, SpmmError};
use crate::num::{index, narrow, wide};
use crate::spmm::Bits;

/// Weights cut and laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    form: Form,
    stages: usize,
    /// Times that shared memory is read for a phase of lanes, on average.
    pub(super) passes: f64,
    /// (blocks, stages, slots)
    rows: Vec<u32>,
    /// (blocks, stages, warps, steps, strips of a warp, depth)
    picks: Vec<u16>,
    /// (blocks, warps, stages, steps, depth · columns of a warp), in register order
    weights: Weights,
}

/// Elements of the weights.
enum Weights {
    Halves(Vec<u16>),
    Words(Vec<u32>),
}

impl Layout {
    /// Lays out `bits`, those of the weights; `None` if the rows of some stage do not find slots.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        bits: &Bits,
        form: Form,
        choice: Choice,
    ) -> Option<Self> {
        let blocks = Blocks::new(weights, choice.shape(&form));
        let slots = index(u64::from(choice.slots));
        if blocks.stages() == 0 {
            return Some(Self::empty(blocks.blocks(), form, choice));
        }
        if blocks.slots() > slots {
            return None;
        }
        let banked = Banked::new(&blocks, slots, index(u64::from(form.phase)));
        let cut = Cut { banked: &banked, stages: blocks.stages(), blocks: blocks.blocks(), choice, form };
        let weights = match bits {
            Bits::F16(bits) | Bits::Bf16(bits) => Weights::Halves(cut.weights(bits, weights.cols())),
            Bits::F32(bits) | Bits::Tf32(bits) => Weights::Words(cut.weights(bits, weights.cols())),
        };
        let (picks, passes) = (cut.picks(), banked.passes());
        let rows = banked.row_lists().to_vec();
        Some(Self { choice, form, stages: blocks.stages(), passes, rows, picks, weights })
    }

    /// One stage of nothing, for weights without rows: the result is still to be written.
    fn empty(blocks: usize, form: Form, choice: Choice) -> Self {
        let steps = blocks * index(u64::from(choice.warps() * STEPS));
        let strips = index(u64::from(WARP_COLUMNS / choice.tile.strip));
        let zero_slot = u16::try_from(choice.slots).unwrap_or(u16::MAX);
        let elements = steps * index(u64::from(form.depth * WARP_COLUMNS));
        let weights = match form.element_bytes {
            2 => Weights::Halves(vec![0; elements]),
            _ => Weights::Words(vec![0; elements]),
        };
        let picks = vec![zero_slot; steps * strips * index(u64::from(form.depth))];
        let rows = vec![u32::MAX; blocks * index(u64::from(choice.slots))];
        Self { choice, form, stages: 1, passes: 1.0, rows, picks, weights }
    }

    /// Bytes of the arrays.
    pub(super) fn bytes(&self) -> [(&'static str, u64); 3] {
        let weights = match &self.weights {
            Weights::Halves(bits) => size_of_val(bits.as_slice()),
            Weights::Words(bits) => size_of_val(bits.as_slice()),
        };
        [
            ("weights", wide(weights)),
            ("picks", 2 * wide(self.picks.len())),
            ("rows", 4 * wide(self.rows.len())),
        ]
    }
}

/// What the order of the arrays follows from.
struct Cut<'a> {
    banked: &'a Banked,
    blocks: usize,
    stages: usize,
    choice: Choice,
    form: Form,
}

impl Cut<'_> {
    fn steps(&self) -> usize {
        self.blocks * index(u64::from(self.choice.warps() * STEPS)) * self.stages
    }

    /// Strips of a warp.
    fn strips(&self) -> usize {
        index(u64::from(WARP_COLUMNS / self.choice.tile.strip))
    }

    fn picks(&self) -> Vec<u16> {
        let (strips, depth) = (self.strips(), index(u64::from(self.form.depth)));
        let (steps, warps) = (index(u64::from(STEPS)), index(u64::from(self.choice.warps())));
        let mut picks = vec![0; self.steps() * strips * depth];
        let of_step = picks.par_chunks_mut(strips * depth).enumerate();
        of_step.for_each(|(at, picks)| {
            let (step, warp) = (at % steps, at / steps % warps);
            let (stage, block) = (at / steps / warps % self.stages, at / steps / warps / self.stages);
            for (strip, picks) in picks.chunks_mut(depth).enumerate() {
                let of_stage = self.banked.picks(block, stage, warp * strips + strip);
                for (kept, &slot) in (0..).zip(&of_stage[step * depth..][..depth]) {
                    picks[index(u64::from((self.form.place)(kept)))] = slot;
                }
            }
        });
        picks
    }

    /// `values` is w × `columns`.
    fn weights<T: Copy + Default + Send + Sync>(&self, values: &[T], columns: usize) -> Vec<T> {
        let (strips, depth) = (self.strips(), index(u64::from(self.form.depth)));
        let (warp_columns, strip) = (index(u64::from(WARP_COLUMNS)), self.choice.tile.strip);
        let mut weights = vec![T::default(); self.steps() * depth * warp_columns];
        let (steps, warps) = (index(u64::from(STEPS)), index(u64::from(self.choice.warps())));
        weights.par_chunks_mut(depth * warp_columns).enumerate().for_each(|(at, weights)| {
            let (step, stage) = (at % steps, at / steps % self.stages);
            let (warp, block) = (at / steps / self.stages % warps, at / steps / self.stages / warps);
            let first = block * index(u64::from(self.choice.tile.columns)) + warp * warp_columns;
            for kept in 0..self.form.depth {
                for column in 0..WARP_COLUMNS {
                    let of_warp = index(u64::from(column));
                    let at_strip = warp * strips + index(u64::from(column / strip));
                    let place = step * depth + index(u64::from(kept));
                    let row = self.banked.kept((block, stage, at_strip), place);
                    if let Some(row) = row.filter(|_| first + of_warp < columns) {
                        let to = (self.form.weight_index)(strip, kept, column);
                        weights[index(u64::from(to))] = values[row * columns + first + of_warp];
                    }
                }
            }
        });
        weights
    }
}

/// The weights in device memory.
pub(super) struct TensorCoresNm {
    pub(super) choice: Choice,
    form: Form,
    sizes: Sizes,
    capacity: Capacity,
    resident: u32,
    stages: u32,
    rows: DeviceBuffer<u32>,
    picks: DeviceBuffer<u16>,
    weights: DeviceWeights,
    /// Held while the launches of a run are queued.
    shared: Mutex<Shared>,
}

enum DeviceWeights {
    Halves(DeviceBuffer<u16>),
    Words(DeviceBuffer<u32>),
}

impl TensorCoresNm {
    /// Elements of the partial sums of a product of these sizes.
    pub(super) fn partial_elements(layout: &Layout, sizes: Sizes, capacity: Capacity) -> u64 {
        Shared::partial_elements(sizes, parts_log2(&layout.choice, &layout.form, sizes, capacity))
    }

    /// Uploads a layout.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn upload(
        device: &Device,
        machine: &dyn Machine,
        layout: &Layout,
        (sizes, capacity): (Sizes, Capacity),
        shared: Shared,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            choice: layout.choice,
            form: layout.form,
            sizes,
            capacity,
            resident: machine.resident_blocks(layout.choice.entry)?.max(1) * machine.multiprocessors(),
            stages: narrow(layout.stages),
            rows: DeviceBuffer::named(device, &layout.rows, "rows")?,
            picks: DeviceBuffer::named(device, &layout.picks, "picks")?,
            weights: match &layout.weights {
                Weights::Halves(bits) => DeviceWeights::Halves(DeviceBuffer::named(device, bits, "weights")?),
                Weights::Words(bits) => DeviceWeights::Words(DeviceBuffer::named(device, bits, "weights")?),
            },
            shared: Mutex::new(shared),
        })
    }

    /// Entry points that a run of as many rows as the plan was made for launches, without those that bring activations.
    pub(super) fn entries(&self) -> Vec<&'static str> {
        let parts = parts_log2(&self.choice, &self.form, self.sizes, self.capacity);
        Shared::entries(self.choice.entry, parts)
    }

    /// Queues `C ← act(α·A·W + β·C + bias)`.
    ///
    /// # Errors
    /// [`DeviceError`]; [`SpmmError::TooLarge`] for too long rows of k-major activations.
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
        let parts_log2 = parts_log2(&self.choice, &self.form, sizes, self.capacity);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let parts_log2 = shared.affordable(sizes, parts_log2);
        // SAFETY: the caller's promise; the lock is held until all is queued.
        let a = unsafe { shared.bring(machine, operands)? };
        let (of_kernel, part_elements) = shared.output(output, parts_log2)?;
        let m_tiles = sizes.m.div_ceil(self.choice.tile.rows);
        let blocks = sizes.n.div_ceil(self.choice.tile.columns);
        let items = (u64::from(m_tiles) * u64::from(blocks)) << parts_log2;
        let grid = items.min(u64::from(self.resident));
        let params = NmTensorCoresParams {
            output: of_kernel,
            part_elements,
            a: a.a.cast(),
            weights: match &self.weights {
                DeviceWeights::Halves(bits) => bits.pointer().cast(),
                DeviceWeights::Words(bits) => bits.pointer().cast(),
            },
            picks: self.picks.pointer().cast(),
            rows: self.rows.pointer(),
            row_vectors: a.ld / (16 / self.form.element_bytes),
            stages: self.stages,
            stages_per_part: self.stages.div_ceil(1 << parts_log2),
            parts_log2,
            m_tiles,
            items: narrow(index(items)),
            step: [narrow(index(grid % u64::from(m_tiles))), narrow(index(grid / u64::from(m_tiles)))],
        };
        // SAFETY: rows, picks and weights are those of a layout for this entry; activations are aligned and readable up to
        // their leading dimension; `C` is the caller's promise. What the plan owns is freed after the machine's work, and
        // the lock keeps other runs off what they share.
        unsafe {
            launch(machine, self.choice.entry, [grid, 1], &params)?;
            shared.combine(machine, output, part_elements, parts_log2)?;
        }
        Ok(())
    }
}
