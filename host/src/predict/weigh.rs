//! Paths that may serve a product, weighed against each other.

use std::fmt;

use serde::Serialize;
use windrow_formats::{Csr, FormatError, OutOfMemory, Value};
use windrow_preprocess::partition::column_vectors;

use super::{Asked, Kind, MatrixCounts, PanelCounts, predicted_us};
use crate::costs::DeviceCosts;
use crate::num::real;
use crate::options::Precision;
use crate::panels::panel_counts;

/// How sure a predicted time is of the column vectors that it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// They were counted, or do not matter. In a large matrix on the host they are counted in a part of it, and so are
    /// those of panels.
    Exactly,
    /// It takes so long or longer, with all column vectors full; which is already too long.
    AtLeast,
    /// It takes so long or less, with an entry in each column vector; which decides already.
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

/// Entries of a matrix on the host in which column vectors are counted, about.
const ENOUGH_ENTRIES: usize = 200_000;

/// The column vectors of a matrix on the host, as tiles would have them: counted in a part of a large one.
pub(crate) fn vectors_of<V: Value>(a: &Csr<V>) -> Result<u64, FormatError> {
    column_vectors(a, ENOUGH_ENTRIES)
}

/// What rows have in common with those beside them, counted where that decides.
pub(crate) trait Sharing<E> {
    /// The column vectors of the windows of rows with entries.
    fn vectors(&mut self) -> Result<u64, E>;

    /// What panels of rows have; none where plans cannot have such.
    fn panels(&mut self) -> Result<Option<PanelCounts>, E> {
        Ok(None)
    }

    /// Whether the rows are on a device, so that kernels lay out what plans have of them.
    fn is_on_device(&self) -> bool {
        false
    }
}

/// Where column vectors are all that can be counted.
impl<E, F: FnMut() -> Result<u64, E>> Sharing<E> for F {
    fn vectors(&mut self) -> Result<u64, E> {
        self()
    }
}

/// What a record says of a matrix that is elsewhere.
impl<E> Sharing<E> for MatrixCounts {
    fn vectors(&mut self) -> Result<u64, E> {
        Ok(self.vectors)
    }

    fn panels(&mut self) -> Result<Option<PanelCounts>, E> {
        Ok((self.panels.columns > 0).then_some(self.panels))
    }
}

/// A matrix on the host, whose rows are counted as tiles and as panels would have them.
pub(crate) struct OfHost<'a, V>(pub(crate) &'a Csr<V>);

impl<V: Value, E: From<FormatError> + From<OutOfMemory>> Sharing<E> for OfHost<'_, V> {
    fn vectors(&mut self) -> Result<u64, E> {
        Ok(vectors_of(self.0)?)
    }

    fn panels(&mut self) -> Result<Option<PanelCounts>, E> {
        Ok(panel_counts(self.0.pattern())?)
    }
}

/// The candidates of a product, the one that is predicted to be quickest first; all in the order of their times.
///
/// Column vectors are asked for only where they decide: `counts` has any number of them. No path takes less time for
/// more of them. Paths off tiles depend on them by one term, the rows of `B` that the L1 cache does not hold, so that
/// the difference of two has one sign for any number of them if it has the same for the least and for the most; tiles
/// against another path are decided where the one with most is quicker than the other with least.
pub(crate) fn weigh<E>(
    counts: &MatrixCounts,
    asked: &[Asked],
    costs: &DeviceCosts,
    vectors: &mut dyn FnMut() -> Result<u64, E>,
) -> Result<Vec<Candidate>, E> {
    let with = |vectors: u64| -> Vec<f64> {
        let counts = MatrixCounts { vectors, ..*counts };
        asked.iter().map(|&asked| predicted_us(&counts, asked, costs)).collect()
    };
    let (least, most) = (with(counts.nnz.div_ceil(8).max(counts.longest)), with(counts.nnz));
    let in_tiles = |at: usize| matches!(asked[at].kind, Kind::Tiles | Kind::SampledTiles);
    // Of two alike the first is taken.
    let before = |(at, us): (usize, f64), (other, of_other): (usize, f64)| {
        us < of_other || us == of_other && at < other
    };
    let beats = |at: usize, other: usize| match in_tiles(at) == in_tiles(other) {
        true => [&least, &most].into_iter().all(|us| before((at, us[at]), (other, us[other]))),
        false => before((at, most[at]), (other, least[other])),
    };
    let all = || 0..asked.len();
    let times: Vec<(f64, Known)> = match all().find(|&at| all().all(|other| other == at || beats(at, other)))
    {
        Some(quickest) => all()
            .map(|at| match (least[at] < most[at], in_tiles(at) == in_tiles(quickest)) {
                (false, _) => (most[at], Known::Exactly),
                (true, true) => (most[at], Known::AtMost),
                (true, false) => (least[at], Known::AtLeast),
            })
            .collect(),
        None => with(vectors()?).into_iter().map(|time| (time, Known::Exactly)).collect(),
    };
    let of = |(&Asked { kind, precision, .. }, (predicted_us, known))| {
        let algorithm = match kind {
            Kind::SampledEntries | Kind::SampledGroups | Kind::SampledTiles | Kind::SampledPanels => {
                kind.sampled().to_string()
            }
            _ => kind.algorithm().to_string(),
        };
        Candidate { algorithm, precision, predicted_us, known, kind }
    };
    let mut candidates: Vec<Candidate> = asked.iter().zip(times).map(of).collect();
    candidates.sort_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    Ok(candidates)
}

/// Whether products that each save so many microseconds by panels of rows pay for so many that it takes to lay these
/// out: so many products, or many if that is not known.
pub(crate) fn panels_pay(saved_us: f64, runs: Option<u64>, layout_us: f64) -> bool {
    runs.is_none_or(|runs| saved_us * real(runs) >= layout_us)
}

/// Leaves panels of rows out if they are the quickest and do not [pay](panels_pay).
pub(crate) fn leave_out_panels(weighed: &mut Vec<Candidate>, runs: Option<u64>, layout_us: f64) {
    if let [first, second, ..] = &weighed[..]
        && matches!(first.kind, Kind::Panels | Kind::SampledPanels)
        && !panels_pay(second.predicted_us - first.predicted_us, runs, layout_us)
    {
        weighed.remove(0);
    }
}

/// Why the first of candidates is taken: their predicted times.
pub(crate) fn reason(candidates: &[Candidate]) -> String {
    let all: Vec<String> = candidates.iter().map(Candidate::to_string).collect();
    format!("predicted to be quickest: {}", all.join(", "))
}
