//! One line of a tuning sweep's output.

use serde::{Deserialize, Serialize};

use super::search::{Outcome, Tried};
use super::{PathFamily, ProductTuning};
use crate::sweep::{DeviceFacts, MatrixFacts, PeerFacts, SweepPath};

/// Version of the lines' form. It rises when a field changes its meaning or goes; new fields do not raise it.
pub const TUNING_SCHEMA: u32 = 1;

/// Everything that was tried for one matrix and width: one JSON object on a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningRecord {
    /// [`TUNING_SCHEMA`].
    pub schema: u32,
    /// Which windrow was measured.
    pub revision: String,
    /// Where.
    pub device: DeviceFacts,
    /// The sparse matrix.
    pub matrix: MatrixFacts,
    /// Where its values came from.
    pub values: String,
    /// Columns of `B`.
    pub width: usize,
    /// Type of the values and of `B`.
    pub precision: String,
    /// Whether two runs give the same bits.
    pub determinism: String,
    /// What the default takes.
    pub default: Option<String>,
    /// Its time beside the quickest of the search; without a search its time.
    pub default_us: Option<f64>,
    /// The path that won, if one is measurably quicker than the default.
    pub winner: Option<String>,
    /// Its time beside the default's.
    pub winner_us: Option<f64>,
    /// The quickest of each family, from the search.
    pub families: Vec<FamilyFacts>,
    /// Everything that was tried, in order.
    pub tried: Vec<TriedFacts>,
    /// Why the search ended; none if there was no search.
    pub ended: Option<String>,
    /// Time spent, in seconds, cuSPARSE's not counted.
    pub seconds: f64,
    /// cuSPARSE on the same matrix and width, in the same precision.
    pub cusparse: Option<PeerFacts>,
    /// Why there is nothing.
    pub error: Option<String>,
}

/// The quickest path of a family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FamilyFacts {
    /// The family.
    pub family: String,
    /// The path.
    pub path: String,
    /// Its median time, in microseconds.
    pub median_us: f64,
}

/// A path that was tried. Only one whose result was right has a median.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedFacts {
    /// The path, as [`SweepPath`] writes it.
    pub path: String,
    /// Median time, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// The quickest batch, in microseconds a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_us: Option<f64>,
    /// The worst error of the result in units of its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_ratio: Option<f64>,
    /// The first batch of a path that was given up after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned_us: Option<f64>,
    /// Why there is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl TriedFacts {
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

impl TuningRecord {
    /// What a search found.
    pub(super) fn with(self, tuning: &ProductTuning) -> Self {
        let found = &tuning.found;
        let family = |(family, path, median_us): (PathFamily, SweepPath, f64)| FamilyFacts {
            family: family.to_string(),
            path: path.to_string(),
            median_us,
        };
        Self {
            default: Some(tuning.default.to_string()),
            default_us: Some(found.default_us.median),
            winner: found.winner.as_ref().map(|(path, _)| path.to_string()),
            winner_us: found.winner.as_ref().map(|(_, us)| us.median),
            families: tuning.best_of_families().into_iter().map(family).collect(),
            tried: found.tried.iter().map(TriedFacts::of).collect(),
            ended: Some(found.ended.to_string()),
            seconds: found.spent.as_secs_f64(),
            ..self
        }
    }

    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }
}
