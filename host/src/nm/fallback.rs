//! Whether a dense product takes the place of a sparse one.

use std::sync::Arc;

use super::algorithm::Layout;
use super::dense;
use super::making::{Laid, Making};
use super::model::Instance;
use super::options::NmAlgorithm;
use super::report::{NmDense, NmReport};
use crate::device::DenseLibrary;
use crate::error::{FamilyError, NmError, PlanError};

/// Whether there was no memory for it, on the machine or within the plan's limit: another product may do with less.
pub(super) fn lacks_room(error: &NmError) -> bool {
    error.lacks_room() || matches!(error, NmError::Plan(PlanError::MemoryLimit { .. }))
}

impl<V: Sync> Making<'_, V> {
    fn dense_choice(&self) -> dense::Choice {
        let (precision, layout) = (self.options.precision, self.options.layout);
        dense::Choice::new(precision, layout, self.sizes, self.capacity)
    }

    /// Nanoseconds of a dense product, bringing activations included.
    fn dense_ns(&self) -> f64 {
        let choice = self.dense_choice();
        choice.least_cost(self.sizes, self.capacity) + self.bringing_ns(choice.read_as())
    }

    /// Those of a product by weights that were laid out.
    fn laid_ns(&self, laid: &dyn Layout) -> f64 {
        laid.instance().least_cost(self.sizes, self.capacity) + self.bringing_ns(laid.read_as())
    }

    /// Weights laid out densely.
    fn lay_out_densely(&self, library: Arc<dyn DenseLibrary>) -> Result<Laid, NmError> {
        Ok(Box::new(dense::Layout::new(self.weights, self.values, self.dense_choice(), library)?))
    }

    /// Weights for the dense product that was asked for.
    ///
    /// # Errors
    /// [`NmError::NoLibrary`], [`NmError::NoKernel`] if a kernel was asked for, too.
    pub(super) fn dense(&self) -> Result<Laid, NmError> {
        let function = self.dense_choice().program().name();
        if !self.is_asked(function) {
            let (precision, pattern) = (self.options.precision, self.weights.pattern());
            let name = self.options.kernel.clone().unwrap_or_default();
            return Err(NmError::NoKernel { name, precision, pattern, known: function.to_owned() });
        }
        let library = self.runner.machine.dense_library();
        self.lay_out_densely(library.map_err(|reason| NmError::NoLibrary { reason })?)
    }

    /// Weights for a dense product in place of a sparse one, and the library's name: if that was allowed, and it is
    /// quicker by the model, or is to be tried. Else the report has why not.
    ///
    /// # Errors
    /// Those of the device, but for a lack of memory.
    pub(super) fn fallback(&mut self, sparse: &dyn Layout) -> Result<Option<(Laid, String)>, NmError> {
        if !self.options.dense_fallback || self.options.algorithm == NmAlgorithm::Dense {
            return Ok(None);
        }
        let refused = |report: &mut NmReport, why: String| {
            report.dense_refused = Some(why);
            Ok(None)
        };
        if self.options.kernel.is_some() {
            return refused(self.report, "a kernel was asked for".to_owned());
        }
        if !self.options.autotune && self.dense_ns() >= self.laid_ns(sparse) {
            return refused(self.report, "the sparse product is quicker by the model".to_owned());
        }
        let library = match self.runner.machine.dense_library() {
            Ok(library) => library,
            Err(reason) => return refused(self.report, format!("cuBLAS cannot be used: {reason}")),
        };
        let name = library.name().to_owned();
        let laid = self.lay_out_densely(library).and_then(|laid| {
            self.check_memory(&*laid)?;
            Ok(laid)
        });
        match laid {
            Ok(laid) => Ok(Some((laid, name))),
            Err(error) if lacks_room(&error) => refused(self.report, error.to_string()),
            Err(error) => Err(error),
        }
    }

    /// Notes what the model says of a dense product, beside a sparse one that the plan has or would have.
    pub(super) fn compare(&mut self, laid: &dyn Layout) {
        let us = |ns: f64| ns / 1e3;
        let sparse_us = match laid.algorithm() {
            NmAlgorithm::Dense => self.report.dense.and_then(|before| before.sparse_us),
            _ => Some(us(self.laid_ns(laid))),
        };
        self.report.dense = Some(NmDense { dense_us: us(self.dense_ns()), sparse_us });
    }

    /// Notes what came of a dense product that was allowed.
    pub(super) fn note_fallback(&mut self, laid: &dyn Layout, library: &str) {
        let how = if self.options.autotune { "as tried" } else { "by the model" };
        match laid.algorithm() {
            NmAlgorithm::Dense => {
                self.report.reason =
                    format!("a dense product by {library} is quicker than a sparse one, {how}");
            }
            _ => self.report.dense_refused = Some(format!("the sparse product is quicker, {how}")),
        }
    }
}
