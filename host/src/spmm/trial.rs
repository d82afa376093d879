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
use crate::trial::{Trial, Tried, in_turns};
use crate::with_element;

impl<A> SpmmBuilder<'_, A> {
    /// The quicker of the plans that `build` makes with the options of the two best candidates, if they are to be
    /// timed and can be; if not, the decision stands, and notes why nothing was timed.
    ///
    /// # Errors
    /// Those of `build` and of the products, but for [want of room](Trial::run).
    pub(super) fn tried(
        &self,
        device: &Device,
        decision: &mut Decision,
        build: impl Fn(SpmmOptions) -> Result<SpmmPlan, SpmmError>,
    ) -> Result<Option<SpmmPlan>, SpmmError> {
        let SpmmOptions { precision, width, autotune, memory_limit, expected_runs, .. } = self.options;
        let weighed = &decision.weighed;
        let trial = Trial { asked: autotune, memory_limit, expected_runs, columns: width, weighed };
        let plan_of = |of: &Candidate| {
            let (algorithm, precision) = (of.kind.algorithm(), of.precision);
            build(SpmmOptions { algorithm, precision, autotune: false, ..self.options })
        };
        let time = |plans: &[_; 2]| with_element!(precision, B => timed::<B>(device, plans, width));
        match trial.run(plan_of, time)? {
            Tried::Quicker(plan, why) => Ok(Some(self.serving(plan, Decision { why, ..decision.clone() }))),
            Tried::Untimed(why) => {
                decision.untimed = why;
                Ok(None)
            }
        }
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
