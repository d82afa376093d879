//! Products of sparse tensors, MTTKRP and TTM: tensors × modes × widths × divisions of the work, each planned, verified and
//! timed, beside kernels that add every product atomically.

mod case;
mod source;
mod summary;

use std::io;

use serde::{Deserialize, Serialize};
use windrow::{AtomicParallelism, Determinism, Device};
use windrow_formats::names;

use crate::sweep::{CheckFacts, DeviceFacts, SweepSummary, revision};
use crate::timing::{Sampling, Timing};

use case::Case;
pub use source::{SyntheticTensor, TensorSource};
pub use summary::summarise_tensor;

/// Version of the lines' form, as [`SCHEMA`](crate::SCHEMA).
pub const TENSOR_SCHEMA: u32 = 1;

/// A product of a tensor with dense matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorOperation {
    /// `Y[i,:] = Σ A[i,k,l]·(B[k,:] ⊙ C[l,:])`.
    Mttkrp,
    /// `Y[i,j,:] = Σ A[i,j,l]·B[l,:]`.
    Ttm,
}

impl TensorOperation {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mttkrp, Self::Ttm];

    /// Operations for each entry and column.
    #[must_use]
    pub const fn flop(self) -> f64 {
        match self {
            Self::Mttkrp => 3.0,
            Self::Ttm => 2.0,
        }
    }

    /// The modes at the levels of the fibers that a product for `mode` takes: that mode at the roots, or at the leaves.
    #[must_use]
    pub const fn order(self, mode: usize) -> [usize; 3] {
        let others = match mode {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        };
        match self {
            Self::Mttkrp => [mode, others[0], others[1]],
            Self::Ttm => [others[0], others[1], mode],
        }
    }
}

names!(TensorOperation, String, |text, known| format!("{text:?} is no product of tensors; there are {known}");
    Mttkrp => "mttkrp", Ttm => "ttm");

/// What is measured, and how.
#[derive(Debug, Clone)]
pub struct TensorOptions {
    /// Products.
    pub operations: Vec<TensorOperation>,
    /// Modes of the tensor that products are for.
    pub modes: Vec<usize>,
    /// Columns of the dense matrices.
    pub widths: Vec<usize>,
    /// Points of Sgap's space beside what the library chooses; with none, those of [`segment_points`] for each width. The CPU has
    /// none.
    pub points: Vec<AtomicParallelism>,
    /// Whether what is cut is added in a fixed order, atomically, or each.
    pub determinisms: Vec<Determinism>,
    /// Seed of made-up tensors and matrices.
    pub seed: u64,
    /// How much is measured.
    pub sampling: Sampling,
    /// Is told what is done before a measurement.
    pub progress: fn(&str),
}

/// Points of the segment reduction for a width: 1 to 32 nonzeros of a thread, whose sums are added by itself, or by as many
/// threads as the width leaves of a warp.
#[must_use]
pub fn segment_points(width: usize) -> Vec<AtomicParallelism> {
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

/// What was measured of one product: one JSON object on a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// [`TENSOR_SCHEMA`].
    pub schema: u32,
    /// Which windrow was measured.
    pub revision: String,
    /// Where.
    pub device: DeviceFacts,
    /// Name of the tensor.
    pub tensor: String,
    /// Its dimensions.
    pub dims: [usize; 3],
    /// Its entries, duplicates summed.
    pub nnz: usize,
    /// The product.
    pub operation: TensorOperation,
    /// The mode that it is for.
    pub mode: usize,
    /// Fibers of the tensor in the order of modes that the product takes.
    pub fibers: usize,
    /// Columns of the dense matrices.
    pub width: usize,
    /// Type of values and matrices.
    pub precision: String,
    /// `default`, `segment-group` (with a point that the library chooses), a point, or `atomic`.
    pub path: String,
    /// How what is cut is added; of `atomic`, as it comes.
    pub determinism: String,
    /// The plan; none for `atomic`.
    pub plan: Option<TensorPlanFacts>,
    /// The comparison with the f64 reference: all elements.
    pub check: Option<CheckFacts>,
    /// The time, of a result that is right; for `atomic` with the time of setting the result to zero.
    pub time: Option<Timing>,
    /// The same without that.
    pub kernel_time: Option<Timing>,
    /// 10⁹ operations a second.
    pub gflops: Option<f64>,
    /// Why there is no time.
    pub error: Option<String>,
}

/// A plan of a product of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorPlanFacts {
    /// Entry points that are launched.
    pub entries: Vec<String>,
    /// The point and its launch.
    pub parallelism: Option<String>,
    /// Slices or fibers that are cut.
    pub split_rows: u64,
    /// Device memory of the plan, in bytes.
    pub device_bytes: u64,
    /// The part of it that is workspace.
    pub workspace_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub preprocess_ms: f64,
}

impl TensorRecord {
    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }
}

/// Measures every combination and hands each record to `emit` as soon as it is measured: matrices uniform in `[−1, 1)`, the
/// result full of NaN before, what the last call left compared with an f64 reference. A case that fails has its error in its
/// record; a tensor that cannot be had is told by `progress` and counted.
///
/// # Errors
/// The first error of `emit`.
pub fn tensor_sweep(
    device: &Device,
    sources: &[TensorSource],
    options: &TensorOptions,
    emit: &mut dyn FnMut(&TensorRecord) -> io::Result<()>,
) -> io::Result<SweepSummary> {
    let mut summary = SweepSummary::default();
    for source in sources {
        (options.progress)(&format!("making {}", source.name()));
        let tensor = match source.load(options.seed) {
            Ok(tensor) => tensor,
            Err(error) => {
                (options.progress)(&format!("{}: {error}", source.name()));
                summary.unreadable += 1;
                continue;
            }
        };
        for &operation in &options.operations {
            for &mode in &options.modes {
                let a = match tensor.to_csf(operation.order(mode)) {
                    Ok(a) => a,
                    Err(error) => {
                        (options.progress)(&format!("{}: {error}", source.name()));
                        summary.errors += 1;
                        continue;
                    }
                };
                for &width in &options.widths {
                    let blank = TensorRecord {
                        schema: TENSOR_SCHEMA,
                        revision: revision(),
                        device: DeviceFacts::of(device),
                        tensor: source.name(),
                        dims: a.dims(),
                        nnz: a.nnz(),
                        operation,
                        mode,
                        fibers: a.fibers(),
                        width,
                        precision: "f32".to_owned(),
                        path: String::new(),
                        determinism: String::new(),
                        plan: None,
                        check: None,
                        time: None,
                        kernel_time: None,
                        gflops: None,
                        error: None,
                    };
                    let case = Case { device, a: &a, operation, width, options };
                    case.measure(&blank, &mut |record| {
                        summary.cases += 1;
                        summary.wrong +=
                            u64::from(record.check.as_ref().is_some_and(|check| check.failures > 0));
                        summary.errors += u64::from(record.error.is_some());
                        emit(record)
                    })?;
                }
            }
        }
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use windrow::EmulatorSchedule;

    use super::*;

    #[test]
    fn points_are_those_that_the_width_leaves() {
        let texts = |width| segment_points(width).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(8)[..2], ["{<1 nnz, 4 col>, 16}", "{<1 nnz, 4 col>, 1}"]);
        assert_eq!(texts(128), [1, 4, 16, 32].map(|g| format!("{{<{g} nnz, 4 col>, 1}}")));
        assert_eq!(texts(1).len(), 8);
    }

    /// All paths, verified, on the emulator; the summary names the best.
    #[test]
    fn every_path_is_measured_and_right() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let options = TensorOptions {
            operations: TensorOperation::ALL.to_vec(),
            modes: vec![0, 2],
            widths: vec![4, 9],
            points: vec!["{<4 nnz, 2 col>, 8}".parse().unwrap()],
            determinisms: Determinism::ALL.to_vec(),
            seed: 3,
            sampling: Sampling::SMOKE,
            progress: |_| {},
        };
        let sources = [TensorSource::Synthetic("9x20x14:300".parse().unwrap())];
        let mut records = Vec::new();
        let summary = tensor_sweep(&device, &sources, &options, &mut |record| {
            records.push(record.clone());
            Ok(())
        });
        // MTTKRP has default and a point in two ways each, and atomic; TTM segment-group too.
        let cases = 2 * 2 * (2 * 2 + 1) + 2 * 2 * (2 * 3 + 1);
        assert_eq!(summary.unwrap(), SweepSummary { cases, ..SweepSummary::default() }, "{records:?}");
        assert!(records.iter().all(|record| record.gflops.is_some_and(|rate| rate > 0.0)));
        let text = summarise_tensor(&records);
        assert!(text.contains("## mttkrp, mode 2") && text.contains("9x20x14:300"), "{text}");
        assert!(text.contains("{<4 nnz, 2 col>, 8}"), "{text}");
        let line = records[0].to_json_line();
        assert_eq!(serde_json::from_str::<TensorRecord>(&line).unwrap(), records[0]);
    }

    #[test]
    fn the_cpu_has_one_path() {
        let options = TensorOptions {
            operations: vec![TensorOperation::Mttkrp],
            modes: vec![1],
            widths: vec![3],
            points: Vec::new(),
            determinisms: vec![Determinism::RunToRun],
            seed: 3,
            sampling: Sampling::SMOKE,
            progress: |_| {},
        };
        let sources = [
            TensorSource::Synthetic("9x20x14:300".parse().unwrap()),
            TensorSource::File("no-such-file.tns".into()),
        ];
        let summary = tensor_sweep(&Device::cpu(), &sources, &options, &mut |record| {
            assert_eq!((record.path.as_str(), record.error.as_ref()), ("default", None));
            Ok(())
        });
        assert_eq!(summary.unwrap(), SweepSummary { cases: 1, unreadable: 1, ..SweepSummary::default() });
    }
}
