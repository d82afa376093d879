//! The quicker of the two plans that are predicted to be quickest.

use windrow_formats::Value;

use super::builder::SddmmBuilder;
use super::options::SddmmOptions;
use super::plan::SddmmPlan;
use super::report::SddmmReport;
use crate::device::{Device, DeviceBuffer};
use crate::element::Element;
use crate::error::SddmmError;
use crate::matrix::DeviceMatrix;
use crate::predict::weigh::Candidate;
use crate::trial::{Trial, Tried, in_turns};
use crate::with_element;

impl<A> SddmmBuilder<'_, A> {
    /// The trial of the best of these candidates.
    pub(super) fn trial<'a>(&self, weighed: &'a [Candidate]) -> Trial<'a> {
        let SddmmOptions { inner: columns, autotune: asked, memory_limit, expected_runs, .. } = self.options;
        Trial { asked, memory_limit, expected_runs, columns, weighed }
    }

    /// The quicker of the plans that `build` makes with the options of the two best candidates, if they are to be
    /// timed and can be; if not, what was decided stands, and notes why nothing was timed.
    ///
    /// # Errors
    /// Those of `build` and of the products, but for [want of room](Trial::run).
    pub(super) fn tried(
        &self,
        device: &Device,
        decided: &mut SddmmReport,
        build: impl Fn(SddmmOptions) -> Result<SddmmPlan, SddmmError>,
    ) -> Result<Option<SddmmPlan>, SddmmError> {
        let SddmmOptions { precision, inner, .. } = self.options;
        let plan_of = |of: &Candidate| {
            let (algorithm, precision) = (of.kind.sampled(), of.precision);
            build(SddmmOptions { algorithm, precision, autotune: false, ..self.options.clone() })
        };
        let time = |plans: &[_; 2]| with_element!(precision, T => timed::<T>(device, plans, inner));
        match self.trial(&decided.weighed).run(plan_of, time)? {
            Tried::Quicker(plan, reason) => {
                Ok(Some(self.serving(plan, SddmmReport { reason, ..decided.clone() })))
            }
            Tried::Untimed(why) => {
                decided.reason += &why;
                Ok(None)
            }
        }
    }
}

/// Microseconds of a product by each plan.
fn timed<T: Element>(device: &Device, plans: &[SddmmPlan; 2], inner: usize) -> Result<Vec<f64>, SddmmError> {
    let (m, n) = plans[0].shape();
    let x = DeviceMatrix::<T>::zeros(device, m, inner)?;
    let y = DeviceMatrix::<T>::zeros(device, n, inner)?;
    let mut out = DeviceBuffer::<T::Sum>::zeroed(device, plans[0].nnz(), "a result to time products with")?;
    let one = <T::Sum as Value>::from_f64(1.0);
    in_turns(device, plans.len(), |of| plans[of].run_into(one, &x, &y, &mut out))
}
