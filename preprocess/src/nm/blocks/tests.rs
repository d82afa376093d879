//! Invariants of blocks, by hand and on generated weights.

use proptest::prelude::*;
use windrow_formats::VectorNmParts;
use windrow_formats::synthetic::seeded_weights;

use super::*;

/// Weights whose kept positions are determined by `seed`, and no two values are the same.
pub(in crate::nm) fn weights(k: usize, n: usize, pattern: NmPattern, seed: u64) -> VectorNm<f32> {
    let weights = seeded_weights::<f32>((k, n), pattern, seed).unwrap();
    let values = (0..weights.kept()).map(|i| i as f32 + 1.0).collect();
    weights.with_values(values).unwrap()
}

/// Everything that the documentation of [`Blocks`] promises.
fn check(weights: &VectorNm<f32>, shape: BlockShape) {
    let blocks = Blocks::new(weights, shape).unwrap();
    let pattern = weights.pattern();
    assert_eq!(blocks.blocks(), weights.cols().div_ceil(shape.block_columns));
    assert_eq!(blocks.slots() % 8, 0);
    assert!(
        blocks.slots() <= shape.most_slots(pattern, weights.cols()),
        "{} slots, {shape:?}",
        blocks.slots()
    );
    let mut places = vec![0; weights.kept_rows()];
    for stage in 0..blocks.stages() {
        for place in 0..blocks.depth() {
            if let Some(kept) = blocks.kept(stage, place) {
                places[kept] += 1;
            }
        }
    }
    assert!(places.iter().all(|&times| times == 1), "every kept row has one place");
    for block in 0..blocks.blocks() {
        for stage in 0..blocks.stages() {
            let rows = blocks.rows(block, stage);
            let mut picked = vec![false; rows.len()];
            for strip in 0..shape.strips() {
                let column = block * shape.block_columns + strip * shape.strip_columns;
                for (place, &slot) in blocks.picks(block, stage, strip).iter().enumerate() {
                    let slot = usize::from(slot);
                    match blocks.kept(stage, place).filter(|_| column < weights.cols()) {
                        None => assert_eq!(slot, blocks.slots(), "padding picks the zero slot"),
                        Some(kept) => {
                            let row = weights.source_row(kept, column / pattern.l());
                            assert_eq!(
                                rows[slot] as usize, row,
                                "block {block}, stage {stage}, {strip}, {place}"
                            );
                            picked[slot] = true;
                        }
                    }
                }
            }
            if shape.packed {
                let present = rows.iter().take_while(|&&row| row != NO_ROW).count();
                assert!(rows[..present].is_sorted_by(|a, b| a < b));
                assert!(picked.iter().enumerate().all(|(slot, &picked)| picked == (slot < present)));
                assert!(rows[present..].iter().all(|&row| row == NO_ROW));
            }
        }
    }
    let arranged = blocks.arrange(weights.values()).unwrap();
    let mut arranged = arranged.iter();
    for block in 0..blocks.blocks() {
        for (stage, place) in (0..blocks.stages()).flat_map(|s| (0..blocks.depth()).map(move |p| (s, p))) {
            for column in block * shape.block_columns..(block + 1) * shape.block_columns {
                let kept = blocks.kept(stage, place).filter(|_| column < weights.cols());
                let want = kept.map_or(0.0, |kept| weights.values()[kept * weights.cols() + column]);
                assert_eq!(*arranged.next().unwrap(), want);
            }
        }
    }
    assert!(arranged.next().is_none());
}

#[test]
fn by_hand() {
    // 1:2 over four rows, two vectors of two columns: rows 0 and 3, rows 1 and 2.
    let pattern = NmPattern::new(1, 2, 2).unwrap();
    let parts =
        VectorNmParts { rows: 4, cols: 4, pattern, values: vec![1.0f32; 8], indices: vec![0, 1, 1, 0] };
    let weights = VectorNm::try_from_parts(parts).unwrap();
    let shape = BlockShape {
        block_columns: 6,
        strip_columns: 2,
        kept_per_stage: 2,
        depth_multiple: 4,
        packed: false,
    };
    let plain = Blocks::new(&weights, shape).unwrap();
    assert_eq!((plain.blocks(), plain.stages(), plain.slots(), plain.depth()), (1, 1, 8, 4));
    assert_eq!(plain.rows(0, 0), [0, 1, 2, 3, NO_ROW, NO_ROW, NO_ROW, NO_ROW]);
    assert_eq!(plain.pick_lists(), [0, 3, 8, 8, 1, 2, 8, 8, 8, 8, 8, 8]);
    let shape = BlockShape { block_columns: 2, kept_per_stage: 1, depth_multiple: 1, packed: true, ..shape };
    let packed = Blocks::new(&weights, shape).unwrap();
    assert_eq!((packed.blocks(), packed.stages(), packed.slots(), packed.depth()), (2, 2, 8, 1));
    let first = |block, stage| packed.rows(block, stage)[0];
    assert_eq!([first(0, 0), first(0, 1), first(1, 0), first(1, 1)], [0, 3, 1, 2]);
    assert_eq!(packed.pick_lists(), [0, 0, 0, 0]);
}

#[test]
fn runs_touch_as_many_cells_as_they_can() {
    for (run, cell) in (1..40usize).flat_map(|run| (1..40usize).map(move |cell| (run, cell))) {
        let touched = (0..cell).map(|i| ((i + 1) * run - 1) / cell - i * run / cell + 1);
        assert_eq!(Some(most_touched(run, cell)), touched.max(), "runs of {run} in cells of {cell}");
    }
}

/// Every choice of `n` of `m` positions.
fn choices(n: usize, m: usize) -> Vec<Vec<u8>> {
    let positions = |bits: u32| (0..m).filter(move |at| bits >> at & 1 == 1);
    let all = (0..1u32 << m).filter(|bits| bits.count_ones() as usize == n);
    all.map(|bits| positions(bits).map(|at| u8::try_from(at).unwrap()).collect()).collect()
}

#[test]
fn no_choice_of_two_vectors_needs_more_rows_than_the_bound() {
    const GROUPS: usize = 2;
    for (n, m) in (1..=4usize).flat_map(|m| (1..=m).map(move |n| (n, m))) {
        let (pattern, choices) = (NmPattern::new(n, m, 1).unwrap(), choices(n, m));
        for kept_per_stage in 1..=GROUPS * n {
            let shape = BlockShape { kept_per_stage, ..packed(2, 1) };
            let mut most = 0;
            for number in 0..choices.len().pow(4) {
                let chosen = [0, 1, 2, 3].map(|at| &choices[number / choices.len().pow(at) % choices.len()]);
                let of_row = |u: usize| [chosen[u / n][u % n], chosen[GROUPS + u / n][u % n]];
                let indices = (0..GROUPS * n).flat_map(of_row).collect();
                let values = vec![1.0f32; GROUPS * n * 2];
                let parts = VectorNmParts { rows: GROUPS * m, cols: 2, pattern, values, indices };
                most = most.max(most_brought(&VectorNm::try_from_parts(parts).unwrap(), shape));
            }
            let bound = shape.most_rows(pattern, 2);
            // Two groups have a stage at every place only if one of both numbers is a multiple of the other.
            let every_place = n.is_multiple_of(kept_per_stage) || kept_per_stage.is_multiple_of(n);
            assert!(
                most <= bound && (most == bound || !every_place),
                "{most} of {bound}, {pattern}, {shape:?}"
            );
        }
    }
}

fn packed(block_columns: usize, strip_columns: usize) -> BlockShape {
    BlockShape { block_columns, strip_columns, kept_per_stage: 1, depth_multiple: 1, packed: true }
}

/// Rows that the stages bring, at most.
fn most_brought(weights: &VectorNm<f32>, shape: BlockShape) -> usize {
    let blocks = Blocks::new(weights, shape).unwrap();
    let rows = blocks.row_lists().chunks(blocks.slots());
    rows.map(|rows| rows.iter().filter(|&&row| row != NO_ROW).count()).max().unwrap_or(0)
}

/// Weights whose vectors have as few rows in common in a stage as they can.
fn spread(k: usize, n: usize, pattern: NmPattern, stage: std::ops::Range<usize>) -> VectorNm<f32> {
    let q = pattern.vectors(n);
    let mut indices = vec![0u8; pattern.kept_rows(k) * q];
    for (group, vector) in (0..pattern.groups(k)).flat_map(|g| (0..q).map(move |v| (g, v))) {
        let kept = group * pattern.n()..(group + 1) * pattern.n();
        let (begin, end) = (stage.start.clamp(kept.start, kept.end), stage.end.clamp(kept.start, kept.end));
        let (below, part) = (begin - kept.start, end - begin);
        let free = pattern.m() - pattern.n() + part;
        let mut positions: Vec<usize> = (0..part).map(|i| below + (vector * part + i) % free).collect();
        positions.extend((0..below).chain(below + free..pattern.m()));
        positions.sort_unstable();
        for (u, position) in kept.zip(positions) {
            indices[u * q + vector] = u8::try_from(position).unwrap();
        }
    }
    let values = vec![1.0; pattern.kept_rows(k) * n];
    VectorNm::try_from_parts(VectorNmParts { rows: k, cols: n, pattern, values, indices }).unwrap()
}

#[test]
fn weights_exist_that_need_all_rows_of_the_bound() {
    for (n, m, l) in [(16, 32, 32), (12, 32, 64), (4, 32, 24), (3, 8, 8), (5, 7, 40), (2, 2, 16), (1, 256, 8)]
    {
        let pattern = NmPattern::new(n, m, l).unwrap();
        for (block_columns, kept_per_stage) in
            [(32, 16), (64, 10), (48, n), (16, 3 * n), (128, 1), (40, n + 1)]
        {
            let shape = BlockShape { kept_per_stage, ..packed(block_columns, 8) };
            // As many blocks and stages as begin at different places of vectors and groups; and less than a block.
            let stages = n / gcd(kept_per_stage, n);
            let k = (stages * kept_per_stage).div_ceil(n) * m;
            for columns in
                [l / gcd(block_columns, l) * block_columns, l.min(block_columns), block_columns - 1]
            {
                let stage = |at: usize| at * kept_per_stage..(at + 1) * kept_per_stage;
                let most = (0..stages).map(|at| most_brought(&spread(k, columns, pattern, stage(at)), shape));
                assert_eq!(
                    most.max(),
                    Some(shape.most_rows(pattern, columns)),
                    "{pattern}, {columns}, {shape:?}"
                );
            }
        }
    }
    // By hand: four vectors a block, one that the block fills, two that it may lie across, one as wide as the weights.
    let shape = BlockShape { kept_per_stage: 16, ..packed(128, 32) };
    for (l, columns, slots) in [(32, 4096, 64), (128, 4096, 16), (160, 4096, 32), (160, 160, 16)] {
        assert_eq!(shape.most_slots(NmPattern::new(8, 32, l).unwrap(), columns), slots, "{l}, {columns}");
    }
}

#[test]
fn nothing_to_cut() {
    for (k, n) in [(0, 5), (5, 0), (0, 0)] {
        for packed in [false, true] {
            let weights = weights(k, n, NmPattern::new(2, 4, 4).unwrap(), 1);
            let shape = BlockShape {
                block_columns: 8,
                strip_columns: 4,
                kept_per_stage: 4,
                depth_multiple: 8,
                packed,
            };
            check(&weights, shape);
        }
    }
}

#[test]
#[should_panic(expected = "strips of 8 columns in 2:4 in vectors of 12")]
fn strips_across_vectors_are_refused() {
    let weights = weights(8, 24, NmPattern::new(2, 4, 12).unwrap(), 1);
    let shape =
        BlockShape { block_columns: 8, strip_columns: 8, kept_per_stage: 2, depth_multiple: 1, packed: true };
    let _ = Blocks::new(&weights, shape).unwrap();
}

proptest! {
    #[test]
    fn every_kept_row_is_picked_once(
        (k, n) in (0usize..90, 0usize..70),
        (m, share, strips_of_vector, strip) in (1usize..20, 0usize..20, 1usize..4, 1usize..9),
        (strips, groups, depth_multiple) in (1usize..6, 1usize..5, prop::sample::select(vec![1usize, 4, 8, 16])),
        (sub_group, packed) in (0usize..30, any::<bool>()),
        seed in any::<u64>(),
    ) {
        let kept = 1 + share % m;
        let pattern = NmPattern::new(kept, m, strips_of_vector * strip).unwrap();
        let weights = weights(k, n, pattern, seed);
        let kept_per_stage = if packed && sub_group > 0 { sub_group } else { groups * kept };
        let shape = BlockShape {
            block_columns: strips * strip,
            strip_columns: strip,
            kept_per_stage,
            depth_multiple,
            packed,
        };
        check(&weights, shape);
    }
}
