//! Windows filled greedily, so that each has few distinct columns.

use rayon::prelude::*;
use windrow_formats::memory::{try_collect, try_copy, try_with_room, try_zeroed};
use windrow_formats::{OutOfMemory, WINDOW_ROWS};

use super::super::graph::starts;
use super::super::pace::Pace;
use super::super::pattern::{index, narrow};
use super::super::watch::{Stopped, Watch};
use super::Rows;

/// Lists of columns are followed up to a degree at which this many places an entry would be visited if every
/// row stood alone; windows share columns, and placed rows leave the lists, so it is far less.
const VISITS_PER_ENTRY: u64 = 256;

/// An order in which every window of 8 rows is filled with rows that share its columns; `order` names each
/// distinct row once, the result once for each of its members.
///
/// RSH-SpMM orders rows so that *neighbours* are alike; what a window costs is the number of its distinct
/// columns. So, beyond the paper: a window takes in, one after another, the row with the greatest
/// `shared / √length`, where `shared` counts its columns that the window has already. What would have been
/// the ninth begins the next window; where nothing shares a column, the first row of `order` that is left.
///
/// # Cost
/// Sequential. A column's list is walked once for each window that has it, shrinking as rows are placed; the
/// columns of highest degree, which would dominate, are not followed.
pub(super) fn fill_windows(rows: &Rows<'_>, order: &[u32], watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let entries: usize = order.iter().map(|&d| rows.columns(d).len()).sum();
    let mut pace = Pace::begin(watch, "windows", 3 * entries as u64);
    let mut filler = Filler::new(rows, order, &mut pace)?;
    let mut filled = try_with_room(rows.with_entries(), "an order")?;
    let mut seed = None;
    let mut first_left = 0;
    loop {
        first_left += filler.left[first_left..].iter().take_while(|&&left| left == 0).count();
        let Some(first) = seed.take().or((first_left < order.len()).then(|| narrow(first_left))) else {
            break;
        };
        filler.begin();
        let mut room = WINDOW_ROWS;
        let mut next = Some(first);
        while let Some(place) = next {
            let taken = narrow(room).min(filler.left[place as usize]);
            filled.extend(std::iter::repeat_n(order[place as usize], taken as usize));
            room -= taken as usize;
            if filler.take(place, taken) > 0 {
                // Rows alike go on in the next window; what else shares columns does not matter yet.
                seed = Some(place);
                break;
            }
            filler.add_columns(rows.columns(order[place as usize]), &mut pace)?;
            if room == 0 {
                seed = filler.best.first();
                break;
            }
            next = filler.best.first().or_else(|| filler.first_left(first_left));
        }
    }
    pace.finish()?;
    Ok(filled)
}

/// Rows by their place in the order, and the window that is being filled.
struct Filler {
    /// Members of the row that are not placed yet.
    left: Vec<u32>,
    /// Columns that the row shares with the window.
    shared: Vec<Shared>,
    /// Rows with `shared` above 0.
    touched: Vec<u32>,
    best: Best,
    window: u32,
    /// The window that had each column last.
    seen: Vec<u32>,
    /// Places of the rows of column `j` that may still be left: `places[starts[j]..][..lens[j]]`.
    starts: Vec<u64>,
    lens: Vec<u32>,
    places: Vec<u32>,
}

/// How much a row shares with the window.
#[derive(Clone, Copy)]
struct Shared {
    columns: u32,
    /// `1 / √length`, or 0 once no member is left.
    scale: f32,
}

impl Filler {
    fn new(rows: &Rows<'_>, order: &[u32], pace: &mut Pace<'_>) -> Result<Self, Stopped> {
        let cols = rows.pattern.cols();
        let mut lens = try_zeroed::<u32>(cols, "lengths of columns")?;
        for &d in order {
            let columns = rows.columns(d);
            columns.iter().for_each(|&column| lens[column as usize] += 1);
            pace.done(columns.len() as u64)?;
        }
        let longest = longest_list(&lens)?;
        let starts = starts(lens.iter().map(|&len| if len <= longest { u64::from(len) } else { 0 }))?;
        lens.fill(0);
        let mut places = try_zeroed(index(starts[cols]), "rows of columns")?;
        for (&d, place) in order.iter().zip(0..) {
            let columns = rows.columns(d);
            for &column in columns {
                let column = column as usize;
                if starts[column] < starts[column + 1] {
                    places[index(starts[column]) + lens[column] as usize] = place;
                    lens[column] += 1;
                }
            }
            pace.done(columns.len() as u64)?;
        }
        let shared = |&d: &u32| Shared { columns: 0, scale: (rows.columns(d).len() as f32).sqrt().recip() };
        let members = |&d: &u32| narrow(rows.distinct.members(d).len());
        Ok(Self {
            left: try_collect(order.iter().map(members), "rows left")?,
            shared: try_collect(order.iter().map(shared), "columns shared")?,
            // Each is in it once.
            touched: try_with_room(order.len(), "rows touched")?,
            best: Best::default(),
            window: 0,
            seen: try_zeroed(cols, "windows of columns")?,
            starts,
            lens,
            places,
        })
    }

    /// Begins a window without rows.
    fn begin(&mut self) {
        // Numbers start at 1, and there are fewer windows than rows.
        self.window += 1;
        for &place in &self.touched {
            self.shared[place as usize].columns = 0;
        }
        self.touched.clear();
        self.best = Best::default();
    }

    /// Takes members of a row into the window and says how many are left.
    fn take(&mut self, place: u32, members: u32) -> u32 {
        let left = &mut self.left[place as usize];
        *left -= members;
        if *left == 0 {
            self.shared[place as usize].scale = 0.0;
        }
        self.best.remove(place);
        *left
    }

    /// Adds columns to the window: rows that have them share one more each.
    fn add_columns(&mut self, columns: &[u32], pace: &mut Pace<'_>) -> Result<(), Stopped> {
        for &column in columns {
            let column = column as usize;
            if std::mem::replace(&mut self.seen[column], self.window) == self.window {
                continue;
            }
            let start = index(self.starts[column]);
            let list = &mut self.places[start..start + self.lens[column] as usize];
            pace.beside(list.len() as u64)?;
            let mut len = list.len();
            let mut i = 0;
            while i < len {
                let place = list[i];
                let shared = &mut self.shared[place as usize];
                if shared.scale == 0.0 {
                    len -= 1;
                    list[i] = list[len];
                    continue;
                }
                if shared.columns == 0 {
                    self.touched.push(place);
                }
                shared.columns += 1;
                self.best.offer(shared.columns as f32 * shared.scale, place);
                i += 1;
            }
            self.lens[column] = narrow(len);
        }
        pace.done(columns.len() as u64)
    }

    /// The first row that is left, at `from` or behind it.
    fn first_left(&self, from: usize) -> Option<u32> {
        self.left[from..].iter().position(|&left| left > 0).map(|at| narrow(from + at))
    }
}

/// The degree up to which lists of columns are followed.
fn longest_list(degrees: &[u32]) -> Result<u32, OutOfMemory> {
    let mut ascending = try_copy(degrees, "degrees of columns")?;
    ascending.par_sort_unstable();
    let budget = VISITS_PER_ENTRY * degrees.iter().map(|&degree| u64::from(degree)).sum::<u64>();
    let mut visits = 0;
    let within = |&&degree: &&u32| {
        visits += u64::from(degree) * u64::from(degree);
        visits <= budget
    };
    Ok(ascending.iter().take_while(within).last().copied().unwrap_or(0))
}

/// Rows kept in [`Best`]: as many as a window can take, and the one that begins the next.
const KEPT: usize = WINDOW_ROWS + 1;

/// The rows with the highest scores, the first of `order` among equals.
///
/// Scores only rise while a window is filled and at most 8 rows are taken out, so that what was pushed out
/// of the nine best cannot be the best before it is offered again.
#[derive(Default)]
struct Best {
    kept: [(f32, u32); KEPT],
    len: usize,
}

impl Best {
    /// Place of the row with the highest score, if any is listed.
    fn first(&self) -> Option<u32> {
        self.kept[..self.len].first().map(|&(_, place)| place)
    }

    /// The score of a row, which may be listed with a lower one.
    fn offer(&mut self, score: f32, place: u32) {
        let better = |other: (f32, u32)| score > other.0 || (score == other.0 && place < other.1);
        if self.len == KEPT && !better(self.kept[KEPT - 1]) {
            return;
        }
        let listed = self.kept[..self.len].iter().position(|&(_, other)| other == place);
        let mut at = listed.unwrap_or_else(|| {
            self.len = KEPT.min(self.len + 1);
            self.len - 1
        });
        while at > 0 && better(self.kept[at - 1]) {
            self.kept[at] = self.kept[at - 1];
            at -= 1;
        }
        self.kept[at] = (score, place);
    }

    /// Takes a row out if it is listed.
    fn remove(&mut self, place: u32) {
        if let Some(at) = self.kept[..self.len].iter().position(|&(_, other)| other == place) {
            self.kept.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
    }
}
