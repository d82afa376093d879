//! Windows that stay whole: each once, in the order that is promised, as even as list scheduling makes it.

use proptest::prelude::*;

use crate::balance::{WholeDealing, deal_steps};

/// What [`WholeDealing`] says of windows that stay whole.
fn check_whole(window_steps: &[u32], workers: u32, team: u32) {
    let (count, total) =
        (u32::try_from(window_steps.len()).unwrap(), window_steps.iter().map(|&s| u64::from(s)).sum());
    let longest = window_steps.iter().copied().max().unwrap();
    let dealt = deal_steps(window_steps, workers, team).unwrap();
    let Some(whole) = WholeDealing::of(count, total, longest, workers, team) else {
        assert!(!dealt.divided.is_empty() || dealt.order.len() == window_steps.len());
        return;
    };
    assert_eq!(whole.team, if whole.workers < team { 1 } else { team });
    assert!(whole.workers.is_multiple_of(whole.team) && whole.workers <= workers);
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
    let mut in_order: Vec<u32> = (0..count).collect();
    in_order.sort_unstable_by_key(key);

    let mut left: Vec<&[u32]> =
        dealt.worker_pieces.windows(2).map(|ends| &dealt.order[ends[0] as usize..ends[1] as usize]).collect();
    left.resize(whole.workers as usize, &[]);
    let mut loads = vec![0_u64; left.len()];
    let team = whole.team as usize;
    for share in in_order.chunks(team) {
        let sums = loads.chunks_exact(team).map(|loads| loads.iter().sum::<u64>());
        let (least, _) = sums.enumerate().min_by_key(|&(at, sum)| (sum, at)).unwrap();
        for &window in share {
            let of_team = team * least..team * (least + 1);
            let worker = of_team.min_by_key(|&worker| (loads[worker], worker)).unwrap();
            assert_eq!(left[worker].first(), Some(&window), "the next of worker {worker}");
            left[worker] = &left[worker][1..];
            loads[worker] += u64::from(window_steps[window as usize]) + 1;
        }
    }
    let mean = loads.iter().sum::<u64>() / u64::from(whole.workers);
    assert!(loads.iter().all(|&load| load <= mean + 2 * (u64::from(longest) + 1)), "no worker has too much");
}

#[test]
fn whole_windows_of_many_kinds() {
    let random = |window: u32, below: u32| (window.wrapping_mul(2_654_435_761) >> 7) % below;
    for (windows, workers, team) in [
        (1, 9, 4),
        (40, 90, 4),
        (41, 90, 4),
        (500, 33, 4),
        (500, 3, 4),
        (5000, 97, 1),
        (9000, 64, 8),
        (20_000, 1001, 4),
        (20_000, 1, 4),
    ] {
        for kind in 0..4 {
            let steps = |window: u32| match kind {
                0 => 1,
                1 => 1 + random(window, 9),
                2 => 1 + 30 / (1 + random(window, 60)),
                _ => 100 + random(window, 50),
            };
            check_whole(&(0..windows).map(steps).collect::<Vec<_>>(), workers, team);
        }
    }
}

/// The fullest worker has about as much as if each window went to the one of all workers that has least: a
/// 24th or two steps more at most.
#[test]
fn teams_are_as_even_as_one_queue() {
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
                    most <= (alone + 2).max(alone * 25 / 24),
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
    fn whole_windows_are_dealt_out_to_teams(
        steps in prop::collection::vec(prop_oneof![4 => 1..4u32, 2 => 1..30u32, 1 => 50..100u32], 1..3000),
        workers in prop_oneof![1..40u32, 1..400u32, 1..4000u32],
        team in prop_oneof![3 => Just(4_u32), 1 => 1..9_u32],
    ) {
        check_whole(&steps, workers, team);
    }
}
