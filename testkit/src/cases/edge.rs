//! Matrices that break kernels: nothing, next to nothing, and everything in one row.

use crate::{Case, Operands, Pattern, SCALARS, SplitMix64, Values};

/// The seed table: name and pattern of each matrix that deserves a test of its own.
pub fn edge_patterns() -> Vec<(&'static str, Pattern)> {
    let mut rng = SplitMix64::new(0xed6e);
    let rng = &mut rng;
    let random = |rng: &mut SplitMix64| Pattern::random(17, 23, 9, rng);
    vec![
        ("0 x 0", Pattern::empty(0, 0)),
        ("no rows", Pattern::empty(0, 5)),
        ("no columns", Pattern::empty(5, 0)),
        ("no entries", Pattern::empty(9, 11)),
        ("one place, empty", Pattern::empty(1, 1)),
        ("one place, full", Pattern::dense(1, 1)),
        ("one row", Pattern::from_lengths(40, [13], rng)),
        ("one column", Pattern::random(19, 1, 1, rng)),
        ("first row empty", random(rng).without_rows([0])),
        ("last row empty", random(rng).without_rows([16])),
        ("first window empty", random(rng).without_rows(0..8)),
        ("last window empty", Pattern::random(24, 23, 9, rng).without_rows(16..24)),
        ("alternate rows empty", random(rng).without_rows((0..17).step_by(2))),
        (
            "all rows empty but one",
            Pattern::empty(33, 29).with_dense_row(20).with_columns(|col| col % 3 == 1),
        ),
        ("one full row among empty ones", Pattern::empty(21, 70).with_dense_row(9)),
        ("one very long row among empty ones", Pattern::empty(10, 1300).with_dense_row(4)),
        ("one very long row among short ones", Pattern::random(20, 1100, 5, rng).with_dense_row(11)),
        ("first row long", Pattern::random(12, 600, 3, rng).with_dense_row(0)),
        ("last row long", Pattern::random(12, 600, 3, rng).with_dense_row(11)),
        (
            "lengths around a split",
            Pattern::from_lengths(1100, [255, 256, 257, 511, 512, 513, 1025, 0, 1], rng),
        ),
        ("diagonal", Pattern::diagonal(37, 37)),
        ("wide diagonal", Pattern::diagonal(9, 64)),
        ("tall diagonal", Pattern::diagonal(64, 9)),
        ("dense", Pattern::dense(24, 16)),
        ("dense, odd sizes", Pattern::dense(13, 11)),
        ("one full column", Pattern { cols: 31, rows: vec![vec![17]; 25] }),
        ("last column only", Pattern { cols: 100, rows: vec![vec![99]; 11] }),
        ("power law", Pattern::power_law(120, 120, 110, rng)),
        ("power law, wide", Pattern::power_law(40, 900, 700, rng)),
        ("few columns referenced", Pattern::random(40, 64, 20, rng).with_columns(|col| col % 16 == 5)),
    ]
}

/// [`edge_patterns`] with whole numbers, each in turn with other widths, paddings, scalars and poison.
///
/// Each pattern comes once as it is simplest (width 4, packed, α = 1, β = 0, poisoned), and then with two
/// widths of its own, one of them padded; `n = 0` and `n = 1` come with a few patterns each.
pub fn edge_cases() -> Vec<Case> {
    const WIDTHS: [usize; 10] = [1, 8, 33, 3, 64, 7, 130, 32, 2, 65];
    let mut rng = SplitMix64::new(0xca5e);
    let mut cases = Vec::new();
    for (i, (name, pattern)) in edge_patterns().into_iter().enumerate() {
        let simple =
            Operands { n: 4, padding: 0, scalars: (1.0, 0.0), values: Values::Integers, poison: true };
        let variants = [
            simple,
            Operands { n: WIDTHS[i % 10], padding: 3, scalars: SCALARS[i % 5], ..simple },
            Operands { n: WIDTHS[(i + 4) % 10], scalars: SCALARS[(i + 2) % 5], poison: false, ..simple },
        ];
        for operands in variants {
            cases.push(Case::from_pattern(name, &pattern, operands, &mut rng));
        }
        if i % 7 == 0 {
            cases.push(Case::from_pattern(name, &pattern, Operands { n: 0, ..simple }, &mut rng));
        }
    }
    cases.push(all_zeros(&mut rng));
    cases
}

/// Every entry is a zero, so the result is zero but for what `C` held.
fn all_zeros(rng: &mut SplitMix64) -> Case {
    let pattern = Pattern::random(18, 20, 8, rng);
    let operands =
        Operands { n: 12, padding: 0, scalars: (1.0, 1.0), values: Values::Integers, poison: true };
    Case::new("explicit zeros only", pattern.with_data(vec![0.0; pattern.nnz()]), operands, rng)
}

/// Cases whose result is NaN or infinite in known places: `A` or rows of `B` that it refers to are not
/// finite.
///
/// A product of entries and nothing else gets them right by itself. One that pads, for example to tiles,
/// multiplies rows of `B` by zeros where other rows have entries, and has to repair the 0·∞ of that.
pub fn non_finite_cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(0xbad);
    let operands = Operands { n: 9, padding: 3, scalars: (1.0, 0.0), values: Values::Integers, poison: true };
    let pattern =
        Pattern { cols: 6, rows: vec![vec![0, 1], vec![1, 3], vec![0], vec![], vec![3], vec![1, 2]] };
    let mut cases = Vec::new();
    for (what, special) in [("NaN", f32::NAN), ("inf", f32::INFINITY), ("-inf", f32::NEG_INFINITY)] {
        let mut in_a = vec![1.0; pattern.nnz()];
        in_a[3] = special; // row 1, column 3
        cases.push(Case::new(&format!("{what} in A"), pattern.with_data(in_a), operands, &mut rng));
        let ones = pattern.with_data(vec![1.0; pattern.nnz()]);
        let mut in_b = Case::new(&format!("{what} in a row of B"), ones, operands, &mut rng);
        in_b.b[in_b.ldb + 4] = special; // row 1, column 4
        cases.push(in_b);
    }
    // An explicit zero is an entry: 0·inf is NaN, and inf − inf too.
    let mut data = vec![1.0; pattern.nnz()];
    data[1] = 0.0; // row 0, column 1
    let mut zero = Case::new("zero times inf", pattern.with_data(data), operands, &mut rng);
    zero.b[zero.ldb] = f32::INFINITY; // row 1, column 0
    cases.push(zero);
    let ones = pattern.with_data(vec![1.0; pattern.nnz()]);
    let mut difference = Case::new("inf minus inf", ones, operands, &mut rng);
    difference.b[difference.ldb + 2] = f32::INFINITY; // row 1, column 2
    difference.b[3 * difference.ldb + 2] = f32::NEG_INFINITY; // row 3, column 2
    cases.push(difference);
    cases
}
