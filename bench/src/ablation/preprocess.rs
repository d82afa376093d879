//! Plans made on the CPU and on the GPU: the same arrays, and what either takes.

use std::time::Instant;

use windrow::partition::VectorThreshold;
use windrow::{Algorithm, Precision, Preprocessing, SpmmPlan};

use super::Bench;
use super::record::{AblationFacts, PlaceFacts, PreprocessFacts};
use crate::error::BenchError;
use crate::sweep::SweepPath;
use crate::timing::Statistics;

/// All rows in tiles, and Libra's division by column vectors; nothing but a count of what is skipped on a device without
/// kernels.
pub(super) fn facts(bench: &mut Bench<'_>) -> Result<Vec<AblationFacts>, BenchError> {
    let vectors =
        SweepPath { vectors: Some(VectorThreshold::LIBRA), ..path(Algorithm::Hybrid, Precision::F16) };
    let paths =
        [path(Algorithm::TileStream, Precision::F16), path(Algorithm::TileStream, Precision::Tf32), vectors];
    let mut facts = Vec::new();
    for path in paths {
        if !bench.has_kernels {
            bench.summary.skipped += 2;
            continue;
        }
        facts.push(AblationFacts::Preprocess(compare(bench, path)?));
    }
    Ok(facts)
}

fn path(algorithm: Algorithm, precision: Precision) -> SweepPath {
    SweepPath::new(algorithm, precision)
}

fn compare(bench: &mut Bench<'_>, path: SweepPath) -> Result<PreprocessFacts, BenchError> {
    let (on_cpu, cpu) = plans(bench, path, Preprocessing::Cpu)?;
    let expected = on_cpu.device_arrays()?;
    drop(on_cpu); // so that the other has all memory
    let (on_gpu, gpu) = plans(bench, path, Preprocessing::Gpu)?;
    let report = on_gpu.report();
    let found = on_gpu.device_arrays()?;
    let names = |arrays: &[(&'static str, Vec<u8>)]| arrays.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let differs = match names(&expected) == names(&found) {
        true => expected.iter().zip(&found).find(|(a, b)| a != b).map(|(a, _)| a.0),
        false => Some("the list of them"),
    };
    bench.summary.wrong += u64::from(differs.is_some());
    Ok(PreprocessFacts {
        path: path.to_string(),
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

/// Makes the plan again and again, and tells how long that took: from CSR arrays in host memory to arrays on the device.
fn plans(
    bench: &Bench<'_>,
    path: SweepPath,
    place: Preprocessing,
) -> Result<(SpmmPlan, PlaceFacts), BenchError> {
    let make = || {
        let builder = path.builder(bench.csr, bench.width, None).preprocessing(place);
        bench.device.synchronize()?;
        let start = Instant::now();
        let plan = builder.build(bench.device)?;
        bench.device.synchronize()?;
        Ok::<_, BenchError>((plan, start.elapsed().as_secs_f64() * 1e6))
    };
    let (mut plan, _) = make()?; // what is done once, the driver's part of it too
    let mut samples = Vec::new();
    let mut stages: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..bench.options.sampling.min_batches.max(1) {
        drop(plan);
        let (made, us) = make()?;
        samples.push(us);
        for stage in &made.report().stages {
            match stages.iter_mut().find(|(name, _)| name == stage.name) {
                Some((_, times)) => times.push(stage.us),
                None => stages.push((stage.name.to_owned(), vec![stage.us])),
            }
        }
        plan = made;
    }
    let median = |samples: &[f64]| Statistics::of(samples).map_or(0.0, |found| found.median);
    let found = Statistics::of(&samples);
    let facts = PlaceFacts {
        us: median(&samples),
        min_us: found.map_or(0.0, |found| found.min),
        noise: found.map_or(0.0, |found| found.noise),
        builds: samples.len() as u64,
        stages: stages.into_iter().map(|(name, times)| (name, median(&times))).collect(),
    };
    Ok((plan, facts))
}
