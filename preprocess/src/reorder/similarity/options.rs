//! What can be chosen about the similarity order.

use super::index::MAX_REPRESENTATIVES;

/// How rows are compared, and which stages order them.
///
/// The first three stages are those of RSH-SpMM (section 3.4), the others go beyond it; any may be left out.
/// Without the forest, what follows starts from the original order.
///
/// # Examples
/// ```
/// use windrow_preprocess::reorder::SimilarityOptions;
///
/// let paper = SimilarityOptions::as_in_paper();
/// assert!(paper.forest && paper.two_opt && paper.isolated && !paper.windows);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimilarityOptions {
    /// Exponent `α` of the weight `w_j = d_j^(−α)` of a column with `d_j` entries, in `0 ..= 4`; at 0 all
    /// columns weigh the same.
    pub alpha: f64,
    /// Most similar rows that are remembered of each row, `k`, in `1 ..= 64`.
    pub neighbours: usize,
    /// Rows that each row is compared with, at most, in `1 ..= 4096`.
    pub candidates: usize,
    /// Columns of least degree by which a row is found, in `1 ..= 4096`; of a long row, an eighth of its
    /// columns if that is more.
    pub representatives: usize,
    /// Order the rows by a spanning forest of the graph of neighbours.
    pub forest: bool,
    /// Improve each window by 2-opt.
    pub two_opt: bool,
    /// Move isolated rows next to the row that is most similar to them.
    pub isolated: bool,
    /// Fill windows greedily with rows that share columns.
    pub windows: bool,
    /// Exchange rows between windows.
    pub exchange: bool,
    /// Arrange the windows so that columns recur at larger scales, too.
    pub arrangement: bool,
}

impl SimilarityOptions {
    /// The stages of the paper and no others.
    pub fn as_in_paper() -> Self {
        Self { windows: false, exchange: false, arrangement: false, ..Self::default() }
    }

    /// Numbers out of their ranges replaced by the nearest in them.
    pub(super) fn within_bounds(&self) -> Self {
        Self {
            neighbours: self.neighbours.clamp(1, 64),
            candidates: self.candidates.clamp(1, 4096),
            representatives: self.representatives.clamp(1, MAX_REPRESENTATIVES),
            ..*self
        }
    }
}

impl Default for SimilarityOptions {
    /// Every stage is on, beyond the paper's too.
    fn default() -> Self {
        Self {
            alpha: 0.5,
            neighbours: 8,
            candidates: 32,
            representatives: 16,
            forest: true,
            two_opt: true,
            isolated: true,
            windows: true,
            exchange: true,
            arrangement: true,
        }
    }
}
