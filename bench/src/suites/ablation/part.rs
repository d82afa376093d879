//! The parts of an ablation, and the steps that each is.

use std::fmt;
use std::str::FromStr;

use windrow::partition::VectorThreshold;

use super::{determinism, reorder, thresholds};
use crate::measure::{BenchError, SweepPath};

/// A part of the ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Thresholds of partitions by rows, and the tiles that each leaves.
    Thresholds,
    /// Thresholds of column vectors.
    Vectors,
    /// The balance of the tile stream.
    Stream,
    /// The tile stream as it is built, and as RSH-SpMM prints it.
    Printed,
    /// Orders of rows, and the stages of the similarity order.
    Reorder,
    /// Bytes of each format, indices and values apart.
    Bytes,
    /// The hybrid and its parts.
    Hybrid,
    /// Repeated runs, compared bit by bit beside other work.
    Determinism,
}

/// One step of a part: what one record tells.
#[expect(clippy::large_enum_variant, reason = "a part has a few steps")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// A threshold of a partition.
    Threshold { rule: thresholds::Rule, max_entries: u32 },
    /// A threshold of column vectors.
    Vectors(VectorThreshold),
    /// Windows dealt out evenly, and a warp for each.
    Stream,
    /// The tile stream, and what is printed in the place of its parts.
    Printed,
    /// An order of the rows, by its number.
    Order(usize),
    /// Bytes of formats with all rows in tiles, or with the partition that the cost model prefers.
    Bytes { estimated: bool },
    /// The hybrid and its parts.
    Hybrid,
    /// Runs of a path.
    Determinism(SweepPath),
}

impl Part {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 8] = [
        Self::Thresholds,
        Self::Vectors,
        Self::Stream,
        Self::Printed,
        Self::Reorder,
        Self::Bytes,
        Self::Hybrid,
        Self::Determinism,
    ];

    /// Its steps, in the order in which they share what they found.
    pub(super) fn steps(self) -> Vec<Step> {
        match self {
            Self::Thresholds => {
                let of_rule = |rule| {
                    (0..=thresholds::LARGEST).map(move |max_entries| Step::Threshold { rule, max_entries })
                };
                thresholds::Rule::ALL.into_iter().flat_map(of_rule).collect()
            }
            Self::Vectors => VectorThreshold::ALL.map(Step::Vectors).to_vec(),
            Self::Stream => vec![Step::Stream],
            Self::Printed => vec![Step::Printed],
            Self::Reorder => (0..reorder::variants().len()).map(Step::Order).collect(),
            Self::Bytes => [false, true].map(|estimated| Step::Bytes { estimated }).to_vec(),
            Self::Hybrid => vec![Step::Hybrid],
            Self::Determinism => determinism::PATHS.map(Step::Determinism).to_vec(),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Thresholds => "thresholds",
            Self::Vectors => "vectors",
            Self::Stream => "stream",
            Self::Printed => "printed",
            Self::Reorder => "reorder",
            Self::Bytes => "bytes",
            Self::Hybrid => "hybrid",
            Self::Determinism => "determinism",
        })
    }
}

impl FromStr for Part {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        Ok(match text {
            "thresholds" => Self::Thresholds,
            "vectors" => Self::Vectors,
            "stream" => Self::Stream,
            "printed" => Self::Printed,
            "reorder" => Self::Reorder,
            "bytes" => Self::Bytes,
            "hybrid" => Self::Hybrid,
            "determinism" => Self::Determinism,
            _ => {
                let known = "thresholds, vectors, stream, printed, reorder, bytes, hybrid and determinism (preprocess is a \
                             suite of its own)";
                return Err(BenchError::UnknownName { what: "part", text: text.to_owned(), known });
            }
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threshold { rule, max_entries } => write!(f, "threshold {max_entries}, {}", rule.name()),
            Self::Vectors(threshold) => write!(f, "vectors {threshold}"),
            Self::Stream => f.write_str("stream"),
            Self::Printed => f.write_str("printed"),
            Self::Order(at) => write!(f, "order {}", reorder::variants()[*at].0),
            Self::Bytes { estimated: false } => f.write_str("bytes, all in tiles"),
            Self::Bytes { estimated: true } => f.write_str("bytes, estimated"),
            Self::Hybrid => f.write_str("hybrid"),
            Self::Determinism(path) => write!(f, "determinism {path}"),
        }
    }
}
