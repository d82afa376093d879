//! Invariants of orders on generated weights, and how many slots they take.

use proptest::prelude::*;
use windrow_formats::NmPattern;

use super::super::blocks::tests::weights;
use super::*;

/// Everything that the documentation of [`Fours`] promises; gives back the slots for each row.
fn check(weights: &VectorNm<f32>, block_columns: usize, filler: Filler) -> f64 {
    let fours = Fours::new(weights, block_columns, 8, filler).unwrap().unwrap();
    let l = weights.pattern().l();
    assert_eq!(fours.blocks(), weights.cols().div_ceil(block_columns));
    assert_eq!((fours.slots() % 8, fours.rows().len()), (0, fours.blocks() * fours.slots()));
    for block in 0..fours.blocks() {
        let rows = &fours.rows()[block * fours.slots()..][..fours.slots()];
        let end = ((block + 1) * block_columns).min(weights.cols());
        let mut kept_by_some = vec![false; weights.rows()];
        for vector in block * block_columns / l..end.div_ceil(l) {
            let mut kept = vec![false; weights.rows()];
            for at in 0..weights.kept_rows() {
                kept[weights.source_row(at, vector)] = true;
            }
            for four in rows.chunks(4) {
                let present = || four.iter().filter(|row| **row != NO_ROW);
                let of_four: usize = present().map(|&row| usize::from(kept[row as usize])).sum();
                let lacking = 2usize.checked_sub(of_four).expect("two of four at most");
                let empty = 4 - present().count();
                assert!(
                    filler == Filler::Any || lacking <= empty,
                    "{four:?} of block {block}, vector {vector}"
                );
            }
            for row in (0..weights.rows()).filter(|&row| kept[row]) {
                let places = rows.iter().filter(|at| **at as usize == row).count();
                assert_eq!(places, 1, "row {row} of block {block}, vector {vector}");
                kept_by_some[row] = true;
            }
        }
        let picked = rows.iter().filter(|row| **row != NO_ROW);
        assert!(picked.copied().all(|row| kept_by_some[row as usize]), "a row that nobody keeps");
    }
    fours.slots() as f64 / weights.rows().max(1) as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_the_weights(
        (n, m) in prop_oneof![Just((2, 4)), Just((1, 2)), Just((3, 4)), Just((4, 8)), Just((16, 32)), Just((5, 32))],
        l in prop_oneof![Just(1usize), Just(3), Just(8), Just(32)],
        vectors in 1usize..9,
        rows in 0usize..150,
        columns in 0usize..90,
        seed: u64,
        any: bool,
    ) {
        // A block that begins at a multiple of its columns reaches into as many vectors as it is long, or one more.
        let block_columns = if vectors == 8 { 8 * l } else { l * vectors - l / 2 };
        let filler = if any { Filler::Any } else { Filler::Empty };
        check(&weights(rows, columns, NmPattern::new(n, m, l).unwrap(), seed), block_columns, filler);
    }
}

/// How many slots there are for each row of a large layer, by vectors of a block: for two vectors that keep half of the
/// rows exactly as many.
#[test]
fn slots_for_each_row() {
    for (n, vectors, filler, most) in [
        (16, 1, Filler::Empty, 1.0),
        (16, 2, Filler::Empty, 1.0),
        (16, 4, Filler::Empty, 1.006),
        (16, 8, Filler::Empty, 1.02),
        (16, 8, Filler::Any, 1.02),
        (12, 8, Filler::Any, 1.0),
        (12, 8, Filler::Empty, 1.5),
        (8, 8, Filler::Empty, 1.7),
        (8, 2, Filler::Any, 0.5),
        (8, 4, Filler::Any, 0.71),
        (8, 8, Filler::Any, 0.94),
        (4, 4, Filler::Any, 0.45),
        (4, 8, Filler::Any, 0.69),
    ] {
        let pattern = NmPattern::new(n, 32, 32).unwrap();
        let slots = check(&weights(4096, 64 * vectors, pattern, 7), 32 * vectors, filler);
        assert!(slots <= most, "{pattern}, {vectors} vectors, {filler:?}: {slots}");
    }
}

/// More vectors than a signature has bits.
#[test]
fn blocks_of_many_vectors_have_no_order() {
    let weights = weights(64, 64, NmPattern::new(2, 4, 4).unwrap(), 1);
    assert_eq!(Fours::new(&weights, 36, 4, Filler::Any).unwrap(), None);
    assert!(Fours::new(&weights, 32, 4, Filler::Any).unwrap().is_some());
}
