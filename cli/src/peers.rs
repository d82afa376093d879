//! cuSPARSE on the same operands, timed and verified in the same run.

use std::fmt;

use serde::Serialize;
use windrow::{Algorithm, Csr, DeviceKind, DeviceMatrix, Element, Spmm, SpmmPlan, Value, Verification};
use windrow_bench::measure::peers::{CsrAlgorithm, CuSparse, DeviceCsr};
use windrow_bench::measure::{BenchError, Sampling, Timing, measure};

use crate::failure::Result;
use crate::product::Operands;
use crate::units::{digits, percent, time_us};

/// What cuSPARSE does with the product, or why that is not known.
#[derive(Debug, Serialize)]
pub(crate) struct CuSparseRun {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The quickest first; those without a right result last.
    attempts: Vec<Attempt>,
    /// Why there are no attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
}

/// One of its algorithms.
#[derive(Debug, Serialize)]
struct Attempt {
    algorithm: String,
    /// Its time, if its result is right.
    time: Option<Timing>,
    preprocessing_us: Option<f64>,
    verification: Option<Verification>,
    error: Option<String>,
}

impl CuSparseRun {
    /// Times every algorithm on `A` and `operands`; `plan` knows the reference. `C` is overwritten.
    ///
    /// cuSPARSE multiplies operands as they are: beside a tf32 plan, it is timed and verified in f32.
    ///
    /// A machine without cuSPARSE is no failure, only a comparison less.
    pub(crate) fn on<B: Element, V: Value>(
        a: &Csr<V>,
        operands: &mut Operands<B, B::Sum>,
        plan: &SpmmPlan,
        sampling: Sampling,
    ) -> Result<Self> {
        let absent = |reason: String| Self { version: None, attempts: Vec::new(), absent: Some(reason) };
        let device = plan.device();
        if device.kind() != DeviceKind::Cuda {
            return Ok(absent(format!("cuSPARSE needs a GPU, this is {device}")));
        }
        let library = match CuSparse::load(device) {
            Ok(library) => library,
            Err(error @ BenchError::Absent { .. }) => return Ok(absent(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let exact = match plan.precision() == B::PRECISION {
            true => None,
            false => {
                let builder = Spmm::builder(a).precision(B::PRECISION).algorithm(Algorithm::RowSplit);
                Some(builder.width(operands.b.cols()).build(device)?)
            }
        };
        let reference = exact.as_ref().unwrap_or(plan);
        let on_device = DeviceCsr::<B>::upload(device, a)?;
        let mut attempts = Vec::new();
        for algorithm in CsrAlgorithm::ALL {
            operands.poison()?;
            let mut attempt = Attempt::new(algorithm);
            let Operands { b, c } = operands;
            let timed = attempt.time(&library, algorithm, (&on_device, b, c), sampling);
            let verified = timed.and_then(|()| {
                let found = operands.verify(reference, a).map_err(|failure| failure.to_string())?;
                attempt.verification = Some(found);
                if found.passed() { Ok(()) } else { Err(format!("its result is wrong: {found}")) }
            });
            if let Err(error) = verified {
                (attempt.time, attempt.error) = (None, Some(error));
            }
            attempts.push(attempt);
        }
        attempts.sort_by(|x, y| x.order().total_cmp(&y.order()));
        Ok(Self { version: Some(library.version().to_owned()), attempts, absent: None })
    }

    /// Median time of the quickest algorithm.
    pub(crate) fn best_us(&self) -> Option<f64> {
        Some(self.attempts.first()?.time?.median_us)
    }
}

impl Attempt {
    fn new(algorithm: CsrAlgorithm) -> Self {
        Self {
            algorithm: algorithm.to_string(),
            time: None,
            preprocessing_us: None,
            verification: None,
            error: None,
        }
    }

    fn time<B: Element>(
        &mut self,
        library: &CuSparse,
        algorithm: CsrAlgorithm,
        (a, b, c): (&DeviceCsr<B>, &DeviceMatrix<B>, &mut DeviceMatrix<B::Sum>),
        sampling: Sampling,
    ) -> std::result::Result<(), String> {
        let spmm = library.prepare(algorithm, a, b, c).map_err(|error| error.to_string())?;
        self.preprocessing_us = Some(spmm.preprocess_us());
        let time = measure(b.device(), sampling, || spmm.run()).map_err(|error| error.to_string())?;
        self.time = Some(time);
        Ok(())
    }

    /// What attempts are sorted by.
    fn order(&self) -> f64 {
        self.time.map_or(f64::INFINITY, |time| time.median_us)
    }
}

impl fmt::Display for CuSparseRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.absent {
            return write!(f, "none: {reason}");
        }
        for (at, attempt) in self.attempts.iter().enumerate() {
            let line = if at == 0 { "" } else { "\n" };
            write!(f, "{line}{attempt}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.time, &self.error) {
            (Some(time), _) => write!(
                f,
                "{}: {} median, {} min, noise {}, prepared in {}, verified",
                self.algorithm,
                time_us(time.median_us),
                time_us(time.min_us),
                percent(time.noise),
                time_us(self.preprocessing_us.unwrap_or(0.0)),
            ),
            (None, error) => {
                write!(f, "{}: {}", self.algorithm, error.as_deref().unwrap_or("not measured"))
            }
        }
    }
}

/// How the plan compares: how many times as quick, and when its preparation is earned back.
pub(crate) fn comparison(own_us: f64, peer_us: f64, break_even_calls: Option<f64>) -> String {
    let ratio = if own_us > 0.0 { peer_us / own_us } else { f64::INFINITY };
    match break_even_calls {
        Some(calls) => format!("{} × cuSPARSE; planning is earned back after {calls} runs", digits(ratio)),
        None => format!("{} × cuSPARSE; planning is not earned back", digits(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use windrow::{Device, Spmm};

    use super::*;

    #[test]
    fn the_cpu_has_no_cusparse() {
        let a = Csr::<f32>::identity(4).unwrap();
        let plan = Spmm::builder(&a).build(&Device::cpu()).unwrap();
        let mut operands = Operands::<f32, f32>::new(&a, 3, 1, plan.device()).unwrap();
        let run = CuSparseRun::on(&a, &mut operands, &plan, Sampling::SMOKE).unwrap();
        assert_eq!(run.best_us(), None);
        assert!(run.to_string().starts_with("none: cuSPARSE needs a GPU, this is cpu"), "{run}");
    }

    #[test]
    fn the_quickest_right_attempt_counts() {
        let timing = |us| Timing { median_us: us, min_us: us, max_us: us, noise: 0.01, batches: 1, calls: 1 };
        let attempt = |algorithm, time: Option<Timing>| Attempt {
            algorithm,
            time,
            error: time.is_none().then(|| "its result is wrong".to_owned()),
            preprocessing_us: Some(2.0),
            verification: None,
        };
        let mut attempts = vec![
            attempt("CSR_ALG1".to_owned(), None),
            attempt("CSR_ALG2".to_owned(), Some(timing(30.0))),
            attempt("CSR_ALG3".to_owned(), Some(timing(20.0))),
        ];
        attempts.sort_by(|x, y| x.order().total_cmp(&y.order()));
        let run = CuSparseRun { version: Some("12.5".to_owned()), attempts, absent: None };
        assert_eq!(run.best_us(), Some(20.0));
        let text = run.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("CSR_ALG3: 20.0 µs median") && lines[2] == "CSR_ALG1: its result is wrong",
            "{text}"
        );
        assert_eq!(
            comparison(10.0, 20.0, Some(7.0)),
            "2.00 × cuSPARSE; planning is earned back after 7 runs"
        );
        assert_eq!(comparison(20.0, 10.0, None), "0.50 × cuSPARSE; planning is not earned back");
    }
}
