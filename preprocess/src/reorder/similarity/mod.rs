//! Locality-aware order of the rows, after RSH-SpMM (section 3.4, algorithm 3), and beyond it.
//!
//! ```text
//! distinct rows → inverted index → neighbours → spanning forest → depth-first order      (algorithm 3, I to III)
//!               → 2-opt → isolated rows                                                  (algorithm 3, IV)
//!               → windows → exchange → arrangement                                       (ours)
//! ```
//!
//! 2-opt moves rows inside windows only; if windows are filled or rows exchanged, it runs behind that.

mod arrange;
mod distinct;
mod exchange;
mod forest;
mod index;
mod isolated;
mod neighbours;
mod options;
mod proposals;
mod refine;
mod traverse;
mod weights;
mod windows;

#[cfg(test)]
mod tests;

use windrow_formats::memory::{try_collect, try_concat, try_filled, try_with_room, try_zeroed};
use windrow_formats::{Csr, OutOfMemory, Value, WINDOW_ROWS};

use super::clock::Clock;
use super::locality::distinct_columns;
use super::pattern::{Pattern, chunks, map_chunks, narrow};
use super::rcm;
use super::watch::{Stopped, Watch};
use distinct::DistinctRows;
use index::Index;
use neighbours::Neighbours;

pub use options::SimilarityOptions;
pub(super) use weights::Weights;

/// The distinct rows of a matrix, by number, their columns and weights.
struct Rows<'a> {
    pattern: Pattern<'a>,
    weights: &'a Weights,
    distinct: DistinctRows,
    sums: Vec<u64>,
}

impl<'a> Rows<'a> {
    fn of(pattern: Pattern<'a>, weights: &'a Weights, watch: &dyn Watch) -> Result<Self, Stopped> {
        let distinct = DistinctRows::of(&pattern, watch)?;
        let columns = |d: usize| pattern.row(distinct.first(narrow(d)));
        let ranges = chunks(distinct.len(), |d| columns(d).len() as u64)?;
        watch.begin("row weights", ranges.len() as u64);
        let what = "weights of rows";
        let sums =
            map_chunks(&ranges, watch, |range| try_collect(range.map(|d| weights.sum(columns(d))), what))?;
        Ok(Self { pattern, weights, sums: try_concat(&sums, what)?, distinct })
    }

    /// How many there are.
    fn len(&self) -> usize {
        self.distinct.len()
    }

    /// How many rows of the matrix they stand for.
    fn with_entries(&self) -> usize {
        self.pattern.rows() as usize - self.distinct.empty.len()
    }

    /// The columns of row `d`, ascending; there is at least one.
    fn columns(&self, d: u32) -> &'a [u32] {
        self.pattern.row(self.distinct.first(d))
    }

    /// `Σ w_j` over the columns of row `d`.
    fn sum(&self, d: u32) -> u64 {
        self.sums[d as usize]
    }

    /// The weighted Jaccard similarity of two rows.
    fn similarity(&self, a: u32, b: u32) -> f32 {
        if a == b {
            return 1.0;
        }
        weights::jaccard(self.weights.shared(self.columns(a), self.columns(b)), self.sum(a), self.sum(b))
    }

    /// `order` with each row as often as it has members.
    fn with_members(&self, order: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
        let members = |&d: &u32| std::iter::repeat_n(d, self.distinct.members(d).len());
        let mut with_members = try_with_room(self.with_entries(), "an order")?;
        with_members.extend(order.iter().flat_map(members));
        Ok(with_members)
    }

    /// `order` with each row once, where it comes first.
    fn once(&self, order: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
        let mut met = try_filled(self.len(), false, "rows met")?;
        let first = |&d: &u32| !std::mem::replace(&mut met[d as usize], true);
        let mut once = try_with_room(self.len(), "an order")?;
        once.extend(order.iter().copied().filter(first));
        Ok(once)
    }

    /// The rows of the matrix in the order of their distinct rows, those without entries last.
    fn into_rows(self, order: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
        let mut taken = try_zeroed::<u32>(self.len(), "members taken")?;
        let mut rows = try_with_room(self.pattern.rows() as usize, "an order")?;
        for &d in order {
            rows.push(self.distinct.members(d)[taken[d as usize] as usize]);
            taken[d as usize] += 1;
        }
        rows.extend_from_slice(&self.distinct.empty);
        Ok(rows)
    }

    /// The place of each distinct row in an order of the matrix's rows: that of its last member.
    fn places(&self, order: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
        let mut place = try_zeroed(self.pattern.rows() as usize, "places of rows")?;
        order.iter().zip(0..).for_each(|(&r, at)| place[r as usize] = at);
        let last = |d: u32| self.distinct.members(d).iter().map(|&r| place[r as usize]).max().unwrap_or(0);
        try_collect((0..narrow(self.len())).map(last), "places of rows")
    }
}

/// Distinct columns of each window of 8 rows of `order`, summed.
fn column_vectors(rows: &Rows<'_>, order: &[u32], watch: &dyn Watch) -> Result<u64, Stopped> {
    let windows = try_collect(order.chunks(WINDOW_ROWS), "windows")?;
    let cost = |window: usize| windows[window].iter().map(|&d| rows.columns(d).len() as u64).sum();
    let ranges = chunks(windows.len(), cost)?;
    watch.begin("column vectors", ranges.len() as u64);
    let vectors = map_chunks(&ranges, watch, |range| {
        let mut columns = Vec::new();
        let distinct =
            |window: usize| distinct_columns(windows[window].iter().map(|&d| rows.columns(d)), &mut columns);
        range.map(distinct).sum::<Result<u64, OutOfMemory>>()
    })?;
    Ok(vectors.into_iter().sum())
}

/// The new order of the rows: position `i` takes row `order[i]`.
pub(super) fn order<V: Value>(
    csr: &Csr<V>,
    weights: &Weights,
    options: &SimilarityOptions,
    clock: &mut Clock,
    watch: &dyn Watch,
) -> Result<Vec<u32>, Stopped> {
    let options = &options.within_bounds();
    let rows = clock.time("identical rows", || Rows::of(Pattern::of(csr), weights, watch))?;
    let index = clock.time("inverted index", || Index::of(&rows, options.representatives, watch))?;
    let neighbours = clock.time("neighbours", || Neighbours::find(&rows, &index, options, watch))?;
    drop(index);
    let order = if options.forest {
        let forest =
            clock.time("spanning forest", || forest::spanning_forest(rows.len(), &neighbours, watch))?;
        clock.time("depth-first order", || traverse::depth_first(rows.len(), &forest, watch))?
    } else {
        try_collect(0..narrow(rows.len()), "an order")?
    };
    let mut order = rows.with_members(&order)?;
    let windows_change = options.windows || options.exchange;
    if options.two_opt && !windows_change {
        clock.time("2-opt", || refine::two_opt(&rows, &mut order, watch))?;
    }
    if options.isolated {
        order = clock.time("isolated rows", || isolated::move_isolated(&rows, &neighbours, &order, watch))?;
    }
    if options.windows {
        order = clock.time("windows", || {
            let filled = windows::fill_windows(&rows, &rows.once(&order)?, watch)?;
            let fewer = column_vectors(&rows, &filled, watch)? <= column_vectors(&rows, &order, watch)?;
            Ok::<_, Stopped>(if fewer { filled } else { order })
        })?;
    }
    if options.exchange {
        clock.time("exchange", || exchange::exchange(&rows, &neighbours, &mut order, watch))?;
    }
    drop(neighbours);
    if options.two_opt && windows_change {
        clock.time("2-opt", || refine::two_opt(&rows, &mut order, watch))?;
    }
    if options.arrangement {
        order = clock.time("arrangement", || {
            let original = try_collect(0..narrow(rows.len()), "places of rows")?;
            let banded = rows.places(&rcm::order(csr, watch)?)?;
            arrange::arrange(&rows, &order, &[original, banded], watch)
        })?;
    }
    Ok(rows.into_rows(&order)?)
}
