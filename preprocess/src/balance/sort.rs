//! Windows by their length.

use std::cmp::Reverse;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_filled, try_zeroed};

/// Sorts lists of windows, with memory for the longest of them.
pub(super) struct LongestFirst {
    sorted: Vec<(u32, u32)>,
    /// How many windows have each length.
    counts: Vec<u32>,
}

impl LongestFirst {
    /// For lists of so many windows at most.
    pub(super) fn new(most: usize) -> Result<Self, OutOfMemory> {
        let sorted = try_filled(most, (0, 0), "sorted windows")?;
        Ok(Self { sorted, counts: try_zeroed(most, "windows of each length")? })
    }

    /// Windows and their steps, ascending by window, sorted: the longest first, of equals the first.
    pub(super) fn sort<'a>(&mut self, windows: &'a mut [(u32, u32)]) -> &'a [(u32, u32)] {
        fn steps(windows: &[(u32, u32)]) -> impl Iterator<Item = u32> {
            windows.iter().map(|&(_, steps)| steps)
        }
        let (Some(least), Some(most)) = (steps(windows).min(), steps(windows).max()) else { return windows };
        if least == most {
            return windows;
        }
        let lengths = (most - least) as usize + 1;
        if lengths > windows.len() {
            windows.sort_unstable_by_key(|&(window, steps)| (Reverse(steps), window));
            return windows;
        }
        let counts = &mut self.counts[..lengths];
        counts.fill(0);
        steps(windows).for_each(|steps| counts[(most - steps) as usize] += 1);
        let mut before = 0;
        for count in counts.iter_mut() {
            before += *count;
            *count = before - *count;
        }
        let sorted = &mut self.sorted[..windows.len()];
        for &window in &*windows {
            let at = &mut counts[(most - window.1) as usize];
            sorted[*at as usize] = window;
            *at += 1;
        }
        windows.copy_from_slice(sorted);
        windows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_are_sorted(steps in prop::collection::vec(prop_oneof![0..5u32, 0..100u32, any::<u32>()], 0..100)) {
            let windows: Vec<(u32, u32)> = (0..).zip(steps).collect();
            let mut sorter = LongestFirst::new(windows.len()).unwrap();
            let mut want = windows.clone();
            want.sort_by_key(|&(_, steps)| Reverse(steps));
            for len in [windows.len(), windows.len() / 2] {
                let mut list = windows[..len].to_vec();
                want.retain(|&(window, _)| (window as usize) < len);
                prop_assert_eq!(sorter.sort(&mut list), &want[..]);
            }
        }
    }
}
