//! Products with vector-wise N:M weights: shapes × patterns × precisions, each planned, timed, verified, beside cuBLAS's
//! dense product of the same shape.

mod case;
mod shape;
mod summary;

use std::io;

use serde::{Deserialize, Serialize};
use windrow::{ActivationLayout, Device, DeviceKind, NmPacking, NmPattern, NmReport, Precision};

use crate::peers::CuBlas;
use crate::sweep::{CheckFacts, DeviceFacts, SweepSummary, revision};
use crate::timing::{Sampling, Timing};

use case::Case;
pub use shape::NmShape;
pub use summary::summarise_nm;

/// Version of the lines' form, as [`SCHEMA`](crate::SCHEMA).
pub const NM_SCHEMA: u32 = 1;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub struct NmOptions {
    /// Sizes of the products.
    pub shapes: Vec<NmShape>,
    /// Patterns of the weights; one that keeps everything measures the kernels without sparsity.
    pub patterns: Vec<NmPattern>,
    /// Types of activations and weights. For f16 and bf16, `C` has the same type.
    pub precisions: Vec<Precision>,
    /// How activations are stored.
    pub layouts: Vec<ActivationLayout>,
    /// Whether columns of `A` are packed.
    pub packings: Vec<NmPacking>,
    /// One kernel by its name, instead of the model's choice.
    pub kernel: Option<String>,
    /// Whether plans try a few kernels.
    pub autotune: bool,
    /// Seed of weights and activations.
    pub seed: u64,
    /// How much is measured.
    pub sampling: Sampling,
    /// Whether cuBLAS is measured beside, on a CUDA device.
    pub peers: bool,
}

/// What was measured of one product: one JSON object on a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NmRecord {
    /// [`NM_SCHEMA`].
    pub schema: u32,
    /// Which windrow was measured.
    pub revision: String,
    /// Where.
    pub device: DeviceFacts,
    /// Rows of `A` and `C`, columns of `C`, and the inner dimension.
    pub shape: NmShape,
    /// `N`, `M` and `L` of the weights.
    pub pattern: [usize; 3],
    /// Type of activations and weights.
    pub precision: String,
    /// How activations are stored.
    pub layout: String,
    /// What was asked of packing.
    pub packing: String,
    /// The plan.
    pub plan: Option<NmPlanFacts>,
    /// The comparison with the f64 reference: all rows of `C`, or a sample of them.
    pub check: Option<CheckFacts>,
    /// The time, of a result that is right.
    pub time: Option<Timing>,
    /// 10¹² operations a second, of those that are kept.
    pub tflops: Option<f64>,
    /// cuBLAS's dense product of this shape and precision (f16 for bf16, too), in microseconds.
    pub dense_us: Option<f64>,
    /// Why there is no time.
    pub error: Option<String>,
}

/// A plan of products with N:M weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NmPlanFacts {
    /// The algorithm that is run.
    pub algorithm: String,
    /// Entry points that are launched.
    pub entries: Vec<String>,
    /// Whether columns of `A` are packed.
    pub packing: String,
    /// Shape of a block's tile.
    pub tile: Option<String>,
    /// Kernels that were tried, and how many microseconds each took.
    pub tuned: Vec<(String, f64)>,
    /// Device memory of the plan, in bytes.
    pub device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub preprocess_ms: f64,
}

impl NmPlanFacts {
    fn of(report: &NmReport) -> Self {
        Self {
            algorithm: report.algorithm.to_string(),
            entries: report.entries.iter().map(|&entry| entry.to_owned()).collect(),
            packing: report.packing.to_string(),
            tile: report.tile.clone(),
            tuned: report.tuned.clone(),
            device_bytes: report.device_bytes,
            preprocess_ms: report.preprocessing_us() / 1e3,
        }
    }
}

impl NmRecord {
    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }

    /// Share of the weights that is not kept where groups are whole.
    #[must_use]
    pub fn sparsity(&self) -> f64 {
        let [n, m, _] = self.pattern.map(|x| u32::try_from(x).map_or(f64::NAN, f64::from));
        1.0 - n / m
    }
}

/// Measures every combination and hands each record to `emit` as soon as it is measured: weights and activations uniform
/// in `[−1, 1)`, which weights are kept at random, the result full of NaN before, what the last call left compared with an
/// f64 reference. A case that fails has its error in its record.
///
/// # Errors
/// The first error of `emit`.
pub fn nm_sweep(
    device: &Device,
    options: &NmOptions,
    emit: &mut dyn FnMut(&NmRecord) -> io::Result<()>,
) -> io::Result<SweepSummary> {
    let mut summary = SweepSummary::default();
    let wanted = options.peers && device.kind() == DeviceKind::Cuda;
    let library = wanted.then(|| CuBlas::load(device));
    for &shape in &options.shapes {
        for &precision in &options.precisions {
            let dense_us = case::dense_us(device, library.as_ref(), shape, precision, options);
            for &pattern in &options.patterns {
                for &layout in &options.layouts {
                    for &packing in &options.packings {
                        let mut record = NmRecord {
                            schema: NM_SCHEMA,
                            revision: revision(),
                            device: DeviceFacts::of(device),
                            shape,
                            pattern: [pattern.n(), pattern.m(), pattern.l()],
                            precision: precision.to_string(),
                            layout: layout.to_string(),
                            packing: packing.to_string(),
                            plan: None,
                            check: None,
                            time: None,
                            tflops: None,
                            dense_us,
                            error: None,
                        };
                        let case = Case { device, shape, pattern, precision, layout, packing, options };
                        if let Err(error) = case.measure(&mut record) {
                            record.error = Some(error.to_string());
                        }
                        summary.cases += 1;
                        summary.wrong +=
                            u64::from(record.check.as_ref().is_some_and(|check| check.failures > 0));
                        summary.errors += u64::from(record.error.is_some());
                        emit(&record)?;
                    }
                }
            }
        }
    }
    Ok(summary)
}
