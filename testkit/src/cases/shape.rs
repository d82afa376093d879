//! Sizes around what kernels handle at once, with whole numbers.

use crate::{Case, Operands, Pattern, SCALARS, SplitMix64, Values, WIDTHS};

/// Around the 8 rows of a window, the 16 of a pair, and the groups of blocks.
const SIZES: [usize; 10] = [1, 7, 8, 9, 15, 16, 17, 31, 32, 33];
/// Around the entries in flight, a tile's columns, a warp.
const ROW_LENGTHS: [usize; 16] = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 65];

/// Every width of [`WIDTHS`] packed and padded, and every size, row length and row alignment around the
/// sizes of tiles, all with whole numbers.
pub fn shape_cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(0x54a9e);
    let mut cases = Vec::new();
    let mut add = |name: &str, pattern: &Pattern, (n, padding): (usize, usize), rng: &mut SplitMix64| {
        let at = cases.len();
        let operands =
            Operands { n, padding, scalars: SCALARS[at % 5], values: Values::Integers, poison: at % 2 == 1 };
        cases.push(Case::from_pattern(name, pattern, operands, rng));
    };
    for n in WIDTHS {
        for padding in [0, 3] {
            let pattern = Pattern::random(27, 40, 14, &mut rng);
            add("width", &pattern, (n, padding), &mut rng);
            let pattern = Pattern::power_law(45, 60, 50, &mut rng);
            add("width, power law", &pattern, (n, padding), &mut rng);
        }
        // Rows that start on a multiple of 16 bytes whatever the width.
        let pattern = Pattern::random(19, 30, 11, &mut rng);
        add("width, rows aligned", &pattern, (n, n.next_multiple_of(8) - n), &mut rng);
    }
    for (i, size) in SIZES.into_iter().enumerate() {
        let n = [8, 5, 32][i % 3];
        let pattern = Pattern::random(size, 20, 8, &mut rng);
        add("rows", &pattern, (n, 0), &mut rng);
        let pattern = Pattern::random(20, size, 8, &mut rng);
        add("columns", &pattern, (n, 3), &mut rng);
        let pattern = Pattern::dense(size, size);
        add("full", &pattern, (n, 0), &mut rng);
    }
    for (i, len) in ROW_LENGTHS.into_iter().enumerate() {
        let pattern = Pattern::from_lengths(90, vec![len; 18], &mut rng);
        add("equal rows", &pattern, ([16, 9][i % 2], 0), &mut rng);
    }
    for shift in 0..8u32 {
        let lengths = std::iter::once(shift as usize).chain(std::iter::repeat_n(8, 9));
        let pattern = Pattern::from_lengths(50, lengths, &mut rng);
        add("row starts shifted", &pattern, (24, 0), &mut rng);
        // A window of 1 to 16 columns: every fill of the last tile.
        let rows = (0..8).map(|r| (0..=shift).map(|c| c * 5 + r % 2).collect());
        let pattern = Pattern { cols: 50, rows: rows.collect() };
        add("last tile part full", &pattern, (16, 0), &mut rng);
    }
    let pattern = Pattern::random(300, 260, 6, &mut rng);
    add("many rows", &pattern, (32, 0), &mut rng);
    let pattern = Pattern::power_law(400, 350, 300, &mut rng);
    add("many rows, power law", &pattern, (20, 0), &mut rng);
    cases
}

/// A case of random shape: up to 48 rows and columns, up to 80 wide, any density, both kinds of values.
///
/// For property tests: a failing seed is the regression test.
pub fn random_case(seed: u64) -> Case {
    let mut rng = SplitMix64::new(seed);
    let (m, k, n) = (rng.below(49), rng.below(49), rng.below(81));
    let max_len = rng.below(k + 1);
    let pattern = if rng.below(4) == 0 && k > 0 {
        Pattern::power_law(m, k, max_len, &mut rng)
    } else {
        Pattern::random(m, k, max_len, &mut rng)
    };
    let operands = Operands {
        n,
        padding: [0, 3, rng.below(9)][rng.below(3)],
        scalars: SCALARS[rng.below(SCALARS.len())],
        values: [Values::Integers, Values::Reals][rng.below(2)],
        poison: rng.below(2) == 0,
    };
    Case::from_pattern(&format!("random {seed:#x}"), &pattern, operands, &mut rng)
}
