//! What a plan would be, without a device.

use windrow_formats::{Csr, Value};

use super::builder::SpmmBuilder;
use super::decide::{Decision, Facts, decide};
use super::options::SpmmOptions;
use crate::error::SpmmError;
use crate::options::{Algorithm, Precision};
use crate::plan::Exceptions;
use crate::predict::MatrixCounts;
use crate::predict::weigh::{Candidate, OfHost};
use crate::profile::Profile;

impl<V: Value> SpmmBuilder<'_, Csr<V>> {
    /// What [`Algorithm::Auto`] weighs for a product on a GPU of which a profile tells the costs, and what it takes:
    /// the decision that [`build`](Self::build) makes, without a GPU and without a plan.
    ///
    /// # Cost
    /// Linear in rows and entries.
    ///
    /// # Errors
    /// Those of [`build`](Self::build) that need no device.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Precision, Profile, Spmm};
    ///
    /// let (a, h200) = (Csr::<f32>::identity(1000)?, Profile::built_in(&Device::cpu()));
    /// let weighed = Spmm::builder(&a).width(16).precision(Precision::Tf32).weigh(&h200)?;
    /// assert_eq!(weighed.precision, Precision::F32); // which is no slower here, and more exact
    /// assert_eq!(weighed.candidates.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weigh(&self, profile: &Profile) -> Result<Weighed, SpmmError> {
        let exceptions = Exceptions::of(self.options.precision, self.a.values());
        let own_order = self.order.is_none() && self.options.reorder.is_none();
        let facts = Facts::of(self.a.pattern(), exceptions, true, own_order);
        let decision = decide(&facts, &self.options, profile, &mut OfHost(self.a))?;
        Ok(Weighed::of(decision))
    }
}

/// What [`Algorithm::Auto`] takes for a product, and what it weighed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Weighed {
    /// The one that a plan takes.
    pub algorithm: Algorithm,
    /// In which it multiplies: f32 may serve where tf32 is asked for.
    pub precision: Precision,
    /// Why it is taken, as the plan's report has it.
    pub reason: String,
    /// The paths that were weighed, the quickest first; none where something else than predicted times decides.
    pub candidates: Vec<Candidate>,
}

impl Weighed {
    fn of(decision: Decision) -> Self {
        let Decision { algorithm, precision, why, weighed, .. } = decision;
        Self { algorithm, precision, reason: why, candidates: weighed }
    }
}

/// Does what [`internal::weigh_spmm`](crate::internal::weigh_spmm) promises.
pub(crate) fn weigh_counts(
    counts: &MatrixCounts,
    options: &SpmmOptions,
    profile: &Profile,
) -> Result<Weighed, SpmmError> {
    let decision = decide(&Facts::of_counts(counts), options, profile, &mut counts.clone())?;
    Ok(Weighed::of(decision))
}
