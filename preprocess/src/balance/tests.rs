//! Every invariant of the pieces, on generated input and on every small input there is.

mod whole;

use proptest::prelude::*;
use windrow_formats::{Bucket, NO_ROW};

use super::*;

/// Offsets of pieces of the given lengths, from 0 on.
fn offsets<T: Copy + Default + std::ops::Add<Output = T>>(lengths: &[T]) -> Vec<T> {
    let mut ends = vec![T::default()];
    for &len in lengths {
        ends.push(*ends.last().unwrap() + len);
    }
    ends
}

/// Lengths as matrices have them: mostly short, some empty, a few long.
fn lengths(longest: u32) -> impl Strategy<Value = Vec<u32>> {
    let length = prop_oneof![3 => 0..4u32, 3 => 0..20u32, 1 => 0..=longest];
    prop::collection::vec(length, 0..60)
}

/// Every list of up to four lengths below 5.
fn small_lengths() -> impl Iterator<Item = Vec<u32>> {
    (0..=4u32).flat_map(|count| {
        (0..5u32.pow(count)).map(move |code| (0..count).map(|i| code / 5u32.pow(i) % 5).collect())
    })
}

fn check_segments(lengths: &[u32], limit: u32, piece: u32) {
    let lengths: Vec<u64> = lengths.iter().copied().map(u64::from).collect();
    let ends = offsets(&lengths);
    let cut = row_segments(&ends, limit, piece).unwrap();
    let mut segments = cut.segments.iter().peekable();
    let mut split = cut.split_rows.iter();
    let mut next_slot = 0;
    for (row, &len) in (0u32..).zip(&lengths) {
        let first_slot = next_slot;
        let mut at = ends[row as usize];
        let mut pieces = Vec::new();
        while let Some(&&[_, begin, end, slot]) = segments.peek().filter(|segment| segment[0] == row) {
            assert_eq!(u64::from(begin), at, "row {row} is covered in order");
            at = u64::from(end);
            pieces.push(end - begin);
            if slot != NO_SLOT {
                assert_eq!(slot, next_slot, "slots count up");
                next_slot += 1;
            }
            segments.next();
        }
        assert_eq!(at, ends[row as usize + 1], "row {row} is covered whole");
        let (shortest, longest) =
            (*pieces.iter().min().expect("a segment per row"), *pieces.iter().max().unwrap());
        if len > u64::from(limit) && len > u64::from(piece.max(1)) {
            assert_eq!(pieces.len() as u64, len.div_ceil(u64::from(piece.max(1))));
            assert!(longest <= piece.max(1) && longest - shortest <= 1, "{pieces:?}");
        } else {
            assert_eq!(pieces.len(), 1, "row {row} of {len} entries");
        }
        assert!(longest <= limit.max(piece.max(1)));
        if pieces.len() > 1 {
            let count = u32::try_from(pieces.len()).unwrap();
            assert_eq!(next_slot - first_slot, count, "a slot per piece");
            assert_eq!(split.next(), Some(&[row, first_slot, count, 1]));
        } else {
            assert_eq!(next_slot, first_slot, "a whole row needs no slot");
        }
    }
    assert_eq!((segments.next(), split.next(), next_slot), (None, None, cut.slots));
}

#[test]
fn rows_that_have_more_are_added() {
    let mut cut = row_segments(&[0, 3, 3, 10, 12, 20], 4, 3).unwrap();
    assert_eq!(cut.segments.len(), 1 + 1 + 3 + 1 + 3);
    cut.skip_empty();
    assert_eq!(cut.segments.iter().map(|s| s[0]).collect::<Vec<_>>(), [0, 2, 2, 2, 3, 4, 4, 4]);
    cut.add_to_c(|row| row == 0 || row == 4);
    let slots = |cut: &RowSegments| cut.segments.iter().map(|s| s[3]).collect::<Vec<_>>();
    assert_eq!(slots(&cut), [ADD_TO_C, 0, 1, 2, NO_SLOT, 3, 4, 5]);
    assert_eq!(cut.split_rows, [[2, 0, 3, 1], [4, 3, 3, 1 | ADDS]]);
    cut.share_slots().unwrap();
    assert_eq!(slots(&cut), [ADD_TO_C, 0, 0, 0, NO_SLOT, 1, 1, 1]);
    assert_eq!(cut.split_rows, [[2, 0, 1, 1], [4, 1, 1, 1 | ADDS]]);
}

/// More rows than a thread takes at a time: as one after the other.
#[test]
fn many_rows_are_cut_as_few_are() {
    let lengths = (0..50_000u64).map(|row| if row % 7 == 3 { row % 90 } else { row % 5 });
    let mut offsets = vec![0];
    offsets.extend(lengths.scan(0, |end, len| {
        *end += len;
        Some(*end)
    }));
    let cut = row_segments(&offsets, 20, 8).unwrap();
    let mut expected = RowSegments::default();
    for (row, ends) in (0u32..).zip(offsets.windows(2)) {
        let mut alone = row_segments(&[0, ends[1] - ends[0]], 20, 8).unwrap();
        let begin = u32::try_from(ends[0]).unwrap();
        for [_, from, to, slot] in alone.segments {
            let slot = if slot == NO_SLOT { slot } else { slot + expected.slots };
            expected.segments.push([row, begin + from, begin + to, slot]);
        }
        if let Some([_, _, count, stride]) = alone.split_rows.pop() {
            expected.split_rows.push([row, expected.slots, count, stride]);
        }
        expected.slots += alone.slots;
    }
    assert_eq!(cut, expected);
    let mut shorter = cut.clone();
    shorter.skip_empty();
    assert_eq!(shorter.segments.len(), cut.segments.iter().filter(|s| s[1] < s[2]).count());
    assert!(shorter.segments.is_sorted_by_key(|s| (s[0], s[1])));
}

/// Rows with a slot each, behind those of others.
#[test]
fn sums_of_rows_apart() {
    let mut cut = row_segments(&[0, 2, 2, 11, 12, 19], 4, 3).unwrap();
    cut.skip_empty();
    cut.sum_apart(100, |row| row == 0 || row == 4).unwrap();
    let slots = |cut: &RowSegments| cut.segments.iter().map(|s| s[3]).collect::<Vec<_>>();
    assert_eq!(slots(&cut), [106, 100, 101, 102, NO_SLOT, 103, 104, 105]);
    assert_eq!(cut.split_rows, [[0, 106, 1, 1 | ADDS], [2, 100, 3, 1], [4, 103, 3, 1 | ADDS]]);
    assert_eq!(cut.slots, 107);
}

fn check_dealt(window_steps: &[u32], workers: u32) {
    for team in [1, 2, 4] {
        check_dealt_to_teams(window_steps, workers, team);
    }
}

/// The shared pieces of each worker: window, and slot.
fn shared_of(dealt: &DealtSteps, worker: usize) -> Vec<(u32, u32)> {
    let ends = &dealt.worker_pieces[worker..][..2];
    let mine = &dealt.order[ends[0] as usize..ends[1] as usize];
    let divided = mine.iter().filter(|&piece| piece & DealtSteps::DIVIDED != 0);
    let mine = divided.map(|&piece| dealt.divided[(piece & !DealtSteps::DIVIDED) as usize]);
    mine.filter(|piece| piece.shared).map(|piece| (piece.window, piece.slot)).collect()
}

fn check_dealt_to_teams(window_steps: &[u32], workers: u32, team: u32) {
    let dealt = deal_steps(window_steps, workers, team).unwrap();
    let dealt_pieces = dealt.pieces(window_steps).unwrap();
    let total: u64 = window_steps.iter().map(|&steps| u64::from(steps) + 1).sum();
    let load = total.div_ceil(u64::from(workers.max(1)));

    // A shared piece is that of all workers of a team, in the same place of each.
    let mut shared = 0;
    for first in (0..dealt.workers()).step_by(team as usize) {
        let pieces = shared_of(&dealt, first);
        shared += pieces.len();
        for worker in first..dealt.workers().min(first + team as usize) {
            assert_eq!(shared_of(&dealt, worker), pieces, "worker {worker} of a team of {team}");
        }
        assert!(pieces.is_empty() || first + team as usize <= dealt.workers(), "the team is complete");
    }
    let parts = dealt_pieces.iter().filter(|piece| piece.shared).count();
    assert_eq!(parts, shared * team as usize);

    // Every step once; slots along each window, none for a whole one.
    let mut pieces = dealt_pieces.clone();
    pieces.sort_by_key(|piece| (piece.window, piece.begin));
    // The parts of a shared piece as one.
    pieces.dedup_by(|part, piece| {
        let same = part.shared && piece.shared && (part.window, part.slot) == (piece.window, piece.slot);
        if same {
            assert!(part.begin == piece.end && part.end > part.begin);
            piece.end = part.end;
        }
        same
    });
    let mut pieces = pieces.into_iter().peekable();
    let (mut split, mut next_slot) = (dealt.split_windows.iter(), 0);
    for (window, &steps) in (0u32..).zip(window_steps) {
        let (first_slot, mut count, mut at) = (next_slot, 0, 0);
        while let Some(piece) = pieces.next_if(|piece| piece.window == window) {
            assert_eq!(piece.begin, at, "window {window} is covered in order");
            assert!(piece.end > at, "no piece is empty");
            at = piece.end;
            count += 1;
            if piece.slot != NO_SLOT {
                assert_eq!(piece.slot, next_slot, "slots count up along the window");
                next_slot += 1;
            }
        }
        assert_eq!(at, steps, "window {window} is covered whole");
        if count > 1 {
            assert_eq!(split.next(), Some(&SplitWindow { window, first_slot, count }));
            assert_eq!(next_slot - first_slot, count);
            assert!(
                u64::from(steps) > (load / 2).max(8), // of a team's, if there is one
                "a window of {steps} steps is cut for a load of {load}"
            );
        } else {
            assert_eq!(next_slot, first_slot, "a whole window needs no slot");
        }
    }
    assert_eq!((pieces.next(), split.next(), next_slot), (None, None, dealt.slots));

    // Nobody idle, nobody overloaded.
    assert!(dealt.workers() <= workers.max(1) as usize);
    for ends in dealt.worker_pieces.windows(2) {
        let mine = &dealt_pieces[ends[0] as usize..ends[1] as usize];
        let steps: u64 = mine.iter().map(|piece| u64::from(piece.end - piece.begin) + 1).sum();
        assert!(
            !mine.is_empty() && steps <= (2 * load + 12).max(load + 22),
            "{steps} steps for a load of {load}"
        );
    }
    assert_eq!(dealt.worker_pieces.last().copied().unwrap_or(0) as usize, dealt_pieces.len());
}

/// About one window for each worker, nearly a load each, and one that is longer: no range may pass its unused room
/// to the last.
#[test]
fn nobody_is_left_with_what_others_did_not_use() {
    for (steps, long, windows, workers) in
        [(70, 100, 4150, 3696), (72, 100, 4000, 3696), (70, 89, 1001, 889), (10, 22, 12, 24)]
    {
        let mut window_steps = vec![steps; windows];
        window_steps[0] = long;
        check_dealt(&window_steps, workers);
        window_steps.rotate_left(1);
        check_dealt(&window_steps, workers);
    }
}

/// Windows alike are dealt out side by side: worker `i` has windows `i, i + workers, …`.
#[test]
fn neighbouring_windows_are_worked_on_at_the_same_time() {
    let dealt = deal_steps(&[3; 1200], 12, 4).unwrap();
    let pieces = dealt.pieces(&[3; 1200]).unwrap();
    let windows = |worker: usize| {
        let ends = &dealt.worker_pieces[worker..][..2];
        pieces[ends[0] as usize..ends[1] as usize].iter().map(|piece| piece.window).collect::<Vec<u32>>()
    };
    for worker in 0..12 {
        let first = u32::try_from(worker).unwrap();
        assert_eq!(windows(worker), (0..100).map(|i| 12 * i + first).collect::<Vec<u32>>());
    }
}

fn check_ranges(lengths: &[u32], parts: usize, row_cost: u64) {
    let lengths: Vec<u64> = lengths.iter().copied().map(u64::from).collect();
    let ranges = row_ranges(&offsets(&lengths), parts, row_cost);
    let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
    assert_eq!(covered, (0..lengths.len()).collect::<Vec<_>>(), "every row once, in order");
    assert!(ranges.len() <= parts.max(1) && ranges.iter().all(|range| !range.is_empty()));
    let cost = |rows: &[u64]| rows.iter().map(|len| len + row_cost).sum::<u64>();
    let dearest = lengths.iter().map(|len| len + row_cost).max().unwrap_or(0);
    let bound = cost(&lengths).div_ceil(parts.clamp(1, lengths.len().max(1)) as u64) + dearest;
    for range in ranges {
        assert!(cost(&lengths[range.clone()]) <= bound, "{range:?} costs more than {bound}");
    }
}

fn check_blocks(sizes: &[(u32, u32)], rows_per_block: u32) {
    let (mut first_row, mut first_entry) = (0, 0);
    let mut buckets = Vec::new();
    for &(len, rows) in sizes {
        buckets.push(Bucket { len, first_row, rows, first_entry });
        first_row += rows;
        first_entry += u64::from(len) * u64::from(rows);
    }
    let blocks = short_row_blocks(&buckets, rows_per_block).unwrap();
    let positions: Vec<[u32; 3]> = blocks
        .iter()
        .flat_map(|&[first, rows, entry, len]| (0..rows).map(move |i| [first + i, entry + i * len, len]))
        .collect();
    let want: Vec<[u32; 3]> = buckets
        .iter()
        .flat_map(|b| {
            (0..b.rows).map(|i| [b.first_row + i, u32::try_from(b.first_entry).unwrap() + i * b.len, b.len])
        })
        .collect();
    assert_eq!(positions, want);
    let fewest: u32 = sizes.iter().map(|size| size.1.div_ceil(rows_per_block.max(1))).sum();
    assert_eq!(blocks.len(), fewest as usize, "full blocks");
    assert!(blocks.iter().all(|block| (1..=rows_per_block.max(1)).contains(&block[1])));
}

#[test]
fn every_small_input() {
    let mut inputs = 0;
    for lengths in small_lengths() {
        for size in 0..5 {
            for piece in 0..4 {
                check_segments(&lengths, size, piece);
            }
            let steps: Vec<u32> = lengths.iter().map(|len| len + 1).collect();
            check_dealt(&steps, size);
            check_ranges(&lengths, size as usize, u64::from(size % 2));
            let sizes: Vec<(u32, u32)> = lengths.iter().map(|&rows| (size, rows)).collect();
            check_blocks(&sizes, size);
            inputs += 1;
        }
    }
    assert_eq!(inputs, 5 * (1 + 5 + 25 + 125 + 625));
}

#[test]
fn nothing_gives_nothing() {
    for empty in [&[][..], &[0]] {
        assert_eq!(row_segments(empty, 512, 256), Ok(RowSegments::default()));
        assert_eq!(row_ranges(empty, 4, 1), []);
    }
    assert_eq!(deal_steps(&[], 4, 4).unwrap(), DealtSteps::default());
    assert_eq!(
        row_segments(&[0, 0, 0], 512, 256).unwrap().segments,
        [[0, 0, 0, NO_SLOT], [1, 0, 0, NO_SLOT]]
    );
    assert_eq!(short_row_blocks(&[], 4), Ok(Vec::new()));
}

#[test]
fn one_window_for_many_workers_is_cut() {
    let dealt = deal_steps(&[1000], 10, 1).unwrap();
    assert_eq!(dealt.split_windows, [SplitWindow { window: 0, first_slot: 0, count: 10 }]);
    assert_eq!(dealt.workers(), 10);
    assert!(dealt.divided.iter().all(|piece| (91..=101).contains(&piece.steps())));
    // Two teams, and two workers who are none.
    let dealt = deal_steps(&[1000], 10, 4).unwrap();
    assert_eq!(dealt.split_windows, [SplitWindow { window: 0, first_slot: 0, count: 2 }]);
    assert_eq!(dealt.workers(), 8);
}

#[test]
fn a_window_that_is_longer_than_a_load_is_shared_not_cut() {
    // A load of 3 for 160 workers; 9 steps are 3, 2, 2, 2 for a team's workers.
    let dealt = deal_steps(&[9; 40], 160, 4).unwrap();
    assert_eq!((dealt.workers(), dealt.slots), (160, 0));
    assert!(dealt.order.len() == dealt.divided.len());
    assert!(dealt.divided.iter().all(|piece| piece.shared && (2..=3).contains(&piece.steps())));
    // With as many windows as workers there is nothing to gain.
    assert!(deal_steps(&[9; 160], 160, 4).unwrap().divided.is_empty());
}

#[test]
fn sizes_near_the_limit_do_not_overflow() {
    let most = u32::MAX;
    let dealt = deal_steps(&[(1 << 28) - 1, 1], 3, 4).unwrap();
    let pieces = dealt.pieces(&[(1 << 28) - 1, 1]).unwrap();
    assert_eq!(pieces.iter().map(Piece::steps).sum::<u32>(), 1 << 28);
    assert_eq!(deal_steps(&[3], most, 4).unwrap().workers(), 1, "no worker without work");
    let cut = row_segments(&[0, u64::from(most)], 1 << 31, 1 << 30).unwrap();
    assert_eq!((cut.slots, cut.segments.last().unwrap()[2]), (4, most));
    let ranges = row_ranges(&[0, u64::MAX / 2, u64::MAX], 2, u64::MAX);
    assert_eq!(ranges, [0..1, 1..2]);
}

#[test]
fn split_rows_are_combined_from_their_window_s_slots() {
    let mut rows: Vec<u32> = (108..124).collect();
    rows[1] = NO_ROW;
    let dealt = DealtSteps {
        split_windows: vec![
            SplitWindow { window: 1, first_slot: 0, count: 2 },
            SplitWindow { window: 2, first_slot: 2, count: 3 },
        ],
        ..DealtSteps::default()
    };
    let list = dealt.combine_rows(&rows, 8).unwrap();
    assert_eq!(list.len(), 15, "the missing row is not listed");
    assert_eq!(list[..2], [[108, 0, 2, 8], [110, 2, 2, 8]]);
    assert_eq!(list[14], [123, 2 * 8 + 7, 3, 8]);
}

proptest! {
    #[test]
    fn segments_cover_every_row(lengths in lengths(2000), limit in 0..600u32, piece in 0..300u32) {
        check_segments(&lengths, limit, piece);
    }

    #[test]
    fn workers_share_every_step(
        lengths in prop::collection::vec(prop_oneof![3 => 1..4u32, 3 => 1..20u32, 1 => 1..5000u32], 0..80),
        workers in prop_oneof![0..40u32, 0..3000u32],
    ) {
        check_dealt(&lengths, workers);
    }

    #[test]
    fn windows_of_about_a_load_are_shared_too(
        mut steps in prop::collection::vec(60..90u32, 1..3000),
        long in 90..200u32,
        spare in 0..30u32,
    ) {
        let workers = u32::try_from(steps.len()).unwrap() * 9 / 10 + spare;
        steps.push(long);
        check_dealt(&steps, workers);
    }

    #[test]
    fn ranges_share_every_row(lengths in lengths(2000), parts in 0..80usize, row_cost in 0..40u64) {
        check_ranges(&lengths, parts, row_cost);
    }

    #[test]
    fn blocks_cover_every_bucket(
        sizes in prop::collection::vec((0..40u32, 0..300u32), 0..20),
        rows_per_block in 0..70u32,
    ) {
        check_blocks(&sizes, rows_per_block);
    }
}

proptest! {
    #[test]
    fn batches_cover_every_row_in_order(lengths in prop::collection::vec(0u32..30, 0..20), size in 0u32..9) {
        let rows = (0u32..).zip(lengths.iter().copied());
        let batches = entry_batches(rows.clone(), size).unwrap();
        prop_assert_eq!(batches.begins.len(), batches.rows.len() + 1);
        let mut covered = vec![0u32; lengths.len()];
        for (&row, ends) in batches.rows.iter().zip(batches.begins.windows(2)) {
            prop_assert!(ends[0] < ends[1] && ends[1] - ends[0] <= size.max(1));
            covered[row as usize] += ends[1] - ends[0];
        }
        prop_assert_eq!(covered, lengths.clone());
        prop_assert!(batches.rows.is_sorted());
        let fewest: u32 = lengths.iter().map(|len| len.div_ceil(size.max(1))).sum();
        prop_assert_eq!(batches.rows.len(), fewest as usize);
    }
}
