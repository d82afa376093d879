//! Plans made on the CPU and on the GPU: the same arrays, and what either takes.
//!
//! A plan with all rows in tiles, in f16 and in tf32, Libra's division by column vectors, and panels of rows. A device
//! without kernels has nothing to compare: times are skipped and counted.

mod arguments;

#[cfg(test)]
mod tests;

use std::time::Instant;

use serde::{Deserialize, Serialize};
use windrow::internal::device_arrays;
use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{Algorithm, Csr, Device, DeviceKind, Precision, Preprocessing, SpmmOptions, SpmmPlan};

use super::ablation::facts::PartFacts;
use super::facts::MatrixFacts;
use super::markdown::{Grid, mean_of, number};
use super::matrices::{Case, Matrices, MatrixSource, Values};
use super::record::Record;
use super::{Measured, Suite, Tally};
use crate::measure::{BenchError, L2, Sampling, StageSamples, Statistics, SweepPath};
pub(crate) use arguments::Arguments;

/// What is told of a plan.
pub(crate) type PreprocessRecord = Record<PartFacts<Found>>;

/// What is found: the part of that name of older programs' ablations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(crate) enum Found {
    /// A plan made on the CPU and on the GPU.
    Preprocess(PreprocessFacts),
}

/// A plan made on the CPU and on the GPU, from CSR arrays in host memory to arrays on the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreprocessFacts {
    pub(crate) path: String,
    /// Where the second was made: `gpu`, or `cpu` for a plan that only the CPU makes.
    pub(crate) place: String,
    /// Why it was made there.
    #[serde(default)]
    pub(crate) reason: String,
    /// Bytes of the arrays.
    pub(crate) bytes: u64,
    /// The first array that differs; `null` if they are the same, byte for byte.
    pub(crate) differs: Option<String>,
    /// Threads of the CPU.
    pub(crate) threads: usize,
    /// Times of the plan that the CPU makes.
    pub(crate) cpu: PlaceFacts,
    /// Times of the plan made where `place` says.
    pub(crate) gpu: PlaceFacts,
    /// Time of the first over that of the second, if the arrays are the same.
    pub(crate) speed_up: Option<f64>,
}

/// How long a plan took to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlaceFacts {
    /// Median of the builds, in microseconds.
    pub(crate) us: f64,
    /// The quickest, in microseconds.
    pub(crate) min_us: f64,
    /// Relative spread, as [`Statistics::noise`].
    pub(crate) noise: f64,
    /// Builds after the first, which is not counted.
    pub(crate) builds: u64,
    /// Median of each stage, in microseconds.
    pub(crate) stages: Vec<(String, f64)>,
}

/// What is compared, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    pub(crate) widths: Vec<usize>,
    /// Where values of matrices come from.
    pub(crate) values: Values,
    /// Seed of made-up values.
    pub(crate) seed: u64,
    /// Its batches are how often a plan is made.
    pub(crate) sampling: Sampling,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

pub(crate) struct Preprocess {
    device: Device,
    options: Options,
    matrices: Matrices,
}

impl Preprocess {
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let matrices = Matrices::load(&options.sources, options.values, options.seed, options.progress);
        Self { device: device.clone(), options, matrices }
    }
}

/// All rows in tiles, Libra's division by column vectors, and panels of rows.
fn paths() -> [SweepPath; 4] {
    let path = SweepPath::new;
    let hybrid = path(Algorithm::Hybrid, Precision::F16).options;
    let partition = Some(PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA });
    [
        path(Algorithm::TileStream, Precision::F16),
        path(Algorithm::TileStream, Precision::Tf32),
        SpmmOptions { partition, ..hybrid }.into(),
        path(Algorithm::RowPanels, Precision::F32),
    ]
}

impl Suite for Preprocess {
    const NAME: &'static str = "preprocess";
    type Case = Case<SweepPath>;
    type Facts = PartFacts<Found>;

    fn cases(&self) -> Vec<Self::Case> {
        let paths = paths();
        let paths = if self.device.kind() == DeviceKind::Cpu { &[][..] } else { &paths };
        self.matrices.cases(&self.options.widths, &[L2::Warm], paths)
    }

    fn skipped(&self) -> u64 {
        match self.device.kind() {
            DeviceKind::Cpu => {
                (2 * paths().len() * self.options.widths.len() * self.matrices.readable().count()) as u64
            }
            _ => 0,
        }
    }

    fn name(&self, case: &Self::Case) -> String {
        self.matrices.name(case)
    }

    fn facts(&self, case: &Self::Case) -> Self::Facts {
        let (matrix, values) = (self.matrices.facts(case), self.options.values.to_string());
        PartFacts { matrix, values, width: case.width, facts: None }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut Self::Facts) -> Result<Measured, BenchError> {
        let (matrix, path) = self.matrices.of(case)?;
        let maker = Maker { device: &self.device, csr: &matrix.csr, width: case.width, path };
        let found = maker.compare(self.options.sampling.min_batches.max(1))?;
        let wrong = u64::from(found.differs.is_some());
        facts.facts = Some(Found::Preprocess(found));
        Ok(Measured { aside: Tally { wrong, ..Tally::default() }, ..Measured::default() })
    }
}

/// Makes one plan again and again.
struct Maker<'a> {
    device: &'a Device,
    csr: &'a Csr<f32>,
    width: usize,
    path: SweepPath,
}

impl Maker<'_> {
    fn compare(&self, builds: u32) -> Result<PreprocessFacts, BenchError> {
        let (on_cpu, cpu) = self.plans(builds, Preprocessing::Cpu)?;
        let expected = device_arrays(&on_cpu)?;
        drop(on_cpu); // so that the other has all memory
        let (on_gpu, gpu) = self.plans(builds, Preprocessing::Gpu)?;
        let report = on_gpu.report();
        let found = device_arrays(&on_gpu)?;
        let names =
            |arrays: &[(&'static str, Vec<u8>)]| arrays.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let differs = match names(&expected) == names(&found) {
            true => expected.iter().zip(&found).find(|(a, b)| a != b).map(|(a, _)| a.0),
            false => Some("the list of them"),
        };
        Ok(PreprocessFacts {
            path: self.path.to_string(),
            place: report.preprocessing.to_string(),
            reason: report.preprocessing_reason.clone(),
            bytes: expected.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            differs: differs.map(str::to_owned),
            threads: rayon::current_num_threads(),
            speed_up: Some(cpu.us / gpu.us).filter(|ratio| ratio.is_finite() && differs.is_none()),
            cpu,
            gpu,
        })
    }

    /// The plan, and how long it took: from CSR arrays in host memory to arrays on the device.
    fn plans(&self, builds: u32, place: Preprocessing) -> Result<(SpmmPlan, PlaceFacts), BenchError> {
        let make = || {
            let builder = self.path.builder(self.csr, self.width, None).preprocessing(place);
            self.device.synchronize()?;
            let start = Instant::now();
            let plan = builder.build(self.device)?;
            self.device.synchronize()?;
            Ok::<_, BenchError>((plan, start.elapsed().as_secs_f64() * 1e6))
        };
        let (mut plan, _) = make()?; // what is done once, the driver's part of it too
        let mut samples = Vec::new();
        let mut stages = StageSamples::default();
        for _ in 0..builds {
            drop(plan);
            let (made, us) = make()?;
            samples.push(us);
            stages.add(&made.report().stages);
            plan = made;
        }
        let median = |samples: &[f64]| Statistics::of(samples).map_or(0.0, |found| found.median);
        let found = Statistics::of(&samples);
        let facts = PlaceFacts {
            us: median(&samples),
            min_us: found.map_or(0.0, |found| found.min),
            noise: found.map_or(0.0, |found| found.noise),
            builds: samples.len() as u64,
            stages: stages.medians(),
        };
        Ok((plan, facts))
    }
}

/// Plans as a table; nothing if there are none.
pub(crate) fn table<'a>(
    plans: impl Iterator<Item = (&'a MatrixFacts, usize, &'a PreprocessFacts)>,
) -> String {
    let mut grid = Grid::new([
        "matrix",
        "n",
        "path",
        "entries",
        "threads",
        "CPU µs",
        "GPU µs",
        "speed-up",
        "arrays",
        "stages on the GPU, µs",
    ]);
    let (mut rows, mut ratios) = (0, Vec::new());
    for (matrix, width, facts) in plans {
        let stages = facts.gpu.stages.iter().map(|(name, us)| format!("{name} {us:.0}")).collect::<Vec<_>>();
        let on_gpu = facts.place == "gpu";
        rows += 1;
        ratios.extend(facts.speed_up.filter(|_| on_gpu));
        grid.row([
            matrix.name.clone(),
            width.to_string(),
            facts.path.clone(),
            matrix.nnz.map_or_else(String::new, |nnz| nnz.to_string()),
            facts.threads.to_string(),
            number(Some(facts.cpu.us), 0),
            if on_gpu { number(Some(facts.gpu.us), 0) } else { "on the CPU".to_owned() },
            number(facts.speed_up, 2),
            facts.differs.as_ref().map_or_else(|| "the same".to_owned(), |name| format!("{name} differs")),
            stages.join(", "),
        ]);
    }
    let mean = mean_of("time on the CPU over that on the GPU", &ratios);
    if rows == 0 { String::new() } else { format!("\n## Preprocessing\n\n{grid}{mean}") }
}

/// Records as tables in Markdown: a line for each matrix and path.
fn summarise(records: &[PreprocessRecord]) -> String {
    let failed = records.iter().filter(|record| record.error.is_some()).count();
    let mut text = format!("# Plans\n\n{} lines, {failed} of them errors.\n", records.len());
    for record in records {
        if let Some(error) = &record.error {
            text += &format!("- {} at {}: {error}\n", record.facts.matrix.name, record.facts.width);
        }
    }
    text + &table(records.iter().filter_map(|record| {
        let Found::Preprocess(facts) = record.facts.facts.as_ref()?;
        Some((&record.facts.matrix, record.facts.width, facts))
    }))
}
