//! The peers of a sweep: cuSPARSE on the same matrix, cuBLAS on its dense form, `sprs` on the CPU; each result is
//! verified.

use windrow::{
    Algorithm, Csr, DenseRef, Device, DeviceKind, DeviceMatrix, Element, Precision, SpmmPlan, Verification,
    f16,
};

use super::facts::{CheckFacts, PeerAttempt, PeerFacts};
use crate::measure::BenchError;
use crate::measure::operands::{Filling, case_seed, fill, random_matrix};
use crate::measure::peers::{CsrAlgorithm, CuBlas, CuSparse, DenseMath, DeviceCsr, VectorAlgorithm};
use crate::measure::product::{Operands, Stored};
use crate::measure::{Sampling, SweepPath, Timing, measure};

/// The libraries of the device, or why there are none: those of CUDA on a CUDA device, `sprs` on the CPU.
pub(crate) struct Peers {
    cusparse: Option<Result<CuSparse, BenchError>>,
    cublas: Option<Result<CuBlas, BenchError>>,
    sprs: bool,
}

/// What the peers did with a product.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Beside {
    pub(crate) cusparse: Vec<PeerFacts>,
    pub(crate) cublas: Vec<PeerFacts>,
    pub(crate) sprs: Vec<PeerFacts>,
}

/// What the peers are measured on.
#[derive(Clone, Copy)]
pub(crate) struct Compared<'a> {
    pub(crate) device: &'a Device,
    pub(crate) csr: &'a Csr<f32>,
    pub(crate) checksum: u64,
    pub(crate) width: usize,
    pub(crate) options: PeerOptions,
}

/// How peers are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerOptions {
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// Seed of cuBLAS's `B`.
    pub(crate) seed: u64,
    /// Largest dense `A` in bytes of f32 for which cuBLAS multiplies the dense matrices.
    pub(crate) dense_limit_bytes: u64,
}

impl Peers {
    pub(crate) fn load(device: &Device, wanted: bool) -> Self {
        let on = |kind| wanted && device.kind() == kind;
        Self {
            cusparse: on(DeviceKind::Cuda).then(|| CuSparse::load(device)),
            cublas: on(DeviceKind::Cuda).then(|| CuBlas::load(device)),
            sprs: on(DeviceKind::Cpu) && cfg!(feature = "sprs"),
        }
    }

    /// Facts of cuSPARSE in each of `precisions`, and of cuBLAS and `sprs` in those of them that they are asked for.
    pub(crate) fn compare(
        &self,
        case: &Compared<'_>,
        operands: &mut Operands,
        precisions: &[Precision],
    ) -> Beside {
        let of = |&precision| self.sparse(precision, case, operands);
        let cusparse = precisions.iter().filter_map(of).collect();
        let fits = |_: &&_| case.dense_bytes().is_some_and(|bytes| bytes <= case.options.dense_limit_bytes);
        let cublas = self.cublas.as_ref().filter(fits).map_or_else(Vec::new, |library| {
            let maths = DenseMath::ALL.into_iter().filter(|math| precisions.contains(&math.precision()));
            maths.map(|math| dense_facts(library, case, math)).collect()
        });
        let sprs =
            precisions.iter().filter_map(|&precision| self.on_cpu(precision, case, operands)).collect();
        Beside { cusparse, cublas, sprs }
    }

    /// Facts of `sprs`, on the CPU.
    fn on_cpu(
        &self,
        precision: Precision,
        case: &Compared<'_>,
        operands: &mut Operands,
    ) -> Option<PeerFacts> {
        #[cfg(feature = "sprs")]
        let facts = super::beside_cpu::facts;
        #[cfg(not(feature = "sprs"))]
        let facts = |_, _: &Compared<'_>, _: &mut Operands| None;
        if self.sprs { facts(precision, case, operands) } else { None }
    }

    /// Facts of cuSPARSE in f32, f64 or f16; it is not asked for others.
    pub(crate) fn sparse(
        &self,
        precision: Precision,
        case: &Compared<'_>,
        operands: &mut Operands,
    ) -> Option<PeerFacts> {
        let library = self.cusparse.as_ref()?;
        match precision {
            Precision::F32 => Some(sparse_facts::<f32>(library, case, operands)),
            Precision::F64 => Some(sparse_facts::<f64>(library, case, operands)),
            Precision::F16 => Some(sparse_facts::<f16>(library, case, operands)),
            _ => None,
        }
    }
}

/// The types in which peers are measured beside paths of such precisions: f64 only beside its own, which are compared
/// with no other.
pub(crate) fn peer_precisions(paths: impl Iterator<Item = Precision> + Clone) -> Vec<Precision> {
    let mut precisions = Vec::new();
    if paths.clone().any(|precision| precision != Precision::F64) {
        precisions.extend([Precision::F32, Precision::F16]);
    }
    if paths.clone().any(|precision| precision == Precision::F64) {
        precisions.push(Precision::F64);
    }
    precisions
}

impl Compared<'_> {
    /// Bytes of the dense `A` in f32.
    fn dense_bytes(&self) -> Option<u64> {
        let elements = (self.csr.rows() as u64).checked_mul(self.csr.cols() as u64)?;
        elements.checked_mul(4)
    }

    fn seed(&self, peer: &str) -> u64 {
        case_seed(self.options.seed, self.checksum, self.width, peer)
    }

    /// A plan that knows the reference in this precision, with the error bound of its sums.
    pub(super) fn verifier(&self, precision: Precision) -> Result<SpmmPlan, BenchError> {
        let path = SweepPath::new(Algorithm::RowSplit, precision);
        Ok(path.builder(self.csr, self.width, None).build(self.device)?)
    }
}

fn sparse_facts<T: Stored>(
    library: &Result<CuSparse, BenchError>,
    case: &Compared<'_>,
    operands: &mut Operands,
) -> PeerFacts {
    let math = T::PRECISION.to_string();
    let attempts = match library {
        Ok(library) => try_sparse::<T>(library, case, operands).map(|attempts| (library.version(), attempts)),
        Err(error) => return PeerFacts::nothing(math, error.to_string()),
    };
    match attempts {
        Ok((version, attempts)) => PeerFacts::best_of(math, version, attempts),
        Err(error) => PeerFacts::nothing(math, error.to_string()),
    }
}

/// Every algorithm for row-major operands, on the same ones, and those for vectors where `B` is one.
fn try_sparse<T: Stored>(
    library: &CuSparse,
    case: &Compared<'_>,
    operands: &mut Operands,
) -> Result<Vec<PeerAttempt>, BenchError> {
    let Compared { device, csr, options, .. } = *case;
    let verifier = case.verifier(T::PRECISION)?;
    let a = DeviceCsr::<T>::upload(device, csr)?;
    let mut attempts = Vec::new();
    for algorithm in CsrAlgorithm::ROW_MAJOR {
        let mut attempt = Attempt::new(algorithm.to_string());
        let run = |attempt: &mut Attempt, operands: &mut Operands| -> Result<(), BenchError> {
            let (b, c) = operands.get::<T>(Filling::Huge)?;
            let spmm = library.prepare(algorithm, &a, b, c)?;
            attempt.preprocess_us = Some(spmm.preprocess_us());
            attempt.timing = Some(measure(device, options.sampling, || spmm.run())?);
            drop(spmm);
            attempt.verify(&verifier, csr, b, c)
        };
        let result = run(&mut attempt, operands);
        attempts.push(attempt.end(result));
    }
    if case.width == 1 {
        for algorithm in VectorAlgorithm::ALL {
            let mut attempt = Attempt::new(algorithm.to_string());
            let run = |attempt: &mut Attempt, operands: &mut Operands| -> Result<(), BenchError> {
                let (b, c) = operands.get::<T>(Filling::Huge)?;
                let spmv = library.prepare_spmv(algorithm, &a, b, c)?;
                attempt.preprocess_us = Some(spmv.preprocess_us());
                attempt.timing = Some(measure(device, options.sampling, || spmv.run())?);
                drop(spmv);
                attempt.verify(&verifier, csr, b, c)
            };
            let result = run(&mut attempt, operands);
            attempts.push(attempt.end(result));
        }
    }
    Ok(attempts)
}

fn dense_facts(library: &Result<CuBlas, BenchError>, case: &Compared<'_>, math: DenseMath) -> PeerFacts {
    let library = match library {
        Ok(library) => library,
        Err(error) => return PeerFacts::nothing(math.to_string(), error.to_string()),
    };
    let mut attempt = Attempt::new("GemmEx".to_owned());
    let result = match math.precision() {
        Precision::F16 => try_dense::<f16>(library, case, math, &mut attempt),
        _ => try_dense::<f32>(library, case, math, &mut attempt),
    };
    PeerFacts::best_of(math.to_string(), library.version(), vec![attempt.end(result)])
}

/// The product of the dense matrices, verified against the sparse one's: zeros add nothing.
fn try_dense<T: Element<Sum = f32>>(
    library: &CuBlas,
    case: &Compared<'_>,
    math: DenseMath,
    attempt: &mut Attempt,
) -> Result<(), BenchError> {
    let Compared { device, csr, width, options, .. } = *case;
    // TF32 keeps the bits of f16 and no more: with operands of these, it has nothing to round and the bound holds.
    let (csr, seed) = (&as_multiplied(csr, math), case.seed("cublas"));
    let b = match math {
        DenseMath::Tf32 => {
            let rounded = random_matrix::<f16>(device, csr.cols(), width, seed)?.download()?;
            let b: Vec<T> = rounded.iter().map(|x| T::from_f32(x.to_f32())).collect();
            DeviceMatrix::upload(device, DenseRef::packed(&b, csr.cols(), width)?)?
        }
        _ => random_matrix::<T>(device, csr.cols(), width, seed)?,
    };
    let a = dense_form::<T>(device, csr)?;
    let mut c = DeviceMatrix::zeros(device, csr.rows(), width)?;
    fill(&mut c, Filling::Huge)?;
    attempt.timing = Some(measure(device, options.sampling, || library.gemm(math, &a, &b, &mut c))?);
    attempt.verify(&case.verifier(T::PRECISION)?, csr, &b, &c)
}

/// Values as the arithmetic takes them without rounding.
fn as_multiplied(csr: &Csr<f32>, math: DenseMath) -> Csr<f32> {
    csr.map_values(|value| if math == DenseMath::F32 { value } else { f16::from_f32(value).to_f32() })
}

/// The matrix with its zeros.
fn dense_form<T: Element>(device: &Device, csr: &Csr<f32>) -> Result<DeviceMatrix<T>, BenchError> {
    let mut dense = vec![T::ZERO; csr.rows() * csr.cols()];
    for (r, (cols, values)) in csr.rows_iter().enumerate() {
        for (&col, &value) in cols.iter().zip(values) {
            dense[r * csr.cols() + col as usize] = T::from_f32(value);
        }
    }
    Ok(DeviceMatrix::upload(device, DenseRef::packed(&dense, csr.rows(), csr.cols())?)?)
}

/// An attempt while it is made.
pub(crate) struct Attempt {
    algorithm: String,
    pub(crate) timing: Option<Timing>,
    pub(crate) preprocess_us: Option<f64>,
    check: Option<CheckFacts>,
}

impl Attempt {
    pub(crate) fn new(algorithm: String) -> Self {
        Self { algorithm, timing: None, preprocess_us: None, check: None }
    }

    /// Compares what the last call left in `c`.
    pub(super) fn verify<T: Element>(
        &mut self,
        verifier: &SpmmPlan,
        csr: &Csr<f32>,
        b: &DeviceMatrix<T>,
        c: &DeviceMatrix<T::Sum>,
    ) -> Result<(), BenchError> {
        self.judge(&verifier.verify(csr, b, c)?)
    }

    /// Notes the comparison with the reference.
    pub(crate) fn judge(&mut self, found: &Verification) -> Result<(), BenchError> {
        self.check = Some(CheckFacts::of(found));
        if found.passed() { Ok(()) } else { Err(BenchError::Wrong(*found)) }
    }

    /// Only a result that was found right has a time.
    pub(crate) fn end(self, result: Result<(), BenchError>) -> PeerAttempt {
        let Self { algorithm, timing, preprocess_us, check } = self;
        let error = result.err().map(|error| error.to_string());
        let time = timing.filter(|_| error.is_none());
        PeerAttempt { algorithm, time, preprocess_us, check, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::operands::poisoned_matrix;

    const OPTIONS: PeerOptions =
        PeerOptions { sampling: Sampling::SMOKE, seed: 1, dense_limit_bytes: 256 << 20 };

    #[test]
    fn a_wrong_attempt_has_no_time() {
        let device = Device::cpu();
        let csr = Csr::<f32>::identity(8).unwrap();
        let case = Compared { device: &device, csr: &csr, checksum: 1, width: 4, options: OPTIONS };
        let verifier = case.verifier(Precision::F32).unwrap();
        let b = random_matrix::<f32>(&device, 8, 4, 1).unwrap();
        let timing = Timing { median_us: 1.0, min_us: 1.0, max_us: 1.0, noise: 0.0, batches: 1, calls: 1 };
        let attempt = |c: &DeviceMatrix<f32>| {
            let mut attempt = Attempt { timing: Some(timing), ..Attempt::new("copy".to_owned()) };
            let result = attempt.verify(&verifier, &csr, &b, c);
            attempt.end(result)
        };
        let right = attempt(&random_matrix::<f32>(&device, 8, 4, 1).unwrap());
        assert_eq!((right.time, right.error.as_deref()), (Some(timing), None));
        let mut unwritten = poisoned_matrix(&device, 8, 4).unwrap();
        assert_eq!(attempt(&unwritten).check.map(|check| check.failures), Some(32));
        fill(&mut unwritten, Filling::Huge).unwrap();
        let wrong = attempt(&unwritten);
        assert_eq!((wrong.time, wrong.check.as_ref().map(|check| check.failures)), (None, Some(32)));
        let facts = PeerFacts::best_of("f32".to_owned(), "1.0", vec![wrong, right]);
        assert_eq!((facts.algorithm.as_deref(), facts.median_us), (Some("copy"), Some(1.0)));
        let facts = PeerFacts::best_of("f32".to_owned(), "1.0", facts.attempts[..1].to_vec());
        assert_eq!((facts.algorithm, facts.median_us), (None, None));
    }

    #[test]
    fn the_dense_form_is_the_matrix() {
        let csr = Csr::try_from_parts(2, 3, vec![0, 1, 3], vec![2, 0, 1], vec![1.5f32, -2.0, 0.1]).unwrap();
        let device = Device::cpu();
        let dense = dense_form::<f32>(&device, &csr).unwrap().download().unwrap();
        assert_eq!(dense, [0.0, 0.0, 1.5, -2.0, 0.1, 0.0]);
        let rounded = as_multiplied(&csr, DenseMath::Tf32);
        let third = f16::from_f32(0.1).to_f32();
        assert_eq!(rounded.values(), [1.5, -2.0, third]);
        assert_eq!(as_multiplied(&csr, DenseMath::F32).values(), csr.values());
    }

    #[test]
    fn the_cpu_has_no_libraries_of_cuda() {
        let (device, csr) = (Device::cpu(), Csr::<f32>::identity(2).unwrap());
        let case = Compared { device: &device, csr: &csr, checksum: 0, width: 1, options: OPTIONS };
        let mut operands = Operands::new(&device, &csr, 1, (0, 0));
        let mut of =
            |wanted, precision| Peers::load(&device, wanted).compare(&case, &mut operands, &[precision]);
        assert_eq!(of(false, Precision::F32), Beside::default());
        assert_eq!(of(true, Precision::F16), Beside::default());
        let found = of(true, Precision::F32);
        assert_eq!((found.cusparse, found.cublas), (vec![], vec![]));
        assert_eq!(found.sprs.len(), usize::from(cfg!(feature = "sprs")));
    }

    #[cfg(feature = "sprs")]
    #[test]
    fn sprs_is_timed_if_it_is_right() {
        let device = Device::cpu();
        let values: Vec<f32> = (0..63u8).map(|at| f32::from(at % 5) - 1.5).collect();
        let csr = Csr::from_dense(9, 7, &values).unwrap();
        for width in [1, 5] {
            let case = Compared { device: &device, csr: &csr, checksum: 3, width, options: OPTIONS };
            let mut operands = Operands::new(&device, &csr, width, (1, 3));
            let precisions = [Precision::F32, Precision::F16, Precision::F64];
            let found = Peers::load(&device, true).compare(&case, &mut operands, &precisions);
            let maths: Vec<_> = found.sprs.iter().map(|facts| facts.math.as_str()).collect();
            assert_eq!(maths, ["f32", "f64"], "it has no f16");
            for facts in &found.sprs {
                let [attempt] = &facts.attempts[..] else { panic!("{facts:?}") };
                let check = attempt.check.as_ref().unwrap();
                assert_eq!((check.failures, check.checked), (0, 9 * width as u64));
                assert!(facts.median_us.is_some_and(|us| us > 0.0), "{facts:?}");
                assert_eq!(facts.algorithm.as_deref(), Some("csr_mulacc_dense_rowmaj, 1 thread"));
            }
        }
    }

    #[test]
    fn peers_multiply_what_paths_do() {
        let peers = |paths: &[Precision]| peer_precisions(paths.iter().copied());
        assert_eq!(peers(&[Precision::Tf32, Precision::Bf16]), [Precision::F32, Precision::F16]);
        assert_eq!(peers(&[Precision::F64]), [Precision::F64]);
        let all = [Precision::F32, Precision::F16, Precision::F64];
        assert_eq!(peers(&[Precision::F64, Precision::F32]), all);
    }
}
