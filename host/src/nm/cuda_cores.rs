//! Products with N:M weights in f32, on CUDA cores.

use windrow_formats::memory::{try_collect, try_filled};
use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::Dtype;
use windrow_kernels::nm::{NOT_KEPT, NmCudaCoresParams};
use windrow_preprocess::nm::{Blocks, NO_ROW};

use super::algorithm::Weights;
use super::launch::Launch;
use super::model::Instance;
use super::options::{NmAlgorithm, NmPacking};
use super::parts::launch;
use super::placing::{GivenNumbers, LaidOut, Placed, Placement};
use super::report::NmReport;
use super::staging::ReadAs;
use super::tiles::Choice;
use crate::cpu::each_chunk;
use crate::device::{DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::plan::Bits;

/// Weights cut and laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    blocks: Blocks,
    /// (blocks, stages, rows + weights + picks), and rows behind.
    records: LaidOut,
}

impl Layout {
    /// Lays out `values`, those of the weights.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenNumbers<'_>,
        choice: Choice,
    ) -> Result<Self, OutOfMemory> {
        let blocks = Blocks::new(weights, choice.shape)?;
        let slot_bytes = choice.tile.slot_bytes();
        let (rows, picks) = (blocks.slots(), choice.shape.strips() * blocks.depth());
        let of_weights = choice.shape.block_columns * blocks.depth();
        let stages = blocks.stages();
        let count = blocks.blocks() * stages;
        let write_picks = |at: usize, of_picks: &mut [u32]| {
            for (pick, &slot) in of_picks.iter_mut().zip(&blocks.pick_lists()[at * picks..]) {
                *pick = u32::from(slot) * slot_bytes;
            }
        };
        // Behind the last stage there are rows, too, of which none is one.
        let what = "weights as kernels read them";
        let records = match values {
            GivenNumbers::OnHost(values) => {
                let arranged = blocks.arrange(values)?;
                let record = rows + of_weights + picks;
                let mut records = try_filled(count * record + rows, NO_ROW, what)?;
                each_chunk(&mut records[..count * record], record, &|at, record| {
                    let (of_rows, rest) = record.split_at_mut(rows);
                    let (words, of_picks) = rest.split_at_mut(of_weights);
                    of_rows.copy_from_slice(blocks.rows(at / stages, at % stages));
                    for (word, weight) in words.iter_mut().zip(&arranged[at * of_weights..]) {
                        *word = weight.to_bits();
                    }
                    write_picks(at, of_picks);
                });
                LaidOut::OnHost(Bits::F32(records))
            }
            GivenNumbers::OnDevice(given) => {
                let mut others = try_filled(count * (rows + picks) + rows, NO_ROW, what)?;
                each_chunk(&mut others[..count * (rows + picks)], rows + picks, &|at, record| {
                    let (of_rows, of_picks) = record.split_at_mut(rows);
                    of_rows.copy_from_slice(blocks.rows(at / stages, at % stages));
                    write_picks(at, of_picks);
                });
                let (depth, width) = (blocks.depth(), choice.shape.block_columns);
                let kept = (0..count * depth)
                    .map(|at| blocks.kept(at / depth % stages, at % depth).map_or(NOT_KEPT, narrow));
                let places = (0..of_weights).map(|at| narrow(at / width) << 16 | narrow(at % width));
                LaidOut::Placed(Placement {
                    given,
                    kept: try_collect(kept, "kept rows")?,
                    places: try_collect(places, "places of weights")?,
                    others,
                    chunks: count,
                    chunks_per_group: stages,
                    group_columns: width,
                    strips: 1,
                    strip: width,
                    depth,
                    before: rows,
                    after: picks,
                    tail: rows,
                    dtype: Dtype::F32,
                })
            }
        };
        Ok(Self { choice, blocks, records })
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        NmAlgorithm::CudaCores
    }

    fn read_as(&self) -> ReadAs {
        ReadAs::KMajorF32
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        self.records.arrays()
    }

    fn upload(&self, Runner { device, .. }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let Self { choice, blocks, records } = self;
        let (records, placed) = records.upload(device)?;
        Ok(Box::new(CudaCoresNm {
            choice: *choice,
            blocks: blocks.blocks(),
            stages: narrow(blocks.stages()),
            slots: narrow(blocks.slots()),
            depth: narrow(blocks.depth()),
            records,
            placed,
        }))
    }

    fn stage(&self) -> [u32; 2] {
        [narrow(self.choice.shape.kept_per_stage), narrow(self.blocks.slots())]
    }

    fn note_packing(&self, asked: NmPacking, pattern: NmPattern, report: &mut NmReport) {
        let packed = self.choice.shape.packed;
        report.packing = if packed { NmPacking::Packed } else { NmPacking::Plain };
        if asked == NmPacking::Auto {
            report.packing_reason = format!("the weights are {:.1} % sparse", 100.0 * pattern.sparsity());
        } else if asked == NmPacking::Plain && packed {
            "whole groups do not fit into shared memory".clone_into(&mut report.packing_reason);
        }
    }
}

/// The weights in device memory.
struct CudaCoresNm {
    choice: Choice,
    blocks: usize,
    stages: u32,
    slots: u32,
    depth: u32,
    records: DeviceBuffer<u8>,
    placed: Option<Placed>,
}

impl Weights for CudaCoresNm {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)> {
        self.placed.as_ref().map(|placed| (placed, &self.records))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![("weights", self.records.to_vec()?)])
    }

    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        let params = NmCudaCoresParams {
            output: run.output,
            part_elements: run.part_elements,
            a: run.a.a.cast(),
            records: self.records.pointer().cast(),
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
