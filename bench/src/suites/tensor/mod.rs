//! Products of sparse tensors, MTTKRP and TTM: tensors × modes × widths × divisions of the work, each planned, verified
//! and timed, beside kernels that add every product atomically.
//!
//! Matrices are uniform in `[−1, 1)`, the result is full of NaN before, and what the last call left is compared with an
//! f64 reference.

mod arguments;
mod atomic;
pub(crate) mod facts;
mod plan;
mod source;
mod summary;

#[cfg(test)]
mod tests;

use std::fmt;

use windrow::{AtomicParallelism, Coo3, Csf3, Determinism, Device, DeviceKind, DeviceMatrix, Verification};

use super::kept::Kept;
use super::record::Record;
use super::{Measured, Suite};
use crate::measure::operands::{Filling, case_seed, fill};
use crate::measure::timing::Timing;
use crate::measure::{BenchError, L2, Sampling, TensorOperation, measure, random_matrix};
pub(crate) use arguments::Arguments;
use facts::{TensorFacts, TensorPlanFacts};
use plan::Plan;
use source::TensorSource;

/// What is told of a product of a tensor.
pub(crate) type TensorRecord = Record<TensorFacts>;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<TensorSource>,
    pub(crate) operations: Vec<TensorOperation>,
    /// Modes of the tensor that products are for.
    pub(crate) modes: Vec<usize>,
    /// Columns of the dense matrices.
    pub(crate) widths: Vec<usize>,
    /// Points of Sgap's space beside what the library chooses; with none, those of [`segment_points`] for each width.
    /// The CPU has none.
    pub(crate) points: Vec<AtomicParallelism>,
    /// Whether what is cut is added in a fixed order, atomically, or each.
    pub(crate) determinisms: Vec<Determinism>,
    /// Seed of made-up tensors and matrices.
    pub(crate) seed: u64,
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// What the L2 cache holds before each timed product: each case is measured with each.
    pub(crate) l2: Vec<L2>,
    /// Is told what is done before a measurement.
    pub(crate) progress: fn(&str),
}

/// Points of the segment reduction for a width: 1 to 32 nonzeros of a thread, whose sums are added by itself, or by as
/// many threads as the width leaves of a warp.
pub(crate) fn segment_points(width: usize) -> Vec<AtomicParallelism> {
    let columns = match width {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    };
    let lanes = width.div_ceil(columns).clamp(1, 32).next_power_of_two();
    let mut reductions = vec![32 / lanes, 1];
    reductions.dedup();
    let points = [1, 4, 16, 32].into_iter().flat_map(|nonzeros| {
        reductions.iter().map(move |reduction| format!("{{<{nonzeros} nnz, {columns} col>, {reduction}}}"))
    });
    points.filter_map(|point| point.parse().ok()).collect()
}

/// How a product is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Path {
    /// What the library chooses.
    Default,
    /// TTM by segment groups at a point that the library chooses.
    SegmentGroup,
    /// A point of Sgap's space.
    Point(AtomicParallelism),
    /// A kernel that adds every product atomically.
    Atomic,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::SegmentGroup => f.pad("segment-group"),
            Self::Point(point) => f.pad(&point.to_string()),
            Self::Atomic => f.pad("atomic"),
        }
    }
}

/// One product to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Number of the tensor.
    tensor: usize,
    operation: TensorOperation,
    mode: usize,
    width: usize,
    path: Path,
    determinism: Determinism,
    l2: L2,
}

/// A tensor, or why there is none.
struct Loaded {
    name: String,
    tensor: Result<Coo3<f32>, String>,
}

pub(crate) struct Tensor {
    device: Device,
    options: Options,
    tensors: Vec<Loaded>,
    fibers: Kept<(usize, [usize; 3]), Csf3<f32>>,
    operands: Kept<(usize, TensorOperation, usize, usize), Operands>,
}

/// The dense matrices of a case: one for TTM, two for MTTKRP, and the result.
pub(super) struct Operands {
    factors: Vec<DeviceMatrix<f32>>,
    y: DeviceMatrix<f32>,
}

impl Tensor {
    /// Makes or reads all tensors.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let load = |source: &TensorSource| {
            let name = source.name();
            (options.progress)(&format!("making {name}"));
            let tensor = source.load(options.seed).map_err(|error| error.to_string());
            Loaded { name, tensor }
        };
        let tensors = options.sources.iter().map(load).collect();
        let (fibers, operands) = (Kept::default(), Kept::default());
        Self { device: device.clone(), options, tensors, fibers, operands }
    }

    /// The paths of a product, each with how what is cut is added.
    fn paths(&self, operation: TensorOperation, width: usize) -> Vec<(Path, Determinism)> {
        let has_kernels = self.device.kind() != DeviceKind::Cpu;
        let mut paths = vec![Path::Default];
        if has_kernels {
            paths.extend((operation == TensorOperation::Ttm).then_some(Path::SegmentGroup));
            let points = match self.options.points.as_slice() {
                [] => segment_points(width),
                points => points.to_vec(),
            };
            paths.extend(points.into_iter().map(Path::Point));
        }
        let each = |&determinism| paths.iter().map(move |&path| (path, determinism)).collect::<Vec<_>>();
        let mut all: Vec<_> = self.options.determinisms.iter().flat_map(each).collect();
        all.extend(has_kernels.then_some((Path::Atomic, Determinism::Fast)));
        all
    }
}

impl Suite for Tensor {
    const NAME: &'static str = "tensor";
    type Case = Case;
    type Facts = TensorFacts;

    fn cases(&self) -> Vec<Case> {
        let Options { operations, modes, widths, l2: l2s, .. } = &self.options;
        let mut cases = Vec::new();
        for (tensor, loaded) in self.tensors.iter().enumerate() {
            if loaded.tensor.is_err() {
                // One record that says so.
                let (operation, path, determinism) =
                    (TensorOperation::Mttkrp, Path::Default, Determinism::RunToRun);
                cases.push(Case { tensor, operation, mode: 0, width: 0, path, determinism, l2: L2::Warm });
                continue;
            }
            for &operation in operations {
                for &mode in modes {
                    for (&width, &l2) in widths.iter().flat_map(|of| l2s.iter().map(move |l2| (of, l2))) {
                        let case = |(path, determinism)| Case {
                            tensor,
                            operation,
                            mode,
                            width,
                            path,
                            determinism,
                            l2,
                        };
                        cases.extend(self.paths(operation, width).into_iter().map(case));
                    }
                }
            }
        }
        cases
    }

    fn name(&self, case: &Case) -> String {
        let Case { tensor, operation, mode, width, path, determinism, l2 } = case;
        let name = &self.tensors[*tensor].name;
        format!("{name}, {operation} of mode {mode} at {width}, {path}, {determinism}{}", l2.suffix())
    }

    fn l2(&self, case: &Case) -> L2 {
        case.l2
    }

    fn facts(&self, case: &Case) -> TensorFacts {
        let loaded = &self.tensors[case.tensor];
        let tensor = loaded.tensor.as_ref();
        TensorFacts {
            tensor: loaded.name.clone(),
            dims: tensor.map_or([0; 3], Coo3::dims),
            nnz: tensor.map_or(0, Coo3::nnz),
            operation: case.operation,
            mode: case.mode,
            fibers: 0,
            width: case.width,
            precision: "f32".to_owned(),
            path: case.path.to_string(),
            determinism: case.determinism.to_string(),
            plan: None,
            kernel_time: None,
            gflops: None,
        }
    }

    fn measure(&mut self, case: &Case, facts: &mut TensorFacts) -> Result<Measured, BenchError> {
        let tensor = self.tensors[case.tensor].tensor.as_ref();
        let tensor = tensor.map_err(|error| BenchError::Unreadable(error.clone()))?;
        let order = case.operation.order(case.mode);
        let a = self.fibers.get((case.tensor, order), || tensor.to_csf(order))?;
        (facts.dims, facts.nnz, facts.fibers) = (a.dims(), a.nnz(), a.fibers());
        let product = Product { device: &self.device, a, case, options: &self.options };
        let place = (case.tensor, case.operation, case.mode, case.width);
        let operands = self.operands.get(place, || product.operands())?;
        let (found, timing) = match case.path {
            Path::Atomic => product.measure_atomic(operands, &mut facts.kernel_time),
            _ => product.measure(operands, &mut facts.plan),
        }?;
        let measured = Measured::right(found, timing).inspect_err(|_| facts.kernel_time = None)?;
        let flop = case.operation.flop() * a.nnz() as f64 * case.width as f64;
        facts.gflops = Some(flop / timing.median_us * 1e-3);
        Ok(measured)
    }
}

/// A product of a tensor: planned, run, checked, timed.
struct Product<'a> {
    device: &'a Device,
    a: &'a Csf3<f32>,
    case: &'a Case,
    options: &'a Options,
}

impl Product<'_> {
    fn sampling(&self) -> Sampling {
        self.options.sampling.with_l2(self.case.l2)
    }

    fn operands(&self) -> Result<Operands, BenchError> {
        let (dims, [root, fiber, leaf], width) = (self.a.dims(), self.a.mode_order(), self.case.width);
        let seed = |mode: usize| case_seed(self.options.seed, mode as u64, width, "factors");
        let factor = |mode: usize| random_matrix(self.device, dims[mode], width, seed(mode));
        let (factors, rows) = match self.case.operation {
            TensorOperation::Mttkrp => (vec![factor(fiber)?, factor(leaf)?], dims[root]),
            TensorOperation::Ttm => (vec![factor(leaf)?], self.a.fibers()),
        };
        Ok(Operands { factors, y: DeviceMatrix::zeros(self.device, rows, width)? })
    }

    fn plan(&self, path: Path, determinism: Determinism) -> Result<Plan, BenchError> {
        Plan::build((self.device, self.a), (self.case.operation, self.case.width), path, determinism)
    }

    fn measure(
        &self,
        operands: &mut Operands,
        facts: &mut Option<TensorPlanFacts>,
    ) -> Result<(Verification, Timing), BenchError> {
        let plan = self.plan(self.case.path, self.case.determinism)?;
        *facts = Some(plan.facts());
        fill(&mut operands.y, Filling::Nan)?;
        let timing = measure(self.device, self.sampling(), || plan.run(operands))?;
        Ok((plan.verify(self.a, operands)?, timing))
    }
}
