//! The kernel against its definition, on the emulator: ragged sizes, windows that follow each other, and parts.

use half::{bf16, f16};
use windrow_simt::emulator::{Launch, Memory, Schedule};

use super::*;
use crate::element::{Bf16, F16};
use crate::nm::testing::number;
use crate::nm::{Activate, OutputType};
use crate::real::Factor;

/// Sizes of a product, how many rows of how many are kept, and how the work is divided.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: u32,
    n: u32,
    k: u32,
    kept: u32,
    group: u32,
    turns: u32,
    parts: u32,
}

impl Case {
    /// Kept rows of all groups, of which the last is ragged.
    fn kept_rows(&self) -> u32 {
        self.k / self.group * self.kept + self.kept.min(self.k % self.group)
    }

    /// The row of the weights that a kept row is, in a strip of columns: never the last of a whole group that drops
    /// one.
    fn row(&self, kept: u32, strip: u32) -> u32 {
        let (group, of_group) = (kept / self.kept, kept % self.kept);
        let rows = (self.k - group * self.group).min(self.group);
        let dropped = rows.saturating_sub(self.kept);
        let first = if dropped > 1 { (strip * 3 + group * 5) % dropped } else { 0 };
        group * self.group + first + of_group
    }
}

/// The weights of a product as a form has them, and what they are: (k, n).
struct Given {
    weights: Vec<u16>,
    names: Vec<u16>,
    dense: Vec<f32>,
    /// Rows of which something is kept.
    is_kept: Vec<bool>,
}

impl Given {
    /// Each strip keeps other rows.
    fn picked(
        case: &Case,
        blank: &NmFewRowsParams,
        [strip, window]: [u32; 2],
        convert: &dyn Fn(f32) -> u16,
    ) -> Self {
        let (n, strips) = (case.n, case.n.div_ceil(strip));
        let mut given = Self::blank(case, blank.steps, strip);
        given.names =
            vec![u16::try_from(2 * window).unwrap(); (strips * blank.steps * FEW_ROWS_DEPTH) as usize];
        for (of_strip, kept) in
            (0..strips).flat_map(|strip| (0..case.kept_rows()).map(move |kept| (strip, kept)))
        {
            let (step, place, row) = (kept / 16, kept % 16, case.row(kept, of_strip));
            let at = (of_strip * blank.steps + step) * FEW_ROWS_DEPTH + few_rows_pick_index(place);
            let first = blank.first_column(step / (FEW_ROWS_WARPS * case.turns));
            given.names[at as usize] = u16::try_from(2 * (row - first)).unwrap();
            for column in of_strip * strip..n.min((of_strip + 1) * strip) {
                given.put((step, place), (row, column), (blank.steps, strip, n), convert);
            }
        }
        given
    }

    /// Each column keeps other two of four rows; of rows that there are not, some are named, with a weight of zero.
    fn two_of_four(case: &Case, blank: &NmFewRowsParams, strip: u32, convert: &dyn Fn(f32) -> u16) -> Self {
        const PAIRS: [[u32; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        let (n, strips) = (case.n, case.n.div_ceil(strip));
        let mut given = Self::blank(case, blank.steps, strip);
        let mut words = vec![0u32; (strips * blank.steps * WARP) as usize];
        for (column, four) in
            (0..strips * strip).flat_map(|c| (0..8 * blank.steps).map(move |four| (c, four)))
        {
            let pair = PAIRS[((column * 7 + four * 5) % 6) as usize];
            let at = column / strip * blank.steps + four / 8;
            let (word, bit) = few_rows_metadata_at(column % strip, four % 8);
            words[(at * WARP + word) as usize] |= (pair[0] | pair[1] << 2) << bit;
            for (i, place) in (0..).zip(pair) {
                if column < n && 4 * four + place < case.k {
                    let to = (four / 8, four % 8 * 2 + i);
                    given.put(to, (4 * four + place, column), (blank.steps, strip, n), convert);
                }
            }
        }
        given.names = words.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]).collect();
        given
    }

    fn blank(case: &Case, steps: u32, strip: u32) -> Self {
        let weights = vec![0u16; (case.n.div_ceil(strip) * steps * strip * FEW_ROWS_DEPTH) as usize];
        Self {
            weights,
            names: Vec::new(),
            dense: vec![0.0; (case.k * case.n) as usize],
            is_kept: vec![false; case.k as usize],
        }
    }

    /// A weight of its own for a place of a step, which is in this row and column.
    fn put(
        &mut self,
        (step, place): (u32, u32),
        (row, column): (u32, u32),
        (steps, strip, n): (u32, u32, u32),
        convert: &dyn Fn(f32) -> u16,
    ) {
        let weight = number(row, column, 2741);
        let unit = ((column / strip * steps + step) * strip + column % strip) / 16;
        let at = unit * 256 + few_rows_weight_index(place, column % 16);
        self.weights[at as usize] = convert(weight);
        self.dense[(row * n + column) as usize] = weight;
        self.is_kept[row as usize] = true;
    }
}

/// Runs an instance under every schedule and compares each element of `C` with twice what is expected.
#[track_caller]
fn check<F: FewRowsForm, const TILES: usize, const UNITS: usize>(case: Case, convert: impl Fn(f32) -> u16) {
    let Case { m, n, k, turns, parts, .. } = case;
    let (rows_of_block, strip) = (NmFewRows::<F, TILES, UNITS>::ROWS, NmFewRows::<F, TILES, UNITS>::STRIP);
    let window = NmFewRows::<F, TILES, UNITS>::WINDOW;
    let steps = if F::SPARSE { k.div_ceil(32) } else { case.kept_rows().div_ceil(FEW_ROWS_DEPTH) };
    let (lda, ldc) = (k.next_multiple_of(8) + 8, n + 1);
    let m_tiles = m.div_ceil(rows_of_block);
    let blank = NmFewRowsParams {
        output: Output {
            c: GlobalPtr::NULL,
            bias: GlobalPtr::NULL,
            alpha: Factor::new(2.0f32),
            beta: Factor::new(0.0f32),
            m,
            n,
            ldc,
            flags: Output::flags(OutputType::Sums, Activate::Identity, false),
        },
        part_elements: u64::from(m * ldc),
        a: GlobalPtr::NULL,
        weights: GlobalPtr::NULL,
        names: GlobalPtr::NULL,
        lda,
        k,
        kept: case.kept,
        group: case.group,
        steps,
        turns,
        windows_per_part: 0,
        m_tiles,
        strips: n.div_ceil(strip),
        padding: 0,
    };
    let windows = blank.windows();
    for i in 0..windows {
        assert!(blank.end_column(i) - blank.first_column(i) <= window, "{case:?} suits the instance");
    }
    let Given { weights, names, dense, is_kept } = match F::SPARSE {
        true => Given::two_of_four(&case, &blank, strip, &convert),
        false => Given::picked(&case, &blank, [strip, window], &convert),
    };
    // What is kept by no column, unless the MMA sees it all, and what lies between rows, is not a number.
    let is_seen = |row: u32| row < k && (F::SPARSE || is_kept[row as usize]);
    let a: Vec<f32> = (0..m * lda)
        .map(|i| if is_seen(i % lda) { number(i / lda, i % lda, 3319) } else { f32::NAN })
        .collect();
    let product = |row: u32, column: u32| {
        let terms =
            (0..k).map(|inner| (a[(row * lda + inner) as usize], dense[(inner * n + column) as usize]));
        2.0 * terms.filter(|(_, weight)| *weight != 0.0).map(|(x, weight)| x * weight).sum::<f32>()
    };
    let want: Vec<f32> = (0..m * n).map(|at| product(at / n, at % n)).collect();
    let halves: Vec<u16> = a.iter().map(|&x| convert(x)).collect();
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let c = memory.alloc_from(&vec![-7.0f32; (parts * m * ldc) as usize]);
        let params = NmFewRowsParams {
            output: Output { c: c.cast(), ..blank.output },
            a: memory.alloc_from(&halves).cast(),
            weights: memory.alloc_from(&weights).cast(),
            names: memory.alloc_from(&names).cast(),
            windows_per_part: windows.div_ceil(parts),
            ..blank
        };
        let launch = Launch {
            grid: [n.div_ceil(strip) * parts * m_tiles, 1],
            block_threads: NmFewRows::<F, TILES, UNITS>::BLOCK_THREADS,
            shared_bytes: NmFewRows::<F, TILES, UNITS>::SHARED_BYTES,
            schedule,
        };
        // SAFETY: the parameters keep their obligations.
        let ran = memory.launch(&launch, |s| unsafe { NmFewRows::<F, TILES, UNITS>::run(s, &params) });
        ran.unwrap_or_else(|violation| panic!("{case:?}, {schedule:?}: {violation}"));
        let found = memory.read(c, (parts * m * ldc) as usize).unwrap();
        for (row, column) in (0..m).flat_map(|row| (0..ldc).map(move |column| (row, column))) {
            let found: f32 = (0..parts).map(|part| found[((part * m + row) * ldc + column) as usize]).sum();
            let expected = if column < n { want[(row * n + column) as usize] } else { -7.0 * parts as f32 };
            assert!(
                found == expected,
                "{case:?}, {schedule:?}: ({row}, {column}) is {found}, not {expected}"
            );
        }
    }
}

fn to_f16(value: f32) -> u16 {
    f16::from_f32(value).to_bits()
}

fn to_bf16(value: f32) -> u16 {
    bf16::from_f32(value).to_bits()
}

const HALF: Case = Case { m: 1, n: 32, k: 64, kept: 16, group: 32, turns: 4, parts: 1 };

#[test]
fn one_row() {
    check::<ByPicks<F16>, 1, 2>(HALF, to_f16);
    check::<ByPicks<Bf16>, 1, 1>(Case { n: 40, ..HALF }, to_bf16);
}

/// More windows than there are buffers, the last of them ragged; groups that windows cut in two.
#[test]
fn windows_follow_each_other() {
    check::<ByPicks<F16>, 1, 2>(Case { m: 3, n: 50, k: 1500, kept: 5, group: 8, turns: 1, ..HALF }, to_f16);
    check::<ByPicks<F16>, 1, 1>(Case { m: 8, n: 16, k: 1233, kept: 3, group: 7, turns: 2, ..HALF }, to_f16);
}

#[test]
fn several_tiles_of_rows() {
    check::<ByPicks<F16>, 1, 2>(Case { m: 11, ..HALF }, to_f16);
    check::<ByPicks<Bf16>, 2, 2>(Case { m: 16, n: 33, k: 600, turns: 1, ..HALF }, to_bf16);
    check::<ByPicks<F16>, 2, 1>(Case { m: 13, n: 17, k: 200, turns: 2, ..HALF }, to_f16);
    check::<ByPicks<Bf16>, 4, 2>(Case { m: 29, k: 700, turns: 1, ..HALF }, to_bf16);
    check::<ByPicks<F16>, 4, 1>(Case { m: 33, k: 96, turns: 1, ..HALF }, to_f16);
}

/// Parts of which the last has fewer windows, or none.
#[test]
fn parts_are_added_up() {
    for parts in [2, 4] {
        check::<ByPicks<F16>, 1, 2>(Case { m: 2, k: 800, turns: 1, parts, ..HALF }, to_f16);
    }
}

/// Dense weights, one row of a group of many, and no rows at all.
#[test]
fn extreme_patterns() {
    check::<ByPicks<F16>, 1, 2>(Case { m: 2, k: 1100, kept: 4, group: 4, turns: 4, ..HALF }, to_f16);
    check::<ByPicks<F16>, 1, 1>(Case { m: 2, k: 900, kept: 1, group: 8, turns: 1, ..HALF }, to_f16);
    check::<ByPicks<F16>, 1, 1>(Case { m: 2, k: 0, ..HALF }, to_f16);
}

/// Two of each four rows, which the MMA picks: whole windows, ragged steps, vectors that end in a row.
#[test]
fn two_of_four_rows() {
    let two = Case { kept: 2, group: 4, ..HALF };
    check::<ByMetadata<F16>, 1, 2>(two, to_f16);
    check::<ByMetadata<Bf16>, 1, 2>(Case { m: 11, n: 45, k: 1123, turns: 1, ..two }, to_bf16);
    check::<ByMetadata<F16>, 2, 2>(Case { m: 16, n: 70, k: 1029, ..two }, to_f16);
    check::<ByMetadata<Bf16>, 2, 2>(Case { m: 5, n: 33, k: 777, turns: 1, parts: 2, ..two }, to_bf16);
    check::<ByMetadata<F16>, 4, 2>(Case { m: 35, n: 31, k: 514, turns: 2, ..two }, to_f16);
    check::<ByMetadata<F16>, 1, 2>(Case { m: 2, k: 0, ..two }, to_f16);
}

/// Every element of the operands has one place.
#[test]
fn places_are_a_permutation() {
    let mut weights: Vec<_> =
        (0..16).flat_map(|kept| (0..16).map(move |column| few_rows_weight_index(kept, column))).collect();
    weights.sort_unstable();
    assert_eq!(weights, (0..256).collect::<Vec<_>>());
    let mut picks: Vec<_> = (0..16).map(few_rows_pick_index).collect();
    picks.sort_unstable();
    assert_eq!(picks, (0..16).collect::<Vec<_>>());
    let mut bits: Vec<_> =
        (0..32).flat_map(|column| (0..8).map(move |four| few_rows_metadata_at(column, four))).collect();
    bits.sort_unstable();
    assert_eq!(bits, (0..32).flat_map(|word| (0..8).map(move |i| (word, 4 * i))).collect::<Vec<_>>());
}
