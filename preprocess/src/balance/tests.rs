//! Every invariant of the pieces, on generated input and on every small input there is.

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
    let cut = row_segments(&ends, limit, piece);
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

fn check_workers(lengths: &[u32], workers: u32) {
    let ends = offsets(lengths);
    let dealt = tile_workers(&ends, workers);
    let steps = *ends.last().unwrap();
    let even = steps.div_ceil(workers.clamp(1, steps.max(1)));
    let slack = (even / 8).max(2);

    // Every step once, in order, nobody idle, nobody overloaded.
    let mut at = 0;
    for &[begin, end, ..] in &dealt.workers {
        assert_eq!(begin, at);
        assert!(begin < end && end - begin <= even + 2 * slack, "{begin}..{end} of {even} even");
        at = end;
    }
    assert_eq!(at, steps);
    assert!(dealt.workers.len() <= workers.max(1) as usize);

    // Who contributes to each window, found the slow way; slots are handed out in that order.
    let mut next_slot = 0;
    let mut split = dealt.split_windows.iter();
    let mut expected = vec![[NO_SLOT; 2]; dealt.workers.len()];
    for (window, pair) in ends.windows(2).enumerate() {
        let overlaps = |worker: &[u32; 4]| worker[0] < pair[1] && worker[1] > pair[0];
        let shared: Vec<usize> = (0..dealt.workers.len()).filter(|&i| overlaps(&dealt.workers[i])).collect();
        if shared.len() < 2 {
            continue;
        }
        let want = SplitWindow {
            window: u32::try_from(window).unwrap(),
            first_slot: next_slot,
            count: u32::try_from(shared.len()).unwrap(),
        };
        assert_eq!(split.next(), Some(&want));
        for i in shared {
            let [begin, end, ..] = dealt.workers[i];
            if begin >= pair[0] && end <= pair[1] {
                expected[i] = [next_slot; 2];
            } else if begin > pair[0] {
                expected[i][0] = next_slot;
            } else {
                expected[i][1] = next_slot;
            }
            next_slot += 1;
        }
        // A cut is only made where no end of the window was within reach.
        for [_, end, ..] in &dealt.workers {
            let inside = *end > pair[0] && *end < pair[1];
            assert!(!inside || (end - pair[0] > slack && pair[1] - end > slack), "cut at {end} in {pair:?}");
        }
    }
    assert_eq!((split.next(), next_slot), (None, dealt.slots));
    let slots: Vec<[u32; 2]> = dealt.workers.iter().map(|worker| [worker[2], worker[3]]).collect();
    assert_eq!(slots, expected);
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
    let blocks = short_row_blocks(&buckets, rows_per_block);
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
            check_workers(&lengths, size);
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
        assert_eq!(row_segments(empty, 512, 256), RowSegments::default());
        assert_eq!(row_ranges(empty, 4, 1), []);
        let narrow: Vec<u32> = empty.iter().map(|_| 0).collect();
        assert_eq!(tile_workers(&narrow, 4), TileWorkers::default());
    }
    assert_eq!(tile_workers(&[0, 0, 0], 4), TileWorkers::default(), "windows without steps");
    assert_eq!(row_segments(&[0, 0, 0], 512, 256).segments, [[0, 0, 0, NO_SLOT], [1, 0, 0, NO_SLOT]]);
    assert_eq!(short_row_blocks(&[], 4), Vec::<[u32; 4]>::new());
}

#[test]
fn one_window_for_many_workers_has_one_slot_each() {
    let dealt = tile_workers(&[0, 1000], 10);
    assert_eq!(dealt.split_windows, [SplitWindow { window: 0, first_slot: 0, count: 10 }]);
    let want: Vec<[u32; 4]> = (0..10).map(|i| [i * 100, (i + 1) * 100, i, i]).collect();
    assert_eq!(dealt.workers, want);
}

#[test]
fn sizes_near_the_limit_do_not_overflow() {
    let most = u32::MAX;
    let dealt = tile_workers(&[0, most - 1, most], 3);
    assert_eq!(dealt.workers.last().unwrap()[1], most);
    assert_eq!(dealt.split_windows, [SplitWindow { window: 0, first_slot: 0, count: 3 }]);
    assert_eq!(dealt.workers.iter().map(|w| u64::from(w[1] - w[0])).sum::<u64>(), u64::from(most));
    assert_eq!(
        tile_workers(&[0, 3], most).workers.len(),
        1,
        "ranges of one step still move to a window's end"
    );
    let cut = row_segments(&[0, u64::from(most)], 1 << 31, 1 << 30);
    assert_eq!((cut.slots, cut.segments.last().unwrap()[2]), (4, most));
    let ranges = row_ranges(&[0, u64::MAX / 2, u64::MAX], 2, u64::MAX);
    assert_eq!(ranges, [0..1, 1..2]);
}

#[test]
fn split_rows_are_combined_from_their_window_s_slots() {
    let mut rows: Vec<u32> = (100..124).collect();
    rows[9] = NO_ROW;
    let dealt = TileWorkers {
        split_windows: vec![
            SplitWindow { window: 1, first_slot: 0, count: 2 },
            SplitWindow { window: 2, first_slot: 2, count: 3 },
        ],
        ..TileWorkers::default()
    };
    let list = dealt.combine_rows(&rows);
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
    fn workers_share_every_step(lengths in lengths(5000), workers in prop_oneof![0..40u32, 0..3000u32]) {
        check_workers(&lengths, workers);
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
