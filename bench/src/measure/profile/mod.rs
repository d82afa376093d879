//! Thresholds of a GPU model, measured on a grid of made-up matrices.

mod patterns;
mod schedules;
mod thresholds;

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, Csr, Device, Precision, Profile, Schedule, Scheduling, SddmmAlgorithm, SddmmForm, SpmmOptions,
    f16,
};

use crate::measure::error::BenchError;
use crate::measure::operands::random_matrix;
use crate::measure::path::{SCHEDULES, SweepPath};
use crate::measure::product::{Operands, Product};
use crate::measure::sampled::{SampledPath, measure_sampled};
use crate::measure::statistics::geometric_mean;
use crate::measure::timing::Sampling;
use patterns::{graded, mixed};
use schedules::fit_range;
pub(crate) use schedules::fit_thresholds;
pub use schedules::{ScheduleCase, judgement};
pub use thresholds::{ThresholdFit, ThresholdSource};

/// The matrices that are measured.
struct Grid<'a> {
    /// Rows of those that hybrids multiply in both schedules.
    schedules: &'a [u32],
    /// Rows of those that are distributed by every threshold.
    distributions: &'a [u32],
}

const GRID: Grid<'static> =
    Grid { schedules: &[512, 2048, 8192, 24_576, 98_304], distributions: &[8192, 98_304] };
/// Columns that all rows of a window share, and columns that each row has besides.
const SHARES: [(u32, u32); 3] = [(4, 12), (12, 4), (32, 24)];
/// Columns of `B`; inner dimension of sampled products.
const WIDTHS: [usize; 2] = [32, 128];
/// Thresholds of tiles that are compared, in entries of 128.
const TILE_ENTRIES: [u32; 6] = [1, 8, 16, 24, 32, 64];
/// Seed of patterns, values and operands.
const SEED: u64 = 0x7e5e;

/// What was measured, and what follows from it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Tuning {
    /// The thresholds that lose least on the grid.
    pub profile: Profile,
    /// Sparse-dense products in both schedules.
    pub spmm: Vec<ScheduleCase>,
    /// Sampled products in both schedules.
    pub sddmm: Vec<ScheduleCase>,
    /// The thresholds of Libra's equation 8 for both, and which of them are the paper's.
    pub thresholds: ThresholdFit,
    /// For each threshold of column vectors, the time over that of the best one, a geometric mean over the grid.
    pub vectors: Vec<(String, f64)>,
    /// The same for thresholds of tiles, in entries.
    pub tiles: Vec<(u32, f64)>,
}

/// Measures hybrids of made-up matrices on a GPU, every result verified, and finds the thresholds that lose least.
///
/// Tells `progress` what is measured. Takes some seconds.
///
/// # Errors
/// The first error of a plan or a product, a wrong result included.
pub fn tune(
    device: &Device,
    sampling: Sampling,
    progress: &mut dyn FnMut(&str),
) -> Result<Tuning, BenchError> {
    Tuner { device, sampling }.tune(&GRID, progress)
}

impl Tuner<'_> {
    fn tune(&self, grid: &Grid<'_>, progress: &mut dyn FnMut(&str)) -> Result<Tuning, BenchError> {
        let (mut spmm, mut sddmm) = (Vec::new(), Vec::new());
        for &rows in grid.schedules {
            for shares in SHARES {
                let csr = mixed(rows, shares)?;
                progress(&format!("schedules: {rows} rows, {} entries", csr.nnz()));
                for width in WIDTHS {
                    let name = format!("{rows} rows, {} + {} entries, at {width}", shares.0, shares.1);
                    spmm.extend(self.spmm_case(&csr, width, &name)?);
                    sddmm.extend(self.sddmm_case(&csr, width, &name)?);
                }
            }
        }
        let mut profile = Profile::of(self.device);
        profile.spmm = fit_range(&spmm);
        profile.sddmm = fit_range(&sddmm);
        // One pair serves both products.
        let both = [spmm.as_slice(), &sddmm].concat();
        let thresholds = ThresholdFit::of(&both);
        profile.thresholds = thresholds.thresholds;

        let (mut by_vectors, mut by_tiles) = (Vec::new(), Vec::new());
        for &rows in grid.distributions {
            let csr = graded(rows)?;
            progress(&format!("distributions: {rows} rows, {} entries", csr.nnz()));
            for width in WIDTHS {
                by_vectors.push(self.vector_times(&csr, width)?);
                by_tiles.push(self.tile_times(&csr, width)?);
            }
        }
        let vectors = losses(&by_vectors);
        let tiles = losses(&by_tiles);
        let least =
            |losses: &[f64]| (0..losses.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b])).unwrap_or(0);
        profile.set_vector_threshold(VectorThreshold::ALL[least(&vectors)]);
        profile.tile_entries = TILE_ENTRIES[least(&tiles)];
        Ok(Tuning {
            profile,
            spmm,
            sddmm,
            thresholds,
            vectors: VectorThreshold::ALL.iter().map(ToString::to_string).zip(vectors).collect(),
            tiles: TILE_ENTRIES.into_iter().zip(tiles).collect(),
        })
    }
}

/// For each choice, the time over that of the best one of its case, a geometric mean over the cases.
fn losses(cases: &[Vec<f64>]) -> Vec<f64> {
    let choices = cases.first().map_or(0, Vec::len);
    let best = |case: &Vec<f64>| case.iter().copied().fold(f64::INFINITY, f64::min);
    (0..choices)
        .map(|choice| {
            let ratios: Vec<f64> = cases.iter().map(|case| case[choice] / best(case)).collect();
            geometric_mean(&ratios).unwrap_or(1.0)
        })
        .collect()
}

struct Tuner<'a> {
    device: &'a Device,
    sampling: Sampling,
}

impl Tuner<'_> {
    fn spmm_us(
        &self,
        csr: &Csr<f32>,
        width: usize,
        path: SweepPath,
    ) -> Result<(f64, Option<Scheduling>), BenchError> {
        let product = Product { device: self.device, csr, width, path, order: None, partition: None };
        let mut operands = Operands::new(self.device, csr, width, (SEED, 0));
        let mut report = None;
        let (_, timing) = product.measure(&mut operands, self.sampling, &mut report)?;
        Ok((timing.median_us, report.and_then(|report| report.scheduling)))
    }

    fn spmm_case(
        &self,
        csr: &Csr<f32>,
        width: usize,
        name: &str,
    ) -> Result<Option<ScheduleCase>, BenchError> {
        let options = divided(VectorThreshold::LIBRA);
        let path = |schedule| SweepPath::from(SpmmOptions { schedule, ..options });
        self.case(name, |tuner, schedule| tuner.spmm_us(csr, width, path(schedule)))
    }

    fn sddmm_us(
        &self,
        csr: &Csr<f32>,
        inner: usize,
        path: SampledPath,
    ) -> Result<(f64, Option<Scheduling>), BenchError> {
        let plan = path.builder(csr, inner).build(self.device)?;
        let operand = |rows, seed| random_matrix::<f16>(self.device, rows, inner, seed);
        let (x, y) = (operand(csr.rows(), SEED)?, operand(csr.cols(), !SEED)?);
        let (_, timing) = measure_sampled(&plan, csr, [&x, &y], self.sampling)?;
        Ok((timing.median_us, plan.report().scheduling.clone()))
    }

    fn sddmm_case(
        &self,
        csr: &Csr<f32>,
        inner: usize,
        name: &str,
    ) -> Result<Option<ScheduleCase>, BenchError> {
        let path = sampled_hybrid(24);
        self.case(name, |tuner, schedule| tuner.sddmm_us(csr, inner, SampledPath { schedule, ..path }))
    }

    /// A product in both schedules; none if it has one part only.
    fn case(
        &self,
        name: &str,
        us: impl Fn(&Self, Schedule) -> Result<(f64, Option<Scheduling>), BenchError>,
    ) -> Result<Option<ScheduleCase>, BenchError> {
        let [sequential, multi_stream] = SCHEDULES;
        let (sequential_us, _) = us(self, sequential)?;
        let (multi_stream_us, scheduling) = us(self, multi_stream)?;
        Ok(scheduling.map(|found| ScheduleCase {
            product: name.to_owned(),
            occupancy: [found.cuda_cores, found.tensor_cores],
            sequential_us,
            multi_stream_us,
        }))
    }

    /// Times for each of [`VectorThreshold::ALL`].
    fn vector_times(&self, csr: &Csr<f32>, width: usize) -> Result<Vec<f64>, BenchError> {
        let times = VectorThreshold::ALL
            .map(|threshold| self.spmm_us(csr, width, divided(threshold).into()).map(|(us, _)| us));
        times.into_iter().collect()
    }

    /// Times for each of [`TILE_ENTRIES`].
    fn tile_times(&self, csr: &Csr<f32>, inner: usize) -> Result<Vec<f64>, BenchError> {
        let times =
            TILE_ENTRIES.map(|entries| self.sddmm_us(csr, inner, sampled_hybrid(entries)).map(|(us, _)| us));
        times.into_iter().collect()
    }
}

/// A hybrid that is divided by column vectors with this threshold.
fn divided(threshold: VectorThreshold) -> SpmmOptions {
    SpmmOptions {
        algorithm: Algorithm::Hybrid,
        precision: Precision::F16,
        partition: Some(PartitionRule::ColumnVectors { threshold }),
        ..SpmmOptions::DEFAULT
    }
}

/// A hybrid of sampled products with this threshold of tiles.
fn sampled_hybrid(entries: u32) -> SampledPath {
    SampledPath {
        algorithm: SddmmAlgorithm::Hybrid,
        precision: Precision::F16,
        group: None,
        threshold: Some(entries),
        form: SddmmForm::Mask,
        scan: false,
        schedule: Schedule::Auto,
        autotune: false,
    }
}

#[cfg(test)]
mod tests {
    use windrow::EmulatorSchedule;

    use super::*;

    #[test]
    fn grids_have_both_parts_and_every_fill() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let tuner = Tuner { device: &device, sampling: Sampling::SMOKE };
        let csr = mixed(64, (12, 4)).unwrap();
        assert!(csr.nnz() > 64 * 12 && csr.nnz() <= 64 * 16);
        for case in [tuner.spmm_case(&csr, 8, "spmm"), tuner.sddmm_case(&csr, 8, "sddmm")] {
            let case = case.unwrap().expect("both parts have work");
            assert!(case.occupancy.iter().all(|ratio| *ratio > 0.0) && case.sequential_us > 0.0);
        }
        let csr = graded(64).unwrap();
        assert_eq!(tuner.vector_times(&csr, 8).unwrap().len(), 8);
        assert_eq!(tuner.tile_times(&csr, 8).unwrap().len(), TILE_ENTRIES.len());
    }

    #[test]
    fn what_is_measured_becomes_the_profile() {
        let device = Device::emulator(EmulatorSchedule::InOrder);
        let tuner = Tuner { device: &device, sampling: Sampling::SMOKE };
        let grid = Grid { schedules: &[64], distributions: &[64] };
        let mut told = Vec::new();
        let tuning = tuner.tune(&grid, &mut |what| told.push(what.to_owned())).unwrap();
        let count = SHARES.len() * WIDTHS.len();
        assert_eq!((tuning.spmm.len(), tuning.sddmm.len(), told.len()), (count, count, SHARES.len() + 1));
        let both = [tuning.spmm.as_slice(), &tuning.sddmm].concat();
        let Tuning { profile, thresholds, .. } = &tuning;
        assert_eq!(*thresholds, ThresholdFit::of(&both));
        assert_eq!(profile.thresholds, thresholds.thresholds);
        assert_eq!((profile.spmm, profile.sddmm), (fit_range(&tuning.spmm), fit_range(&tuning.sddmm)));
        assert_eq!((tuning.vectors.len(), tuning.tiles.len()), (8, TILE_ENTRIES.len()));
    }

    #[test]
    fn losses_are_over_the_best_of_each_case() {
        let found = losses(&[vec![1.0, 2.0], vec![4.0, 2.0]]);
        assert!(found.len() == 2 && found.iter().all(|loss| (loss - 2f64.sqrt()).abs() < 1e-12), "{found:?}");
        assert!(losses(&[]).is_empty());
    }
}
