//! Products with N:M weights of warpgroups, on Tensor Cores of compute capability 9.0.

mod choice;
mod kept;
mod pack;

use windrow_formats::{NmPattern, OutOfMemory, VectorNm};
use windrow_kernels::nm::{NmPickedParams, NmRows, NmSparseParams, STAGE_SLOTS, WarpgroupWork};
use windrow_simt::BoxedMatrix;

pub(super) use choice::{
    Candidate, Choice, fills_two_of_four, keeps_two_of_four, kept_choices, may_be_ordered, may_pay,
    sparse_choices,
};
use kept::KeptRows;
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

/// Weights laid out for one instance of the kernel.
pub(super) struct Layout {
    choice: Choice,
    /// Rows of the weights.
    inner: u32,
    stages: u32,
    /// (tiles of columns, stages, values and metadata)
    weights: LaidOut,
    /// (tiles of columns, stages, 64): which row is in which slot, as the kernel reads them; none if they are as they
    /// come.
    order: Option<Vec<u32>>,
}

impl Layout {
    /// Lays out the weights' values, if they are of f16 or bf16; with the candidate's rows their pattern keeps no more
    /// than its instruction takes.
    pub(super) fn new<V: Sync>(
        weights: &VectorNm<V>,
        values: GivenBits<'_>,
        Candidate { choice, order }: Candidate,
    ) -> Result<Option<Self>, OutOfMemory> {
        let columns = choice.tile.columns;
        let (inner, stages) = (narrow(weights.rows()), narrow(choice.stages));
        let (laid_out, order) = match choice.rows {
            NmRows::All | NmRows::Ordered => {
                let packing = Packing::new(weights, columns, order.as_deref());
                let place = |given, dtype| packing.placement(given, dtype);
                (LaidOut::of_halves(values, |halves| packing.pack(halves), place)?, packing.rows()?)
            }
            NmRows::Kept => {
                let kept = KeptRows::new(weights, columns);
                let place = |given, dtype| kept.placement(given, dtype);
                (LaidOut::of_halves(values, |halves| kept.pack(halves), place)?, Some(kept.rows()?))
            }
        };
        Ok(laid_out.map(|weights| Self { choice, inner, stages, weights, order }))
    }
}

impl super::algorithm::Layout for Layout {
    fn instance(&self) -> &dyn Instance {
        &self.choice
    }

    fn algorithm(&self) -> NmAlgorithm {
        match self.choice.rows {
            NmRows::All | NmRows::Ordered => NmAlgorithm::SparseTensorCores,
            NmRows::Kept => NmAlgorithm::TensorCores,
        }
    }

    fn read_as(&self) -> ReadAs {
        self.choice.read_as()
    }

    fn arrays(&self) -> Vec<(&'static str, u64)> {
        let mut arrays = self.weights.arrays();
        arrays.extend(self.order.as_ref().map(|order| (ORDER, 4 * wide(order.len()))));
        arrays
    }

    fn upload(&self, Runner { device, machine }: Runner<'_>) -> Result<Box<dyn Weights>, DeviceError> {
        let Self { choice, inner, stages, weights, order } = self;
        let (weights, placed) = weights.upload(device)?;
        Ok(Box::new(WarpgroupsNm {
            choice: *choice,
            resident: machine.resident_blocks(choice.entry)?.max(1) * machine.multiprocessors(),
            inner: *inner,
            stages: *stages,
            weights,
            placed,
            order: order.as_ref().map(|order| DeviceBuffer::named(device, order, ORDER)).transpose()?,
            device: device.clone(),
        }))
    }

    /// The instruction for sparse operands has room for half of a stage's rows.
    fn stage(&self) -> [u32; 2] {
        match self.choice.rows {
            NmRows::All | NmRows::Ordered => [STAGE_SLOTS / 2, STAGE_SLOTS],
            NmRows::Kept => [STAGE_SLOTS; 2],
        }
    }

    fn note_packing(&self, _: NmPacking, _: NmPattern, report: &mut NmReport) {
        let columns = self.choice.tile.columns;
        let slots = f64::from(self.stages * STAGE_SLOTS);
        (report.packing, report.packing_reason) = match self.choice.rows {
            NmRows::All => (NmPacking::Plain, "sparse Tensor Cores pick columns of A themselves".to_owned()),
            NmRows::Ordered => (
                NmPacking::Packed,
                format!(
                    "every {columns} columns multiply the rows in an order in which two of four are kept: {:.3} slots \
                     a row",
                    slots / f64::from(self.inner)
                ),
            ),
            NmRows::Kept => (
                NmPacking::Packed,
                format!("every {columns} columns lie in one vector, and multiply the rows that it keeps"),
            ),
        };
    }
}

impl Choice {
    /// How the instance reads activations: where rows of the weights are picked, k-major.
    pub(super) fn read_as(&self) -> ReadAs {
        match self.rows {
            NmRows::All => ReadAs::RowMajor,
            NmRows::Ordered | NmRows::Kept => ReadAs::KMajor,
        }
    }
}

/// The weights in device memory.
struct WarpgroupsNm {
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

impl Weights for WarpgroupsNm {
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
        let work = WarpgroupWork {
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
                let params = NmPickedParams { a, order, lda: run.a.ld, padding: 0, work };
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
