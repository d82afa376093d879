//! Products with N:M weights on sparse Tensor Cores.

mod choice;
mod pack;

use std::sync::Arc;

use windrow_formats::memory::try_copy;
use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::nm::{NmPackedParams, NmSparseParams, SPARSE_STAGE, SparseWork, packed_order_index};
use windrow_preprocess::nm::Fours;
use windrow_simt::BoxedMatrix;

pub(super) use choice::{
    Candidate, Choice, choices, fills_two_of_four, keeps_two_of_four, may_be_ordered, may_pay,
};
use pack::Packing;
pub(super) use pack::{FOUR, Place, two_of_four};

use super::algorithm::Weights;
use super::launch::Launch;
use super::model::Instance;
use super::options::{NmAlgorithm, NmPacking};
use super::parts::launch;
use super::placing::{GivenBits, LaidOut, Placed};
use super::report::NmReport;
use super::staging::ReadAs;
use crate::device::{Device, DeviceBuffer, Queue, Runner};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};

/// Tiles of columns that are taken side by side for each tile of rows.
const SPAN: u32 = 16;
/// Name of the array of rows in slots.
const ORDER: &str = "rows";
/// Kept rows of a stage, as many as the instruction has room for, and the rows that they are of.
const STAGE: [u32; 2] = [32, 64];

/// Weights laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    /// Rows of the weights.
    inner: u32,
    stages: u32,
    /// (tiles of columns, stages, values and metadata)
    weights: LaidOut,
    /// Which row is in which slot; none if they are as they come.
    order: Option<Arc<Fours>>,
}

impl Layout {
    /// Lays out the weights' values, if they are of f16 or bf16; in the candidate's order their pattern keeps two of
    /// four rows at most.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenBits<'_>,
        Candidate { choice, order }: Candidate,
    ) -> Result<Option<Self>, OutOfMemory> {
        let packing = Packing::new(weights, choice.tile.columns, order.as_deref());
        let (inner, stages) = (narrow(weights.rows()), narrow(packing.stages()));
        let weights = match values {
            GivenBits::OnHost(bits) => packing.weights(bits)?.map(LaidOut::OnHost),
            GivenBits::OnDevice(given, dtype) => Some(LaidOut::Placed(packing.placement(given, dtype)?)),
        };
        Ok(weights.map(|weights| Self { choice, inner, stages, weights, order }))
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        NmAlgorithm::SparseTensorCores
    }

    fn read_as(&self) -> ReadAs {
        read_as(self.order.as_deref())
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        let mut arrays = self.weights.arrays();
        arrays.extend(self.order.as_ref().map(|order| (ORDER, 4 * wide(order.rows().len()))));
        arrays
    }

    fn upload(&self, Runner { device, machine }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let Self { choice, inner, stages, weights, order } = self;
        let (weights, placed) = weights.upload(device)?;
        Ok(Box::new(SparseNm {
            choice: *choice,
            resident: machine.resident_blocks(choice.entry)?.max(1) * machine.multiprocessors(),
            inner: *inner,
            stages: *stages,
            weights,
            placed,
            order: order.as_ref().map(|order| upload(device, order)).transpose()?,
            device: device.clone(),
        }))
    }

    fn stage(&self) -> [u32; 2] {
        STAGE
    }

    fn note_packing(&self, _: NmPacking, _: NmPattern, report: &mut NmReport) {
        let Some(order) = &self.order else {
            report.packing = NmPacking::Plain;
            "sparse Tensor Cores pick columns of A themselves".clone_into(&mut report.packing_reason);
            return;
        };
        report.packing = NmPacking::Packed;
        let [slots, columns] = [narrow(order.slots()), self.choice.tile.columns];
        report.packing_reason = format!(
            "every {columns} columns multiply the rows in an order in which two of four are kept: {:.3} slots a row",
            f64::from(slots) / f64::from(self.inner)
        );
    }
}

/// How instances read activations: the rows of the weights are gathered in an order, if there is one.
fn read_as(order: Option<&Fours>) -> ReadAs {
    if order.is_some() { ReadAs::KMajor } else { ReadAs::RowMajor }
}

impl Candidate {
    pub(super) fn read_as(&self) -> ReadAs {
        read_as(self.order.as_deref())
    }
}

/// The rows in slots, stage by stage, as the kernel reads them.
fn upload(device: &Device, order: &Fours) -> Result<DeviceBuffer<u32>, DeviceError> {
    let mut rows = try_copy(order.rows(), ORDER)?;
    let stage = index(u64::from(SPARSE_STAGE));
    for (to, from) in rows.chunks_mut(stage).zip(order.rows().chunks(stage)) {
        for (slot, &row) in (0..).zip(from) {
            to[index(u64::from(packed_order_index(slot)))] = row;
        }
    }
    DeviceBuffer::named(device, &rows, ORDER)
}

/// The weights in device memory.
struct SparseNm {
    choice: Choice,
    /// Blocks that the machine runs at a time.
    resident: u32,
    inner: u32,
    stages: u32,
    weights: DeviceBuffer<u8>,
    placed: Option<Placed>,
    /// Which row is in which slot; none if they are as they come.
    order: Option<DeviceBuffer<u32>>,
    device: Device,
}

impl Weights for SparseNm {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn placed(&self) -> Option<(&Placed, &DeviceBuffer<u8>)> {
        self.placed.as_ref().map(|placed| (placed, &self.weights))
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = vec![("weights", self.weights.to_vec()?)];
        if let Some(order) = &self.order {
            arrays.push((ORDER, bytemuck::cast_slice(&order.to_vec()?).to_vec()));
        }
        Ok(arrays)
    }

    unsafe fn launch(&self, queue: &dyn Queue, run: &Launch) -> Result<(), DeviceError> {
        let Choice { entry, tile, .. } = self.choice;
        let (m_tiles, n_tiles) = (run.output.m.div_ceil(tile.rows), run.output.n.div_ceil(tile.columns));
        // Far fewer than 2³², for no memory holds so large a C, nor so large parts of it.
        let items = narrow(index((u64::from(m_tiles) * u64::from(n_tiles)) << run.parts_log2));
        let work = SparseWork {
            output: run.output,
            part_elements: run.part_elements,
            weights: self.weights.pointer().cast(),
            stages: self.stages,
            m_tiles,
            n_tiles,
            span: SPAN,
            parts_log2: run.parts_log2,
            items,
        };
        let grid = [u64::from(items.min(self.resident)), 1];
        // SAFETY: the weights were laid out for this entry and in this order, and have 2²⁶ stages at most, of which a
        // choice makes no more parts than there are. The activations are aligned, and the map ends where they do; an
        // order names rows that they have. The rest is the caller's promise.
        unsafe {
            if let Some(order) = &self.order {
                let (a, order) = (run.a.a, order.pointer());
                let params = NmPackedParams { a, order, lda: run.a.ld, padding: 0, work };
                return launch(queue, entry, grid, &params);
            }
            let matrix = BoxedMatrix {
                address: run.a.a.address(),
                columns: self.inner,
                rows: run.output.m,
                row_bytes: 2 * u64::from(run.a.ld),
                box_rows: tile.rows,
            };
            let machine = self.device.machine().ok_or(DeviceError::NoDriver)?;
            launch(queue, entry, grid, &NmSparseParams { map: machine.tensor_map(&matrix)?, work })
        }
    }
}
