//! Which path a sampled product takes.

use windrow_formats::{Csr, Value};
use windrow_kernels::sddmm::BATCH;

use super::builder::SddmmBuilder;
use super::options::{SddmmAlgorithm, SddmmOptions};
use super::plan::SddmmPlan;
use super::report::SddmmReport;
use crate::costs::DeviceCosts;
use crate::device::Device;
use crate::error::{PlanError, SddmmError};
use crate::num::{index, real, wide};
use crate::options::Precision;
use crate::panels::may_share;
use crate::plan::MAX_INDEX;
use crate::predict::weigh::{Candidate, OfHost, Sharing, leave_out_panels, panels_pay, reason, weigh};
use crate::predict::{Asked, Kind, MatrixCounts, PanelCounts, predicted_us};
use crate::profile::Profile;

/// What predicted times follow from, with a column vector for each entry.
pub(super) fn counts_of((rows, cols, nnz): (usize, usize, usize), batches: u64) -> MatrixCounts {
    // Of the lengths of rows only the batches matter here: entries are dealt out by their number.
    MatrixCounts {
        rows: wide(rows),
        cols: wide(cols),
        nnz: wide(nnz),
        empty_rows: 0,
        longest: 0,
        batches,
        vectors: wide(nnz),
        panels: PanelCounts::default(),
    }
}

/// The same of a matrix on the host.
pub(super) fn counts_of_host<V>(a: &Csr<V>) -> MatrixCounts {
    let lengths = a.row_offsets().windows(2).map(|ends| ends[1] - ends[0]);
    let batches = lengths.map(|len| len.div_ceil(u64::from(BATCH))).sum();
    counts_of((a.rows(), a.cols(), a.nnz()), batches)
}

/// What [`SddmmAlgorithm::Auto`] takes for a sampled product, and what it weighed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct SddmmWeighed {
    /// The one that a plan takes.
    pub algorithm: SddmmAlgorithm,
    /// In which it multiplies: f32 may serve where tf32 is asked for.
    pub precision: Precision,
    /// Why it is taken, as the plan's report has it.
    pub reason: String,
    /// The paths that were weighed, the quickest first; none where something else than predicted times decides.
    pub candidates: Vec<Candidate>,
}

impl<V: Value> SddmmBuilder<'_, Csr<V>> {
    /// What [`SddmmAlgorithm::Auto`] weighs for a product on a GPU of which a profile tells the costs, and what it
    /// takes: the decision that [`build`](Self::build) makes, without a GPU and without a plan.
    ///
    /// # Cost
    /// Linear in rows and entries.
    ///
    /// # Errors
    /// Those of [`build`](Self::build) that need no device.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Precision, Profile, Sddmm, SddmmAlgorithm};
    ///
    /// let (a, h200) = (Csr::<f32>::identity(100_000)?, Profile::built_in(&Device::cpu()));
    /// let weighed = Sddmm::builder(&a).inner(16).weigh(&h200)?;
    /// assert_eq!(weighed.algorithm, SddmmAlgorithm::Groups);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weigh(&self, profile: &Profile) -> Result<SddmmWeighed, SddmmError> {
        let a = self.a;
        self.weigh_counts(counts_of_host(a), profile, &mut OfHost(a))
    }
}

/// Does what [`internal::weigh_sddmm`](crate::internal::weigh_sddmm) promises.
pub(crate) fn weigh_counts(
    counts: &MatrixCounts,
    options: &SddmmOptions,
    profile: &Profile,
) -> Result<SddmmWeighed, SddmmError> {
    let builder = SddmmBuilder::new(&()).options(options.clone());
    builder.weigh_counts(*counts, profile, &mut { *counts })
}

impl<A> SddmmBuilder<'_, A> {
    fn weigh_counts(
        &self,
        counts: MatrixCounts,
        profile: &Profile,
        sharing: &mut dyn Sharing<SddmmError>,
    ) -> Result<SddmmWeighed, SddmmError> {
        self.check_options()?;
        let sizes = (index(counts.rows), index(counts.cols), index(counts.nnz));
        let mut report = self.blank_report(&Device::cpu(), sizes);
        let precision = self.decide(counts, profile, &mut report, sharing)?;
        let SddmmReport { algorithm, reason, weighed: candidates, .. } = report;
        Ok(SddmmWeighed { algorithm, precision, reason, candidates })
    }

    /// The algorithm of a plan for a GPU and why, into the report. In which precision it multiplies: f32 may serve
    /// where tf32 is asked for.
    pub(super) fn decide(
        &self,
        counts: MatrixCounts,
        profile: &Profile,
        report: &mut SddmmReport,
        sharing: &mut dyn Sharing<SddmmError>,
    ) -> Result<Precision, SddmmError> {
        let entries = counts.nnz;
        if entries > MAX_INDEX {
            let remedy = "split the pattern by rows, or use the CPU";
            return Err(
                PlanError::TooLarge { what: "entries", found: entries, limit: MAX_INDEX, remedy }.into()
            );
        }
        let mut precision = self.options.precision;
        if self.options.algorithm == SddmmAlgorithm::Auto {
            let mut asked = self.candidates(entries);
            let mut counts = counts;
            let layout_us = profile.costs.paths.panel_layout_us(real(entries), sharing.is_on_device());
            if self.may_have_panels(&counts, &profile.costs, layout_us)
                && let Some(panels) = sharing.panels()?
            {
                counts.panels = panels;
                asked.insert(0, self.asked(Kind::SampledPanels, Precision::F32));
            }
            if asked.is_empty() {
                (report.algorithm, report.reason) = self.automatic();
            } else {
                report.weighed = weigh(&counts, &asked, &profile.costs, &mut || sharing.vectors())?;
                leave_out_panels(&mut report.weighed, self.options.expected_runs, layout_us);
                report.reason = reason(&report.weighed);
                report.algorithm = report.weighed[0].kind.sampled();
                precision = report.weighed[0].precision;
            }
        }
        if report.algorithm == SddmmAlgorithm::Groups {
            report.group = Some(self.group());
            let threads = self.group().threads_for(entries);
            if threads > MAX_INDEX {
                let (what, remedy) = ("threads", "let a group have more entries or fewer threads");
                return Err(PlanError::TooLarge { what, found: threads, limit: MAX_INDEX, remedy }.into());
            }
        }
        Ok(precision)
    }

    /// What is taken where predicted times do not decide.
    fn automatic(&self) -> (SddmmAlgorithm, String) {
        match self.options.precision {
            precision if precision.has_tile_kernels() => {
                (SddmmAlgorithm::Tiles, "a row of Y is gathered once for the rows of a window".to_owned())
            }
            precision => (SddmmAlgorithm::Entries, format!("{precision} is multiplied on CUDA cores")),
        }
    }

    /// Whether predicted times decide.
    pub(super) fn weighs(&self, entries: u64) -> bool {
        self.options.algorithm == SddmmAlgorithm::Auto && !self.candidates(entries).is_empty()
    }

    /// The candidates whose predicted times decide, tiles last; none where they do not.
    fn candidates(&self, entries: u64) -> Vec<Asked> {
        let (on_cores, in_tiles) = match self.options.precision {
            Precision::F32 => (Precision::F32, None),
            Precision::Tf32 => (Precision::F32, Some(Precision::Tf32)),
            Precision::F16 => (Precision::F16, Some(Precision::F16)),
            Precision::Bf16 | Precision::F64 => return Vec::new(),
        };
        if entries == 0 {
            return Vec::new();
        }
        let mut candidates = vec![self.asked(Kind::SampledEntries, on_cores)];
        if self.group().threads_for(entries) <= MAX_INDEX {
            candidates.push(self.asked(Kind::SampledGroups, on_cores));
        }
        candidates.extend(in_tiles.map(|precision| self.asked(Kind::SampledTiles, precision)));
        candidates
    }

    /// Whether panels of rows are weighed beside the other candidates: they serve f32, and take so long to lay out that
    /// some expected products would not pay for them if they took no time.
    fn may_have_panels(&self, counts: &MatrixCounts, costs: &DeviceCosts, layout_us: f64) -> bool {
        let by_entries = || predicted_us(counts, self.asked(Kind::SampledEntries, Precision::F32), costs);
        matches!(self.options.precision, Precision::F32 | Precision::Tf32)
            && counts.nnz > 0
            && may_share(counts.rows, counts.nnz)
            && panels_pay(by_entries(), self.options.expected_runs, layout_us)
    }

    /// A path for the plan's inner dimension.
    fn asked(&self, kind: Kind, precision: Precision) -> Asked {
        Asked { kind, precision, width: self.options.inner }
    }

    /// The builder of the plan that serves in another precision.
    pub(super) fn served_by(&self, report: &SddmmReport, precision: Precision) -> Self {
        let options = SddmmOptions { algorithm: report.algorithm, precision, ..self.options.clone() };
        self.clone().options(options)
    }

    /// A plan that serves in another precision, as what was asked for.
    pub(super) fn serving(&self, mut plan: SddmmPlan, decided: SddmmReport) -> SddmmPlan {
        plan.report.requested = self.options.algorithm;
        plan.report.requested_precision = self.options.precision;
        plan.report.reason = decided.reason;
        plan.report.weighed = decided.weighed;
        plan
    }
}
