//! Products with N:M weights on Tensor Cores.

use windrow_formats::memory::{try_copy, try_filled};
use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::{NOT_KEPT, NmTensorCoresParams, STEPS, WARP_COLUMNS};
use windrow_preprocess::nm::{Banked, Blocks, NO_ROW};

use super::algorithm::Weights;
use super::fragments::Choice;
use super::launch::Launch;
use super::model::Instance;
use super::options::{NmAlgorithm, NmPacking};
use super::parts::launch;
use super::placing::{Arrange, DeviceValues, GivenBits, LaidOut, PLACES, Placed, Placement};
use super::report::NmReport;
use super::staging::ReadAs;
use crate::cpu::each_chunk;
use crate::device::{DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};

/// Weights cut and laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    stages: usize,
    /// Times that shared memory is read for a phase of lanes, on average.
    passes: f64,
    /// Rows of the transposed activations that a stage brings at most.
    brought: u32,
    /// (blocks, stages, slots): the row of the transposed activations in each slot, or [`NO_ROW`].
    rows: Vec<u32>,
    /// (blocks, stages, warps, steps, strips of a warp, depth)
    picks: Vec<u16>,
    /// (blocks, warps, stages, steps, depth · columns of a warp), in register order
    weights: LaidOut,
}

impl Layout {
    /// Lays out the weights' values; `None` if the rows of some stage do not find slots.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenBits<'_>,
        choice: Choice,
    ) -> Result<Option<Self>, OutOfMemory> {
        let blocks = Blocks::new(weights, choice.shape())?;
        let slots = index(u64::from(choice.slots));
        if blocks.slots() > slots {
            return Ok(None);
        }
        // Weights without rows have one stage of nothing: the result is still to be written.
        let banked = (blocks.stages() > 0)
            .then(|| Banked::new(&blocks, slots, index(u64::from(choice.form.phase))))
            .transpose()?;
        let stages = blocks.stages().max(1);
        let cut =
            Cut { banked: banked.as_ref(), stages, blocks: blocks.blocks(), columns: weights.cols(), choice };
        let weights = LaidOut::new(values, &cut)?;
        let rows = match cut.banked {
            Some(banked) => try_copy(banked.row_lists(), "rows in slots")?,
            None => try_filled(cut.blocks * slots, NO_ROW, "rows in slots")?,
        };
        let (passes, brought) = (cut.banked.map_or(1.0, Banked::passes), narrow(blocks.slots()));
        Ok(Some(Self { choice, stages, passes, brought, rows, picks: cut.picks()?, weights }))
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        NmAlgorithm::TensorCores
    }

    fn read_as(&self) -> ReadAs {
        ReadAs::KMajor
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        let mut bytes = vec![
            ("weights", self.weights.bytes()),
            ("picks", 2 * wide(self.picks.len())),
            ("rows", 4 * wide(self.rows.len())),
        ];
        bytes.extend(self.weights.kept_bytes().map(|kept| (PLACES, kept)));
        bytes
    }

    fn upload(&self, Runner { device, machine }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let (weights, placed) = self.weights.upload(device)?;
        Ok(Box::new(TensorCoresNm {
            choice: self.choice,
            resident: machine.resident_blocks(self.choice.entry)?.max(1) * machine.multiprocessors(),
            stages: narrow(self.stages),
            rows: DeviceBuffer::named(device, &self.rows, "rows")?,
            picks: DeviceBuffer::named(device, &self.picks, "picks")?,
            weights,
            placed,
        }))
    }

    fn stage(&self) -> [u32; 2] {
        [self.choice.form.kept(), self.brought]
    }

    fn note_packing(&self, _: NmPacking, _: NmPattern, report: &mut NmReport) {
        report.packing = NmPacking::Packed;
        report.packing_reason = format!(
            "Tensor Cores read rows that were gathered; banks of shared memory are read {:.2} times",
            self.passes
        );
    }
}

/// What the order of the arrays follows from.
struct Cut<'a> {
    /// `None` if there are no kept rows.
    banked: Option<&'a Banked>,
    blocks: usize,
    stages: usize,
    /// Columns of the weights.
    columns: usize,
    choice: Choice,
}

impl Cut<'_> {
    /// Steps of all warps of all blocks.
    fn steps(&self) -> usize {
        self.blocks * index(u64::from(self.choice.warps() * STEPS)) * self.stages
    }

    /// Strips of a warp.
    fn strips(&self) -> usize {
        index(u64::from(WARP_COLUMNS / self.choice.tile.strip))
    }

    fn depth(&self) -> usize {
        index(u64::from(self.choice.form.depth))
    }

    /// Slots, in the order that lanes read them; the slot of zeros where nothing is kept.
    fn picks(&self) -> Result<Vec<u16>, OutOfMemory> {
        let (strips, depth) = (self.strips(), self.depth());
        let (steps, warps) = (index(u64::from(STEPS)), index(u64::from(self.choice.warps())));
        let slot_of_zeros = u16::try_from(self.choice.slots).unwrap_or(u16::MAX);
        let mut picks = try_filled(self.steps() * strips * depth, slot_of_zeros, "picks of strips")?;
        let Some(banked) = self.banked else { return Ok(picks) };
        each_chunk(&mut picks, strips * depth, &|at, picks| {
            let (step, warp) = (at % steps, at / steps % warps);
            let (stage, block) = (at / steps / warps % self.stages, at / steps / warps / self.stages);
            for (strip, picks) in picks.chunks_mut(depth).enumerate() {
                let of_stage = banked.picks(block, stage, warp * strips + strip);
                for (kept, &slot) in (0..).zip(&of_stage[step * depth..][..depth]) {
                    picks[index(u64::from((self.choice.form.place)(kept)))] = slot;
                }
            }
        });
        Ok(picks)
    }
}

impl Arrange for Cut<'_> {
    /// In the order of registers.
    fn arrange<T: Copy + Default + Send + Sync>(&self, given: &[T]) -> Result<Vec<T>, OutOfMemory> {
        let (strips, depth) = (self.strips(), self.depth());
        let (warp_columns, strip) = (index(u64::from(WARP_COLUMNS)), self.choice.tile.strip);
        let (steps, warps) = (index(u64::from(STEPS)), index(u64::from(self.choice.warps())));
        let len = self.steps() * depth * warp_columns;
        let mut weights = try_filled(len, T::default(), "weights as kernels read them")?;
        let Some(banked) = self.banked else { return Ok(weights) };
        each_chunk(&mut weights, depth * warp_columns, &|at, weights| {
            let (step, stage) = (at % steps, at / steps % self.stages);
            let (warp, block) = (at / steps / self.stages % warps, at / steps / self.stages / warps);
            let first = block * index(u64::from(self.choice.tile.columns)) + warp * warp_columns;
            let columns = self.columns.saturating_sub(first).min(warp_columns);
            for kept in 0..self.choice.form.depth {
                let place = step * depth + index(u64::from(kept));
                for (column, of_warp) in (0..WARP_COLUMNS).zip(0..columns) {
                    let at_strip = warp * strips + index(u64::from(column / strip));
                    if let Some(row) = banked.kept(block, stage, at_strip, place) {
                        let to = (self.choice.form.weight_index)(strip, kept, column);
                        weights[index(u64::from(to))] = given[row * self.columns + first + of_warp];
                    }
                }
            }
        });
        Ok(weights)
    }

    /// Which kept value is where, in the order of registers.
    fn placement(&self, given: DeviceValues, dtype: Dtype) -> Result<Placement, OutOfMemory> {
        let (strips, depth) = (self.strips(), self.depth());
        let strip = self.choice.tile.strip;
        let (steps, warps) = (index(u64::from(STEPS)), index(u64::from(self.choice.warps())));
        let of_chunk = strips * depth;
        let mut kept = try_filled(self.steps() * of_chunk, NOT_KEPT, "kept rows")?;
        if let Some(banked) = self.banked {
            each_chunk(&mut kept, of_chunk, &|at, kept| {
                let (step, stage) = (at % steps, at / steps % self.stages);
                let (warp, block) = (at / steps / self.stages % warps, at / steps / self.stages / warps);
                for (i, kept) in kept.iter_mut().enumerate() {
                    let (strip, place) = (warp * strips + i / depth, step * depth + i % depth);
                    *kept = banked.kept(block, stage, strip, place).map_or(NOT_KEPT, narrow);
                }
            });
        }
        let mut places = try_filled(depth * index(u64::from(WARP_COLUMNS)), 0, "places of weights")?;
        for kept in 0..self.choice.form.depth {
            for column in 0..WARP_COLUMNS {
                let to = (self.choice.form.weight_index)(strip, kept, column);
                places[index(u64::from(to))] = kept << 16 | column;
            }
        }
        Ok(Placement {
            given,
            kept,
            places,
            others: Vec::new(),
            chunks: self.steps(),
            chunks_per_group: steps * self.stages,
            group_columns: index(u64::from(WARP_COLUMNS)),
            strips,
            strip: index(u64::from(strip)),
            depth,
            before: 0,
            after: 0,
            tail: 0,
            dtype,
        })
    }
}

/// The weights in device memory.
struct TensorCoresNm {
    choice: Choice,
    /// Blocks that the machine runs at a time.
    resident: u32,
    stages: u32,
    rows: DeviceBuffer<u32>,
    picks: DeviceBuffer<u16>,
    weights: DeviceBuffer<u8>,
    placed: Option<Placed>,
}

impl Weights for TensorCoresNm {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)> {
        self.placed.as_ref().map(|placed| (placed, &self.weights))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            ("rows", bytemuck::cast_slice(&self.rows.to_vec()?).to_vec()),
            ("picks", bytemuck::cast_slice(&self.picks.to_vec()?).to_vec()),
            ("weights", self.weights.to_vec()?),
        ])
    }

    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        let Choice { entry, tile, form, .. } = self.choice;
        let m_tiles = run.output.m.div_ceil(tile.rows);
        let blocks = run.output.n.div_ceil(tile.columns);
        let items = (u64::from(m_tiles) * u64::from(blocks)) << run.parts_log2;
        let grid = items.min(u64::from(self.resident));
        let params = NmTensorCoresParams {
            output: run.output,
            part_elements: run.part_elements,
            a: run.a.a.cast(),
            weights: self.weights.pointer().cast(),
            picks: self.picks.pointer().cast(),
            rows: self.rows.pointer(),
            row_vectors: run.a.ld / (16 / form.element_bytes),
            stages: self.stages,
            stages_per_part: self.stages.div_ceil(1 << run.parts_log2),
            parts_log2: run.parts_log2,
            m_tiles,
            items: narrow(index(items)),
            step: [narrow(index(grid % u64::from(m_tiles))), narrow(index(grid / u64::from(m_tiles)))],
        };
        // SAFETY: rows, picks and weights are those of a layout for this entry; lists of 2³² elements would belong to
        // weights of more than a TiB, which no device holds. The rest is the caller's promise.
        unsafe { launch(queue, entry, [grid, 1], &params) }
    }
}
