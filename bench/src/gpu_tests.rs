//! What needs a GPU: the peers, the rates, and a sweep with both.
//!
//! Without a GPU each test says that it was skipped and why; with `WINDROW_REQUIRE_GPU=1` that is a failure, and so is
//! a missing cuSPARSE or cuBLAS.

use windrow::synthetic::SplitMix64;
use windrow::{Algorithm, Csr, DenseRef, Device, DeviceError, DeviceMatrix, Element, Real, Spmm, Value, f16};

use crate::measure::l2::{Cache, L2Facts};
use crate::measure::operands::{Filling, fill};
use crate::measure::peers::{CsrAlgorithm, CuBlas, CuSparse, DenseMath, DeviceCsr};
use crate::measure::roofline::{GatherProbe, measure_copy};
use crate::measure::{BenchError, DeviceRates, L2, Sampling, measure, poisoned_matrix, random_matrix};
use crate::suites::ablation::facts::AblationFacts;
use crate::suites::ablation::tests::{ALL as ALL_PARTS, options as ablation_options};
use crate::suites::ablation::{self, Ablation};
use crate::suites::matrices::MatrixSource;
use crate::suites::spmm::tests::options;
use crate::suites::spmm::{Options, Spmm as SpmmSuite};
use crate::suites::testing::records_of;

/// The first GPU, or a line on why the test is skipped. A GPU that is there and cannot be used is a failure.
fn gpu(test: &str) -> Option<Device> {
    match Device::cuda(0) {
        Err(error @ (DeviceError::NoDriver | DeviceError::NoSuchDevice { .. })) => skip(test, &error.into()),
        found => Some(found.expect("a GPU that can be used")),
    }
}

/// A library, or a line on why the test is skipped. One that is there and does not work is a failure.
fn library<T>(test: &str, loaded: Result<T, BenchError>) -> Option<T> {
    match loaded {
        Err(error @ BenchError::Absent { .. }) => skip(test, &error),
        found => Some(found.unwrap_or_else(|error| panic!("{test}: {error}"))),
    }
}

fn skip<T>(test: &str, why: &BenchError) -> Option<T> {
    let required = std::env::var("WINDROW_REQUIRE_GPU").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: WINDROW_REQUIRE_GPU=1, but {why}");
    windrow_testkit::announce_skip(test, 1, &why.to_string());
    None
}

/// Rows of all lengths from none to all columns, values in `[−1, 1)`.
fn matrix(rows: usize, cols: usize) -> Csr<f32> {
    let mut random = SplitMix64::new(11);
    let mut dense = vec![0.0f32; rows * cols];
    for (r, row) in dense.chunks_exact_mut(cols).enumerate() {
        let density = if r % 17 == 0 { 0.0 } else { (r % 13 + 1) as f64 / 13.0 };
        for x in row {
            if random.next_f64() < density {
                *x = f32::from_f64(2.0 * random.next_f64() - 1.0);
            }
        }
    }
    Csr::from_dense(rows, cols, &dense).unwrap()
}

fn verify<T: Element>(
    device: &Device,
    a: &Csr<f32>,
    b: &DeviceMatrix<T>,
    c: &DeviceMatrix<T::Sum>,
    what: &str,
) {
    let builder = Spmm::builder(a).precision(T::PRECISION).algorithm(Algorithm::RowSplit);
    let verification = builder.build(device).unwrap().verify(a, b, c).unwrap();
    assert!(verification.passed(), "{what}: {verification}");
    assert_eq!(verification.checked, (c.rows() * c.cols()) as u64);
}

/// A `C` that is wrong wherever it is not written. Finite: a library may multiply it by β = 0.
fn unwritten<S: Real>(device: &Device, rows: usize, cols: usize) -> DeviceMatrix<S> {
    let mut c = DeviceMatrix::<S>::zeros(device, rows, cols).unwrap();
    fill(&mut c, Filling::Huge).unwrap();
    assert!(c.download().unwrap().iter().all(|x| (9e29..f64::INFINITY).contains(&x.to_f64())));
    c
}

fn cusparse_is_right<T: Element>(device: &Device, library: &CuSparse) {
    let csr = matrix(333, 257);
    let a = DeviceCsr::<T>::upload(device, &csr).unwrap();
    for width in [1, 32, 130] {
        let b = random_matrix::<T>(device, 257, width, 1).unwrap();
        for algorithm in CsrAlgorithm::ALL {
            let mut c = unwritten(device, 333, width);
            let spmm = library.prepare(algorithm, &a, &b, &mut c).unwrap();
            let timing = measure(device, Sampling::SMOKE, || spmm.run()).unwrap();
            assert!(timing.median_us > 0.0 && spmm.preprocess_us() > 0.0);
            drop(spmm);
            verify(device, &csr, &b, &c, &format!("cuSPARSE {algorithm} {} width {width}", T::PRECISION));
        }
    }
}

#[test]
fn cusparse_multiplies_right() {
    let test = "cusparse_multiplies_right";
    let Some(device) = gpu(test) else { return };
    let Some(loaded) = library(test, CuSparse::load(&device)) else { return };
    eprintln!("cuSPARSE {}", loaded.version());
    cusparse_is_right::<f32>(&device, &loaded);
    cusparse_is_right::<f16>(&device, &loaded);
    cusparse_is_right::<f64>(&device, &loaded);
}

#[test]
fn cusparse_refuses_operands_that_do_not_fit() {
    let test = "cusparse_refuses_operands_that_do_not_fit";
    let Some(device) = gpu(test) else { return };
    let Some(loaded) = library(test, CuSparse::load(&device)) else { return };
    let a = DeviceCsr::<f32>::upload(&device, &matrix(20, 30)).unwrap();
    let prepare = |b_rows, c_rows, where_c: &Device| {
        let b = DeviceMatrix::<f32>::zeros(&device, b_rows, 4).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(where_c, c_rows, 4).unwrap();
        loaded.prepare(CsrAlgorithm::Alg2, &a, &b, &mut c).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(prepare(30, 20, &device), Ok(()));
    assert!(prepare(31, 20, &device).unwrap_err().contains("30 columns but B has 31 rows"));
    assert!(prepare(30, 21, &device).unwrap_err().contains("must be 20 × 4"));
    assert!(prepare(30, 20, &Device::cpu()).unwrap_err().contains("C is on cpu"));
}

fn cublas_is_right<T: Element<Sum = f32>>(device: &Device, library: &CuBlas, math: DenseMath) {
    let (m, k, n) = (65, 129, 40);
    // Of f16's bits, so that no arithmetic has anything to round.
    let csr = matrix(m, k).map_values(|x| f16::from_f32(x).to_f32());
    let dense: Vec<T> = (0..m * k)
        .map(|i| {
            let (cols, values) = csr.row(i / k);
            cols.iter().position(|&col| col as usize == i % k).map_or(T::ZERO, |at| T::from_f32(values[at]))
        })
        .collect();
    let a = DeviceMatrix::upload(device, DenseRef::packed(&dense, m, k).unwrap()).unwrap();
    let b = random_matrix::<f16>(device, k, n, 2).unwrap().download().unwrap();
    let b: Vec<T> = b.iter().map(|x| T::from_f32(x.to_f32())).collect();
    let b = DeviceMatrix::upload(device, DenseRef::packed(&b, k, n).unwrap()).unwrap();
    let mut c = unwritten(device, m, n);
    library.gemm(math, &a, &b, &mut c).unwrap();
    verify(device, &csr, &b, &c, &format!("cuBLAS {math}"));
}

#[test]
fn cublas_multiplies_right() {
    let test = "cublas_multiplies_right";
    let Some(device) = gpu(test) else { return };
    let Some(loaded) = library(test, CuBlas::load(&device)) else { return };
    eprintln!("cuBLAS {}", loaded.version());
    cublas_is_right::<f32>(&device, &loaded, DenseMath::F32);
    cublas_is_right::<f32>(&device, &loaded, DenseMath::Tf32);
    cublas_is_right::<f16>(&device, &loaded, DenseMath::F16);
    let (a, mut c) =
        (random_matrix::<f32>(&device, 4, 4, 1).unwrap(), poisoned_matrix::<f32>(&device, 4, 4).unwrap());
    let error = loaded.gemm(DenseMath::F16, &a, &a, &mut c).unwrap_err();
    assert!(matches!(error, BenchError::Operands { .. }), "{error}");
}

#[test]
fn rates_are_plausible() {
    let Some(device) = gpu("rates_are_plausible") else { return };
    let copy = measure_copy(&device, 256 << 20, Sampling::default()).unwrap();
    let probe = GatherProbe {
        working_set_bytes: vec![4 << 20, 256 << 20],
        gathered_bytes: 64 << 20,
        ..GatherProbe::default()
    };
    let gather = probe.run(&device).unwrap();
    eprintln!("copy {:.2} TB/s\n{gather}", copy / 1e12);
    // Every GPU that runs the kernels copies at more than 100 GB/s, and gathers no slower from its cache than from
    // all of its memory.
    assert!(copy > 1e11, "{copy:e}");
    assert!(gather.rate(4e6, 256.0) > 0.8 * gather.rate(256e6, 256.0), "{gather}");
}

#[test]
fn what_fits_the_cache_takes_longer_when_it_is_cold() {
    let Some(device) = gpu("what_fits_the_cache_takes_longer_when_it_is_cold") else { return };
    let copy = |l2| measure_copy(&device, 4 << 20, Sampling::default().with_l2(l2)).unwrap();
    let (warm, cold) = (copy(L2::Warm), copy(L2::Cold));
    eprintln!("a copy of 4 MiB: {:.2} TB/s warm, {:.2} TB/s cold", warm / 1e12, cold / 1e12);
    assert!(cold < warm, "{cold:e} B/s cold, {warm:e} B/s warm");
}

#[test]
fn peers_are_measured_cold_where_paths_are() {
    let test = "peers_are_measured_cold_where_paths_are";
    let Some(device) = gpu(test) else { return };
    if library(test, CuSparse::load(&device)).is_none() || library(test, CuBlas::load(&device)).is_none() {
        return;
    }
    let source = MatrixSource::InMemory { name: "mixed".to_owned(), csr: matrix(500, 400) };
    let sampling = Sampling::default();
    let options = Options { sampling, l2: vec![L2::Warm, L2::Cold], ..options(&[64], vec![source]) };
    let paths = options.paths.len();
    let (records, tally) = records_of(&device, &mut SpmmSuite::open(&device, options));
    assert_eq!((tally.failed(), records.len()), (0, 2 * paths), "{records:#?}");
    let twice = 2 * device.l2_bytes().expect("a driver tells the size of the L2 cache");
    for record in &records[paths..] {
        assert_eq!(record.l2, L2Facts::Cold { flushed_bytes: twice, cache: Cache::Told });
        let peers = record.facts.cusparse.iter().chain(&record.facts.cublas);
        let attempts = peers.flat_map(|facts| &facts.attempts).filter_map(|attempt| attempt.time);
        let times: Vec<_> = attempts.chain(record.time.map(|time| time.timing)).collect();
        assert!(times.len() > 5 && times.iter().all(|time| time.batches == time.calls), "{record:#?}");
    }
}

#[test]
fn a_sweep_has_times_peers_and_a_roofline() {
    let test = "a_sweep_has_times_peers_and_a_roofline";
    let Some(device) = gpu(test) else { return };
    if library(test, CuSparse::load(&device)).is_none() || library(test, CuBlas::load(&device)).is_none() {
        return;
    }
    let probe = GatherProbe {
        working_set_bytes: vec![1 << 20, 64 << 20],
        gathered_bytes: 16 << 20,
        sampling: Sampling::SMOKE,
        ..GatherProbe::default()
    };
    let source = MatrixSource::InMemory { name: "mixed".to_owned(), csr: matrix(500, 400) };
    let options = Options {
        rates: Some(DeviceRates::probe(&device, &probe).unwrap()),
        ..options(&[7, 64], vec![source])
    };
    let paths = options.paths.len();
    let (records, tally) = records_of(&device, &mut SpmmSuite::open(&device, options));
    assert_eq!(tally.failed(), 0, "{records:#?}");
    assert_eq!(records.len(), 2 * paths);
    for record in &records {
        let time = record.time.as_ref().unwrap();
        assert!(time.timing.median_us > 0.0 && time.bounds.roofline_us.is_some_and(|us| us > 0.0));
        assert!(!record.facts.plan.as_ref().unwrap().entries.is_empty());
        assert_eq!((record.facts.cusparse.len(), record.facts.cublas.len()), (2, 3));
        for facts in record.facts.cusparse.iter().chain(&record.facts.cublas) {
            assert!(facts.median_us.is_some_and(|us| us > 0.0), "{facts:#?}");
        }
        assert!(record.facts.cusparse.iter().all(|facts| facts.attempts.len() == 2));
    }
}

#[test]
fn an_ablation_has_times_and_runs_agree_beside_other_products() {
    let test = "an_ablation_has_times_and_runs_agree_beside_other_products";
    let Some(device) = gpu(test) else { return };
    if library(test, CuSparse::load_beside(&device)).is_none() {
        return;
    }
    let source = MatrixSource::InMemory { name: "mixed".to_owned(), csr: matrix(3000, 2000) };
    let options = ablation::Options {
        sources: vec![source],
        widths: vec![64],
        runs: 10,
        ..ablation_options(&ALL_PARTS)
    };
    let (records, tally) = records_of(&device, &mut Ablation::open(&device, options));
    assert_eq!((tally.failed(), tally.skipped), (0, 0), "{records:#?}");
    let beside: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.facts.facts {
            Some(AblationFacts::Determinism(facts)) => {
                Some((facts.load_products, facts.differing, facts.cost.is_some()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(beside.len(), 2);
    assert!(
        beside.iter().all(|&(products, differing, cost)| products > 0 && differing == 0 && cost),
        "{beside:?}"
    );
}
