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
use crate::trial::{in_turns, quicker, two_best};
use crate::with_element;

impl<A> SddmmBuilder<'_, A> {
    /// The quicker of the plans that `build` makes with the options of the two best candidates, if they are to be
    /// timed and can be.
    pub(super) fn tried(
        &self,
        device: &Device,
        decided: &SddmmReport,
        build: impl Fn(SddmmOptions) -> Result<SddmmPlan, SddmmError>,
    ) -> Option<SddmmPlan> {
        let SddmmOptions { autotune, memory_limit, inner, .. } = self.options;
        let times: Vec<f64> = decided.weighed.iter().map(|of| of.predicted_us).collect();
        if !autotune || memory_limit.is_some() || !two_best(&times) || inner == 0 {
            return None;
        }
        // What cannot be made or run, for want of memory, is not tried: the decision stands.
        self.by_trial(device, &decided.weighed, build).ok()
    }

    fn by_trial(
        &self,
        device: &Device,
        weighed: &[Candidate],
        build: impl Fn(SddmmOptions) -> Result<SddmmPlan, SddmmError>,
    ) -> Result<SddmmPlan, SddmmError> {
        let plan_of = |of: &Candidate| {
            let (algorithm, precision) = (of.kind.sampled(), of.precision);
            build(SddmmOptions { algorithm, precision, autotune: false, ..self.options.clone() })
        };
        let plans = [plan_of(&weighed[0])?, plan_of(&weighed[1])?];
        let us = with_element!(self.options.precision, T => timed::<T>(device, &plans, self.options.inner)?);
        let (mut plan, reason) = quicker(plans, weighed, &us);
        plan.report.reason = reason;
        plan.report.requested = self.options.algorithm;
        plan.report.requested_precision = self.options.precision;
        plan.report.weighed = weighed.to_vec();
        Ok(plan)
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
