//! Orders of the rows in which neighbours share columns.
//!
//! A window of 8 rows gathers a row of `B` once for each of its distinct columns, so the order of the rows
//! decides how often a gathered row is used: `entries_per_vector` of [`Locality`]. Only rows move; the result
//! of a product is put back into the caller's order by whoever holds the [`Permutation`].
//!
//! | [`Method`] | order | source |
//! | --- | --- | --- |
//! | `Identity` | as it is | |
//! | `Degree` | longest rows first | |
//! | `ReverseCuthillMckee` | by distance in the graph | George and Liu, 1979 |
//! | `Community` | communities found by merging | Rabbit order: Arai et al., 2016 |
//! | `MinHash` | by shared columns, paired | min-wise hashing: Broder, 1997; [`MinHash`] |
//! | `Similarity` | by shared columns | RSH-SpMM, section 3.4, and more: [`SimilarityOptions`] |
//!
//! All are deterministic, whatever the number of threads, need memory linear in rows and entries, tell a
//! [`Watch`] how far they are and end soon after it says so.

mod clock;
mod community;
mod compact;
mod degree;
mod graph;
mod locality;
mod method;
mod minhash;
mod pace;
mod pattern;
mod rcm;
mod shared;
mod similarity;
mod watch;

#[cfg(test)]
mod baseline_tests;
#[cfg(test)]
mod tests;

use windrow_formats::memory::{try_collect, try_copy};
use windrow_formats::{Csr, FormatError, OutOfMemory, Permutation, Value};

use clock::Clock;
use pattern::{Pattern, narrow};
use similarity::Weights;

pub use clock::Stage;
pub use locality::{Locality, Quality};
pub use method::{Method, UnknownMethod};
pub use minhash::MinHash;
pub use similarity::SimilarityOptions;
pub use watch::{Stopped, Watch};

/// What [`reorder`] should do.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How rows are ordered.
    pub method: Method,
    /// For [`Method::Similarity`]; `alpha` also for the measure of [`Locality::dissimilarity`].
    pub similarity: SimilarityOptions,
}

/// An order of the rows, and what came of it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reordering {
    /// New position `i` takes row `permutation.to_old(i)`.
    pub permutation: Permutation,
    /// The stages and the time each took, in order.
    pub stages: Vec<Stage>,
    /// Locality before and after.
    pub quality: Quality,
    /// Whether the order of [`Method::Similarity`] or [`Method::MinHash`] has more column vectors than the original
    /// one, which is then the result.
    pub kept_original: bool,
}

/// An order of the rows of `csr`, rows without entries last (but for [`Method::Identity`]).
///
/// Values do not matter, nor does whether the matrix is square. [`Method::Similarity`] and [`Method::MinHash`] keep
/// the original order if their own has more column vectors; the other methods give what they give.
///
/// # Cost
/// Near-linear in rows and entries. A million rows and ten million entries take [`Method::Similarity`] about
/// 20 seconds on two cores and half a gigabyte besides the matrix; the other methods less.
///
/// # Errors
/// [`Stopped::Cancelled`] if the watcher ends it, [`Stopped::OutOfMemory`].
///
/// # Panics
/// Never: an order names every row once.
///
/// # Examples
/// ```
/// use windrow_formats::Csr;
/// use windrow_preprocess::reorder::{Options, reorder};
///
/// // Sixteen rows of two kinds that alternate: a window of 8 has the columns of both.
/// let columns = (0..16).flat_map(|r| if r % 2 == 0 { [0, 1] } else { [2, 3] }).collect();
/// let offsets = (0..17).map(|r| 2 * r).collect();
/// let a = Csr::try_from_parts(16, 4, offsets, columns, vec![1.0f32; 32])?;
///
/// let found = reorder(&a, &Options::default(), &()).expect("nobody cancels");
/// assert_eq!(found.quality.before.column_vectors, 8);
/// assert_eq!(found.quality.after.column_vectors, 4);
/// let sorted = a.permute_rows(&found.permutation)?;
/// assert!((0..8).all(|r| sorted.row(r).0 == sorted.row(0).0));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn reorder<V: Value>(csr: &Csr<V>, options: &Options, watch: &dyn Watch) -> Result<Reordering, Stopped> {
    // Hashes are of the columns' own numbers, of which there may be any.
    let own = Pattern::of(csr);
    match compact::without_unused_columns(csr)? {
        Some(compact) => reorder_compact(&compact, own, options, watch),
        None => reorder_compact(csr, own, options, watch),
    }
}

/// [`reorder`] of a matrix that has the columns of another's, but for those that are not used.
fn reorder_compact<V: Value>(
    csr: &Csr<V>,
    own: Pattern<'_>,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Reordering, Stopped> {
    let pattern = Pattern::of(csr);
    let mut clock = Clock::default();
    let alpha = options.similarity.alpha;
    let weights = clock.time("column weights", || Weights::of(&pattern, alpha, watch))?;
    let identity = try_collect(0..narrow(csr.rows()), "an order")?;
    let before = clock.time("locality before", || Locality::of(&pattern, &weights, &identity, watch))?;
    let mut order = match options.method {
        Method::Identity => try_copy(&identity, "an order")?,
        Method::Degree => clock.time("degree", || degree::order(csr, watch))?,
        Method::ReverseCuthillMckee => clock.time("Cuthill-McKee", || rcm::order(csr, watch))?,
        Method::Community => clock.time("communities", || community::order(csr, watch))?,
        Method::MinHash => clock.time("minhash", || minhash::order(&own, watch))?,
        Method::Similarity => similarity::order(csr, &weights, &options.similarity, &mut clock, watch)?,
    };
    let mut after = clock.time("locality after", || Locality::of(&pattern, &weights, &order, watch))?;
    let keeps_better = matches!(options.method, Method::MinHash | Method::Similarity);
    let kept_original = keeps_better && after.column_vectors > before.column_vectors;
    if kept_original {
        (order, after) = (identity, before);
    }
    let permutation = match Permutation::try_from_new_to_old(order) {
        Err(FormatError::OutOfMemory { what, bytes }) => return Err(OutOfMemory { what, bytes }.into()),
        found => found.expect("an order names every row once"),
    };
    Ok(Reordering { permutation, stages: clock.stages, quality: Quality { before, after }, kept_original })
}
