//! What a caller chooses for attention.

use windrow_formats::names;
use windrow_kernels::attention::ScoreKind;

use crate::options::Precision;

/// How attention is computed on a GPU. The CPU has one algorithm, whichever is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AttentionAlgorithm {
    /// Windows by columns on Tensor Cores, by entries with a bias; rows in f32, and for operands whose rows do not
    /// begin at multiples of 16 bytes. Gradients by windows of 8 rows and 8 columns on Tensor Cores, where scores are
    /// products of 16-bit elements without a bias and heads have 17 to 128 columns; else on CUDA cores.
    #[default]
    Auto,
    /// CUDA cores, a row at a time, gradients too. Any precision and alignment.
    Rows,
    /// Tensor Cores, windows of 4 or 8 rows over the matrix as it is. f16 and bf16. Gradients on CUDA cores.
    Entries,
    /// Tensor Cores, windows of 4 or 8 rows whose distinct columns are listed once. f16 and bf16; without bias.
    /// Gradients as for `Auto`.
    Columns,
}

impl AttentionAlgorithm {
    /// Every algorithm, `Auto` first.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Rows, Self::Entries, Self::Columns];

    /// Whether there are kernels for `precision`.
    #[must_use]
    pub const fn supports(self, precision: Precision) -> bool {
        match (self, precision) {
            (_, Precision::F16 | Precision::Bf16) | (Self::Auto | Self::Rows, Precision::F32) => true,
            (_, Precision::F32 | Precision::Tf32 | Precision::F64) => false,
        }
    }
}

names!(AttentionAlgorithm, "algorithm of attention";
    Auto => "auto", Rows => "rows", Entries => "entries", Columns => "columns");

/// Where an operand has the matrices of its heads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HeadLayout {
    /// Beside each other: `n × (heads · d)`, the columns of a head in succession; `[n, heads, d]`.
    #[default]
    Columns,
    /// Below each other: `(heads · n) × d`, the rows of a head in succession; `[heads, n, d]`.
    Rows,
}

impl HeadLayout {
    /// Both layouts, the default first.
    pub const ALL: [Self; 2] = [Self::Columns, Self::Rows];
}

names!(HeadLayout, "layout of heads"; Columns => "columns", Rows => "rows");

/// How the score of an entry is made, in front of the softmax.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AttentionScores {
    /// `scale · Q[i]·K[j] + bias[i, j]`: transformers (Vaswani et al. 2017), AGNN.
    #[default]
    DotProduct,
    /// `scale · leaky_relu(Q[i] + K[j] + bias[i, j])`: graph attention networks (GAT, Veličković et al. 2018). `Q` and
    /// `K` have one column a head, of f32 whatever the precision; the bias is the term of an edge.
    Additive {
        /// What the rectifier multiplies sums below zero by, 0.2 in GAT. With 0 a bias of minus infinity makes its row
        /// NaN instead of leaving an entry out.
        negative_slope: f32,
    },
    /// `scale · Σ_c a[c]·leaky_relu(Q[i, c] + K[j, c]) + bias[i, j]`, with a vector `a` for each head: `GATv2` (Brody,
    /// Alon and Yahav 2022), where each row may rank the columns in an order of its own. Sums are taken in f32.
    Gatv2 {
        /// What the rectifier multiplies sums below zero by, 0.2 in `GATv2`.
        negative_slope: f32,
    },
}

impl AttentionScores {
    /// Whether they are of a number of the row and one of the column.
    #[must_use]
    pub const fn are_additive(self) -> bool {
        matches!(self, Self::Additive { .. })
    }

    /// Whether they need a [vector](super::AttentionOperands::vector) for each head.
    #[must_use]
    pub const fn have_vector(self) -> bool {
        matches!(self, Self::Gatv2 { .. })
    }

    /// As kernels are named.
    pub(super) const fn kind(self) -> ScoreKind {
        match self {
            Self::DotProduct => ScoreKind::DotProduct,
            Self::Additive { .. } => ScoreKind::Additive,
            Self::Gatv2 { .. } => ScoreKind::Gatv2,
        }
    }

    /// The slope of the rectifier at a sum, in f64; 1 of products.
    pub(super) fn slope_at(self, sum: f64) -> f64 {
        if sum > 0.0 { 1.0 } else { f64::from(self.negative_slope()) }
    }

    /// As kernels take it.
    pub(super) const fn negative_slope(self) -> f32 {
        match self {
            Self::DotProduct => 1.0,
            Self::Additive { negative_slope } | Self::Gatv2 { negative_slope } => negative_slope,
        }
    }
}

/// Weights that are left out at random, in training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Share of the weights that is left out, at least 0 and below 1. The others are multiplied by `1 / (1 − rate)`.
    pub rate: f32,
    /// Which they are: a hash of it, the head, the row and the column decides, so that two runs with one seed agree.
    pub seed: u32,
}

/// The options of a plan as one plain value: what [`AttentionBuilder`](super::AttentionBuilder) sets one by one. As
/// JSON a missing field has its default, and a field that there is not is an error.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttentionOptions {
    /// Heads of every operand.
    pub heads: usize,
    /// Where operands have them.
    pub layout: HeadLayout,
    /// How scores are made.
    pub scores: AttentionScores,
    /// Columns of each head of `Q` and `K`, unless scores are additive, and of `V` unless told.
    pub columns: usize,
    /// Columns of each head of `V` and the result; those of `Q` unless told.
    pub value_columns: Option<usize>,
    /// Type of `V`, and of `Q` and `K` unless scores are additive.
    pub precision: Precision,
    /// The algorithm on a GPU.
    pub algorithm: AttentionAlgorithm,
    /// Rows of a window on Tensor Cores, 4 or 8; what suits the matrix unless told.
    pub window_rows: Option<u32>,
    /// Whether runs have a bias for each entry.
    pub biased: bool,
    /// Whether the plan computes gradients, too.
    pub gradients: bool,
    /// Device memory that the plan may take, in bytes.
    pub memory_limit: Option<u64>,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self {
            heads: 1,
            layout: HeadLayout::Columns,
            scores: AttentionScores::DotProduct,
            columns: 64,
            value_columns: None,
            precision: Precision::F32,
            algorithm: AttentionAlgorithm::Auto,
            window_rows: None,
            biased: false,
            gradients: false,
            memory_limit: None,
        }
    }
}

impl AttentionOptions {
    /// Columns of each head of `V` and the result.
    #[must_use]
    pub fn value_columns(&self) -> usize {
        self.value_columns.unwrap_or(self.columns)
    }

    /// Columns of each head of `Q` and `K`.
    #[must_use]
    pub fn score_columns(&self) -> usize {
        if self.scores.are_additive() { 1 } else { self.columns }
    }

    /// Type of `Q` and `K`.
    #[must_use]
    pub fn score_precision(&self) -> Precision {
        if self.scores.are_additive() { Precision::F32 } else { self.precision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for algorithm in AttentionAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse::<AttentionAlgorithm>().unwrap(), algorithm);
        }
        for layout in HeadLayout::ALL {
            assert_eq!(layout.to_string().parse::<HeadLayout>().unwrap(), layout);
        }
        let error = "tiles".parse::<AttentionAlgorithm>().unwrap_err();
        let expected = "\"tiles\" is no algorithm of attention; there are auto, rows, entries and columns";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn additive_scores_are_of_single_numbers_of_f32() {
        let json = r#"{"scores": {"additive": {"negative_slope": 0.5}}, "columns": 8, "precision": "f16"}"#;
        let options: AttentionOptions = serde_json::from_str(json).unwrap();
        assert_eq!(options.scores, AttentionScores::Additive { negative_slope: 0.5 });
        assert_eq!((options.score_columns(), options.value_columns()), (1, 8));
        assert_eq!((options.score_precision(), options.precision), (Precision::F32, Precision::F16));
        assert_eq!(
            serde_json::from_str::<AttentionOptions>("{}").unwrap().scores,
            AttentionScores::DotProduct
        );
    }

    #[test]
    fn tensor_cores_have_no_f32() {
        for precision in Precision::ALL {
            let supported = AttentionAlgorithm::ALL.map(|algorithm| algorithm.supports(precision));
            let expected = match precision {
                Precision::F16 | Precision::Bf16 => [true; 4],
                Precision::F32 => [true, true, false, false],
                Precision::Tf32 | Precision::F64 => [false; 4],
            };
            assert_eq!(supported, expected, "{precision}");
        }
    }
}
