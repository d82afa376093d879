//! Kernels that add every product to the result atomically, to compare with.

use windrow::internal::{AtomicEntriesParams, EntryFactor as Factor, Variant, entry, launch};
use windrow::{Csf3, Determinism, Device, DeviceBuffer, DeviceError, Verification};

use super::{Case, Operands, Path, Product};
use crate::measure::operands::{Filling, fill};
use crate::measure::timing::Timing;
use crate::measure::{BenchError, TensorOperation, measure};

/// Threads of a block of the kernels that add atomically, and most threads of a launch.
const ATOMIC_BLOCK: u64 = 256;
const ATOMIC_THREADS: u64 = u32::MAX as u64 - ATOMIC_BLOCK;

impl Product<'_> {
    /// The kernel that adds each product to the result atomically, from coordinates, after the result was set to zero.
    pub(super) fn measure_atomic(
        &self,
        operands: &mut Operands,
        kernel_time: &mut Option<Timing>,
    ) -> Result<(Verification, Timing), BenchError> {
        let Self { device, a, case: &Case { operation, width, .. }, .. } = *self;
        let coordinates = Coordinates::new(device, a, operation)?;
        let factors = coordinates.indices.len();
        let entry = u32::try_from(factors).ok().and_then(|factors| {
            entry(Variant::AtomicEntries { factors }) // as many as the product has
        });
        let entry = entry.ok_or(DeviceError::MissingEntry { name: "mttkrp_atomic_f32" })?;
        let lanes = width.clamp(1, 32).next_power_of_two();
        let threads = (a.nnz() * lanes) as u64;
        if threads > ATOMIC_THREADS {
            let (what, library) = ("threads", "the kernel of atomic additions");
            return Err(BenchError::TooLarge { what, found: threads, limit: ATOMIC_THREADS, library });
        }
        let number = |x: usize| u32::try_from(x).unwrap_or(u32::MAX);
        let factor = |f: usize| Factor {
            matrix: bytemuck::cast(operands.factors[f].buffer().address()),
            indices: bytemuck::cast(coordinates.indices[f].address()),
            ld: number(operands.factors[f].ld()),
            reserved: 0,
        };
        let params = AtomicEntriesParams {
            factors: [factor(0), factor(factors - 1)],
            rows: bytemuck::cast(coordinates.rows.address()),
            values: bytemuck::cast(coordinates.values.address()),
            out: bytemuck::cast(operands.y.buffer().address()),
            nnz: number(a.nnz()),
            n: number(width),
            ld_out: number(operands.y.ld()),
            lanes_log2: lanes.ilog2(),
        };
        let grid = [threads.div_ceil(ATOMIC_BLOCK), width.div_ceil(lanes) as u64];
        let run = || {
            // SAFETY: rows and indices are those of the tensor's entries, for which the matrices were made; the threads
            // were counted above; everything outlives the measurement, which ends with a wait for its last mark.
            unsafe { launch(device, entry, grid, &params) }.map_err(BenchError::from)
        };
        *kernel_time = Some(measure(device, self.sampling(), run)?);
        let timing = measure(device, self.sampling(), || {
            fill(&mut operands.y, Filling::Zero)?;
            run()
        })?;
        let verifier = self.plan(Path::Default, Determinism::RunToRun)?;
        Ok((verifier.verify(a, operands)?, timing))
    }
}

/// The entries of a tensor as the kernels that add atomically take them, in the order of the fibers.
struct Coordinates {
    /// Row of the result.
    rows: DeviceBuffer<u32>,
    /// Row of each factor.
    indices: Vec<DeviceBuffer<u32>>,
    values: DeviceBuffer<f32>,
}

impl Coordinates {
    fn new(device: &Device, a: &Csf3<f32>, operation: TensorOperation) -> Result<Self, BenchError> {
        let (mut roots, mut fibers) = (Vec::with_capacity(a.nnz()), Vec::with_capacity(a.nnz()));
        let mut numbers = Vec::with_capacity(a.nnz());
        for (root, &of_root) in a.root_indices().iter().enumerate() {
            for fiber in a.root_range(root) {
                let end = a.fiber_range(fiber).end;
                roots.resize(end, of_root);
                fibers.resize(end, a.fiber_indices()[fiber]);
                numbers.resize(end, u32::try_from(fiber).unwrap_or(u32::MAX));
            }
        }
        let words = |words: &[u32]| DeviceBuffer::from_slice(device, words);
        let leaves = words(a.leaf_indices())?;
        let (rows, indices) = match operation {
            TensorOperation::Mttkrp => (words(&roots)?, vec![words(&fibers)?, leaves]),
            TensorOperation::Ttm => (words(&numbers)?, vec![leaves]),
        };
        Ok(Self { rows, indices, values: DeviceBuffer::from_slice(device, a.values())? })
    }
}
