//! The kernel against its definition, on the emulator: ragged sizes, windows that follow each other, and parts.

use half::{bf16, f16};
use windrow_simt::emulator::{Launch, Memory, Schedule};

use super::*;
use crate::element::{Bf16, F16};
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

/// A small number of its own for each place: sums of a few thousand products are exact.
fn number(row: u32, column: u32, step: u32) -> f32 {
    let bits = row.wrapping_mul(131).wrapping_add(column).wrapping_mul(step);
    f32::from(u16::try_from(bits >> 9 & 3).unwrap()) - 1.0
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

/// Runs an instance under every schedule and compares each element of `C` with twice what is expected.
#[track_caller]
fn check<E: NmOperand, const TILES: usize, const UNITS: usize>(case: Case, convert: impl Fn(f32) -> u16) {
    let Case { m, n, k, turns, parts, .. } = case;
    let (rows_of_block, strip) = (NmFewRows::<E, TILES, UNITS>::ROWS, NmFewRows::<E, TILES, UNITS>::STRIP);
    let window = NmFewRows::<E, TILES, UNITS>::WINDOW;
    let (strips, steps) = (n.div_ceil(strip), case.kept_rows().div_ceil(FEW_ROWS_DEPTH));
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
        picks: GlobalPtr::NULL,
        lda,
        k,
        kept: case.kept,
        group: case.group,
        steps,
        turns,
        windows_per_part: 0,
        m_tiles,
    };
    let windows = blank.windows();
    for i in 0..windows {
        assert!(blank.end_column(i) - blank.first_column(i) <= window, "{case:?} suits the instance");
    }
    let mut weights = vec![0u16; (strips * steps * strip * FEW_ROWS_DEPTH) as usize];
    let mut picks = vec![u16::try_from(2 * window).unwrap(); (strips * steps * FEW_ROWS_DEPTH) as usize];
    let mut want = vec![0.0f32; (m * n) as usize];
    let mut is_kept = vec![false; k as usize];
    for (of_strip, kept) in (0..strips).flat_map(|strip| (0..case.kept_rows()).map(move |kept| (strip, kept)))
    {
        let (step, place, row) = (kept / 16, kept % 16, case.row(kept, of_strip));
        is_kept[row as usize] = true;
        let at = (of_strip * steps + step) * FEW_ROWS_DEPTH + few_rows_pick_index(place);
        let first = blank.first_column(step / (FEW_ROWS_WARPS * turns));
        picks[at as usize] = u16::try_from(2 * (row - first)).unwrap();
        for column in
            (of_strip * strip..n.min((of_strip + 1) * strip)).map(|column| column - of_strip * strip)
        {
            let at = ((of_strip * steps + step) * UNITS as u32 + column / 16) * 256;
            let weight = number(row, of_strip * strip + column, 2741);
            weights[(at + few_rows_weight_index(place, column % 16)) as usize] = convert(weight);
            for i in 0..m {
                let sum = &mut want[(i * n + of_strip * strip + column) as usize];
                *sum += 2.0 * weight * number(i, row, 3319);
            }
        }
    }
    // What is kept by no column, and what lies between rows, is not a number.
    let a: Vec<u16> = (0..m * lda)
        .map(|i| match is_kept.get((i % lda) as usize) {
            Some(true) => convert(number(i / lda, i % lda, 3319)),
            _ => 0xffff,
        })
        .collect();
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let c = memory.alloc_from(&vec![-7.0f32; (parts * m * ldc) as usize]);
        let params = NmFewRowsParams {
            output: Output { c: c.cast(), ..blank.output },
            a: memory.alloc_from(&a).cast(),
            weights: memory.alloc_from(&weights).cast(),
            picks: memory.alloc_from(&picks).cast(),
            windows_per_part: windows.div_ceil(parts),
            ..blank
        };
        let launch = Launch {
            grid: [strips, parts * m_tiles],
            block_threads: NmFewRows::<E, TILES, UNITS>::BLOCK_THREADS,
            shared_bytes: NmFewRows::<E, TILES, UNITS>::SHARED_BYTES,
            schedule,
        };
        // SAFETY: the parameters keep their obligations.
        let ran = memory.launch(&launch, |s| unsafe { NmFewRows::<E, TILES, UNITS>::run(s, &params) });
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
    check::<F16, 1, 2>(HALF, to_f16);
    check::<Bf16, 1, 1>(Case { n: 40, ..HALF }, to_bf16);
}

/// More windows than there are buffers, the last of them ragged; groups that windows cut in two.
#[test]
fn windows_follow_each_other() {
    check::<F16, 1, 2>(Case { m: 3, n: 50, k: 1500, kept: 5, group: 8, turns: 1, ..HALF }, to_f16);
    check::<F16, 1, 1>(Case { m: 8, n: 16, k: 1233, kept: 3, group: 7, turns: 2, ..HALF }, to_f16);
}

#[test]
fn several_tiles_of_rows() {
    check::<F16, 1, 2>(Case { m: 11, ..HALF }, to_f16);
    check::<Bf16, 2, 2>(Case { m: 16, n: 33, k: 600, turns: 1, ..HALF }, to_bf16);
    check::<F16, 2, 1>(Case { m: 13, n: 17, k: 200, turns: 2, ..HALF }, to_f16);
    check::<Bf16, 4, 2>(Case { m: 29, k: 700, turns: 1, ..HALF }, to_bf16);
    check::<F16, 4, 1>(Case { m: 33, k: 96, turns: 1, ..HALF }, to_f16);
}

/// Parts of which the last has fewer windows, or none.
#[test]
fn parts_are_added_up() {
    for parts in [2, 4] {
        check::<F16, 1, 2>(Case { m: 2, k: 800, turns: 1, parts, ..HALF }, to_f16);
    }
}

/// Dense weights, one row of a group of many, and no rows at all.
#[test]
fn extreme_patterns() {
    check::<F16, 1, 2>(Case { m: 2, k: 1100, kept: 4, group: 4, turns: 4, ..HALF }, to_f16);
    check::<F16, 1, 1>(Case { m: 2, k: 900, kept: 1, group: 8, turns: 1, ..HALF }, to_f16);
    check::<F16, 1, 1>(Case { m: 2, k: 0, ..HALF }, to_f16);
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
}
