//! Windows that stay whole: each once, in the order that is promised, as even as list scheduling makes it.

use proptest::prelude::*;

use crate::balance::{WholeDealing, deal_steps};

/// What [`WholeDealing`] says of windows that stay whole.
fn check_whole(window_steps: &[u32], workers: u32) {
    let (count, total) =
        (u32::try_from(window_steps.len()).unwrap(), window_steps.iter().map(|&s| u64::from(s)));
    let longest = window_steps.iter().copied().max().unwrap();
    let Some(whole) = WholeDealing::of(count, total.sum(), longest, workers) else {
        let dealt = deal_steps(window_steps, workers, 4).unwrap();
        assert!(!dealt.divided.is_empty() || dealt.order.len() == window_steps.len());
        return;
    };
    let dealt = deal_steps(window_steps, workers, 4).unwrap();
    assert_eq!(dealt.workers(), whole.busy_workers() as usize);
    assert!(dealt.divided.is_empty() && dealt.split_windows.is_empty());
    let mut seen = dealt.order.clone();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..count), "each window once");

    let is_large = |window: u32| WholeDealing::class(window_steps[window as usize]) > whole.small_class;
    // By what windows come in their order: all large ones, then band after band.
    let key = |&window: &u32| {
        let class = WholeDealing::class(window_steps[window as usize]);
        let band = if is_large(window) { 0 } else { 1 + window / whole.band() };
        (band, WholeDealing::CLASSES - class, window)
    };
    let cost =
        |windows: &[u32]| windows.iter().map(|&w| u64::from(window_steps[w as usize]) + 1).sum::<u64>();
    let ends: Vec<usize> = dealt.worker_pieces.iter().map(|&end| end as usize).collect();
    let mut first = 0;
    for group in 0..whole.groups {
        let size = (whole.workers / whole.groups + u32::from(group < whole.workers % whole.groups)) as usize;
        let of_group = &ends[first.min(ends.len() - 1)..(first + size + 1).min(ends.len())];
        // Where there are fewer windows than workers, a group has as many workers as windows.
        let of_group = if count < whole.workers { &ends[..] } else { of_group };
        let workers: Vec<&[u32]> = of_group.windows(2).map(|ends| &dealt.order[ends[0]..ends[1]]).collect();
        let sum: u64 = workers.iter().map(|windows| cost(windows)).sum();
        for windows in &workers {
            assert!(windows.is_sorted_by_key(key), "a worker goes through the windows in their order");
            let mean = sum / size as u64;
            assert!(count < whole.workers || cost(windows) <= mean + u64::from(longest) + 1);
            // List scheduling: without its last window nobody had more than anybody has in the end.
            let before = cost(&windows[..windows.len() - 1]);
            assert!(count < whole.workers || workers.iter().all(|others| before <= cost(others)));
        }
        first += size;
    }
}

#[test]
fn whole_windows_of_many_kinds() {
    let random = |window: u32, below: u32| (window.wrapping_mul(2_654_435_761) >> 7) % below;
    for (windows, workers) in
        [(1, 9), (40, 90), (500, 33), (5000, 97), (9000, 64), (20_000, 1001), (20_000, 1)]
    {
        for kind in 0..4 {
            let steps = |window: u32| match kind {
                0 => 1,
                1 => 1 + random(window, 9),
                2 => 1 + 30 / (1 + random(window, 60)),
                _ => 100 + random(window, 50),
            };
            check_whole(&(0..windows).map(steps).collect::<Vec<_>>(), workers);
        }
    }
}

/// The fullest worker has about as much as if each window went to the one of all workers that has least: a
/// fortieth or two steps more at most.
#[test]
fn groups_are_as_even_as_one_queue() {
    let random = |window: u32| window.wrapping_mul(2_654_435_761) >> 5;
    for workers in [64, 1000, 2048, 2112, 4224] {
        for windows in [7000_u32, 20_000, 50_000] {
            let kinds: [fn(u32) -> u32; 4] = [
                |random| 1 + 9 / (1 + random % 40),
                |random| 1 + random % 31,
                |random| 1 + 2 * (random | 1 << 6).trailing_zeros(),
                |_| 2,
            ];
            for (kind, of) in kinds.into_iter().enumerate() {
                let steps: Vec<u32> = (0..windows).map(|window| of(random(window))).collect();
                let dealt = deal_steps(&steps, workers, 4).unwrap();
                if !dealt.divided.is_empty() {
                    continue;
                }
                let cost =
                    |windows: &[u32]| windows.iter().map(|&w| u64::from(steps[w as usize]) + 1).sum::<u64>();
                let ends = dealt.worker_pieces.windows(2);
                let most = ends.map(|e| cost(&dealt.order[e[0] as usize..e[1] as usize])).max().unwrap();
                let alone = longest_first(&steps, workers);
                assert!(
                    most <= (alone + 2).max(alone * 41 / 40),
                    "{most}, alone {alone}: kind {kind}, {windows} windows, {workers} workers"
                );
            }
        }
    }
}

/// What the fullest worker has where windows are dealt out in bands of as many as there are workers, the large ones
/// before, each to the worker of all that has least.
fn longest_first(steps: &[u32], workers: u32) -> u64 {
    let total: u64 = steps.iter().map(|&steps| u64::from(steps) + 1).sum();
    let load = total.div_ceil(u64::from(workers));
    let (mut order, small): (Vec<u32>, Vec<u32>) =
        steps.iter().partition(|&&steps| u64::from(steps) > load / 8);
    order.sort_unstable_by_key(|&steps| std::cmp::Reverse(steps));
    for band in small.chunks(workers as usize) {
        let begin = order.len();
        order.extend(band);
        order[begin..].sort_unstable_by_key(|&steps| std::cmp::Reverse(steps));
    }
    let mut loads: std::collections::BinaryHeap<_> = (0..workers).map(|_| std::cmp::Reverse(0)).collect();
    for steps in order {
        let mut least = loads.peek_mut().unwrap();
        least.0 += u64::from(steps) + 1;
    }
    loads.into_iter().map(|load| load.0).max().unwrap()
}

proptest! {
    #[test]
    fn whole_windows_are_dealt_out_in_groups(
        steps in prop::collection::vec(prop_oneof![4 => 1..4u32, 2 => 1..30u32, 1 => 50..100u32], 1..3000),
        workers in prop_oneof![1..40u32, 1..400u32, 1..4000u32],
    ) {
        check_whole(&steps, workers);
    }
}
