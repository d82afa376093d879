//! Plans of either product.

use windrow::{Algorithm, Csf3, Determinism, Device, Mttkrp, MttkrpPlan, Ttm, TtmPlan, Verification};

use super::{Operands, Path, TensorPlanFacts};
use crate::measure::{BenchError, TensorOperation};

/// A plan of either product.
pub(super) enum Plan {
    Mttkrp(Box<MttkrpPlan>),
    Ttm(Box<TtmPlan>),
}

impl Plan {
    /// The plan of a path.
    pub(super) fn build(
        (device, a): (&Device, &Csf3<f32>),
        (operation, width): (TensorOperation, usize),
        path: Path,
        determinism: Determinism,
    ) -> Result<Self, BenchError> {
        Ok(match operation {
            TensorOperation::Mttkrp => {
                let mut builder = Mttkrp::builder(a).width(width).determinism(determinism);
                if let Path::Point(point) = path {
                    builder = builder.parallelism(point);
                }
                Self::Mttkrp(Box::new(builder.build(device)?))
            }
            TensorOperation::Ttm => {
                let mut builder = Ttm::builder(a).width(width).determinism(determinism);
                if !matches!(path, Path::Default) {
                    builder = builder.algorithm(Algorithm::SegmentGroup);
                }
                if let Path::Point(point) = path {
                    builder = builder.parallelism(point);
                }
                Self::Ttm(Box::new(builder.build(device)?))
            }
        })
    }

    pub(super) fn run(&self, Operands { factors, y }: &mut Operands) -> Result<(), BenchError> {
        match (self, factors.as_slice()) {
            (Self::Mttkrp(plan), [b, c]) => plan.run_into(1.0, [b, c], 0.0, y)?,
            (Self::Ttm(plan), [b, ..]) => plan.run_into(1.0, b, 0.0, y)?,
            (Self::Mttkrp(_), _) | (Self::Ttm(_), []) => {} // not reached: made for the same product
        }
        Ok(())
    }

    pub(super) fn verify(
        &self,
        a: &Csf3<f32>,
        Operands { factors, y }: &Operands,
    ) -> Result<Verification, BenchError> {
        Ok(match self {
            Self::Mttkrp(plan) => plan.verify(a, [&factors[0], &factors[1]], y)?,
            Self::Ttm(plan) => plan.verify(a, &factors[0], y)?,
        })
    }

    pub(super) fn facts(&self) -> TensorPlanFacts {
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
