//! Products of few rows with N:M weights, as fast as weights are read: on Tensor Cores, and on sparse ones where two of
//! each four rows are kept.

mod choice;
mod order;

use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::nm::NmFewRowsParams;

pub(super) use choice::{Choice, choices};
use order::Order;

use super::algorithm::Weights;
use super::launch::Launch;
use super::model::Instance;
use super::options::{NmAlgorithm, NmPacking};
use super::parts::launch;
use super::placing::{GivenBits, LaidOut, Placed};
use super::report::NmReport;
use super::staging::ReadAs;
use crate::device::{DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;
use crate::num::wide;

/// Name of the arrays that name activations.
const PICKS: &str = "picks";
const METADATA: &str = "metadata";

/// Weights laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    /// (strips, steps, units, 16 kept rows · 16 columns), in register order
    weights: LaidOut,
    /// (strips, steps, 16 picks) or (strips, steps, words of metadata), likewise
    names: Vec<u32>,
}

impl Layout {
    /// Lays out the weights' values; `None` if they are of no type of 16 bits.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenBits<'_>,
        choice: Choice,
    ) -> Result<Option<Self>, OutOfMemory> {
        let order = Order { weights, choice };
        let names = order.names()?;
        let weights = LaidOut::of_halves(
            values,
            |halves| order.values(halves),
            |given, dtype| order.placement(given, dtype),
        )?;
        Ok(weights.map(|weights| Self { choice, weights, names }))
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        match self.choice.cut.sparse {
            true => NmAlgorithm::SparseTensorCores,
            false => NmAlgorithm::TensorCores,
        }
    }

    fn read_as(&self) -> ReadAs {
        ReadAs::RowMajor
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        let mut arrays = self.weights.arrays();
        arrays.push((name(&self.choice), 4 * wide(self.names.len())));
        arrays
    }

    fn upload(&self, Runner { device, .. }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let (weights, placed) = self.weights.upload(device)?;
        let names = DeviceBuffer::named(device, &self.names, name(&self.choice))?;
        Ok(Box::new(FewRowsNm { choice: self.choice, names, weights, placed }))
    }

    fn stage(&self) -> [u32; 2] {
        let cut = &self.choice.cut;
        [cut.params().window_rows(), cut.most_columns()]
    }

    fn note_packing(&self, _: NmPacking, _: NmPattern, report: &mut NmReport) {
        report.packing = NmPacking::Plain;
        let reason = match self.choice.cut.sparse {
            true => "sparse Tensor Cores pick columns of A themselves",
            false => "all columns of the few rows of A are brought, and picked in shared memory",
        };
        reason.clone_into(&mut report.packing_reason);
    }
}

/// What the array is called that names activations.
fn name(choice: &Choice) -> &'static str {
    if choice.cut.sparse { METADATA } else { PICKS }
}

/// The weights in device memory.
struct FewRowsNm {
    choice: Choice,
    names: DeviceBuffer<u32>,
    weights: DeviceBuffer<u8>,
    placed: Option<Placed>,
}

impl Weights for FewRowsNm {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)> {
        self.placed.as_ref().map(|placed| (placed, &self.weights))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            (name(&self.choice), bytemuck::cast_slice(&self.names.to_vec()?).to_vec()),
            ("weights", self.weights.to_vec()?),
        ])
    }

    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        let Choice { entry, tile, cut } = self.choice;
        let (m_tiles, strips) = (run.output.m.div_ceil(tile.rows), run.output.n.div_ceil(tile.columns));
        let blocks = (u64::from(m_tiles) * u64::from(strips)) << run.parts_log2;
        let params = NmFewRowsParams {
            output: run.output,
            part_elements: run.part_elements,
            a: run.a.a,
            weights: self.weights.pointer().cast(),
            names: self.names.pointer(),
            lda: run.a.ld,
            windows_per_part: cut.windows().div_ceil(1 << run.parts_log2),
            m_tiles,
            strips,
            ..cut.params()
        };
        // SAFETY: weights and what names activations are those of a layout for this entry, cut in the same way, and
        // rows of activations are aligned. The rest is the caller's promise.
        unsafe { launch(queue, entry, [blocks, 1], &params) }
    }
}
