//! Rows that are together, and their columns.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_collect, try_concat, try_with_room};

use super::super::graph::starts;
use super::super::pattern::{Pattern, index, narrow};
use super::super::watch::{Stopped, Watch, go_on};
use super::{MinHash, hash};

/// Clusters between two questions whether to go on.
pub(super) const CHUNK: usize = 1 << 10;

/// Groups of `2^level` rows. Of each a list of columns, ascending: those in `columns[begins[i] .. begins[i + 1]]` are
/// the ones whose hash begins with as many zero bits as its shift says, of all that other rows have, too.
pub(super) struct Clusters {
    lists: Lists,
    members: Vec<u32>,
    members_each: usize,
}

/// A list of columns for each cluster.
struct Lists {
    begins: Vec<u64>,
    columns: Vec<u32>,
    shifts: Vec<u32>,
    /// Distinct columns of each cluster; where lists are samples, about so many.
    sizes: Vec<u32>,
}

/// What `f` appends to a list of columns for each of `len` things, and what it returns: shift and size.
fn lists(
    len: usize,
    what: &'static str,
    watch: &dyn Watch,
    f: impl Fn(u32, &mut Vec<u32>) -> Result<(u32, u32), OutOfMemory> + Sync,
) -> Result<Lists, Stopped> {
    watch.begin(what, 1);
    type Part = (Vec<u32>, Vec<(u32, u32, u64)>);
    let chunk = |chunk: usize| -> Result<Part, Stopped> {
        go_on(watch)?;
        let range = CHUNK * chunk..len.min(CHUNK * (chunk + 1));
        let (mut columns, mut facts) = (Vec::new(), try_with_room(range.len(), "lists of columns")?);
        for i in range {
            let before = columns.len();
            let (shift, size) = f(narrow(i), &mut columns)?;
            facts.push((shift, size, (columns.len() - before) as u64));
        }
        Ok((columns, facts))
    };
    let parts: Result<Vec<Part>, Stopped> = (0..len.div_ceil(CHUNK)).into_par_iter().map(chunk).collect();
    let parts = parts?;
    let facts = try_concat(&parts.iter().map(|part| &part.1).collect::<Vec<_>>(), "lists of columns")?;
    let columns = try_concat(&parts.iter().map(|part| &part.0).collect::<Vec<_>>(), "lists of columns")?;
    watch.step(1);
    Ok(Lists {
        begins: starts(facts.iter().map(|&(_, _, length)| length))?,
        columns,
        shifts: try_collect(facts.iter().map(|&(shift, _, _)| shift), "samples of columns")?,
        sizes: try_collect(facts.iter().map(|&(_, size, _)| size), "sizes of rows")?,
    })
}

/// Whether a column is in samples of a shift.
fn is_sampled(column: u32, shift: u32) -> bool {
    hash(column).leading_zeros() >= shift
}

impl Clusters {
    /// The rows that are given, each alone.
    pub(super) fn of_rows(pattern: &Pattern<'_>, rows: Vec<u32>, watch: &dyn Watch) -> Result<Self, Stopped> {
        let entries: usize = rows.iter().map(|&r| pattern.row_len(r)).sum();
        let counters = MinHash::counters(pattern.cols(), entries);
        let counts = try_collect((0..counters).map(|_| AtomicU32::new(0)), "counts of columns")?;
        let counter = |column: u32| match counters == pattern.cols() {
            true => &counts[column as usize],
            false => &counts[index((u64::from(hash(column)) * counters as u64) >> 32)],
        };
        rows.par_chunks(CHUNK).try_for_each(|rows| {
            go_on(watch)?;
            let columns = rows.iter().flat_map(|&r| pattern.row(r));
            for &column in columns {
                counter(column).fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Stopped>(())
        })?;
        let list = |i: u32, columns: &mut Vec<u32>| {
            let row = pattern.row(rows[i as usize]);
            let of = |shift: u32| {
                let shared = row.iter().copied().filter(|&j| counter(j).load(Ordering::Relaxed) > 1);
                shared.filter(move |&j| is_sampled(j, shift))
            };
            let mut shift = (of(0).count() / MinHash::LIST).checked_ilog2().unwrap_or(0);
            let mut length = of(shift).count();
            while length > MinHash::LIST {
                shift += 1;
                length = of(shift).count();
            }
            make_room(columns, length, "lists of columns")?;
            columns.extend(of(shift));
            Ok((shift, narrow(row.len())))
        };
        let lists = lists(rows.len(), "columns of rows", watch, list)?;
        Ok(Self { lists, members: rows, members_each: 1 })
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        narrow(self.lists.sizes.len())
    }

    /// The rows of a cluster.
    pub(super) fn members(&self, i: u32) -> &[u32] {
        &self.members[self.members_each * i as usize..][..self.members_each]
    }

    pub(super) fn list(&self, i: u32) -> &[u32] {
        &self.lists.columns[index(self.lists.begins[i as usize])..index(self.lists.begins[i as usize + 1])]
    }

    /// The greater shift of two clusters: columns that both have are samples of that.
    fn shift(&self, a: u32, b: u32) -> u32 {
        self.lists.shifts[a as usize].max(self.lists.shifts[b as usize])
    }

    /// The Jaccard similarity of two clusters that have so many columns of their lists in common, in 2⁻¹⁶.
    pub(super) fn similarity(&self, a: u32, b: u32, common: u32) -> u32 {
        let shift = self.shift(a, b);
        let all =
            (self.lists.sizes[a as usize] >> shift).saturating_add(self.lists.sizes[b as usize] >> shift);
        (common << 16) / all.saturating_sub(common).max(common).max(1)
    }

    /// The pairs as clusters, in their order; with lists only if they are wanted.
    pub(super) fn united(
        &self,
        pairs: &[[u32; 2]],
        with_lists: bool,
        watch: &dyn Watch,
    ) -> Result<Self, Stopped> {
        let mut members = try_with_room(2 * self.members_each * pairs.len(), "members")?;
        for &[a, b] in pairs {
            members.extend_from_slice(self.members(a));
            members.extend_from_slice(self.members(b));
        }
        let list = |k: u32, columns: &mut Vec<u32>| {
            let [a, b] = pairs[k as usize];
            if !with_lists {
                return Ok((0, 0));
            }
            let mut shift = self.shift(a, b);
            let length = |shift: u32| {
                let mut length = 0;
                union(self.list(a), self.list(b), |column| length += usize::from(is_sampled(column, shift)));
                length
            };
            let mut found = length(shift);
            let shared = u64::from(common(self.list(a), self.list(b))) << shift;
            let (size_a, size_b) = (self.lists.sizes[a as usize], self.lists.sizes[b as usize]);
            let shared = u32::try_from(shared).unwrap_or(u32::MAX).min(size_a.min(size_b));
            let size = (size_a - shared).saturating_add(size_b);
            while found > MinHash::LIST {
                shift += 1;
                found = length(shift);
            }
            make_room(columns, found, "lists of columns")?;
            let push = |column| columns.extend(Some(column).filter(|&column| is_sampled(column, shift)));
            union(self.list(a), self.list(b), push);
            Ok((shift, size))
        };
        let lists = lists(pairs.len(), "columns of pairs", watch, list)?;
        Ok(Self { lists, members, members_each: 2 * self.members_each })
    }
}

/// How many columns two lists have in common.
pub(super) fn common(a: &[u32], b: &[u32]) -> u32 {
    let (mut i, mut j, mut common) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        common += u32::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    common
}

/// The columns of two lists, ascending, each once.
fn union(a: &[u32], b: &[u32], mut column: impl FnMut(u32)) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let x = a.get(i).copied().unwrap_or(u32::MAX); // no column has this number
        let y = b.get(j).copied().unwrap_or(u32::MAX);
        column(x.min(y));
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
}
