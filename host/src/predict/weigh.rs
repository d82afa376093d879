//! Paths that may serve a product, weighed against each other.

use std::fmt;

use serde::Serialize;

use super::{Asked, Kind, MatrixCounts, predicted_us};
use crate::costs::DeviceCosts;
use crate::options::Precision;

/// How sure a predicted time is of the column vectors that it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// They were counted, or do not matter. What panels have is counted in some of them, for all.
    Exactly,
    /// It takes so long or longer: with all column vectors full, which is already too long.
    AtLeast,
    /// It takes so long or less: with an entry in each column vector, which is already short enough.
    AtMost,
}

/// A path that may serve a product, and its predicted time. `Display` prints `row-split in f32: 9.2 µs`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// Name of the algorithm.
    pub algorithm: String,
    /// In which it multiplies: f32 may serve where tf32 is asked for.
    pub precision: Precision,
    /// Predicted time of a product, in microseconds.
    pub predicted_us: f64,
    /// Whether that is the time, or a bound of it.
    pub known: Known,
    #[serde(skip)]
    pub(crate) kind: Kind,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, precision, predicted_us, known, .. } = self;
        let known = match known {
            Known::Exactly => "",
            Known::AtLeast => "at least ",
            Known::AtMost => "at most ",
        };
        write!(f, "{algorithm} in {precision}: {known}{predicted_us:.1} µs")
    }
}

/// The candidates of a product, the one that is predicted to be quickest first; all in the order of their times.
///
/// Column vectors are asked for only where they decide: `counts` has any number of them.
pub(crate) fn weigh<E>(
    counts: &MatrixCounts,
    asked: &[Asked],
    costs: &DeviceCosts,
    vectors: &mut dyn FnMut() -> Result<u64, E>,
) -> Result<Vec<Candidate>, E> {
    let most = counts.nnz;
    let least = counts.nnz.div_ceil(8).max(counts.longest);
    let with = |vectors: u64, asked: Asked| predicted_us(&MatrixCounts { vectors, ..*counts }, asked, costs);
    let in_tiles = |asked: &Asked| matches!(asked.kind, Kind::Tiles | Kind::SampledTiles);
    let quickest = asked.iter().filter(|asked| !in_tiles(asked));
    let others = quickest.map(|&asked| with(most, asked)).fold(f64::INFINITY, f64::min);
    let mut counted = None;
    let mut candidates = Vec::with_capacity(asked.len());
    for &asked in asked {
        let (predicted_us, known) = if !in_tiles(&asked) {
            (with(most, asked), Known::Exactly)
        } else if with(least, asked) >= others {
            (with(least, asked), Known::AtLeast)
        } else if with(most, asked) < others {
            (with(most, asked), Known::AtMost)
        } else {
            let vectors = match counted {
                Some(vectors) => vectors,
                None => *counted.insert(vectors()?),
            };
            (with(vectors, asked), Known::Exactly)
        };
        let Asked { kind, precision, .. } = asked;
        let algorithm = match kind {
            Kind::SampledEntries | Kind::SampledGroups | Kind::SampledTiles => kind.sampled().to_string(),
            _ => kind.algorithm().to_string(),
        };
        candidates.push(Candidate { algorithm, precision, predicted_us, known, kind });
    }
    candidates.sort_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    Ok(candidates)
}

/// Why the first of candidates is taken: their predicted times.
pub(crate) fn reason(candidates: &[Candidate]) -> String {
    let all: Vec<String> = candidates.iter().map(Candidate::to_string).collect();
    format!("predicted to be quickest: {}", all.join(", "))
}
