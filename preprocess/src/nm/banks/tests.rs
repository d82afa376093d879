//! What `Banked` promises, for weights of many patterns.

use proptest::prelude::*;
use windrow_formats::{NmPattern, VectorNm};

use super::super::blocks::tests::weights;
use super::super::{BlockShape, Blocks};
use super::*;

fn shape(block_columns: usize, strip_columns: usize, depth: usize) -> BlockShape {
    BlockShape { block_columns, strip_columns, kept_per_stage: depth, depth_multiple: depth, packed: true }
}

/// Everything that the documentation of [`Banked`] promises.
fn check(weights: &VectorNm<f32>, shape: BlockShape, spare: usize, phase: usize) -> Banked {
    let blocks = Blocks::new(weights, shape).unwrap();
    let slots = (blocks.slots() + spare).next_multiple_of(phase);
    let banked = Banked::new(&blocks, slots, phase).unwrap();
    for block in 0..blocks.blocks() {
        for stage in 0..blocks.stages() {
            let rows = &banked.row_lists()[(block * blocks.stages() + stage) * slots..][..slots];
            let mut sorted: Vec<u32> = rows.iter().copied().filter(|&row| row != NO_ROW).collect();
            sorted.sort_unstable();
            let listed = blocks.rows(block, stage).iter().copied();
            assert!(sorted.into_iter().eq(listed.filter(|&row| row != NO_ROW)), "the same rows, once each");
            for strip in 0..shape.strips() {
                let at = (block, stage, strip);
                let column = block * shape.block_columns + strip * shape.strip_columns;
                let mut kept_rows = Vec::new();
                for (place, &slot) in banked.picks(block, stage, strip).iter().enumerate() {
                    match banked.kept(block, stage, strip, place) {
                        None => assert_eq!(usize::from(slot), slots, "padding picks the zero slot"),
                        Some(kept) => {
                            let row = weights.source_row(kept, column / weights.pattern().l());
                            assert_eq!(rows[usize::from(slot)] as usize, row, "{at:?}, place {place}");
                            kept_rows.push(kept);
                        }
                    }
                }
                kept_rows.sort_unstable();
                let begin = stage * shape.kept_per_stage;
                let expected = begin..(begin + shape.kept_per_stage).min(weights.kept_rows());
                let expected = if column < weights.cols() { expected } else { 0..0 };
                assert!(kept_rows.into_iter().eq(expected), "{at:?}: every kept row once");
            }
        }
    }
    banked
}

#[test]
fn phases_find_different_banks() {
    // What slots in the order of rows come to: eight random residues modulo 8 have 2.6 of the commonest on average.
    for (n, m, most) in [(4, 32, 1.1), (8, 32, 1.25), (16, 32, 1.4)] {
        let weights = weights(512, 512, NmPattern::new(n, m, 32).unwrap(), 7);
        let banked = check(&weights, shape(512, 32, 32), 8, 8);
        assert!(banked.passes() < most, "{n}:{m}: {}", banked.passes());
    }
    let weights = weights(256, 256, NmPattern::new(2, 8, 16).unwrap(), 3);
    assert!(check(&weights, shape(256, 16, 16), 0, 4).passes() < 1.4);
}

#[test]
fn nothing_to_colour() {
    let pattern = NmPattern::new(1, 2, 8).unwrap();
    for (k, n) in [(0, 0), (0, 8), (8, 0)] {
        let banked = check(&weights(k, n, pattern, 1), shape(32, 8, 8), 0, 8);
        assert!(banked.passes() <= 1.0);
    }
}

/// Colours 4 × 8 weights with so many slots, in such blocks.
fn numbered(slots: usize, shape: BlockShape) {
    let weights = weights(4, 8, NmPattern::new(1, 2, 8).unwrap(), 1);
    let _ = Banked::new(&Blocks::new(&weights, shape).unwrap(), slots, 8);
}

#[test]
fn the_most_that_16_bits_number() {
    numbered((1 << 16) - 8, shape(16, 8, (1 << 16) - 8));
}

#[test]
#[should_panic(expected = "65536 slots are more than 16 bits can number")]
fn more_slots_than_16_bits_number() {
    numbered(1 << 16, shape(16, 8, 8));
}

#[test]
#[should_panic(expected = "65536 picks of a strip are more than 16 bits can number")]
fn more_picks_than_16_bits_number() {
    numbered(8, shape(16, 8, 1 << 16));
}

#[test]
#[should_panic(expected = "65536 strips are more than 16 bits can number")]
fn more_strips_than_16_bits_number() {
    numbered(8, shape(8 << 16, 8, 8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_weights(
        (k, n) in (1..150usize, 1..100usize),
        (m, kept, l) in (1..20usize).prop_flat_map(|m| (Just(m), 1..=m, 1..4usize)),
        (strips, depth) in (1..5usize, 1..4usize),
        (spare, phase) in (0..20usize, prop_oneof![Just(4usize), Just(8)]),
        seed: u64,
    ) {
        let pattern = NmPattern::new(kept, m, 8 * l).unwrap();
        check(&weights(k, n, pattern, seed), shape(8 * strips, 8, 8 * depth), spare, phase);
    }
}
