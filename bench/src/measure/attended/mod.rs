//! Attention over the entries of a matrix, and its gradients: made ready, run, and compared.

mod path;

#[cfg(test)]
mod tests;

use windrow::{
    AttentionBackward, AttentionGradients, AttentionOperands, AttentionPlan, Csr, Device, DeviceBuffer,
    DeviceKind, DeviceMatrix, Element, Precision, Verification, bf16, f16,
};

use crate::measure::error::BenchError;
use crate::measure::operands::{poisoned_matrix, random_matrix};
pub use path::AttendedPath;

/// What an element of a gradient may differ from the CPU's by, of the largest: sums in f32 of a few thousand terms, and
/// of weights that were computed anew.
const OF_LARGEST: f32 = 1.0 / 4096.0;

/// Attention that is ready to be repeated.
pub trait Attended: Send {
    /// Queues the result, or the gradients, of which the path says which are timed.
    ///
    /// # Errors
    /// [`BenchError::Product`].
    fn run(&mut self) -> Result<(), BenchError>;

    /// Compares what the last run left: the result with an f64 reference, gradients with those of the CPU, each element
    /// within 2⁻¹² of the largest. On the CPU gradients are compared with nothing: there the tests have to do.
    ///
    /// # Errors
    /// [`BenchError::Wrong`], [`BenchError::Gradient`], [`BenchError::Product`].
    fn verify(&self, csr: &Csr<f32>) -> Result<Verification, BenchError>;

    /// The plan that is run.
    fn plan(&self) -> &AttentionPlan;
}

impl AttendedPath {
    /// A plan for heads of so many columns, with random operands; the result is there, so that gradients can be run.
    ///
    /// # Errors
    /// [`BenchError::Product`] of a path that there is not, or too little memory.
    pub fn prepare(
        &self,
        csr: &Csr<f32>,
        columns: usize,
        device: &Device,
        seed: u64,
    ) -> Result<Box<dyn Attended>, BenchError> {
        let plan = self.builder(csr, columns).build(device)?;
        // Of other precisions there is no plan.
        Ok(match (self.precision, self.additive) {
            (Precision::F16, false) => Box::new(Ready::<f16, f16>::new(plan, *self, seed)?),
            (Precision::F16, true) => Box::new(Ready::<f16, f32>::new(plan, *self, seed)?),
            (Precision::Bf16, false) => Box::new(Ready::<bf16, bf16>::new(plan, *self, seed)?),
            (Precision::Bf16, true) => Box::new(Ready::<bf16, f32>::new(plan, *self, seed)?),
            (Precision::F32 | Precision::Tf32 | Precision::F64, _) => {
                Box::new(Ready::<f32, f32>::new(plan, *self, seed)?)
            }
        })
    }
}

/// A plan for values of `T` and scores of `S`, and all that it reads and writes.
struct Ready<T: Element<Sum = f32>, S: Element<Sum = f32>> {
    plan: AttentionPlan,
    path: AttendedPath,
    seed: u64,
    scale: f32,
    scores: [DeviceMatrix<S>; 2],
    v: DeviceMatrix<T>,
    out: DeviceMatrix<f32>,
    /// What gradients need beside these.
    backward: Option<Backward<T>>,
}

struct Backward<T: Element<Sum = f32>> {
    of_out: DeviceMatrix<T>,
    states: DeviceBuffer<f32>,
    /// Those of `Q`, `K` and `V`.
    found: [DeviceMatrix<f32>; 3],
}

impl<T: Element<Sum = f32>, S: Element<Sum = f32>> Ready<T, S> {
    fn new(plan: AttentionPlan, path: AttendedPath, seed: u64) -> Result<Self, BenchError> {
        let (device, report) = (plan.device().clone(), plan.report());
        let (rows, cols, options) = (report.rows, report.cols, &report.options);
        let of_scores = options.heads * options.score_columns();
        let of_values = options.heads * options.value_columns();
        let scale = 1.0 / (options.score_columns() as f32).sqrt();
        let backward = match path.gradients {
            true => {
                let poisoned = |rows, cols| poisoned_matrix::<f32>(&device, rows, cols);
                Some(Backward {
                    of_out: random_matrix(&device, rows, of_values, seed ^ 3)?,
                    states: DeviceBuffer::alloc_zeroed(&device, 2 * options.heads * rows)?,
                    found: [
                        poisoned(rows, of_scores)?,
                        poisoned(cols, of_scores)?,
                        poisoned(cols, of_values)?,
                    ],
                })
            }
            false => None,
        };
        let mut ready = Self {
            scores: [
                random_matrix(&device, rows, of_scores, seed)?,
                random_matrix(&device, cols, of_scores, seed ^ 1)?,
            ],
            v: random_matrix(&device, cols, of_values, seed ^ 2)?,
            out: poisoned_matrix(&device, rows, of_values)?,
            plan,
            path,
            seed,
            scale,
            backward,
        };
        ready.forward()?;
        Ok(ready)
    }

    fn forward(&mut self) -> Result<(), BenchError> {
        let Self { plan, scale, scores: [q, k], v, out, backward, .. } = self;
        let operands = AttentionOperands::new(&*q, &*k, &*v);
        let operands = match backward {
            Some(backward) => operands.states(&mut backward.states),
            None => operands,
        };
        Ok(plan.forward_on(&plan.device().stream(), *scale, operands, out)?)
    }

    /// Compares gradients with those of the CPU from the same operands.
    fn compare(&self, csr: &Csr<f32>, backward: &Backward<T>) -> Result<(), BenchError> {
        let columns = self.plan.report().options.columns;
        let there = self.path.builder(csr, columns).build(&Device::cpu())?;
        let mut there = Self::new(there, self.path, self.seed)?;
        there.run()?;
        let Some(want) = &there.backward else { return Ok(()) };
        for (of, (found, want)) in ["Q", "K", "V"].into_iter().zip(backward.found.iter().zip(&want.found)) {
            let (cols, found, want) = (found.cols(), found.download()?, want.download()?);
            let bound = OF_LARGEST * want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            // A NaN is within no bound.
            let is_off = |found: f32, want: f32| (found - want).is_nan() || (found - want).abs() > bound;
            let mut pairs = found.iter().zip(&want).enumerate();
            if let Some((at, (&found, &want))) = pairs.find(|(_, (found, want))| is_off(**found, **want)) {
                return Err(BenchError::Gradient { of, row: at / cols, col: at % cols, found, want });
            }
        }
        Ok(())
    }
}

impl<T: Element<Sum = f32>, S: Element<Sum = f32>> Attended for Ready<T, S> {
    fn run(&mut self) -> Result<(), BenchError> {
        let Self { plan, scale, scores: [q, k], v, out, backward, .. } = self;
        let Some(Backward { of_out, states, found: [of_q, of_k, of_v] }) = backward else {
            return self.forward();
        };
        let operands = AttentionOperands::new(&*q, &*k, &*v);
        let given = AttentionBackward::new(operands, &*states, &*out, &*of_out);
        let found = AttentionGradients::new(of_q, of_k, of_v);
        Ok(plan.backward_on(&plan.device().stream(), *scale, given, found)?)
    }

    fn verify(&self, csr: &Csr<f32>) -> Result<Verification, BenchError> {
        let [q, k] = &self.scores;
        let found = self.plan.verify(csr, self.scale, &AttentionOperands::new(q, k, &self.v), &self.out)?;
        if !found.passed() {
            return Err(BenchError::Wrong(found));
        }
        match &self.backward {
            Some(backward) if self.plan.device().kind() != DeviceKind::Cpu => {
                self.compare(csr, backward).map(|()| found)
            }
            _ => Ok(found),
        }
    }

    fn plan(&self) -> &AttentionPlan {
        &self.plan
    }
}
