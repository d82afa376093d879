//! What records tell of tuned products.

use serde::{Deserialize, Serialize};

use crate::measure::{Outcome, PathFamily, ProductTuning, SweepPath, Tried};
use crate::suites::facts::{MatrixFacts, PeerFacts};

/// Everything that was tried for one matrix and width.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TunedFacts {
    pub(crate) matrix: MatrixFacts,
    /// Where its values came from.
    pub(crate) values: String,
    pub(crate) width: usize,
    /// Type of the values and of `B`.
    pub(crate) precision: String,
    /// Whether two runs give the same bits.
    pub(crate) determinism: String,
    /// What the default takes.
    pub(crate) default: Option<String>,
    /// Its time beside the quickest of the search; without a search its time.
    pub(crate) default_us: Option<f64>,
    /// The path that won, if one is measurably quicker than the default.
    pub(crate) winner: Option<String>,
    /// Its time beside the default's.
    pub(crate) winner_us: Option<f64>,
    /// The quickest of each family, from the search.
    pub(crate) families: Vec<FamilyFacts>,
    /// Everything that was tried, in order.
    pub(crate) tried: Vec<TriedFacts>,
    /// Why the search ended; none if there was no search.
    pub(crate) ended: Option<String>,
    /// Time spent, in seconds, cuSPARSE's not counted.
    pub(crate) seconds: f64,
    /// cuSPARSE on the same matrix and width, in the same precision.
    pub(crate) cusparse: Option<PeerFacts>,
}

/// The quickest path of a family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FamilyFacts {
    pub(crate) family: String,
    pub(crate) path: String,
    /// Its median time, in microseconds.
    pub(crate) median_us: f64,
}

/// A path that was tried. Only one whose result was right has a median.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TriedFacts {
    /// The path, as [`SweepPath`] writes it.
    pub(crate) path: String,
    /// Median time, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) median_us: Option<f64>,
    /// The quickest batch, in microseconds a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_us: Option<f64>,
    /// The worst error of the result in units of its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worst_ratio: Option<f64>,
    /// The first batch of a path that was given up after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) abandoned_us: Option<f64>,
    /// Why there is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl TriedFacts {
    /// Whether it ran and its result was wrong.
    pub(super) fn is_wrong(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.starts_with("the result is wrong"))
    }

    pub(super) fn of(tried: &Tried<SweepPath>) -> Self {
        let path = tried.candidate.to_string();
        let nothing =
            Self { path, median_us: None, min_us: None, worst_ratio: None, abandoned_us: None, error: None };
        match &tried.outcome {
            &Outcome::Timed { median_us, min_us, worst_ratio } => Self {
                median_us: Some(median_us),
                min_us: Some(min_us),
                worst_ratio: Some(worst_ratio),
                ..nothing
            },
            &Outcome::Abandoned { first_us } => Self { abandoned_us: Some(first_us), ..nothing },
            Outcome::Wrong(error) | Outcome::Failed(error) => Self { error: Some(error.clone()), ..nothing },
        }
    }
}

impl TunedFacts {
    /// Notes what a search found.
    pub(super) fn found(&mut self, tuning: &ProductTuning) {
        let found = &tuning.found;
        let family = |(family, path, median_us): (PathFamily, SweepPath, f64)| FamilyFacts {
            family: family.to_string(),
            path: path.to_string(),
            median_us,
        };
        self.default = Some(tuning.default.to_string());
        self.default_us = Some(found.default_us.median);
        self.winner = found.winner.as_ref().map(|(path, _)| path.to_string());
        self.winner_us = found.winner.as_ref().map(|(_, us)| us.median);
        self.families = tuning.best_of_families().into_iter().map(family).collect();
        self.tried = found.tried.iter().map(TriedFacts::of).collect();
        self.ended = Some(found.ended.to_string());
        self.seconds = found.spent.as_secs_f64();
    }

    /// The time of the winner, or of the default if nothing won.
    pub(super) fn tuned_us(&self) -> Option<f64> {
        self.winner_us.or(self.default_us)
    }

    /// Time of cuSPARSE's quickest algorithm, in microseconds; none if it was not measured.
    pub(super) fn peer_us(&self) -> Option<f64> {
        self.cusparse.as_ref()?.median_us
    }
}
