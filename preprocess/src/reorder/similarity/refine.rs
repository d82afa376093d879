//! 2-opt inside windows: pieces are reversed where neighbours then share more.

use rayon::prelude::*;
use windrow_formats::WINDOW_ROWS;
use windrow_formats::memory::try_copy;

use super::super::watch::{Stopped, Watch, go_on, tick};
use super::Rows;

/// Windows that are one step for the watcher.
const PART: usize = 1 << 10;
/// A window and the row on either side of it.
const FRAME: usize = WINDOW_ROWS + 2;
/// A gain below this is rounding.
const LEAST_GAIN: f32 = 1e-6;

/// Reverses pieces of each window of 8 rows as long as that lowers the dissimilarity of neighbours, those
/// across the window's ends included.
///
/// Every other window first, then those between, so that nothing around a window moves while it is refined.
/// The set of a window's rows, and so the number of its distinct columns, stays.
pub(super) fn two_opt(rows: &Rows<'_>, order: &mut [u32], watch: &dyn Watch) -> Result<(), Stopped> {
    watch.begin("2-opt", 2 * order.len().div_ceil(WINDOW_ROWS * PART) as u64);
    for parity in 0..2 {
        let before = try_copy(order, "an order")?;
        order.par_chunks_mut(WINDOW_ROWS * PART).enumerate().try_for_each(|(part, windows)| {
            let windows = windows.chunks_mut(WINDOW_ROWS).enumerate();
            for (at, window) in windows.filter(|(at, _)| at % 2 == parity) {
                let start = (part * PART + at) * WINDOW_ROWS;
                let end = start + window.len();
                let previous = start.checked_sub(1).map(|last| before[last]);
                refine(rows, previous, window, before.get(end).copied());
                go_on(watch)?;
            }
            tick(watch, 1)
        })?;
    }
    Ok(())
}

fn refine(rows: &Rows<'_>, previous: Option<u32>, window: &mut [u32], next: Option<u32>) {
    let len = window.len();
    // Who stands at places 0 (before the window), 1 ..= len, len + 1 (behind it).
    let mut who = [None; FRAME];
    who[0] = previous;
    who[len + 1] = next;
    for (place, &d) in who[1..].iter_mut().zip(window.iter()) {
        *place = Some(d);
    }
    let mut distance = [[0.0f32; FRAME]; FRAME];
    for i in 0..len + 2 {
        for j in i + 1..len + 2 {
            if let (Some(a), Some(b)) = (who[i], who[j]) {
                distance[i][j] = 1.0 - rows.similarity(a, b);
                distance[j][i] = distance[i][j];
            }
        }
    }
    let mut place: [usize; FRAME] = std::array::from_fn(|i| i);
    // Every reversal gains something, so this ends.
    let mut again = true;
    while again {
        again = false;
        for first in 1..len {
            for last in first + 1..=len {
                let (a, b, c, d) = (place[first - 1], place[first], place[last], place[last + 1]);
                let gain = distance[a][b] + distance[c][d] - distance[a][c] - distance[b][d];
                if gain > LEAST_GAIN {
                    place[first..=last].reverse();
                    again = true;
                }
            }
        }
    }
    for (d, &from) in window.iter_mut().zip(&place[1..]) {
        if let Some(moved) = who[from] {
            *d = moved;
        }
    }
}
