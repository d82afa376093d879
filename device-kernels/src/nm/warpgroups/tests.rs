//! Every instance on the emulator: ragged sizes, several tiles a block, and the places of what is kept.

use half::{bf16, f16};
use windrow_simt::emulator::{Launch, Memory, Schedule};
use windrow_simt::{BoxedMatrix, GlobalPtr, HalfElement, TensorMap};

use super::*;
use crate::NO_ROW;
use crate::element::{Bf16, Dtype, F16};
use crate::nm::testing::number;
use crate::output::{Activate, Output, OutputType};
use crate::real::Factor;

/// Sizes of a product, what its rows of activations are apart, how many blocks do it, and into how many parts.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: u32,
    n: u32,
    k: u32,
    lda: u32,
    blocks: u32,
    span: u32,
    parts_log2: u32,
}

/// The two places that a column keeps in a group.
fn kept(column: u32, group: u32) -> [u32; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][((column * 7 + group * 5) % 6) as usize]
}

/// The weight in row `row`, if the column keeps it.
fn weight(row: u32, column: u32) -> Option<f32> {
    kept(column, row / 4).contains(&(row % 4)).then(|| number(row, column, 2741))
}

/// What a kernel reads of the weights, `runs` times 64 columns a tile: of `rows` rows, or slots, `keeps` says which
/// hold something in a tile.
fn packed(
    (case, rows): (&Case, u32),
    runs: u32,
    keeps: impl Fn(u32, u32) -> bool,
    convert: impl Fn(f32) -> u16,
) -> Vec<u32> {
    let (stages, tiles) = (rows.div_ceil(STAGE_SLOTS), case.n.div_ceil(runs * RUN_COLUMNS));
    let mut words = Vec::new();
    for (tile, stage) in (0..tiles).flat_map(|tile| (0..stages).map(move |stage| (tile, stage))) {
        let mut halves = vec![0u16; (runs * SPARSE_VALUE_BYTES / 2) as usize];
        let mut metadata = vec![0u32; (runs * SPARSE_METADATA_BYTES / 4) as usize];
        for (run, of_run) in (0..runs).flat_map(|run| (0..RUN_COLUMNS).map(move |column| (run, column))) {
            let column = (tile * runs + run) * RUN_COLUMNS + of_run;
            for group in 0..STAGE_SLOTS / 4 {
                let places = kept(column, stage * 16 + group);
                for (i, place) in (0..).zip(places) {
                    let row = stage * STAGE_SLOTS + group * 4 + place;
                    if row < rows && column < case.n && keeps(tile, row) {
                        let at = run * SPARSE_VALUE_BYTES / 2 + sparse_value_index(of_run, group, i);
                        halves[at as usize] = convert(weight(row, column).unwrap());
                    }
                }
                let (word, bit) = sparse_metadata_at(of_run, group);
                metadata[(run * SPARSE_METADATA_BYTES / 4 + word) as usize] |=
                    (places[0] | places[1] << 2) << bit;
            }
        }
        words.extend(halves.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16));
        words.extend(metadata);
    }
    words
}

/// Runs an instance under every schedule and compares each element of `C` with twice what is expected: of a `C` in f32,
/// and, if there is one part, of one of the type of the operands with rows that can be stored whole.
fn check_as<A: Activations, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
    case: Case,
    (stages, weights): (u32, &[u32]),
    params: impl Fn(&Memory, WarpgroupWork) -> A::Params,
    expected: impl Fn(u32, u32) -> f32,
) where
    A::Params: Sync,
{
    type Kernel<A, W, const B: u32, const R: usize, const S: u32> = Warpgroups<A, W, B, R, S>;
    let Case { m, n, blocks, span, parts_log2, .. } = case;
    let parts = 1 << parts_log2;
    let (rows, columns) = (Kernel::<A, W, BLOCKS, R, SLOTS>::BM, Kernel::<A, W, BLOCKS, R, SLOTS>::BN);
    let run = |memory: &Memory, schedule: Schedule, c: GlobalPtr<u32>, ldc: u32, element: OutputType| {
        let (m_tiles, n_tiles) = (m.div_ceil(rows), n.div_ceil(columns));
        let items = (m_tiles * n_tiles) << parts_log2;
        let work = WarpgroupWork {
            output: Output {
                c,
                bias: GlobalPtr::NULL,
                alpha: Factor::new(2.0f32),
                beta: Factor::new(0.0f32),
                m,
                n,
                ldc,
                flags: Output::flags(element, Activate::Identity, false),
            },
            part_elements: u64::from(m * ldc),
            weights: memory.alloc_from(weights),
            stages,
            m_tiles,
            n_tiles,
            span,
            parts_log2,
            items,
        };
        let params = params(memory, work);
        let launch = Launch {
            grid: [blocks.min(items), 1],
            block_threads: Kernel::<A, W, BLOCKS, R, SLOTS>::BLOCK_THREADS,
            shared_bytes: Kernel::<A, W, BLOCKS, R, SLOTS>::SHARED_BYTES,
            schedule,
        };
        // SAFETY: the parameters keep their obligations.
        let ran = memory.launch(&launch, |s| unsafe { Kernel::<A, W, BLOCKS, R, SLOTS>::run(s, &params) });
        ran.unwrap_or_else(|violation| panic!("{case:?}, {element:?}, {schedule:?}: {violation}"));
    };
    let compare = |ldc: u32, schedule: Schedule, found: &[f32], round: &dyn Fn(f32) -> f32| {
        for at in 0..m * ldc {
            let (row, column) = (at / ldc, at % ldc);
            let found: f32 = (0..parts).map(|part| found[(part * m * ldc + at) as usize]).sum();
            let expected = if column < n { round(2.0 * expected(row, column)) } else { -7.0 * parts as f32 };
            assert!(
                found == expected,
                "{case:?}, {schedule:?}: ({row}, {column}) is {found}, not {expected}"
            );
        }
    };
    for schedule in Schedule::STANDARD {
        let memory = Memory::new();
        let ldc = n + 1;
        let c = memory.alloc_from(&vec![-7.0f32; (parts * m * ldc) as usize]);
        run(&memory, schedule, c.cast(), ldc, OutputType::Sums);
        let found = memory.read(c, (parts * m * ldc) as usize).unwrap();
        compare(ldc, schedule, &found, &|sum| sum);
        if parts_log2 > 0 {
            continue;
        }
        let is_bf16 = W::Element::DTYPE == Dtype::Bf16;
        let element = if is_bf16 { OutputType::Bf16 } else { OutputType::F16 };
        let narrow = |x| if is_bf16 { to_bf16(x) } else { to_f16(x) };
        let widen = |bits| {
            if is_bf16 { bf16::from_bits(bits).to_f32() } else { f16::from_bits(bits).to_f32() }
        };
        let ldc = n.next_multiple_of(8) + 8;
        let c = memory.alloc_from(&vec![narrow(-7.0); (m * ldc) as usize]);
        run(&memory, schedule, c.cast(), ldc, element);
        let found: Vec<f32> = memory.read(c, (m * ldc) as usize).unwrap().into_iter().map(widen).collect();
        compare(ldc, schedule, &found, &|sum| widen(narrow(sum)));
    }
}

/// An instance for row-major activations.
fn check<E: Element + HalfElement, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
    case: Case,
    convert: impl Fn(f32) -> u16 + Copy,
) {
    let Case { m, k, lda, .. } = case;
    let weights = packed((&case, k), NmSparse::<E, BLOCKS, R, SLOTS>::RUNS, |_, _| true, convert);
    // What lies between rows must not be seen.
    let activations: Vec<u16> = (0..m * lda)
        .map(|i| if i % lda < k { convert(number(i / lda, i % lda, 3319)) } else { 0xffff })
        .collect();
    let params = |memory: &Memory, work| {
        let matrix = BoxedMatrix {
            address: memory.alloc_from(&activations).address(),
            columns: k,
            rows: m,
            row_bytes: 2 * u64::from(lda),
            box_rows: NmSparse::<E, BLOCKS, R, SLOTS>::BM,
        };
        NmSparseParams { map: TensorMap::emulated(&matrix), work }
    };
    let expected = |row: u32, column: u32| {
        (0..k).filter_map(|inner| Some(number(row, inner, 3319) * weight(inner, column)?)).sum()
    };
    check_as::<RowMajor, TwoOfFour<E>, BLOCKS, R, SLOTS>(
        case,
        (k.div_ceil(STAGE_SLOTS), &weights),
        params,
        expected,
    );
}

/// What makes the parameters of an instance for k-major activations, whose rows are picked in an order: neither rows
/// that are not seen are numbers, nor what lies between rows.
fn picked(
    (case, order): (Case, &[u32]),
    is_seen: impl Fn(u32) -> bool,
    convert: impl Fn(f32) -> u16,
) -> impl Fn(&Memory, WarpgroupWork) -> NmPickedParams {
    let Case { m, k, lda, .. } = case;
    let mut activations = vec![0xffffu16; (k * lda) as usize];
    for row in (0..k).filter(|&row| is_seen(row)) {
        for column in 0..m {
            activations[(row * lda + column) as usize] = convert(number(column, row, 3319));
        }
    }
    move |memory, work| NmPickedParams {
        a: memory.alloc_from(&activations).cast(),
        order: memory.alloc_from(order),
        lda,
        padding: 0,
        work,
    }
}

/// An instance for k-major activations, of which each tile of columns picks rows in an order of its own, with slots
/// that have none; every third row is picked by nobody.
fn check_picked<E: Element + HalfElement, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
    case: Case,
    convert: impl Fn(f32) -> u16 + Copy,
) {
    let Case { n, k, .. } = case;
    let columns = NmPacked::<E, BLOCKS, R, SLOTS>::BN;
    let stages = (k + k / 9).div_ceil(STAGE_SLOTS);
    let slots = stages * STAGE_SLOTS;
    let row_of = |tile: u32, slot: u32| -> Option<u32> {
        let row = (slot * 7 + tile * 5) % k;
        (slot % 9 != 4 && slot < k && row % 3 != 1).then_some(row)
    };
    let tiles = n.div_ceil(columns);
    let mut order = vec![NO_ROW; (tiles * slots) as usize];
    for (tile, slot) in (0..tiles).flat_map(|tile| (0..slots).map(move |slot| (tile, slot))) {
        let of_stage = picked_order_index(slot % STAGE_SLOTS);
        let at = tile * slots + slot / STAGE_SLOTS * STAGE_SLOTS + of_stage;
        order[at as usize] = row_of(tile, slot).unwrap_or(NO_ROW);
    }
    let runs = NmPacked::<E, BLOCKS, R, SLOTS>::RUNS;
    let weights = packed((&case, slots), runs, |tile, slot| row_of(tile, slot).is_some(), convert);
    let params = picked((case, &order), |row| row % 3 != 1, convert);
    let expected = |row: u32, column: u32| {
        let products = (0..slots).filter_map(|slot| {
            let inner = row_of(column / columns, slot)?;
            Some(number(row, inner, 3319) * weight(slot, column)?)
        });
        products.sum()
    };
    check_as::<Picked, TwoOfFour<E>, BLOCKS, R, SLOTS>(case, (stages, &weights), params, expected);
}

/// An instance for k-major activations whose tiles keep some of their rows, each tile others: each row but every third
/// one at most, in an order of the tile's, as many for all.
fn check_kept<E: Element + HalfElement, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
    case: Case,
    convert: impl Fn(f32) -> u16 + Copy,
) {
    let Case { n, k, .. } = case;
    let (columns, runs) = (NmKept::<E, BLOCKS, R, SLOTS>::BN, NmKept::<E, BLOCKS, R, SLOTS>::RUNS);
    let (kept, tiles) = (k / 3, n.div_ceil(columns));
    let row_of = |tile: u32, slot: u32| (slot < kept).then(|| (slot * 3 + tile % 2 + 1) % k);
    let stages = kept.div_ceil(STAGE_SLOTS).max(1);
    let slots = stages * STAGE_SLOTS;
    let mut order = vec![NO_ROW; (tiles * slots) as usize];
    let mut words = Vec::new();
    for (tile, stage) in (0..tiles).flat_map(|tile| (0..stages).map(move |stage| (tile, stage))) {
        let mut halves = vec![0u16; (runs * WHOLE_VALUE_BYTES / 2) as usize];
        for slot in 0..STAGE_SLOTS {
            let Some(row) = row_of(tile, stage * STAGE_SLOTS + slot) else { continue };
            order[(tile * slots + stage * STAGE_SLOTS + picked_order_index(slot)) as usize] = row;
            for column in (0..columns).filter(|column| tile * columns + column < n) {
                let run = column / RUN_COLUMNS * WHOLE_VALUE_BYTES / 2;
                let at = run + whole_value_index(column % RUN_COLUMNS, slot);
                halves[at as usize] = convert(number(row, tile * columns + column, 2741));
            }
        }
        words.extend(halves.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16));
    }
    let is_kept = |row| (0..tiles).any(|tile| (0..kept).any(|slot| row_of(tile, slot) == Some(row)));
    let params = picked((case, &order), is_kept, convert);
    let expected = |row: u32, column: u32| {
        let rows = (0..kept).filter_map(|slot| row_of(column / columns, slot));
        rows.map(|inner| number(row, inner, 3319) * number(inner, column, 2741)).sum()
    };
    check_as::<Picked, Whole<E>, BLOCKS, R, SLOTS>(case, (stages, &words), params, expected);
}

fn to_f16(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

fn to_bf16(x: f32) -> u16 {
    bf16::from_f32(x).to_bits()
}

/// Two tiles each way of which one block takes three, five stages; and one stage that is not full.
const RAGGED: [Case; 2] = [
    Case { m: 70, n: 200, k: 300, lda: 304, blocks: 3, span: 1, parts_log2: 0 },
    Case { m: 3, n: 5, k: 10, lda: 16, blocks: 132, span: 16, parts_log2: 0 },
];

#[test]
fn small_tiles() {
    for case in RAGGED {
        check::<F16, 1, 32, 5>(case, to_f16);
        check::<Bf16, 1, 32, 5>(case, to_bf16);
    }
    // As many steps as there are slots, one stage more, and twice as many; one block takes all tiles.
    for k in [640, 704, 1280] {
        check::<F16, 1, 32, 5>(
            Case { m: 65, n: 129, k, lda: 1280, blocks: 1, span: 2, parts_log2: 0 },
            to_f16,
        );
    }
}

#[test]
fn tiles_of_128_rows() {
    check::<F16, 1, 64, 4>(Case { m: 130, ..RAGGED[0] }, to_f16);
    check::<Bf16, 1, 64, 4>(RAGGED[1], to_bf16);
}

#[test]
fn tiles_of_256_rows() {
    check::<F16, 1, 128, 5>(Case { m: 257, ..RAGGED[0] }, to_f16);
    check::<Bf16, 1, 128, 5>(RAGGED[1], to_bf16);
}

/// Two runs of 64 columns a warpgroup.
#[test]
fn tiles_of_256_columns() {
    check::<F16, 2, 88, 5>(
        Case { m: 177, n: 300, k: 130, lda: 136, blocks: 2, span: 2, parts_log2: 0 },
        to_f16,
    );
    check::<Bf16, 2, 88, 5>(RAGGED[1], to_bf16);
    check::<Bf16, 2, 88, 5>(
        Case { m: 180, n: 260, k: 200, lda: 200, blocks: 1, span: 1, parts_log2: 0 },
        to_bf16,
    );
}

/// Stages in parts of one, of two and three, and of more than there are slots; one block takes all items, or each its
/// own.
#[test]
fn tiles_in_parts() {
    let case = Case { m: 70, n: 200, k: 300, lda: 304, blocks: 3, span: 1, parts_log2: 1 };
    check::<F16, 1, 32, 5>(case, to_f16);
    check::<F16, 1, 32, 5>(Case { parts_log2: 2, ..case }, to_f16);
    check::<Bf16, 1, 32, 5>(Case { parts_log2: 2, blocks: 132, ..case }, to_bf16);
    check::<F16, 1, 32, 5>(Case { m: 9, k: 1216, lda: 1216, blocks: 1, ..case }, to_f16);
    check::<F16, 1, 64, 4>(Case { parts_log2: 2, blocks: 5, ..case }, to_f16);
    check::<Bf16, 1, 128, 5>(case, to_bf16);
    check::<F16, 2, 88, 5>(Case { blocks: 1, ..case }, to_f16);
}

/// Every instance that picks rows: ragged tiles each way, stages fewer than slots of shared memory and more, one block
/// for all items and a block for each, parts.
#[test]
fn rows_that_are_picked() {
    let case = Case { m: 70, n: 200, k: 300, lda: 72, blocks: 3, span: 1, parts_log2: 0 };
    check_picked::<F16, 1, 32, 8>(case, to_f16);
    check_picked::<Bf16, 1, 32, 8>(Case { k: 1000, m: 65, n: 129, blocks: 1, span: 2, ..case }, to_bf16);
    check_picked::<F16, 1, 32, 8>(Case { parts_log2: 2, blocks: 132, ..case }, to_f16);
    check_picked::<F16, 1, 64, 7>(Case { m: 130, lda: 136, parts_log2: 1, ..case }, to_f16);
    check_picked::<Bf16, 1, 128, 4>(Case { m: 257, lda: 264, blocks: 1, ..case }, to_bf16);
    check_picked::<F16, 2, 64, 5>(Case { m: 3, n: 5, k: 10, lda: 8, blocks: 132, ..case }, to_f16);
    check_picked::<Bf16, 2, 64, 5>(Case { m: 129, n: 257, lda: 136, ..case }, to_bf16);
    check_picked::<F16, 2, 96, 4>(Case { m: 200, n: 300, lda: 200, blocks: 2, ..case }, to_f16);
    check_picked::<Bf16, 2, 96, 4>(
        Case { m: 193, k: 500, lda: 200, blocks: 1, parts_log2: 1, ..case },
        to_bf16,
    );
}

/// Every instance whose tiles keep rows, likewise; and weights of which nothing is kept.
#[test]
fn rows_that_are_kept() {
    let case = Case { m: 70, n: 200, k: 600, lda: 72, blocks: 3, span: 1, parts_log2: 0 };
    check_kept::<F16, 1, 32, 8>(case, to_f16);
    check_kept::<Bf16, 1, 32, 8>(Case { k: 2000, m: 65, n: 129, blocks: 1, span: 2, ..case }, to_bf16);
    check_kept::<F16, 1, 32, 8>(Case { parts_log2: 2, blocks: 132, k: 900, ..case }, to_f16);
    check_kept::<F16, 1, 32, 8>(Case { m: 9, k: 2, ..case }, to_f16);
    check_kept::<F16, 1, 64, 6>(Case { m: 130, lda: 136, parts_log2: 1, ..case }, to_f16);
    check_kept::<Bf16, 1, 64, 6>(Case { m: 3, n: 5, k: 10, lda: 8, ..case }, to_bf16);
    check_kept::<F16, 1, 128, 4>(Case { m: 257, lda: 264, blocks: 1, ..case }, to_f16);
    check_kept::<Bf16, 1, 128, 4>(Case { m: 250, lda: 256, k: 1300, ..case }, to_bf16);
    check_kept::<F16, 2, 64, 4>(Case { m: 129, n: 257, lda: 136, ..case }, to_f16);
    check_kept::<Bf16, 2, 64, 4>(
        Case { m: 100, n: 300, lda: 104, blocks: 1, parts_log2: 1, ..case },
        to_bf16,
    );
}

/// No two kept values and no two groups share a place, and all places are taken.
#[test]
fn places_of_what_is_kept() {
    let mut values: Vec<u32> = Vec::new();
    let mut groups: Vec<u32> = Vec::new();
    for (column, group) in (0..RUN_COLUMNS).flat_map(|column| (0..16).map(move |group| (column, group))) {
        values.extend([0, 1].map(|kept| sparse_value_index(column, group, kept)));
        let (word, bit) = sparse_metadata_at(column, group);
        groups.push(word * 8 + bit / 4);
    }
    values.sort_unstable();
    groups.sort_unstable();
    assert!(values.into_iter().eq(0..SPARSE_VALUE_BYTES / 2));
    assert!(groups.into_iter().eq(0..SPARSE_METADATA_BYTES * 2));
    let columns = 0..RUN_COLUMNS;
    let mut whole: Vec<u32> = columns
        .flat_map(|column| (0..STAGE_SLOTS).map(move |slot| whole_value_index(column, slot)))
        .collect();
    whole.sort_unstable();
    assert!(whole.into_iter().eq(0..WHOLE_VALUE_BYTES / 2));
}

/// Tiles come once each, in whatever spans.
#[test]
fn every_tile_is_placed_once() {
    for (n_tiles, m_tiles, span) in [(1, 1, 1), (7, 3, 2), (16, 5, 16), (33, 2, 16)] {
        let mut work: WarpgroupWork = bytemuck::Zeroable::zeroed();
        (work.n_tiles, work.m_tiles, work.span) = (n_tiles, m_tiles, span);
        let mut tiles: Vec<_> = (0..n_tiles * m_tiles).map(|tile| work.place(tile)).collect();
        tiles.sort_unstable();
        assert!(tiles.into_iter().eq((0..n_tiles).flat_map(|n| (0..m_tiles).map(move |m| (n, m)))));
    }
}
