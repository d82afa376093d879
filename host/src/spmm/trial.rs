//! The quicker of the two plans that are predicted to be quickest.

use windrow_formats::Value;

use super::builder::SpmmBuilder;
use super::decide::Decision;
use super::options::SpmmOptions;
use super::plan::SpmmPlan;
use crate::device::Device;
use crate::element::Element;
use crate::error::SpmmError;
use crate::matrix::DeviceMatrix;
use crate::predict::weigh::Candidate;
use crate::trial::{in_turns, quicker, two_best};
use crate::with_element;

impl<A> SpmmBuilder<'_, A> {
    /// The quicker of the plans that `build` makes with the options of the two best candidates, if they are to be
    /// timed and can be.
    pub(super) fn tried(
        &self,
        device: &Device,
        decision: &Decision,
        build: impl Fn(SpmmOptions) -> Result<SpmmPlan, SpmmError>,
    ) -> Option<SpmmPlan> {
        let SpmmOptions { autotune, memory_limit, expected_runs, .. } = self.options;
        let is_asked = autotune && memory_limit.is_none() && expected_runs.is_none();
        let times: Vec<f64> = decision.weighed.iter().map(|of| of.predicted_us).collect();
        if !is_asked || !two_best(&times) || self.options.width == 0 {
            return None;
        }
        // What cannot be made or run, for want of memory, is not tried: the decision stands.
        self.by_trial(device, &decision.weighed, build).ok()
    }

    fn by_trial(
        &self,
        device: &Device,
        weighed: &[Candidate],
        build: impl Fn(SpmmOptions) -> Result<SpmmPlan, SpmmError>,
    ) -> Result<SpmmPlan, SpmmError> {
        let plan_of = |of: &Candidate| {
            let (algorithm, precision) = (of.kind.algorithm(), of.precision);
            build(SpmmOptions { algorithm, precision, autotune: false, ..self.options })
        };
        let plans = [plan_of(&weighed[0])?, plan_of(&weighed[1])?];
        let us = with_element!(self.options.precision, B => timed::<B>(device, &plans, self.options.width)?);
        let (mut plan, reason) = quicker(plans, weighed, &us);
        plan.report.reason = reason;
        plan.report.requested = self.options.algorithm;
        plan.report.requested_precision = self.options.precision;
        plan.report.weighed = weighed.to_vec();
        Ok(plan)
    }
}

/// Microseconds of a product by each plan.
fn timed<B: Element>(device: &Device, plans: &[SpmmPlan; 2], width: usize) -> Result<Vec<f64>, SpmmError> {
    let (m, k) = plans[0].shape();
    let b = DeviceMatrix::<B>::zeros(device, k, width)?;
    let mut c = DeviceMatrix::<B::Sum>::zeros(device, m, width)?;
    let [one, zero] = [1.0, 0.0].map(<B::Sum as Value>::from_f64);
    in_turns(device, plans.len(), |of| plans[of].run_into(one, &b, zero, &mut c))
}
