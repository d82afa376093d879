//! What attention is measured with.

use std::fmt;
use std::str::FromStr;

use windrow::{AttentionAlgorithm, AttentionBuilder, Csr, GraphAttention, Precision, UnknownName};

/// Algorithm, precision and options of attention over the entries of a matrix, such as `auto-f16`, `auto-f32+heads:8`,
/// `auto-f16+additive` (scores of GAT) or `auto-f16+gradients` (those of `Q`, `K` and `V` are timed, not the result).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttendedPath {
    /// How it is computed.
    pub algorithm: AttentionAlgorithm,
    /// Type of `V`, and of `Q` and `K` unless scores are additive.
    pub precision: Precision,
    /// Heads of every operand.
    pub heads: usize,
    /// Whether scores are additive.
    pub additive: bool,
    /// Whether the gradients are timed.
    pub gradients: bool,
}

/// What the rectifier of additive scores multiplies by, as in GAT.
const NEGATIVE_SLOPE: f32 = 0.2;

impl AttendedPath {
    /// What is measured unless told: one head and eight, products and sums, the result and the gradients, in f16 and
    /// f32.
    #[must_use]
    pub fn standard() -> Vec<Self> {
        let mut paths = Vec::new();
        for precision in [Precision::F16, Precision::F32] {
            for heads in [1, 8] {
                for additive in [false, true] {
                    for gradients in [false, true] {
                        let algorithm = AttentionAlgorithm::Auto;
                        paths.push(Self { algorithm, precision, heads, additive, gradients });
                    }
                }
            }
        }
        paths
    }

    /// The builder of its plan for heads of so many columns.
    pub(crate) fn builder<'a>(&self, csr: &'a Csr<f32>, columns: usize) -> AttentionBuilder<'a, Csr<f32>> {
        let builder = GraphAttention::builder(csr).heads(self.heads).columns(columns);
        let builder = builder.precision(self.precision).algorithm(self.algorithm).gradients(self.gradients);
        if self.additive { builder.additive(NEGATIVE_SLOPE) } else { builder }
    }
}

impl fmt::Display for AttendedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}-{}", self.algorithm, self.precision);
        if self.heads != 1 {
            text += &format!("+heads:{}", self.heads);
        }
        if self.additive {
            text += "+additive";
        }
        if self.gradients {
            text += "+gradients";
        }
        f.pad(&text)
    }
}

impl FromStr for AttendedPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| {
            format!(
                "{text:?} is no path ({why}); write ALGORITHM-PRECISION[+heads:HEADS][+additive][+gradients], such as \
                 auto-f16"
            )
        };
        let mut words = text.split('+');
        let base = words.next().unwrap_or_default();
        let (algorithm, precision) = base.rsplit_once('-').ok_or_else(|| wrong("no precision".to_owned()))?;
        let mut path = Self {
            algorithm: algorithm.parse().map_err(|error: UnknownName| wrong(error.to_string()))?,
            precision: precision.parse().map_err(|error: UnknownName| wrong(error.to_string()))?,
            heads: 1,
            additive: false,
            gradients: false,
        };
        for word in words {
            match (word, word.strip_prefix("heads:").map(str::parse)) {
                ("additive", _) => path.additive = true,
                ("gradients", _) => path.gradients = true,
                (_, Some(Ok(heads))) => path.heads = heads,
                _ => return Err(wrong(format!("{word:?}"))),
            }
        }
        Ok(path)
    }
}
