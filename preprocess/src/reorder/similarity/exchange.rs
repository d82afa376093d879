//! Rows exchanged between windows.

use windrow_formats::memory::{make_room, try_with_room, try_zeroed};
use windrow_formats::{OutOfMemory, WINDOW_ROWS};

use super::super::pace::Pace;
use super::super::pattern::narrow;
use super::super::watch::{Stopped, Watch};
use super::Rows;
use super::neighbours::Neighbours;

/// Windows that a row is tried in, at most.
const TRIES: usize = 2;
/// Every so many-th window is refined before all others.
const SAMPLE: usize = 8;
/// The others are left alone unless at least one in so many columns of the sample was saved.
const WORTHWHILE: u64 = 500;
/// A row is tried elsewhere if at least one in this many of its columns is in its window for it alone.
const LONELY: u32 = 4;
/// A window with more than this many columns for each column of the row, and [`SLACK`] of them, is not tried.
const WINDOW_REACH: usize = 32;
/// A row is not tried in the place of one more than this many times as long, and [`SLACK`] columns.
const ROW_REACH: usize = 4;
/// Columns by which both reaches may be passed; see [`WINDOW_REACH`] and [`ROW_REACH`].
const SLACK: usize = 8;

/// Exchanges rows between windows of 8 where that lowers the number of distinct columns, in one pass; beyond
/// the paper, after Kernighan and Lin.
///
/// A row that brings columns which nothing else in its window has is tried in the windows of its neighbours,
/// in the place of each row there; the exchange that saves most is made at once.
///
/// # Cost
/// Sequential; linear in entries, since rows and windows much longer than the row are not tried. Memory for
/// 8 bytes an entry.
pub(super) fn exchange(
    rows: &Rows<'_>,
    neighbours: &Neighbours,
    order: &mut [u32],
    watch: &dyn Watch,
) -> Result<(), Stopped> {
    let entries: usize = order.iter().map(|&d| rows.columns(d).len()).sum();
    let mut pace = Pace::begin(watch, "exchange", 2 * (entries + order.len()) as u64);
    let mut windows = try_with_room(order.len().div_ceil(WINDOW_ROWS), "windows")?;
    let mut place = try_zeroed(rows.len(), "windows of rows")?;
    for (members, window) in order.chunks(WINDOW_ROWS).zip(0u32..) {
        members.iter().for_each(|&d| place[d as usize] = window);
        windows.push(Window::of(rows, members)?);
        let entries: usize = members.iter().map(|&d| rows.columns(d).len() + 1).sum();
        pace.done(entries as u64)?;
    }
    let mut exchange = Exchange { rows, neighbours, windows, place };
    for phase in 0..SAMPLE {
        let (mut saved, mut columns) = (0, 0);
        for home in (phase..exchange.windows.len()).step_by(SAMPLE) {
            columns += exchange.windows[home].columns.len() as u64;
            saved += exchange.refine(home, &mut pace)?;
        }
        if phase == 0 && saved * WORTHWHILE < columns {
            break;
        }
    }
    let windows = exchange.windows;
    for (slots, window) in order.chunks_mut(WINDOW_ROWS).zip(&windows) {
        slots.copy_from_slice(window.members());
    }
    pace.finish()
}

/// Where a row may go.
struct Swap {
    window: usize,
    slot: usize,
    /// By how much the number of distinct columns rises: below 0.
    change: i64,
}

/// The windows, and where rows are.
struct Exchange<'a> {
    rows: &'a Rows<'a>,
    neighbours: &'a Neighbours,
    windows: Vec<Window>,
    /// A window in which each row is: that of its last member.
    place: Vec<u32>,
}

impl Exchange<'_> {
    /// Tries each row of a window elsewhere, and says how many columns were saved.
    fn refine(&mut self, home: usize, pace: &mut Pace<'_>) -> Result<u64, Stopped> {
        let mut saved = 0;
        for slot in 0..self.windows[home].len {
            let d = self.windows[home].members[slot];
            let looked_at = self.rows.columns(d).len() as u64 + 1;
            if let Some(swap) = self.best_swap(home, slot) {
                let other = self.windows[swap.window].members[swap.slot];
                self.windows[home].members[slot] = other;
                self.windows[swap.window].members[swap.slot] = d;
                (self.place[d as usize], self.place[other as usize]) = (narrow(swap.window), narrow(home));
                self.windows[home].count(self.rows)?;
                self.windows[swap.window].count(self.rows)?;
                saved += swap.change.unsigned_abs();
                pace.beside(WINDOW_ROWS as u64 * looked_at)?;
            }
            pace.done(looked_at)?;
        }
        Ok(saved)
    }

    /// The exchange of the row in `slot` of window `home` that saves the most columns, if any does.
    fn best_swap(&self, home: usize, slot: usize) -> Option<Swap> {
        let Self { rows, neighbours, windows, place } = self;
        let here = &windows[home];
        let d = here.members[slot];
        let columns = rows.columns(d);
        let alone = here.alone[slot];
        let reach = WINDOW_REACH * (columns.len() + SLACK);
        if (alone as usize) < columns.len().div_ceil(LONELY as usize) || here.columns.len() > reach {
            return None;
        }
        let mut tried = [usize::MAX; TRIES];
        let mut tries = 0;
        let mut best: Option<Swap> = None;
        for u in neighbours.of(d) {
            let window = place[u as usize] as usize;
            let there = &windows[window];
            if window == home || tried.contains(&window) || there.columns.len() > reach {
                continue;
            }
            tried[tries] = window;
            let (new, single) = there.meet(columns);
            for (other, &guest) in there.members().iter().enumerate() {
                let guest = rows.columns(guest);
                // What changes if the guest brought no column of its own here.
                let least = i64::from(new + single[other]) - i64::from(alone + there.alone[other]);
                let saved = best.as_ref().map_or(0, |best| best.change);
                if least >= saved || guest.len() > ROW_REACH * (columns.len() + SLACK) {
                    continue;
                }
                let (new, single) = here.meet(guest);
                let change = least + i64::from(new + single[slot]);
                if change < saved {
                    best = Some(Swap { window, slot: other, change });
                }
            }
            tries += 1;
            if tries == TRIES {
                break;
            }
        }
        best
    }
}

/// A window and its distinct columns.
struct Window {
    /// Its rows, `len` of them.
    members: [u32; WINDOW_ROWS],
    len: usize,
    /// Distinct columns, ascending, with a bit for each slot whose row has it.
    columns: Vec<(u32, u8)>,
    /// Columns that only the row in a slot has.
    alone: [u32; WINDOW_ROWS],
}

impl Window {
    fn of(rows: &Rows<'_>, members: &[u32]) -> Result<Self, OutOfMemory> {
        let (len, zeros) = (members.len(), [0; WINDOW_ROWS]);
        let mut window = Self { members: zeros, len, columns: Vec::new(), alone: zeros };
        window.members[..len].copy_from_slice(members);
        window.count(rows)?;
        window.columns.shrink_to_fit();
        Ok(window)
    }

    fn members(&self) -> &[u32] {
        &self.members[..self.len]
    }

    /// Lists the columns of the window anew, with a bit for each row that has one.
    fn count(&mut self, rows: &Rows<'_>) -> Result<(), OutOfMemory> {
        /// Columns that a stable sort has room for on its stack.
        const FEW: usize = 1 << 9;
        self.columns.clear();
        let entries = self.members().iter().map(|&d| rows.columns(d).len()).sum();
        make_room(&mut self.columns, entries, "columns of a window")?;
        for (slot, &d) in self.members[..self.len].iter().enumerate() {
            self.columns.extend(rows.columns(d).iter().map(|&column| (column, 1 << slot)));
        }
        if entries <= FEW {
            // Stable: it merges the ascending runs that the rows are.
            self.columns.sort_by_key(|&(column, _)| column);
        } else {
            // It would ask for memory.
            self.columns.sort_unstable_by_key(|&(column, _)| column);
        }
        self.columns.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 |= next.1;
            }
            same
        });
        self.alone = [0; WINDOW_ROWS];
        for &(_, bits) in self.columns.iter().filter(|(_, bits)| bits.is_power_of_two()) {
            self.alone[bits.trailing_zeros() as usize] += 1;
        }
        Ok(())
    }

    /// How many columns of a row the window has not, and how many it has only for the row in each slot.
    fn meet(&self, row: &[u32]) -> (u32, [u32; WINDOW_ROWS]) {
        let mut new = 0;
        let mut single = [0; WINDOW_ROWS];
        let mut rest = self.columns.as_slice();
        for &column in row {
            let before = rest.iter().take_while(|&&(other, _)| other < column).count();
            rest = &rest[before..];
            match rest.first() {
                Some(&(found, bits)) if found == column => {
                    if bits.is_power_of_two() {
                        single[bits.trailing_zeros() as usize] += 1;
                    }
                }
                _ => new += 1,
            }
        }
        (new, single)
    }
}
