//! A tensor, a product and a width: every path planned, run, checked, timed.

use std::io;

use windrow::interop::kernels::atomic_entries::{AtomicEntriesParams, Factor};
use windrow::interop::kernels::{self, Variant};
use windrow::interop::launch;
use windrow::{
    Algorithm, AtomicParallelism, Csf3, Determinism, Device, DeviceBuffer, DeviceError, DeviceKind,
    DeviceMatrix, Mttkrp, MttkrpPlan, Ttm, TtmPlan, Verification,
};

use super::{TensorOperation, TensorOptions, TensorPlanFacts, TensorRecord, segment_points};
use crate::error::BenchError;
use crate::operands::{case_seed, fill, random_matrix};
use crate::sweep::CheckFacts;
use crate::timing::{Timing, measure};

/// Threads of a block of the kernels that add atomically, and most threads of a launch.
const ATOMIC_BLOCK: u64 = 256;
const ATOMIC_THREADS: u64 = u32::MAX as u64 - ATOMIC_BLOCK;

/// What a group of records is about.
pub(super) struct Case<'a> {
    pub(super) device: &'a Device,
    pub(super) a: &'a Csf3<f32>,
    pub(super) operation: TensorOperation,
    pub(super) width: usize,
    pub(super) options: &'a TensorOptions,
}

/// How a product is computed.
#[derive(Debug, Clone, Copy)]
enum Path {
    /// What the library chooses.
    Default,
    /// TTM by segment groups at a point that the library chooses.
    SegmentGroup,
    Point(AtomicParallelism),
    Atomic,
}

impl Path {
    fn name(self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::SegmentGroup => "segment-group".to_owned(),
            Self::Point(point) => point.to_string(),
            Self::Atomic => "atomic".to_owned(),
        }
    }
}

/// The dense matrices of a case: one for TTM, two for MTTKRP, and the result.
struct Operands {
    factors: Vec<DeviceMatrix<f32>>,
    y: DeviceMatrix<f32>,
}

/// A plan of either product.
enum Plan {
    Mttkrp(Box<MttkrpPlan>),
    Ttm(Box<TtmPlan>),
}

impl Case<'_> {
    /// Measures all paths; `blank` has what their records have in common.
    pub(super) fn measure(
        &self,
        blank: &TensorRecord,
        emit: &mut dyn FnMut(&TensorRecord) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut operands = match self.operands() {
            Ok(operands) => operands,
            Err(error) => return emit(&TensorRecord { error: Some(error.to_string()), ..blank.clone() }),
        };
        let mut paths = vec![Path::Default];
        if self.device.kind() != DeviceKind::Cpu {
            paths.extend((self.operation == TensorOperation::Ttm).then_some(Path::SegmentGroup));
            let points = if self.options.points.is_empty() {
                segment_points(self.width)
            } else {
                self.options.points.clone()
            };
            paths.extend(points.into_iter().map(Path::Point));
        }
        for &determinism in &self.options.determinisms {
            for &path in &paths {
                let mut record =
                    TensorRecord { path: path.name(), determinism: determinism.to_string(), ..blank.clone() };
                if let Err(error) = self.run_plan(path, determinism, &mut operands, &mut record) {
                    record.error = Some(error.to_string());
                }
                emit(&record)?;
            }
        }
        if self.device.kind() != DeviceKind::Cpu {
            let mut record = TensorRecord {
                path: Path::Atomic.name(),
                determinism: Determinism::Fast.to_string(),
                ..blank.clone()
            };
            if let Err(error) = self.run_atomic(&mut operands, &mut record) {
                record.error = Some(error.to_string());
            }
            emit(&record)?;
        }
        Ok(())
    }

    fn operands(&self) -> Result<Operands, BenchError> {
        let (dims, [root, fiber, leaf]) = (self.a.dims(), self.a.mode_order());
        let seed = |mode: usize| case_seed(self.options.seed, mode as u64, self.width, "factors");
        let factor = |mode: usize| random_matrix(self.device, dims[mode], self.width, seed(mode));
        let (factors, rows) = match self.operation {
            TensorOperation::Mttkrp => (vec![factor(fiber)?, factor(leaf)?], dims[root]),
            TensorOperation::Ttm => (vec![factor(leaf)?], self.a.fibers()),
        };
        Ok(Operands { factors, y: DeviceMatrix::zeros(self.device, rows, self.width)? })
    }

    fn plan(&self, path: Path, determinism: Determinism) -> Result<Plan, BenchError> {
        Ok(match self.operation {
            TensorOperation::Mttkrp => {
                let mut builder = Mttkrp::builder(self.a).width(self.width).determinism(determinism);
                if let Path::Point(point) = path {
                    builder = builder.parallelism(point);
                }
                Plan::Mttkrp(Box::new(builder.build(self.device)?))
            }
            TensorOperation::Ttm => {
                let mut builder = Ttm::builder(self.a).width(self.width).determinism(determinism);
                if !matches!(path, Path::Default) {
                    builder = builder.algorithm(Algorithm::SegmentGroup);
                }
                if let Path::Point(point) = path {
                    builder = builder.parallelism(point);
                }
                Plan::Ttm(Box::new(builder.build(self.device)?))
            }
        })
    }

    fn run_plan(
        &self,
        path: Path,
        determinism: Determinism,
        operands: &mut Operands,
        record: &mut TensorRecord,
    ) -> Result<(), BenchError> {
        let plan = self.plan(path, determinism)?;
        record.plan = Some(plan.facts());
        fill(&mut operands.y, f32::NAN)?;
        let timing = measure(self.device, self.options.sampling, || plan.run(operands))?;
        self.conclude(&plan.verify(self.a, operands)?, timing, record)
    }

    /// Notes the comparison, and the time of a right result.
    fn conclude(
        &self,
        found: &Verification,
        timing: Timing,
        record: &mut TensorRecord,
    ) -> Result<(), BenchError> {
        record.check = Some(CheckFacts::of(found));
        if !found.passed() {
            return Err(BenchError::Wrong(*found));
        }
        let flop = self.operation.flop() * self.a.nnz() as f64 * self.width as f64;
        record.gflops = Some(flop / timing.median_us * 1e-3);
        record.time = Some(timing);
        Ok(())
    }

    /// The kernel that adds each product to the result atomically, from coordinates, after the result was set to zero.
    fn run_atomic(&self, operands: &mut Operands, record: &mut TensorRecord) -> Result<(), BenchError> {
        let coordinates = Coordinates::new(self.device, self.a, self.operation)?;
        let factors = coordinates.indices.len();
        let entry = u32::try_from(factors).ok().and_then(|factors| {
            kernels::entry(Variant::AtomicEntries { factors }) // as many as the product has
        });
        let entry = entry.ok_or(DeviceError::MissingEntry { name: "mttkrp_atomic_f32" })?;
        let lanes = self.width.clamp(1, 32).next_power_of_two();
        let threads = (self.a.nnz() * lanes) as u64;
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
            nnz: number(self.a.nnz()),
            n: number(self.width),
            ld_out: number(operands.y.ld()),
            lanes_log2: lanes.ilog2(),
        };
        let grid = [threads.div_ceil(ATOMIC_BLOCK), self.width.div_ceil(lanes) as u64];
        let run = || {
            // SAFETY: rows and indices are those of the tensor's entries, for which the matrices were made; the threads were
            // counted above; everything outlives the measurement, which ends with a wait for its last mark.
            unsafe { launch(self.device, entry, grid, &params) }.map_err(BenchError::from)
        };
        record.kernel_time = Some(measure(self.device, self.options.sampling, run)?);
        let timing = measure(self.device, self.options.sampling, || {
            fill(&mut operands.y, 0.0)?;
            run()
        })?;
        let verifier = self.plan(Path::Default, Determinism::RunToRun)?;
        let outcome = self.conclude(&verifier.verify(self.a, operands)?, timing, record);
        if outcome.is_err() {
            record.kernel_time = None;
        }
        outcome
    }
}

impl Plan {
    fn run(&self, Operands { factors, y }: &mut Operands) -> Result<(), BenchError> {
        match (self, factors.as_slice()) {
            (Self::Mttkrp(plan), [b, c]) => plan.run_into(1.0, [b, c], 0.0, y)?,
            (Self::Ttm(plan), [b, ..]) => plan.run_into(1.0, b, 0.0, y)?,
            (Self::Mttkrp(_), _) | (Self::Ttm(_), []) => {} // not reached: made for the same product
        }
        Ok(())
    }

    fn verify(&self, a: &Csf3<f32>, Operands { factors, y }: &Operands) -> Result<Verification, BenchError> {
        Ok(match self {
            Self::Mttkrp(plan) => plan.verify(a, [&factors[0], &factors[1]], y)?,
            Self::Ttm(plan) => plan.verify(a, &factors[0], y)?,
        })
    }

    fn facts(&self) -> TensorPlanFacts {
        let owned = |entries: &[&str]| entries.iter().map(|&entry| entry.to_owned()).collect();
        match self {
            Self::Mttkrp(plan) => {
                let report = plan.report();
                TensorPlanFacts {
                    entries: owned(&report.entries),
                    parallelism: report.parallelism.clone(),
                    split_rows: report.split_slices,
                    device_bytes: report.device_bytes,
                    workspace_bytes: report.workspace_bytes,
                    preprocess_ms: report.preprocessing_us() / 1e3,
                }
            }
            Self::Ttm(plan) => {
                let report = plan.report();
                TensorPlanFacts {
                    entries: owned(&report.entries),
                    parallelism: report.parallelism.clone(),
                    split_rows: report.split_rows,
                    device_bytes: report.device_bytes,
                    workspace_bytes: report.workspace_bytes,
                    preprocess_ms: report.preprocessing_us() / 1e3,
                }
            }
        }
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
