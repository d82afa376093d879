//! Inverted index: which rows name a column among their representative ones.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_collect, try_copy, try_with_room, try_zeroed};

use super::super::graph::starts;
use super::super::pace::Pace;
use super::super::pattern::{chunks, index, map_chunks, narrow};
use super::super::watch::{Stopped, Watch, tick};
use super::Rows;
use super::distinct::mix;

/// A long row has one representative for this many columns, if that is more than the option says.
const COLUMNS_PER_REPRESENTATIVE: usize = 8;
/// Most representatives of a row.
pub(super) const MAX_REPRESENTATIVES: usize = 4096;

/// Rows by representative column, and the representative columns of each row.
///
/// The representatives of a row are its columns of least degree. All rows order columns in the same way, so
/// rows that share many columns share representatives: the prefix filter of set similarity joins. A column
/// that only one row has represents nothing.
pub(super) struct Index {
    /// Representative columns of row `d`: `columns[column_offsets[d] .. column_offsets[d + 1]]`.
    column_offsets: Vec<u64>,
    columns: Vec<u32>,
    /// Whether the representatives of a row are all its columns that other rows have too.
    complete: Vec<bool>,
    /// Ranks of the rows of column `j`, ascending: `ranks[rank_offsets[j] .. rank_offsets[j + 1]]`.
    rank_offsets: Vec<u64>,
    ranks: Vec<u32>,
    /// Rank of each row: rows with the same sketch, which likely share columns, are neighbours by rank.
    rank: Vec<u32>,
    /// The row of each rank.
    by_rank: Vec<u32>,
}

/// What is found out about a range of rows.
struct Part {
    columns: Vec<u32>,
    lengths: Vec<u64>,
    complete: Vec<bool>,
    /// The least hash of a row's columns (min-wise hashing), and the row.
    sketches: Vec<(u64, u32)>,
}

impl Index {
    pub(super) fn of(rows: &Rows<'_>, representatives: usize, watch: &dyn Watch) -> Result<Self, Stopped> {
        let ranges = chunks(rows.len(), |d| rows.columns(narrow(d)).len() as u64)?;
        watch.begin("representatives", ranges.len() as u64 + 1);
        let parts = map_chunks(&ranges, watch, |range| Part::of(rows, range, representatives))?;
        let column_offsets = starts(parts.iter().flat_map(|part| part.lengths.iter().copied()))?;
        let mut columns = try_with_room(index(column_offsets[rows.len()]), "representatives")?;
        let mut complete = try_with_room(rows.len(), "complete rows")?;
        let mut sketches = try_with_room(rows.len(), "sketches of rows")?;
        for part in parts {
            columns.extend_from_slice(&part.columns);
            complete.extend_from_slice(&part.complete);
            sketches.extend_from_slice(&part.sketches);
        }
        sketches.par_sort_unstable();
        tick(watch, 1)?;
        let by_rank: Vec<u32> = try_collect(sketches.into_iter().map(|(_, d)| d), "rows by rank")?;
        let mut rank = try_zeroed(rows.len(), "ranks of rows")?;
        by_rank.iter().zip(0..).for_each(|(&d, at)| rank[d as usize] = at);
        let (rank_offsets, ranks) = (Vec::new(), Vec::new());
        let mut index = Self { column_offsets, columns, complete, rank_offsets, ranks, rank, by_rank };
        index.invert(rows.pattern.cols(), watch)?;
        Ok(index)
    }

    /// Lists ranks by column, by counting.
    fn invert(&mut self, cols: usize, watch: &dyn Watch) -> Result<(), Stopped> {
        let work = 2 * self.columns.len() + self.by_rank.len();
        let mut pace = Pace::begin(watch, "inverted index", work as u64);
        let mut counts = try_zeroed::<u64>(cols, "counts of columns")?;
        for &column in &self.columns {
            counts[column as usize] += 1;
            pace.done(1)?;
        }
        self.rank_offsets = starts(counts.into_iter())?;
        let mut ends = try_copy(&self.rank_offsets, "ends of lists")?;
        let mut ranks = try_zeroed(self.columns.len(), "ranks by column")?;
        for (&d, rank) in self.by_rank.iter().zip(0..) {
            let columns = self.representatives(d);
            for &column in columns {
                let end = &mut ends[column as usize];
                ranks[index(*end)] = rank;
                *end += 1;
            }
            pace.done(columns.len() as u64 + 1)?;
        }
        self.ranks = ranks;
        pace.finish()
    }

    /// The representative columns of row `d`, the rarest first.
    pub(super) fn representatives(&self, d: u32) -> &[u32] {
        &self.columns[index(self.column_offsets[d as usize])..index(self.column_offsets[d as usize + 1])]
    }

    /// Whether the representatives of row `d` are all its columns that other rows have too.
    pub(super) fn is_complete(&self, d: u32) -> bool {
        self.complete[d as usize]
    }

    /// Ranks of at most `limit` rows that `column` represents, those nearest to `rank`, and whether these
    /// are all.
    pub(super) fn around(&self, column: u32, rank: u32, limit: usize) -> (&[u32], bool) {
        let column = column as usize;
        let all = &self.ranks[index(self.rank_offsets[column])..index(self.rank_offsets[column + 1])];
        if all.len() <= limit {
            return (all, true);
        }
        let at = all.partition_point(|&other| other < rank);
        let start = at.saturating_sub(limit / 2).min(all.len() - limit);
        (&all[start..start + limit], false)
    }

    /// The rank of row `d`.
    pub(super) fn rank(&self, d: u32) -> u32 {
        self.rank[d as usize]
    }

    /// The row of that rank.
    pub(super) fn at_rank(&self, rank: u32) -> u32 {
        self.by_rank[rank as usize]
    }
}

impl Part {
    fn of(rows: &Rows<'_>, range: Range<usize>, representatives: usize) -> Result<Self, OutOfMemory> {
        let mut part = Self {
            columns: Vec::new(),
            lengths: try_with_room(range.len(), "counts of representatives")?,
            complete: try_with_room(range.len(), "complete rows")?,
            sketches: try_with_room(range.len(), "sketches of rows")?,
        };
        let mut by_degree = Vec::new();
        for d in range.map(narrow) {
            let row = rows.columns(d);
            let share = (row.len() / COLUMNS_PER_REPRESENTATIVE).min(MAX_REPRESENTATIVES);
            let wanted = representatives.max(share);
            by_degree.clear();
            make_room(&mut by_degree, row.len(), "columns by degree")?;
            let degrees = row.iter().map(|&column| (rows.weights.degree(column), column));
            by_degree.extend(degrees.filter(|&(degree, _)| degree > 1));
            part.complete.push(by_degree.len() <= wanted);
            if by_degree.len() > wanted {
                by_degree.select_nth_unstable(wanted);
                by_degree.truncate(wanted);
            }
            by_degree.sort_unstable();
            make_room(&mut part.columns, by_degree.len(), "representatives")?;
            part.columns.extend(by_degree.iter().map(|&(_, column)| column));
            part.lengths.push(by_degree.len() as u64);
            part.sketches.push((row.iter().map(|&column| mix(u64::from(column))).min().unwrap_or(0), d));
        }
        Ok(part)
    }
}
